"""The doctor's page and its JSON, from a report made up that has everything in it."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from app.doctor.bill import Bill, Counts, LeftOut, Measured, bill_of
from app.doctor.cards import Card, explain_cards
from app.doctor.command import to_json
from app.doctor.layout import WIDTH
from app.doctor.lines import NOT_SEEN, TITLES, Kind
from app.doctor.machine import Cores, Machine, Memory, Threads
from app.doctor.number_types import NumberType
from app.doctor.page import page
from app.doctor.report import Model, Pinned, Report, ThreadsCompared
from app.doctor.suggestions import Suggestion
from app.doctor.sweep import sweep_of
from app.vectorizers.base import WarmupStep

DOCUMENT = (Path(__file__).resolve().parent.parent / "docs" / "doctor.md").read_text()
GIB = 2**30
CARD = Card(0, "NVIDIA H200", "GPU-ab", "9.0", 3, 140 * GIB, 100 * GIB, 2 * GIB)


def machine() -> Machine:
    return Machine(
        cpu="A CPU of 16",
        cores=Cores(64, 32, 15.5, 15),
        threads=Threads(15, 32),
        memory=Memory(128 * GIB, 100 * GIB, None, 3 * GIB),
        load=0.5,
        cards=[CARD],
        cards_explained=explain_cards([CARD], "3", None, cuda="13.0"),
        driver="580.1",
        cuda="13.0",
        cudnn_benchmark=False,
        torch="2.13.0",
        python="3.11.9",
    )


def bill(texts: int, kind: Kind) -> Bill:
    counts = Counts(91, {"cudaStreamSynchronize": 2}, {"Memcpy HtoD (Pinned -> Device)": 1}, 0.9, 88)
    parts: Any = {"tokenization": [0.1], "compute": [0.4, 0.5, 0.6], "launches": [0.3]}
    return bill_of(Measured(texts, 13 * texts, 1, [0.001 * texts] * 3, parts, counts, 1.25), kind, 0.8)


def report(kind: Kind = "cuda") -> Report:
    model = Model(
        "minilm", "embedding", "cuda:0 is NVIDIA H200", kind, "float16", "packed", 22_700_000, 384, 256, 2, False
    )
    steps = [WarmupStep(n, n // 32, 0.002 + 1e-6 * n) for n in (32, 64, 128, 256, 512, 1024, 65_536)]
    return Report(
        version="1.2.3",
        seconds=33.3,
        model=model,
        machine=machine(),
        number_types=[
            NumberType("float32", True, 1.0, "every device has it"),
            NumberType("bfloat16", True, 7.5, "compute capability 9.0"),
        ],
        pinned=Pinned(55.0, 12.0),
        threads_compared=ThreadsCompared(10.0, 14.0, 12.0),
        profiler_event_us=0.4,
        operator_us=0.8,
        bills=[bill(1, kind), bill(64, kind)],
        left_out=[LeftOut(512, "one call would take about 9 s")],
        sweep=sweep_of(steps, 16_384),
        suggestions=[Suggestion("Do this.", 2.345, "It was measured.")],
        not_seen_here=NOT_SEEN["cpu"],
    )


def flat(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all values in a JSON document; `[]` stands for each place of a list, `<name>` for a key that is
    data."""
    if isinstance(value, dict) and path.endswith(("hidden_synchronisations", "bus_copies")):
        yield from (f"{path}.<name>" for _ in value)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from flat(one, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for one in value:
            yield from flat(one, f"{path}[]")
    else:
        yield path


def documented() -> set[str]:
    return set(re.findall(r"^\| `([a-z_\[\].<>0-9]+)` \|", DOCUMENT, re.MULTILINE))


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_key_of_the_json_is_documented_and_no_other() -> None:
    assert set(flat(orjson.loads(to_json(report())))) == documented()


def test_the_page_fits_its_width_and_has_all_parts_in_order() -> None:
    text = page(report())
    assert max(map(len, text.splitlines())) <= WIDTH
    heads = [line for line in text.splitlines() if line.isupper() and not line.startswith(" ")]
    assert heads == [
        "THE MACHINE", "THE BILL OF ONE CALL", "HIDDEN SYNCHRONISATIONS", "THE SWEEP OF BATCH SIZES", "SUGGESTIONS",
        "WHAT CANNOT BE SEEN HERE",
    ]  # fmt: skip


def test_the_page_says_everything_about_a_card() -> None:
    text = words(page(report()))
    for sentence in (
        "Convoy 1.2.3, doctor: minilm (embedding, 22.7 million parameters) in float16, packed",
        "15 granted to this process: 64 in the machine, 32 by affinity, a cgroup's quota of 15.5.",
        "torch takes 15 for one operator, 32 for operators beside each other; the service would run 2 workers.",
        "100.0 GiB free of 128.0 GiB, no limit of a cgroup; this process took 3.0 GiB at its peak.",
        "cuda:0 is NVIDIA H200, number 3 in nvidia-smi, GPU-ab. CUDA_VISIBLE_DEVICES=3 chooses cards",
        "cuda:0 has 100.0 GiB free of 140.0 GiB; tensors took 2.0 GiB at their peak.",
        "580.1; torch 2.13.0 is built for CUDA 13.0; Python 3.11.9.",
        "bfloat16 yes (compute capability 9.0, a bare product 7.5 times as fast as in float32).",
        "55.0 GB/s from pinned memory, 12.0 from pageable; in a call of one text: 1 x Memcpy HtoD (Pinned -> Device).",
        "off, as it should be",
        "launches 0.300 ±0.000 30% 19.20 ±0.00 30%",
        "compute 0.500 ±0.050 50% 32.00 ±3.20 50%",
        "not attributed 0.10 10% 6.40 10%",
        "the driver what to run: 91 operators in the call.",
        "they took 1.25, 1.25 times as long under it.",
        "Calls of 512 were left out: one call would take about 9 s.",
        "in a call of 1: 2 x cudaStreamSynchronize; in a call of 64: 2 x cudaStreamSynchronize.",
        "The one wait of each batch, for its rows, is meant and is not counted.",
        "1. Do this. Predicted: 2.3 times the texts per second. It was measured.",
    ):
        assert sentence in text, sentence
    assert "disturbed" not in text


def test_the_page_marks_the_knee_and_says_the_law() -> None:
    text = page(report())
    (knee,) = (line for line in text.splitlines() if line.endswith("<- knee"))
    assert knee.split()[:2] == ["2048", "65536"]
    assert "A batch takes about 2 ms and 1 µs for each token. By this law the knee is at 38000 tokens" in words(text)
    assert "The token budget in effect is 16384." in words(text)
    short = sweep_of([WarmupStep(n, 1, 1.0) for n in (32, 64, 128)], 128)
    assert "The knee is not reached" in words(page(dataclasses.replace(report(), sweep=short)))
    assert "<- knee" not in page(dataclasses.replace(report(), sweep=short))


def test_a_cpu_is_told_what_only_a_gpu_would_show() -> None:
    text = words(page(dataclasses.replace(report("cpu"), pinned=None, suggestions=[])))
    assert "WHAT ONLY A GPU WOULD SHOW - how long the card idles" in text
    assert "pinned copies none: there is no bus to a card." in text
    assert "Counted are operators that would wait on a card; on a CPU they cost next to nothing." in text
    assert "SUGGESTIONS None: nothing that was measured here promises more than 5%." in text


def test_a_machine_with_other_work_is_told_that_its_figures_are_disturbed() -> None:
    busy = dataclasses.replace(report(), machine=dataclasses.replace(machine(), load=9.9))
    assert "9.9 processes wanted a core" in words(page(busy))


def test_a_profiler_that_saw_no_kernels_is_not_believed() -> None:
    blind = [dataclasses.replace(one, counts=Counts(91, {}, {})) for one in report().bills]
    assert "The profiler saw no kernels" in words(page(dataclasses.replace(report(), bills=blind)))
    assert "The profiler saw no kernels" not in words(page(report()))


def test_threads_that_share_a_core_are_noticed() -> None:
    good = words(page(report()))
    assert "A full batch takes 10 ms on 15 threads, which kept 12.0 cores busy, and 14 ms on one. memory" in good
    stacked = dataclasses.replace(report(), threads_compared=ThreadsCompared(14.0, 14.0, 1.0))
    assert "The system runs these threads on fewer cores than it grants" in words(page(stacked))


def test_the_document_explains_every_line_of_the_bill() -> None:
    for title in {*TITLES.values(), "launches"}:
        assert f"| {title} |" in DOCUMENT
