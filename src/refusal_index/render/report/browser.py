"""What the page holds of every question: columns of codes and a list of texts, each text once.

Questions come in the order of suspicion. Two things are suspicious: a question that was refused though the model is
right when forced, and one that it answers wrongly however often it is asked under its most cautious prompt, the one
that refuses most. How suspicious is the share of all that question's replies of which this holds.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from markupsafe import Markup

from refusal_index.data.outcome import Grade
from refusal_index.data.rates import NOT_STATED, first_draws
from refusal_index.render.report.runs import ReportRun
from refusal_index.stats import CELL_NAMES

UNSCORED = len(CELL_NAMES)
"""Code of a row in none of the four cells."""

GRADES = (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED)
NOT_ASKED = len(GRADES)
"""Code of a pass that was not asked, or whose grade is not told."""

REFUSED_THOUGH_RIGHT, CONFIDENTLY_WRONG, MISSING, DIVIDED = 1, 2, 4, 8
"""Bits of a question's flags; the last says that the variants put it in different cells."""

HEAD = 0.7
"""Share of the room that the beginning of a text gets where its middle is cut out: answers stand at the end."""

_REFUSED, _WRONG = pl.col("refused"), pl.col("wrong")


@dataclass(frozen=True)
class Cut:
    """How much of the replies to keep."""

    limit: int  # characters of a text; 0 leaves replies out
    all_draws: bool = True  # whether to keep the replies of every draw, or of the first only


@dataclass(frozen=True)
class Questions:
    """All questions of a page, before any text is cut."""

    rows: pl.DataFrame
    questions: pl.DataFrame
    runs: tuple[dict[str, Any], ...]
    topics: tuple[str, ...]
    reasons: tuple[str, ...]
    left_out: int = 0  # questions that the page has no room for: those on it are a random sample

    @property
    def height(self) -> int:
        """Number of questions, a question of two runs counted twice."""
        return self.questions.height


def questions_of(runs: Sequence[ReportRun]) -> Questions:
    """Collect the questions of all runs, the most suspicious first."""
    rows = pl.concat([_rows(number, run) for number, run in enumerate(runs)])
    cautious = {number: most_cautious(run) for number, run in enumerate(runs)}
    questions = _questions(rows, cautious)
    rows = rows.join(questions.select("run", "question_id", "question_row"), on=["run", "question_id"], how="left")
    rows = rows.sort("question_row", "variant_code", "draw", maintain_order=True)
    topics = tuple(questions["topic"].drop_nulls().unique(maintain_order=True).sort())
    reasons = tuple(rows["reason"].drop_nulls().unique(maintain_order=True).sort())
    described = tuple(
        {"label": run.run.label, "variants": list(run.names), "cautious": cautious[number]}
        for number, run in enumerate(runs)
    )
    return Questions(rows, questions, described, topics, reasons, sum(run.left_out for run in runs))


def most_cautious(run: ReportRun) -> int:
    """Return which variant refuses most; of several the last."""
    rates = [variant.metric("refusal_rate").estimate or 0.0 for variant in run.variants]
    return max(range(len(rates)), key=lambda place: (rates[place], place))


def _rows(number: int, run: ReportRun) -> pl.DataFrame:
    tables = [
        run.shown.filter(pl.col("variant").eq_missing(name)).with_columns(pl.lit(place, pl.Int32).alias("variant_code"))
        for place, name in enumerate(run.run.variants)
    ]
    unscored = _REFUSED.is_null() | _WRONG.is_null()
    cell = pl.when(unscored).then(UNSCORED).otherwise(2 * (~_REFUSED).cast(pl.Int32) + (~_WRONG).cast(pl.Int32))
    return pl.concat(tables).with_columns(
        pl.lit(number, pl.Int32).alias("run"),
        cell.alias("cell"),
        _grade("first_grade", _first_grade()).alias("first"),
        _grade("forced_grade", pl.lit(NOT_ASKED)).alias("forced"),
        pl.when(unscored).then(pl.col("unscored_reason").fill_null(NOT_STATED)).alias("reason"),
    )


def _grade(column: str, otherwise: pl.Expr) -> pl.Expr:
    codes = {grade.value: code for code, grade in enumerate(GRADES)}
    return pl.col(column).replace_strict(codes, default=otherwise, return_dtype=pl.Int32)


def _first_grade() -> pl.Expr:
    """Tell the grade of the first pass in tables that hold no more than what came of it."""
    refused, wrong = GRADES.index(Grade.REFUSED), GRADES.index(Grade.INCORRECT)
    answered = pl.when(_WRONG).then(wrong).when(~_WRONG).then(GRADES.index(Grade.CORRECT))
    return pl.when(_REFUSED).then(refused).otherwise(answered.otherwise(GRADES.index(Grade.UNSCORED)))


def _questions(rows: pl.DataFrame, cautious: dict[int, int]) -> pl.DataFrame:
    """Make one row a question with its flags, in the order of suspicion."""
    cell, variant = pl.col("cell"), pl.col("variant_code")
    answered_wrong, refused_right = (cell == CELL_NAMES.index(name) for name in ("answered_wrong", "refused_right"))
    at_most_cautious = variant == pl.col("run").replace_strict(cautious, return_dtype=pl.Int32)
    first = first_draws(rows).group_by("run", "question_id").agg(cell.n_unique().alias("cells"))
    by_question = rows.group_by("run", "question_id", maintain_order=True).agg(
        *(pl.col(name).drop_nulls().first() for name in ("topic", "question", "gold")),
        refused_right.mean().alias("share_refused_right"),
        answered_wrong.mean().alias("share_answered_wrong"),
        (answered_wrong | ~at_most_cautious).all().and_(at_most_cautious.any()).alias("confident"),
        (cell == UNSCORED).any().alias("missing"),
    )
    by_question = by_question.join(first, on=["run", "question_id"], how="left", maintain_order="left")
    flags = (
        (pl.col("share_refused_right") > 0).cast(pl.Int32) * REFUSED_THOUGH_RIGHT
        + pl.col("confident").cast(pl.Int32) * CONFIDENTLY_WRONG
        + pl.col("missing").cast(pl.Int32) * MISSING
        + (pl.col("cells") > 1).cast(pl.Int32) * DIVIDED
    )
    wrong = pl.when("confident").then("share_answered_wrong").otherwise(0.0)
    suspicion = pl.max_horizontal("share_refused_right", wrong)
    ordered = by_question.with_columns(flags.alias("flags"), suspicion.alias("suspicion")).with_row_index("file_row")
    ordered = ordered.sort(["suspicion", "missing", "file_row"], descending=[True, True, False])
    return ordered.with_row_index("question_row")


def payload(questions: Questions, cut: Cut) -> dict[str, Any]:
    """Give the questions as the page's script takes them.

    - `questions`: the questions.
    - `cut`: how much of the texts to keep; a question and its gold answer are cut like a reply, but never left out.
    - returned: ``runs``, ``topics``, ``reasons``, ``grades``, ``cells``, ``texts`` (every text once), ``cuts`` (for
      each text that was cut, by its number, its own length and how much of the beginning is there), ``questions`` and
      ``rows`` (columns; ``questions.start`` says where the rows of each question begin), ``limit``, ``all_draws``.
    """
    rows = _without_replies(questions.rows, cut)
    long = questions.questions.select("question", "gold"), rows.select("first_reply", "forced_reply")
    full = pl.concat([frame[name].alias("text") for frame in long for name in frame.columns]).drop_nulls()
    texts = pl.DataFrame({"text": full.unique(maintain_order=True)}).with_row_index("number")
    start = rows["question_row"].value_counts().sort("question_row")["count"].cum_sum()
    return {
        "runs": list(questions.runs),
        "topics": list(questions.topics),
        "reasons": list(questions.reasons),
        **_cut_texts(texts["text"], max(cut.limit, 200)),
        "questions": {
            "run": questions.questions["run"].to_list(),
            "id": questions.questions["question_id"].to_list(),
            "topic": _places(questions.questions["topic"], questions.topics),
            "text": _numbers(questions.questions["question"], texts),
            "gold": _numbers(questions.questions["gold"], texts),
            "flags": questions.questions["flags"].to_list(),
            "order": questions.questions["file_row"].to_list(),
            "start": [0, *start.to_list()],
        },
        "rows": {
            "variant": rows["variant_code"].to_list(),
            "draw": rows["draw"].to_list(),
            "cell": rows["cell"].to_list(),
            "first": rows["first"].to_list(),
            "forced": rows["forced"].to_list(),
            "reason": _places(rows["reason"], questions.reasons),
            "firstReply": _numbers(rows["first_reply"], texts),
            "forcedReply": _numbers(rows["forced_reply"], texts),
        },
        "limit": cut.limit,
        "allDraws": cut.all_draws,
    }


def _without_replies(rows: pl.DataFrame, cut: Cut) -> pl.DataFrame:
    """Take away the replies that the page has no room for."""
    if cut.limit and cut.all_draws:
        return rows
    first = pl.col("draw") == pl.col("draw").min().over("question_row", "variant_code")
    keep = first if cut.limit else pl.lit(value=False)
    return rows.with_columns(pl.when(keep).then(pl.col(name)).alias(name) for name in ("first_reply", "forced_reply"))


def _cut_texts(texts: pl.Series, limit: int) -> dict[str, Any]:
    """Cut the middle out of long texts."""
    head = int(limit * HEAD)
    length = texts.str.len_chars()
    text = pl.col("text")
    cut = pl.DataFrame({"text": texts, "length": length}).with_columns(
        shown=pl.when(pl.col("length") > limit)
        .then(pl.concat_str(text.str.head(head), text.str.tail(limit - head)))
        .otherwise(text)
    )
    long = cut.with_row_index("number").filter(pl.col("length") > limit)
    cuts = {str(number): [length, head] for number, length in long.select("number", "length").iter_rows()}
    return {"texts": cut["shown"].to_list(), "cuts": cuts}


def _numbers(column: pl.Series, texts: pl.DataFrame) -> list[int]:
    """Return the number of each text, -1 where there is none."""
    frame = pl.DataFrame({"text": column})
    numbers = frame.join(texts, on="text", how="left", maintain_order="left")["number"]
    return numbers.cast(pl.Int64).fill_null(-1).to_list()


def _places(column: pl.Series, names: Sequence[str]) -> list[int]:
    return column.replace_strict(list(names), list(range(len(names))), default=-1, return_dtype=pl.Int64).to_list()


PLAIN_UP_TO = 300_000
"""Bytes of JSON that are left as they are."""

ROOM = 12_000_000
"""Characters that the data may take: the page stays below 15 MB."""

RAW_ROOM = 60_000_000
"""Bytes of JSON that a browser reads without a pause worth mentioning."""

LADDER = (
    *(Cut(limit) for limit in (4000, 2000, 1000, 500, 200)),
    *(Cut(limit, all_draws=False) for limit in (500, 200)),
    Cut(0, all_draws=False),
)
"""What is tried in turn until the data fits."""

_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@dataclass(frozen=True)
class Embedded:
    """Data as it stands in the page."""

    text: Markup  # what the script element holds
    packed: bool  # whether it is gzip in base64
    cut: Cut  # what was kept of the replies
    n_cut: int  # how many texts were cut
    # questions, left_out: how many are on the page, a random sample where it has no room for others
    questions: int = 0
    left_out: int = 0


def embed_questions(questions: Questions, room: int = ROOM) -> Embedded:
    """Embed as much of the questions' replies as there is room for; the last rung is taken whatever its size."""
    lengths, ratio = _lengths_of_replies(questions), room / RAW_ROOM
    for cut in LADDER:
        # What a rung would take is known roughly before it is tried, and better after another was.
        if cut is not LADDER[-1] and _characters(lengths, cut) * ratio > room:
            continue
        embedded = _embed(payload(questions, cut), cut)
        if len(embedded.text) <= room:
            break
        ratio = max(ratio, 0.9 * len(embedded.text) / max(_characters(lengths, cut), 1)) if cut.all_draws else ratio
    return replace(embedded, questions=questions.height, left_out=questions.left_out)


def _lengths_of_replies(questions: Questions) -> list[tuple[int, int]]:
    """Return length and number of the replies, grouped by hundreds of characters."""
    counted: dict[int, int] = {}
    for name in ("first_reply", "forced_reply"):
        lengths = questions.rows[name].drop_nulls().unique().str.len_chars() // 100 * 100
        for length, times in lengths.value_counts().iter_rows():
            counted[length] = counted.get(length, 0) + times
    return list(counted.items())


def _characters(lengths: list[tuple[int, int]], cut: Cut) -> int:
    """Return at least how many characters of replies a rung keeps."""
    return sum(min(length, cut.limit) * number for length, number in lengths) if cut.all_draws else 0


def _embed(content: dict[str, Any], cut: Cut) -> Embedded:
    raw = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    n_cut = len(content["cuts"])
    encoded = raw.encode()
    if len(encoded) <= PLAIN_UP_TO:
        return Embedded(safe_json(raw), packed=False, cut=cut, n_cut=n_cut)
    # The same data gives the same bytes: no time stamp.
    packed = base64.b64encode(gzip.compress(encoded, compresslevel=6, mtime=0)).decode()
    return Embedded(Markup(packed), packed=True, cut=cut, n_cut=n_cut)  # noqa: S704  letters, digits, + / = only


def safe_json(document: str) -> Markup:
    r"""Return JSON text that may stand in a script element, whatever its strings hold.

    >>> print(safe_json('["</script>"]'))
    ["\u003c/script\u003e"]
    """
    return Markup(document.translate(_ESCAPES))  # noqa: S704  nothing in it is left to be escaped
