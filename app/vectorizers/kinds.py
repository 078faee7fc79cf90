"""Kinds of models: whether a model turns texts into vectors or classifies them, by its files."""

import json
from pathlib import Path
from typing import Any

from sentence_transformers.util import load_file_path

from app.errors import StartFailed
from app.vectorizers.sources import ModelSource


def is_classifier(source: ModelSource) -> bool:
    """Whether sentence-transformers would read the model as a CrossEncoder.

    Its own mark decides; without one, a model with `modules.json` makes vectors, and one of transformers' classifies if
    its architecture says so. Raises StartFailed where a file that decides cannot be had.
    """
    mark = _read(source, "config_sentence_transformers.json")
    if isinstance(mark, dict) and "model_type" in mark:
        return bool(mark["model_type"] == "CrossEncoder")
    if _read(source, "modules.json") is not None:
        return False
    config = _read(source, "config.json")
    architectures: list[str] = (config.get("architectures") if isinstance(config, dict) else None) or [""]
    return str(architectures[0]).endswith("ForSequenceClassification")


def _read(source: ModelSource, name: str) -> Any:
    """A JSON file of the model's, None where it has none of that name."""
    try:
        path = load_file_path(source.location, name, revision=source.revision, local_files_only=source.local)
        return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StartFailed(f"The model {source.location} cannot be loaded: {name}: {error}") from error
