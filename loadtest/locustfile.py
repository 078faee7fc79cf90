"""Load for a running service, by locust: users who send texts at the moments that are due, and check every answer.

usage: locust -f loadtest/locustfile.py --host http://127.0.0.1:8000        (then open http://localhost:8089)
       locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 --headless --rate 200 --seconds 30
       locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 --headless --loop closed --users-at-once 32
"""

import os
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # locust looks for modules in this file's folder alone

import gevent
import orjson
from locust import FastHttpUser, LoadTestShape, events, stats, task
from locust.contrib.fasthttp import FastHttpSession
from locust.env import Environment
from locust.event import EventHook
from locust.exception import StopUser
from locust.runners import Runner

from loadtest.arrivals import SHAPES, length_s
from loadtest.corpus import Corpus
from loadtest.errors import LoadTestFailed
from loadtest.protocols import PROTOCOLS, WrongAnswer
from loadtest.samples import Sample, write_samples
from loadtest.steps import Step, read_steps
from loadtest.summary import summary_line
from loadtest.traffic import Played, Traffic, TrafficOver, Turn
from loadtest.workload import Ask, Workload, outcome_of

SPAWN_PER_S = 2000
PATIENCE_S = 40.0
"""How long a step may take to drain: services answer 504 after 30 s at most, by default."""
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}

stats.bucket_response_time = lambda ms: round(ms, 3)  # type: ignore[assignment,return-value]  # not to two digits


class Session:
    """One test run: made when it starts, from what the command line or the web form says."""

    def __init__(self, options: Namespace, host: str) -> None:
        """Asks the service for its model's name and for the vectors of a few texts; raises LoadTestFailed."""
        self.options = options
        self.headers = dict(HEADERS)
        if options.api_key:
            self.headers["Authorization"] = f"Bearer {options.api_key}"
        self.steps = _steps(options)
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
            model = protocol.model_in(self._http.get(protocol.models_path, headers=self.headers).content)
        corpus = Corpus.of_file(Path(options.texts), options.seed) if options.texts else Corpus(options.seed)
        workload = Workload(
            corpus, protocol, model, traffic=options.traffic, list_items=options.list_items,
            list_share=options.list_share, seed=options.seed,
        )  # fmt: skip
        rows = []
        for ask in workload.probes():
            response = self._http.post(protocol.path, data=ask.body, headers=self.headers)  # type: ignore[arg-type]
            if response.status_code != 200:
                raise LoadTestFailed(f"{protocol.path} answered {response.status_code} before the test began.")
            try:
                rows.append(workload.check(ask, response.content))
            except WrongAnswer as error:
                raise LoadTestFailed(f"{protocol.path} answers wrongly: {error}.") from None
        workload.learn(rows)
        return workload

    def _mark(self) -> dict[str, object]:
        """The service's metrics now, empty where it has none."""
        response = self._http.get("/metrics", headers=self.headers)
        return {"at_s": time.perf_counter(), "metrics": response.text if response.status_code == 200 else ""}


def _steps(options: Namespace) -> list[Step]:
    if options.plan:
        return read_steps(Path(options.plan))
    peak = options.rate if options.loop == "open" else options.users_at_once
    course = SHAPES[options.shape](float(peak), float(options.seconds))
    return [Step(f"{options.shape} {peak:g}", options.loop, course, float(options.warmup_s))]


current: list[Session] = []
"""The run that goes on now: locust makes users and shape itself and passes them nothing of ours."""


class Client(FastHttpUser):
    """One client with a connection of its own. In an open loop it is slow: it waits for a moment that is due."""

    network_timeout = PATIENCE_S
    connection_timeout = PATIENCE_S

    @task
    def send(self) -> None:
        """One request, as the session wants it."""
        session = current[-1]
        try:
            turn = session.traffic.take()
        except TrafficOver:
            raise StopUser from None
        try:
            self._request(session, turn, session.workload.next())
        finally:
            session.traffic.give_back(turn)

    def _request(self, session: Session, turn: Turn, ask: Ask) -> None:
        path = session.workload.protocol.path
        sent_s = time.perf_counter()
        with self.client.post(
            path,
            data=ask.body,  # type: ignore[arg-type]  # bytes are what is sent
            headers=session.headers,
            catch_response=True,
        ) as response:
            sample = session.record(turn, ask, sent_s, time.perf_counter(), response)
            response.request_meta["response_time"] = (sample.ended_s - sample.due_s) * 1e3
            if sample.outcome == "answered":
                response.success()
            else:  # under a name of its own: quick refusals must not flatter the latency of answers
                response.request_meta["name"] = f"{path} {sample.outcome}"
                response.failure(f"{sample.outcome} (status {sample.status})")


class Shape(LoadTestShape):
    """As many users as there may have to be at once; when they send, the traffic says."""

    def tick(self) -> tuple[int, float] | None:
        """Called once a second; None ends the test. The first one prepares it, since locust has no event before."""
        if self.runner is None or (not current and not _prepared(self.runner.environment)):
            return None
        session = current[-1]
        return None if session.traffic.over else (session.n_users, SPAWN_PER_S)


def _prepared(environment: Environment) -> bool:
    """Whether the service is there and answers rightly; if not, it is said why."""
    try:
        current.append(Session(environment.parsed_options or Namespace(), environment.host or ""))
    except LoadTestFailed as error:
        print(f"The load test has not begun: {error}", file=sys.stderr, flush=True)
        environment.process_exit_code = 1
    return bool(current)


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def add_options(parser: Any) -> None:
    """The load test's own options; the web UI shows them as a form."""
    add = parser.add_argument
    add("--protocol", choices=list(PROTOCOLS), default="convoy", help="how the service is asked")
    add(
        "--served-model",
        default="",
        help="the model that requests name (openai, infinity); by default the first listed",
    )
    add("--traffic", choices=["single", "list", "mix"], default="single", help="single texts, lists, or both")
    add("--list-items", type=int, default=32, help="passages in a list")
    add("--list-share", type=float, default=0.05, help="share of lists among the requests of a mix")
    add("--texts", default="", help="a file with a text in each line, instead of the built-in ones")
    add("--loop", choices=["open", "closed"], default="open", help="send when due, or when the last answer is there")
    add("--shape", choices=list(SHAPES), default="steady", help="how the load changes with time")
    add("--rate", type=float, default=50.0, help="open loop: requests a second, at the peak")
    add("--users-at-once", type=int, default=32, help="closed loop: users, at the peak")
    add("--seconds", type=float, default=60.0, help="how long")
    add("--warmup-s", type=float, default=0.0, help="the first seconds are not counted")
    add("--pool", type=int, default=500, help="open loop: most requests under way at once")
    add("--seed", type=int, default=1, help="of texts and moments")
    add("--api-key", default=os.environ.get("CONVOY_API_KEY", ""), is_secret=True, help="sent as Authorization: Bearer")
    add("--plan", default="", include_in_web_ui=False, help="a file with steps to play one after another")
    add("--samples", default="", include_in_web_ui=False, help="write each request into this CSV file")
    add("--marks", default="", include_in_web_ui=False, help="write the service's metrics at each step into this file")


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def begin(environment: Environment, **_: Any) -> None:
    """Play the steps as soon as users are there."""
    gevent.spawn(_play, environment.runner, current[-1])


def _play(runner: Runner, session: Session) -> None:
    while runner.state == "spawning" or runner.user_count < session.n_users:
        gevent.sleep(0.01)
    session.traffic.play(session.ended)


@events.test_stop.add_listener  # type: ignore[untyped-decorator]
def end(environment: Environment, **_: Any) -> None:
    """However the test ended: keep what there is."""
    while current:
        current.pop().write()
