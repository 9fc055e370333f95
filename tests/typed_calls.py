"""Calls of the Python API as users write them: mypy checks this file, and that it reports the wrong ones.

A wrong call has the error that mypy must report behind `type: ignore`; strict mypy reports one that is not needed.
"""

from __future__ import annotations

import re
from pathlib import Path

import refusal_index as ri


def right() -> None:
    """Call with settings of every type."""
    ri.evaluate("almanac/small", draws=2, temperature=1, answered_only=True, placement="system", limit=None)
    ri.evaluate(data=[Path("a.csv"), "b.csv"], column={"question": "problem"}, variants="low,high", price="2,8")
    ri.evaluate(refusal=re.compile("no"), reasoning_effort="low", extra_body={"top_k": 20}, header="X-Key=env:KEY")
    ri.dry_run("almanac/small", assume_refusal=0.2, grader="exact")


def wrong() -> None:
    """Call with a name that no setting has, and with values of other types."""
    ri.evaluate(draw=2)  # type: ignore[call-arg]
    ri.evaluate(draws="2")  # type: ignore[arg-type]
    ri.evaluate(placement="assistant")  # type: ignore[arg-type]
    ri.evaluate(reasoning_effort="maximal")  # type: ignore[arg-type]
    ri.evaluate(seed=None)  # type: ignore[arg-type]
    ri.dry_run(temperature="hot")  # type: ignore[arg-type]


async def awaited() -> None:
    """Await a right call and two wrong ones."""
    await ri.evaluate_async("almanac/small", draws=2, retry=["first_empty"])
    await ri.evaluate_async(draw=2)  # type: ignore[call-arg]
    await ri.evaluate_async(log_to=3)  # type: ignore[arg-type]
