"""Confidence tables: scores of anyone's are read as one, put beside others, and joined with the answers of a run.

They come from a file or a data frame, of one's own or of UQLM's or lm-polygraph's making.

A table is long, with one score a row in a column `confidence`, or wide, with a column for each scorer that those two
packages know. Each row says which question it is about by its id, or by its text, which then stands in the place of the
id until it is matched with a run's questions. An empty score stays a row without one: it is counted, never filled in.
"""

from __future__ import annotations

import io
import math
import re
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from refusal_index.data import tables
from refusal_index.data.errors import listed, shortened, suggestion
from refusal_index.data.imports import GRADE, PARQUET, ZIP, SourceFile
from refusal_index.data.outcome import Grade
from refusal_index.data.outcome_table import (
    CONFIDENCE_SCHEMA,
    PASSES,
    PLACE,
    ConfidenceError,
    check_scores,
    first_row,
    place_of,
)
from refusal_index.data.tables import FLAG, Column, Kind, Row, Source, read_rows
from refusal_index.data.text import sound_text
from refusal_index.plugins.confidence.method import Score

ROUNDING = 1e-6
"""How far outside its range a number may lie: a cosine of single precision can be 1.0000001."""

ADVICE = (
    "if it is a log probability, give its exponential; if it is in per cent, divide it by 100; if it is an "
    "uncertainty, calibrate it first; write it as a decimal fraction, and leave the cell empty where there is no score"
)

Reading = Callable[[Any], float | None]
"""From a cell to the score that it stands for, None for an empty one; raises ValueError if it is out of range."""


def _reading(expected: str, low: float, high: float, formula: Callable[[float], float]) -> Reading:
    """Say how numbers become scores: what they must be, in words and as a range, and the formula."""
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
"""What columns of UQLM and lm-polygraph are called, by how they are read."""

_KEY = re.compile(r"\(['\"]sequence['\"], ['\"](.+)['\"]\)")
"""An estimator as lm-polygraph's own key, written down."""


def scorer_name(column: str) -> str:
    """Return what a column is called without what surrounds its name.

    >>> scorer_name("('sequence', 'PTrue')"), scorer_name("p_true")
    ('PTrue', 'p_true')
    """
    key = _KEY.fullmatch(column.strip())
    return key[1] if key else column.strip()


def reading_of(column: str, beside: Collection[str] = ()) -> Reading | None:
    """Return how a column of UQLM's or lm-polygraph's is read; None of any other, and of what is no confidence.

    - `column`: its name.
    - `beside`: all columns of the table.
    """
    name = scorer_name(column)
    if NAMES["of_a_panel"].fullmatch(name) and "judge_1" in beside:
        return READINGS["as_is"]
    return next((reading for kind, reading in READINGS.items() if NAMES[kind].fullmatch(name)), None)


def has_no_range(column: str) -> bool:
    """Tell whether a column holds an uncertainty of which no formula makes a confidence.

    >>> has_no_range("MeanTokenEntropy"), has_no_range("PTrue")
    (True, False)
    """
    return NAMES["no_range"].fullmatch(scorer_name(column)) is not None


def _exact(cell: Any) -> str | None:
    """Return a cell as one text, with the white space around it; None for an empty one."""
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
        Kind(f"one of {', '.join(PASSES)}, or nothing for the answer that counts", {one: one for one in PASSES}),
    ),
    "fold": Column(("fold",), _WHOLE),
    "wrong": _graded("wrong", ("wrong",), FLAG),
    "correct": _graded("correct", ("correct", "is_correct"), FLAG),
    "grade": _graded("grade", ("grade",), GRADE),
}
"""The columns by role, under the names that need not be pointed out."""

GRADES = ("wrong", "correct", "grade")
"""The roles that say whether the answer is wrong; one that was pointed out goes before the others."""

PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
"""How files begin that pickle wrote."""


class ReadScores(NamedTuple):
    """The scores of a table, and what is not among them."""

    scores: pl.DataFrame
    """With the columns of `CONFIDENCE_SCHEMA`. Without ids in the table, `question_id` holds the question's text."""
    left_out: tuple[str, ...]
    """Columns with uncertainties of which no formula makes a confidence."""


def read_score_table(
    data: object, *, method: str | None = None, columns: Mapping[str, str] | None = None
) -> ReadScores:
    """Read a confidence table of anyone's.

    Parameters
    ----------
    data
        The path of a CSV, JSON Lines, JSON or Parquet file, or a data frame, or dictionaries, one a row.
    method
        What to call the scores; None for what their columns say, or else the name of the file.
    columns
        Column by role, out of `ROLES`, where they have other than the usual names.

    Returns
    -------
    ReadScores

    Raises
    ------
    ConfidenceError
        If it cannot be read, a score is not what it should be, or one occurs twice; the message names the line.

    Examples
    --------
    >>> found = read_score_table([{"question_id": "q1", "score": 0.9}], method="mine", columns={"confidence": "score"})
    >>> found.scores.row(0)
    ('q1', 'mine', 0.9, None, None, 0, None, None)
    """
    given = columns or {}
    source, rows, stem = _opened(data)
    present = tables.present_columns(rows)
    found = tables.resolve_columns(source, present, given, ROLES)
    if source.kind == "csv" and CONFIDENCE_SCHEMA.keys() <= set(present):
        rows = _undone(rows)
    if not {"question_id", "question"} & found.keys():
        advice = "; say which column it is with --column question_id=NAME or question=NAME"
        raise source.lacks("a column 'question_id', or 'question' with its text", present, advice)
    scorers = _scorers(source, present, found, method or stem)
    if method is not None and len(scorers) > 1:
        raise source.wrong(
            f"expected one scorer to be called {method!r}, got {listed(one.column for one in scorers)}; choose one "
            "with --column confidence=NAME"
        )
    graded = next((role for role in (*given, *GRADES) if role in GRADES and role in found), None)
    read = {role: column for role, column in found.items() if role not in {"confidence", *GRADES} or role == graded}
    table = confidence_table(_scores(rows, read, scorers))
    methods = table["method"].unique(maintain_order=True).to_list()
    if method is not None and len(methods) > 1:
        raise source.wrong(
            f"expected scores of one method to be called {method!r}, got {listed(methods)}; leave it out"
        )
    if method is not None:
        table = table.with_columns(pl.lit(method).alias("method"))
    return ReadScores(table, () if "confidence" in found else tuple(filter(has_no_range, present)))


def _opened(data: object) -> tuple[Source, Sequence[Row], str | None]:
    """Return where rows come from, the rows, and what the file is called."""
    if not isinstance(data, str | Path):
        source = Source("the table", "memory", "score", ConfidenceError)
        return source, read_rows(source, data), None
    path = Path(data)
    content = tables.read_content(path, ConfidenceError)
    _refuse_pickle(path, content)
    if not path.name.lower().removesuffix(".gz").endswith(".json") and not content.startswith(PARQUET):
        tables.file_format(path, ConfidenceError)
    file = SourceFile(path, content)
    source = replace(file.source, holds="score", error=ConfidenceError)
    return source, read_rows(source, _document(source, file.document) if source.kind == "json" else content), file.stem


def _refuse_pickle(path: Path, content: bytes) -> None:
    """Refuse what lm-polygraph saves: a pickle may hold code, which opening it would run."""
    try:
        members = zipfile.ZipFile(io.BytesIO(content)).namelist() if content.startswith(ZIP) else []
    except zipfile.BadZipFile as error:
        raise ConfidenceError(f"{path} cannot be read as a table ({error}); check that it is complete") from error
    if content.startswith(PICKLES) or any(member.endswith("data.pkl") for member in members):
        raise ConfidenceError(
            f"{path}: expected a table, got a pickle, as lm-polygraph's UEManager.save writes them; it is not opened, "
            "as it may hold code. Where you trust it, write a table: man = UEManager.load(PATH); "
            "pandas.DataFrame({'question_id': IDS_IN_THEIR_ORDER, **{name: values for (level, name), values in "
            "man.estimations.items() if level == 'sequence'}}).to_csv('scores.csv', index=False)"
        )


def _document(source: Source, document: Any) -> list[Any]:
    """Return the rows of a JSON document: a list of objects, or columns by name, as pandas writes them."""
    if document is None:
        raise source.wrong("expected one JSON document, got something else; is it cut off?")
    if isinstance(document, dict) and isinstance(document.get("data"), dict | list):
        document = document["data"]
    if isinstance(document, list):
        return document
    cells = document.items() if isinstance(document, dict) else ()
    columns = {name: list(column.values()) if isinstance(column, dict) else column for name, column in cells}
    if not columns or not all(isinstance(column, list) for column in columns.values()):
        raise source.wrong(f"expected a list of objects, one a row, or an object of columns, got {shortened(document)}")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise source.wrong(f"expected columns of one length, got {shortened(lengths)}; write as many cells in each")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _undone(rows: Sequence[Row]) -> list[Row]:
    """Undo what makes a table of our own safe to open in a spreadsheet or to print."""
    texts = [name for name, kind in CONFIDENCE_SCHEMA.items() if kind == pl.String()]
    frame = tables.undo_safe(pl.DataFrame({name: [row.cells[name] for row in rows] for name in texts}))
    pairs = zip(rows, frame.iter_rows(named=True), strict=True)
    return [replace(row, cells={**row.cells, **cells}) for row, cells in pairs]


class _Scorer(NamedTuple):
    """A column of scores: its name, the method's, which is None where each row says it, and how it is read."""

    column: str
    method: str | None
    reading: Reading


def _scorers(source: Source, present: Sequence[str], found: Mapping[str, str], name: str | None) -> list[_Scorer]:
    """Return the columns that hold scores."""
    if "confidence" in found:
        if "method" not in found and name is None:
            raise source.wrong("expected a name for the scores; give them a column 'method', or say method=NAME")
        return [_Scorer(found["confidence"], None if "method" in found else name, READINGS["as_is"])]
    known = ((column, reading_of(column, present)) for column in present)
    scorers = [_Scorer(column, scorer_name(column), reading) for column, reading in known if reading is not None]
    unusable = [column for column in present if has_no_range(column)]
    if not scorers and unusable:
        raise source.wrong(
            f"expected scores in [0, 1], got uncertainties that no formula makes scores of ({listed(unusable)}); "
            "calibrate one on questions that are held out, as lm-polygraph's normalizers do, and name its column with "
            "--column confidence=NAME"
        )
    if not scorers:
        expected = "a column 'confidence', or scores as UQLM or lm-polygraph call them"
        advice = suggestion("confidence", present) or ";"
        raise source.lacks(expected, present, f"{advice} say which column it is with --column confidence=NAME")
    return scorers


def _scores(rows: Iterable[Row], found: Mapping[str, str], scorers: Sequence[_Scorer]) -> Iterator[Score]:
    """Yield the scores, and raise where one is about the answer of an earlier one by the same method."""
    question = "question_id" if "question_id" in found else "question"
    needed = {question: "an id" if question == "question_id" else "the text of a question"}
    if any(scorer.method is None for scorer in scorers):
        needed["method"] = "the name of a method"
    first: dict[tuple[object, ...], Row] = {}
    for row in rows:
        cells = tables.values_by_role(row, found, ROLES)
        for role, what in needed.items():
            if cells[role] is None:
                raise row.wrong(f"expected {what}, got an empty cell; give every score one", found[role])
        answer = cells["variant"], cells["draw"] or 0, cells["pass"]
        for scorer in scorers:
            asked, method = cells[question], scorer.method or cells["method"]
            confidence = Column((), scorer.reading).value(row, scorer.column, {})
            earlier = first.setdefault((asked, method, *answer), row)
            if earlier is not row:
                raise row.wrong(
                    f"the same score again (question {shortened(asked)}, method {shortened(method)}), first at "
                    f"{earlier.place}; remove one of the two, or tell answers apart in a column 'draw' (0, 1, ...), "
                    "'variant' or 'pass'"
                )
            yield Score(asked, method, confidence, _wrong_by(cells), *answer, cells["fold"])


def _wrong_by(cells: Mapping[str, Any]) -> bool | None:
    """Return whether the scored answer is wrong, as its row says; a refusal is."""
    if cells["grade"] not in (None, Grade.UNSCORED):
        return cells["grade"] is not Grade.CORRECT
    return cells["wrong"] if cells["correct"] is None else not cells["correct"]


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


def with_scores(before: pl.DataFrame | None, table: pl.DataFrame) -> pl.DataFrame:
    """Put scores beside those of other methods, in the place of what the same methods gave before."""
    if before is None:
        return table
    return pl.concat([before.filter(~pl.col("method").is_in(table["method"].unique().to_list())), table])


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
        What is left of each method, in the order of the scores: `questions` with a score, those with an `empty` one,
        and how many the run has (`of`).
    """

    scores: pl.DataFrame
    unknown: pl.DataFrame
    by_text: int
    coverage: pl.DataFrame


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
    for name in ("model", "dataset"):
        names = outcomes[name].unique(maintain_order=True).to_list()
        if len(names) > 1:
            raise ConfidenceError(f"expected outcomes of one {name}, got {listed(map(str, names))}; split them first")
    by_text = _ids_by_text(scores, outcomes)
    numbered = scores.with_columns(pl.col("question_id").replace(by_text)).with_row_index("row", 1)
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
    asked = pl.col("question_id")
    coverage = joined.group_by("method", maintain_order=True).agg(
        questions=asked.filter(pl.col("confidence").is_not_null()).n_unique(),
        empty=asked.n_unique() - asked.filter(pl.col("confidence").is_not_null()).n_unique(),
        of=pl.lit(outcomes["question_id"].n_unique()),
    )
    return JoinedScores(joined.select(*CONFIDENCE_SCHEMA), unknown, len(by_text), coverage)


def _answers(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return, of every answer, whether it is wrong by the pass that it is of."""
    first, forced = pl.col("first_grade"), pl.col("forced_grade")
    refused, wrong = pl.col("refused"), pl.col("wrong")

    def is_wrong(grade: pl.Expr) -> pl.Expr:
        return pl.when(grade.is_in(["correct", "incorrect", "refused"])).then(grade != "correct")

    return outcomes.select(
        *("question_id", "draw", "variant"),
        wrong.alias("counts"),
        # a table of the two columns alone says no less: a refusal is no right answer, and all else is the first pass's
        pl.when(first.is_null()).then(refused | wrong).otherwise(is_wrong(first)).alias("first"),
        pl.when(forced.is_null()).then(pl.when(refused).then(wrong)).otherwise(is_wrong(forced)).alias("forced"),
    )


def _joined(scores: pl.DataFrame, answers: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the scores whose answers are there, with what is known of these."""
    of_all, of_one = ["question_id", "draw"], ["question_id", "draw", "variant"]
    has_variant = pl.col("variant").is_not_null()
    is_settled = pl.col("wrong").is_not_null() | (pl.col("pass") == "probe").fill_null(value=False)
    is_shared = (pl.col("pass") == "forced").fill_null(value=False)
    yield scores.filter(is_settled, has_variant).join(answers, on=of_one, how="semi")
    yield scores.filter(is_settled, ~has_variant).join(answers, on=of_all, how="semi")
    known = pl.col("counts", "first", "forced").drop_nulls()  # null where variants differ over an answer they share
    shared = answers.group_by(of_all, maintain_order=True).agg(pl.when(known.n_unique() == 1).then(known.first()))
    named, unnamed = scores.filter(~is_settled, has_variant), scores.filter(~is_settled, ~has_variant).drop("variant")
    of = pl.col("pass")
    for found in (
        named.join(answers, on=of_one, maintain_order="left"),
        unnamed.filter(is_shared).join(
            shared.with_columns(variant=pl.lit(None, pl.String)), on=of_all, maintain_order="left"
        ),
        unnamed.filter(~is_shared).join(answers, on=of_all, maintain_order="left_right"),
    ):
        wrong = pl.when(of.is_null()).then("counts").when(of == "first").then("first").otherwise("forced")
        yield found.with_columns(wrong.alias("wrong")).select("row", *CONFIDENCE_SCHEMA)


def _ids_by_text(scores: pl.DataFrame, outcomes: pl.DataFrame) -> dict[str, str]:
    """Return the id of the question that a text in place of an id is, or as a whole prompt holds; if it is just one.

    Of questions that hold each other, a prompt that holds them all is taken for the longest.
    """
    own = set(outcomes["question_id"])
    texts = [one for one in scores["question_id"].unique(maintain_order=True) if one not in own]
    ids: dict[str, list[str]] = {}
    asked = outcomes.drop_nulls("question").unique("question_id", maintain_order=True)
    for question_id, question in asked.select("question_id", "question").iter_rows():
        ids.setdefault(_plain(question), []).append(question_id)
    ids.pop("", None)
    if not ids or not texts:
        return {}
    plain = pl.Series([_plain(one) for one in texts], dtype=pl.String)
    held = plain.str.extract_many(list(ids), overlapping=True).list.unique(maintain_order=True)
    found = {}
    for text, exact, several in zip(texts, plain.to_list(), held.to_list(), strict=True):
        longest = [one for one in several if not any(one != other and one in other for other in several)]
        meant = [exact] if exact in ids else longest
        if len(meant) == 1 and len(ids[meant[0]]) == 1:
            found[text] = ids[meant[0]][0]
    return found


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
