"""A session: one test run under locust, from its options to the files it leaves."""

import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from locust.contrib.fasthttp import FastHttpSession
from locust.event import EventHook

from loadtest.arrivals import SHAPES, length_s
from loadtest.corpus import Corpus
from loadtest.errors import LoadTestFailed
from loadtest.options import count, not_negative, positive, share
from loadtest.protocols import PROTOCOLS, WrongAnswer
from loadtest.samples import Sample, write_samples
from loadtest.steps import Step, read_steps
from loadtest.summary import summary_line
from loadtest.traffic import MOST_USERS, Played, Traffic, Turn
from loadtest.workload import Ask, Workload, outcome_of

PATIENCE_S = 40.0
"""How long a step may take to drain: services answer 504 after 30 s at most, by default."""
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}


class Session:
    """One test run: made when it starts, from what the command line or the web form says."""

    def __init__(self, options: Namespace, host: str) -> None:
        """Asks the service for its model's name and for the vectors of a few texts; raises LoadTestFailed."""
        _check(options)
        self.options = options
        self.host = host
        self.headers = dict(HEADERS)
        if options.api_key:
            self.headers["Authorization"] = f"Bearer {options.api_key}"
        self.steps = _steps(options)
        if self.n_users > MOST_USERS:
            raise LoadTestFailed(
                f"{self.n_users} users at once are too many for one process; the limit is {MOST_USERS}."
            )
        self.samples: list[Sample] = []
        self.played: list[dict[str, Any]] = []
        self.wrong: str | None = None
        self._http = FastHttpSession(host, EventHook(), None)  # type: ignore[no-untyped-call]
        self.workload = self._workload()
        self.traffic = Traffic(self.steps, seed=options.seed, patience_s=PATIENCE_S, mark=self._mark)

    @property
    def n_users(self) -> int:
        """As many as may have to send at once."""
        return int(max([self.options.pool if step.loop == "open" else step.level for step in self.steps]))

    def record(self, turn: Turn, ask: Ask, sent_s: float, ended_s: float, response: Any) -> Sample:
        """What became of a request; its answer is checked here."""
        step = self.steps[turn.step]
        outcome = outcome_of(response.status_code)
        if outcome == "answered":
            try:
                self.workload.check(ask, response.content)
            except WrongAnswer as error:
                outcome, self.wrong = "wrong", self.wrong or str(error)
        headers = response.headers or {}
        sample = Sample(
            step.name, ask.n_texts, turn.due_s, sent_s - turn.begin_s, ended_s - turn.begin_s,
            step.warmup_s <= turn.due_s < length_s(step.course), outcome, response.status_code,
            headers.get("x-compute-tokens", ""), headers.get("server-timing", ""),
        )  # fmt: skip
        self.samples.append(sample)
        return sample

    def ended(self, played: Played) -> None:
        """A step is over: keep its marks, and say how it went."""
        step = played.step
        mine = [one for one in self.samples if one.step == step.name and one.counted]
        if step.seconds > 0:
            print("step", summary_line(step, mine), flush=True)
        self.played.append(
            {"step": step.name, "unsent": played.unsent, "from": played.counted_from, "to": played.counted_to}
        )

    def write(self) -> None:
        """The files that were asked for."""
        if self.options.samples:
            write_samples(self.samples, Path(self.options.samples))
        if self.options.marks:
            Path(self.options.marks).write_bytes(orjson.dumps({"steps": self.played, "wrong": self.wrong}))

    def _workload(self) -> Workload:
        options, protocol = self.options, PROTOCOLS[self.options.protocol]
        model = options.served_model or None
        if model is None and protocol.models_path is not None:
            listed = self._http.get(protocol.models_path, headers=self.headers)
            self._require_answer(protocol.models_path, listed)
            model = protocol.model_in(listed.content)
        corpus = Corpus.of_file(Path(options.texts), options.seed) if options.texts else Corpus(options.seed)
        workload = Workload(
            corpus, protocol, model, traffic=options.traffic, list_items=options.list_items,
            list_share=options.list_share, seed=options.seed,
        )  # fmt: skip
        rows = []
        for ask in workload.probes():
            response = self._http.post(protocol.path, data=ask.body, headers=self.headers)  # type: ignore[arg-type]
            self._require_answer(protocol.path, response)
            try:
                rows.append(workload.check(ask, response.content))
            except WrongAnswer as error:
                raise LoadTestFailed(f"{protocol.path} answers wrongly: {error}.") from None
        workload.learn(rows)
        return workload

    def _require_answer(self, path: str, response: Any) -> None:
        if not response.status_code:
            raise LoadTestFailed(f"nothing answers at {self.host}{path}: {response.error}.")
        if response.status_code != 200:
            raise LoadTestFailed(f"{path} answered {response.status_code} before the test began.")

    def _mark(self) -> dict[str, object]:
        """The service's metrics now, empty where it has none."""
        response = self._http.get("/metrics", headers=self.headers)
        return {"at_s": time.perf_counter(), "metrics": response.text if response.status_code == 200 else ""}


READERS: dict[str, Callable[[str], float]] = {
    "rate": positive, "users_at_once": count, "seconds": positive, "warmup_s": not_negative, "pool": count,
    "list_items": count, "list_share": share,
}  # fmt: skip


def _check(options: Namespace) -> None:
    """The values that came from the command line or from the web form, which checks none."""
    for name, read in READERS.items():
        try:
            read(str(getattr(options, name)))
        except ArgumentTypeError as error:
            raise LoadTestFailed(f"--{name.replace('_', '-')}: {error}.") from None
    if not options.plan and options.warmup_s >= options.seconds:
        raise LoadTestFailed("--warmup-s: a warm-up as long as the whole test leaves nothing to count.")
    for name in ("samples", "marks"):
        if path := getattr(options, name):
            try:
                Path(path).touch()
            except OSError as error:
                raise LoadTestFailed(f"--{name} {path} cannot be written: {error.strerror}.") from None


def _steps(options: Namespace) -> list[Step]:
    if options.plan:
        try:
            return read_steps(Path(options.plan))
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise LoadTestFailed(f"--plan {options.plan} holds no steps to play: {error!r}.") from error
    peak = options.rate if options.loop == "open" else options.users_at_once
    course = SHAPES[options.shape](float(peak), float(options.seconds))
    return [Step(f"{options.shape} {peak:g}", options.loop, course, float(options.warmup_s))]
