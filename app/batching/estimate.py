"""What the workers' recent speed says about the time that waiting work will take."""

MEMORY = 0.8
"""Weight of the past in the moving average."""


class Rate:
    """Tokens per second of one worker, as a moving average over its batches."""

    def __init__(self) -> None:
        self._tokens_per_s = 0.0

    def learn(self, tokens: int, seconds: float) -> None:
        """A batch of so many tokens kept a worker busy for so long."""
        if seconds > 0:
            rate = tokens / seconds
            self._tokens_per_s = MEMORY * (self._tokens_per_s or rate) + (1 - MEMORY) * rate

    def seconds_for(self, tokens: int, workers: int) -> float:
        """How long so many tokens keep so many workers busy; 0 where nothing has been learnt."""
        rate = self._tokens_per_s * workers
        return tokens / rate if rate else 0.0
