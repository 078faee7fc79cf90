"""The model behind `batched` and FastAPI: POST /predict {"inputs": text or list of texts}."""

import uvicorn
from batched import aio  # type: ignore[import-not-found]
from batched.types import PriorityStrategy  # type: ignore[import-not-found]
from encoder import Encoder, Options, as_json  # type: ignore[import-not-found]
from fastapi import FastAPI, Response
from pydantic import BaseModel

options = Options.from_environment()
embed = aio.dynamically(
    Encoder(options).encode,
    batch_size=options.max_batch_size,
    timeout_ms=options.max_wait_ms,
    priority_strategy=PriorityStrategy.PRIORITY,  # short requests before long lists: its own answer to mixed load
)
app = FastAPI()


class Request(BaseModel):
    inputs: str | list[str]


@app.post("/predict")
async def predict(request: Request) -> Response:
    texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    return Response(as_json(await embed(texts)), media_type="application/json")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="error", access_log=False)
