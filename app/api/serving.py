"""What every protocol does with a call: read it, have its inputs embedded or scored, say how that went."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from app.api.bill import Shares, headers_for, shares_of
from app.api.call import JSON, Call, Header, Reply
from app.api.watch import Watchman
from app.embedder import Content, Embedder, Embeddings, EmbedOptions, LaneName, ModelInfo, TokenVectors
from app.errors import InvalidInput, UnknownModel, WrongModel
from app.intake import Bill
from app.prompts import unknown_prompt
from app.scorer import Pair, ScoreOptions, Scorer, Scores
from app.vectorizers.base import Matrix, Token

T = TypeVar("T")
A = TypeVar("A", Embeddings, TokenVectors, Scores)
Options = TypeVar("Options", EmbedOptions, ScoreOptions)

LARGE_BODY = 262_144
"""A larger body is parsed on another thread: the loop shares the interpreter with it, but goes on turning."""
LANE_NAMES: dict[bytes, LaneName] = {b"interactive": "interactive", b"bulk": "bulk"}
TIMEOUT = re.compile(rb"0*[1-9][0-9]{0,8}")

REQUEST_HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "X-Lane": (
        {"type": "string", "enum": ["interactive", "bulk"]},
        "Which lane takes the request; by default that depends on how many inputs it has.",
    ),
    "X-Request-Timeout-Ms": (
        {"type": "integer", "minimum": 1, "maximum": 10**9 - 1},
        "How long the answer may take, in milliseconds, where that is less than the service allows.",
    ),
}
WORK_ERRORS = (401, 408, 413, 415, 422, 424, 429, 500, 503, 504)
"""What a request for work may be answered with."""

MAX_TOKENIZED_CHARACTERS = 131_072
"""Each may be a token of its own, and a token is some 70 bytes of JSON."""
TOKENIZER_ERRORS = (401, 408, 413, 415, 422, 500, 503, 504)
"""What a request to the tokenizer alone may be answered with."""


ReportAnswered = Callable[[Call, Bill, Shares], None]


class Asked(NamedTuple):
    """A valid request: its inputs as a list, the field and the form in which they were sent, what is wanted of them,
    and of which model."""

    field: str
    contents: Sequence[Content]
    one: bool
    options: EmbedOptions
    as_base64: bool = False
    model: str | None = None


class Models(Protocol):
    """What protocols ask of the service; all but `model` raise NotReady or ShuttingDown while there is nothing to ask,
    and WrongModel where the model is of another kind."""

    def embedder(self) -> Embedder: ...
    def scorer(self) -> Scorer: ...
    def loaded_model(self) -> ModelInfo: ...
    def model(self) -> ModelInfo | None: ...
    async def tokens(self, texts: Sequence[str], special: bool) -> list[list[Token]]: ...
    async def decode(self, ids: Sequence[Sequence[int]], skip_special: bool) -> list[str]: ...


class Serving:
    """The way of a request through a protocol: the same for each of them."""

    def __init__(
        self,
        models: Models,
        *,
        max_inputs: int,
        max_body_bytes: int,
        body_timeout_s: float,
        refuse_unknown_models: bool,
        report_truncated: Callable[[int], None],
        report_answered: ReportAnswered,
    ) -> None:
        """`report_truncated` is told how many inputs of an answer were cut, `report_answered` of each answer what it
        cost, just before it is sent."""
        self.embedder = models.embedder
        self.model = models.model
        self.loaded_model = models.loaded_model
        self.max_inputs = max_inputs
        self.max_body_bytes = max_body_bytes
        self.body_timeout_s = body_timeout_s
        self.report_truncated = report_truncated
        self._report_answered = report_answered
        self._models = models
        self._refuse_unknown_models = refuse_unknown_models
        self._watchman = Watchman()
        self._compute_type = b""

    async def read(self, call: Call, parse: Callable[[bytes], T]) -> T:
        """The request that the body holds; raises what `Call.read_json_body` raises, and InvalidInput."""
        body = await call.read_json_body(self.max_body_bytes, self.body_timeout_s)
        asked = parse(body) if len(body) <= LARGE_BODY else await asyncio.to_thread(parse, body)
        call.parsed_s = call.elapsed_s
        return asked

    def embed(self, call: Call, asked: Asked) -> Awaitable[Embeddings]:
        """The vectors asked for; raises what `Embedder.embed` raises, with the field named as the client has it."""
        options = with_headers(asked.options, call)
        embedder = self.embedder()
        return self._watched(call, embedder.embed(asked.contents, options), asked.field, asked.one)

    def embed_tokens(self, call: Call, asked: Asked) -> Awaitable[TokenVectors]:
        """The vectors of each token; raises what `Embedder.embed_tokens` raises."""
        options = with_headers(asked.options, call)
        embedder = self.embedder()
        return self._watched(call, embedder.embed_tokens(asked.contents, options), asked.field, asked.one)

    async def score(
        self, call: Call, pairs: Sequence[Pair], options: ScoreOptions, field: str, *, one: bool = False
    ) -> Scores:
        """The logits of pairs; raises what `Scorer.score` raises, with the field named as the client has it."""
        options = with_headers(options, call)
        scorer = self._models.scorer()
        return await self._watched(call, scorer.score(pairs, options), field, one)

    async def rank(
        self, call: Call, query: str, texts: Sequence[str], options: ScoreOptions, field: str
    ) -> tuple[Matrix, Bill]:
        """The logit of each text with the query, float32 (n, 1); raises WrongModel too where the model has not one
        label."""
        options = with_headers(options, call)
        scorer = self._models.scorer()
        if (n := len(scorer.model.labels)) != 1:
            raise WrongModel(
                f"{scorer.model.name} has {n} labels; texts are ordered by a model with one. Use /predict."
            )
        return await self._watched(call, scorer.score([(query, text) for text in texts], options), field, one=False)

    async def tokens(
        self, call: Call, texts: Sequence[str], prompt_name: str | None, *, special: bool
    ) -> list[list[Token]]:
        """The tokens of texts with a prompt before each; raises InvalidInput that names the field."""
        model = self.loaded_model()
        self._check_count(len(texts), "inputs")
        characters = sum([len(text) for text in texts])
        if characters > MAX_TOKENIZED_CHARACTERS:
            raise InvalidInput(
                f"inputs hold {characters} characters; the limit is {MAX_TOKENIZED_CHARACTERS} in one request.",
                field="inputs",
            )
        if prompt_name and prompt_name not in model.prompts:
            raise named(unknown_prompt(prompt_name, model.prompts), "inputs", one=True)
        prompt = model.prompts[prompt_name] if prompt_name else ""
        return await self._aside(call, self._models.tokens([prompt + text for text in texts], special), "inputs")

    async def decode(self, call: Call, ids: Sequence[Sequence[int]], *, skip_special: bool) -> list[str]:
        """The text of each list of token ids; raises InvalidInput that names the field."""
        self._check_count(len(ids), "ids")
        last = self.loaded_model().vocabulary_size - 1
        for one in ids:
            if not one:
                raise InvalidInput("ids holds an empty list; send at least one token id.", field="ids")
            if min(one) < 0 or max(one) > last:
                raise InvalidInput(f"ids must be within the model's vocabulary, 0 to {last}.", field="ids")
        return await self._aside(call, self._models.decode(ids, skip_special), "ids")

    async def _aside(self, call: Call, work: Awaitable[T], field: str) -> T:
        """Wait for what the tokenizer alone does, unless the client leaves."""
        try:
            with self._watchman.over(call):
                return await work
        except InvalidInput as error:
            raise named(error, field, one=True) from error

    def _check_count(self, n: int, field: str) -> None:
        if not 1 <= n <= self.max_inputs:
            raise InvalidInput(f"{field} holds {n} entries; 1 to {self.max_inputs} can be sent.", field=field)

    async def _watched(self, call: Call, work: Awaitable[A], field: str, one: bool) -> A:
        """Wait for an answer, unless the client leaves."""
        try:
            with self._watchman.over(call):
                answer = await work
        except InvalidInput as error:
            raise named(error, field, one=one) from error
        if answer.bill.truncated:
            self.report_truncated(answer.bill.truncated)
        return answer

    def answer(
        self, call: Call, bill: Bill, body: bytes, content_type: bytes = JSON, headers: Sequence[Header] = ()
    ) -> Reply:
        """An answer that says how it came about, once it is sent: all the time until then counts."""
        reply = Reply(200, body, content_type, headers)
        reply.last_headers = partial(self._last_headers, call, bill)
        return reply

    def _last_headers(self, call: Call, bill: Bill) -> list[Header]:
        if not self._compute_type and (model := self.model()) is not None:
            kind = re.split("[:,]", model.device)[0]
            self._compute_type = {"cpu": b"cpu", "simulated": b"simulated"}.get(kind, b"gpu")
        shares = shares_of(call, bill)
        self._report_answered(call, bill, shares)
        return headers_for(bill, shares, self._compute_type)

    def served_name(self, asked: str | None) -> str:
        """The name of the model that answers; raises UnknownModel where another is asked for and that is refused."""
        name = self.loaded_model().name
        if self._refuse_unknown_models and asked and not is_name_of(asked, name):
            raise UnknownModel(f"The model {asked!r} is not served here; this service has {name!r}.")
        return name


def is_name_of(asked: str, served: str) -> bool:
    """Whether a client means the model served: by its name, with or without the owner, or with Ollama's `:latest`."""
    return asked.removesuffix(":latest") in (served, served.rpartition("/")[2])


def lane_of(call: Call) -> LaneName | None:
    """The lane that the request asks for; raises InvalidInput."""
    if call.lane is None:
        return None
    lane = LANE_NAMES.get(call.lane.lower())
    if lane is None:
        raise InvalidInput(f"X-Lane is {call.lane.decode('latin-1')!r}; it must be interactive or bulk.")
    return lane


def with_headers(options: Options, call: Call) -> Options:
    """The options with what the request's headers ask for; raises InvalidInput that names the header."""
    if call.lane is None and call.timeout is None:
        return options
    lane, timeout_ms = lane_of(call), None
    if call.timeout is not None:
        if not TIMEOUT.fullmatch(call.timeout):
            raise InvalidInput(
                f"X-Request-Timeout-Ms is {call.timeout.decode('latin-1')!r}; it must be a whole number of "
                "milliseconds, at least 1."
            )
        timeout_ms = int(call.timeout)
    return options._replace(lane=lane, timeout_ms=timeout_ms)


def named(error: InvalidInput, field: str, *, one: bool) -> InvalidInput:
    """The embedder's error with the name of the field as the protocol has it."""
    where = error.field or field
    if error.index is not None and not one:
        where += f"[{error.index}]"
    return type(error)(f"{where} {error}.", field=where)
