"""The README: what it says is so, and what it shows works as written."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.api.errors import INTERNAL, TABLE
from app.settings import Settings
from tests.server import RunningServer

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def shown(value: Any) -> str:
    """A default as the table has it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "`on`" if value else "`off`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def test_the_table_of_options_is_that_of_the_settings() -> None:
    expected = [
        f"| `--{name.replace('_', '-')}` | {shown(field.default)} | {field.description} |"
        for name, field in Settings.model_fields.items()
        if name not in ("cuda_visible_devices", "cuda_device_order")
    ]
    found = re.findall(r"^\| `--.*\|$", README, re.MULTILINE)
    assert found == expected


def test_the_table_of_errors_names_every_status_and_type() -> None:
    rows = "".join(re.findall(r"^\| [45]\d\d.*\|$", README, re.MULTILINE))
    for status, error_type in [*TABLE.values(), INTERNAL]:
        assert str(status) in rows
        assert f"`{error_type}`" in rows


def examples(language: str) -> list[tuple[str, str]]:
    """Code blocks of a language that are followed by a block with their output."""
    block = "((?:(?!```).)*)"
    return re.findall(rf"```{language}\n{block}```\n\n```\n{block}```", README, re.DOTALL)


@pytest.mark.parametrize(("code", "output"), examples("python"))
def test_python_examples_print_what_they_say(real_server: RunningServer, code: str, output: str) -> None:
    code = code.replace("http://127.0.0.1:8000", real_server.url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == output


@pytest.mark.parametrize(("code", "output"), examples("sh"))
def test_shell_examples_answer_with_the_numbers_they_show(real_server: RunningServer, code: str, output: str) -> None:
    code = code.replace("http://127.0.0.1:8000", real_server.url).replace("curl ", "curl -s ")
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    numbers = [[float(n) for n in re.findall(r"-?\d+\.\d+", text)] for text in (done.stdout, output)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-5)


def test_the_readme_has_examples_to_run() -> None:
    assert len(examples("python")) == 2
    assert len(examples("sh")) == 1


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "docs/batching.md",
        "docs/clients.md",
        "docs/performance.md",
    ],
)
def test_links_to_files_of_the_project_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
