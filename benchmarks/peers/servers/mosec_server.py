"""The model behind mosec: POST /inference {"inputs": text or list of texts}. Its port and bounds are set by MOSEC_…"""

from typing import Any

from encoder import Encoder, Options  # type: ignore[import-not-found]
from mosec import Server, Worker  # type: ignore[import-not-found]


class Embed(Worker):  # type: ignore[misc]
    """mosec makes the batches, in Rust; each of its workers is a process with a copy of this."""

    def __init__(self) -> None:
        self.encoder = Encoder(Options.from_environment())

    def forward(self, data: list[dict[str, Any]]) -> Any:
        return self.encoder.answers([item["inputs"] for item in data])

    def serialize(self, data: bytes) -> bytes:
        return data  # JSON already


if __name__ == "__main__":
    options = Options.from_environment()
    server = Server()
    server.append_worker(
        Embed, num=options.workers, max_batch_size=options.max_batch_size, max_wait_time=int(options.max_wait_ms)
    )
    server.run()
