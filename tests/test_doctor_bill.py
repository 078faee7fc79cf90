"""The bill of one call: the profiler's trace divided among its lines, from traces made up and from torch itself."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import pytest
import torch

from app.doctor.bill import NOTHING, Bill, Counts, LeftOut, Measured, bill_of
from app.doctor.lines import Key, Kind
from app.doctor.one_call import measure
from app.doctor.profiling import ProfiledCall, measure_prices, profiled
from app.doctor.timeline import Prices, copies_by_kind, divide, hidden_synchronisations, products, share_out
from app.doctor.trace import MARK, Call, Operator, Span, read_calls
from app.errors import BackendFailed
from app.vectorizers.base import Encoding
from app.vectorizers.fake import FakeLaw, FakeVectorizer
from app.vectorizers.forward.pooling import mean

HERE, ELSEWHERE = 7, 8
FREE = Prices(0.0, 0.0)


def event(category: str, name: str, start: float, took: float, thread: int = HERE, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": took, "tid": thread, "args": args}


def calls(*events: dict[str, Any]) -> list[Call]:
    return read_calls(orjson.dumps({"traceEvents": [{"ph": "M", "name": "process_name"}, *events]}))


# --- reading a trace --------------------------------------------------------------------------------------------------


def test_operators_are_those_of_the_calling_thread_that_no_other_contains() -> None:
    (call,) = calls(
        event("user_annotation", MARK, 1000, 100),
        event("cpu_op", "aten::transpose", 1012, 2),
        event("cpu_op", "aten::linear", 1010, 50),
        event("cpu_op", "aten::as_strided", 1013, 1),
        event("cpu_op", "aten::add", 1060, 10),
        event("cpu_op", "aten::other", 1020, 5, thread=ELSEWHERE),
        event("cpu_op", "aten::before", 900, 50),
        event("cpu_op", "aten::after", 1100, 50),
    )
    assert [(one.name, one.took_us, one.inner) for one in call.operators] == [
        ("aten::linear", 50, ["aten::transpose", "aten::as_strided"]),
        ("aten::add", 10, []),
    ]
    assert (call.took_us, call.n_events) == (100, 4)


def test_operators_that_pool_are_those_called_from_a_file_that_pools() -> None:
    (call,) = calls(
        event("user_annotation", MARK, 0, 100),
        event("python_function", "app/vectorizers/forward/pooling.py(13): mean", 50, 30),
        event("python_function", "app/vectorizers/forward/encoder.py(1): call", 0, 50),
        event("cpu_op", "aten::linear", 10, 20),
        event("cpu_op", "aten::embedding_bag", 55, 20),
    )
    assert call.pooling == {1}


CARD = calls(
    event("user_annotation", MARK, 0, 100),
    event("cpu_op", "aten::to", 5, 5),
    event("cuda_runtime", "cudaMemcpyAsync", 6, 3, correlation=1),
    event("cpu_op", "aten::linear", 20, 10),
    event("cuda_runtime", "cudaLaunchKernel", 22, 6, correlation=2),
    event("cpu_op", "aten::embedding_bag", 40, 5),
    event("cuda_runtime", "cudaLaunchKernel", 41, 2, correlation=3),
    event("cpu_op", "aten::item", 50, 6),
    event("cuda_runtime", "cudaStreamSynchronize", 51, 4),
    event("cuda_runtime", "cudaEventSynchronize", 60, 35),
    event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 8, 4, thread=99, correlation=1),
    event("kernel", "gemm", 25, 20, thread=99, correlation=2),
    event("kernel", "bag", 60, 15, thread=99, correlation=3),
    event("gpu_user_annotation", MARK, 8, 80, thread=99),
    event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 80, 5, thread=99, correlation=4),
)[0]


def test_on_a_card_each_moment_belongs_to_what_held_the_call_up_then() -> None:
    found = divide(CARD, frozenset({2}), FREE, on_card=True)
    assert found == {
        "pooling": 15,
        "compute": 20,
        "copies": 4 + 5,
        "synchronisation": 4 + 5 + 10,  # the whole of one wait; of the other what no kernel and no copy fills
        "launches": 2 + 3,  # before the copy runs, and before the kernel does
        "python": 100 - 15 - 20 - 9 - 19 - 5,
    }
    assert sum(found.values()) == 100


def test_what_the_profiler_takes_for_its_notes_is_python_that_was_not_there() -> None:
    found = divide(CARD, frozenset({2}), Prices(event_us=0.5, operator_us=1.0), on_card=True)
    assert found["python"] == 32 - 0.5 * CARD.n_events
    assert CARD.n_events == 9


def test_on_a_card_the_wait_for_rows_is_meant_and_every_other_is_hidden() -> None:
    assert hidden_synchronisations(CARD, on_card=True) == {"cudaStreamSynchronize": 1}
    assert copies_by_kind(CARD) == {"Memcpy HtoD (Pinned -> Device)": 1, "Memcpy DtoH (Device -> Pinned)": 1}


def test_on_a_card_kernels_are_products_by_the_operator_that_launched_them() -> None:
    assert products(CARD, frozenset({2}), on_card=True) == pytest.approx(20 / 35)
    replayed = CARD._replace(kernels=[Span("gemm", 25, 20)])
    assert products(replayed, frozenset(), on_card=True) is None, "a recorded forward has no operators"


def test_a_moment_of_two_layers_belongs_to_the_first() -> None:
    layers: Sequence[tuple[Key, Sequence[Span]]] = [
        ("compute", [Span("a", 2, 4), Span("b", 4, 4)]),
        ("copies", [Span("c", 0, 3), Span("d", 7, 100)]),
    ]
    assert share_out(0, 10, layers) == ({"compute": 6, "copies": 4}, 0)


def on_host(*operators: Operator, took_us: float = 100.0) -> Call:
    return Call(0.0, took_us, operators)


def test_on_a_cpu_each_operator_has_its_line_and_python_what_is_between_them() -> None:
    call = on_host(
        Operator("aten::view", 0, 1, []),
        Operator("aten::reshape", 5, 8, ["aten::clone", "aten::copy_"]),
        Operator("aten::reshape", 15, 1, ["aten::view"]),
        Operator("mkldnn::_linear_pointwise", 20, 30, ["aten::empty"]),
        Operator("aten::item", 60, 3, ["aten::_local_scalar_dense"]),
        Operator("aten::embedding_bag", 70, 9, ["aten::copy_"]),
    )
    found = divide(call, frozenset({5}), Prices(event_us=0.0, operator_us=2.0), on_card=False)
    assert found == {
        "launches": 1 + 2 + 1 + 2,
        "copies": 6,
        "compute": 28,
        "synchronisation": 3,
        "pooling": 9,
        "python": 48,
    }
    assert sum(found.values()) == call.took_us
    assert products(call, frozenset({5}), on_card=False) == 1.0


def test_on_a_cpu_an_inner_operators_note_lengthens_its_outer_one_and_an_outer_ones_note_python() -> None:
    call = on_host(Operator("aten::linear", 0, 30, ["aten::t", "aten::addmm"]), Operator("aten::add", 50, 10, []))
    plain = divide(call, frozenset(), FREE, on_card=False)
    noted = divide(call, frozenset(), Prices(event_us=1.0, operator_us=0.0), on_card=False)
    assert plain["compute"] - noted["compute"] == 2
    assert plain["python"] - noted["python"] == 2


def test_on_a_cpu_reads_are_counted_wherever_they_are_called() -> None:
    call = on_host(
        Operator("aten::is_nonzero", 0, 3, ["aten::item", "aten::_local_scalar_dense"]),
        Operator("aten::masked_select", 5, 3, ["aten::nonzero", "aten::index"]),
        Operator("aten::item", 9, 1, ["aten::_local_scalar_dense"]),
    )
    assert hidden_synchronisations(call, on_card=False) == {"aten::is_nonzero": 1, "aten::nonzero": 1, "aten::item": 1}


# --- torch's own profiler ---------------------------------------------------------------------------------------------


def test_the_profiler_tells_python_compute_pooling_and_reads_apart() -> None:
    """Times are held from below alone, so that nobody who disturbs them breaks this."""
    pause_s, size = 0.02, 512
    matrix, starts = torch.ones(size, size), torch.tensor([0, 3, size])

    def run() -> None:
        time.sleep(pause_s)
        product = matrix @ matrix
        mean(product, starts)
        product[0, 0].item()

    with torch.inference_mode():
        inside = ProfiledCall(run, 0.03, on_card=False, prices=FREE)
        (call,) = profiled(run, 1.0, on_card=False)
        (seen,) = inside.look(1.0)
    assert call.took_us >= pause_s * 1e6
    assert sum(seen.values()) == pytest.approx(1.0), "shares are not those of the time by the clock"
    assert min(seen["python"], seen["compute"], seen["pooling"], seen["synchronisation"]) > 0
    divided = divide(call, frozenset(), FREE, on_card=False)
    assert divided["python"] >= pause_s * 1e6
    names = [one.name for one in call.operators]
    assert {"aten::matmul", "aten::embedding_bag", "aten::item"} <= set(names)
    assert inside.counts.operators == len(names)
    assert inside.counts.hidden_synchronisations == {"aten::item": 1}


def test_short_calls_are_repeated_under_the_profiler_and_long_ones_are_not() -> None:
    one = torch.ones(1)
    with torch.inference_mode():
        assert len(profiled(lambda: one + one, 0.0001, on_card=False)) > 1
        assert len(profiled(lambda: one + one, 10.0, on_card=False)) == 1


def test_an_operator_has_a_price() -> None:
    prices = measure_prices()
    assert prices.operator_us > 0
    assert prices.event_us >= 0


# --- adding up --------------------------------------------------------------------------------------------------------


def measured(whole_s: Sequence[float], parts: Mapping[Key, Sequence[float]], counts: Counts = NOTHING) -> Measured:
    return Measured(texts=4, tokens=40, batches=1, whole_s=whole_s, parts=parts, counts=counts)


def test_lines_add_up_to_the_whole_and_what_is_left_is_said() -> None:
    bill = bill_of(measured([0.010, 0.012, 0.020], {"compute": [0.5, 0.6, 0.7], "python": [0.1]}), "cpu", 1.0)
    lines = {line.key: line for line in bill.lines}
    assert bill.whole.ms == pytest.approx(12)
    assert [bill.whole.low_ms, bill.whole.high_ms] == pytest.approx([11, 16])
    assert lines["compute"].ms == pytest.approx(7.2)
    assert [lines["compute"].low_ms, lines["compute"].high_ms] == pytest.approx([6.6, 7.8])
    assert lines["not_attributed"].ms == pytest.approx(12 - 7.2 - 1.2)
    assert sum(line.ms for line in bill.lines) == pytest.approx(bill.whole.ms)
    assert sum(line.share for line in bill.lines) == pytest.approx(1)
    assert bill.texts_per_s == pytest.approx(4 / 0.012)
    assert bill.share("compute", "python") == pytest.approx(0.7)


def test_every_line_has_a_sentence_on_every_kind_of_device() -> None:
    kinds: Sequence[Kind] = ("cpu", "cuda", "mps", "simulated")
    for kind in kinds:
        bill = bill_of(measured([0.01], {}, Counts(123, {}, {})), kind, 1.5)
        assert all(line.meaning.endswith(".") and "{" not in line.meaning for line in bill.lines)
        assert any("123 operators" in line.meaning for line in bill.lines) == (kind != "simulated")


def simulated(url: str) -> FakeVectorizer:
    return FakeVectorizer(FakeLaw.parse(url), name="fake", max_batch_tokens=0, max_batch_items=512)


def bill_of_simulated(url: str, texts: int, count_batches: Callable[[Sequence[Encoding]], int] = len) -> Bill | LeftOut:
    """By a clock that ticks a millisecond each time that somebody looks."""
    ticks = itertools.count()
    return measure(
        simulated(url),
        texts,
        kind="simulated",
        operator_us=1.0,
        make_inside=None,
        count_batches=count_batches,
        clock=lambda: next(ticks) / 1000,
    )


def test_a_simulated_device_computes_for_as_long_as_its_law_says() -> None:
    bill = bill_of_simulated("fake://?dim=4&base_ms=0.1&item_ms=0.05&token_ms=0", texts=8)
    assert isinstance(bill, Bill)
    lines = {line.key: line.ms for line in bill.lines}
    assert bill.whole.ms == pytest.approx(2), "a tick for tokenization, and one for the call"
    assert lines["tokenization"] == pytest.approx(1)
    assert lines["compute"] == pytest.approx(0.5)
    assert lines["python"] == pytest.approx(0.5)
    assert lines["not_attributed"] == pytest.approx(0, abs=1e-9)
    assert (bill.texts, bill.batches, bill.repetitions) == (8, 8, 30)


def test_a_size_that_does_not_fit_or_takes_too_long_is_left_out() -> None:
    assert bill_of_simulated("fake://?dim=4&base_ms=0&oom_above=7", 8) == LeftOut(
        8, "the device has too little memory for it"
    )
    assert bill_of_simulated("fake://?dim=4&base_ms=9000", 1) == LeftOut(1, "one call would take about 9 s")


def test_a_model_that_fails_is_told_in_a_sentence() -> None:
    with pytest.raises(BackendFailed, match="ValueError: The simulated device fails on"):
        bill_of_simulated("fake://?dim=4&base_ms=0&fail_on=a", 8)


def test_batches_are_counted_of_what_is_called() -> None:
    seen: list[Encoding] = []

    def count(encodings: Sequence[Encoding]) -> int:
        seen.extend(encodings)
        return 3

    bill = bill_of_simulated("fake://?dim=4&base_ms=0&item_ms=0", 64, count)
    assert isinstance(bill, Bill)
    assert (bill.batches, len(seen), bill.tokens) == (3, 64, sum(one.n_tokens for one in seen))
