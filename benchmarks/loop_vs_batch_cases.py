"""Cases of the founding experiment: what one is, and those about the calls of a model, a batch, hooks, `.item()`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

WIDTH = 512
READ_EVERY = 50
TOLERANCE = 1e-5
"""Most that two ways to the same numbers may differ in float32: the order of their sums is not the same."""


@dataclass(frozen=True, slots=True)
class Case:
    """Ways to do the same work, each a call without arguments; one run of any of them does `units` of `unit`."""

    title: str
    unit: str
    units: int
    ways: Mapping[str, Callable[[], Any]]
    compared: Sequence[tuple[str, str]]
    """Pairs (way, other): how many times as fast the way is as the other."""
    fact: str
    """What was found besides the times, in one sentence or two."""


class Encoder(nn.Module):
    """Two linear layers of one width with a GELU between: (n, width) to (n, width)."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = nn.functional.gelu(self.first(x))
        out: torch.Tensor = self.second(hidden)
        return out


def make_encoder(device: torch.device, width: int = WIDTH) -> Encoder:
    """The same random weights at each call, in eval mode."""
    torch.manual_seed(0)
    return Encoder(width).to(device).eval()


def make_vectors(count: int, device: torch.device) -> torch.Tensor:
    """Random vectors, (count, 512), on the device."""
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(0)).to(device)


# --- a batch against a loop -------------------------------------------------------------------------------------------


@torch.inference_mode()
def one_by_one(model: nn.Module, vectors: torch.Tensor) -> list[torch.Tensor]:
    """A call for each vector; rows of shape (1, width) that stay on the device."""
    return [model(vector) for vector in vectors.unsqueeze(1).unbind()]


@torch.inference_mode()
def one_batch(model: nn.Module, vectors: torch.Tensor) -> torch.Tensor:
    """One call for all."""
    out: torch.Tensor = model(vectors)
    return out


def batch_case(device: torch.device, n_vectors: int) -> Case:
    """The same vectors through the two-layer encoder, by calls and by one batch; and what calls cost by themselves."""
    model, smallest = make_encoder(device), make_encoder(device, width=1)
    vectors = make_vectors(n_vectors, device)
    thin = vectors[:, :1].contiguous()
    off = float((torch.cat(one_by_one(model, vectors)) - one_batch(model, vectors)).abs().max())
    require(off)
    loop, batch, empty, noise = "one by one", "one batch", "one by one, width 1", "one by one, again"
    return Case(
        title=f"(a) two-layer encoder {WIDTH}→{WIDTH}→{WIDTH}, {n_vectors:,} vectors",
        unit="vector",
        units=n_vectors,
        ways={
            loop: lambda: one_by_one(model, vectors),
            batch: lambda: one_batch(model, vectors),
            empty: lambda: one_by_one(smallest, thin),
            noise: lambda: one_by_one(model, vectors),
        },
        compared=[(batch, loop), (empty, loop), (noise, loop)],
        fact=f"The vectors of both ways differ by {off:.0e} at most. With width 1 there is nothing to compute, so that "
        "what is left is the fixed price of a call.",
    )


# --- model(x) against model.forward(x) --------------------------------------------------------------------------------


class CountingHook:
    """A forward hook that counts its calls and changes nothing."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self.count += 1


@torch.inference_mode()
def repeat(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, times: int) -> torch.Tensor:
    """The result of the last of so many calls, at least one."""
    for _ in range(times):
        result = call(x)
    return result


def fired(call_name: str, device: torch.device, times: int) -> tuple[int, int]:
    """How often a hook on the encoder and one on its first layer fire in so many calls of `__call__` or `forward`."""
    model = make_encoder(device)
    outer, inner = CountingHook(), CountingHook()
    model.register_forward_hook(outer)
    model.first.register_forward_hook(inner)
    repeat(getattr(model, call_name), make_vectors(1, device), times)
    return outer.count, inner.count


def hook_case(device: torch.device, n_calls: int) -> Case:
    """An encoder with next to nothing to compute, by both ways to call it, without and with a hook on it."""
    plain, hooked, x = make_encoder(device, 1), make_encoder(device, 1), make_vectors(1, device)[:, :1]
    hooked.register_forward_hook(CountingHook())
    called, direct = fired("__call__", device, n_calls), fired("forward", device, n_calls)
    with_call, with_forward, noise = "`model(x)`", "`model.forward(x)`", "`model(x)`, again"
    return Case(
        title=f"(c) the encoder with width 1 on one vector, {n_calls:,} calls",
        unit="call",
        units=n_calls,
        ways={
            with_call: lambda: repeat(plain, x, n_calls),
            with_forward: lambda: repeat(plain.forward, x, n_calls),
            f"{with_call}, hook": lambda: repeat(hooked, x, n_calls),
            f"{with_forward}, hook": lambda: repeat(hooked.forward, x, n_calls),
            noise: lambda: repeat(plain, x, n_calls),
        },
        compared=[
            (with_forward, with_call),
            (f"{with_call}, hook", with_call),
            (f"{with_forward}, hook", f"{with_call}, hook"),
            (noise, with_call),
        ],
        fact=f"In {n_calls:,} calls of `model(x)` a hook on the encoder fires {called[0]:,} times, one on its first "
        f"layer {called[1]:,} times; in as many of `model.forward(x)` {direct[0]:,} and {direct[1]:,} times.",
    )


# --- reading a result at each step ------------------------------------------------------------------------------------


@torch.inference_mode()
def summed_losses(model: nn.Module, vectors: torch.Tensor, steps: int, read_every: int) -> float:
    """The sum of a number that each step computes on the device, which is asked for it once in `read_every` steps."""
    total, kept = 0.0, []
    for step in range(1, steps + 1):
        kept.append(model(vectors).square().mean())
        if step % read_every == 0 or step == steps:
            total += (kept[0] if len(kept) == 1 else torch.stack(kept).sum()).item()
            kept.clear()
    return total


def reads(run: Callable[[], object]) -> int:
    """How often the run asks for a tensor's value, by torch's own count: each time the host waits for the device."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    return sum(event.count for event in profiler.key_averages() if event.key == "aten::_local_scalar_dense")


def item_case(device: torch.device, n_steps: int) -> Case:
    """A loop of small steps, each with a number that somebody wants to see."""
    model, vectors = make_encoder(device), make_vectors(1, device)
    each, seldom, noise = "`.item()` each step", f"`.item()` every {READ_EVERY} steps", "`.item()` each step, again"
    ways: dict[str, Callable[[], float]] = {
        each: lambda: summed_losses(model, vectors, n_steps, 1),
        seldom: lambda: summed_losses(model, vectors, n_steps, READ_EVERY),
        noise: lambda: summed_losses(model, vectors, n_steps, 1),
    }
    require(abs(ways[each]() / ways[seldom]() - 1))
    waits = "there is no queue to empty" if device.type == "cpu" else "each empties the queue of launches"
    return Case(
        title=f"(d) {n_steps:,} steps, each the encoder of (a) on one vector",
        unit="step",
        units=n_steps,
        ways=ways,
        compared=[(seldom, each), (noise, each)],
        fact=f"The host reads a value {reads(ways[each]):,} times against {reads(ways[seldom]):,}; the sums are the "
        f"same. On this device {waits}.",
    )


def require(difference: float) -> None:
    """End the experiment where two ways do not come to the same numbers: their times could not be compared."""
    if not difference <= TOLERANCE:
        raise SystemExit(f"Two ways to the same numbers differ by {difference:.1e}, at most {TOLERANCE} expected.")
