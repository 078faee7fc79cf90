"""The plots of the report: one function each, from findings to a figure."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from loadtest.analysis import readable
from loadtest.bars import panels, stacked
from loadtest.findings import Findings
from loadtest.forecast import expected_ms
from loadtest.measures import PERCENTILES, Measure
from loadtest.metrics import BATCH_ITEMS, WAITS
from loadtest.samples import BILL
from loadtest.theory import capacity_per_s

COLOURS = ("#c2571a", "#1f5fa8", "#3a7d44", "#7a4f9e")
"""Of the services, in their order."""
GREY = "#8a8f98"
PARTS = {
    "parse": "#cfd8e3", "tokenize": "#9fb8d6", "queue": "#e0a458", "forward": "#1f5fa8", "respond": "#7fae8b",
    "outside": "#b9b9b9",
}  # fmt: skip
OUTCOMES = {
    "in time": "#2e7d4f", "late": "#e0a458", "shed (429)": "#9fb8d6", "expired (504)": "#7a4f9e", "failed": "#b3261e",
}  # fmt: skip
CAUSES = {"nothing": "#cfe3d4", "device": "#1f5fa8", "budget": "#e0a458", "lane": "#7a4f9e", "growth": "#b9b9b9"}
FORECAST_POINTS = 14


def latency(found: Sequence[Findings], objective_ms: float) -> Figure:
    """Percentiles of answers against the rate, with the rounds' spread, and the forecast of the 99th."""
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    all_axes = figure.subplots(1, len(PERCENTILES), sharey=True)
    for axes, percent in zip(all_axes, PERCENTILES, strict=True):
        for one, colour in zip(found, COLOURS, strict=False):
            _curve(axes, one, colour, lambda measure, percent=percent: measure.percentiles_ms[percent])  # type: ignore[misc]
            if percent == PERCENTILES[-1]:
                _forecast(axes, one, colour)
        axes.axhline(objective_ms, color=GREY, linewidth=1, linestyle=":")
        _log(axes)
        axes.set(title=f"p{percent}", xlabel="requests/s that come")
    all_axes[0].set_ylabel("latency of answers, ms")
    all_axes[0].annotate(
        f"objective {objective_ms:g} ms",
        (0.02, objective_ms),
        xycoords=("axes fraction", "data"),
        va="bottom",
        color=GREY,
    )
    all_axes[0].legend(loc="upper left", bbox_to_anchor=(0, 0.88))
    return figure


def goodput(found: Sequence[Findings], objective_ms: float) -> Figure:
    """Answers within the objective against the rate: the line at 45° is a service that answers all in time."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    most = max((measure.rate for one in found for measure in one.open), default=1.0)
    axes.plot([0, most], [0, most], color=GREY, linewidth=1, linestyle=":", label="all that come")
    for one, colour in zip(found, COLOURS, strict=False):
        _curve(axes, one, colour, lambda measure: measure.goodput)
    axes.set(
        xlabel="requests/s that come", ylabel=f"answers/s within {objective_ms:g} ms", xlim=(0, None), ylim=(0, None)
    )
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


def closed_loop(found: Sequence[Findings]) -> Figure | None:
    """Throughput and latency by the number of users who wait for their answers; None where there were none."""
    if not any(one.closed for one in found):
        return None
    figure = Figure(figsize=(12, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for one, colour in zip(found, COLOURS, strict=False):
        users = [measure.level for measure in one.closed]
        left.plot(users, [measure.rate for measure in one.closed], "s-", color=colour, label=one.name)
        right.plot(users, [measure.percentiles_ms[50] for measure in one.closed], "s-", color=colour, label=one.name)
        right.plot(users, [measure.percentiles_ms[99] for measure in one.closed], "s:", color=colour)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("users at once (closed loop)")
        axes.grid(alpha=0.3)
    left.set(ylabel="answers/s", ylim=(0, None))
    left.legend()
    right.set_yscale("log")
    _plain_numbers(right.yaxis)
    right.set_ylabel("latency, ms: p50, dotted p99")
    return figure


def batch_sizes(found: Sequence[Findings]) -> Figure | None:
    """How many inputs batches held, by rate; None where no service tells."""
    told = [one for one in found if any(window.buckets(BATCH_ITEMS) for window in one.windows.values())]
    if not told:
        return None
    figure, all_axes = panels(told)
    for axes, one in zip(all_axes, told, strict=True):
        columns = [one.windows[measure.step].buckets(BATCH_ITEMS) for measure in one.open]
        bounds = [bucket.most for bucket in max(columns, key=len, default=[])]
        counts = np.array([[bucket.number for bucket in column] for column in columns]).T
        used = [i for i, row in enumerate(counts) if row.sum()]
        names = ["1" if bounds[i] <= 1 else f"≤ {bounds[i]:g}" for i in used]
        shades = _shades(len(used))
        stacked(axes, one.open, dict(zip(names, [counts[i] for i in used], strict=True)), shades, share=True)
        axes.set(title=one.name, ylabel="share of batches")
    return figure


def where_time_goes(found: Sequence[Findings]) -> Figure | None:
    """The mean bill of an answer, by rate; None where no service sends one."""
    told = [one for one in found if any(measure.bill_ms for measure in one.open)]
    if not told:
        return None
    figure, all_axes = panels(told)
    for axes, one in zip(all_axes, told, strict=True):
        rows = {part: [measure.bill_ms.get(part, 0.0) for measure in one.open] for part in (*BILL, "outside")}
        stacked(axes, one.open, rows, [PARTS[part] for part in rows])
        axes.set(title=one.name, ylabel="mean ms of an answer")
    return figure


def outcomes(found: Sequence[Findings]) -> Figure:
    """What became of all that came, by rate."""
    figure, all_axes = panels(found)
    for axes, one in zip(all_axes, found, strict=True):
        answered = [measure.counts["answered"] for measure in one.open]
        in_time = [measure.in_time * measure.requests for measure in one.open]
        rows = {
            "in time": in_time,
            "late": [all_of - good for all_of, good in zip(answered, in_time, strict=True)],
            "shed (429)": [measure.counts["shed"] for measure in one.open],
            "expired (504)": [measure.counts["expired"] for measure in one.open],
            "failed": [measure.counts["failed"] + measure.counts["wrong"] for measure in one.open],
        }
        stacked(axes, one.open, rows, list(OUTCOMES.values()), share=True)
        axes.set(title=one.name, ylabel="share of requests")
    return figure


def device(found: Sequence[Findings]) -> Figure | None:
    """How busy the device was, and what requests waited for; None where no service tells."""
    told = [one for one in found if any(window.busy_share is not None for window in one.windows.values())]
    if not told:
        return None
    figure, all_axes = panels(told, before=1)
    busy = all_axes[0]
    for one, colour in zip(found, COLOURS, strict=False):
        known = [(measure.rate, one.windows[measure.step].busy_share) for measure in one.open]
        points = [(rate, share) for rate, share in known if share is not None]
        if points:
            busy.plot(*zip(*points, strict=True), "o-", color=colour, label=one.name)
    busy.set(title="device busy", xlabel="requests/s that come", ylabel="share of the time", ylim=(0, 1.05))
    _log_rate(busy)
    busy.legend()
    for axes, one in zip(all_axes[1:], told, strict=True):
        causes = [one.windows[measure.step].by_label(WAITS, "cause") for measure in one.open]
        rows = {cause: [by.get(cause, 0.0) for by in causes] for cause in CAUSES}
        stacked(axes, one.open, rows, list(CAUSES.values()), share=True)
        axes.set(title=f"{one.name}: what requests waited for", ylabel="share of requests")
    return figure


def _curve(axes: Axes, one: Findings, colour: str, value: Callable[[Measure], float]) -> None:
    """A line through all levels, hollow where the client limited them, and a band of what single rounds said."""
    axes.plot([m.rate for m in one.open], [value(m) for m in one.open], color=colour, linewidth=1.6, label=one.name)
    for limited in (False, True):
        points = [m for m in one.open if m.client_limited is limited]
        face = "white" if limited else colour
        axes.plot(
            [m.rate for m in points], [value(m) for m in points], "o", color=colour, markerfacecolor=face, zorder=3
        )  # fmt: skip
    by_level: dict[float, list[float]] = {}
    for measure in (measure for tried in one.rounds for measure in tried):
        by_level.setdefault(measure.level, []).append(value(measure))
    levels = [m for m in one.open if len(by_level.get(m.level, [])) > 1]
    lows, highs = [min(by_level[m.level]) for m in levels], [max(by_level[m.level]) for m in levels]
    axes.fill_between([m.rate for m in levels], lows, highs, color=colour, alpha=0.18, linewidth=0)


def _forecast(axes: Axes, one: Findings, colour: str) -> None:
    if one.law is None or not one.open:
        return
    top = min(0.97 * capacity_per_s(one.law.service, one.lengths), 1.2 * one.open[-1].rate)
    rates = np.geomspace(min(one.open[0].rate, top / 2), top, FORECAST_POINTS)
    p99 = [expected_ms(one.law, one.lengths, float(rate))["p99"] for rate in rates]
    axes.plot(rates, p99, color=colour, linewidth=1.2, linestyle="--", label=f"{one.name}, forecast")


def _log(axes: Axes) -> None:
    axes.set_yscale("log")
    _log_rate(axes)
    _plain_numbers(axes.yaxis)


def _log_rate(axes: Axes) -> None:
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis)
    axes.grid(alpha=0.3)


def _plain_numbers(axis: Axis) -> None:
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: readable(value)))
    axis.set_minor_formatter(NullFormatter())


def _shades(n: int) -> list[str]:
    """From light to dark: larger batches are darker."""
    light, dark = np.array([222, 235, 247]), np.array([8, 48, 107])
    parts = np.linspace(0, 1, max(1, n))
    return ["#" + "".join(f"{int(v):02x}" for v in light + part * (dark - light)) for part in parts]
