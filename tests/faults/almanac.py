"""A server of the embedded models whose batches are slow, expire and fail as planned, to test clients against."""

from __future__ import annotations

import asyncio
import hashlib
import math
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

from aiohttp import web

from refusal_index.plugins.almanac import server
from refusal_index.plugins.almanac.batches import Batches, CountedBatch, RequestLog
from refusal_index.plugins.almanac.chat_api import BatchLine, JsonResponse, ModelPool, as_line, read_lines, refusal


@dataclass(frozen=True)
class BatchFaults:
    """What goes wrong with batches.

    Parameters
    ----------
    delay
        Seconds that every batch spends in each of its states.
    expire
        Share of a batch's requests that are not asked in time; they are its last ones.
    fail
        Share of the requests that fail with the status 429 or 500. Which these are depends on the `custom_id` and on
        how often it came before, so that a request which is sent again has a new chance.
    batches
        How many batches expire and fail: the first ones; None for all.
    """

    delay: float = 0.0
    expire: float = 0.0
    fail: float = 0.0
    batches: int | None = None

    def status(self, custom_id: str, earlier: int) -> int | None:
        """Return the status with which a request fails that came so many times before; None if it does not fail."""
        digest = hashlib.sha256(f"{earlier}\n{custom_id}".encode(errors="surrogatepass")).digest()
        if int.from_bytes(digest[:4]) >= self.fail * 2**32:
            return None
        return 429 if digest[4] % 2 else 500


NO_FAULTS = BatchFaults()


class FaultyBatches(Batches):
    """The batches of a server, with faults."""

    def __init__(self, *arguments: Any, faults: BatchFaults) -> None:
        super().__init__(*arguments)
        self._faults = faults
        self._came: Counter[str] = Counter()

    def _is_faulty(self, batch: CountedBatch) -> bool:
        return self._faults.batches is None or list(self._batches).index(batch.id) < self._faults.batches

    def _late(self, batch: CountedBatch) -> int:
        return math.ceil(self._faults.expire * batch.request_counts.total) if self._is_faulty(batch) else 0

    async def _process(self, batch: CountedBatch, source: Path) -> None:
        await asyncio.sleep(self._faults.delay)
        await super()._process(batch, source)

    async def _write(self, batch: CountedBatch, file: BinaryIO, output: BinaryIO, errors: BinaryIO) -> None:
        await asyncio.sleep(self._faults.delay)
        lines = read_lines(file)
        await self._write_answers(batch, islice(lines, batch.request_counts.total - self._late(batch)), output, errors)
        if batch.status == "in_progress":
            batch.move("finalizing")
            for line in lines:
                error = {"code": "batch_expired", "message": "not executed before the completion window expired"}
                errors.write(
                    as_line({"id": line.custom_id, "custom_id": line.custom_id, "response": None, "error": error})
                )
        await asyncio.sleep(self._faults.delay)

    async def _answer(self, batch: CountedBatch, file: BinaryIO) -> None:
        await super()._answer(batch, file)
        if self._late(batch) and batch.status == "completed":  # no client saw it in that state
            batch.expired_at, batch.completed_at = batch.completed_at, None
            batch.status = "expired"

    async def _ask(self, batch: CountedBatch, line: BatchLine) -> JsonResponse:
        earlier = self._came[line.custom_id]
        status = self._faults.status(line.custom_id, earlier) if self._is_faulty(batch) else None
        self._came[line.custom_id] += 1
        if status is None:
            return await super()._ask(batch, line)
        self._log.write(method=line.method, path=line.url, status=status, batch=batch.id, custom_id=line.custom_id)
        return refusal(status, "this request fails as planned")


def faulty_app(pool: ModelPool, log: RequestLog, *, faults: BatchFaults = NO_FAULTS, **options: Any) -> web.Application:
    """Return the application of `create_app`, its batches with faults."""
    with patch.object(server, "Batches", partial(FaultyBatches, faults=faults)):
        return server.create_app(pool, log, **options)


if __name__ == "__main__":  # refusal-index serve with a delay, which is the first argument
    from refusal_index.cli import main

    server.Batches = partial(FaultyBatches, faults=BatchFaults(delay=float(sys.argv.pop(1))))  # type: ignore[misc]
    main()
