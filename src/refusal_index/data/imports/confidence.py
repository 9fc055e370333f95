"""Scores of anyone's as a confidence table: a file or a data frame, of one's own or of UQLM's or lm-polygraph's making.

A table is long, with one score a row in a column `confidence`, or wide, with a column for each scorer that those two
packages know. Each row says which question it is about by its id, or by its text, which then stands in the place of the
id until it is matched with a run's questions. An empty score stays a row without one: it is counted, never filled in.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.confidence import CONFIDENCE_SCHEMA, PASSES, ConfidenceError, Score, confidence_table
from refusal_index.data.errors import listed, shortened, suggestion
from refusal_index.data.imports.first_pass import FirstPassError
from refusal_index.data.imports.graded import GRADED, flag, read_grade
from refusal_index.data.imports.source import PARQUET, ZIP, SourceFile
from refusal_index.data.outcome import Grade
from refusal_index.data.tables import (
    NOTHING,
    Names,
    Row,
    Source,
    file_format,
    present_columns,
    read_content,
    read_rows,
    resolve_columns,
    undo_safe,
)
from refusal_index.data.text import sound_text

ROUNDING = 1e-6
"""How far outside its range a number may lie: a cosine of single precision can be 1.0000001."""


@dataclass(frozen=True)
class Reading:
    """How the numbers of a column become scores: what they must be, in words and as a range, and the formula."""

    expected: str
    low: float
    high: float
    formula: Callable[[float], float]

    def confidence(self, number: float) -> float | None:
        """Return the score that a number stands for; None where it is out of range.

        >>> MINUS_LOG_PROBABILITY.confidence(0.0), AS_IS.confidence(87.0)
        (1.0, None)
        """
        if not self.low - ROUNDING <= number <= self.high + ROUNDING:
            return None
        return self.formula(min(max(number, self.low), self.high))


AS_IS = Reading("a number in [0, 1]", 0, 1, lambda number: number)
ONE_LESS = Reading("an uncertainty in [0, 1]", 0, 1, lambda number: 1 - number)
NEGATIVE = Reading("the negative of a number in [0, 1]", -1, 0, lambda number: 0.0 - number)
MINUS_LOG_PROBABILITY = Reading(
    "the negative of a log probability, from 0", 0, math.inf, lambda number: math.exp(-number)
)

UQLM = re.compile(
    "(calibrated_)?("
    "semantic_negentropy|noncontradiction|exact_match|cosine_sim|bert_score|entailment|contrasted_entailment"
    "|semantic_sets_confidence|(sequence|normalized|min|monte_carlo)_probability|(min|mean)_token_negentropy"
    "|probability_margin|consistency_and_confidence|semantic_density|p_true|verbalized_confidence|code_bleu"
    "|functional_(equivalence_rate|negentropy|negentropy_whitebox|sets_confidence)"
    r"|(discrete|tokenprob)_confidence_scores?|semantic_density_values?|ensemble_scores?|judge_\d+)"
)
"""Names of UQLM's scores."""

OF_A_PANEL = ("avg", "max", "min", "median")
"""Names of UQLM's scores by several judges, beside those of each: on their own they may be anything."""

POLYGRAPH: tuple[tuple[re.Pattern[str], Reading], ...] = (
    (re.compile(r"PTrueEmpirical|LabelProb|LUQ|(Verbalized1S|Verbalized2S|Linguistic1S|DegMat_).*"), ONE_LESS),
    (re.compile(r"LexicalSimilarity_.*|SemanticDensity(Output)?|CCP"), NEGATIVE),
    (re.compile("MaximumSequenceProbability|Perplexity|PTrue|PTrueSampling"), MINUS_LOG_PROBABILITY),
)
"""Names of lm-polygraph's estimators that are probabilities, shares or similarities, and how they are read."""

NO_RANGE = re.compile(
    "(discrete|tokenprob)_entropy_values?|num_semantic_sets?"
    "|(Mean)?TokenEntropy|MonteCarlo(Normalized)?SequenceEntropy|SemanticEntropy.*|KernelLanguageEntropy|RenyiNeg"
    "|FisherRao|SelfCertainty|(Mean)?(Conditional)?PointwiseMutualInformation|(Sentence|Token)?SAR|Cocoa(MSP|PPL|MTE)"
    "|CSL|BoostedProbSequence|AttentionScore .*|RAUQ.*|Focus .*|EigenScore|NumSemSets|(EigValLaplacian|Eccentricity)_.*"
    "|(Relative)?MahalanobisDistanceSeq_.*|RDESeq_.*|PPLR?MDSeq_.*|(EPS|PES|EPT|PET)[a-z]+[0-9]*"
)
"""Names of what both give that no formula makes a confidence of."""

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
    if UQLM.fullmatch(name) or (name in OF_A_PANEL and "judge_1" in beside):
        return AS_IS
    return next((reading for names, reading in POLYGRAPH if names.fullmatch(name)), None)


def has_no_range(column: str) -> bool:
    """Tell whether a column holds an uncertainty of which no formula makes a confidence.

    >>> has_no_range("MeanTokenEntropy"), has_no_range("PTrue")
    (True, False)
    """
    return NO_RANGE.fullmatch(scorer_name(column)) is not None


HOLDS = "score"

ROLES: Names = {
    "question_id": ("question_id", "id", "qid", "uuid"),
    "question": ("question", "problem", "query", "prompt", "prompts", "input_text", "input_texts"),
    "confidence": ("confidence",),
    "method": ("method",),
    "variant": ("variant",),
    "draw": ("draw",),
    "pass": ("pass",),
    "fold": ("fold",),
    "wrong": ("wrong",),
    "correct": ("correct", "is_correct"),
    "grade": ("grade",),
}
"""Column names, in any case, that need not be pointed out; the first that is there counts."""

GRADES = ("wrong", "correct", "grade")
"""The roles that say whether the answer is wrong; one that was pointed out goes before the others."""

PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
"""How files begin that pickle wrote."""


@dataclass(frozen=True)
class ReadScores:
    """The scores of a table.

    Attributes
    ----------
    scores
        With the columns of `CONFIDENCE_SCHEMA`. Where the table has no ids, `question_id` holds the question's text.
    left_out
        Columns with uncertainties of which no formula makes a confidence.
    """

    scores: pl.DataFrame
    left_out: tuple[str, ...]


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
        If it cannot be read, a score is not what it should be, or one is there twice; the message names the line.

    Examples
    --------
    >>> found = read_score_table([{"question_id": "q1", "score": 0.9}], method="mine", columns={"confidence": "score"})
    >>> found.scores.row(0)
    ('q1', 'mine', 0.9, None, None, 0, None, None)
    """
    given = columns or {}
    source, rows, stem = _opened(data)
    present = present_columns(rows)
    found = resolve_columns(source, present, given, ROLES)
    if source.kind == "csv" and CONFIDENCE_SCHEMA.keys() <= set(present):
        rows = _undone(rows)
    cells = _Columns(found, next((role for role in (*given, *GRADES) if role in GRADES and role in found), None))
    _refuse_unnamed_questions(source, present, found)
    scorers = _scorers(source, present, found, method or stem)
    if method is not None and len(scorers) > 1:
        named = listed(scorer.column for scorer in scorers)
        raise source.wrong(
            f"expected one scorer to be called {method!r}, got {named}; choose one with --column confidence=NAME"
        )
    table = confidence_table(_each_once(_scores(rows, cells, scorers)))
    if method is not None:
        _refuse_several(source, table, method)
        table = table.with_columns(pl.lit(method).alias("method"))
    return ReadScores(table, () if "confidence" in found else tuple(filter(has_no_range, present)))


def _opened(data: object) -> tuple[Source, Sequence[Row], str | None]:
    """Return where rows come from, the rows, and what the file is called."""
    if not isinstance(data, str | Path):
        source = Source("the table", "memory", HOLDS, ConfidenceError)
        return source, read_rows(source, data), None
    path = Path(data)
    content = read_content(path, ConfidenceError)
    _refuse_pickle(path, content)
    if not path.name.lower().removesuffix(".gz").endswith(".json") and not content.startswith(PARQUET):
        file_format(path, ConfidenceError)
    file = SourceFile(path, content)
    source = replace(file.source, holds=HOLDS, error=ConfidenceError)
    return source, read_rows(source, _document(source, file.document) if source.kind == "json" else content), file.stem


def _refuse_pickle(path: Path, content: bytes) -> None:
    """Refuse what lm-polygraph saves: a pickle may hold code, which opening it would run."""
    members: list[str] = []
    if content.startswith(ZIP):
        try:
            members = zipfile.ZipFile(io.BytesIO(content)).namelist()
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
    columns = {
        name: list(cells.values()) if isinstance(cells, dict) else cells
        for name, cells in (document.items() if isinstance(document, dict) else ())
    }
    if not columns or not all(isinstance(cells, list) for cells in columns.values()):
        raise source.wrong(f"expected a list of objects, one a row, or an object of columns, got {shortened(document)}")
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        raise source.wrong(f"expected columns of one length, got {shortened(lengths)}; write as many cells in each")
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _undone(rows: Sequence[Row]) -> list[Row]:
    """Undo what makes a table of our own safe to open in a spreadsheet or to print."""
    texts = [name for name, kind in CONFIDENCE_SCHEMA.items() if kind == pl.String()]
    frame = undo_safe(pl.DataFrame({name: [row.cells[name] for row in rows] for name in texts}))
    pairs = zip(rows, frame.iter_rows(named=True), strict=True)
    return [replace(row, cells={**row.cells, **cells}) for row, cells in pairs]


@dataclass(frozen=True)
class _Scorer:
    """A column of scores: its name, the method's, which is None where each row says it, and how it is read."""

    column: str
    method: str | None
    reading: Reading


def _scorers(source: Source, present: Sequence[str], found: Mapping[str, str], name: str | None) -> list[_Scorer]:
    """Return the columns that hold scores."""
    if "confidence" in found:
        if "method" not in found and name is None:
            raise source.wrong("expected a name for the scores; give them a column 'method', or say method=NAME")
        return [_Scorer(found["confidence"], None if "method" in found else name, AS_IS)]
    known = [(column, reading_of(column, present)) for column in present]
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


def _refuse_unnamed_questions(source: Source, present: Sequence[str], found: Mapping[str, str]) -> None:
    if not {"question_id", "question"} & found.keys():
        advice = "; say which column it is with --column question_id=NAME or question=NAME"
        raise source.lacks("a column 'question_id', or 'question' with its text", present, advice)


def _refuse_several(source: Source, table: pl.DataFrame, name: str) -> None:
    methods = table["method"].unique(maintain_order=True).to_list()
    if len(methods) > 1:
        raise source.wrong(f"expected scores of one method to be called {name!r}, got {listed(methods)}; leave it out")


@dataclass(frozen=True)
class _Columns:
    """Where the cells of a row are: column by role, and the role that grades the answer, if any does."""

    found: Mapping[str, str]
    graded: str | None

    def cell(self, row: Row, role: str) -> Any:
        """Return a cell, None where it is empty or there is no such column."""
        value = row.cells.get(self.found[role]) if role in self.found else None
        if isinstance(value, float) and math.isnan(value):
            return None
        return None if isinstance(value, str) and not value.strip() else value

    def text(self, row: Row, role: str) -> str | None:
        """Return a cell as text."""
        value = self.cell(row, role)
        if isinstance(value, list | dict):
            raise row.wrong(f"expected one text, got {shortened(value)}", self.found[role])
        return None if value is None else sound_text(str(value))

    def needed(self, row: Row, role: str, what: str) -> str:
        """Return a cell as text that must be there."""
        found = self.text(row, role)
        if found is None:
            raise row.wrong(f"expected {what}, got an empty cell; give every score one", self.found[role])
        return found

    def whole(self, row: Row, role: str) -> int | None:
        """Return a cell as a whole number from 0."""
        text = self.text(row, role)
        if text is None or text.strip().lower() in NOTHING:
            return None
        digits = text.strip().removesuffix(".0")
        if not (digits.isascii() and digits.isdecimal()):
            raise row.wrong(f"expected a whole number from 0, got {shortened(text)}", self.found[role])
        return int(digits)

    def of(self, row: Row) -> str | None:
        """Return the pass whose answer is scored."""
        text = self.text(row, "pass")
        word = None if text is None else text.strip().lower()
        if word is None or word in NOTHING:
            return None
        if word not in PASSES:
            expected = f"expected one of {', '.join(PASSES)}, or nothing for the answer that counts"
            raise row.wrong(f"{expected}, got {shortened(text)}{suggestion(word, PASSES)}", self.found["pass"])
        return word

    def wrong(self, row: Row) -> bool | None:
        """Return whether the scored answer is wrong, as the table itself says; a refusal is."""
        if self.graded is None:
            return None
        value, place = self.cell(row, self.graded), f"{row.place}, column {self.found[self.graded]!r}"
        try:
            if self.graded == "grade":
                grade = read_grade(value, GRADED, place)
                return None if grade in (None, Grade.UNSCORED) else grade is not Grade.CORRECT
            said = flag(value, place)
        except FirstPassError as error:
            raise ConfidenceError(f"{error}; say which column it is with --column {self.graded}=NAME") from None
        return said if said is None or self.graded == "wrong" else not said


def _scores(rows: Iterable[Row], cells: _Columns, scorers: Sequence[_Scorer]) -> Iterator[tuple[Row, Score]]:
    for row in rows:
        named = "question_id" if "question_id" in cells.found else "question"
        question_id = cells.needed(row, named, "an id" if named == "question_id" else "the text of a question")
        wrong, variant, of = cells.wrong(row), cells.text(row, "variant"), cells.of(row)
        draw, fold = cells.whole(row, "draw") or 0, cells.whole(row, "fold")
        for scorer in scorers:
            method = scorer.method or cells.needed(row, "method", "the name of a method")
            yield row, Score(question_id, method, _confidence(row, scorer), wrong, variant, draw, of, fold)


def _confidence(row: Row, scorer: _Scorer) -> float | None:
    """Return the score of a row; None where the cell is empty."""
    value = row.cells.get(scorer.column)
    if _is_empty(value):
        return None
    number = _number(value)
    found = None if number is None else scorer.reading.confidence(number)
    if found is None:
        said = f"expected {scorer.reading.expected}, got {shortened(value)}; {_likely(number)}"
        raise row.wrong(said, scorer.column)
    return found


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in NOTHING
    return value is None or (isinstance(value, float) and math.isnan(value))


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _likely(number: float | None) -> str:
    """Say what was probably written in the place of a score."""
    if number is None:
        return "write it as a decimal fraction, or leave the cell empty where there is no score"
    if number > 1:
        return "if it is in per cent, divide it by 100"
    return "if it is a log probability, give its exponential; if it is an uncertainty, calibrate it first"


def _each_once(scores: Iterable[tuple[Row, Score]]) -> Iterator[Score]:
    """Yield the scores, and raise where one is about the answer of an earlier one by the same method."""
    first: dict[tuple[object, ...], Row] = {}
    for row, score in scores:
        earlier = first.setdefault((score.question_id, score.method, score.variant, score.draw, score.of), row)
        if earlier is not row:
            raise row.wrong(
                f"the same score again (question {shortened(score.question_id)}, method {shortened(score.method)}), "
                f"first at {earlier.place}; remove one of the two, or tell answers apart in a column 'draw' (0, 1, "
                "...), 'variant' or 'pass'"
            )
        yield score
