"""A gate's verdict in files of other formats.

Markdown, for the summary of a job or a comment; texts of others are shown and never obeyed.

JUnit XML, which every CI system reads: a test case for each guard, and one for the verdict.

A guard beyond its limit is a failure. What is inconclusive is an error: neither passed nor failed, and red.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from refusal_index.findings.gate import GateResult, GuardResult
from refusal_index.findings.metrics import METRICS
from refusal_index.redaction import redacted
from refusal_index.render.blocks import Table, escape, to_text
from refusal_index.render.format import signed
from refusal_index.render.gate import changed_table, guard_table
from refusal_index.render.sentences import sentence

PUNCTUATION = re.compile(r"([\\`*_{}\[\]#|~@:$^]|(?<=www)\.)", re.IGNORECASE)
"""What means something in Markdown, or in what GitHub and GitLab add to it: @names, #numbers, addresses, formulas."""

BEGINNING = re.compile(r"^(\d*)([-+=/.)])(?!\d)")
"""What means something where a line begins: lists, rules, and the commands that GitLab obeys, such as /close."""

ENTITIES = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def to_markdown(result: GateResult) -> str:
    """Return the verdict, every guard, what else there is to know, and the questions that changed most."""
    why, judged, *notes = (line(sentence(statement)) for statement in result.statements)
    table = [_table(guard_table(result))] if result.guards else []
    parts = [f"## Refusal Index gate: {result.verdict}", why, judged, *table, *notes]
    if result.changed:
        title = f"The {len(result.changed)} questions that changed most"
        parts.append(f"<details><summary>{title}</summary>\n\n{_table(changed_table(result))}\n\n</details>")
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


if TYPE_CHECKING:
    from junitparser import TestCase

SUITE = "refusal-index gate"


def to_junit(result: GateResult) -> bytes:
    """Return the XML."""
    from junitparser import JUnitXml, TestSuite  # noqa: PLC0415 - a package that only this needs

    suite = TestSuite(SUITE)
    suite.add_property("candidate", _clean(result.candidate.label))  # first, as most schemas want them
    if result.baseline is not None:
        suite.add_property("baseline", _clean(result.baseline.label))
    suite.add_property("questions", str(result.questions))
    verdict = _case("verdict", result.verdict, sentence(result.statements[0]))
    if result.guards:
        verdict.system_out = _clean(to_text([guard_table(result)]), keep="\n")
    suite.add_testcases([verdict, *(_case(_name(guard), guard.test.verdict, _told(guard)) for guard in result.guards)])
    xml = JUnitXml(SUITE)
    xml.add_testsuite(suite)
    return bytes(xml.tostring())  # type: ignore[no-untyped-call] # of lxml or the standard library


def _name(result: GuardResult) -> str:
    """Return a name that no other guard has: of several cases with the same one some readers show the first."""
    if result.against_baseline:
        return result.guard.name
    return f"{result.guard.name} {'at least' if result.guard.higher_is_better else 'at most'}"


def _case(name: str, verdict: str, message: str) -> TestCase:
    from junitparser import Error, Failure, TestCase  # noqa: PLC0415 - a package that only this needs

    case = TestCase(name, classname="refusal_index.gate", time=0.0)
    if verdict == "fail":
        case.result = [Failure(_clean(message), "beyond_limit")]
    elif verdict == "inconclusive":
        case.result = [Error(_clean(message), "inconclusive")]
    return case


def _told(result: GuardResult) -> str:
    guard = result.guard
    number = "not defined" if guard.estimate is None else signed(guard.estimate)
    return f"{METRICS[guard.name].column}: {number}, allowed {sentence(result.limit)} ({result.test.verdict})"


def _clean(text: str, keep: str = "") -> str:
    """Show what XML does not take, and take keys out; the writer escapes the rest."""
    lines = redacted(text).split(keep) if keep else [redacted(text)]
    return keep.join(escape(line).translate(NOT_XML) for line in lines)


NOT_XML = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
