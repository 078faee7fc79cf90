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
from locust import FastHttpUser, LoadTestShape, events, stats, task
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import Runner

from loadtest.arrivals import SHAPES
from loadtest.errors import LoadTestFailed
from loadtest.protocols import PROTOCOLS
from loadtest.session import PATIENCE_S, Session
from loadtest.traffic import TrafficOver, Turn
from loadtest.workload import Ask

SPAWN_PER_S = 2000

stats.bucket_response_time = lambda ms: round(ms, 3)  # type: ignore[assignment,return-value]  # not to two digits


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
    gevent.spawn(_play, environment, environment.runner, current[-1])


def _play(environment: Environment, runner: Runner, session: Session) -> None:
    try:
        while runner.state == "spawning" or runner.user_count < session.n_users:
            gevent.sleep(0.01)
        session.traffic.play(session.ended)
    except Exception:
        environment.process_exit_code = 1  # gevent writes the error and goes on
        raise


@events.test_stop.add_listener  # type: ignore[untyped-decorator]
def end(environment: Environment, **_: Any) -> None:
    """However the test ended: keep what there is."""
    while current:
        current.pop().write()
