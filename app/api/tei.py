"""The rest of text-embeddings-inference's protocol: token vectors, tokens, similarity, and classification heads.

Reference: https://huggingface.github.io/text-embeddings-inference, its OpenAPI document.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from app.api.bill import HEADERS
from app.api.call import JSON, Call, Reply
from app.api.embed import embed_endpoint
from app.api.embed_request import body_schema
from app.api.encoders import Matrix, as_json, in_turns
from app.api.inputs import ids_schema, inputs_schema, prompt_schema, text_schema
from app.api.routes import Endpoint, Route, Schema, answered
from app.api.serving import REQUEST_HEADERS, TOKENIZER_ERRORS, WORK_ERRORS, Serving
from app.api.tei_requests import (
    DecodeRequest,
    EmbedAllRequest,
    PredictRequest,
    RerankRequest,
    SimilarityRequest,
    TokenizeRequest,
    options_of,
)
from app.api.validation import described, read_body
from app.embedder import ModelInfo
from app.scorer import ranked, scores_of


def tei_routes(serving: Serving) -> list[Route]:
    """The routes besides `/embed`."""
    embed = embed_endpoint(serving)

    async def embed_all(call: Call) -> Reply:
        asked = await serving.read(call, lambda body: read_body(EmbedAllRequest, body).asked())
        matrices, bill = await serving.embed_tokens(call, asked)
        rows = [await in_turns(as_json, matrix) for matrix in matrices]
        return serving.answer(call, bill, b"[" + b",".join(rows) + b"]")

    async def similarity(call: Call) -> Reply:
        asked = await serving.read(call, lambda body: read_body(SimilarityRequest, body).asked())
        rows, bill = await serving.embed(call, asked)
        return serving.answer(call, bill, _json(rows[1:] @ rows[0]))

    async def tokenize(call: Call) -> Reply:
        request = await serving.read(call, lambda body: read_body(TokenizeRequest, body))
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        tokens = await serving.tokens(call, texts, request.prompt_name, special=request.add_special_tokens is not False)
        body = await asyncio.to_thread(_json, [[one._asdict() for one in text] for text in tokens])
        return Reply(200, body, JSON)

    async def decode(call: Call) -> Reply:
        request = await serving.read(call, lambda body: read_body(DecodeRequest, body))
        ids: Any = request.ids if request.ids and isinstance(request.ids[0], list) else [request.ids]
        texts = await serving.decode(call, ids, skip_special=request.skip_special_tokens is not False)
        return Reply(200, _json(texts), JSON)

    async def predict(call: Call) -> Reply:
        request = await serving.read(call, lambda body: read_body(PredictRequest, body))
        logits, bill = await serving.score(call, request.pairs(), options_of(request), "inputs", one=request.one)
        model = serving.loaded_model()
        scores = scores_of(logits, model, raw=request.raw_scores is True)
        found = [_predictions(row, model.labels) for row in scores]
        return serving.answer(call, bill, _json(found[0] if request.one else found))

    async def rerank(call: Call) -> Reply:
        request = await serving.read(call, lambda body: read_body(RerankRequest, body))
        logits, bill = await serving.rank(call, request.query, request.texts, options_of(request), "texts")
        order = ranked(logits, serving.loaded_model(), raw=request.raw_scores is True)
        found: list[dict[str, Any]] = [{"index": index, "score": score} for index, score in order]
        if request.return_text:
            for one in found:
                one["text"] = request.texts[one["index"]]
        return serving.answer(call, bill, _json(found))

    async def by_kind(call: Call) -> Reply:
        model = serving.loaded_model()
        if model.kind == "classification":
            return await (rerank if len(model.labels) == 1 else predict)(call)
        return await embed(call)

    def n() -> int:
        return serving.max_inputs

    def inputs() -> Schema:
        return inputs_schema(n(), serving.model())

    def prompt() -> Schema:
        return prompt_schema(serving.model())

    def what_it_does() -> Schema:
        model = serving.model()
        if model is None or model.kind == "embedding":
            return body_schema(n(), model)
        return _rerank_schema(n()) if len(model.labels) == 1 else _predict_schema(n())

    def route(
        path: str,
        endpoint: Endpoint,
        summary: str,
        description: str,
        answer: Schema,
        schema: Callable[[], Schema],
        example: Schema,
        *,
        runs: bool = True,
    ) -> Route:
        """`runs`: the model is run, rather than its tokenizer alone."""
        return Route(
            path, "POST", endpoint, summary, description, {200: answer},
            WORK_ERRORS if runs else TOKENIZER_ERRORS, body_schema=schema,
            examples={"one": {"value": example}}, headers=REQUEST_HEADERS if runs else {},
        )  # fmt: skip

    return [
        route(
            "/", by_kind, "What the model does", "As /embed, /rerank or /predict, by the kind of model.",
            answered("The answer of that path.", {}, HEADERS), what_it_does, {"inputs": "Where is my card?"},
        ),
        route(
            "/embed_all", embed_all, "Embed each token",
            "The model's last hidden state at each token of each input, before pooling.",
            answered("For each input, a row for each token.", _lists(3), HEADERS),
            lambda: described(EmbedAllRequest, inputs=inputs(), prompt_name=prompt()), {"inputs": "Where is my card?"},
        ),
        route(
            "/similarity", similarity, "Compare sentences",
            "The cosine of the first sentence and each of the others.",
            answered("One similarity for each sentence.", _lists(1), HEADERS),
            lambda: _similarity_schema(n() - 1, prompt()),
            {"inputs": {"source_sentence": "Where is my card?", "sentences": ["My card is lost.", "Good day."]}},
        ),
        route(
            "/tokenize", tokenize, "Tokenize",
            "The tokens of each text, as the model's tokenizer finds them; nothing is cut.",
            answered("For each text, its tokens.", _lists(2, _TOKEN)),
            lambda: described(TokenizeRequest, inputs={"anyOf": text_schema(n(), 0)}, prompt_name=prompt()),
            {"inputs": "Where is my card?"}, runs=False,
        ),
        route(
            "/decode", decode, "Token ids to text", "The text of each list of token ids.",
            answered("One text for each list.", _lists(1, {"type": "string"})),
            lambda: described(DecodeRequest, ids=ids_schema(n(), serving.model())), {"ids": [101, 102]}, runs=False,
        ),
        route(
            "/predict", predict, "Classify",
            "The score of each label, the best first; for models with a classification head.",
            answered("Labels and scores: a list of them, or of such lists.", {"type": "array"}, HEADERS),
            lambda: _predict_schema(n()), {"inputs": "I like this."},
        ),
        route(
            "/rerank", rerank, "Order texts by a query",
            "Each text's index and score, the best first; for models with a classification head of one label.",
            answered("Index and score of each text, and the text if asked for.", _lists(1, _RANK), HEADERS),
            lambda: _rerank_schema(n()), {"query": "Where is my card?", "texts": ["It is on its way.", "Good day."]},
        ),
    ]  # fmt: skip


def tei_info(model: ModelInfo | None, settings: Mapping[str, Any], budget: int | None) -> Schema:
    """`/info` by text-embeddings-inference's field names, None for what is not known."""
    kind: dict[str, Any] | None = None
    if model is not None:
        labels = {str(index): label for index, label in enumerate(model.labels)}
        ids = {label: index for index, label in enumerate(model.labels)}
        head = {"id2label": labels, "label2id": ids}
        pooling = {"pooling": model.details.get("pooling") or "mean"}
        name = "embedding" if model.kind == "embedding" else "reranker" if len(labels) == 1 else "classifier"
        kind = {name: pooling if model.kind == "embedding" else head}
    return {
        "model_sha": settings["revision"],
        "model_dtype": model.dtype if model is not None else None,
        "model_type": kind,
        "max_concurrent_requests": settings["max_queue_items"],
        "max_input_length": model.max_input_tokens if model is not None else None,
        "max_batch_tokens": budget,
        "max_batch_requests": settings["max_batch_items"],
        "max_client_batch_size": settings["max_inputs"],
        "auto_truncate": settings["truncate"],
        "tokenization_workers": 1,
        "sha": None,
        "docker_label": None,
    }


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _predictions(scores: Matrix, labels: Sequence[str]) -> list[Schema]:
    order = np.argsort(-scores, kind="stable")
    return [{"score": scores[i], "label": labels[i]} for i in order]


def _lists(depth: int, of: Schema | None = None) -> Schema:
    """A schema of lists, so many levels of them, of numbers or of something else."""
    return {"type": "array", "items": _lists(depth - 1, of)} if depth else of or {"type": "number"}


def _similarity_schema(most: int, prompt: Schema) -> Schema:
    schema = described(SimilarityRequest)
    schema["$defs"]["SimilarityInputs"]["properties"]["sentences"] = text_schema(most)[1]
    schema["$defs"]["SimilarityParameters"]["properties"]["prompt_name"] = prompt
    return schema


def _predict_schema(most: int) -> Schema:
    text = {"type": "string", "minLength": 1}
    pair = {"type": "array", "items": text, "minItems": 2, "maxItems": 2}
    batch = {"type": "array", "items": {**pair, "minItems": 1}, "minItems": 1, "maxItems": most}
    return described(PredictRequest, inputs={"anyOf": [text, pair, batch]})


def _rerank_schema(most: int) -> Schema:
    return described(RerankRequest, texts=text_schema(most)[1])


_TOKEN: Schema = {
    "type": "object",
    "required": ["id", "text", "special", "start", "stop"],
    "properties": {
        "id": {"type": "integer"},
        "text": {"type": "string"},
        "special": {"type": "boolean"},
        "start": {"type": ["integer", "null"]},
        "stop": {"type": ["integer", "null"]},
    },
}
_RANK: Schema = {
    "type": "object",
    "required": ["index", "score"],
    "properties": {"index": {"type": "integer"}, "score": {"type": "number"}, "text": {"type": "string"}},
}
