"""One run of `embed`: from the first row that is missing to the last, over as many connections as it takes.

The texts go through one `POST /embed/stream` while its answers come back. Where the connection breaks, a new one goes
on behind the last row that came; where the run is interrupted, the next one does.
"""

import asyncio
import base64
import random
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
import orjson
from tqdm import tqdm

from app.ingest.corpus import BadLine, Corpus
from app.ingest.vector_file import VectorFile

CHUNK_BYTES = 16_384
"""Lines are sent together until they are so long."""
SAVE_EVERY_S = 2.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
ATTEMPTS = 8
"""So many connections in turn may bring no row: about a minute."""
CONNECT_TIMEOUT_S = 10
SILENCE_S = 300
"""A service that has too much to do lets a stream wait, but not so long."""
READ_BYTES = 1_048_576
"""Half of the longest line of an answer that is read: far more than any vector or message takes."""
COME_BACK = ("Unhealthy", "Timeout", "Overloaded")
"""Errors that say nothing of the line: another attempt may succeed."""


class Stop(Exception):
    """The run ends before the last row, for this reason; what is written stays, to go on from."""


class Interrupted(Exception):
    """The service or the connection is gone for now; it may be back."""

    def __init__(self, why: str, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class Sent(NamedTuple):
    """A line on its way: its number in the file, and why it was not sent where it holds no text."""

    number: int
    bad: str | None = None


class EmbedRun:
    """What one call of the command does."""

    def __init__(
        self,
        corpus: Corpus,
        identity: Mapping[str, Any],
        n_rows: int,
        output: Path,
        *,
        overwrite: bool,
        skip_refused: bool,
        url: str,
        api_key: str | None,
        lane: str,
        options: Mapping[str, str],
    ) -> None:
        """`identity` is what the corpus was when its lines were counted; `options` decide what its vectors are."""
        self._corpus = corpus
        self._identity = identity
        self._n_rows = n_rows
        self._output = output
        self._overwrite = overwrite
        self._skip_refused = skip_refused
        self._url = url
        self._headers = {"x-lane": lane, **({"authorization": f"Bearer {api_key}"} if api_key else {})}
        self._options = dict(options)
        self._file: VectorFile | None = None
        self._saved_at = time.monotonic()

    async def whole(self) -> str:
        """Write all rows that are missing, and say what was done; raises CannotResume, and Stop."""
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S)
        try:
            async with aiohttp.ClientSession(
                headers=self._headers, timeout=timeout, read_bufsize=READ_BYTES
            ) as session:
                file = await self._over_connections(session)
        except asyncio.CancelledError:
            raise Stop(self._left_off("Interrupted.")) from None
        except Stop as error:
            raise Stop(self._left_off(str(error))) from None
        if file.dimension is None:
            raise Stop("No line could be embedded, so there is nothing to write.")
        file.finish()
        return "\n".join([*self._refused(file), f"{file.path}: {file.n_rows} rows of {file.dimension} numbers."])

    def _left_off(self, why: str) -> str:
        file = self._file
        if file is None or file.dimension is None:
            return why
        file.save()
        return f"{why} {file.path} has {file.done} of {file.n_rows} rows; the same command goes on from there."

    def _refused(self, file: VectorFile) -> list[str]:
        return [f"line {number} has a row of NaN: {why}" for number, why in file.refused]

    # --- over connections -------------------------------------------------------------------------------------------

    async def _over_connections(self, session: aiohttp.ClientSession) -> VectorFile:
        """Connect again, with growing pauses, until all rows are there or too many attempts in turn brought none."""
        in_vain = 0
        with tqdm(total=self._n_rows, unit=" texts", smoothing=0.1) as bar:
            while True:
                before = bar.n
                try:
                    file = await self._opened(session, bar)
                    if file.done == file.n_rows:
                        return file
                    await self._stream(session, file, bar)
                except Interrupted as error:
                    if self._file is not None:
                        self._file.save()
                    in_vain = 0 if bar.n > before else in_vain + 1
                    if in_vain == ATTEMPTS:
                        raise Stop(f"{error} That was attempt {ATTEMPTS} in turn that brought nothing.") from None
                    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**in_vain) * random.uniform(0.5, 1)
                    await asyncio.sleep(max(pause_s, error.retry_after_s))

    async def _opened(self, session: aiohttp.ClientSession, bar: "tqdm[Any]") -> VectorFile:
        """The file to write, for the model that the service has now; raises CannotResume, and Stop where the model has
        changed since the last connection."""
        model = await self._ask_model(session)
        if self._file is None:
            run = {"input": dict(self._identity), "options": self._options, "model": model}
            self._file = VectorFile(self._output, self._n_rows, run, overwrite=self._overwrite)
            self._model = model
            bar.update(self._file.done)
            bar.unpause()
        elif model != self._model:
            raise Stop(f"The service now has the model {model}, and these vectors are from {self._model}.")
        return self._file

    async def _ask_model(self, session: aiohttp.ClientSession) -> str:
        try:
            async with session.get(f"{self._url}/info") as answer:
                await check(answer)
                model = (await answer.json())["model"]
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            raise Stop(f"--url {self._url} is not that of a service; it looks like http://127.0.0.1:8000.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Interrupted(f"{self._url} cannot be reached: {error or type(error).__name__}.") from None
        except (ValueError, KeyError):
            raise Stop(f"What answers at {self._url} is not this service.") from None
        if model is None:
            raise Interrupted("The service is loading its model.")
        return str(model["name"])

    # --- over one connection ----------------------------------------------------------------------------------------

    async def _stream(self, session: aiohttp.ClientSession, file: VectorFile, bar: "tqdm[Any]") -> None:
        """Write rows as they come, until the last or until the connection breaks."""
        sent: deque[Sent] = deque()
        query = {"encoding_format": "base64", **self._options}
        headers = {"content-type": "application/x-ndjson"}
        body = self._lines(file.done, sent)
        try:
            async with session.post(f"{self._url}/embed/stream", params=query, data=body, headers=headers) as answer:
                await check(answer)
                index = 0
                async for raw in answer.content:
                    self._pass_over_bad(file, sent, bar)
                    self._take(file, orjson.loads(raw), index, sent)
                    bar.update(1)
                    index += 1
                    self._save_now_and_then(file)
        except (aiohttp.ClientError, OSError) as error:
            raise Interrupted(f"The connection to {self._url} broke: {error or type(error).__name__}.") from None
        self._pass_over_bad(file, sent, bar)
        if sent:
            raise Interrupted("The service ended the stream before its last line.")

    async def _lines(self, done: int, sent: deque[Sent]) -> AsyncIterator[bytes]:
        """The lines from this row on as the service takes them, some at a time; each is noted in `sent`. Where a line
        without text is not to be passed over, it is the last."""
        chunk: list[bytes] = []
        size = 0
        for entry in islice(self._corpus.entries(), done, None):
            try:
                chunk.append(orjson.dumps(self._corpus.text(entry.raw), option=orjson.OPT_APPEND_NEWLINE))
            except (BadLine, orjson.JSONEncodeError) as error:
                sent.append(Sent(entry.number, str(error)))
                if not self._skip_refused:
                    break
                continue
            sent.append(Sent(entry.number))
            size += len(chunk[-1])
            if size >= CHUNK_BYTES:
                yield b"".join(chunk)
                chunk, size = [], 0
        yield b"".join(chunk)

    def _take(self, file: VectorFile, answer: dict[str, Any], index: int, sent: deque[Sent]) -> None:
        """Write the row that a line of the answer holds."""
        error, error_type = answer.get("error"), answer.get("error_type")
        if error is not None and error_type in COME_BACK:
            raise Interrupted(error)
        if answer["index"] != index or not sent:
            raise Stop(f"The service answered line {answer['index']} of the stream when {index} was due.")
        number = sent.popleft().number
        if error is None:
            file.append(np.frombuffer(base64.b64decode(answer["base64"]), "<f4"))
        else:
            self._refuse(file, number, error)

    def _pass_over_bad(self, file: VectorFile, sent: deque[Sent], bar: "tqdm[Any]") -> None:
        """Lines that were not sent come to their turn."""
        while sent and sent[0].bad is not None:
            number, why = sent.popleft()
            self._refuse(file, number, why or "")
            bar.update(1)

    def _refuse(self, file: VectorFile, number: int, why: str) -> None:
        if not self._skip_refused:
            raise Stop(f"Line {number} of {self._corpus.path} cannot be embedded: {why.removesuffix('.')}.")
        file.refuse(number, why)

    def _save_now_and_then(self, file: VectorFile) -> None:
        now = time.monotonic()
        if now - self._saved_at >= SAVE_EVERY_S:
            self._saved_at = now
            file.save()


async def check(answer: aiohttp.ClientResponse) -> None:
    """Raises Interrupted where it is worth coming back, Stop where the service refuses what is asked."""
    if answer.status == 200:
        return
    text = await answer.text()
    try:
        said = str(orjson.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        said = text[:200]
    if answer.status in (408, 429, 500, 502, 503, 504):
        raise Interrupted(f"The service answered {answer.status}: {said}", _retry_after_s(answer))
    raise Stop(f"The service answered {answer.status}: {said}")


def _retry_after_s(answer: aiohttp.ClientResponse) -> float:
    try:
        return min(60.0, float(answer.headers.get("retry-after", 0)))
    except ValueError:
        return 0.0
