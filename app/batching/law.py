"""The law of service: how long a batch of so many tokens takes, learnt from the batches that ran."""

SHAPE_MEMORY = 0.98
"""Weight of the past in the fit of the law's shape: some fifty batches."""
LEVEL_MEMORY = 0.8
"""Weight of the past in the level: a device that has become slower is believed after some five batches."""
MOST_SURPRISE = 4.0
"""A batch that took so many times what was expected, or as little, was disturbed: a pause of the machine is no law."""
BELIEVED_AFTER = 3
"""So many such batches in a row are one, and what was learnt before is forgotten."""
LEAST_SPREAD = 0.1
"""A slope can be told from a base only where sizes differ by this share of their mean (standard deviation)."""


class ServiceLaw:
    """t(tokens) = level · (base + slope·tokens), in seconds.

    The shape, base and slope, is a least-squares fit of relative errors in which old batches fade; where all batches
    have about the same size, the shape stays what it was, and only its scale follows. The level is the recent ratio of
    what was measured to what the shape says: it follows a change of the device within a few batches.
    """

    def __init__(self, base_s: float = 0.0, slope_s: float = 0.0) -> None:
        """Begin with a law measured before, in seconds and seconds a token; both 0 where nothing is known."""
        self._base_s = base_s
        self._slope_s = slope_s
        self._level = 1.0
        self._error = 0.0
        self._surprises = 0
        self._sums = [0.0] * 5

    @property
    def known(self) -> bool:
        """Whether there is anything to predict with."""
        return self._base_s + self._slope_s > 0

    @property
    def error(self) -> float:
        """By how much predictions have recently been wrong, as a share of the time predicted."""
        return self._error

    @property
    def base_s(self) -> float:
        return self._level * self._base_s

    @property
    def slope_s(self) -> float:
        return self._level * self._slope_s

    def seconds(self, tokens: float) -> float:
        """How long a batch of so many tokens should take; 0 where nothing is known."""
        return self._level * (self._base_s + self._slope_s * tokens)

    def most_seconds(self, tokens: float) -> float:
        """The same with an allowance for the usual error."""
        return self.seconds(tokens) * (1 + self._error)

    def tokens_within(self, seconds: float) -> int:
        """The largest batch that should take no longer, but at least one that reaches half of the best throughput: a
        device that is too slow for such a time does not become faster by smaller batches."""
        if self.slope_s <= 0:
            return 2**62
        return max(1, int(self.base_s / self.slope_s), int((seconds - self.base_s) / self.slope_s))

    def tokens_reaching(self, share: float) -> int:
        """The smallest batch that reaches this share of the best throughput: what is fixed of its time is the rest."""
        return int(share / (1 - share) * self._base_s / self._slope_s) if self._slope_s > 0 else 2**62

    def learn(self, tokens: int, seconds: float) -> None:
        """A batch of so many tokens took so long."""
        if seconds <= 0 or (self._slope_s and self._is_disturbed(seconds / self.seconds(tokens))):
            return
        self._fit(tokens, seconds)
        measured = seconds / (self._base_s + self._slope_s * tokens)
        self._level = LEVEL_MEMORY * self._level + (1 - LEVEL_MEMORY) * measured

    def _is_disturbed(self, ratio: float) -> bool:
        """Whether a batch that took so many times what was expected says nothing of those to come."""
        if 1 / MOST_SURPRISE <= ratio <= MOST_SURPRISE:
            self._surprises = 0
            self._error = LEVEL_MEMORY * self._error + (1 - LEVEL_MEMORY) * min(1.0, abs(ratio - 1))
            return False
        self._surprises += 1
        if self._surprises < BELIEVED_AFTER:
            return True
        self._surprises = 0
        self._level = 1.0
        self._sums = [0.0] * 5
        return False

    def _fit(self, tokens: int, seconds: float) -> None:
        # By the law itself seconds grow as tokens + knee does: a weight of 1 / (tokens + knee)² makes relative errors
        # count alike, whatever the speed.
        knee = self._base_s / self._slope_s if self._slope_s else 0.0
        weight = 1 / (tokens + knee) ** 2
        new = (weight, weight * tokens, weight * tokens**2, weight * seconds, weight * tokens * seconds)
        self._sums = [SHAPE_MEMORY * old + one for old, one in zip(self._sums, new, strict=True)]
        total, x, xx, y, xy = self._sums
        mean_tokens, mean_s = x / total, y / total
        variance = xx / total - mean_tokens**2
        if variance > (LEAST_SPREAD * mean_tokens) ** 2:
            slope = (xy / total - mean_tokens * mean_s) / variance
            self._slope_s = min(max(0.0, slope), mean_s / mean_tokens)  # neither slope nor base is negative
            self._base_s = max(0.0, mean_s - self._slope_s * mean_tokens)
        elif self.known:
            scale = mean_s / (self._base_s + self._slope_s * mean_tokens)
            self._base_s *= scale
            self._slope_s *= scale
        else:
            self._base_s = mean_s
