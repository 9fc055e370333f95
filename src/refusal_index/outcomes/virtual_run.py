"""A virtual run: what a model would have answered and refused if a score decided, as an ordinary outcome table.

Nobody asked it. The answer to a question is the one that was scored, and what scores below the cut is refused. So it
has no prompt variant, or that of the score; its model is called by the rule.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.outcome import NO_SCORE
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.outcomes.schema import SCHEMA, SCHEMA_VERSION
from refusal_index.outcomes.scored_answers import ScoredAnswers

DECIMALS = range(2, 17)
NEAR = 0.0005
"""How far from the cut its name may lie, even where no score lies between."""

OF_QUESTION = ("topic", "cluster", "weight", "question", "gold")
"""Columns that say the same of a question in every variant."""


def rule_of(answers: ScoredAnswers, cut: float) -> str:
    """Say which questions are answered, the cut as short as tells it apart from every score.

    >>> scores = pl.DataFrame({"confidence": [0.2, 0.61834, 0.7]})
    >>> rule_of(ScoredAnswers("likelihood", None, scores, is_trained=False), 0.61834)
    'likelihood >= 0.618'
    """
    if cut == -math.inf:
        return f"{answers.name}: all answered"
    if cut == math.inf:
        return f"{answers.name}: all refused"
    return f"{answers.name} >= {_shortest(cut, answers.rows['confidence'].drop_nulls().to_numpy())}"


def _shortest(cut: float, scores: np.ndarray) -> str:
    """Write a cut with as few decimals as come near it and answer the same questions."""
    answered = scores >= cut
    for decimals in DECIMALS:
        scale = 10**decimals
        for rounded in (round(cut, decimals), math.floor(cut * scale) / scale):
            if abs(rounded - cut) <= NEAR and np.array_equal(scores >= rounded, answered):
                return f"{rounded:.{decimals}f}"
    return repr(cut)


def virtual_run(run: ComparedRun, answers: ScoredAnswers, cut: float, chosen: frozenset[str]) -> pl.DataFrame:
    """Make the outcome table of a run that answers what scores at least a cut.

    Parameters
    ----------
    run, answers
        Where the questions and the answers come from, and their scores.
    cut
        What scores below is refused.
    chosen
        Ids of the questions to take in: those that the cut was not chosen on.

    Returns
    -------
    polars.DataFrame
        With the columns of `SCHEMA`, one row for each of these questions that the method was asked for. One without a
        score is unscored (``no_score``), and one without a grade as it is elsewhere. Which forced answers were refused
        once more is not known of scores, so that there is no `forced_grade`; replies are there where the score is of
        the answer that counts in the run's own table.
    """
    refused, wrong = pl.col("confidence") < cut, pl.col("wrong")
    grade = pl.when(wrong).then(pl.lit(Grade.INCORRECT.value)).otherwise(pl.lit(Grade.CORRECT.value))
    rows = answers.rows.filter(pl.col("question_id").is_in(list(chosen))).select(
        "question_id",
        "draw",
        "pass",
        refused=refused,
        wrong=pl.when(refused.is_not_null()).then(wrong),
        first_grade=pl.when(refused)
        .then(pl.lit(Grade.REFUSED.value))
        .when(refused.is_null() | wrong.is_null())
        .then(pl.lit(Grade.UNSCORED.value))
        .otherwise(grade),
        unscored_reason=pl.when(refused.is_null())
        .then(pl.lit(NO_SCORE))
        .when(wrong.is_null())
        .then(pl.when(refused).then(pl.lit("forced_not_graded")).otherwise(pl.lit("first_not_graded"))),
    )
    asked = rows.join(_questions(run), on="question_id", how="left", maintain_order="left")
    replied = asked.join(_replies(run, answers), on=("question_id", "draw"), how="left", maintain_order="left")
    said = pl.when(pl.col("pass").is_null()).then("reply")
    model = ", ".join(part for part in (run.model_id or run.label, rule_of(answers, cut)) if part)
    return replied.with_columns(
        model=pl.lit(model),
        dataset=pl.lit(run.dataset_id, pl.String),
        variant=pl.lit(answers.variant, pl.String),
        draw=pl.lit(0, pl.Int64),
        forced_grade=pl.lit(None, pl.String),
        first_reply=pl.when(~pl.col("refused")).then(said),
        forced_reply=pl.when("refused").then(said),
        schema_version=pl.lit(SCHEMA_VERSION, pl.Int64),
    ).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def _questions(run: ComparedRun) -> pl.DataFrame:
    """Return what is known of each question, in whatever variant it is said."""
    tables = pl.concat([table.select("question_id", *OF_QUESTION) for table in run.variants.values()])
    known = (pl.col(name).drop_nulls().first() for name in OF_QUESTION)
    return tables.group_by("question_id", maintain_order=True).agg(known)


def _replies(run: ComparedRun, answers: ScoredAnswers) -> pl.DataFrame:
    """Return the reply that counts for each question and draw of the variant that the scores are of."""
    table = run.variants.get(answers.variant)
    if table is None:
        return pl.DataFrame(schema={"question_id": pl.String, "draw": pl.Int64, "reply": pl.String})
    reply = pl.when("refused").then("forced_reply").otherwise("first_reply")
    return table.select("question_id", "draw", reply=reply)
