"""A study in files: CSV of its frame, LaTeX of its table, and its figure as SVG, PDF and PNG.

The same study gives the same bytes: no dates, no random names inside the files.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.files import write_atomically
from refusal_index.outcomes.presentation import escape
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.outcomes.table import defused
from refusal_index.studies.study import Study, number
from refusal_index.studies.style import house_style

LONGEST = 60
"""Rows; of a longer frame the rest is left to the CSV file, which is said in a comment."""

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}
_LIGATURES = re.compile(r"([-'`,?!])(?=[-'`,])")
"""Two characters that LaTeX would print as one: dashes, quotation marks, Spanish marks."""
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


def escaped(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    >>> escaped("50% of \\input{x}")
    '50\\% of \\textbackslash{}input\\{x\\}'
    """
    return _LIGATURES.sub(r"\1{}", "".join(_ESCAPES.get(character, character) for character in escape(text)))


def latex_table(table: pl.DataFrame, caption: str, label: str, groups: Mapping[str, str] | None = None) -> str:
    r"""Write a table with its caption; it needs the packages booktabs, graphicx and textcomp, and fonts in T1.

    - `groups`: by column the heading above it; columns side by side share one.
    """
    shown = table.head(LONGEST)
    right = [kind.is_numeric() or name not in _text_columns(shown) for name, kind in shown.schema.items()]
    lines = [
        "% Needs \\usepackage{booktabs,graphicx,textcomp} and \\usepackage[T1]{fontenc}.",
        "\\begin{table}[t]",
        "\\centering\\small",
        f"\\caption{{{escaped(caption)}}}",
        f"\\label{{tab:{label.replace('_', '-')}}}",
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{{''.join('r' if it else 'l' for it in right)}}}",
        "\\toprule",
        *_group_lines(shown.columns, groups or {}),
        _line([f"\\textbf{{{escaped(name.replace('_', ' '))}}}" for name in shown.columns]),
        "\\midrule",
        *(_line([_MINUS.sub("$-$", escaped(_cell(value))) for value in row]) for row in shown.iter_rows()),
        "\\bottomrule",
        "\\end{tabular}}",
        "\\end{table}",
    ]
    if table.height > LONGEST:
        lines.append(f"% {table.height - LONGEST:,} further rows are in {label}.csv.")
    return "\n".join(lines) + "\n"


def _group_lines(columns: Sequence[str], groups: Mapping[str, str]) -> Iterator[str]:
    """Write the headings of groups of columns, each with a rule below; nothing where there are none."""
    if not any(name in groups for name in columns):
        return
    cells, rules, place = [], [], 1
    for heading, members in groupby(columns, key=lambda name: groups.get(name, "")):
        width = len(list(members))
        cells.append(
            f"\\multicolumn{{{width}}}{{c}}{{\\textbf{{{escaped(heading)}}}}}" if heading else " & " * (width - 1)
        )
        rules += [f"\\cmidrule(lr){{{place}-{place + width - 1}}}"] if heading else []
        place += width
    yield _line(cells)
    yield " ".join(rules)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _text_columns(table: pl.DataFrame) -> set[str]:
    """Name the columns that hold words rather than numbers."""
    texts = [name for name, kind in table.schema.items() if kind == pl.String]
    return {name for name in texts if not table[name].drop_nulls().str.contains(r"^[-+]?\d|^-$").all()}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return number(value) if isinstance(value, float) else str(value)


FORMATS = ("csv", "tex", "svg", "pdf", "png")
"""All that can be written, in the order in which they are."""


class WritingError(RefusalIndexError, ValueError):
    """The files of a study cannot be written where they should be."""


def write_study(study: Study, folder: Path, formats: Sequence[str] = FORMATS) -> tuple[Path, ...]:
    """Write a study into a folder, which is made where there is none, and return what was written.

    A study that is a table only has no pictures, whatever formats are asked for. Raises WritingError if the folder or a
    file cannot be written.
    """
    contents: dict[str, bytes] = {kind: _TABLES[kind](study) for kind in formats if kind in _TABLES}
    pictures = [kind for kind in formats if kind in _METADATA]
    if study.draw is not None and pictures:
        contents |= _pictures(study, pictures)
    paths = {kind: folder / f"{study.name}.{kind}" for kind in FORMATS if kind in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, path in paths.items():
            write_atomically(path, contents[kind])
    except OSError as error:
        raise WritingError(f"{folder} cannot be written ({error.strerror}); choose another place") from error
    return tuple(paths.values())


def csv_text(study: Study) -> str:
    """Return the frame as CSV, harmless in a spreadsheet: text that begins like a formula gets an apostrophe."""
    texts = [name for name, kind in study.frame.schema.items() if kind == pl.String]
    return study.frame.with_columns(defused(name) for name in texts).write_csv()


def tex_text(study: Study) -> str:
    """Return the table as LaTeX."""
    table = study.frame if study.printed is None else study.printed(study.frame)
    return latex_table(table, f"{study.title}. {study.caption}", study.name, study.groups)


def index_text(
    made: Sequence[tuple[Study, Sequence[Path]]],
    missing: Sequence[tuple[str, str, str]],
    runs: Sequence[ComparedRun],
    left_out: Sequence[str] = (),
) -> str:
    """Return the page that shows all studies of a folder: pictures, captions, notes, and what is missing.

    - `made`: each study with its files.
    - `missing`: name, title and the reason of each that could not be made.
    - `runs`: what they were made of.
    - `left_out`: why runs could not be read, a sentence each.
    """
    parts = ["# Studies", "", "| run | dataset | prompt variants |", "|---|---|---|"]
    for run in runs:
        variants = ", ".join(str(variant or "all") for variant in run.variants)
        parts.append("| " + " | ".join(markdown(text) for text in (run.label, run.dataset or "-", variants)) + " |")
    parts += ["", *(f"- Left out: {markdown(problem)}" for problem in left_out)] if left_out else []
    for study, paths in made:
        parts += ["", f"## {study.title}", ""]
        picture = next((path.name for kind in ("svg", "png") for path in paths if path.suffix == f".{kind}"), None)
        parts += [f"![{study.title}]({picture})", ""] if picture else []
        parts += [markdown(study.caption), ""]
        parts += [f"- {markdown(note)}" for note in few_notes(study)] + ([""] if study.notes else [])
        parts.append("Files: " + ", ".join(f"[{path.name}]({path.name})" for path in paths))
    if missing:
        parts += ["", "## Not made", ""]
        parts += [f"- **{title}** (`{name}`): {markdown(reason)}" for name, title, reason in missing]
    return "\n".join(parts) + "\n"


MOST_NOTES = 8


def few_notes(study: Study) -> tuple[str, ...]:
    """Return the notes of a study, the first of many with how many more there are."""
    more = len(study.notes) - MOST_NOTES
    said = (f"And {more:,} more notes, which 'refusal-index study {study.name}' prints.",) if more > 0 else ()
    return (*study.notes[:MOST_NOTES], *said)


def markdown(text: str) -> str:
    r"""Return the text of others as Markdown shows it: as text, on one line.

    >>> markdown("<b>a_b</b>\n| c")
    '&lt;b&gt;a\\_b&lt;/b&gt;\\\\n\\| c'
    """
    marked = _MARKUP.sub(r"\\\g<0>", escape(text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_MARKUP = re.compile(r"[\\`*_\[\]|#~$]|!(?=\[)")


def _pictures(study: Study, kinds: Sequence[str]) -> dict[str, bytes]:
    figure, contents = study.figure(), {}
    with house_style({"svg.hashsalt": study.name}):
        for kind in kinds:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=dict(_METADATA[kind]) | {"Title": study.title})
            contents[kind] = buffer.getvalue()
    return contents


_METADATA: Mapping[str, Mapping[str, Any]] = {
    "svg": {"Date": None, "Creator": "refusal-index"},
    "pdf": {"CreationDate": None, "Creator": "refusal-index", "Producer": None},
    "png": {"Software": None},
}
_TABLES: Mapping[str, Callable[[Study], bytes]] = {
    "csv": lambda study: csv_text(study).encode(),
    "tex": lambda study: tex_text(study).encode(),
}
