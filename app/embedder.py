"""The embedder: what every protocol calls. Prompts, truncation, dimensions, normalisation; then the batcher."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.batching import Answer, Batcher, LaneName, Prepared
from app.errors import ConvoyError, EmptyInput, InvalidInput, TokenizerFailed
from app.token_estimate import TokenEstimate
from app.vector_cache import CachedVector, VectorCache
from app.vectorizers.base import Encoding, Matrix, ModelInfo, TextInput, Vectorizer

__all__ = ["Content", "EmbedOptions", "Embedder", "Embeddings", "LaneName", "ModelInfo", "alike", "prepare", "run"]

Content = str | list[int]
"""A text, or token ids of the model's own vocabulary."""

TINY = np.float32(1e-12)
"""Least length that a vector is divided by, as torch.nn.functional.normalize has it."""
MAX_CHARACTERS_PER_TOKEN = 256
"""Before it waits or is tokenized, a text is cut to this many characters for each token the model reads: no real text
has tokens that long, and nobody can fill the queue with megabytes of which the model sees a page."""
MAX_IDS_PER_TOKEN = 64
"""A list of token ids may be so many times as long as what the model reads."""


class EmbedOptions(NamedTuple):
    """What a request asks for besides its inputs; None is the service's own default."""

    normalize: bool = True
    truncate: bool | None = None
    cut_left: bool = False
    prompt_name: str | None = None
    dimensions: int | None = None
    lane: LaneName | None = None
    timeout_ms: int | None = None


class Embeddings(NamedTuple):
    """The answer to one request: float32 rows (n, dimension) in the order of its inputs, how many of these were cut,
    how many came from the cache, and the way the others went: batches, tokens, and where the time went."""

    rows: Matrix
    truncated: int
    cached: int
    way: Answer[Any]


NOWHERE: Answer[Any] = Answer([], [], 0, 0.0, 0.0, 0.0, 0, 0, 0)
"""The way of a request whose vectors were all in the cache."""


class Ready(NamedTuple):
    """An input ready for the device, and whether its row is to have unit length."""

    encoding: Encoding
    normalize: bool


class Embedder:
    """Turns the inputs of one request into vectors."""

    def __init__(
        self,
        model: ModelInfo,
        batcher: Batcher[TextInput, Any],
        *,
        max_inputs: int,
        truncate: bool,
        request_timeout_ms: int,
        interactive_inputs: int = 1,
        cache: VectorCache | None = None,
        report_cache: Callable[[int, int], None] = lambda hits, misses: None,
    ) -> None:
        """Requests of up to `interactive_inputs` inputs take the interactive lane. `report_cache` is told how many
        inputs of a request were in the cache, and how many were not."""
        self.model = model
        self._batcher = batcher
        self._max_inputs = max_inputs
        self._truncate = truncate
        self._timeout_s = request_timeout_ms / 1000
        self._interactive_inputs = interactive_inputs
        self._cache = cache
        self._report_cache = report_cache
        self._estimate = TokenEstimate(model.max_input_tokens)
        self._default_prompt = self._prompt(model.default_prompt_name) if model.default_prompt_name else ""

    async def embed(self, contents: Sequence[Content], options: EmbedOptions) -> Embeddings:
        """Embed the inputs of one request; all are answered, or the request fails as a whole.

        Raises InvalidInput where an option or an input cannot be served, and what `Batcher.submit` raises. Cancelling
        the call abandons what has not been dispatched.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout_of(options)
        self._check(contents, options)
        prompt = self._default_prompt if options.prompt_name is None else self._prompt(options.prompt_name)
        truncate = self._truncate if options.truncate is None else options.truncate
        inputs = [
            TextInput(self._bounded(content, options), prompt, options.cut_left, truncate, options.normalize)
            for content in contents
        ]
        lane = options.lane or ("interactive" if len(inputs) <= self._interactive_inputs else "bulk")
        if self._cache is None:
            answer = await self._submit(inputs, lane, deadline)
            return Embeddings(finish(answer.rows, options), _count_cut(answer), 0, answer)
        return await self._through_cache(self._cache, inputs, lane, deadline, options)

    async def _through_cache(
        self, cache: VectorCache, inputs: list[TextInput], lane: LaneName, deadline: float, options: EmbedOptions
    ) -> Embeddings:
        """Compute only what is not kept, and keep it."""
        found: list[CachedVector | None] = [cache.get(one) for one in inputs]
        new = [one for one, entry in zip(inputs, found, strict=True) if entry is None]
        self._report_cache(len(inputs) - len(new), len(new))
        answer = await self._submit(new, lane, deadline) if new else NOWHERE
        for one, row, ready in zip(new, answer.rows, answer.payloads, strict=True):
            cache.put(one, row, truncated=ready.encoding.n_cut > 0)
        computed = iter(answer.rows)
        rows = [next(computed) if entry is None else entry.vector for entry in found]
        truncated = _count_cut(answer) + sum([entry.truncated for entry in found if entry is not None])
        return Embeddings(finish(rows, options), truncated, len(inputs) - len(new), answer)

    async def _submit(self, inputs: list[TextInput], lane: LaneName, deadline: float) -> Answer[Any]:
        answer = await self._batcher.submit(inputs, [self._size(one) for one in inputs], lane=lane, deadline=deadline)
        texts = characters = tokens = 0
        for one, ready in zip(inputs, answer.payloads, strict=True):
            if isinstance(one.content, str):
                texts += 1
                characters += len(one.prompt) + len(one.content)
                tokens += ready.encoding.n_tokens + ready.encoding.n_cut
        if texts:
            self._estimate.learn(texts, characters, tokens)
        return answer

    def _size(self, one: TextInput) -> int:
        """About how many tokens the model will read."""
        if isinstance(one.content, str):
            return self._estimate.of_text(len(one.prompt) + len(one.content))
        return self._estimate.of_ids(len(one.content)) + self._estimate.of_text(len(one.prompt))

    def _timeout_of(self, options: EmbedOptions) -> float:
        """The service's own limit, or the request's where that is shorter; in seconds."""
        if options.timeout_ms is None:
            return self._timeout_s
        if options.timeout_ms < 1:
            raise InvalidInput(f"is {options.timeout_ms}; it must be at least 1 ms", field="timeout_ms")
        return min(self._timeout_s, options.timeout_ms / 1000)

    def _check(self, contents: Sequence[Content], options: EmbedOptions) -> None:
        """Refuse before any work what cannot be served."""
        if not contents:
            raise EmptyInput("is an empty list; send at least one text")
        if len(contents) > self._max_inputs:
            raise InvalidInput(f"holds {len(contents)} inputs; the limit is {self._max_inputs} in one request")
        for index, content in enumerate(contents):
            if not content:
                raise EmptyInput("is empty; send at least one character or token id", index=index)
            if not isinstance(content, str):
                self._check_ids(content, index)
        most = self.model.dimension
        if options.dimensions is not None and not 1 <= options.dimensions <= most:
            raise InvalidInput(
                f"is {options.dimensions}; the model has {most}, so 1 to {most} can be had", field="dimensions"
            )

    def _bounded(self, content: Content, options: EmbedOptions) -> Content:
        most = self.model.max_input_tokens * MAX_CHARACTERS_PER_TOKEN
        if len(content) <= most or not isinstance(content, str):
            return content
        return content[-most:] if options.cut_left else content[:most]

    def _check_ids(self, ids: list[int], index: int) -> None:
        most = MAX_IDS_PER_TOKEN * self.model.max_input_tokens
        if len(ids) > most:
            raise InvalidInput(f"holds {len(ids)} token ids; the limit is {most}", index=index)
        last = self.model.vocabulary_size - 1
        if min(ids) < 0 or max(ids) > last:
            wrong = next(one for one in ids if not 0 <= one <= last)
            raise InvalidInput(f"holds the token id {wrong}; the model's vocabulary is 0 to {last}", index=index)

    def _prompt(self, name: str) -> str:
        prompts = self.model.prompts
        if name not in prompts:
            known = ", ".join(sorted(prompts)) or "none"
            raise InvalidInput(f"is {name!r}; the model's prompts are: {known}", field="prompt_name")
        return prompts[name]


def _count_cut(answer: Answer[Any]) -> int:
    return sum([ready.encoding.n_cut > 0 for ready in answer.payloads])


def alike(one: TextInput) -> Hashable:
    """Texts with the same options share a row; token ids share with nobody."""
    return one if isinstance(one.content, str) else None


def prepare(vectorizer: Vectorizer[Any], inputs: list[TextInput]) -> list[Prepared | ConvoyError]:
    """Tokenize many inputs in one call, on the calling thread; what cannot be served becomes the error that says so.

    Where the call as a whole fails, each input is tried alone, so that one bad text costs no other its answer.
    """
    try:
        return [_prepared(one, encoding) for one, encoding in zip(inputs, vectorizer.tokenize(inputs), strict=True)]
    except Exception as error:
        if len(inputs) == 1:
            return [TokenizerFailed(f"cannot be tokenized: {error}")]
        return [outcome for one in inputs for outcome in prepare(vectorizer, [one])]


def _prepared(one: TextInput, encoding: Encoding) -> Prepared | ConvoyError:
    if encoding.n_cut and not one.truncate:
        total = encoding.n_tokens + encoding.n_cut
        return InvalidInput(f"has {total} tokens; the limit is {encoding.n_tokens} with truncation off")
    return Prepared(Ready(encoding, one.normalize), encoding.n_tokens)


def run(vectorizer: Vectorizer[Any], batch: list[Ready]) -> Matrix:
    """One batch through the vectorizer, on the calling thread; scales the rows that are to have unit length."""
    rows = vectorizer([one.encoding for one in batch], normalize=False)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[[not one.normalize for one in batch]] = 1
    return rows / np.maximum(lengths, TINY)  # type: ignore[no-any-return]


def finish(rows: Sequence[Any], options: EmbedOptions) -> Matrix:
    """Gather the rows of a request into a matrix, and cut it to the dimensions asked for."""
    matrix: Matrix = rows[0].reshape(1, -1) if len(rows) == 1 else np.stack(rows)
    if options.dimensions is None:
        return matrix
    matrix = matrix[:, : options.dimensions].copy()  # others may share these rows
    if options.normalize:
        matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), TINY)
    return matrix
