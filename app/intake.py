"""The way of a request's inputs to the batcher and what it cost: the same for every kind of model."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from app.batching import NO_BATCH, Answer, Batcher, LaneName
from app.errors import EmptyInput, InvalidInput
from app.token_estimate import TokenEstimate
from app.vectorizers.base import ModelInfo, TextInput

MAX_CHARACTERS_PER_TOKEN = 256
"""Before it waits or is tokenized, a text is cut to this many characters for each token the model reads: no real text
has tokens that long, and nobody can fill the queue with megabytes of which the model sees a page."""

NOWHERE: Answer[Any] = Answer([], [], 0, 0.0, 0.0, 0.0, 0.0, 0, NO_BATCH, "nothing")
"""The way of a request whose vectors were all in the cache."""


class Bill(NamedTuple):
    """What a request cost: its lane, how many inputs, their characters and tokens, how many of these were cut, how many
    came from the cache, the name of the prompt before each, and the way of the others: batches, and where the time
    went."""

    lane: LaneName
    inputs: int
    characters: int
    tokens: int
    truncated: int
    cached: int
    prompt_name: str | None
    way: Answer[Any]


EMPTY = Bill("interactive", 0, 0, 0, 0, 0, None, NOWHERE)


class Intake:
    """Checks, sizes and submits the inputs of requests."""

    def __init__(
        self,
        model: ModelInfo,
        batcher: Batcher[TextInput, Any],
        *,
        max_inputs: int,
        truncate: bool,
        request_timeout_ms: int,
        interactive_inputs: int = 1,
        tag: Callable[[], object] = lambda: None,
    ) -> None:
        """Requests of up to `interactive_inputs` inputs take the interactive lane; `truncate` is what applies where a
        request says nothing. `tag` is asked, in the request's own context, what the batcher is to tell with its
        batches."""
        self.model = model
        self.truncate = truncate
        self._batcher = batcher
        self._max_inputs = max_inputs
        self._timeout_s = request_timeout_ms / 1000
        self._interactive_inputs = interactive_inputs
        self._tag = tag
        self._estimate = TokenEstimate(model.max_input_tokens)

    def deadline(self, timeout_ms: int | None) -> float:
        """By the loop's clock: the service's own limit, or the request's where that is shorter."""
        timeout_s = self._timeout_s
        if timeout_ms is not None:
            if timeout_ms < 1:
                raise InvalidInput(f"is {timeout_ms}; it must be at least 1 ms", field="timeout_ms")
            timeout_s = min(timeout_s, timeout_ms / 1000)
        return asyncio.get_running_loop().time() + timeout_s

    def check_count(self, n_inputs: int) -> None:
        """Raises InvalidInput for no inputs, and for too many."""
        if not n_inputs:
            raise EmptyInput("is an empty list; send at least one text")
        if n_inputs > self._max_inputs:
            raise InvalidInput(f"holds {n_inputs} inputs; the limit is {self._max_inputs} in one request")

    def bounded(self, text: str, *, cut_left: bool) -> str:
        """The part of a text of which the model could read anything."""
        most = self.model.max_input_tokens * MAX_CHARACTERS_PER_TOKEN
        if len(text) <= most:
            return text
        return text[-most:] if cut_left else text[:most]

    def lane(self, asked: LaneName | None, n_inputs: int) -> LaneName:
        """The lane asked for, or the one that a request of so many inputs takes."""
        return asked or ("interactive" if n_inputs <= self._interactive_inputs else "bulk")

    def most_tokens(self, inputs: Sequence[TextInput]) -> int:
        """How many tokens the model may read of these at most, each character being one."""
        return sum([min(self.model.max_input_tokens, 2 + max(characters_of(one), len(one.content))) for one in inputs])

    async def submit(
        self, inputs: Sequence[TextInput], lane: LaneName, deadline: float, prompt_name: str = ""
    ) -> tuple[Answer[Any], Bill]:
        """Have the inputs run; raises what `Batcher.submit` raises. Learns how many tokens texts have."""
        characters = [characters_of(one) for one in inputs]
        sizes = [self._size(one, n) for one, n in zip(inputs, characters, strict=True)]
        answer = await self._batcher.submit(inputs, sizes, lane=lane, deadline=deadline, tag=self._tag())
        texts = tokens = cut = 0
        for n, ready in zip(characters, answer.payloads, strict=True):
            encoding = ready.encoding
            cut += encoding.n_cut > 0
            if n:
                texts += 1
                tokens += encoding.n_tokens + encoding.n_cut
        total = sum(characters)
        if texts:
            self._estimate.learn(texts, total, tokens)
        return answer, Bill(lane, len(inputs), total, answer.tokens, cut, 0, prompt_name or None, answer)

    def _size(self, one: TextInput, characters: int) -> int:
        """About how many tokens the model will read."""
        if characters:
            return self._estimate.of_text(characters)
        return self._estimate.of_ids(len(one.content)) + self._estimate.of_text(len(one.prompt))


def characters_of(one: TextInput) -> int:
    """Characters of a text with its prompt and its pair; 0 for token ids."""
    if not isinstance(one.content, str):
        return 0
    return len(one.prompt) + len(one.content) + (len(one.pair) if one.pair is not None else 0)
