"""The environments of the peers: one each, made by venv and pip from the pins in `requirements/`.

An environment sees the packages of the one that runs this (through a .pth file), after its own: torch is on the disk
once, and is the same for all. What a peer needs in another version, its requirements bring.
"""

import hashlib
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

from benchmarks.load import ROOT

FOLDER = ROOT / ".venv-peers"
REQUIREMENTS = Path(__file__).parent / "requirements"
SHARED = ("torch", "transformers", "sentence-transformers", "tokenizers", "numpy")
"""Whose versions are reported with each peer's own."""


class PeerUnavailable(Exception):
    """A peer cannot be measured here; the message says why."""


def install(name: str) -> Path:
    """The folder of the peer's environment, made or brought up to date; raises PeerUnavailable with pip's reason."""
    folder = FOLDER / name
    requirements = REQUIREMENTS / f"{name}.txt"
    stamp = folder / ".installed"
    packages = sysconfig.get_paths()["purelib"]
    wanted = hashlib.sha256(requirements.read_bytes() + packages.encode() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    print(f"installing {name} into {folder} …", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], f"no environment for {name}")
    [site] = folder.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(packages + "\n")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    _run([*pip, "-r", str(requirements)], f"pip could not install {name}")
    stamp.write_text(wanted)
    return folder


def versions(python: Path, package: str) -> dict[str, str]:
    """The versions of the package and of what computes, as that interpreter sees them."""
    code = (
        "import importlib.metadata as m, json, sys\nprint(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run([python, "-c", code, package, *SHARED], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise PeerUnavailable(f"{what}: {said[-1] if said else f'exit code {done.returncode}'}")
