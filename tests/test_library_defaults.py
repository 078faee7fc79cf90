"""What the libraries under torch read from the environment."""

import os
import subprocess
import sys

import pytest

from app.settings import LIBRARY_DEFAULTS, set_library_defaults


def test_they_are_set_and_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    set_library_defaults()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert os.environ["PYTORCH_ALLOC_CONF"] == LIBRARY_DEFAULTS["PYTORCH_ALLOC_CONF"]


def test_they_can_be_set_before_torch_is_there() -> None:
    code = "import sys, app.__main__, app.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
