"""The law of the layers: who may import whom."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
APP = ROOT / "app"

MAY_IMPORT = {
    "app.__main__": {"app.main", "app.settings", "app.logs", "app.errors", "app.ingest", "app.doctor"},
    "app.doctor": {"app.errors", "app.settings", "app.vectorizers"},
    "app.ingest": set(),
    "app.main": {
        "app.about", "app.api", "app.cards", "app.errors", "app.intake", "app.live", "app.metrics", "app.server",
        "app.service", "app.settings", "app.tracing",
    },
    "app.tracing": {"app.api.bill", "app.api.call", "app.api.ledger", "app.batching", "app.intake"},
    "app.about": {"app.batching", "app.live", "app.service", "app.settings"},
    "app.live": {"app.api.ledger", "app.diagnosis", "app.loop_lag", "app.metrics", "app.sample"},
    "app.sample": {"app.api.ledger", "app.diagnosis", "app.metrics"},
    "app.diagnosis": set(),
    "app.loop_lag": set(),
    "app.cards": set(),
    "app.server": {"app.api.call"},
    "app.service": {
        "app.batching", "app.embedder", "app.errors", "app.intake", "app.items", "app.metrics", "app.prompts",
        "app.scorer", "app.settings", "app.tuning", "app.vector_cache", "app.vectorizers", "app.worker",
    },
    "app.api": {
        "app.batching.facts", "app.embedder", "app.errors", "app.intake", "app.prompts", "app.scorer",
        "app.vectorizers.base",
    },
    "app.metrics": {"app.batching", "app.cards", "app.errors", "app.series", "app.vectorizers.base"},
    "app.embedder": {
        "app.batching", "app.errors", "app.intake", "app.prompts", "app.vector_cache", "app.vectorizers.base",
    },
    "app.scorer": {"app.batching", "app.errors", "app.intake", "app.vectorizers.base"},
    "app.intake": {"app.batching", "app.errors", "app.token_estimate", "app.vectorizers.base"},
    "app.items": {"app.batching", "app.errors", "app.vectorizers.base"},
    "app.tuning": {"app.batching", "app.settings", "app.vectorizers.base"},
    "app.prompts": {"app.errors"},
    "app.token_estimate": set(),
    "app.vector_cache": {"app.vectorizers.base"},
    "app.worker": {"app.errors"},
    "app.batching": {"app.errors"},
    "app.vectorizers": {"app.errors"},
    "app.vectorizers.__init__": {"app.errors", "app.settings"},
    "app.settings": {"app.errors"},
    "app.series": set(),
    "app.logs": set(),
    "app.errors": set(),
    "app.__init__": set(),
}  # fmt: skip
"""Each module or package, and what it may import of the project besides itself and the version."""

NEVER = {
    "app.batching": {"torch", "numpy", "fastapi", "starlette", "uvicorn", "prometheus_client", "pydantic_settings"},
    "app.vectorizers": {"asyncio", "fastapi", "starlette", "uvicorn", "prometheus_client"},
    "app.api": {"torch", "prometheus_client", "uvicorn", "transformers", "sentence_transformers"},
    "app.embedder": {"torch", "fastapi", "starlette", "prometheus_client"},
    "app.scorer": {"torch", "fastapi", "starlette", "prometheus_client"},
    "app.intake": {"torch", "fastapi", "starlette", "prometheus_client"},
    "app.items": {"torch", "asyncio", "fastapi", "starlette", "prometheus_client"},
    "app.worker": {"torch", "fastapi", "starlette", "prometheus_client"},
    "app.doctor": {"asyncio", "fastapi", "starlette", "uvicorn", "prometheus_client"},
    "app.service": {"torch", "fastapi", "starlette", "prometheus_client"},
}
"""Libraries that a layer has no business with."""


def modules() -> list[str]:
    return sorted(str(path.relative_to(ROOT).with_suffix("")).replace("/", ".") for path in APP.rglob("*.py"))


def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text())


def imports(module: str) -> Iterator[str]:
    """Every module that this one imports, wherever in the file, and for `from a import b` both a and a.b."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{module}: write imports in full"
            yield node.module


def owner(module: str, table: dict[str, set[str]]) -> str | None:
    """The entry of a table that governs a module: its own, or that of the nearest package around it."""
    while module not in table and "." in module:
        module = module.rpartition(".")[0]
    return module if module in table else None


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_from_the_layers_below_it(module: str) -> None:
    layer = owner(module, MAY_IMPORT)
    assert layer is not None, f"{module} has no place in the layers yet"
    package = layer.removesuffix(".__init__")
    for target in imports(module):
        if not target.startswith("app.") or target == package or target.startswith(package + "."):
            continue
        allowed = MAY_IMPORT[layer]
        assert any(target == name or target.startswith(name + ".") for name in allowed), f"{module} imports {target}"


@pytest.mark.parametrize("module", modules())
def test_a_module_leaves_the_libraries_of_other_layers_alone(module: str) -> None:
    layer = owner(module, NEVER)
    banned = NEVER[layer] if layer is not None else set()
    used = {target.partition(".")[0] for target in imports(module)}
    assert not used & banned, f"{module} imports {sorted(used & banned)}"


@pytest.mark.parametrize("module", [module for module in modules() if module != "app.settings"])
def test_only_settings_reads_the_environment(module: str) -> None:
    names = {node.attr for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute)}
    assert not names & {"environ", "getenv", "environb"}


def test_the_load_test_knows_nothing_of_the_application() -> None:
    for path in (ROOT / "loadtest").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("app")
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("app") for alias in node.names)
