"""Scores as a confidence table, put beside those of other methods, and joined with the answers of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import polars as pl

from refusal_index.data.errors import listed, shortened
from refusal_index.data.outcome_table import (
    CONFIDENCE_SCHEMA,
    PLACE,
    ConfidenceError,
    check_scores,
    first_row,
    place_of,
)
from refusal_index.data.tables import write_table


@dataclass(frozen=True)
class Score:
    """What a method says of one answer.

    Attributes
    ----------
    question_id, method
        Of which question, and by which method.
    confidence
        In [0, 1]; None where the method was asked for it and gave none.
    wrong
        Whether the answer is wrong; None while it is unscored.
    variant
        None where the score belongs to all.
    draw, of
        Of the answer: its repetition, and its pass.
    fold
        Which part of the questions it lies in, of a method that was trained on the others.
    """

    question_id: str
    method: str
    confidence: float | None
    wrong: bool | None
    variant: str | None = None
    draw: int = 0
    of: str | None = "forced"
    fold: int | None = None


def confidence_table(scores: Iterable[Score]) -> pl.DataFrame:
    """Build the table, in the order of the scores.

    Raises
    ------
    ConfidenceError
        If a score is outside [0, 1], or one occurs twice.

    Examples
    --------
    >>> confidence_table([Score("q1", "likelihood", 0.9, False)])["confidence"].to_list()
    [0.9]
    """
    table = pl.DataFrame(map(astuple, scores), schema=dict(CONFIDENCE_SCHEMA), orient="row")
    check_scores(table, "a score")
    return table


def write_confidence(table: pl.DataFrame, path: str | Path) -> None:
    """Write the table, replacing the file at once or not at all; the suffix says whether Parquet, CSV or JSON Lines."""
    write_table(table, Path(path))


def with_scores(before: pl.DataFrame | None, table: pl.DataFrame) -> pl.DataFrame:
    """Put scores beside those of other methods, in the place of what the same methods gave before."""
    if before is None:
        return table
    return pl.concat([before.filter(~pl.col("method").is_in(table["method"].unique().to_list())), table])


_DRAW = ["question_id", "draw"]
_ANSWER = [*_DRAW, "variant"]


@dataclass(frozen=True)
class Coverage:
    """Coverage of a method's scores: questions scored, questions with an empty score, and all of the run's."""

    method: str
    questions: int
    empty: int
    of: int


@dataclass(frozen=True)
class JoinedScores:
    """Confidence scores joined to the answers of a run.

    Attributes
    ----------
    scores
        Those of answers that the run has, with the columns of `CONFIDENCE_SCHEMA`.
    unknown
        Those of questions, variants or draws that it does not have.
    by_text
        How many questions were found by their text rather than their id.
    coverage
        What is left of each method, in the order of the scores.
    """

    scores: pl.DataFrame
    unknown: pl.DataFrame
    by_text: int
    coverage: tuple[Coverage, ...]


def join_outcomes(scores: pl.DataFrame, outcomes: pl.DataFrame) -> JoinedScores:
    """Find the answers that scores are about, and say of each whether it is wrong, where the scores do not.

    Without a pass a score is about the answer that counts; that, and the first pass, is another one in each variant, so
    that a score without a variant becomes one for each. A refusal of the answer that is scored is wrong, and an answer
    without a grade, or one that was given along with the score (``probe``), stays null.

    Parameters
    ----------
    scores
        A confidence table. Where `question_id` is no id of the outcomes, but holds the text of one of their questions,
        it is taken for that question.
    outcomes
        An outcome table of one model and dataset.

    Raises
    ------
    ConfidenceError
        If the outcomes are of several models or datasets, no score is of a question in them, or two scores turn out to
        be about the same answer.
    """
    _refuse_several(outcomes)
    found, by_text = _with_ids(scores, outcomes)
    numbered = found.with_row_index("row", 1)
    joined = pl.concat(_joined(numbered, _answers(outcomes))).sort("row", maintain_order=True)
    unknown = scores.filter(~numbered["row"].is_in(joined["row"].unique().to_list()))
    if joined.is_empty() and scores.height:
        raise ConfidenceError(
            f"none of {scores.height:,} scores is of an answer that the run has: the first is of "
            f"{place_of(scores.row(0, named=True))}, and the run's first of question_id "
            f"{shortened(outcomes['question_id'][0])}; name the column with its ids with --column question_id=NAME, or "
            "the one with the questions' texts with --column question=NAME"
        )
    if row := first_row(joined, ~pl.struct(PLACE).is_first_distinct()):
        raise ConfidenceError(
            f"two scores are about the same answer ({place_of(row, PLACE)}), the second of them score {row['row']:,}: "
            "one names its variant or its id and the other does not, or two texts hold the same question; remove one"
        )
    kept = joined.select(*CONFIDENCE_SCHEMA)
    return JoinedScores(kept, unknown, by_text, tuple(_coverage(kept, outcomes["question_id"].n_unique())))


def _refuse_several(outcomes: pl.DataFrame) -> None:
    for name in ("model", "dataset"):
        names = outcomes[name].unique(maintain_order=True).to_list()
        if len(names) > 1:
            raise ConfidenceError(f"expected outcomes of one {name}, got {listed(map(str, names))}; split them first")


def _answers(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return, of every answer, whether it is wrong by the pass that it is of."""
    first, forced = pl.col("first_grade"), pl.col("forced_grade")
    refused, wrong = pl.col("refused"), pl.col("wrong")
    return outcomes.select(
        *_ANSWER,
        wrong.alias("counts"),
        # a table of the two columns alone says no less: a refusal is no right answer, and all else is the first pass's
        pl.when(first.is_null()).then(refused | wrong).otherwise(_is_wrong(first)).alias("first"),
        pl.when(forced.is_null()).then(pl.when(refused).then(wrong)).otherwise(_is_wrong(forced)).alias("forced"),
    )


def _is_wrong(grade: pl.Expr) -> pl.Expr:
    return pl.when(grade.is_in(["correct", "incorrect", "refused"])).then(grade != "correct")


def _joined(scores: pl.DataFrame, answers: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the scores whose answers are there, with what is known of these."""
    is_settled = pl.col("wrong").is_not_null() | (pl.col("pass") == "probe").fill_null(value=False)
    settled, is_of_one = scores.filter(is_settled), pl.col("variant").is_not_null()
    yield settled.filter(is_of_one).join(answers, on=_ANSWER, how="semi")
    yield settled.filter(~is_of_one).join(answers, on=_DRAW, how="semi")
    of_one, of_all = scores.filter(~is_settled, is_of_one), scores.filter(~is_settled, ~is_of_one).drop("variant")
    yield _with_wrong(of_one.join(answers, on=_ANSWER, maintain_order="left"))
    is_shared = (pl.col("pass") == "forced").fill_null(value=False)
    known = pl.col("counts", "first", "forced").drop_nulls()  # null where variants differ over an answer they share
    agreed = answers.group_by(_DRAW, maintain_order=True).agg(pl.when(known.n_unique() == 1).then(known.first()))
    shared = agreed.with_columns(variant=pl.lit(None, pl.String))
    yield _with_wrong(of_all.filter(is_shared).join(shared, on=_DRAW, maintain_order="left"))
    yield _with_wrong(of_all.filter(~is_shared).join(answers, on=_DRAW, maintain_order="left_right"))


def _with_wrong(joined: pl.DataFrame) -> pl.DataFrame:
    of = pl.col("pass")
    wrong = pl.when(of.is_null()).then("counts").when(of == "first").then("first").otherwise("forced")
    return joined.with_columns(wrong.alias("wrong")).select("row", *CONFIDENCE_SCHEMA)


def _with_ids(scores: pl.DataFrame, outcomes: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Put ids in the place of texts of questions, and count the questions for which that was done."""
    ids = set(outcomes["question_id"])
    strange = [one for one in scores["question_id"].unique(maintain_order=True) if one not in ids]
    known = outcomes.filter(pl.col("question").is_not_null()).unique("question_id", maintain_order=True)
    found = _by_text(strange, dict(known.select("question_id", "question").iter_rows())) if strange else {}
    return scores.with_columns(pl.col("question_id").replace(found)), len(found)


def _by_text(texts: list[str], questions: dict[str, str]) -> dict[str, str]:
    """Return the id of the question that each text is, or as a whole prompt holds; only where there is just one.

    Of questions that hold each other, a prompt that holds them all is taken for the longest.
    """
    ids: dict[str, list[str]] = {}
    for question_id, text in questions.items():
        ids.setdefault(_plain(text), []).append(question_id)
    ids.pop("", None)
    if not ids:
        return {}
    plain = pl.Series([_plain(text) for text in texts], dtype=pl.String)
    held = plain.str.extract_many(list(ids), overlapping=True).list.unique(maintain_order=True)
    found = {}
    for text, exact, several in zip(texts, plain.to_list(), held.to_list(), strict=True):
        meant = (
            [exact]
            if exact in ids
            else [one for one in several if not any(one != other and one in other for other in several)]
        )
        if len(meant) == 1 and len(ids[meant[0]]) == 1:
            found[text] = ids[meant[0]][0]
    return found


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _coverage(scores: pl.DataFrame, questions: int) -> Iterator[Coverage]:
    for group in scores.partition_by("method", maintain_order=True):
        scored = group.drop_nulls("confidence")["question_id"].n_unique()
        yield Coverage(group["method"][0], scored, group["question_id"].n_unique() - scored, questions)
