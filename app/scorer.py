"""The scorer: what every protocol calls for a model with a classification head, a reranker or a classifier."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.batching import LaneName
from app.errors import EmptyInput
from app.intake import Bill, Intake
from app.vectorizers.base import Matrix, ModelInfo, TextInput

Pair = tuple[str, str | None]
"""A text, and what it is to be judged with: a query and a document. None where the text is judged alone."""


class ScoreOptions(NamedTuple):
    """What a request asks for besides its inputs; None is the service's own default."""

    truncate: bool | None = None
    cut_left: bool = False
    lane: LaneName | None = None
    timeout_ms: int | None = None


class Scores(NamedTuple):
    """The answer to one request: float32 logits (n, labels) in the order of its inputs, and what it cost."""

    logits: Matrix
    bill: Bill


class Scorer:
    """Turns the pairs of one request into logits."""

    def __init__(self, intake: Intake) -> None:
        self.model: ModelInfo = intake.model
        self._intake = intake

    async def score(self, pairs: Sequence[Pair], options: ScoreOptions) -> Scores:
        """Score the inputs of one request; all are answered, or the request fails as a whole.

        Raises InvalidInput where an input cannot be served, and what `Batcher.submit` raises. Cancelling the call
        abandons what has not been dispatched.
        """
        deadline = self._intake.deadline(options.timeout_ms)
        self._intake.check_count(len(pairs))
        for index, (first, second) in enumerate(pairs):
            if not first or second == "":
                raise EmptyInput("is empty; send at least one character", index=index)
        truncate = self._intake.truncate if options.truncate is None else options.truncate
        cut_left = options.cut_left
        inputs = [
            TextInput(
                self._intake.bounded(first, cut_left=cut_left),
                cut_left=cut_left,
                truncate=truncate,
                normalize=False,
                pair=None if second is None else self._intake.bounded(second, cut_left=cut_left),
            )
            for first, second in pairs
        ]
        answer, bill = await self._intake.submit(inputs, self._intake.lane(options.lane, len(inputs)), deadline)
        return Scores(np.stack(answer.rows), bill)


def probabilities(logits: Matrix, *, independent: bool) -> Matrix:
    """Logits (n, labels) as probabilities: each label by itself (sigmoid), or shared out over the labels (softmax).

    One label alone is always by itself.
    """
    wide = logits.astype(np.float64)
    if independent or logits.shape[1] == 1:
        shares = 1 / (1 + np.exp(-np.clip(wide, -700, 700)))
    else:
        shares = np.exp(wide - wide.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
    return shares.astype(np.float32)


def scores_of(logits: Matrix, model: ModelInfo, *, raw: bool) -> Matrix:
    """Logits as they are, or as probabilities: of each label by itself if the model was trained so."""
    if raw:
        return logits
    return probabilities(logits, independent=model.details.get("problem_type") == "multi_label_classification")


def ranked(logits: Matrix, model: ModelInfo, *, raw: bool) -> list[tuple[int, np.float32]]:
    """Index and score of each text, the best first."""
    scores = scores_of(logits, model, raw=raw)[:, 0]
    return [(int(i), scores[i]) for i in np.argsort(-scores, kind="stable")]
