"""The page: one HTML file that needs nothing else and loads nothing.

Style and script stand in it, and its content security policy names them by their hashes: no other script can run, no
other style applies, and nothing is ever fetched.

Packed data is gzip in base64, which every browser since 2023 unpacks by itself (``DecompressionStream``); short data
stays plain and needs nothing.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import chain
from pathlib import Path

import polars as pl
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.files import opened_file, write_atomically
from refusal_index.data.folder import ComparedRun
from refusal_index.entry_points import package_version
from refusal_index.findings.comparison import PairComparison, compare_pair
from refusal_index.findings.conclusions import Headline, headline
from refusal_index.findings.gate import GateResult
from refusal_index.findings.matching import CompareOptions, settings_statements
from refusal_index.findings.ranking import rank
from refusal_index.findings.statement import Statement
from refusal_index.render.blocks import OBEYED
from refusal_index.render.gate import changed_table, guard_table
from refusal_index.render.report.browser import Embedded, embed_questions, questions_of
from refusal_index.render.report.figures import (
    Scale,
    index_scale,
    metric_rows,
    plane,
    rate_rows,
    sensitivity_rows,
    tiles,
)
from refusal_index.render.report.runs import ReportRun, facts, prompts
from refusal_index.render.sections import PageSection, RunOnPage, report_sections
from refusal_index.render.sentences import filters, sentence, sentences
from refusal_index.stats import Estimate

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
    return _UNUSUAL.sub(lambda match: f"⟨{_code(match[0])}⟩" if _is_obeyed(match[0]) else match[0], one_line)


_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")


def _is_obeyed(character: str) -> bool:
    return unicodedata.category(character) in OBEYED and character not in KEPT


def _visible(match: re.Match[str]) -> str:
    if not _is_obeyed(match[0]):
        return match[0]
    # Control codes have aliases, not names.
    name = unicodedata.name(match[0], {"\x1b": "ESCAPE"}.get(match[0], "control character"))
    return f'<span class="control" title="{name}">{_code(match[0])}</span>'


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


@cache
def paper_indices(dataset: str | None) -> tuple[float, ...]:
    """Return the Refusal Indices of the paper's results table; none for other datasets than its own."""
    file = resources.files("refusal_index").joinpath("plugins", "studies", "data", "paper_rows.csv")
    if dataset != "simpleqa" or not file.is_file():
        return ()
    return tuple(pl.read_csv(file.read_bytes())["refusal_index"].drop_nulls().to_list())


@dataclass(frozen=True)
class Line:
    """One line of a picture: a prompt, or a run, and its index with the interval."""

    name: str
    index: Estimate
    joint: bool = False
    # of a run: its place on the page, what its index means, titles of its main caveats, letters shared with tied runs
    anchor: str = ""
    verdict: Statement | None = None
    caveats: tuple[str, ...] = ()
    letters: str = ""


@dataclass(frozen=True)
class RunView:
    """One run on the page; the templates make what else is shown of it."""

    source: ReportRun  # the run
    number: int  # its place among the runs
    headline: Headline
    # lines, scale: the picture of the joint index above its variants
    lines: tuple[Line, ...]
    scale: Scale
    paper: tuple[float, ...]  # the indices of the paper's own models, if they were asked the same questions
    on_page: RunOnPage  # as sections of plugins take it
    sections: tuple[PageSection, ...]

    @property
    def anchor(self) -> str:
        """The name of its place on the page."""
        return self.on_page.anchor


def run_view(run: ReportRun, number: int) -> RunView:
    """Prepare a run for the page; `number` tells its places from those of other runs."""
    paper = paper_indices(run.run.dataset_id)
    on_page = RunOnPage(run.run, run.summary, f"run-{number}")
    joint = [Line("all", run.index, joint=True)] if run.pooled is not None else []
    lines = (*joint, *(Line(variant.name, variant.index) for variant in run.variants))
    return RunView(
        run,
        number,
        headline=headline(run.summary, run.about, paper),
        lines=lines,
        scale=index_scale(line.index for line in lines),
        paper=paper,
        on_page=on_page,
        sections=tuple(chain.from_iterable(section.of_run(on_page) for section in report_sections())),
    )


@dataclass(frozen=True)
class Overview:
    """The first screen of several runs."""

    # lines, scale: the picture, the highest index first
    lines: tuple[Line, ...]
    scale: Scale
    statements: tuple[Statement, ...]  # what the comparison shows
    notes: tuple[Statement, ...]  # what limits it
    paper: tuple[float, ...]  # the indices of the paper's own models, if all runs were asked the same questions


COMPARED = {
    *("ahead", "not_told_apart", "difference_not_settled", "difference_unknown", "leader", "no_leader"),
    *("matched", "partly_shared", "unpaired", "letters", "not_ranked"),
}
"""What the first screen says of a comparison or a ranking."""


def overview(views: Sequence[RunView]) -> Overview:
    """Make the first screen of several runs."""
    runs, summary = [view.source.run for view in views], views[0].source.summary
    options = CompareOptions(
        confidence_level=summary.confidence_level,
        penalty=summary.penalty,
        truthfulness_weights=summary.truthfulness_weights,
    )
    statements, letters = _compared(runs, options)
    lines = sorted(
        (_line(view, letters.get(row, "")) for row, view in enumerate(views)),
        key=lambda line: math.inf if line.index.estimate is None else -line.index.estimate,
    )
    one_dataset = len({run.dataset_id for run in runs}) == 1
    return Overview(
        tuple(lines),
        index_scale(line.index for line in lines),
        statements=(*statements, Statement("scale", "scope")),
        notes=tuple(settings_statements(runs)) if one_dataset else (),
        paper=views[0].paper if one_dataset else (),
    )


def _compared(runs: Sequence[ComparedRun], options: CompareOptions) -> tuple[tuple[Statement, ...], Mapping[int, str]]:
    """Return what a comparison shows, and the letters of each run that is ranked, by its place."""
    if len({run.dataset_id for run in runs}) > 1:
        datasets = list(dict.fromkeys(run.dataset or "not stated" for run in runs))
        return (Statement("other_questions", "scope", {"datasets": datasets}),), {}
    try:
        compared = compare_pair(runs, options) if len(runs) == 2 else rank(runs, options)
    except OutcomeTableError as error:
        return (Statement("not_compared", "grave", {"error": str(error)}),), {}
    letters = {} if isinstance(compared, PairComparison) else {run.row: run.letters for run in compared.ranking.runs}
    shown = (statement for statement in compared.statements if statement.code in COMPARED)
    return tuple({sentence(statement, "page"): statement for statement in shown}.values()), letters


def _line(view: RunView, letters: str) -> Line:
    head, label = view.headline, view.source.run.label
    caveats = dict.fromkeys(sentence(doubt, "title") for doubt in head.caveats)
    return Line(label, head.index, anchor=view.anchor, verdict=head.verdict, caveats=tuple(caveats), letters=letters)


SCRIPTS = ("text", "theme", "data", "filter", "address", "list", "detail", "main")
GENERATOR = "refusal-index"


@dataclass(frozen=True)
class WrittenReport:
    """What was written."""

    # path, size: the file, and its bytes
    path: Path
    size: int
    n_cut: int  # how many texts were cut to the limit
    limit: int  # characters of a reply; 0 where there was no room for replies


def write_report(
    runs: Sequence[ReportRun], out: Path, *, left_out: Sequence[str] = (), gate: GateResult | None = None
) -> WrittenReport:
    """Write the report of one run or several.

    - `runs`: as `refusal_index.render.report.read_report_runs` reads them, or
      `refusal_index.render.report.folder_runs` takes them from a run that has just been made.
    - `out`: the file, replaced at once or not at all.
    - `left_out`: sentences on runs that could not be read.
    - `gate`: what a gate decided of the runs, to stand on top.
    """
    embedded = embed_questions(questions_of(runs))
    content = render(runs, embedded, left_out, gate).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, content)
    return WrittenReport(out, len(content), embedded.n_cut, embedded.cut.limit)


def is_report(path: Path) -> bool:
    """Whether a file is a report, or is empty."""
    with opened_file(path) as file:
        beginning = file.read(2000)
    return not beginning or f'<meta name="generator" content="{GENERATOR} '.encode() in beginning


def render(
    runs: Sequence[ReportRun], embedded: Embedded, left_out: Sequence[str] = (), gate: GateResult | None = None
) -> str:
    """Return the whole page."""
    views = [run_view(run, place) for place, run in enumerate(runs, start=1)]
    on_page = [view.on_page for view in views]
    of_page = (section.of_page(on_page, "h2" if gate else "h1") for section in report_sections())
    style = "\n".join([_asset("report.css"), *(section.style for section in report_sections() if section.style)])
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
    made.globals.update(version=package_version(), cells=sentences()["cell_name"], generator=GENERATOR)
    made.globals.update(guard_table=guard_table, changed_table=changed_table, tiles=tiles, plane=plane)
    made.globals.update(
        metric_rows=metric_rows, rate_rows=rate_rows, sensitivity_rows=sensitivity_rows, facts=facts, prompts=prompts
    )
    return made
