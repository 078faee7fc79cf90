"""Steps: what a load test sends one after another, and the file in which they travel to locust."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from loadtest.arrivals import Course, Stretch, length_s, peak_of, steady

Loop = Literal["open", "closed"]


@dataclass(frozen=True, slots=True)
class Step:
    """One stretch of load, drained before the next begins.

    In an open loop requests are sent when they are due, whatever became of those before them, and `course` is their
    rate a second. In a closed loop each user waits for its answer before it sends again, and `course` is their number.
    What is due in the first `warmup_s` seconds is not counted.
    """

    name: str
    loop: Loop
    course: Course
    warmup_s: float

    @property
    def seconds(self) -> float:
        """How long it counts."""
        return length_s(self.course) - self.warmup_s

    @property
    def level(self) -> float:
        """Requests a second, or users; the most of it where it changes."""
        return peak_of(self.course)


def open_step(rate_per_s: float, seconds: float, warmup_s: float) -> Step:
    """So many requests a second at random moments."""
    return Step(f"open {rate_per_s:.4g}/s", "open", steady(rate_per_s, warmup_s + seconds), warmup_s)


def closed_step(users: int, seconds: float, warmup_s: float) -> Step:
    """So many users, each sending again as soon as it is answered."""
    return Step(f"closed {users}", "closed", steady(users, warmup_s + seconds), warmup_s)


def warmup_step(users: int, seconds: float) -> Step:
    """More and more users, none of them counted: services prepare something for each size of batch they meet."""
    return Step("warm-up", "closed", (Stretch(seconds, 1, users),), seconds)


def write_steps(steps: Sequence[Step], path: Path) -> None:
    """As JSON."""
    path.write_text(json.dumps([asdict(step) for step in steps]))


def read_steps(path: Path) -> list[Step]:
    """What `write_steps` wrote."""
    found = json.loads(path.read_text())
    return [Step(**{**one, "course": tuple(Stretch(*stretch) for stretch in one["course"])}) for one in found]
