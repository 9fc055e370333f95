"""A summary as JSON, as numbers by name, and as text: a first screen of 80 columns, and every metric and caveat.

The first screen has RI on a scale, the rates people act on, and serious caveats. In a notebook a run shows
every metric in a table, and a plot of correct rate against refusal rate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import accumulate
from textwrap import wrap
from typing import Any

from refusal_index.data.files import plain
from refusal_index.data.rates import BY_ANSWERABLE
from refusal_index.findings.conclusions import (
    indices,
    joint,
    missing_answers,
    summary_caveats,
    usage,
    variant_statements,
)
from refusal_index.findings.draws import DrawsSummary
from refusal_index.findings.headline import refused_by_answerable, verdict
from refusal_index.findings.labels import GradeChanges
from refusal_index.findings.metric_table import POOLED, UNNAMED
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS, Metric, Statement
from refusal_index.findings.sections import registered_sections
from refusal_index.findings.summary import Summary, VariantSummary, is_complete
from refusal_index.findings.tallies import COUNTS, FIRST_PASS_METRICS, Tally
from refusal_index.render.format import (
    NOT_KNOWN,
    UNDEFINED,
    Block,
    Definitions,
    Table,
    abbreviated,
    count,
    interval_of,
    number,
    percent,
    percent_with_interval,
    span,
    title,
    with_interval,
)
from refusal_index.render.format import estimate as estimate_text
from refusal_index.render.sentences import caveat_line, description, paragraphs, phrase, sentence, sentences
from refusal_index.stats import Estimate, RankedRun

SUMMARY_VERSION = 4
"""Version of the JSON document."""


def summary_document(summary: Summary) -> dict[str, Any]:
    """Return the summary as a JSON-serialisable dictionary: floats unrounded, None for undefined numbers."""
    pooled = plain(summary.pooled)
    for document in pooled:
        document[INDEX]["standard_error"] = document.pop("standard_error")
    return {
        "summary_version": SUMMARY_VERSION,
        "complete": is_complete(summary),
        "confidence_level": summary.analysis.confidence_level,
        "weighted_score_p": summary.analysis.payoffs.weighted_score_p,
        "truthfulness_weights": list(summary.analysis.payoffs.truthfulness),
        **summary.prices.to_document(),
        "variants": [
            {
                **plain(variant),
                "caveats": [{**plain(item), "message": sentence(item)} for item in variant.caveats],
                "status": variant.status,
                "n": variant.table.n,
                "metrics": {item.name: {**item.to_document(), "method": item.method} for item in variant.metrics},
            }
            for variant in summary.variants
        ],
        "pooled": pooled,
        **{name: plain(section) for name, section in summary.sections.items()},
    }


TRANSPARENT = ("variants", "metrics", "estimate")
"""Levels of a summary that are omitted from names: an estimate has the name of its metric."""

IDENTIFYING = ("variant", "method", "pass", "name", "rule", "family", "code")
"""Keys that identify the items of a list."""

UNSAFE = re.compile(r"[^A-Za-z0-9_. -]+")
"""Characters that some experiment tracker refuses in a name; the slash separates levels."""

MAX_NAME_PART = 60


def numbers(document: Mapping[str, Any]) -> dict[str, float]:
    """Return every number of a summary document by name, in order; undefined numbers are left out.

    Numbers in caveats are left out too, since they repeat others.

    >>> ri = {"estimate": 0.4, "low": 0.1, "high": None, "status": "ok"}
    >>> numbers({"weighted_score_p": 1.0, "variants": [{"variant": "low", "n": 60, "metrics": {"refusal_index": ri}}]})
    {'weighted_score_p': 1.0, 'low/n': 60.0, 'low/refusal_index': 0.4, 'low/refusal_index/low': 0.1}
    """
    named: dict[str, float] = {}
    for parts, value in _numbers(document, ()):
        name = "/".join(parts)
        repeats = 1
        while name in named:
            repeats += 1
            name = f"{'/'.join(parts)}_{repeats}"
        named[name] = value
    return named


def _numbers(value: Any, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key != "caveats":
                yield from _numbers(item, parts if key in TRANSPARENT else (*parts, name_part(str(key))))
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from _numbers(item, (*parts, *_item_name(item, position, parts)))
    elif (finite := finite_number(value)) is not None:
        yield parts, finite


def _item_name(item: Any, position: int, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name of a list item: its identifying keys, or its position."""
    if not isinstance(item, Mapping):
        return (str(position),)
    if parts == ():
        return (name_part(str(item.get("variant") or UNNAMED)),)
    if parts == (POOLED,) and position == 0:
        return ()  # a run has one model, and so one joint estimate
    return tuple(name_part(item[key]) for key in IDENTIFYING if isinstance(item.get(key), str)) or (str(position),)


def name_part(text: str) -> str:
    """Return a text as part of a name that every experiment tracker accepts.

    >>> name_part("my/prompt"), name_part("..")
    ('my_prompt', '_')
    """
    return UNSAFE.sub("_", text).lstrip(". ")[:MAX_NAME_PART].rstrip(" ") or "_"


def finite_number(value: Any) -> float | None:
    """Return a number of a document as a float; None for anything else, and for a number that no float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        as_float = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return as_float if math.isfinite(as_float) else None


INTERVAL_TABLES: Mapping[str, tuple[Metric, ...]] = {
    table: tuple(
        metric for metric in METRICS.values() if metric.table == table and metric.name not in (INDEX, CORRECTED)
    )
    for table in ("rates", "errors", "refusals", "answerable")
}
"""Metrics shown with intervals in tables of their own, by table."""

STEPS = ("forced for all", "different samples")
"""Steps from RI to corrected RI before sampling noise is removed."""

RELIABILITIES = (
    "reliability of refusals",
    "reliability of errors",
    "Spearman of frequencies",
    "AUROC of P(Answering)",
)
"""What repeated samples show of themselves."""


def summary_blocks(summary: Summary) -> Iterator[Block]:
    """Yield the result, all variants, joint estimates, repeated draws, statements about each variant, and sections."""
    yield from _opening(summary)
    yield summary_table(summary)
    for title_code, metrics in INTERVAL_TABLES.items():
        if summary.records(metrics[0].name):
            yield from ("", phrase(title_code, "table"), interval_table(summary, metrics))
    yield from ("", *_key(summary))
    yield from paragraphs(map(sentence, indices(summary)))
    yield from paragraphs(sentence(joint(summary, pooled)) for pooled in summary.pooled)
    if any(variant.draws for variant in summary.variants):
        columns = ("repeated samples", "questions", "samples", METRICS[INDEX].column, *STEPS, METRICS[CORRECTED].column)
        draws = (
            (summary.label(variant), *_draws_row(variant, variant.draws))
            for variant in summary.variants
            if variant.draws is not None
        )
        yield from ("", Table.from_rows((*columns, *RELIABILITIES), draws, left=("repeated samples",)))
    for variant in summary.variants:
        label = summary.label(variant)
        yield from paragraphs(f"{label}: {sentence(statement)}" for statement in variant_statements(variant))
    for section in registered_sections().values():
        if section.name in summary.sections:
            yield from section.summary_blocks(summary)


def summary_table(summary: Summary) -> Table:
    """Return the table of all variants."""
    heading = _heading(summary)
    has_missing = any(variant.missing is not None for variant in summary.variants)
    columns = (
        *(heading, "n", METRICS[INDEX].column, f"{percent(summary.analysis.confidence_level)} interval"),
        *(["range over missing grades"] if has_missing else []),
        *("scoring rules", "status", "unscored", "refused again"),
    )
    rows = (_row(summary, variant, has_missing=has_missing) for variant in summary.variants)
    return Table.from_rows(columns, rows, left=(heading, "status"))


def _heading(summary: Summary) -> str:
    return "prompt" if summary.has_one_source else "model, dataset, prompt"


def _key(summary: Summary) -> Iterator[str]:
    """Yield what each column means, and the range of those that are not shares."""
    for metric in METRICS.values():
        if metric.name in (INDEX, CORRECTED) or not summary.records(metric.name):
            continue
        low, high = metric.range(summary.analysis)
        ends = "" if (low, high) == (0, 1) else f", from {number(low, None)} to {number(high, None)}"
        yield f"{metric.column}: {description(metric.name, summary.analysis, typeset=False)}{ends}"
    has_missing = any(variant.missing is not None for variant in summary.variants)
    for column in (*(["range over missing grades"] if has_missing else []), "scoring rules", "refused again"):
        yield f"{column}: {phrase(column, 'column')}"


def _row(summary: Summary, variant: VariantSummary, *, has_missing: bool) -> Iterator[str]:
    rules = variant.sensitivity.range_of(INDEX)
    complete = variant.completeness
    forced = variant.forced_refusals
    missing = variant.missing
    yield summary.label(variant)
    yield count(variant.table.n)
    yield from (number(variant.index.estimate), interval_of(variant.index))
    if has_missing:
        yield UNDEFINED if missing is None else span(missing.low, missing.high)
    yield span(rules.low, rules.high) if variant.sensitivity.knows_refused_again else NOT_KNOWN
    yield variant.status
    yield f"{count(complete.unscored)} ({percent(complete.missing_share, 1)})" if complete.unscored else "0"
    yield UNDEFINED if forced.share is None else f"{count(forced.refused)} ({percent(forced.share, 1)})"


def interval_table(summary: Summary, metrics: Sequence[Metric]) -> Table:
    """Return a table of metrics with intervals, one row per variant."""
    level = f"{percent(summary.analysis.confidence_level)} interval"
    columns = (_heading(summary), *(column for metric in metrics for column in (metric.column, level)))
    rows = (
        (
            summary.label(variant),
            *(
                cell
                for metric in metrics
                for estimate in [variant.metric(metric.name)]
                for cell in (number(estimate.estimate, metric.digits), interval_of(estimate, metric.digits))
            ),
        )
        for variant in summary.variants
    )
    return Table.from_rows(columns, rows, left=columns[:1])


def _draws_row(variant: VariantSummary, draws: DrawsSummary) -> Iterator[str]:
    yield from (count(draws.questions), count(draws.draws))
    yield from map(number, (variant.index.estimate, draws.forced_for_all, draws.uncorrected))
    corrected = draws.corrected_refusal_index
    yield "not identified" if corrected.status == "not_identified" else number(corrected.estimate)
    yield from map(number, (draws.refusal_reliability, draws.error_reliability))
    for estimate in (draws.mid_rank_spearman, draws.p_answering_auroc):
        yield f"{number(estimate.estimate)} {interval_of(estimate)}"


def changes_blocks(
    changes: GradeChanges, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None
) -> Iterator[Block]:
    """Yield the agreement of two graders, and which cells changed.

    - `changes`: as `grade_changes` returns them.
    - `before`, `now`: the graders, as a run's settings hold them.
    """
    graders = ([grader[key] for key in ("name", "second") if grader and grader.get(key)] for grader in (before, now))
    graded_by = dict(zip(("before", "now"), graders, strict=True)) | {"changed": _changed_options(before, now)}
    yield from ("", sentence(Statement("graded_by", "scope", graded_by)))
    for name, agreement in (("first pass", changes.first), ("forced pass", changes.forced)):
        if agreement.kappa.agreement is not None:
            heading = f"{name}: before"
            grades = agreement.grades
            counts = agreement.counts
            rows = [(grade, *(count(counts.get((grade, other), 0)) for other in grades)) for grade in grades]
            yield from ("", Table.from_rows((heading, *(f"now {grade}" for grade in grades)), rows, left=(heading,)))
            yield sentence(Statement("grader_agreement", "conclusion", {"kappa": agreement.kappa}))
    moved = [{"before": cell, "now": other, "count": questions} for (cell, other), questions in changes.cells.items()]
    values = {"moved": moved, "total": sum(changes.cells.values()), "n": changes.n}
    yield from ("", sentence(Statement("moved_cells", "conclusion", values)))


def _changed_options(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the options by which two graders read replies differently; None for one that was not set.

    A grading model has no refusal setting.
    """
    changed = []
    for option in ("refusal", "reasoning"):
        was = (before or {}).get(option)
        is_ = (now or {}).get(option)
        is_compared = option == "reasoning" or None not in (was, is_)
        if was != is_ and is_compared:
            changed.append({"option": f"--{option}", "before": was, "now": is_})
    return changed


def tally_blocks(tallies: Sequence[Tally]) -> Iterator[Block]:
    """Yield the counts of every model, its first-pass metrics, and the number of questions a forced pass would ask."""
    heading = "model, dataset, prompt"
    shown = [METRICS[metric].column for metric in (*BY_ANSWERABLE, *FIRST_PASS_METRICS)]
    columns = (heading, "n", *COUNTS, *shown, "force asks")
    yield Table.from_rows(columns, (_tally_row(tally) for tally in tallies), left=(heading,)).without_empty()
    for tally in tallies:
        name = title(tally.model, tally.dataset, tally.variant)
        yield from paragraphs(f"{name}: {sentence(statement)}" for statement in tally.statements)


NAME_WIDTH = 32
"""Characters of a name beside which all counts fit the first screen."""


def _tally_row(tally: Tally) -> Iterator[str]:
    split = {metric.name: metric for metric in tally.by_answerable}
    metrics = {metric.name: metric.estimate for metric in tally.metrics}
    name = title(tally.model, tally.dataset, tally.variant)
    yield name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH // 2 - 1]}...{name[2 - NAME_WIDTH // 2 :]}"
    yield from map(count, (tally.rows, *(getattr(tally, name) for name in COUNTS)))
    yield from (percent_with_interval(split[name]) if split else UNDEFINED for name in BY_ANSWERABLE)
    yield from (number(metrics.get(name)) for name in FIRST_PASS_METRICS)
    yield count(tally.to_force)


SCALE_WIDTH = 29
"""Characters of the scale."""
SCREEN_WIDTH = 80
"""Columns of the first screen."""

SCREEN_LINES = 14
"""Lines of the first screen, without those that a command adds to reach 20."""
OPENING_LINES = 9
"""Lines of the first screen beside its table and its caveats."""
MAX_NAME_LENGTH = 16
"""Characters of a prompt variant's name, so that its row fits into 80 columns."""


def _opening(summary: Summary) -> Iterator[Block]:
    """Yield what is missing, and the result of one model on one dataset."""
    if (lacks := missing_answers(summary)) is not None:
        yield from (sentence(lacks), "")
    if summary.index is not None:
        first = summary.variants[0]
        index = summary.index
        source = " on ".join(part for part in (first.model, first.dataset) if part) or "Outcomes"
        prompts = f", {count(len(summary.variants), 'prompt')}" if len(summary.variants) > 1 else ""
        n_asked = max(variant.completeness.asked for variant in summary.variants)
        unanswerable = f", {count(summary.unanswerable)} unanswerable" if summary.unanswerable else ""
        yield from (f"{source}: {count(n_asked, 'question')}{unanswerable}{prompts}", "")
        if (refused := refused_by_answerable([variant.metrics for variant in summary.variants])) is not None:
            yield sentence(refused)
        shown = with_interval(index.estimate, index.low, index.high, index.reason, 2)
        yield f"{METRICS[INDEX].label} {shown}   {scale(index)}".rstrip()
        if (corrected := summary.corrected) is not None:
            yield f"{METRICS[CORRECTED].label} {estimate_text(corrected, 2)}"
        if index.estimate is not None:
            yield sentence(verdict(summary))
        yield ""


def topic_blocks(summary: Summary) -> Iterator[Block]:
    """Yield the rates of each topic, given the summary that `by_topic` returns."""
    table = rates_table(summary, "topic")
    level = summary.analysis.confidence_level if summary.unanswerable else None
    yield from (table, "", sentence(rates_explained(table.columns, level=level)))


def first_screen(summary: Summary) -> Iterator[Block]:
    """Yield the result, a row for each prompt, and serious caveats."""
    yield from _opening(summary)
    table = rates_table(summary)
    level = summary.analysis.confidence_level if summary.unanswerable else None
    by_caution = summary.has_caution_levels and len(summary.variants) > 1
    explained = rates_explained(table.columns, by_caution=by_caution, level=level)
    yield from (table, "", Definitions(sentence(explained)))
    yield from _screen_caveats(summary_caveats(summary), SCREEN_LINES - len(table.lines()) - OPENING_LINES)


def _screen_caveats(caveats: Sequence[Statement], max_lines: int) -> Iterator[Block]:
    """Yield the caveats that fit into `max_lines`, at least the first; if some do not, say how many there are."""
    serious = [caveat for caveat in caveats if caveat.severity == "serious"]
    ends = list(accumulate(len(wrap(caveat_line(caveat), SCREEN_WIDTH)) + 1 for caveat in serious))
    shown = max(sum(end <= max_lines for end in ends), 1)
    for number_shown, caveat in enumerate(serious[:shown], 1):
        yield from ("", caveat_line(caveat, f" {number_shown} of {len(serious)}" if len(serious) > shown else ""))
    for caveat in caveats:
        if caveat.code == "sampling" and caveat.severity != "serious":  # intervals depend on how questions were sampled
            yield from ("", caveat_line(caveat))


def scale(index: Estimate) -> str:
    """Draw an index with its interval from chance level to 1, or from -1 where the interval reaches below chance.

    >>> scale(Estimate(0.5, 0.25, 0.75))
    '0 chance |-------[======O======]-------| 1 perfect'
    >>> scale(Estimate(-0.5, -0.75, -0.25))
    '-1 |----[==O==]---0--------------| 1 (0: chance)'
    """
    if index.low is None:
        return ""
    start = scale_start(index.low)
    left, right = ("-1", "1 (0: chance)") if start < 0 else ("0 chance", "1 perfect")
    return f"{left} |{marks(index, start)}| {right}"


def scale_start(low: float | None) -> int:
    """Return where the scale of an interval begins: at chance level, or at -1 if the interval reaches below it."""
    return -1 if low is not None and low < 0 else 0


def marks(index: Estimate | RankedRun, start: int, width: int = SCALE_WIDTH) -> str:
    """Draw an interval as ``[==O==]`` on a scale to 1; nothing without one."""
    if index.estimate is None or index.low is None or index.high is None:
        return ""
    low, middle, high, chance = (
        round((value - start) / (1 - start) * (width - 1)) for value in (index.low, index.estimate, index.high, 0)
    )
    characters = ["-"] * width
    characters[low : high + 1] = "=" * (high + 1 - low)
    if start < 0:
        characters[chance] = "0"
    characters[low] = "["
    characters[high] = "]"
    characters[middle] = "O"
    return "".join(characters)


def rates_table(summary: Summary, heading: str | None = None) -> Table:
    """Return the rates of the first screen, a row for each prompt, without columns in which nothing is defined.

    If some questions are unanswerable, refusals of either kind take the place of refusals as predictions of errors.

    - `heading`: ``"topic"`` for a row, with its number of questions, for each topic; None for what the labels name.
    """
    rows = [_screen_row(summary, variant, heading) for variant in summary.variants]
    split = [METRICS[name].column for name in BY_ANSWERABLE]
    left_out = ["refused", "precision", "over-refusal"] if summary.unanswerable else split
    if not any(variant.completeness.unscored for variant in summary.variants):
        left_out = [*left_out, "unscored"]
    table = Table.from_rows(rows[0], (row.values() for row in rows), left=(heading or _heading(summary),))
    return table.without(*left_out).without_empty()


def _screen_row(summary: Summary, variant: VariantSummary, heading: str | None) -> dict[str, str]:
    """Return all cells by column."""
    label = summary.label(variant)
    right = variant.metric("correct_given_attempted").estimate
    unscored = variant.completeness.unscored
    return {
        heading or _heading(summary): abbreviated(label, MAX_NAME_LENGTH) if summary.has_one_source else label,
        **({"n": count(variant.completeness.asked)} if heading else {}),
        **{METRICS[name].column: percent_with_interval(variant.metric(name)) for name in BY_ANSWERABLE},
        METRICS[INDEX].column: number(variant.index.estimate, 2),
        f"{percent(summary.analysis.confidence_level)} interval": interval_of(variant.index, 2),
        "refused": percent(variant.metric("refusal_rate").estimate, 0),
        "precision": percent(variant.metric("refusal_precision").estimate, 0),
        "wrong": percent(None if right is None else 1 - right, 0),
        "over-refusal": percent(variant.metric("over_refusal").estimate, 0),
        "unscored": f"{count(unscored)} ({percent(variant.completeness.missing_share, 1)})",
    }


def rates_explained(columns: Sequence[str], *, by_caution: bool = False, level: float | None = None) -> Statement:
    """Explain the columns of a table of rates.

    - `by_caution`: whether the names of prompts say how much caution they ask for.
    - `level`: confidence level of the intervals beside rates; None if there are none.
    """
    explained = [column for column in columns if column in sentences()["rate_explained"]]
    return Statement("rates_explained", "scope", {"by_caution": by_caution, "columns": explained, "level": level})


SMALL = 8  # points
TICKS = (0, 0.5, 1)


def used_blocks(summary: Summary) -> Iterator[Block]:
    """Yield the total usage of all variants, if known."""
    used = usage(summary)
    if used is not None:
        yield from ("", sentence(used))


def plane_svg(summary: Summary) -> str:
    """Draw every variant by its refusal rate and its correct rate, as an image within the page."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - drawn in a notebook only

    figure = Figure(figsize=(2.3, 2.1), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [1, 0], color="0.8", linewidth=1)
    axes.tick_params(labelsize=SMALL)
    for variant in summary.variants:
        refused = variant.metric("refusal_rate").estimate
        correct = variant.metric("correct_rate").estimate
        if refused is not None and correct is not None:
            axes.plot(refused, correct, "o", color="#1f5fa8")
            name = variant.name.replace("$", r"\$")
            axes.annotate(name, (refused, correct), (4, 3), textcoords="offset points", fontsize=SMALL)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=TICKS, yticks=TICKS, aspect="equal")
    axes.set_xlabel("refused", fontsize=SMALL)
    axes.set_ylabel("correct", fontsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    buffer = BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue().decode()
    return svg[svg.index("<svg") :]
