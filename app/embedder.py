"""The embedder: what every protocol calls. Prompts, truncation, dimensions, normalisation; then the batcher."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.batching import Batcher
from app.errors import EmptyInput, InvalidInput
from app.vectorizers.base import Encoding, Matrix, ModelInfo, TextInput

Content = str | list[int]
"""A text, or token ids of the model's own vocabulary."""


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """What a request asks for besides its inputs; None is the service's own default."""

    normalize: bool = True
    truncate: bool | None = None
    cut_left: bool = False
    prompt_name: str | None = None
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The answer to one request: float32 rows (n, dimension) in the order of its inputs, and where the time went.

    `tokenize_s`, `queue_s` and `forward_s` are parts of the request's own wall time, one after another.
    """

    rows: Matrix
    tokens: int
    truncated: int
    tokenize_s: float
    queue_s: float
    forward_s: float
    batches: int
    batch_items: int
    batch_tokens: int


class Embedder:
    """Turns the inputs of one request into vectors.

    `tokenizer` and `batcher` are two stages of the same kind: the first takes inputs to the tokenizer's thread, the
    second takes encodings to the device.
    """

    def __init__(
        self,
        model: ModelInfo,
        tokenizer: Batcher[TextInput, Encoding],
        batcher: Batcher[Encoding, Any],
        *,
        max_inputs: int,
        truncate: bool,
        request_timeout_ms: int,
    ) -> None:
        self.model = model
        self._tokenizer = tokenizer
        self._batcher = batcher
        self._max_inputs = max_inputs
        self._truncate = truncate
        self._timeout_s = request_timeout_ms / 1000

    async def embed(self, contents: Sequence[Content], options: EmbedOptions) -> Embeddings:
        """Embed the inputs of one request; all are answered, or the request fails as a whole.

        Raises InvalidInput before any work where an option or an input cannot be served, and what `Batcher.submit`
        raises. Cancelling the call abandons what has not been dispatched.
        """
        started = time.perf_counter()
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        prompt = self._prompt(options.prompt_name)
        self._check(contents, options)
        with self._batcher.reserve(len(contents)) as reservation:
            encodings = await self._tokenize(contents, prompt, options, deadline)
            tokenized = time.perf_counter()
            sizes = [one.n_tokens for one in encodings]
            answer = await self._batcher.submit(encodings, sizes, deadline=deadline, reservation=reservation)
        return Embeddings(
            rows=finish(answer.rows, options),
            tokens=sum(sizes),
            truncated=sum(one.n_cut > 0 for one in encodings),
            tokenize_s=tokenized - started,
            queue_s=answer.queue_s,
            forward_s=answer.run_s,
            batches=answer.batches,
            batch_items=answer.batch_items,
            batch_tokens=answer.batch_tokens,
        )

    def _check(self, contents: Sequence[Content], options: EmbedOptions) -> None:
        if not contents:
            raise EmptyInput("is an empty list; send at least one text")
        if len(contents) > self._max_inputs:
            raise InvalidInput(f"holds {len(contents)} inputs; the limit is {self._max_inputs} in one request")
        for index, content in enumerate(contents):
            if not content:
                raise EmptyInput("is empty; send at least one character or token id", index=index)
            if not isinstance(content, str):
                self._check_ids(content, index)
        dimensions = options.dimensions
        if dimensions is not None and not 1 <= dimensions <= self.model.dimension:
            raise InvalidInput(
                f"is {dimensions}; the model has {self.model.dimension}, so 1 to {self.model.dimension} can be had",
                field="dimensions",
            )

    def _check_ids(self, ids: list[int], index: int) -> None:
        last = self.model.vocabulary_size - 1
        if min(ids) < 0 or max(ids) > last:
            wrong = next(one for one in ids if not 0 <= one <= last)
            raise InvalidInput(f"holds the token id {wrong}; the model's vocabulary is 0 to {last}", index=index)

    def _prompt(self, prompt_name: str | None) -> str:
        prompts = self.model.prompts
        name = prompt_name if prompt_name is not None else self.model.default_prompt_name
        if name is None:
            return ""
        if name not in prompts:
            known = ", ".join(sorted(prompts)) or "none"
            raise InvalidInput(f"is {name!r}; the model's prompts are: {known}", field="prompt_name")
        return prompts[name]

    async def _tokenize(
        self, contents: Sequence[Content], prompt: str, options: EmbedOptions, deadline: float
    ) -> Sequence[Encoding]:
        inputs = [TextInput(content, prompt, options.cut_left) for content in contents]
        answer = await self._tokenizer.submit(inputs, [len(content) for content in contents], deadline=deadline)
        truncate = self._truncate if options.truncate is None else options.truncate
        if not truncate:
            self._refuse_long(answer.rows)
        return answer.rows

    def _refuse_long(self, encodings: Sequence[Encoding]) -> None:
        for index, one in enumerate(encodings):
            if one.n_cut:
                raise InvalidInput(
                    f"has {one.n_tokens + one.n_cut} tokens; the limit is {self.model.max_input_tokens} "
                    "with truncation off",
                    index=index,
                )


def finish(rows: Sequence[Any], options: EmbedOptions) -> Matrix:
    """Gather raw rows into a matrix, cut to the dimensions asked for, and scale to unit length."""
    matrix: Matrix = rows[0].reshape(1, -1) if len(rows) == 1 else np.stack(rows)
    if options.dimensions is not None:
        matrix = matrix[:, : options.dimensions]
    if options.normalize:
        lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
        matrix = matrix / np.maximum(lengths, np.float32(1e-12))[:, np.newaxis]
    return np.ascontiguousarray(matrix)
