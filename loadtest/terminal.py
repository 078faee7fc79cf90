"""The end of a test in the terminal: what the report says, in lines."""

from collections.abc import Sequence

from loadtest.analysis import noise, readable
from loadtest.findings import Findings
from loadtest.report import compared


def closing_lines(found: Sequence[Findings], objective_ms: float) -> list[str]:
    """Each service's highest rate, its noise and its forecast, and the ratio with its spread."""
    lines = []
    for one in found:
        line = f"  {one.name}: {one.best or 'nothing'} within {objective_ms:g} ms at p99"
        if (spread := noise(one.best_by_round)) is not None:
            line += f"; against itself {readable(spread.least)} to {readable(spread.most)}"
        if one.forecast is not None:
            line += f"; forecast {readable(one.forecast.per_s)}/s"
            if one.best is not None and one.best.bound == "measured":
                line += f" ({one.forecast.per_s / one.best.per_s - 1:+.1%})"
        lines.append(line)
    if (times := compared(found)) is not None and len(found) > 1:
        lines.append(f"  {found[-1].name} / {found[0].name}: {times}")
    limited = [f"{one.name} {m.step}" for one in found for m in one.open if m.client_limited]
    if limited:
        lines.append(f"  limited by the client, and left out: {', '.join(limited)}")
    return lines
