"""The page: one HTML file that needs nothing else and loads nothing.

Style and script stand in it, and its content security policy names them by their hashes: no other script can run, no
other style applies, and nothing is ever fetched.

Packed data is gzip in base64, which every browser since 2023 unpacks by itself (``DecompressionStream``); short data
stays plain and needs nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from refusal_index.data.files import opened_file, write_atomically
from refusal_index.findings.gate import GateResult
from refusal_index.render.blocks import OBEYED, Table
from refusal_index.render.format import count
from refusal_index.render.gate import changed_table, guard_table
from refusal_index.render.report.browser import Embedded, embed_questions, questions_of
from refusal_index.render.report.confidence import UNIT
from refusal_index.render.report.panel import panel_views
from refusal_index.render.report.runs import ReportRun
from refusal_index.render.report.views import RunView, overview, run_view
from refusal_index.render.sentences import filters, sentence, sentences
from refusal_index.version import __version__

KEPT = frozenset("\n\t\u200c\u200d")
"""Of these, line breaks and tabs, and the two joiners that some scripts and emoji cannot be written without."""


def visible(text: object) -> Markup:
    r"""Return text as HTML in which control and direction characters can be seen, isolated from its surroundings.

    >>> print(visible("<b>\x1b"))
    <bdi dir="auto">&lt;b&gt;<span class="control" title="ESCAPE">U+001B</span></bdi>
    """
    parts = (_seen(character) if _is_obeyed(character) else escape(character) for character in _runs(str(text)))
    return Markup('<bdi dir="auto">{}</bdi>').format(Markup("").join(parts))


def plain(text: object) -> str:
    r"""Return text for places that hold no elements (titles, alternative texts, SVG), line breaks taken out.

    >>> plain("a\u202eb")
    'a⟨U+202E⟩b'
    """
    one_line = str(text).replace("\n", " ").replace("\t", " ")
    return "".join(f"⟨{_code(c)}⟩" if _is_obeyed(c) else c for c in one_line)


_CANDIDATE = re.compile(r"[^\x20-\x7e\n\t]")


def _runs(text: str) -> list[str]:
    """Split text into single characters that may be obeyed, and everything between them."""
    found, start = [], 0
    for match in _CANDIDATE.finditer(text):
        if _is_obeyed(match[0]):
            found += [text[start : match.start()], match[0]]
            start = match.end()
    return [*found, text[start:]]


def _is_obeyed(character: str) -> bool:
    return len(character) == 1 and unicodedata.category(character) in OBEYED and character not in KEPT


def _seen(character: str) -> Markup:
    # Control codes have aliases, not names.
    name = unicodedata.name(character, {"\x1b": "ESCAPE"}.get(character, "control character"))
    return Markup('<span class="control" title="{}">{}</span>').format(name, _code(character))


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


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
    why, *notes = map(sentence, found.statements)
    beside = (BESIDE,) if found.baseline is not None else ()
    return GateView(
        found.verdict,
        why,
        (*notes, *beside),
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
    environment.filters |= {**filters(typeset=True), "visible": visible, "plain": plain}
    environment.globals.update(version=__version__, cells=sentences()["cell_name"], unit=UNIT, generator=GENERATOR)
    return environment
