"""The data of a report: how each run was made, and every question.

Of the questions the page holds columns of codes and a list of texts, each text once, in the order of suspicion. Two
things are suspicious: a question that was refused though the model is right when forced, and one that it answers
wrongly in every sample under its most cautious prompt, the one that refuses most. The score of a question is the share
of its replies for which this holds.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from markupsafe import Markup

from refusal_index.data.outcome import Grade
from refusal_index.data.rates import NOT_STATED, first_draws
from refusal_index.data.run_json import ANSWERED_BY, SENT
from refusal_index.entry_points import package_version
from refusal_index.render.format import reason_text
from refusal_index.render.run_view import RunView
from refusal_index.render.sentences import sentences
from refusal_index.stats import CELL_NAMES


def facts(run: RunView) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the settings that are set, each with the names of its parts, in the order of the file, and its source."""
    # what the report shows of `about`
    values = {
        **run.run.settings,
        **{key: run.run.about[key] for key in ("versions", "price", SENT, ANSWERED_BY) if run.run.about.get(key)},
    }
    source = run.run.about.get("dataset")
    if isinstance(source, Mapping) and isinstance(values.get("dataset"), Mapping):
        values["dataset"] = {**values["dataset"], **source}
    titles = sentences()["fact"]
    for key, value in values.items():
        parts = value if isinstance(value, Mapping) else {"": value}
        shown = [(str(name).replace("_", " "), _shown(part)) for name, part in parts.items() if part is not None]
        if shown:
            yield titles.get(key, reason_text(key).capitalize()), shown
    yield "Source", [("", str(run.run.source))]
    payoffs = run.summary.analysis.payoffs
    weights = ",".join(f"{weight:g}" for weight in payoffs.truthfulness)
    level = (
        f"{run.level} intervals, p = {payoffs.weighted_score_p:g} in the weighted score, truthfulness weights {weights}"
    )
    yield "This page", [("", f"refusal-index {package_version()}, {level}")]


def prompts(run: RunView) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the text and the hash of every prompt; none where they are not known."""
    texts = run.run.about.get("prompt_set")
    if isinstance(texts, Mapping):
        for name, text in texts.items():
            yield str(name), str(text), hashlib.sha256(str(text).encode()).hexdigest()


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_shown(part) for part in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value > 9999 else str(value)


UNSCORED = len(CELL_NAMES)
"""Code of a row in none of the four cells."""

GRADES = (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED)
NOT_ASKED = len(GRADES)
"""Code of a pass that was not asked, or whose grade is unknown."""

REFUSED_RIGHT = 1
CONFIDENTLY_WRONG = 2
MISSING = 4
CELLS_DIFFER = 8
"""Bits of a question's flags; the last says that the variants put it in different cells."""

HEAD = 0.7
"""Share of the kept text taken from its beginning; the middle is cut, because answers come at the end."""

_REFUSED = pl.col("refused")
_WRONG = pl.col("wrong")


@dataclass(frozen=True)
class Cut:
    """Limits on the replies to keep."""

    limit: int  # characters of a text; 0 leaves replies out
    all_draws: bool = True  # whether to keep the replies of every draw, or of the first only


@dataclass(frozen=True)
class ReportQuestions:
    """All questions of a page, before any text is cut."""

    rows: pl.DataFrame
    questions: pl.DataFrame
    runs: tuple[dict[str, Any], ...]
    topics: tuple[str, ...]
    reasons: tuple[str, ...]
    left_out: int = 0  # questions that do not fit into the page: those on it are a random sample

    @property
    def height(self) -> int:
        """Number of questions, a question of two runs counted twice."""
        return self.questions.height


def questions_of(runs: Sequence[RunView]) -> ReportQuestions:
    """Collect the questions of all runs, the most suspicious first."""
    rows = pl.concat([_rows(number, run) for number, run in enumerate(runs)])
    cautious = {}
    for number, run in enumerate(runs):  # the variant with the highest refusal rate; the last of several
        rates = [(variant.metric("refusal_rate").estimate or 0.0, index) for index, variant in enumerate(run.variants)]
        cautious[number] = max(rates)[1]
    questions = _questions(rows, cautious)
    rows = rows.join(questions.select("run", "question_id", "question_row"), on=["run", "question_id"], how="left")
    rows = rows.sort("question_row", "variant_code", "draw", maintain_order=True)
    topics = tuple(questions["topic"].drop_nulls().unique(maintain_order=True).sort())
    reasons = tuple(rows["reason"].drop_nulls().unique(maintain_order=True).sort())
    described = tuple(
        {"label": run.run.label, "variants": list(run.names), "cautious": cautious[number]}
        for number, run in enumerate(runs)
    )
    return ReportQuestions(rows, questions, described, topics, reasons, sum(run.left_out for run in runs))


def _rows(number: int, run: RunView) -> pl.DataFrame:
    tables = [
        run.shown.filter(pl.col("variant").eq_missing(name)).with_columns(pl.lit(code, pl.Int32).alias("variant_code"))
        for code, name in enumerate(variant.variant for variant in run.variants)
    ]
    unscored = _REFUSED.is_null() | _WRONG.is_null()
    cell = pl.when(unscored).then(UNSCORED).otherwise(2 * (~_REFUSED).cast(pl.Int32) + (~_WRONG).cast(pl.Int32))
    # the grade of the first pass in tables that hold no more than what came of it
    right, incorrect, refused, ungraded = range(len(GRADES))
    answered = pl.when(_WRONG).then(incorrect).when(~_WRONG).then(right)
    return pl.concat(tables).with_columns(
        pl.lit(number, pl.Int32).alias("run"),
        cell.alias("cell"),
        _grade("first_grade", pl.when(_REFUSED).then(refused).otherwise(answered.otherwise(ungraded))).alias("first"),
        _grade("forced_grade", pl.lit(NOT_ASKED)).alias("forced"),
        pl.when(unscored).then(pl.col("unscored_reason").fill_null(NOT_STATED)).alias("reason"),
    )


def _grade(column: str, otherwise: pl.Expr) -> pl.Expr:
    codes = {grade.value: code for code, grade in enumerate(GRADES)}
    return pl.col(column).replace_strict(codes, default=otherwise, return_dtype=pl.Int32)


def _questions(rows: pl.DataFrame, cautious: dict[int, int]) -> pl.DataFrame:
    """Return one row per question with its flags, most suspicious first."""
    cell = pl.col("cell")
    variant = pl.col("variant_code")
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
        (pl.col("share_refused_right") > 0).cast(pl.Int32) * REFUSED_RIGHT
        + pl.col("confident").cast(pl.Int32) * CONFIDENTLY_WRONG
        + pl.col("missing").cast(pl.Int32) * MISSING
        + (pl.col("cells") > 1).cast(pl.Int32) * CELLS_DIFFER
    )
    wrong = pl.when("confident").then("share_answered_wrong").otherwise(0.0)
    suspicion = pl.max_horizontal("share_refused_right", wrong)
    ordered = by_question.with_columns(flags.alias("flags"), suspicion.alias("suspicion")).with_row_index("file_row")
    ordered = ordered.sort(["suspicion", "missing", "file_row"], descending=[True, True, False])
    return ordered.with_row_index("question_row")


def payload(questions: ReportQuestions, cut: Cut) -> dict[str, Any]:
    """Return the questions in the format of the page's script.

    - `questions`: the questions.
    - `cut`: how much of the texts to keep; a question and its gold answer are cut like a reply, but never left out.
    - returned: ``runs``, ``topics``, ``reasons``, ``grades``, ``cells``, ``texts`` (every text once), ``cuts`` (for
      each text that was cut, by its number, its own length and how much of the beginning is there), ``questions`` and
      ``rows`` (columns; ``questions.start`` says where the rows of each question begin), ``limit``, ``all_draws``.
    """
    rows = questions.rows
    if not (cut.limit and cut.all_draws):  # not all replies fit
        first = pl.col("draw") == pl.col("draw").min().over("question_row", "variant_code")
        keep = first if cut.limit else pl.lit(value=False)
        replies = ("first_reply", "forced_reply")
        rows = rows.with_columns(pl.when(keep).then(pl.col(name)).alias(name) for name in replies)
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
"""Largest JSON in bytes that is not compressed."""

MAX_EMBEDDED = 12_000_000
"""Largest size of the embedded data in characters: the page stays below 15 MB."""

MAX_UNCOMPRESSED = 60_000_000
"""Largest JSON in bytes that a browser parses without a noticeable delay."""

CUTS = (
    *(Cut(limit) for limit in (4000, 2000, 1000, 500, 200)),
    *(Cut(limit, all_draws=False) for limit in (500, 200)),
    Cut(0, all_draws=False),
)
"""Cuts that are tried in turn until the data fits."""

_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@dataclass(frozen=True)
class Embedded:
    """Data as it stands in the page."""

    text: Markup  # what the script element holds
    packed: bool  # whether it is gzip in base64
    cut: Cut  # what was kept of the replies
    n_cut: int  # how many texts were cut
    # questions, left_out: how many are on the page, a random sample if not all fit
    questions: int
    left_out: int


def embed_questions(questions: ReportQuestions, max_length: int = MAX_EMBEDDED) -> Embedded:
    """Embed as many replies as fit; the strictest cut is used whatever its size."""
    counted = Counter[int]()  # replies by their length, in hundreds of characters
    for name in ("first_reply", "forced_reply"):
        hundreds = questions.rows[name].drop_nulls().unique().str.len_chars() // 100 * 100
        counted.update(dict(hundreds.value_counts().iter_rows()))
    lengths = list(counted.items())
    ratio = max_length / MAX_UNCOMPRESSED
    for cut in CUTS:
        # a lower bound on the characters of the replies that are kept
        characters = sum(min(length, cut.limit) * number for length, number in lengths) if cut.all_draws else 0
        # The size under a cut is known roughly before the cut is tried, and better once another was.
        if cut is not CUTS[-1] and characters * ratio > max_length:
            continue
        content = payload(questions, cut)
        raw = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        packed = len(raw.encode()) > PLAIN_UP_TO
        if packed:  # the same data gives the same bytes: no time stamp
            zipped = gzip.compress(raw.encode(), compresslevel=6, mtime=0)
            text = Markup(base64.b64encode(zipped).decode())  # noqa: S704  letters, digits, + / = only
        else:
            text = safe_json(raw)
        if len(text) <= max_length:
            break
        ratio = max(ratio, 0.9 * len(text) / max(characters, 1)) if cut.all_draws else ratio
    return Embedded(text, packed, cut, len(content["cuts"]), questions.height, questions.left_out)


def safe_json(document: str) -> Markup:
    r"""Return JSON text that may stand in a script element, whatever its strings hold.

    >>> print(safe_json('["</script>"]'))
    ["\u003c/script\u003e"]
    """
    return Markup(document.translate(_ESCAPES))  # noqa: S704  nothing in it is left to be escaped
