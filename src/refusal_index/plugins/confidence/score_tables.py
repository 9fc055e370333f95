"""Read confidence tables from any source, combine them with other scores, and join them with the answers of a run.

A table comes from a file or a data frame, written by the user or by UQLM or lm-polygraph.

It is long, with one score per row in a column `confidence`, or wide, with a column for each scorer that those two
packages know. Each row names its question by id or by text; a text takes the place of the id until it is matched with
the run's questions. A row with an empty score is kept: it is counted and never filled in.
"""

from __future__ import annotations

import io
import math
import re
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from refusal_index.data import tables
from refusal_index.data.cells import FLAG, Kind
from refusal_index.data.documents import rows_of_document
from refusal_index.data.grade_words import GRADE
from refusal_index.data.outcome import Grade
from refusal_index.data.outcome_table import (
    CONFIDENCE_SCHEMA,
    PASSES,
    PLACE,
    ConfidenceError,
    first_row,
    place_of,
)
from refusal_index.data.source_files import PARQUET, ZIP, SourceFile
from refusal_index.data.tables import Column, Row, Source, read_rows
from refusal_index.data.text import plain_text, sound_text
from refusal_index.data.written_tables import undo_safe
from refusal_index.errors import listed, shortened, suggestion

ROUNDING = 1e-6
"""Tolerance for numbers outside their range: a single-precision cosine can be 1.0000001."""

ADVICE = (
    "if it is a log probability, give its exponential; if it is in per cent, divide it by 100; if it is an "
    "uncertainty, calibrate it first; write it as a decimal fraction, and leave the cell empty where there is no score"
)

Reading = Callable[[Any], float | None]
"""Converts a cell to a score, None for an empty cell; raises ValueError if the number is out of range."""


def _reading(expected: str, low: float, high: float, formula: Callable[[float], float]) -> Reading:
    """Return a conversion of numbers to scores, given a description of the numbers, their range, and a formula."""
    kind = Kind(expected, advice=ADVICE, low=low - ROUNDING, high=high + ROUNDING)

    def read(cell: Any) -> float | None:
        number = kind(cell)
        return None if number is None else formula(min(max(number, low), high))

    return read


READINGS: Mapping[str, Reading] = {
    "as_is": _reading("a number in [0, 1]", 0, 1, lambda number: number),
    "one_less": _reading("an uncertainty in [0, 1]", 0, 1, lambda number: 1 - number),
    "negative": _reading("the negative of a number in [0, 1]", -1, 0, lambda number: 0.0 - number),
    "minus_log_probability": _reading(
        "the negative of a log probability, from 0", 0, math.inf, lambda number: math.exp(-number)
    ),
}

_SHIPPED = (resources.files("refusal_index.plugins.confidence") / "data" / "scorers.toml").read_text()
NAMES: Mapping[str, re.Pattern[str]] = {
    kind: re.compile("|".join(names)) for kind, names in tomllib.loads(_SHIPPED).items()
}
"""Patterns of UQLM's and lm-polygraph's column names, by conversion."""

_KEY = re.compile(r"\(['\"]sequence['\"], ['\"](.+)['\"]\)")
"""The text form of an lm-polygraph key, which contains the estimator's name."""


def scorer_name(column: str) -> str:
    """Return the name of a column's scorer, extracted from an lm-polygraph key if it is one.

    >>> scorer_name("('sequence', 'PTrue')"), scorer_name("p_true")
    ('PTrue', 'p_true')
    """
    key = _KEY.fullmatch(column.strip())
    return key[1] if key else column.strip()


def reading_of(column: str, columns: Collection[str] = ()) -> Reading | None:
    """Return the conversion for a column of UQLM or lm-polygraph; None for columns that are not confidences.

    - `column`: the name of the column.
    - `columns`: all columns of the table.
    """
    name = scorer_name(column)
    if NAMES["of_a_panel"].fullmatch(name) and "judge_1" in columns:
        return READINGS["as_is"]
    return next((reading for kind, reading in READINGS.items() if NAMES[kind].fullmatch(name)), None)


def has_no_range(column: str) -> bool:
    """Whether a column contains an unbounded uncertainty, which cannot be converted to a confidence.

    >>> has_no_range("MeanTokenEntropy"), has_no_range("PTrue")
    (True, False)
    """
    return NAMES["no_range"].fullmatch(scorer_name(column)) is not None


def _exact(cell: Any) -> str | None:
    """Return a cell as text, with its surrounding white space; None for an empty cell."""
    return None if tables.text(cell) is None else sound_text(str(cell))


def _graded(role: str, names: tuple[str, ...], kind: Kind) -> Column:
    return Column(names, replace(kind, advice=f"say which column it is with --column {role}=NAME"))


_WHOLE = Kind("a whole number from 0", low=0, is_whole=True)

ROLES: Mapping[str, Column] = {
    "question_id": Column(("question_id", "id", "qid", "uuid"), _exact),
    "question": Column(("question", "problem", "query", "prompt", "prompts", "input_text", "input_texts"), _exact),
    "confidence": Column(("confidence",), READINGS["as_is"]),
    "method": Column(("method",), _exact),
    "variant": Column(("variant",), _exact),
    "draw": Column(("draw",), _WHOLE),
    "pass": Column(
        ("pass",),
        Kind(f"one of {', '.join(PASSES)}, or nothing for the answer that counts", {name: name for name in PASSES}),
    ),
    "fold": Column(("fold",), _WHOLE),
    "wrong": _graded("wrong", ("wrong",), FLAG),
    "correct": _graded("correct", ("correct", "is_correct"), FLAG),
    "grade": _graded("grade", ("grade",), GRADE),
}
"""Columns by role, with the names that are recognised automatically."""

GRADES = ("wrong", "correct", "grade")
"""The roles that say whether the answer is wrong; an explicitly named column takes precedence."""

PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
"""The first bytes of pickle files."""


class ReadScores(NamedTuple):
    """The scores of a table, and the columns that were left out."""

    scores: pl.DataFrame
    """Table with the columns of `CONFIDENCE_SCHEMA`; `question_id` contains the question's text if there are no ids."""
    left_out: tuple[str, ...]
    """Columns with uncertainties that cannot be converted to confidences."""


def read_score_table(
    data: object, *, method: str | None = None, columns: Mapping[str, str] | None = None
) -> ReadScores:
    """Read a confidence table from any source.

    Parameters
    ----------
    data
        The path of a CSV, JSON Lines, JSON or Parquet file, a data frame, or a list of dictionaries, one per row.
    method
        Name for the scores; by default that in the table, or else the name of the file.
    columns
        Column names by role, as in `ROLES`, for columns without one of the usual names.

    Returns
    -------
    ReadScores

    Raises
    ------
    ConfidenceError
        If the table cannot be read, or a score is invalid or occurs twice; the message names the line.

    Examples
    --------
    >>> rows = [{"question_id": "q1", "score": 0.9}]
    >>> read_score_table(rows, method="mine", columns={"confidence": "score"}).scores.row(0)
    ('q1', 'mine', 0.9, None, None, 0, None, None)
    """
    chosen = columns or {}
    source, rows, stem = _opened(data)
    present = tables.present_columns(rows)
    names = tables.resolve_columns(source, present, chosen, ROLES)
    if not {"question_id", "question"} & names.keys():
        advice = "; say which column it is with --column question_id=NAME or question=NAME"
        raise source.lacks("a column 'question_id', or 'question' with its text", present, advice)
    scorers = _scorers(source, present, names, method or stem)
    if method is not None and len(scorers) > 1:
        raise source.wrong(
            f"expected one scorer to name {method!r}, got {listed(scorer.column for scorer in scorers)}; choose one "
            "with --column confidence=NAME"
        )
    graded = next((role for role in (*chosen, *GRADES) if role in GRADES and role in names), None)
    columns_read = {
        role: column for role, column in names.items() if role not in {"confidence", *GRADES} or role == graded
    }
    table = pl.DataFrame(_scores(rows, columns_read, scorers), schema=dict(CONFIDENCE_SCHEMA), orient="row")
    if source.kind == "csv" and CONFIDENCE_SCHEMA.keys() <= set(present):
        table = undo_safe(table)  # written by this package
    methods = table["method"].unique(maintain_order=True).to_list()
    if method is not None and len(methods) > 1:
        raise source.wrong(
            f"expected scores of one method to name {method!r}, got {listed(methods)}; leave out the name"
        )
    if method is not None:
        table = table.with_columns(pl.lit(method).alias("method"))
    return ReadScores(table, () if "confidence" in names else tuple(filter(has_no_range, present)))


def _opened(data: object) -> tuple[Source, Sequence[Row], str | None]:
    """Return the source of a table, its rows, and the file's name without suffix."""
    if not isinstance(data, str | Path):
        source = Source("the table", "memory", "score", ConfidenceError)
        return source, read_rows(source, data), None
    path = Path(data)
    content = tables.read_content(path, ConfidenceError)
    _refuse_pickle(path, content)
    if not path.name.lower().removesuffix(".gz").endswith(".json") and not content.startswith(PARQUET):
        tables.file_format(path, ConfidenceError, tables.READABLE)
    file = SourceFile(path, content)
    source = replace(file.source, holds="score", error=ConfidenceError)
    rows = rows_of_document(source, content) if source.kind == "json" else tables.iter_rows(source, content)
    return source, tables.some_rows(source, rows), file.stem


def _refuse_pickle(path: Path, content: bytes) -> None:
    """Raise ConfidenceError for a pickle, such as lm-polygraph saves: opening one may run code."""
    try:
        members = zipfile.ZipFile(io.BytesIO(content)).namelist() if content.startswith(ZIP) else []
    except zipfile.BadZipFile as error:
        raise ConfidenceError(f"{path} cannot be read as a table ({error}); check that it is complete") from error
    if content.startswith(PICKLES) or any(member.endswith("data.pkl") for member in members):
        raise ConfidenceError(
            f"{path}: expected a table, got a pickle, as written by lm-polygraph's UEManager.save; it is not opened, "
            "as it may contain code. If you trust it, write a table: man = UEManager.load(PATH); "
            "pandas.DataFrame({'question_id': IDS_IN_THEIR_ORDER, **{name: values for (level, name), values in "
            "man.estimations.items() if level == 'sequence'}}).to_csv('scores.csv', index=False)"
        )


class _Scorer(NamedTuple):
    """A column of scores, the name of its method, None if each row names it, and the conversion to scores."""

    column: str
    method: str | None
    reading: Reading


def _scorers(source: Source, present: Sequence[str], names: Mapping[str, str], name: str | None) -> list[_Scorer]:
    """Return the columns that hold scores."""
    if "confidence" in names:
        if "method" not in names and name is None:
            raise source.wrong("expected a name for the scores; add a column 'method', or pass method=NAME")
        return [_Scorer(names["confidence"], None if "method" in names else name, READINGS["as_is"])]
    readings = ((column, reading_of(column, present)) for column in present)
    scorers = [_Scorer(column, scorer_name(column), reading) for column, reading in readings if reading is not None]
    unusable = [column for column in present if has_no_range(column)]
    if not scorers and unusable:
        raise source.wrong(
            f"expected scores in [0, 1], got uncertainties that cannot be converted to scores ({listed(unusable)}); "
            "calibrate one on held-out questions, as lm-polygraph's normalizers do, and name its column with "
            "--column confidence=NAME"
        )
    if not scorers:
        expected = "a column 'confidence', or a column named as in UQLM or lm-polygraph"
        advice = suggestion("confidence", present) or ";"
        raise source.lacks(expected, present, f"{advice} say which column it is with --column confidence=NAME")
    return scorers


def _scores(rows: Iterable[Row], names: Mapping[str, str], scorers: Sequence[_Scorer]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a confidence table; raises if two scores by the same method are for the same answer."""
    question = "question_id" if "question_id" in names else "question"
    needed = {question: "an id" if question == "question_id" else "the text of a question"}
    if any(scorer.method is None for scorer in scorers):
        needed["method"] = "the name of a method"
    first: dict[tuple[object, ...], Row] = {}
    for row in rows:
        cells = tables.values_by_role(row, names, ROLES)
        for role, content in needed.items():
            if cells[role] is None:
                raise row.wrong(f"expected {content}, got an empty cell; every score needs one", names[role])
        answer = cells["variant"], cells["draw"] or 0, cells["pass"]
        wrong = cells["wrong"] if cells["correct"] is None else not cells["correct"]
        if cells["grade"] not in (None, Grade.UNSCORED):
            wrong = cells["grade"] is not Grade.CORRECT  # refusals count as wrong
        for scorer in scorers:
            question_asked = cells[question]
            method = scorer.method or cells["method"]
            confidence = Column((), scorer.reading).value(row, scorer.column)
            earlier = first.setdefault((question_asked, method, *answer), row)
            if earlier is not row:
                raise row.wrong(
                    f"the same score again (question {shortened(question_asked)}, method {shortened(method)}), first "
                    f"at {earlier.place}; remove one of the two, or distinguish the answers by a column 'draw' (0, 1, "
                    "...), 'variant' or 'pass'"
                )
            yield question_asked, method, confidence, wrong, *answer, cells["fold"]


def with_scores(before: pl.DataFrame | None, table: pl.DataFrame) -> pl.DataFrame:
    """Return `before` with the scores of `table`, which replace earlier ones by the same methods."""
    if before is None:
        return table
    return pl.concat([before.filter(~pl.col("method").is_in(table["method"].unique().to_list())), table])


@dataclass(frozen=True)
class JoinedScores:
    """Confidence scores joined to the answers of a run.

    Attributes
    ----------
    scores
        Scores of answers that are in the run, with the columns of `CONFIDENCE_SCHEMA`.
    unknown
        Scores of questions, variants or draws that are not in the run.
    by_text
        Number of questions that were matched by text rather than by id.
    coverage
        For each method, in the order of the scores, the number of `questions` with a score, of those with an `empty`
        one, and of all questions in the run (`of`).
    """

    scores: pl.DataFrame
    unknown: pl.DataFrame
    by_text: int
    coverage: pl.DataFrame


def join_outcomes(scores: pl.DataFrame, outcomes: pl.DataFrame) -> JoinedScores:
    """Match scores with the answers of a run, and add whether each answer is wrong unless the scores say so.

    A score without a pass is for the answer that counts. That answer and the first pass differ between variants, so a
    score without a variant is repeated for each variant. If the scored reply is a refusal, it counts as wrong. Without
    a grade, or for an answer given together with the score (``probe``), `wrong` remains null.

    Parameters
    ----------
    scores
        A confidence table. A `question_id` that is not in the outcomes but is the text of one of their questions, or a
        prompt that contains it, is matched with that question.
    outcomes
        An outcome table of one model and dataset.

    Raises
    ------
    ConfidenceError
        If the outcomes are of several models or datasets, no score is for a question in them, or two scores are for the
        same answer.
    """
    for name in ("model", "dataset"):
        names = outcomes[name].unique(maintain_order=True).to_list()
        if len(names) > 1:
            raise ConfidenceError(f"expected outcomes of one {name}, got {listed(map(str, names))}; split them first")
    by_text = _ids_by_text(scores, outcomes)
    numbered = scores.with_columns(pl.col("question_id").replace(by_text)).with_row_index("row", 1)
    joined = _joined(numbered, _answers(outcomes)).sort("row", maintain_order=True)
    unknown = scores.filter(~numbered["row"].is_in(joined["row"].unique().to_list()))
    if joined.is_empty() and scores.height:
        raise ConfidenceError(
            f"none of {scores.height:,} scores is for an answer in the run: the first is for "
            f"{place_of(scores.row(0, named=True))}, and the run's first question_id is "
            f"{shortened(outcomes['question_id'][0])}; name the column of ids with --column question_id=NAME, or the "
            "column of questions with --column question=NAME"
        )
    if row := first_row(joined, ~pl.struct(PLACE).is_first_distinct()):
        raise ConfidenceError(
            f"two scores are for the same answer ({place_of(row, PLACE)}), the second of them is score {row['row']:,}: "
            "only one of them names its prompt or id, or two texts contain the same question; remove one"
        )
    ids = pl.col("question_id")
    coverage = joined.group_by("method", maintain_order=True).agg(
        questions=ids.filter(pl.col("confidence").is_not_null()).n_unique(),
        empty=ids.n_unique() - ids.filter(pl.col("confidence").is_not_null()).n_unique(),
        of=pl.lit(outcomes["question_id"].n_unique()),
    )
    return JoinedScores(joined.select(*CONFIDENCE_SCHEMA), unknown, len(by_text), coverage)


def _answers(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return for each outcome whether the answer that counts, the first and the forced one are wrong."""
    first = pl.col("first_grade")
    forced = pl.col("forced_grade")
    refused = pl.col("refused")
    wrong = pl.col("wrong")

    def is_wrong(grade: pl.Expr) -> pl.Expr:
        return pl.when(grade.is_in(["correct", "incorrect", "refused"])).then(grade != "correct")

    return outcomes.select(
        *("question_id", "draw", "variant"),
        wrong.alias("counts"),
        # without grades by pass: a refusal is not a right answer, and any other outcome is that of the first pass
        pl.when(first.is_null()).then(refused | wrong).otherwise(is_wrong(first)).alias("first"),
        pl.when(forced.is_null()).then(pl.when(refused).then(wrong)).otherwise(is_wrong(forced)).alias("forced"),
    )


def _joined(scores: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """Return the scores whose answers are in the run, with `wrong` filled in if it is unknown."""
    draw_keys = ["question_id", "draw"]
    variant_keys = ["question_id", "draw", "variant"]
    column = pl.col("pass")
    verdicts = pl.col("counts", "first", "forced").drop_nulls()  # null if variants disagree on a shared answer
    shared = answers.group_by(draw_keys).agg(pl.when(verdicts.n_unique() == 1).then(verdicts.first()))
    every = pl.concat([answers, shared], how="diagonal").unique(variant_keys, keep="first", maintain_order=True)
    is_settled = pl.col("wrong").is_not_null() | column.eq_missing(pl.lit("probe"))
    varies = pl.col("variant").is_null() & ~is_settled & column.ne_missing(pl.lit("forced"))
    parts = (
        scores.filter(~varies).join(every, on=variant_keys, nulls_equal=True, maintain_order="left"),
        scores.filter(varies).drop("variant").join(answers, on=draw_keys, maintain_order="left_right"),
    )
    wrong = pl.when(column.is_null()).then("counts").when(column == "first").then("first").otherwise("forced")
    wrong = pl.when(is_settled).then("wrong").otherwise(wrong)
    return pl.concat(parts, how="diagonal").with_columns(wrong.alias("wrong")).select("row", *CONFIDENCE_SCHEMA)


def _ids_by_text(scores: pl.DataFrame, outcomes: pl.DataFrame) -> dict[str, str]:
    """Return the question ids for texts in place of ids: those that equal or contain exactly one question.

    If a prompt contains a question that is part of another one in it, the longer question counts.
    """
    own_ids = set(outcomes["question_id"])
    texts = [text for text in scores["question_id"].unique(maintain_order=True) if text not in own_ids]
    ids: dict[str, list[str]] = {}
    questions = outcomes.drop_nulls("question").unique("question_id", maintain_order=True)
    for question_id, question in questions.select("question_id", "question").iter_rows():
        ids.setdefault(plain_text(question), []).append(question_id)
    ids.pop("", None)
    if not ids or not texts:
        return {}
    plain = pl.Series([plain_text(text) for text in texts], dtype=pl.String)
    contained = plain.str.extract_many(list(ids), overlapping=True).list.unique(maintain_order=True)
    matched = {}
    for text, exact, candidates in zip(texts, plain.to_list(), contained.to_list(), strict=True):
        longest = [
            candidate
            for candidate in candidates
            if not any(candidate != other and candidate in other for other in candidates)
        ]
        matches = [exact] if exact in ids else longest
        if len(matches) == 1 and len(ids[matches[0]]) == 1:
            matched[text] = ids[matches[0]][0]
    return matched
