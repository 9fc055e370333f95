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

from refusal_index.data.errors import listed, shortened, suggestion
from refusal_index.data.imports import GRADE, PARQUET, ZIP, SourceFile
from refusal_index.data.outcome import Grade
from refusal_index.data.outcome_table import CONFIDENCE_SCHEMA, PASSES, ConfidenceError
from refusal_index.data.tables import (
    FLAG,
    Column,
    Kind,
    Row,
    Source,
    file_format,
    present_columns,
    read_content,
    read_rows,
    resolve_columns,
    text,
    undo_safe,
    values_by_role,
)
from refusal_index.data.text import sound_text
from refusal_index.plugins.confidence.score_table import Score, confidence_table

ROUNDING = 1e-6
"""How far outside its range a number may lie: a cosine of single precision can be 1.0000001."""


@dataclass(frozen=True)
class Reading:
    """How the numbers of a column become scores: what they must be, in words and as a range, and the formula."""

    expected: str
    low: float
    high: float
    formula: Callable[[float], float]

    def __call__(self, cell: Any) -> float | None:
        """Return the score that a cell stands for, None for an empty one; raises ValueError if it is out of range.

        >>> MINUS_LOG_PROBABILITY(0.0), AS_IS("0.5"), AS_IS("")
        (1.0, 0.5, None)
        """
        number = Kind(self.expected, advice=ADVICE, low=self.low - ROUNDING, high=self.high + ROUNDING)(cell)
        return None if number is None else self.formula(min(max(number, self.low), self.high))


ADVICE = (
    "if it is a log probability, give its exponential; if it is in per cent, divide it by 100; if it is an "
    "uncertainty, calibrate it first; write it as a decimal fraction, and leave the cell empty where there is no score"
)
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


def _exact(cell: Any) -> str | None:
    """Return a cell as one text, with the white space around it; None for an empty one."""
    return None if text(cell) is None else sound_text(str(cell))


def _graded(role: str, names: tuple[str, ...], kind: Kind) -> Column:
    return Column(names, replace(kind, advice=f"say which column it is with --column {role}=NAME"))


_WHOLE = Kind("a whole number from 0", low=0, is_whole=True)

ROLES: Mapping[str, Column] = {
    "question_id": Column(("question_id", "id", "qid", "uuid"), _exact),
    "question": Column(("question", "problem", "query", "prompt", "prompts", "input_text", "input_texts"), _exact),
    "confidence": Column(("confidence",), AS_IS),
    "method": Column(("method",), _exact),
    "variant": Column(("variant",), _exact),
    "draw": Column(("draw",), _WHOLE),
    "pass": Column(
        ("pass",),
        Kind(
            f"one of {', '.join(PASSES)}, or nothing for the answer that counts", dict(zip(PASSES, PASSES, strict=True))
        ),
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
        If it cannot be read, a score is not what it should be, or one occurs twice; the message names the line.

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
    if not {"question_id", "question"} & found.keys():
        advice = "; say which column it is with --column question_id=NAME or question=NAME"
        raise source.lacks("a column 'question_id', or 'question' with its text", present, advice)
    scorers = _scorers(source, present, found, method or stem)
    if method is not None and len(scorers) > 1:
        named = listed(scorer.column for scorer in scorers)
        raise source.wrong(
            f"expected one scorer to be called {method!r}, got {named}; choose one with --column confidence=NAME"
        )
    graded = next((role for role in (*given, *GRADES) if role in GRADES and role in found), None)
    read = {role: column for role, column in found.items() if role not in {"confidence", *GRADES} or role == graded}
    table = confidence_table(_each_once(_scores(rows, read, scorers)))
    if method is not None:
        methods = table["method"].unique(maintain_order=True).to_list()
        if len(methods) > 1:
            raise source.wrong(
                f"expected scores of one method to be called {method!r}, got {listed(methods)}; leave it out"
            )
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


def _scores(rows: Iterable[Row], found: Mapping[str, str], scorers: Sequence[_Scorer]) -> Iterator[tuple[Row, Score]]:
    question = "question_id" if "question_id" in found else "question"
    needed = {question: "an id" if question == "question_id" else "the text of a question"}
    if any(scorer.method is None for scorer in scorers):
        needed["method"] = "the name of a method"
    for row in rows:
        cells = values_by_role(row, found, ROLES)
        for role, what in needed.items():
            if cells[role] is None:
                raise row.wrong(f"expected {what}, got an empty cell; give every score one", found[role])
        of_answer = _is_wrong(cells), cells["variant"], cells["draw"] or 0, cells["pass"], cells["fold"]
        for scorer in scorers:
            confidence = Column((), scorer.reading).value(row, scorer.column, {})
            yield row, Score(cells[question], scorer.method or cells["method"], confidence, *of_answer)


def _is_wrong(cells: Mapping[str, Any]) -> bool | None:
    """Return whether the scored answer is wrong, as its row says; a refusal is."""
    if cells["grade"] not in (None, Grade.UNSCORED):
        return cells["grade"] is not Grade.CORRECT
    return cells["wrong"] if cells["correct"] is None else not cells["correct"]


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
