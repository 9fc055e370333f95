"""The page: one HTML file that needs nothing else and lets nothing in.

Style and script stand in it, and its content security policy names them by their hashes: no other script can run, no
other style applies, and nothing is ever fetched.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from refusal_index.outcomes.files import opened_file, write_atomically
from refusal_index.outcomes.gate import GateResult
from refusal_index.outcomes.presentation.blocks import listed, worded
from refusal_index.report.browser import questions_of
from refusal_index.report.confidence import UNIT
from refusal_index.report.embedding import Embedded, embed_questions
from refusal_index.report.figures import CELLS, SHORT
from refusal_index.report.gate import gate_view
from refusal_index.report.overview import overview
from refusal_index.report.panel import panel_views
from refusal_index.report.runs import ReportRun
from refusal_index.report.text import count, interval, number, percent, plain, visible
from refusal_index.report.views import RunView, run_view
from refusal_index.version import __version__

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

    - `runs`: as `refusal_index.report.read_report_runs` reads them, or `refusal_index.report.folder_runs` takes them
      from a run that has just been made.
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
    style, script = _asset("report.css"), _script()
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=_title(views) if gate is None else f"Refusal Index gate: {gate.verdict}",
            gate=None if gate is None else gate_view(gate),
            views=views,
            overview=overview(views) if len(views) > 1 else None,
            panels=panel_views(runs, [view.anchor for view in views]),
            data=embedded,
            left_out=left_out,
            style=Markup(style),  # noqa: S704  our own
            script=Markup(script),  # noqa: S704  our own
            policy=_policy(style, script),
        )
    )


def _title(views: Sequence[RunView]) -> str:
    runs = [view.source.run for view in views]
    if len(runs) > 1:
        return f"Refusal Index of {count(len(runs), 'run')}"
    return f"Refusal Index of {' on '.join(part for part in (runs[0].label, runs[0].dataset) if part)}"


def _policy(style: str, script: str) -> str:
    rules = (
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script() -> str:
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _asset(name: str) -> str:
    return resources.files("refusal_index.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("refusal_index.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        visible=visible,
        plain=plain,
        worded=worded,
        number=number,
        interval=interval,
        percent=percent,
        count=count,
        listed=listed,
    )
    environment.globals.update(version=__version__, cells=CELLS, short=SHORT, unit=UNIT, generator=GENERATOR)
    return environment
