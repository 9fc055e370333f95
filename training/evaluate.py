"""How a sibling does on the held-out questions: the figures of the model card."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import numpy as np
import polars as pl

from refusal_index.data.datasets import load_dataset, sample
from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table, write_outcomes
from refusal_index.data.rates import draw_matrix
from refusal_index.plugins.almanac.runtime import Runtime
from refusal_index.protocol import FORCED, Message, exact_grade, load_prompt_set, read_reply
from refusal_index.stats import ContingencyTable, corrected_refusal_index, mid_rank_spearman, refusal_index

PROMPTS = load_prompt_set("default")
MODELS = Path(__file__).parents[1] / "src/refusal_index/plugins/almanac/models"
TEMPERATURE, TOP_P = 0.7, 0.95
REFUSED, RIGHT, MALFORMED = 0, 1, 2


async def ask(runtime: Runtime, questions: list[Question], variant: str, draws: int, seed: int) -> np.ndarray:
    """Return, shape (questions, draws, 3), whether each reply refused, was right and was not well formed."""
    gate = asyncio.Semaphore(128 // min(draws, 100) + 1)

    async def one(number: int, question: Question) -> list[tuple[bool, bool, bool]]:
        async with gate:
            message = Message("user", "\n\n".join(PROMPTS.render(variant, question.text)))
            drawn = await runtime.complete(
                [message], temperature=TEMPERATURE, top_p=TOP_P, max_tokens=64, n=draws, seed=seed + number
            )
        readings = [read_reply(completion.text) for completion in drawn]
        return [(r.refused, exact_grade(question, r.answer) == "correct", not r.well_formed) for r in readings]

    return np.array(await asyncio.gather(*(one(number, q) for number, q in enumerate(questions))))


async def one_sample(runtime: Runtime, questions: list[Question]) -> None:
    """Print each variant's 2x2 table and RI."""
    forced = (await ask(runtime, questions, FORCED, 1, 1_000_000))[:, 0]
    print(f"forced: right {forced[:, RIGHT].mean():.3f} refused {forced[:, REFUSED].mean():.4f}")
    for number, variant in enumerate(PROMPTS.variants):
        first = (await ask(runtime, questions, variant, 1, 2_000_000 + number * 100_000))[:, 0]
        refused = first[:, REFUSED]
        wrong = ~np.where(refused, forced[:, RIGHT], first[:, RIGHT])
        table = ContingencyTable.from_arrays(refused, wrong)
        result = refusal_index(table)
        interval = result.confidence_interval()
        print(
            f"{variant:8} refusal {table.refusal_rate:.3f} error {table.error_rate:.3f} malformed "
            f"{first[:, MALFORMED].mean():.4f} refused again {forced[refused, REFUSED].mean():.3f} RI {result.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}] {table}",
            flush=True,
        )


async def many_draws(runtime: Runtime, questions: list[Question], name: str, variant: str, draws: int) -> pl.DataFrame:
    """Return the outcomes of many draws of every question, each forced too."""
    forced = await ask(runtime, questions, FORCED, draws, 3_000_000)
    first = await ask(runtime, questions, variant, draws, 4_000_000)
    return outcome_table(
        (
            Identification(f"almanac/{name}", "almanac", variant, draw),
            question,
            _outcome(first[i, draw], forced[i, draw]),
        )
        for i, question in enumerate(questions)
        for draw in range(draws)
    )


def _outcome(first: np.ndarray, forced: np.ndarray) -> Outcome:
    first_grade, forced_grade = (_grade(*reply[:2]) for reply in (first, forced))
    refused = first_grade is Grade.REFUSED
    wrong = (forced_grade if refused else first_grade) is not Grade.CORRECT
    return Outcome(refused, wrong, first_grade, forced_grade)


def _grade(refused: bool, right: bool) -> Grade:
    return Grade.REFUSED if refused else Grade.CORRECT if right else Grade.INCORRECT


def print_frequencies(table: pl.DataFrame) -> None:
    """Print the corrected index, and the mid-rank Spearman of the frequencies, which is another quantity."""
    draws = draw_matrix(table)
    corrected = corrected_refusal_index(draws.refused, draws.wrong, draws.scored)
    spearman = mid_rank_spearman(draws.refused, draws.wrong, draws.scored)
    print(f"{draws.refused.shape[0]} draws of {corrected.n_repeated} questions")
    intervals = (
        ("corrected RI", corrected.estimate, corrected.confidence_interval()),
        ("mid-rank Spearman", spearman.estimate, spearman.confidence_interval(rng=0)),
    )
    for name, estimate, (low, high) in intervals:
        print(f"{name}: {estimate:.3f} [{low:.3f}, {high:.3f}]")
    print(
        f"reliability of a refusal {corrected.refusal_reliability:.2f}, of an error {corrected.error_reliability:.2f}"
    )


def main() -> None:
    """Evaluate one sibling."""
    parser = argparse.ArgumentParser(prog="python -m training.evaluate", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--draws", type=int, help="draw so often a question instead, for the Spearman of frequencies")
    parser.add_argument("--variant", default="normal", help="for --draws")
    parser.add_argument("--out", type=Path, help="for --draws: write the outcome table to this file")
    parser.add_argument("--models", type=Path, default=MODELS)
    arguments = parser.parse_args()
    dataset = load_dataset("almanac")
    questions = list((sample(dataset, arguments.limit, 0) if arguments.limit else dataset).questions)
    runtime = Runtime(arguments.models / arguments.name)
    if arguments.draws:
        table = asyncio.run(many_draws(runtime, questions, arguments.name, arguments.variant, arguments.draws))
        print_frequencies(table)
        if arguments.out:
            write_outcomes(table, arguments.out)
    else:
        asyncio.run(one_sample(runtime, questions))


if __name__ == "__main__":
    main()
