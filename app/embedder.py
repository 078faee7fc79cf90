"""The embedder: what every protocol calls for vectors. Prompts, truncation, dimensions, normalisation."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.batching import LaneName
from app.errors import EmptyInput, InvalidInput
from app.intake import EMPTY, NOWHERE, Bill, Intake, characters_of
from app.prompts import NO_PROMPT, prompt_for, unknown_prompt
from app.vector_cache import CachedVector, VectorCache
from app.vectorizers.base import TINY, Matrix, ModelInfo, TextInput

__all__ = ["Content", "EmbedOptions", "Embedder", "Embeddings", "LaneName", "ModelInfo", "TokenVectors"]

Content = str | list[int]
"""A text, or token ids of the model's own vocabulary."""

MAX_IDS_PER_TOKEN = 64
"""A list of token ids may be so many times as long as what the model reads."""
MAX_TOKEN_VECTORS = 16_384
"""A request for each token's row may hold so many tokens: of 384 numbers each, in JSON, some 70 MB."""


class EmbedOptions(NamedTuple):
    """What a request asks for besides its inputs; None is the service's own default.

    `input_type` names a kind of input, for which the model may have a prompt, where `prompt_name` names none.
    """

    normalize: bool = True
    truncate: bool | None = None
    cut_left: bool = False
    prompt_name: str | None = None
    dimensions: int | None = None
    lane: LaneName | None = None
    timeout_ms: int | None = None
    input_type: str | None = None


class Embeddings(NamedTuple):
    """The answer to one request: float32 rows (n, dimension) in the order of its inputs, and what it cost."""

    rows: Matrix
    bill: Bill


class TokenVectors(NamedTuple):
    """For each input of a request float32 rows (tokens, width), one for each token, and what it cost."""

    rows: list[Matrix]
    bill: Bill


class Embedder:
    """Turns the inputs of one request into vectors."""

    def __init__(
        self,
        intake: Intake,
        *,
        default_prompt_name: str | None = None,
        cache: VectorCache | None = None,
        report_cache: Callable[[int, int], None] = lambda hits, misses: None,
    ) -> None:
        """`default_prompt_name` is the model's own default where it is None. `report_cache` is told how many inputs of
        a request were in the cache, and how many were not."""
        self.model = intake.model
        self._intake = intake
        self._cache = cache
        self._report_cache = report_cache
        self._default_prompt = default_prompt_name or intake.model.default_prompt_name or NO_PROMPT

    async def embed(self, contents: Sequence[Content], options: EmbedOptions) -> Embeddings:
        """Embed the inputs of one request; all are answered, or the request fails as a whole.

        Raises InvalidInput where an option or an input cannot be served, and what `Batcher.submit` raises. Cancelling
        the call abandons what has not been dispatched.
        """
        deadline = self._intake.deadline(options.timeout_ms)
        self._check(contents, options)
        prompt_name = self._prompt_name(options)
        inputs = self._inputs(contents, options, prompt_name)
        lane = self._intake.lane(options.lane, len(inputs))
        if self._cache is None:
            answer, bill = await self._intake.submit(inputs, lane, deadline, prompt_name)
            return Embeddings(finish(answer.rows, options), bill)
        return await self._through_cache(self._cache, inputs, lane, deadline, options, prompt_name)

    async def embed_tokens(self, contents: Sequence[Content], options: EmbedOptions) -> TokenVectors:
        """The model's last hidden state at each token of each input, before pooling; raises as `embed` does."""
        deadline = self._intake.deadline(options.timeout_ms)
        self._check(contents, options)
        prompt_name = self._prompt_name(options)
        inputs = [one._replace(per_token=True) for one in self._inputs(contents, options, prompt_name)]
        tokens = self._intake.most_tokens(inputs)
        if len(inputs) > 1 and tokens > MAX_TOKEN_VECTORS:
            raise InvalidInput(
                f"may hold {tokens} tokens; the limit is {MAX_TOKEN_VECTORS} in one request where each token has a "
                "row; send it in parts"
            )
        lane = self._intake.lane(options.lane, len(inputs))
        answer, bill = await self._intake.submit(inputs, lane, deadline, prompt_name)
        return TokenVectors(answer.rows, bill)

    async def _through_cache(
        self,
        cache: VectorCache,
        inputs: list[TextInput],
        lane: LaneName,
        deadline: float,
        options: EmbedOptions,
        prompt_name: str,
    ) -> Embeddings:
        """Compute only what is not kept, and keep it."""
        found: list[CachedVector | None] = [cache.get(one) for one in inputs]
        new = [one for one, entry in zip(inputs, found, strict=True) if entry is None]
        self._report_cache(len(inputs) - len(new), len(new))
        answer, bill = await self._intake.submit(new, lane, deadline) if new else (NOWHERE, EMPTY)
        for one, row, ready in zip(new, answer.rows, answer.payloads, strict=True):
            cache.put(one, row, truncated=ready.encoding.n_cut > 0, tokens=ready.encoding.n_tokens)
        computed = iter(answer.rows)
        rows = [next(computed) if entry is None else entry.vector for entry in found]
        kept = [entry for entry in found if entry is not None]
        whole = Bill(
            lane=lane,
            inputs=len(inputs),
            characters=sum([characters_of(one) for one in inputs]),
            tokens=bill.tokens + sum([entry.tokens for entry in kept]),
            truncated=bill.truncated + sum([entry.truncated for entry in kept]),
            cached=len(kept),
            prompt_name=prompt_name or None,
            way=answer,
        )
        return Embeddings(finish(rows, options), whole)

    def check_options(self, options: EmbedOptions) -> None:
        """Raises InvalidInput where an option cannot be served, whatever the inputs."""
        self._check_dimensions(options.dimensions)
        self._prompt_name(options)

    def _inputs(self, contents: Sequence[Content], options: EmbedOptions, prompt_name: str) -> list[TextInput]:
        prompt = self.model.prompts[prompt_name] if prompt_name else ""
        truncate = self._intake.truncate if options.truncate is None else options.truncate
        return [
            TextInput(
                self._intake.bounded(content, cut_left=options.cut_left) if isinstance(content, str) else content,
                prompt,
                options.cut_left,
                truncate,
                options.normalize,
            )
            for content in contents
        ]

    def _check(self, contents: Sequence[Content], options: EmbedOptions) -> None:
        """Refuse before any work what cannot be served."""
        self._intake.check_count(len(contents))
        for index, content in enumerate(contents):
            if not content:
                raise EmptyInput("is empty; send at least one character or token id", index=index)
            if not isinstance(content, str):
                self._check_ids(content, index)
        self._check_dimensions(options.dimensions)

    def _check_dimensions(self, dimensions: int | None) -> None:
        most = self.model.dimension
        if dimensions is not None and not 1 <= dimensions <= most:
            raise InvalidInput(f"is {dimensions}; the model has {most}, so 1 to {most} can be had", field="dimensions")

    def _check_ids(self, ids: list[int], index: int) -> None:
        most = MAX_IDS_PER_TOKEN * self.model.max_input_tokens
        if len(ids) > most:
            raise InvalidInput(f"holds {len(ids)} token ids; the limit is {most}", index=index)
        last = self.model.vocabulary_size - 1
        if min(ids) < 0 or max(ids) > last:
            wrong = next(one for one in ids if not 0 <= one <= last)
            raise InvalidInput(f"holds the token id {wrong}; the model's vocabulary is 0 to {last}", index=index)

    def _prompt_name(self, options: EmbedOptions) -> str:
        """The prompt to apply: named, or meant by the kind of input, or the default; NO_PROMPT for none."""
        meant = self._default_prompt
        if options.input_type is not None:
            meant = prompt_for(options.input_type, self.model.prompts)
        if options.prompt_name is None:
            return meant
        if options.prompt_name and options.prompt_name not in self.model.prompts:
            raise unknown_prompt(options.prompt_name, self.model.prompts)
        return options.prompt_name


def finish(rows: Sequence[Any], options: EmbedOptions) -> Matrix:
    """Gather the rows of a request into a matrix, and cut it to the dimensions asked for."""
    matrix: Matrix = rows[0].reshape(1, -1) if len(rows) == 1 else np.stack(rows)
    if options.dimensions is None:
        return matrix
    matrix = matrix[:, : options.dimensions].copy()  # others may share these rows
    if options.normalize:
        matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), TINY)
    return matrix
