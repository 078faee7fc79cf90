"""Stacked bars by level of load, side by side for several services."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.analysis import readable
from loadtest.measures import Measure


def panels(of: Sequence[object], *, before: int = 0) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each of these, and so many before them."""
    n = len(of) + before
    figure = Figure(figsize=(max(7.0, 4.6 * n), 4.0), layout="constrained")
    return figure, list(figure.subplots(1, n, squeeze=False)[0])


def stacked(
    axes: Axes, levels: Sequence[Measure], rows: Mapping[str, Any], colours: Sequence[str], *, share: bool = False
) -> None:
    """One bar for each level; `rows` has a value of each kind for each level. Kinds that never occur are left out."""
    places = np.arange(len(levels))
    values = {name: np.asarray(row, dtype=float) for name, row in rows.items()}
    total = sum(values.values(), np.zeros(len(levels)))
    base = np.zeros(len(levels))
    for (name, row), colour in zip(values.items(), colours, strict=True):
        heights = row / np.where(total > 0, total, 1.0) if share else row
        if np.any(heights > 0):
            axes.bar(places, heights, bottom=base, color=colour, width=0.82, label=name)
        base = base + heights
    axes.set_xticks(places, [readable(one.level) + ("*" if one.client_limited else "") for one in levels], rotation=45)
    axes.set_xlabel("requests/s that come")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
