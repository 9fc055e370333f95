"""Answers with the scores of one method, and the virtual run that refuses answers with low scores.

No requests were sent for a virtual run. The answer to a question is the scored one, and an answer below the cut is
refused. So the virtual run has no prompt variant, or that of the score, and its model's name includes the rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from refusal_index.data.outcome import NO_SCORE, Grade
from refusal_index.data.outcome_table import (
    SCHEMA,
    SCHEMA_VERSION,
    ConfidenceError,
    is_trained,
    scores_by_method,
    scores_of_outcomes,
)
from refusal_index.errors import OutcomeTableError, RunFolderError, shortened, suggestion
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.confidence.answer_probability import Calibration


@dataclass(frozen=True, eq=False)
class ScoredAnswers:
    """The scores of a run's answers by one method.

    Attributes
    ----------
    method, variant
        Method and variant of the scores; the variant is None if they apply to all variants.
    rows
        One row for each question with its id, confidence, wrong, pass and draw; `confidence` is null without a score,
        `wrong` without a grade.
    is_trained
        Whether the method was trained on answers of the same run and scored each of them out of fold.
    is_trained_on_half
        Whether it was trained on one half of the questions only.
    not_trained
        Why a trained method could not be trained on one half; empty if it was, or was not asked to be.
    calibration
        The fitted function that gave the scores, if they are calibrated likelihoods of a single function.
    """

    method: str
    variant: str | None
    rows: pl.DataFrame
    is_trained: bool
    is_trained_on_half: bool = False
    not_trained: str = ""
    calibration: Calibration | None = None

    @property
    def name(self) -> str:
        """The method, followed by the variant if its scores differ between variants."""
        return self.method if self.variant is None else f"{self.method} ({self.variant})"

    @property
    def usable(self) -> pl.DataFrame:
        """The rows with a score and a grade."""
        return self.rows.drop_nulls(["confidence", "wrong"])

    @property
    def without_score(self) -> int:
        """Number of replies without a score."""
        return self.rows["confidence"].null_count()

    @property
    def without_grade(self) -> int:
        """Number of scored answers without a grade."""
        return self.rows.drop_nulls("confidence")["wrong"].null_count()


def scored_answers(run: RunResults, method: str | None = None, variant: str | None = None) -> ScoredAnswers:
    """Return the scores of one method, of the first draw of each question.

    Parameters
    ----------
    run
        A run with scores in its folder, or an outcome table with a column of scores.
    method, variant
        Method and variant of the scores; optional if there is only one.

    Raises
    ------
    RunFolderError, OutcomeTableError
        If there are no scores, none of this method or variant, several to choose from, or scores of other questions.
    """
    scores = _scores_of(run)
    name = str(_choose("method:", method, scores["method"].unique(maintain_order=True).to_list()))
    of_method = scores.filter(pl.col("method") == name)
    variants = of_method["variant"].unique(maintain_order=True).to_list()
    if variants == [None] and variant is not None:
        raise ConfidenceError(f"variant: scores of {name} apply to all prompts, got {variant!r}; leave it out")
    chosen = _choose(f"variant: scores of {name} differ between prompts;", variant, variants)
    by_pass = scores_by_method(of_method.filter(pl.col("variant").eq_missing(chosen)))
    if len(by_pass) > 1:
        passes = ", ".join(pass_ or "the one that counts" for _, _, pass_ in by_pass)
        raise ConfidenceError(f"{name}: expected scores of the answers of one pass, got those of {passes}; keep one")
    (first,) = by_pass.values()
    others = first.join(questions_of(run), on="question_id", how="anti", maintain_order="left")
    if others.height:
        raise ConfidenceError(
            f"{run.source}: scores of {others.height:,} questions that are not in its outcomes, the first of "
            f"{shortened(others['question_id'][0])}; run the method again"
        )
    rows = first.select("question_id", "confidence", "wrong", "pass", "draw")
    return ScoredAnswers(name, chosen, rows, is_trained(first))


def all_scored_answers(
    run: RunResults, methods: Sequence[str] = (), variant: str | None = None
) -> tuple[ScoredAnswers, ...]:
    """Return the scores of several methods, of the first draw of each question.

    Parameters
    ----------
    run
        As for `scored_answers`.
    methods
        The methods; empty for all. If one is named, it must have one set of scores.
    variant
        The variant of the scores of methods whose scores differ between variants; None for each.

    Raises
    ------
    RunFolderError, OutcomeTableError
        As for `scored_answers`.
    """
    if len(methods) == 1:
        return (scored_answers(run, methods[0], variant),)
    scores = _scores_of(run)
    known = scores["method"].unique(maintain_order=True).to_list()
    names = [str(_choose("method:", name, known)) for name in dict.fromkeys(methods)] or known
    keys = [
        (name, of)
        for name in names
        for of in scores.filter(method=name)["variant"].unique(maintain_order=True)
        if variant is None or of in (None, variant)
    ]
    variants = scores["variant"].drop_nulls().unique(maintain_order=True).to_list()
    if not keys or (variant is not None and variant not in variants):
        _choose("variant:", variant, variants or [None])
    return tuple(scored_answers(run, *key) for key in keys)


def _scores_of(run: RunResults) -> pl.DataFrame:
    if not run.source.is_dir():
        scores = scores_of_outcomes(pl.concat(list(run.tables.values()), how="diagonal"))
        if scores.is_empty():
            raise OutcomeTableError(
                f"{run.source}: expected the columns 'confidence' (with values) and 'schema_version', got none; add "
                "them, or add scores to a run with 'refusal-index confidence RUN --add FILE'"
            )
        return scores
    if run.confidence is None or run.confidence.is_empty():
        raise RunFolderError(f"{run.source} has no scores yet; 'refusal-index confidence {run.source}' adds them")
    return run.confidence


def _choose(message: str, name: str | None, variants: Sequence[str | None]) -> str | None:
    """Return the given name if it is known, or without one the only known name."""
    if (name is None and len(variants) == 1) or (name is not None and name in variants):
        return name or variants[0]
    names = [str(variant) for variant in variants]
    more = " ('refusal-index confidence RUN --method NAME' adds others)" if message == "method:" else ""
    if name is None:
        raise ConfidenceError(f"{message} name one of {', '.join(names)}")
    raise ConfidenceError(f"{message} expected one of {', '.join(names)}{more}, got {name!r}{suggestion(name, names)}")


NEAR = 0.0005
"""Maximum distance of a rounded cut from the cut itself, even if no score lies between them."""

OF_QUESTION = ("topic", "cluster", "weight", "question", "gold", "answerable")
"""Columns whose value for a question is the same under every variant."""


def rule_of(answers: ScoredAnswers, cut: float) -> str:
    """Return the rule as text; the cut is rounded as far as it answers the same questions.

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
    """Return a cut with as few decimals as possible that is near the cut and answers the same questions."""
    answered = scores >= cut
    for decimals in range(2, 17):
        scale = 10**decimals
        for rounded in (round(cut, decimals), math.floor(cut * scale) / scale):
            if abs(rounded - cut) <= NEAR and np.array_equal(scores >= rounded, answered):
                return f"{rounded:.{decimals}f}"
    return repr(cut)


def virtual_run(run: RunResults, answers: ScoredAnswers, cut: float, chosen: frozenset[str]) -> pl.DataFrame:
    """Return the outcome table of a virtual run that answers if the score is at least a cut.

    Parameters
    ----------
    run, answers
        The run with the questions, and its answers with their scores.
    cut
        Answers with a score below it are refused.
    chosen
        Ids of the questions to include: those not used to choose the cut.

    Returns
    -------
    polars.DataFrame
        A table with the columns of `SCHEMA` and one row for each included question that the method was applied to.
        Questions without a score are unscored with the reason ``no_score``; those without a grade are unscored as
        usual. Scores do not show which forced answers were refused again, so `forced_grade` is null. Replies are
        included if the score is for the answer that counts in the run's own table.
    """
    refused = pl.col("confidence") < cut
    wrong = pl.col("wrong")
    grade = (
        pl.when(refused)
        .then(pl.lit(Grade.REFUSED.value))
        .when(refused.is_null() | wrong.is_null())
        .then(pl.lit(Grade.UNSCORED.value))
        .when(wrong)
        .then(pl.lit(Grade.INCORRECT.value))
        .otherwise(pl.lit(Grade.CORRECT.value))
    )
    not_graded = pl.when(refused).then(pl.lit("forced_not_graded")).otherwise(pl.lit("first_not_graded"))
    rows = answers.rows.filter(pl.col("question_id").is_in(list(chosen))).with_columns(
        refused=refused,
        wrong=pl.when(refused.is_not_null()).then(wrong),
        first_grade=grade,
        unscored_reason=pl.when(refused.is_null()).then(pl.lit(NO_SCORE)).when(wrong.is_null()).then(not_graded),
    )
    table = rows.join(questions_of(run), on="question_id", how="left", maintain_order="left")
    reply_kind = pl.lit(None, pl.String)
    if answers.variant in run.tables:
        reply = pl.when("refused").then("forced_reply").otherwise("first_reply")
        replies = run.tables[answers.variant].select("question_id", "draw", reply=reply)
        table = table.join(replies, on=("question_id", "draw"), how="left", maintain_order="left")
        reply_kind = pl.when(pl.col("pass").is_null()).then("reply")
    model = ", ".join(part for part in (run.model_id or run.label, rule_of(answers, cut)) if part)
    return table.with_columns(
        model=pl.lit(model),
        dataset=pl.lit(run.dataset_id, pl.String),
        variant=pl.lit(answers.variant, pl.String),
        draw=pl.lit(0, pl.Int64),
        forced_grade=pl.lit(None, pl.String),
        reading=pl.lit(None, pl.String),
        first_reply=pl.when(~pl.col("refused")).then(reply_kind),
        forced_reply=pl.when("refused").then(reply_kind),
        schema_version=pl.lit(SCHEMA_VERSION, pl.Int64),
    ).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def questions_of(run: RunResults) -> pl.DataFrame:
    """Return the question columns of each question: the first non-null value under any variant."""
    tables = pl.concat([table.select("question_id", *OF_QUESTION) for table in run.tables.values()])
    columns = (pl.col(name).drop_nulls().first() for name in OF_QUESTION)
    return tables.group_by("question_id", maintain_order=True).agg(columns)
