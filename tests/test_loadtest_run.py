"""The load test as a user runs it: real services, real locust, a report in a folder."""

import csv
import gzip
import re
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from loadtest import plan, run, sweep, theory
from loadtest.steps import warmup_step
from tests.browser import Browser

SLOW = "fake://?dim=8&base_ms=100&item_ms=2"
"""So slow a device that two busy cores drive it beyond what it can carry: 9.8 requests/s one at a time."""
OFF_PER_S = 1 / 0.102


class Reported(NamedTuple):
    """A report, what the terminal said, and its figures."""

    folder: Path
    said: str
    results: Any

    def level(self, target: str, step: str) -> Any:
        """One level of one service, all rounds together."""
        mine = next(one for one in self.results["targets"] if one["name"] == target)
        return next(one for one in mine["levels"] if one["step"] == step)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """Batching off and on, at rates far from what decides: so few requests bear no closer look."""
    folder = tmp_path_factory.mktemp("report")
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_say", lines.append)
        patch.setattr(theory, "ARRIVALS", 10_000)
        patch.setattr(sweep, "WARM_UP", warmup_step(users=8, seconds=1))
        code = run.main(
            ["--model", SLOW, "--slo-ms", "1500", "--out", str(folder), "--seconds", "1.5", "--warmup-s", "0.3",
             "--rounds", "2", "--users", "8", "--closed-seconds", "1", "--quick",
             "--rates", "off=2,25", "--rates", "on=40,80"]
        )  # fmt: skip
    assert code == 0
    return Reported(folder, "\n".join(lines), orjson.loads((folder / "results.json").read_bytes()))


def test_batching_is_found_to_carry_more(reported: Reported) -> None:
    off, on = reported.results["targets"]
    assert off["best"]["bound"] == "measured"
    assert 1 <= off["best"]["per_s"] < 27
    assert on["best"]["bound"] == "at_least", "80 requests/s are no load for the device"
    assert on["best"]["per_s"] > 60
    assert reported.results["headline"].startswith("at least ×")
    assert reported.results["ratio"]["value"] > 2
    assert "on / off: at least ×" in reported.said


def test_without_batching_the_device_serves_one_at_a_time(reported: Reported) -> None:
    off, on = reported.level("off", "closed 8"), reported.level("on", "closed 8")
    assert off["rate"] <= 1.02 * OFF_PER_S
    assert on["rate"] > 2 * off["rate"]
    assert reported.level("off", "open 25/s")["in_time"] < 0.95, "a queue that grows answers late"
    assert reported.level("on", "open 80/s")["answered"] == reported.level("on", "open 80/s")["requests"]


def test_each_request_has_a_line_with_its_bill(reported: Reported) -> None:
    with gzip.open(reported.folder / "samples.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    mine = [row for row in rows if row["target"] == "on" and row["step"] == "open 80/s" and row["counted"] == "1"]
    assert len(mine) == reported.level("on", "open 80/s")["requests"]
    for row in mine:
        assert float(row["forward_ms"]) >= 100
        assert float(row["latency_ms"]) >= float(row["total_ms"]) - 0.01
        assert float(row["sent_s"]) >= float(row["due_s"])
        assert int(row["batch_items"]) >= 1
        assert int(row["tokens"]) >= 4
    assert {row["round"] for row in rows} == {"1", "2"}


def test_batches_grow_with_the_rate(reported: Reported) -> None:
    page = (reported.folder / "report.html").read_text()
    table = page[page.index("<th>on</th>") :]
    sizes = [float(row[0]) for row in re.findall(r"<td>([\d.]+)</td><td>\d+%</td>", table)]
    low, high = sizes[:2]
    assert 1 < low < high


def test_the_report_needs_no_network_and_shows_its_plots(reported: Reported, page: Browser) -> None:
    page.asked(), page.complaints()
    page.open((reported.folder / "report.html").as_uri())
    pictures = page.run(
        "return [...document.images].map(one => [one.src.slice(0, 19), one.complete && one.naturalWidth, one.alt])"
    )
    assert len(pictures) == 7
    for source, width, words in pictures:
        assert source == "data:image/svg+xml;"
        assert width > 300
        assert words
    assert page.run("return document.querySelector('h1').textContent") == reported.results["headline"]
    assert page.run("return document.querySelectorAll('tbody tr').length") > 8
    assert page.asked() == []
    assert page.complaints() == []
    links = page.run("return [...document.links].map(one => one.getAttribute('href'))")
    assert {"samples.csv.gz", "steps.csv", "results.json"} <= set(links)
    assert all((reported.folder / link).exists() for link in links)


def test_the_page_stays_within_a_narrow_window(reported: Reported, page: Browser) -> None:
    page.resize(400, 800)
    page.open((reported.folder / "report.html").as_uri())
    assert page.run("return document.documentElement.scrollWidth") <= 400
    page.resize(1280, 900)


def test_the_planner_reads_the_report(reported: Reported, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main(["--rate", "500", "--slo-ms", "500", "--report", str(reported.folder)]) == 0
    said = capsys.readouterr().out
    assert "requests/s need" in said
    carried = float(re.findall(r"one replica carries ([\d.]+)", said)[0])
    assert 100 < carried < 350, "theory says 280 where the machine is quiet"
    assert plan.main(["--rate", "500", "--report", str(reported.folder), "--target", "other"]) == 1
    assert "knows no service `other`" in capsys.readouterr().err
