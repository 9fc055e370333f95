"""The confidence table: how likely an answer is right according to a method, joined with outcomes.

A row is a score in [0, 1] of one method for one answer. Which answer that is, `pass` says: the forced answer of a draw,
the first pass's, or one that was given along with the score (`probe`); where it is null, the answer that counts in the
outcome table. A variant is null where the score belongs to all of them, as that of a forced answer does. A score that a
method was asked for and did not give is a row whose `confidence` is null: it is counted, and never filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from refusal_index.data.errors import OutcomeTableError, listed, shortened
from refusal_index.data.files import read_plain
from refusal_index.data.outcome_table import OPTIONAL
from refusal_index.data.table_files import write_table

CONFIDENCE_SCHEMA: Mapping[str, pl.DataType] = MappingProxyType(
    {
        "question_id": pl.String(),
        "method": pl.String(),
        "confidence": pl.Float64(),
        "wrong": pl.Boolean(),
        "variant": pl.String(),
        "draw": pl.Int64(),
        "pass": pl.String(),
        "fold": pl.Int64(),
    }
)
"""Columns of the table; `fold` is the part of the questions that a trained method was not trained on."""

PLACE = ("question_id", "method", "variant", "draw", "pass")
"""What tells its rows apart."""

GRADE_OF = MappingProxyType({"first": "first_grade", "forced": "forced_grade"})
"""The column of the outcome table that grades the answer of a pass."""

PASSES = (*GRADE_OF, "probe")
"""What `pass` may be, besides null."""


class ConfidenceError(OutcomeTableError):
    """A confidence table that cannot be used; the message names the place."""


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
        If a score is outside [0, 1], or one is there twice.

    Examples
    --------
    >>> confidence_table([Score("q1", "likelihood", 0.9, False)])["confidence"].to_list()
    [0.9]
    """
    table = pl.DataFrame(map(astuple, scores), schema=dict(CONFIDENCE_SCHEMA), orient="row")
    _check(table, "a score")
    return table


def _check(table: pl.DataFrame, source: str) -> None:
    if row := _first(table, pl.col("draw").is_null() | ~pl.col("pass").is_in(PASSES).fill_null(value=True)):
        raise ConfidenceError(
            f"{source}, row {row['row']}: expected a draw and a pass out of {', '.join(PASSES)} or none, got "
            f"{shortened(row['draw'])} and {shortened(row['pass'])}"
        )
    if row := _first(table, ~pl.col("confidence").is_between(0, 1)):
        raise ConfidenceError(
            f"{source}, row {row['row']}, column 'confidence': expected a number in [0, 1], got {row['confidence']}; "
            "is it in per cent, or a log probability?"
        )
    if row := _first(table, ~pl.struct(PLACE).is_first_distinct()):
        raise ConfidenceError(
            f"{source}, row {row['row']}: the same score again ({place_of(row, PLACE)}); remove one of the two"
        )


def _first(table: pl.DataFrame, is_wrong: pl.Expr) -> dict[str, Any] | None:
    """Return the first row of which something holds, with its number from 1; None if there is none."""
    numbered = table if "row" in table.columns else table.with_row_index("row", 1)
    found = numbered.filter(is_wrong).head(1)
    return found.row(0, named=True) if found.height else None


def place_of(row: Mapping[str, Any], names: Iterable[str] = ("question_id", "variant", "draw")) -> str:
    """Return in words which answer a row is about.

    >>> place_of({"question_id": "q1", "variant": None, "draw": 0})
    "question_id 'q1', draw 0"
    """
    return ", ".join(f"{name} {shortened(row[name])}" for name in names if row[name] is not None)


def is_trained(scores: pl.DataFrame) -> bool:
    """Whether scores are those of a predictor that was trained on answers of the same run: they have a fold."""
    return scores["fold"].null_count() < scores.height


def write_confidence(table: pl.DataFrame, path: str | Path) -> None:
    """Write the table, replacing the file at once or not at all; the suffix says whether Parquet, CSV or JSON Lines."""
    write_table(table, Path(path))


def with_scores(before: pl.DataFrame | None, table: pl.DataFrame) -> pl.DataFrame:
    """Put scores beside those of other methods, in the place of what the same methods gave before."""
    if before is None:
        return table
    return pl.concat([before.filter(~pl.col("method").is_in(table["method"].unique().to_list())), table])


def read_confidence(path: Path) -> pl.DataFrame:
    """Read the table of a run's folder.

    Raises
    ------
    ConfidenceError
        If it cannot be read, or is no confidence table.
    """
    try:
        table = pl.read_parquet(read_plain(path))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfidenceError(
            f"{path} cannot be read ({said[0]}); remove it, and have the methods score again"
        ) from error
    if table.schema != pl.Schema(CONFIDENCE_SCHEMA):
        raise ConfidenceError(
            f"{path}: expected the columns {', '.join(CONFIDENCE_SCHEMA)}, got {', '.join(table.columns)}; remove it, "
            "and have the methods score again"
        )
    _check(table, str(path))
    return table


METHOD_OF = {"p_answering": "p-answering", "confidence": "confidence"}
"""What the scores in columns of an outcome table are called as methods."""

_DRAW = ["question_id", "draw"]
_ANSWER = [*_DRAW, "variant"]


@dataclass(frozen=True)
class Coverage:
    """What a method's scores cover: questions with a score, questions with an empty one, and all that the run asks."""

    method: str
    questions: int
    empty: int
    of: int


@dataclass(frozen=True)
class JoinedScores:
    """Scores beside the answers of a run.

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
    if row := _first(joined, ~pl.struct(PLACE).is_first_distinct()):
        raise ConfidenceError(
            f"two scores are about the same answer ({place_of(row, PLACE)}), the second of them score {row['row']:,}: "
            "one names its variant or its id and the other does not, or two texts hold the same question; remove one"
        )
    kept = joined.select(*CONFIDENCE_SCHEMA)
    return JoinedScores(kept, unknown, by_text, tuple(_coverage(kept, outcomes["question_id"].n_unique())))


def scores_of_outcomes(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return the probabilities in an outcome table's own columns as a confidence table, of the answers that count.

    Parameters
    ----------
    outcomes
        An outcome table of one model and dataset, with columns of `OPTIONAL` or without.

    Returns
    -------
    polars.DataFrame
        With the columns of `CONFIDENCE_SCHEMA`; empty where the table has no such column, or nothing in it.
    """
    _refuse_several(outcomes)
    filled = [name for name in OPTIONAL if name in outcomes.columns and outcomes[name].null_count() < outcomes.height]
    blank = {"pass": pl.lit(None), "fold": pl.lit(None)}  # what the table does not say of an answer
    tables = [
        outcomes.select(
            said.get(column, pl.col(column)).cast(kind).alias(column) for column, kind in CONFIDENCE_SCHEMA.items()
        )
        for name in filled
        for said in [{**blank, "method": pl.lit(METHOD_OF[name]), "confidence": pl.col(name)}]
    ]
    return pl.concat(tables) if tables else pl.DataFrame(schema=dict(CONFIDENCE_SCHEMA))


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
