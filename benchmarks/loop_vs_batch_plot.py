"""The plot of the founding experiment: the time of each way, a panel for each case."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.loop_vs_batch_cases import Case

mpl.use("Agg")
from matplotlib import pyplot as plt

PLAIN, AGAIN = "#4a6fa5", "#b8c4d6"
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#46586b",
    "text.color": "#1d2b3a",
    "axes.labelcolor": "#1d2b3a",
    "xtick.color": "#1d2b3a",
    "ytick.color": "#1d2b3a",
    "svg.hashsalt": "loop-vs-batch",  # the same figures give the same file
}


def panel(axes: Any, case: Case, times: Mapping[str, Sequence[float]]) -> None:
    """One case: a bar to each way's median, a whisker from its fastest to its slowest round."""
    names = list(case.ways)
    medians = [statistics.median(times[name]) for name in names]
    scale, unit = (1e6, "µs") if max(medians) < 1e-3 else (1e3, "ms")
    values = [median * scale for median in medians]
    below = [value - min(times[name]) * scale for name, value in zip(names, values, strict=True)]
    above = [max(times[name]) * scale - value for name, value in zip(names, values, strict=True)]
    colours = [AGAIN if name.endswith("again") else PLAIN for name in names]
    axes.barh(range(len(names)), values, height=0.6, color=colours)
    axes.errorbar(values, range(len(names)), xerr=[below, above], fmt="none", ecolor="#1d2b3a", elinewidth=1, capsize=2)
    for row, (value, more) in enumerate(zip(values, above, strict=True)):
        axes.annotate(f"{value:.3g}", (value + more, row), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(names)), [name.replace("`", "") for name in names])
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{unit} a {case.unit}")
    axes.set_title(case.title, loc="left")


def draw(cases: Sequence[Case], found: Sequence[Mapping[str, Sequence[float]]], device: str) -> Any:
    """A figure with a panel for each case, on white, so that it can be read on a dark page as well."""
    with plt.rc_context(STYLE):
        figure, rows = plt.subplots(len(cases), figsize=(8, 2.1 * len(cases)), layout="constrained")
        for axes, case, times in zip(rows, cases, found, strict=True):
            panel(axes, case, times)
        figure.suptitle(f"{device}: median, and range over the rounds; less is better", fontsize=9, x=0.01, ha="left")
    return figure


def save(figure: Any, path: Path) -> None:
    """Into `path` with .svg and with .png."""
    with plt.rc_context(STYLE):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=150)
    plt.close(figure)
