"""Any task of Inspect in two passes, with public names of refusal-index and Inspect only."""

from __future__ import annotations

import math
from copy import deepcopy

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, score, scorer
from inspect_ai.solver import Generate, Solver, TaskState, chain, fork, solver

import refusal_index as ri


@solver
def preceded(text: str) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.user_prompt.text = f"{text}\n\n{state.user_prompt.text}"
        return state

    return solve


@solver
def asked_twice(inner: Solver) -> Solver:
    texts = ri.load_prompt_set("instructions").preambles

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        start = deepcopy(state)
        first = await chain(preceded(texts["normal"]), inner)(state, generate)
        refused = ri.read_reply(first.output.completion, first.input_text).refused
        second = await fork(start, chain(preceded(texts["forced"]), inner)) if refused else None
        (graded,) = await score(second or first)
        row = {
            "variant": "normal",
            "refused": refused,
            "wrong": graded.as_str() != "C",
            "forced_grade": None if second is None else ("correct" if graded.as_str() == "C" else "incorrect"),
            "forced_reply": None if second is None else second.output.completion,
        }
        first.metadata["refusal_index"] = row
        first.scores = {"asked_twice/cell": Score(value="N" if refused else graded.as_str(), metadata=row)}
        return first

    return solve


@metric
def index() -> Metric:
    def compute(scores: list[SampleScore]) -> Value:
        rows = [one.score.metadata or {} for one in scores]
        result = ri.refusal_index(refused=[row["refused"] for row in rows], wrong=[row["wrong"] for row in rows])
        low, high = result.confidence_interval()
        return {"index": math.nan if result.estimate is None else result.estimate, "low": low, "high": high}

    return compute


@scorer(metrics=[index()])
def cell() -> Scorer:
    async def graded(state: TaskState, target: Target) -> Score | None:
        return None

    return graded
