"""The page: one HTML file that needs nothing else and loads nothing.

Style and script stand in it, and its content security policy names them by their hashes: no other script can run, no
other style applies, and nothing is ever fetched.

Packed data is gzip in base64, which every browser since 2023 unpacks by itself (``DecompressionStream``); short data
stays plain and needs nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from refusal_index.data.files import opened_file, write_atomically
from refusal_index.findings.gate import GateResult
from refusal_index.render.blocks import Table
from refusal_index.render.format import listed, reason_text
from refusal_index.render.gate import changed_table, guard_table, judged, notes, sentence
from refusal_index.render.report.browser import Cut, Questions, payload, questions_of
from refusal_index.render.report.confidence import UNIT
from refusal_index.render.report.figures import CELLS, SHORT
from refusal_index.render.report.overview import RunView, overview, run_view
from refusal_index.render.report.panel import panel_views
from refusal_index.render.report.runs import ReportRun
from refusal_index.render.report.tables import count, interval, number, percent, plain, visible
from refusal_index.version import __version__

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


def embed_questions(found: Questions, room: int = ROOM) -> Embedded:
    """Embed as much of the questions' replies as there is room for; the last rung is taken whatever its size."""
    lengths, ratio = _lengths_of_replies(found), room / RAW_ROOM
    for cut in LADDER:
        # What a rung would take is known roughly before it is tried, and better after another was.
        if cut is not LADDER[-1] and _characters(lengths, cut) * ratio > room:
            continue
        embedded = _embed(payload(found, cut), cut)
        if len(embedded.text) <= room:
            break
        ratio = max(ratio, 0.9 * len(embedded.text) / max(_characters(lengths, cut), 1)) if cut.all_draws else ratio
    return replace(embedded, questions=found.height, left_out=found.left_out)


def _lengths_of_replies(found: Questions) -> list[tuple[int, int]]:
    """Return length and number of the replies, grouped by hundreds of characters."""
    counted: dict[int, int] = {}
    for name in ("first_reply", "forced_reply"):
        lengths = found.rows[name].drop_nulls().unique().str.len_chars() // 100 * 100
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


BESIDE = (
    "Below, runs are told apart where they differ at all. The gate asks whether one is worse by more than is allowed, "
    "so that both can be right."
)
"""Why a comparison on the same page may say that a run is worse, and the gate not."""


@dataclass(frozen=True)
class GateView:
    """A verdict, ready for the template."""

    verdict: str
    why: str
    notes: tuple[str, ...]  # what was judged, and what else there is to know
    # guards, changed: tables; None where there is nothing in them
    guards: Table | None
    changed: Table | None


def gate_view(found: GateResult) -> GateView:
    """Prepare a verdict for the page."""
    beside = (BESIDE,) if found.baseline is not None else ()
    return GateView(
        found.verdict,
        sentence(found),
        (judged(found), *notes(found), *beside),
        guard_table(found) if found.guards else None,
        changed_table(found) if found.changed else None,
    )


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
    return resources.files("refusal_index.render.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("refusal_index.render.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        visible=visible,
        plain=plain,
        reason_text=reason_text,
        number=number,
        interval=interval,
        percent=percent,
        count=count,
        listed=listed,
    )
    environment.globals.update(version=__version__, cells=CELLS, short=SHORT, unit=UNIT, generator=GENERATOR)
    return environment
