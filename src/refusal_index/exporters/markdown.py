r"""A gate's verdict as Markdown, for the summary of a job or a comment; texts of others are shown and never obeyed."""

from __future__ import annotations

import re

from refusal_index.outcomes.gate import GateResult
from refusal_index.outcomes.presentation.blocks import Table, escape
from refusal_index.outcomes.presentation.gate import changed_table, guard_table, judged, notes
from refusal_index.redaction import redacted

PUNCTUATION = re.compile(r"([\\`*_{}\[\]#|~@:$^]|(?<=www)\.)", re.IGNORECASE)
"""What means something in Markdown, or in what GitHub and GitLab add to it: @names, #numbers, addresses, formulas."""

BEGINNING = re.compile(r"^(\d*)([-+=/.)])(?!\d)")
"""What means something where a line begins: lists, rules, and the commands that GitLab obeys, such as /close."""

ENTITIES = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def to_markdown(found: GateResult) -> str:
    """Return the verdict, every guard, what else there is to know, and the questions that changed most."""
    parts = [
        f"## Refusal Index gate: {found.verdict}",
        line(found.why),
        line(judged(found)),
        *([_table(guard_table(found))] if found.guards else []),
        *map(line, notes(found)),
    ]
    if found.changed:
        title = f"The {len(found.changed)} questions that changed most"
        parts.append(f"<details><summary>{title}</summary>\n\n{_table(changed_table(found))}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def line(text: str) -> str:
    r"""Return a text that stands in a line of its own, in which no character means anything to Markdown or HTML.

    Examples
    --------
    >>> print(line("/close a*b"), line("2. x"), line("-0.05 lower"))
    \/close a\*b 2\. x -0.05 lower
    """
    return BEGINNING.sub(r"\1\\\2", escaped(text.strip()))


def escaped(text: str) -> str:
    r"""Return a text in which no character means anything to Markdown or HTML, unless a line begins with it.

    Examples
    --------
    >>> print(escaped("a*b <script> [x](http://y) |"))
    a\*b &lt;script&gt; \[x\](http\://y) \|
    """
    return PUNCTUATION.sub(r"\\\1", escape(redacted(text))).translate(ENTITIES)


def _table(table: Table) -> str:
    rule = ["---" if name in table.left else "--:" for name in table.columns]
    rows = [map(escaped, table.columns), rule, *(map(escaped, row) for row in table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
