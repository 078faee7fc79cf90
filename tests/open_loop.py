"""Open-loop HTTP clients: requests that are sent when they are due, whatever became of those before them."""

import asyncio
import random
import re
import time
from dataclasses import dataclass

import aiohttp


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: its status, how long it took from when it was due, and what the server says of it, in seconds."""

    status: int
    seconds: float
    server_s: float
    """From the end of parsing to the last row, as the answer's bill has it; 0 where there was no answer."""
    retry_after: str | None


async def poisson(
    url: str, rate_per_s: float, seconds: float, *, seed: int = 1, headers: dict[str, str] | None = None
) -> list[Sent]:
    """Single texts at this rate for so long; returns when the last has ended."""
    rng = random.Random(seed)
    sent: list[asyncio.Task[Sent]] = []
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60), headers=headers
    ) as session:
        begin = time.perf_counter()
        at = rng.expovariate(rate_per_s)
        while at < seconds:
            await asyncio.sleep(begin + at - time.perf_counter())
            sent.append(asyncio.create_task(_one(session, url, begin + at, f"text {len(sent)}")))
            at += rng.expovariate(rate_per_s)
        return list(await asyncio.gather(*sent))


async def _one(session: aiohttp.ClientSession, url: str, due: float, text: str) -> Sent:
    async with session.post(url, json={"inputs": text}) as response:
        await response.read()
        bill = dict(re.findall(r"(\w+);dur=([\d.]+)", response.headers.get("server-timing", "")))
        server_ms = sum(float(bill.get(part, 0)) for part in ("tokenize", "queue", "forward"))
        return Sent(response.status, time.perf_counter() - due, server_ms / 1e3, response.headers.get("retry-after"))
