"""The two plots of docs/batching.md: latency against load, and goodput under overload.

Theory is exact; `simulation` is the production batcher on a virtual clock; `service` is the whole service through HTTP,
on a simulated device with the same law, slowed down until one machine can drive it. Needs matplotlib and what the tests
need (`pip install -e '.[dev,plots]'`).

usage: python -m benchmarks.scheduling [--out docs] [--seconds 10]
"""

import argparse
import asyncio
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
import numpy as np
from tqdm import tqdm

from tests.open_loop import poisson
from tests.queueing import Service, stationary_means
from tests.server import running_server
from tests.simulated import batcher_over
from tests.traffic import Log, Phase, drive
from tests.virtual_clock import run_virtually

mpl.use("Agg")
from matplotlib import pyplot as plt

LAW = Service(base_s=0.050, item_s=0.002, max_items=16)
MODEL = "fake://?dim=8&base_ms=50&item_ms=2"
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)
OVERLOADS = (0.5, 0.8, 1.0, 1.1, 1.5, 2.0, 3.0, 5.0)
DEADLINE_S = 0.3
ARRIVALS = 20_000


def simulate(load: float, seconds: float, *, deadline_s: float | None, **options: Any) -> Log:
    """The production batcher on a virtual clock, at this part of the capacity."""

    async def device(payloads: list[Any]) -> list[Any]:
        await asyncio.sleep(LAW.seconds(len(payloads)))
        return payloads

    async def main() -> Log:
        policy: dict[str, Any] = {"max_batch_items": 16, "max_queue_items": 10**6, "max_queue_tokens": 10**7, **options}
        async with batcher_over(device, **policy) as batcher:
            return await drive(batcher, [Phase(seconds, load * LAW.capacity_per_s)], seed=1, deadline_s=deadline_s)

    return run_virtually(main())


def in_time(log: Log, seconds: float) -> float:
    """Answers within the deadline, as a share of what the device can carry."""
    return float(len(log.answered_s(DEADLINE_S))) / seconds / LAW.capacity_per_s


def latency(seconds: float) -> Any:
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    curve = np.linspace(0.02, 0.95, 60)
    exact = [stationary_means(load * LAW.capacity_per_s, LAW).time_in_system_s * 1e3 for load in curve]
    axes.plot(curve, exact, color="0.5", label="queueing theory (exact)")
    simulated = [
        simulate(load, ARRIVALS / load / LAW.capacity_per_s, deadline_s=None).mean_time_s() * 1e3
        for load in tqdm(LOADS, desc="latency, simulated")
    ]
    axes.plot(LOADS, simulated, "o", mfc="none", label="the batcher on a virtual clock")
    served = []
    with running_server("--model", MODEL, "--max-batch-items", "16") as server:
        for load in tqdm(LOADS, desc="latency, through HTTP"):
            sent = asyncio.run(poisson(server.url + "/embed", load * LAW.capacity_per_s, seconds))
            served.append(mean(one.server_s for one in sent) * 1e3)
    axes.plot(LOADS, served, "x", label="the service, through HTTP")
    axes.set(xlabel="load (arrivals / capacity)", ylabel="mean time in the service, ms", ylim=(0, None))
    axes.legend()
    print("load, theory, simulation, service (ms)")
    for load, one, other in zip(LOADS, simulated, served, strict=True):
        theory = stationary_means(load * LAW.capacity_per_s, LAW).time_in_system_s * 1e3
        print(f"{load:.1f}, {theory:.1f}, {one:.1f}, {other:.1f}")
    return figure


def goodput(seconds: float) -> Any:
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    span = 60.0
    kinds: dict[str, dict[str, Any]] = {
        "first in, first out, unbounded": {"deadline_s": None},
        "queue of at most 128": {"deadline_s": None, "max_queue_items": 128},
        "queue of at most 32": {"deadline_s": None, "max_queue_items": 32},
        "Convoy, simulated": {"deadline_s": DEADLINE_S},
    }
    print("load:", *OVERLOADS)
    for name, options in kinds.items():
        values = [in_time(simulate(load, span, **options), span) for load in tqdm(OVERLOADS, desc=f"goodput, {name}")]
        print(name, *[f"{value:.2f}" for value in values])
        axes.plot(OVERLOADS, values, marker="o", mfc="none", label=name)
    served = []
    deadline = str(int(DEADLINE_S * 1e3))
    with running_server("--model", MODEL, "--max-batch-items", "16", "--request-timeout-ms", deadline) as server:
        for load in tqdm(OVERLOADS, desc="goodput, through HTTP"):
            sent = asyncio.run(poisson(server.url + "/embed", load * LAW.capacity_per_s, seconds))
            good = sum(one.status == 200 and one.seconds <= DEADLINE_S for one in sent)
            served.append(good / seconds / LAW.capacity_per_s)
    print("service", *[f"{value:.2f}" for value in served])
    axes.plot(OVERLOADS, served, "x", color="black", label="Convoy, through HTTP")
    axes.set(xlabel="load (arrivals / capacity)", ylabel="answers within 300 ms / capacity", ylim=(0, 1.05))
    axes.legend()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement through HTTP")
    args = parser.parse_args()
    latency(args.seconds).savefig(args.out / "latency.svg")
    goodput(args.seconds).savefig(args.out / "goodput.svg")


if __name__ == "__main__":
    main()
