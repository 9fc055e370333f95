"""A file of requests into a file of what came of them, in their order, as ``vllm run-batch`` writes it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from refusal_index.almanac.answers import answer
from refusal_index.almanac.asking import in_order
from refusal_index.almanac.batch_lines import ENDPOINT, BatchLine, as_line, read_lines
from refusal_index.almanac.chat_api import Json
from refusal_index.almanac.pool import ModelPool
from refusal_index.outcomes.files import replacing


@dataclass(frozen=True)
class _Outcome:
    """What came of a request: its line, and the failure that this tells of."""

    line: bytes
    failure: str | None = None


def count_requests(source: Path) -> int:
    """Return how many requests a file holds; raises BatchLineError at the first line that is none."""
    with source.open("rb") as file:
        return sum(1 for _ in read_lines(file))


async def run_batch(pool: ModelPool, source: Path, target: Path, answered: Callable[[], None]) -> Counter[str]:
    """Answer every request of `source` into `target`, which is there whole or not at all, and return what failed.

    No more requests than are under way are in memory; `answered` is called for each that is written. Raises
    BatchLineError if a line is no request, NotWrittenError if the target cannot be written.
    """
    failed = Counter[str]()
    with replacing(target) as temporary, source.open("rb") as requests, temporary.open("xb") as results:
        async with aclosing(in_order(read_lines(requests), partial(_ask, pool))) as outcomes:
            async for outcome in outcomes:
                results.write(outcome.line)
                if outcome.failure is not None:
                    failed[outcome.failure] += 1
                answered()
    return failed


async def _ask(pool: ModelPool, line: BatchLine) -> _Outcome:
    if line.url != ENDPOINT:
        told = f"URL {line.url} was used. Supported endpoints: {ENDPOINT}."
        return _Outcome(_result(line, 400, None, told), told)
    found = await answer(pool, line.body, {})
    if found.failed:
        error = {"error": found.body["error"] | {"code": found.status}}  # as vLLM, which knows no other code
        return _Outcome(_result(line, found.status, None, error), f"{found.status}: {found.body['error']['message']}")
    return _Outcome(_result(line, found.status, found.body, None))


def _result(line: BatchLine, status: int, body: Json | None, error: Json | str | None) -> bytes:
    identity = uuid.uuid4().hex
    response = {"status_code": status, "request_id": f"almanac-batch-{identity}", "body": body}
    return as_line({"id": f"almanac-{identity}", "custom_id": line.custom_id, "response": response, "error": error})
