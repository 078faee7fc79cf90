"""The load test against queueing theory: what it reads off a service with a known law, and what it forecasts.

The service is the production batcher on a virtual clock, so that no busy machine is in the way.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from loadtest import plan, theory
from loadtest.analysis import MaxRate, max_rate
from loadtest.errors import LoadTestFailed
from loadtest.fit import fitted
from loadtest.forecast import Law, expected_ms, forecast, law_of, lengths_in
from loadtest.measures import Measure, measure
from loadtest.samples import Sample, Table, read_table, write_samples
from loadtest.steps import open_step
from loadtest.theory import Service, capacity_per_s, max_rate_per_s, play
from tests import queueing
from tests.simulated import Device, batcher_over
from tests.traffic import Log, Phase, drive
from tests.virtual_clock import run_virtually

BASE_S, ITEM_S = 0.1, 0.002
OBJECTIVE_S = 0.5
ARRIVALS = 10_000
LENGTHS = np.array([1.0])
OFF, ON = Service(BASE_S, ITEM_S, max_items=1), Service(BASE_S, ITEM_S, max_items=512)
AROUND = (0.85, 0.95, 1.05, 1.15)


def measured(service: Service, rate_per_s: float, folder: Path) -> Measure:
    """The batcher at this rate, as the load test would see it."""

    async def main() -> Log:
        device = Device(service.base_s, service.item_s)
        async with batcher_over(
            device, max_batch_items=service.max_items, max_batch_tokens=10_000, max_queue_items=ARRIVALS,
            max_queue_tokens=ARRIVALS,
        ) as batcher:  # fmt: skip
            return await drive(batcher, [Phase(ARRIVALS / rate_per_s, rate_per_s)], seed=7)

    log = run_virtually(main())
    step = open_step(rate_per_s, ARRIVALS / rate_per_s, 0)
    samples = [
        Sample(step.name, 1, due, due, ended, True, "answered", 200, "1", "")
        for due, ended in zip(log.arrived_s, log.ended_s, strict=True)
    ]
    write_samples(samples, folder / "samples.csv")
    return measure(read_table(folder / "samples.csv"), step, OBJECTIVE_S * 1e3)


@pytest.fixture(scope="module")
def knees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[MaxRate, float]]:
    """With and without batching: the highest rate as measured, and as theory has it."""
    found = {}
    for name, service in (("off", OFF), ("on", ON)):
        expected = max_rate_per_s(service, LENGTHS, OBJECTIVE_S)
        folder = tmp_path_factory.mktemp(name)
        best = max_rate([measured(service, part * expected, folder) for part in AROUND], OBJECTIVE_S * 1e3)
        assert best is not None
        found[name] = (best, expected)
    return found


@pytest.mark.parametrize("name", ["off", "on"])
def test_the_knee_is_where_theory_puts_it(name: str, knees: dict[str, tuple[MaxRate, float]]) -> None:
    best, expected = knees[name]
    assert best.bound == "measured"
    assert best.per_s == pytest.approx(expected, rel=0.05)


def test_batching_gains_what_theory_says(knees: dict[str, tuple[MaxRate, float]]) -> None:
    (off, off_theory), (on, on_theory) = knees["off"], knees["on"]
    assert on.per_s / off.per_s == pytest.approx(on_theory / off_theory, rel=0.08)
    assert on_theory / off_theory > 20


@pytest.mark.parametrize(("rate_per_s", "max_items"), [(359.55, 64), (1078.65, 64), (2876.4, 64), (80.0, 1)])
def test_the_played_queue_has_the_means_of_the_exact_chain(rate_per_s: float, max_items: int) -> None:
    run = play(rate_per_s, Service(0.005, 0.0002, max_items=max_items), LENGTHS)
    exact = queueing.stationary_means(rate_per_s, queueing.Service(0.005, 0.0002, max_items))
    assert run.latencies_s.mean() == pytest.approx(exact.time_in_system_s, rel=0.02)
    assert run.batch_items.mean() == pytest.approx(exact.batch_items, rel=0.02)
    assert np.all(run.latencies_s >= run.waits_s)


@pytest.mark.usefixtures("briefly")
def test_tokens_bound_a_batch_and_devices_share_the_load() -> None:
    lengths = np.array([10.0, 30.0])
    bounded = Service(0.01, token_s=0.0001, max_tokens=100)
    assert play(2000, bounded, lengths).batch_items.max() <= 10
    assert capacity_per_s(bounded, lengths) == pytest.approx(5 / 0.020)
    one, two = (max_rate_per_s(bounded._replace(devices=n), lengths, 0.1) for n in (1, 2))
    assert 1.9 < two / one < 2.4


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer arrivals: for tests that compare forecasts with each other, not with the truth."""
    monkeypatch.setattr(theory, "ARRIVALS", 15_000)


INFO: dict[str, Any] = {
    "scheduler": {
        "batch_base_ms": 100.0, "batch_ms_per_1000_tokens": 2000.0, "prediction_error": 0.05,
        "max_batch_tokens": 100_000, "short_batch_tokens": 450,
    },
    "settings": {"batching": True, "max_batch_items": 512},
}  # fmt: skip


def test_the_law_in_info_is_the_one_that_is_forecast_with() -> None:
    law = law_of(INFO, other_ms=2.0)
    assert law is not None
    assert law.service._replace(scatter=0) == Service(0.1, 0.0, 0.002, 512, 450.0, 1)
    assert law.service.scatter == pytest.approx(0.0627, abs=1e-4)
    assert Law.from_dict(orjson.loads(orjson.dumps(law.as_dict()))) == law
    endless = replace(law, service=law.service._replace(max_tokens=math.inf))
    assert Law.from_dict(orjson.loads(orjson.dumps(endless.as_dict()))) == endless
    off = law_of({**INFO, "settings": {"batching": False, "max_batch_items": 512}})
    assert off is not None
    assert off.service.max_items == 1
    assert law_of({}) is None
    others: list[dict[str, Any]] = [{"scheduler": None, "settings": {}}, {"scheduler": [1], "settings": 2}]
    assert [law_of(other) for other in others] == [None, None]
    idle = {**INFO["scheduler"], "batch_base_ms": 0, "batch_ms_per_1000_tokens": 0}
    assert law_of({**INFO, "scheduler": idle}) is None


@pytest.mark.usefixtures("briefly")
def test_a_forecast_is_as_uncertain_as_the_law() -> None:
    law = Law(Service(0.1, token_s=0.002, max_tokens=450), error=0.1, other_ms=0)
    found = forecast(law, LENGTHS, 500)
    assert found.least_per_s < found.per_s < found.most_per_s
    at_the_limit = expected_ms(law, LENGTHS, found.per_s)
    assert at_the_limit["p99"] == pytest.approx(500, rel=0.02)
    assert at_the_limit["wait"] < at_the_limit["p50"] < at_the_limit["p95"]


def level_of(service: Service, rate_per_s: float, slower: float = 1.0) -> Table:
    """What clients see of batches of 1 to 60 items of 10 tokens that take as long as the law says, but scatter."""
    rng = np.random.default_rng(int(rate_per_s))
    items = np.repeat(rng.integers(1, 61, size=400), 3).astype(float)  # three answers of each batch are looked at
    noise = np.repeat(rng.lognormal(-(service.scatter**2) / 2, service.scatter, size=400), 3)
    seconds = slower * noise * (service.base_s + service.token_s * 10 * items)
    columns = {
        "outcome": np.full(1200, "answered"), "counted": np.ones(1200), "batch_items": items,
        "batch_tokens": 10 * items, "forward_ms": 1e3 * seconds,
    }  # fmt: skip
    return Table(columns)


def test_the_law_of_batches_that_ran_is_found_with_its_scatter_and_how_far_levels_lie_from_it() -> None:
    true = Service(0.008, token_s=0.0002, devices=2, scatter=0.3)
    told = Law(Service(0.001, item_s=0.5, token_s=0.01), error=0.5)
    found = fitted(told, [level_of(true, 10), level_of(true, 20, slower=1.2)], side_by_side=2)
    assert found.service.base_s == pytest.approx(1.1 * true.base_s, rel=0.1)
    assert found.service.token_s == pytest.approx(1.1 * true.token_s, rel=0.1)
    assert found.service.scatter == pytest.approx(0.31, abs=0.04)
    stalled = level_of(true, 10)
    stalled["forward_ms"][:9] = 1000
    assert fitted(told, [stalled, stalled], 2).service.scatter == pytest.approx(0.3, abs=0.06), (
        "three stalls change little"
    )
    assert (found.service.item_s, found.service.devices) == (0, 2)
    assert found.error == pytest.approx(0.1, abs=0.04)
    alike = level_of(true, 10).where(level_of(true, 10)["batch_items"] == 1)
    shape = fitted(told, [alike] * 20, 2).service
    assert shape.token_s / shape.base_s == pytest.approx(told.service.token_s / told.service.base_s)
    assert shape.base_s + 10 * shape.token_s == pytest.approx(true.base_s + 10 * true.token_s, rel=0.25)
    assert fitted(told, [], 2) == fitted(told, [level_of(true, 10).where(np.arange(1200) < 90)], 2) == told


@pytest.mark.usefixtures("briefly")
def test_batches_that_scatter_carry_less_within_an_objective() -> None:
    steady = Service(0.1, token_s=0.002, max_tokens=450)
    rates = [max_rate_per_s(steady._replace(scatter=scatter), LENGTHS, 0.5) for scatter in (0.0, 0.3)]
    assert rates[1] < 0.9 * rates[0]
    alone = OFF._replace(scatter=0.3)
    run = play(5.0, alone, LENGTHS)
    services_s = run.latencies_s - run.waits_s
    assert services_s.mean() == pytest.approx(BASE_S + ITEM_S, rel=0.02)
    assert np.log(services_s).std() == pytest.approx(0.3, rel=0.05)


@pytest.mark.usefixtures("briefly")
def test_replicas_are_as_many_as_carry_the_rate() -> None:
    law = Law(Service(0.1, token_s=0.002, max_tokens=450), error=0.0, other_ms=0)
    carried = forecast(law, LENGTHS, 500)
    made = plan.plan(law, LENGTHS, 2.5 * carried.per_s, carried)
    assert made.replicas == made.least_replicas == made.most_replicas == 3
    assert made.rate_each == pytest.approx(2.5 * carried.per_s / 3)
    assert made.expected_ms["p99"] < 500


@pytest.mark.usefixtures("briefly")
def test_an_objective_below_a_lone_request_has_no_plan() -> None:
    law = Law(Service(0.1, token_s=0.002, max_tokens=450), error=0.0)
    with pytest.raises(LoadTestFailed, match="lone request"):
        plan.lines(law, LENGTHS, 100, 50)


def test_lengths_come_from_any_table_with_tokens(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("tokens,items\n12,1\n,1\n60,4\n")
    assert lengths_in(read_table(file)).tolist() == [12.0, 15.0]
    file.write_text("words\n3\n")
    assert len(lengths_in(read_table(file))) == 0
