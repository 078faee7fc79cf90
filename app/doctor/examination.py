"""The examination: the model is loaded and measured, on the calling thread alone."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tqdm import tqdm

from app import __version__
from app.doctor.bill import Bill, LeftOut
from app.doctor.comparisons import compare_copies, compare_threads, full_batch, texts_per_s_by_workers
from app.doctor.lines import NOT_SEEN, Kind
from app.doctor.machine import find_machine, load_now, open_nvml
from app.doctor.number_types import NumberType, find_number_types
from app.doctor.one_call import SIZES, measure
from app.doctor.profiling import ProfiledCall, measure_prices
from app.doctor.report import Model, Report, ThreadsCompared
from app.doctor.suggestions import Facts, Rate, suggest
from app.doctor.sweep import Sweep, find_sweep
from app.doctor.timeline import Prices
from app.settings import Settings
from app.vectorizers import load_vectorizer
from app.vectorizers.base import ModelInfo, Vectorizer
from app.vectorizers.devices import granted_cores
from app.vectorizers.parts import parts

STEPS = 5 + len(SIZES)


def examine(settings: Settings) -> Report:
    """Load the model and measure everything, with a bar on a terminal.

    Raises StartFailed where the model cannot be loaded, and what a call of it raises where it cannot be run.
    """
    with tqdm(total=STEPS, bar_format="{desc} |{bar}|", leave=False, disable=None) as progress:

        def begin(step: str) -> None:
            progress.set_description_str(step)
            progress.update()

        return Examination(settings, begin).report()


class Examination:
    """Examines the model that the settings name.

    Everything happens on the thread that calls it, since OpenMP keeps a team of threads for each that calls torch; but
    for the comparison of workers, which needs several.
    """

    def __init__(self, settings: Settings, begin: Callable[[str], object]) -> None:
        """`begin` is told what comes now. Batches are swept whether or not the settings want any."""
        self._settings = settings
        self._started = time.monotonic()
        self._load = load_now()
        self._begin = begin
        begin("loading the model")
        self._vectorizer: Vectorizer[Any] = load_vectorizer(settings.model_copy(update={"batching": True}))
        self._model = self._vectorizer.info
        self._kind = kind_of(self._model)
        self._device = torch.device("cpu" if self._kind == "simulated" else device_name(self._model.device))

    def report(self) -> Report:
        """Measure everything."""
        self._begin("comparing number types")
        types = find_number_types(self._device)
        prices = measure_prices()
        found = [self._bill(texts, prices) for texts in SIZES]
        bills = [bill for bill in found if isinstance(bill, Bill)]
        self._begin("sweeping batch sizes")
        sweep = find_sweep(self._vectorizer, self._settings.max_batch_items)
        self._begin("comparing threads and workers")
        threads, by_workers = self._side_by_side()
        facts = self._facts(bills, sweep, types, threads, by_workers)
        self._begin("looking at the machine")
        pinned = compare_copies(self._device) if self._kind == "cuda" else None
        settings = self._settings
        machine = find_machine(settings.cuda_visible_devices, settings.cuda_device_order, self._load, open_nvml())
        return Report(
            version=__version__,
            seconds=time.monotonic() - self._started,
            model=describe_model(self._model, self._kind),
            machine=machine,
            number_types=types,
            pinned=pinned,
            threads_compared=threads,
            profiler_event_us=prices.event_us,
            operator_us=prices.operator_us,
            bills=bills,
            left_out=[one for one in found if isinstance(one, LeftOut)],
            sweep=sweep,
            suggestions=suggest(facts),
            not_seen_here=NOT_SEEN[self._kind],
        )

    def _bill(self, texts: int, prices: Prices) -> Bill | LeftOut:
        self._begin(f"measuring calls of {texts}")
        on_card = self._kind == "cuda"
        return measure(
            self._vectorizer,
            texts,
            kind=self._kind,
            operator_us=prices.operator_us,
            make_inside=None
            if self._kind == "simulated"
            else lambda run, took_s: ProfiledCall(run, took_s, on_card=on_card, prices=prices),
            count_batches=self._count_batches,
        )

    def _count_batches(self, encodings: Sequence[Any]) -> int:
        return sum(1 for _ in parts(encodings, self._model.max_batch_tokens))

    def _side_by_side(self) -> tuple[ThreadsCompared | None, Mapping[int, float]]:
        """Threads in a forward, and workers, where several cores are granted."""
        cores = granted_cores()
        if self._kind != "cpu" or cores == 1:
            return None, {}
        batch = full_batch(self._vectorizer)
        threads = compare_threads(lambda: self._vectorizer(batch), cores)
        return threads, texts_per_s_by_workers(self._vectorizer, batch, cores)

    def _facts(
        self,
        bills: Sequence[Bill],
        sweep: Sweep,
        types: Sequence[NumberType],
        threads: ThreadsCompared | None,
        by_workers: Mapping[int, float],
    ) -> Facts:
        return Facts(
            kind=self._kind,
            batching=self._settings.batching,
            rates=[rate_of(bill) for bill in bills],
            dtype=self._model.dtype,
            half_gains={one.name: one.times_float32 for one in types if one.name != "float32"},
            cores=granted_cores(),
            workers_asked=self._settings.workers,
            texts_per_s_by_workers=by_workers,
            all_threads_ms=threads.all_ms if threads else None,
            one_thread_ms=threads.one_ms if threads else None,
            base_ms=sweep.base_ms,
            token_us=sweep.token_us,
            knee_tokens=sweep.knee_tokens,
            budget_tokens=sweep.budget_tokens,
            budget_is_set=self._settings.max_batch_tokens > 0,
            hidden_synchronisations=sum(bills[0].counts.hidden_synchronisations.values()) if bills else 0,
            visible_cards=torch.cuda.device_count() if self._kind == "cuda" else 0,
            used_cards=len(self._model.details.get("card_uuids", ())),
        )


def kind_of(model: ModelInfo) -> Kind:
    """What kind of device the model is on."""
    if model.details.get("simulated"):
        return "simulated"
    name = device_name(model.device)
    return "cuda" if name.startswith("cuda") else "mps" if name.startswith("mps") else "cpu"


def device_name(described: str) -> str:
    """torch's name of a device, from the words that `/info` has for it."""
    return described.split()[0].rstrip(",")


def rate_of(bill: Bill) -> Rate:
    """What suggestions want to know of a bill."""
    compute, waits = bill.share("compute"), bill.share("synchronisation")
    products = compute * (1.0 if bill.counts.products is None else bill.counts.products)
    return Rate(bill.texts, bill.tokens, bill.texts_per_s, bill.whole.ms, compute, products, waits)


def describe_model(model: ModelInfo, kind: Kind) -> Model:
    """The facts of the model that the report has."""
    return Model(
        name=model.name,
        kind=model.kind,
        device=model.device,
        device_kind=kind,
        dtype=model.dtype,
        forward=model.details.get("forward"),
        parameters=model.details.get("parameters"),
        dimension=model.dimension,
        max_input_tokens=model.max_input_tokens,
        workers=model.workers,
        simulated=kind == "simulated",
    )
