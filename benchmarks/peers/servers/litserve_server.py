"""The model behind LitServe: POST /predict {"inputs": text or list of texts}."""

from typing import Any

import litserve  # type: ignore[import-not-found]
from encoder import Encoder, Options  # type: ignore[import-not-found]
from starlette.responses import Response


class Embed(litserve.LitAPI):  # type: ignore[misc]
    """LitServe makes the batches; each of its workers has a copy of this."""

    def setup(self, device: str) -> None:
        self.encoder = Encoder(Options.from_environment())

    def decode_request(self, request: dict[str, Any]) -> Any:
        return request["inputs"]

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, x: list[Any]) -> Any:
        return self.encoder.answers(x)

    def unbatch(self, output: Any) -> Any:
        return output

    def encode_response(self, output: bytes) -> Response:
        return Response(output, media_type="application/json")


if __name__ == "__main__":
    options = Options.from_environment()
    api = Embed(max_batch_size=options.max_batch_size, batch_timeout=options.max_wait_ms / 1e3)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=options.workers)
    server.run(host="127.0.0.1", port=options.port, log_level="error", generate_client_file=False)
