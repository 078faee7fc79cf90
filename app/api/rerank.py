"""`POST /v1/rerank` and `/v2/rerank`, as Cohere and Jina have them.

References: https://docs.cohere.com/reference/rerank and https://api.jina.ai/redoc
"""

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from app.api.bill import HEADERS
from app.api.call import Call, Reply
from app.api.errors import ErrorShape, Problem
from app.api.routes import Route, Schema, answered
from app.api.serving import REQUEST_HEADERS, WORK_ERRORS, Serving
from app.api.validation import described, read_body, whole
from app.scorer import ScoreOptions, ranked


class RerankError(BaseModel):
    """An error, as Cohere words it."""

    message: str


def _error_body(problem: Problem) -> object:
    return {"message": problem.message}


RERANK_ERROR = ErrorShape(_error_body, RerankError)


class Document(BaseModel):
    """A document as an object."""

    model_config = ConfigDict(strict=True)

    text: str = Field(min_length=1)


class RerankRequest(BaseModel):
    """A query, and the documents to order by how well they answer it; unknown fields are ignored."""

    model_config = ConfigDict(strict=True)

    model: str | None = Field(None, description="Which model is meant; the answer says which one it was.")
    query: str = Field(min_length=1, description="What is looked for.")
    documents: list[str | Document] = Field(min_length=1, description="Texts, or objects with a `text`.")
    top_n: Annotated[int, Field(ge=1), BeforeValidator(whole)] | None = Field(
        None, description="Answer with so many of the best; all by default."
    )
    return_documents: bool | None = Field(False, description="Repeat the documents in the answer.")

    def texts(self) -> list[str]:
        """The documents' texts."""
        return [one if isinstance(one, str) else one.text for one in self.documents]


def rerank_routes(serving: Serving) -> list[Route]:
    """The routes `POST /v1/rerank` and `/v2/rerank`, which are alike."""

    async def rerank(call: Call) -> Reply:
        request = await serving.read(call, lambda body: read_body(RerankRequest, body))
        name = serving.served_name(request.model)
        texts = request.texts()
        logits, bill = await serving.rank(call, request.query, texts, ScoreOptions(), "documents")
        order = ranked(logits, serving.loaded_model(), raw=False)[: request.top_n]
        results: list[dict[str, Any]] = [{"index": index, "relevance_score": score} for index, score in order]
        if request.return_documents:
            for one in results:
                one["document"] = {"text": texts[one["index"]]}
        body = {
            "id": call.request_id.decode(),
            "model": name,
            "results": results,
            "usage": {"prompt_tokens": bill.tokens, "total_tokens": bill.tokens},
            "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}},
        }
        encoded = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        return serving.answer(call, bill, encoded)

    def at(path: str) -> Route:
        return Route(
            path, "POST", rerank, "Order documents by a query, as Cohere and Jina do",
            "Each document's index and relevance, from 0 to 1, the best first; for models with a classification head "
            "of one label.",
            {200: answered("The documents in order.", _RANKED, HEADERS)},
            (*WORK_ERRORS, 404), headers=REQUEST_HEADERS, shape=RERANK_ERROR,
            body_schema=lambda: _schema(serving.max_inputs),
            examples={"two documents": {"value": _EXAMPLE}},
        )  # fmt: skip

    return [at("/v1/rerank"), at("/v2/rerank")]


def _schema(max_inputs: int) -> Schema:
    schema = described(RerankRequest)
    text: Schema = {"type": "string", "minLength": 1}
    schema["properties"]["documents"]["items"]["anyOf"][0] = text
    schema["properties"]["documents"]["maxItems"] = max_inputs
    return schema


_EXAMPLE: Mapping[str, Any] = {
    "query": "Where is my card?",
    "documents": ["It is on its way.", "Good day."],
    "top_n": 1,
}
_RANKED: Schema = {
    "type": "object",
    "required": ["id", "model", "results", "usage", "meta"],
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["index", "relevance_score"],
                "properties": {
                    "index": {"type": "integer"},
                    "relevance_score": {"type": "number"},
                    "document": {"type": "object"},
                },
            },
        }
    },
}
