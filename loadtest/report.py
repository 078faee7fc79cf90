"""The report: a page that needs no network, the plots as pictures, and the figures as files."""

import base64
import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
import orjson
from matplotlib.figure import Figure

from loadtest import plots
from loadtest.analysis import Ratio, noise, ratio, readable
from loadtest.findings import Findings
from loadtest.measures import Measure
from loadtest.metrics import BATCH_ITEMS

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: smaller, and it can be searched and read aloud
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.facecolor": "white",
}


@dataclass(frozen=True, slots=True)
class Test:
    """What was tested, and how."""

    objective_ms: float
    command: str
    began: str
    """Date and time, with its zone."""
    took_s: float
    machine: dict[str, str]
    traffic: str
    """In words: what was sent."""
    seconds: float
    """Of a step."""
    rounds: int
    local: bool
    """Whether client and services shared the machine."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot with what it shows, in a sentence, and how to read it."""

    name: str
    title: str
    text: str
    figure: Figure


def headline(found: Sequence[Findings], objective_ms: float) -> str:
    """The finding in a sentence: the last service against the first."""
    first, last = found[0], found[-1]
    within = f"within {objective_ms:g} ms"
    if last.best is None or (last.best.bound == "at_most" and last.best.per_s > 0):
        return f"{last.name} answered 99% of requests {within} at no rate that was tried"
    times = compared(found)
    if times is not None:
        return f"{times.claim}×{readable(times.value)} more requests per second {within}"
    if first is last or first.best is None:
        return f"{last.best} {within}"
    return f"{last.name} and {first.name} held every rate that was tried {within}: which carries more is open"


def compared(found: Sequence[Findings]) -> Ratio | None:
    """The last service's highest rate over the first one's, with the rounds' spread."""
    first, last = found[0], found[-1]
    if first is last or first.best is None or last.best is None:
        return None
    return ratio(last.best, first.best, list(zip(last.best_by_round, first.best_by_round, strict=False)))


def write_report(folder: Path, test: Test, found: Sequence[Findings]) -> Path:
    """Write `report.html`, a PNG for each plot, `steps.csv` and `results.json`; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        drawn = _plots(found, test.objective_ms)
        for plot in drawn:
            plot.figure.savefig(folder / f"{plot.name}.png", dpi=130)
        pictures = {plot.name: _data_uri(plot.figure) for plot in drawn}
    _write_steps(folder / "steps.csv", found)
    (folder / "results.json").write_bytes(orjson.dumps(_results(test, found), option=orjson.OPT_INDENT_2))
    page = _template().render(
        test=test, found=found, headline=headline(found, test.objective_ms), ratio=compared(found),
        noises={one.name: noise(one.best_by_round) for one in found}, plots=drawn, pictures=pictures,
        local=test.local, described=_described, readable=readable, ms=_ms,
        files=sorted(path.name for path in folder.glob("*.csv*")),
        batch=lambda one, m: one.windows[m.step].mean(BATCH_ITEMS), busy=lambda one, m: one.windows[m.step].busy_share,
    )  # fmt: skip
    path = folder / "report.html"
    path.write_text(page)
    return path


def _plots(found: Sequence[Findings], objective_ms: float) -> list[Plot]:
    made = [
        ("latency", "Latency against rate", plots.latency(found, objective_ms)),
        ("goodput", "Answers in time against rate", plots.goodput(found, objective_ms)),
        ("outcomes", "What became of requests", plots.outcomes(found)),
        ("batches", "How large batches were", plots.batch_sizes(found)),
        ("time", "Where the time goes", plots.where_time_goes(found)),
        ("device", "The device, and what requests waited for", plots.device(found)),
        ("closed", "Closed loop: users who wait for their answers", plots.closed_loop(found)),
    ]
    return [Plot(name, title, TEXTS[name], figure) for name, title, figure in made if figure is not None]


TEXTS = {
    "latency": "Open loop: requests come at random moments, whatever became of those before them, and their time "
    "counts from the moment they were due. Lines are medians over the rounds, bands their spread; hollow points were "
    "limited by the client. Dashed: what queueing theory says with the law of service of the batches that ran at rates "
    "which held.",
    "goodput": "A good service follows the dotted line up to its capacity and then stays level. One that falls again "
    "works for answers that nobody waits for any more. The requests of this test do not say how long they can wait; "
    "Convoy refuses in time what it cannot answer in time where it knows that (--request-timeout-ms).",
    "outcomes": "Every request that came due, in all rounds. A refusal is not an answer, however quick it was. "
    "An asterisk marks a rate that the client could not keep up.",
    "batches": "As the service counts them. Batches form by themselves as the rate grows.",
    "time": "In the mean over answers, as each answer's Server-Timing header tells; outside is the rest of the "
    "client's time: the network, both ends of the connection, and the client's own lateness.",
    "device": "Busy is the part of the time in which the device had a batch.",
    "closed": "Closed loop: each user sends again only when it has its answer, so a slow service is asked less, and "
    "latency looks better than people would find it. It shows throughput, not what an objective allows.",
}


def _data_uri(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def _template() -> jinja2.Template:
    source = resources.files("loadtest").joinpath("report.html.jinja").read_text()
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True).from_string(source)


def _described(info: Mapping[str, Any]) -> str:
    """What a service says of itself, as far as it does: another server's `/info` may hold anything."""
    told = [str(info.get("model_id", "an unnamed model"))]
    if isinstance(model := info.get("model"), dict):
        told += [f"{name} {model[name]}" for name in ("device", "dtype", "workers") if name in model]
    return ", ".join([*told, *([f"version {info['version']}"] if "version" in info else [])])


def _ms(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else readable(value)


def _write_steps(path: Path, found: Sequence[Findings]) -> None:
    """A line for each level of each service in each round, and for all rounds together."""
    with path.open("w", newline="") as file:
        writer: Any = None
        for one in found:
            rows = [("all", measure) for measure in one.steps]
            rows += [(str(number), measure) for number, tried in enumerate(one.rounds, 1) for measure in tried]
            for number, measure in rows:
                flat = _flat(measure)
                if writer is None:
                    writer = csv.DictWriter(file, ["target", "round", *flat])
                    writer.writeheader()
                writer.writerow({"target": one.name, "round": number, **flat})


def _flat(measure: Measure) -> dict[str, object]:
    """One line: each percentile and outcome in a column of its own."""
    values = asdict(measure)
    nested = {"percentiles_ms": "p{}_ms", "within_ms": "within_p{}_ms", "counts": "{}"}
    flat = {name: value for name, value in values.items() if name not in (*nested, "bill_ms")}
    for name, form in nested.items():
        flat |= {form.format(key): value for key, value in values[name].items()}
    return {**flat, "client_limited": measure.client_limited}


def _results(test: Test, found: Sequence[Findings]) -> dict[str, Any]:
    """What programs may want to read."""
    times = compared(found)
    return {
        "headline": headline(found, test.objective_ms),
        "test": asdict(test),
        "ratio": times._asdict() if times is not None else None,
        "targets": [
            {
                "name": one.name,
                "best": one.best._asdict() if one.best is not None else None,
                "best_by_round": [best._asdict() if best is not None else None for best in one.best_by_round],
                "forecast": asdict(one.forecast) if one.forecast is not None else None,
                "law": one.law.as_dict() if one.law is not None else None,
                "levels": [_flat(measure) for measure in one.steps],
                "info": one.info,
            }
            for one in found
        ],
    }
