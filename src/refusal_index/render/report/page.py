"""The page: one HTML file that needs nothing else and loads nothing.

Style and script stand in it, and its content security policy names them by their hashes: no other script can run, no
other style applies, and nothing is ever fetched.

Packed data is gzip in base64, which every browser since 2023 unpacks by itself (``DecompressionStream``); short data
stays plain and needs nothing.

The pictures of a run are drawn as SVG by the templates: its metrics on axes, its 2x2 tables as tiles, the
accuracy-refusal plane. Places are in per cent, so that text keeps its size at any width; curves are polygons in a box
of 1,000 by 1,000 that is stretched beneath them.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import chain
from pathlib import Path

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from refusal_index.data.analysis import Analysis
from refusal_index.data.files import opened_file, write_atomically
from refusal_index.data.rates import BY_ANSWERABLE
from refusal_index.entry_points import package_version
from refusal_index.errors import CONTROL_CATEGORIES, OutcomeTableError
from refusal_index.findings.comparison import PairComparison, compare_pair
from refusal_index.findings.gate import GateResult
from refusal_index.findings.headline import Headline, headline
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS, Statement
from refusal_index.findings.published import among_published
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_differences import settings_statements
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.sections import registered_sections
from refusal_index.findings.summary import VariantSummary
from refusal_index.render import format as formats
from refusal_index.render.gate import changed_table, guard_table, guards_key
from refusal_index.render.report.published import published_pictures
from refusal_index.render.report.runs import Embedded, embed_questions, facts, prompts, questions_of
from refusal_index.render.report.scales import UNIT, Scale, index_scale
from refusal_index.render.run_view import RunView, views_of
from refusal_index.render.sections import PageSection
from refusal_index.render.sentences import description, filters, phrase, sentence, sentences, typesetting
from refusal_index.stats import ContingencyTable, Estimate, accuracy_refusal_curve

number = typesetting(formats.number)
percent = typesetting(formats.percent)


NOT_KNOWN = Estimate(None, reason="no_forced_grade")
"""Shown for a range that depends on which forced answers were refused again, where that is unknown."""

ORDER = (INDEX, CORRECTED, *(name for name in METRICS if name not in (INDEX, CORRECTED)))
"""Metrics in the order of the page."""

KINDS = {
    INDEX: "",
    CORRECTED: "",
    "forced_for_all": "other",
    "missing": "range",
    "scoring_rules": "range",
    "refused_again_right": "rule",
    "refused_again_dropped": "rule",
    "within_topics": "other",
}
"""Scoring decisions in the order of the page, and their styles."""


@dataclass(frozen=True)
class MetricRow:
    """One metric, or the index under one decision, of every variant on one axis."""

    # name, meaning, scale: what it is, and its axis
    name: str
    meaning: str
    scale: Scale
    # One a variant; None where there is nothing to say. A range has ends and no estimate.
    cells: tuple[Estimate | None, ...]
    kind: str = ""  # for the look: ``""``, ``"range"``, ``"rule"`` or ``"other"``
    digits: int = 3  # that its numbers are shown to


def metric_rows(run: RunView) -> Iterator[MetricRow]:
    """Return rows with the metrics of all variants."""
    has_corrected = any(variant.corrected is not None for variant in run.variants)
    analysis = run.summary.analysis
    for name in (name for name in ORDER if run.summary.records(name) and (name != CORRECTED or has_corrected)):
        metric = METRICS[name]
        cells = tuple(variant.metric(name) for variant in run.variants)
        scale = index_scale(cells) if name in (INDEX, CORRECTED) else Scale(*metric.range(analysis))
        yield MetricRow(metric.label, description(name, analysis), scale, cells, digits=metric.digits)


def rate_rows(run: RunView, variant: VariantSummary) -> Iterator[MetricRow]:
    """Yield the main rates of one variant."""
    analysis = run.summary.analysis
    split = BY_ANSWERABLE if run.summary.unanswerable else ()
    for name in (*split, "refusal_rate", "refusal_precision", "over_refusal"):
        if variant.metric(name).estimate is not None or not split:
            yield MetricRow(METRICS[name].label, description(name, analysis), UNIT, (variant.metric(name),))
    right = variant.metric("correct_given_attempted")
    estimate, low, high = (None if value is None else 1 - value for value in (right.estimate, right.high, right.low))
    wrong = Estimate(estimate, low, high)
    name, meaning = (phrase("wrong_if_answered", section) for section in ("rate", "rate_meaning"))
    yield MetricRow(name, meaning, UNIT, (wrong,))


def sensitivity_rows(run: RunView) -> tuple[MetricRow, ...]:
    """Return every variant's index under other decisions and with repeated draws; all rows share one axis."""
    by_variant = [dict(_decisions(variant)) for variant in run.variants]
    scale = index_scale(cell for decisions in by_variant for cell in decisions.values())
    return tuple(
        MetricRow(
            *(phrase(code, "decision"), phrase(code, "decision_meaning"), scale),
            tuple(decisions.get(code) for decisions in by_variant),
            kind,
        )
        for code, kind in KINDS.items()
        if any(code in decisions for decisions in by_variant)
    )


def _decisions(variant: VariantSummary) -> Iterator[tuple[str, Estimate]]:
    sensitivity = variant.sensitivity
    missing = variant.missing
    yield INDEX, variant.index
    if variant.corrected is not None:
        yield CORRECTED, variant.corrected
    if variant.draws is not None:
        yield "forced_for_all", Estimate(variant.draws.forced_for_all)
    if missing is not None:
        yield "missing", Estimate(None, missing.low, missing.high, reason=missing.reason)
    rules = sensitivity.range_of(INDEX)
    is_known = sensitivity.knows_refused_again
    yield "scoring_rules", Estimate(None, rules.low, rules.high, reason=rules.reason) if is_known else NOT_KNOWN
    for rule in sensitivity.rules:
        if rule.rule in KINDS and variant.forced_refusals.refused:
            yield rule.rule, Estimate(rule.estimate, reason=rule.reason)
    if sensitivity.topics is not None:
        yield "within_topics", sensitivity.topics.within


@dataclass(frozen=True)
class Tile:
    """One cell of a 2x2 table: its area is its share of the questions; the places are shares of the picture."""

    cell: str
    count: int
    x: float
    y: float
    width: float
    height: float


def tiles(table: ContingencyTable) -> Iterator[Tile]:
    """Lay out a 2x2 table: answered to the left, refused to the right, right above wrong."""
    x = 0.0
    for side, total in (("answered", table.n_answered), ("refused", table.n_refused)):
        right = getattr(table, f"{side}_right")
        wrong = getattr(table, f"{side}_wrong")
        width = total / table.n if table.n else 0.0
        top = right / total if total else 0.0
        yield Tile(f"{side}_right", right, x, 0.0, width, top)
        yield Tile(f"{side}_wrong", wrong, x, top, width, wrong / total if total else 0.0)
        x += width


BOX = 1000


@dataclass(frozen=True)
class PlanePoint:
    """A variant in the plane: its rates, its curve and band as polygons in the box."""

    name: str
    place: int
    refusal: Estimate
    correct: Estimate
    curve: str
    band: str


@dataclass(frozen=True)
class Plane:
    """The accuracy-refusal plane of a run."""

    points: tuple[PlanePoint, ...]  # one a variant
    # x, y: the axes; y ends above the highest value
    x: Scale
    y: Scale
    right: float  # the mean share that is right under forced answering, at which the curves start

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return a polygon in the box through some points."""
        return " ".join(f"{BOX * self.x.share(a):.1f},{BOX * (1 - self.y.share(b)):.1f}" for a, b in points)


def plane(run: RunView) -> Plane | None:
    """Lay out the plane; None where no correct rate and no share wrong overall is known."""
    scored = [
        variant
        for variant in run.variants
        if variant.metric("correct_rate").estimate is not None and not math.isnan(variant.table.error_rate)
    ]
    if not scored:
        return None
    right = 1 - sum(variant.table.error_rate for variant in scored) / len(scored)
    y = _axis(max(right, *(variant.metric("correct_rate").high or 0 for variant in scored)))
    empty = Plane((), Scale(0, 1), y, right)
    points = []
    for index, variant in enumerate(scored):
        curve = accuracy_refusal_curve(variant.table)
        low, high = curve.confidence_band(run.summary.analysis.confidence_level, simultaneous=True)
        middle, upper, lower = (
            list(zip(curve.refusal_rate.tolist(), rates.tolist(), strict=True))
            for rates in (curve.correct_rate, high, low)
        )
        line = "" if np.isnan(curve.correct_rate).any() else empty.path(middle)
        band = "" if np.isnan(low).any() else empty.path([*upper, *reversed(lower)])
        refusal = variant.metric("refusal_rate")
        correct = variant.metric("correct_rate")
        points.append(PlanePoint(variant.name, index, refusal, correct, line, band))
    return replace(empty, points=tuple(points))


def _axis(highest: float) -> Scale:
    """Return the axis of correct rates: four to six round steps.

    >>> _axis(0.51)
    Scale(low=0, high=0.6, ticks=(0.0, 0.2, 0.4, 0.6))
    """
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if highest <= 5 * step)
    steps = math.ceil(highest / step + 0.2)
    ticks = (round(i * step, 4) for i in range(steps + 1) if i * step <= 1 + 1e-9)
    return Scale(0, round(min(steps * step, 1.0), 4), tuple(ticks))


KEPT = frozenset("\n\t\u200c\u200d")
"""Of these, line breaks and tabs, and the two joiners that some scripts and emoji cannot be written without."""


def visible(text: object) -> Markup:
    r"""Return text as HTML in which control and direction characters can be seen, isolated from its surroundings.

    >>> print(visible("<b>\x1b"))
    <bdi dir="auto">&lt;b&gt;<span class="control" title="ESCAPE">U+001B</span></bdi>
    """
    return Markup('<bdi dir="auto">{}</bdi>').format(Markup(_UNUSUAL.sub(_visible, escape(text))))  # noqa: S704  escaped


def plain(text: object) -> str:
    r"""Return text for places that hold no elements (titles, alternative texts, SVG), line breaks taken out.

    >>> plain("a\u202eb")
    'a⟨U+202E⟩b'
    """
    one_line = str(text).replace("\n", " ").replace("\t", " ")
    return _UNUSUAL.sub(lambda match: f"⟨{_code(match[0])}⟩" if _is_control(match[0]) else match[0], one_line)


_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in CONTROL_CATEGORIES and character not in KEPT


def _visible(match: re.Match[str]) -> str:
    if not _is_control(match[0]):
        return match[0]
    # Control codes have aliases, not names.
    name = unicodedata.name(match[0], {"\x1b": "ESCAPE"}.get(match[0], "control character"))
    return f'<span class="control" title="{name}">{_code(match[0])}</span>'


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


@dataclass(frozen=True)
class Line:
    """One line of a picture: a prompt, or a run, and its index with the interval."""

    name: str
    index: Estimate
    joint: bool = False
    # of a run: its place on the page, what it concludes, titles of its main caveats, letters shared with tied runs
    anchor: str = ""
    conclusions: tuple[Statement, ...] = ()
    caveats: tuple[str, ...] = ()
    letters: str = ""


@dataclass(frozen=True)
class IndexPicture:
    """A picture of indices: of a run's prompts below their joint index, or of several runs, the highest first."""

    lines: tuple[Line, ...]
    scale: Scale
    # statements, notes: of several runs, what their comparison shows, and what limits it
    statements: tuple[Statement, ...] = ()
    notes: tuple[Statement, ...] = ()


def index_picture(view: RunView) -> IndexPicture:
    """Lay out the indices of a run."""
    joint = [Line("all", view.index, joint=True)] if view.pooled is not None else []
    lines = (*joint, *(Line(variant.name, variant.index) for variant in view.variants))
    return IndexPicture(lines, index_scale(line.index for line in lines))


def headline_of(view: RunView) -> Headline:
    """Return what a run shows, and how sure it is."""
    among = among_published(view.run)
    published = () if among is None else among.statements
    return headline(view.summary, view.run.about, published)


def sections_of(view: RunView) -> list[PageSection]:
    """Return the sections that plugins add to a run."""
    return list(chain.from_iterable(section.of_run(view) for section in registered_sections().values()))


COMPARED = {
    *("ahead", "not_told_apart", "difference_not_settled", "difference_unknown", "leader", "no_leader"),
    *("depends_on_copula", "matched", "partly_shared", "none_shared", "unpaired", "letters", "not_ranked"),
}
"""Statements of a comparison or ranking that the first screen shows."""


def overview(views: Sequence[RunView]) -> IndexPicture:
    """Make the first screen of several runs."""
    runs = [view.run for view in views]
    statements, letters = _compared(runs, views[0].summary.analysis)
    lines = sorted(
        (_line(view, letters.get(row, "")) for row, view in enumerate(views)),
        key=lambda line: math.inf if line.index.estimate is None else -line.index.estimate,
    )
    one_dataset = len({run.dataset_id for run in runs}) == 1
    return IndexPicture(
        tuple(lines),
        index_scale(line.index for line in lines),
        statements=(*statements, Statement("scale", "scope")),
        notes=tuple(settings_statements(runs)) if one_dataset else (),
    )


def _compared(runs: Sequence[RunResults], analysis: Analysis) -> tuple[tuple[Statement, ...], Mapping[int, str]]:
    """Return the statements of a comparison, and the letters of each ranked run by position."""
    if len({run.dataset_id for run in runs}) > 1:
        datasets = list(dict.fromkeys(run.dataset or "not stated" for run in runs))
        return (Statement("other_questions", "scope", {"datasets": datasets}),), {}
    try:
        compared = compare_pair(runs, analysis) if len(runs) == 2 else rank(runs, analysis)
    except OutcomeTableError as error:
        return (Statement("not_compared", "serious", {"error": str(error)}),), {}
    letters = {} if isinstance(compared, PairComparison) else {run.row: run.letters for run in compared.ranking.runs}
    shown = (statement for statement in compared.statements if statement.code in COMPARED)
    return tuple({sentence(statement, "page"): statement for statement in shown}.values()), letters


def _line(view: RunView, letters: str) -> Line:
    head = headline_of(view)
    caveats = tuple(dict.fromkeys(sentence(caveat, "title") for caveat in head.main_caveats))
    label = view.run.label
    return Line(label, head.index, False, view.anchor, head.conclusions, caveats, letters)


SCRIPTS = ("text", "theme", "data", "filter", "address", "list", "detail", "main")
GENERATOR = "refusal-index"


@dataclass(frozen=True)
class WrittenReport:
    """A written report."""

    # path, size: the file, and its bytes
    path: Path
    size: int
    n_cut: int  # how many texts were cut to the limit
    limit: int  # characters of a reply; 0 if no replies fit


def write_report(
    runs: Sequence[RunResults], out: Path, *, left_out: Sequence[str] = (), gate: GateResult | None = None
) -> WrittenReport:
    """Write the report of one run or several.

    - `runs`: the runs.
    - `out`: the file, replaced at once or not at all.
    - `left_out`: sentences on runs that could not be read.
    - `gate`: what a gate decided of the runs, to stand on top.
    """
    views = views_of(runs)
    embedded = embed_questions(questions_of(views))
    content = render(views, embedded, left_out, gate).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, content)
    return WrittenReport(out, len(content), embedded.n_cut, embedded.cut.limit)


def is_report(path: Path) -> bool:
    """Whether a file is a report or empty."""
    with opened_file(path) as file:
        beginning = file.read(2000)
    return not beginning or f'<meta name="generator" content="{GENERATOR} '.encode() in beginning


def render(
    views: Sequence[RunView], embedded: Embedded, left_out: Sequence[str] = (), gate: GateResult | None = None
) -> str:
    """Return the whole page."""
    of_page = (section.of_page(views, "h2" if gate else "h1") for section in registered_sections().values())
    style = "\n".join(
        [_asset("report.css"), *(section.style for section in registered_sections().values() if section.style)]
    )
    scripts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    template = environment().get_template("report.html.j2")
    return template.render(
        gate=gate,
        views=views,
        overview=overview(views) if len(views) > 1 else None,
        sections=list(chain.from_iterable(of_page)),
        data=embedded,
        left_out=left_out,
        style=Markup(style),  # noqa: S704  our own
        script=Markup(f'(() => {{\n"use strict";\n{scripts}}})();\n'),  # noqa: S704  our own
    )


def _source_hash(text: str) -> str:
    """Return the hash of a style or a script, as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return resources.files("refusal_index.render.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def environment(*packages: str) -> Environment:
    """Return the environment of the report's templates; those in `templates` of some packages come first."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "refusal_index.render.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {**filters(typeset=True), "visible": visible, "plain": plain, "source_hash": _source_hash}
    made.globals.update(
        version=package_version(),
        cells=sentences()["cell_name"],
        generator=GENERATOR,
        guard_table=guard_table,
        guards_key=guards_key,
        changed_table=changed_table,
        tiles=tiles,
        plane=plane,
        metric_rows=metric_rows,
        rate_rows=rate_rows,
        sensitivity_rows=sensitivity_rows,
        facts=facts,
        prompts=prompts,
        headline_of=headline_of,
        index_picture=index_picture,
        sections_of=sections_of,
        published_pictures=published_pictures,
    )
    return made
