"""The page: the report as text, to be read from top to bottom."""

from collections.abc import Sequence

from app.doctor.bill import Bill, Line
from app.doctor.layout import LABEL, count, row, wrap
from app.doctor.machine_words import machine_rows
from app.doctor.report import Report
from app.doctor.sweep import Step, Sweep

CELL = 22
BAR = 30


def page(report: Report) -> str:
    """All of it, with a newline at its end."""
    parts = [
        _head(report),
        ["THE MACHINE", *machine_rows(report)],
        ["THE BILL OF ONE CALL", *_bills(report)],
        ["HIDDEN SYNCHRONISATIONS", *wrap(_synchronisations(report))],
        ["THE SWEEP OF BATCH SIZES", *_sweep(report.sweep), *wrap(_by_law(report))],
        ["SUGGESTIONS", *_suggestions(report)],
    ]
    if report.not_seen_here:
        title = "WHAT ONLY A GPU WOULD SHOW" if report.model.device_kind == "cpu" else "WHAT CANNOT BE SEEN HERE"
        parts.append([title, *[line for one in report.not_seen_here for line in _item(one)]])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _head(report: Report) -> list[str]:
    model = report.model
    size = f", {model.parameters / 1e6:.1f} million parameters" if model.parameters else ""
    way = f", {model.forward}" if model.forward else ""
    lines = [
        f"Convoy {report.version}, doctor: {model.name} ({model.kind}{size}) in {model.dtype}{way}",
        *wrap(f"Device: {model.device}. Measured in {report.seconds:.0f} s.", ""),
    ]
    if model.simulated:
        lines += wrap(
            "It is a simulated device: it sleeps as its law says, and its figures tell nothing of a model.", ""
        )
    return lines


# --- the bill of one call ---------------------------------------------------------------------------------------------


def _bills(report: Report) -> list[str]:
    """A table with a column for each size, and under it what each line means."""
    bills = report.bills
    lines = wrap(
        "From texts to rows, in ms: the median of some repetitions, half the range of the middle half of them, and the "
        "part of the whole."
    )
    if bills:
        lines += [*_table(bills), ""]
    for one in report.left_out:
        lines += wrap(f"Calls of {one.texts} were left out: {one.reason}.")
    for bill in bills[:1]:
        lines += [words for line in bill.lines for words in row(line.title, line.meaning)]
        if not report.model.simulated:
            lines += row("how", _how(report))
    return lines


def _table(bills: Sequence[Bill]) -> list[str]:
    return [
        _cells("", [count(bill.texts, "text") for bill in bills]),
        _cells("tokens in batches", [f"{bill.tokens} in {bill.batches}" for bill in bills]),
        _cells("whole", [_spread(bill.whole.ms, bill.whole.low_ms, bill.whole.high_ms) + " 100%" for bill in bills]),
        *[
            _cells(line.title, [_cell(bill.lines[place]) for bill in bills])
            for place, line in enumerate(bills[0].lines)
        ],
        _cells("texts per second", [f"{bill.texts_per_s:.0f}" for bill in bills]),
        _cells("repetitions", [str(bill.repetitions) for bill in bills]),
    ]


def _cell(line: Line) -> str:
    if not line.ms:
        return "0"
    if line.low_ms is None or line.high_ms is None:
        return f"{round(line.ms, 2) + 0.0:.2f} {round(line.share, 2) + 0.0:4.0%}"  # never below zero by nothing
    return f"{_spread(line.ms, line.low_ms, line.high_ms)} {line.share:4.0%}"


def _spread(ms: float, low_ms: float, high_ms: float) -> str:
    digits = 3 if ms < 1 else 2 if ms < 100 else 1
    return f"{ms:.{digits}f} ±{(high_ms - low_ms) / 2:.{digits}f}"


def _cells(label: str, cells: Sequence[str]) -> str:
    return (f"  {label:<{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in cells)).rstrip()


def _how(report: Report) -> str:
    slower = ", ".join(f"{bill.profiler_slower:.2f}" for bill in report.bills)
    if report.model.device_kind == "cuda" and not any(bill.counts.kernels for bill in report.bills):
        return (
            "The profiler saw no kernels, perhaps because it may not look into the card: what is compute counts as "
            "synchronisation above. The driver's setting NVreg_RestrictProfilingToAdminUsers decides who may."
        )
    return (
        "The whole and tokenization are measured by the clock. How the rest is divided is torch's profiler's word, on "
        f"the same calls made once more. Without what it takes to note an event ({report.profiler_event_us:.2f} µs), "
        f"they took {slower} times as long under it."
    )


def _synchronisations(report: Report) -> str:
    if report.model.simulated:
        return "A simulated device has none."
    counted = {bill.texts: bill.counts.hidden_synchronisations for bill in report.bills}
    found = [
        f"in a call of {texts}: {', '.join(f'{times} x {name}' for name, times in names.items())}"
        for texts, names in counted.items()
        if names
    ]
    words = "None in a call of any size: nothing asks the device for a value on the way."
    if found:
        words = f"{'; '.join(found)}. Each makes the host wait for the card, and then the card for the host."
    if report.model.device_kind == "cuda":
        return words + " The one wait of each batch, for its rows, is meant and is not counted."
    return words + " Counted are operators that would wait on a card; on a CPU they cost next to nothing."


# --- the sweep, and what follows from all this ------------------------------------------------------------------------


def _sweep(sweep: Sweep) -> list[str]:
    lines = [_step_cells("texts", "tokens", "ms", "tokens/s", "of the best", "")]
    knee = next((step for step in sweep.steps if step.tokens >= sweep.knee_tokens), sweep.steps[-1])
    lines += [_step(step) + ("  <- knee" if sweep.reached and step is knee else "") for step in sweep.steps]
    knee_words = (
        f"By this law the knee is at {sweep.knee_tokens} tokens: a larger batch gains less than 5%, and all who are in "
        "it wait longer."
        if sweep.reached
        else "The knee is not reached: larger batches than were measured would gain more than 5%."
    )
    law = f"A batch takes about {sweep.base_ms:.3g} ms and {sweep.token_us:.3g} µs for each token."
    return [*lines, *wrap(f"{law} {knee_words} The token budget in effect is {sweep.budget_tokens}.")]


def _by_law(report: Report) -> str:
    """How the calls of the bill compare with the sweep, which is measured at another moment and of texts that are
    alike."""
    if report.model.simulated or not report.bills:
        return ""
    law = report.sweep
    ratios = [bill.whole.ms / (bill.batches * law.base_ms + bill.tokens * law.token_us / 1000) for bill in report.bills]
    return (
        f"The calls of the bill took {', '.join(f'{ratio:.2f}' for ratio in ratios)} times what this law says: their "
        "texts are not alike, they are tokenized too, and the machine's speed may have changed meanwhile."
    )


def _step(step: Step) -> str:
    bar = "#" * round(BAR * step.reach)
    return _step_cells(
        str(step.texts), str(step.tokens), f"{step.ms:.2f}", f"{step.tokens_per_s:.0f}", f"{step.reach:.0%}", bar
    )


def _step_cells(texts: str, tokens: str, ms: str, rate: str, reach: str, bar: str) -> str:
    return f"  {texts:>8}{tokens:>10}{ms:>12}{rate:>12}{reach:>13}  {bar}".rstrip()


def _suggestions(report: Report) -> list[str]:
    lines = []
    for number, one in enumerate(report.suggestions, 1):
        lines += wrap(f"{number}. {one.what} Predicted: {one.gain:.2g} times the texts per second.", "  ", "     ")
        lines += wrap(one.because, "     ")
    return lines or ["  None: nothing that was measured here promises more than 5%."]


def _item(words: str) -> list[str]:
    return wrap(words + ".", "  - ", "    ")
