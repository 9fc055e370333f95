"""A gate's verdict as text, as JSON, as Markdown and as JUnit XML.

Markdown is for the summary of a job or a comment; texts of others are shown and never obeyed. Every CI system reads
JUnit XML: a test case for each guard, and one for the verdict. A guard beyond its limit is a failure. What is
inconclusive is an error: neither passed nor failed, and red.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from refusal_index.errors import escape, shortened
from refusal_index.findings.changed_questions import SHOWN
from refusal_index.findings.gate import GateResult
from refusal_index.findings.gate_policy import COARSE, Policy
from refusal_index.findings.gate_reasons import GuardResult
from refusal_index.findings.guards import questions_for_margins, questions_for_scenario
from refusal_index.findings.metrics import METRICS, Statement
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import Summary
from refusal_index.redaction import redacted
from refusal_index.render.format import UNDEFINED, Block, Table, interval, number, percent, pvalue, signed, to_text
from refusal_index.render.sentences import caveat_line, description, phrase, selected, sentence, sentences
from refusal_index.stats import PlanningScenario

if TYPE_CHECKING:
    from junitparser import TestCase


def gate_blocks(result: GateResult) -> Iterator[Block]:
    """Yield the verdict, what was compared, the guards, and notes; files hold the rest."""
    _, judged, *others = result.statements
    yield from (f"{result.verdict.upper()}. {result.why}", "", sentence(judged))
    if result.guards:
        yield from _guard_tables(result)
        if legend := sentence(guards_key(result, in_full=False)):
            yield from ("", legend)
    notes = [caveat_line(statement) for statement in others if statement.severity != "note"]
    if notes:
        yield from ("", *notes)
    changed = sum(not question.may_be_noise for question in result.changed)
    if changed:
        yield from ("", sentence(Statement("changed", values={"count": changed, "most": SHOWN})))


def not_asked(run: RunResults | None, verdict: GateResult) -> Iterator[str]:
    """Yield which questions of a candidate that was judged while it was asked were not asked, and why.

    - `run`: the candidate's results; None if an error came before the first look.
    """
    ended = verdict.unasked if run is None else run.ended
    if ended is not None:
        yield sentence(Statement("ended_early", values={"why": ended}))
    if run is not None and run.missing:
        yield sentence(Statement("not_finished", values={"first": run.missing[0], "questions": len(run.missing)}))


def baseline_blocks(summary: Summary) -> Iterator[Block]:
    """Yield how many questions a gate with the default margins needs, for a run of one prompt without serious caveats.

    With such a caveat, as with few questions in a cell, the intervals that this number rests on are not reliable.
    """
    if len(summary.variants) == 1 and all(one.severity != "serious" for one in summary.variants[0].caveats):
        variant = summary.variants[0]
        yield from _recommended(lambda policy: questions_for_margins(variant, summary.analysis, policy))


def scenario_blocks(scenario: PlanningScenario) -> Iterator[Block]:
    """Yield the same for expected rates."""
    yield from _recommended(lambda policy: questions_for_scenario(scenario, policy))


def _recommended(questions_of: Callable[[Policy], int | None]) -> Iterator[Block]:
    questions = questions_of(Policy())
    if questions is not None:
        values = {"questions": questions, "coarse": questions_of(Policy(margins=COARSE))}
        yield sentence(Statement("baseline_needs", "scope", values))


def gate_document(result: GateResult) -> dict[str, Any]:
    """Return a verdict as a JSON-serialisable dictionary, with its sentences."""
    document = result.to_document()
    first = {"gate_version": document["gate_version"], "verdict": result.verdict, "why": result.why}
    return {**first, **document, "looked": next(selected(result, "look"), None)}


def _guard_tables(result: GateResult) -> Iterator[Block]:
    """Yield the guards against the baseline and the fixed bounds, each as an empty line and a table of 80 columns."""
    margins = [guard for guard in result.guards if guard.against_baseline]
    bounds = [guard for guard in result.guards if not guard.against_baseline]
    if margins:
        yield from ("", guard_table(result, margins).without("adjusted p"))
    if bounds:
        yield from ("", guard_table(result, bounds).without("adjusted p", "baseline", "change"))


def guard_table(result: GateResult, guards: Sequence[GuardResult] | None = None) -> Table:
    """Return every guard as a row, or some of them; without the columns of a baseline if there is none."""
    level = f"{percent(1 - 2 * result.alpha)} interval"
    columns = ("guard", "baseline", "candidate", "change", level, "limit", "adjusted p", "verdict")
    table = Table.from_rows(
        columns, map(_cells, result.guards if guards is None else guards), left=("guard", "verdict")
    )
    return table.without("baseline", "change") if result.baseline is None else table


def guards_key(result: GateResult, *, in_full: bool = True) -> Statement:
    """State how to read the table of guards; in full, with every column and every metric."""
    columns = dict.fromkeys(_label(row.guard.name) for row in result.guards)
    meanings: dict[str, str] = {
        column: meaning for column, meaning in sentences()["column"].items() if column in columns
    }
    if in_full:
        names = dict.fromkeys(row.guard.name for row in result.guards if row.guard.name != ATTEMPTED)
        meanings |= {_label(name): description(name, result.analysis, typeset=False) for name in names}
    margins = any(row.against_baseline for row in result.guards)
    return Statement("guards_explained", "scope", {"margins": margins, "meanings": meanings, "in_full": in_full})


ATTEMPTED = "correct_given_attempted"
"""Shown as on the first screen of a run, as the share of answers that are wrong."""


def _label(name: str) -> str:
    return sentences()["guard"].get(name, METRICS[name].column)


def _cells(row: GuardResult) -> Iterator[str]:
    test = row.test
    change = row.guard.estimate if row.against_baseline else None
    is_known = row.guard.estimate is not None and test.pvalue_beyond is not None
    low, high = sorted(_as_shown(row, end) for end in (test.worst, test.best) if end is not None) or (None, None)
    yield _label(row.guard.name)
    for own in (row.baseline, row.candidate):
        yield number(1 - own if row.guard.name == ATTEMPTED and own is not None else own)
    yield from (signed(None if change is None else _as_shown(row, change)), interval(low, high))
    yield from (_limit(row), pvalue(test.pvalue_holm) if is_known else UNDEFINED, test.verdict)


def _as_shown(row: GuardResult, value: float) -> float:
    """Return a value of what a guard limits, of the share of wrong answers instead of right ones."""
    if row.guard.name != ATTEMPTED:
        return value
    return -value if row.against_baseline else 1 - value


def _limit(row: GuardResult) -> str:
    """Format a limit: with its sign if it is one of a change."""
    guard = row.guard
    limit = _as_shown(row, guard.limit)
    if row.against_baseline:
        return f"{'+' if limit > 0 else ''}{number(limit, None)}"
    is_least = guard.higher_is_better is not (guard.name == ATTEMPTED)
    return f"{'>=' if is_least else '<='} {number(limit, None)}"


def changed_table(result: GateResult) -> Table:
    """Return the questions that changed most as rows."""
    rows = (
        (
            question.question_id,
            f"{phrase(question.baseline, 'response')} ({question.draws_baseline})",
            f"{phrase(question.candidate, 'response')} ({question.draws_candidate})",
            "yes" if question.may_be_noise else "no",
            shortened(question.question)[1:-1] if question.question else UNDEFINED,
        )
        for question in result.changed
    )
    return Table.from_rows(names := ("question_id", "before", "now", "may be noise", "question"), rows, left=names)


PUNCTUATION = re.compile(r"([\\`*_{}\[\]#|~@:$^]|(?<=www)\.)", re.IGNORECASE)
"""What means something in Markdown, or in what GitHub and GitLab add to it: @names, #numbers, addresses, formulas."""

BEGINNING = re.compile(r"^(\d*)([-+=/.)])(?!\d)")
"""What means something where a line begins: lists, rules, and the commands that GitLab obeys, such as /close."""

ENTITIES = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def to_markdown(result: GateResult) -> str:
    """Return the verdict, every guard, notes, and the questions that changed most, as Markdown."""
    judged, *notes = (line(sentence(statement)) for statement in result.statements[1:])
    table = [_table(guard_table(result)), line(sentence(guards_key(result)))] if result.guards else []
    parts = [f"## Refusal Index gate: {result.verdict}", line(result.why), judged, *table, *notes]
    if result.changed:
        title = f"The {len(result.changed)} questions that changed most"
        parts.append(f"<details><summary>{title}</summary>\n\n{_table(changed_table(result))}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def line(text: str) -> str:
    r"""Return a text escaped for Markdown and HTML, for a line of its own.

    Examples
    --------
    >>> print(line("/close a*b"), line("2. x"), line("-0.05 lower"))
    \/close a\*b 2\. x -0.05 lower
    """
    return BEGINNING.sub(r"\1\\\2", escaped(text.strip()))


def escaped(text: str) -> str:
    r"""Return a text escaped for Markdown and HTML, for use within a line.

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


SUITE = "refusal-index gate"


def to_junit(result: GateResult) -> bytes:
    """Return the verdict as JUnit XML."""
    from junitparser import JUnitXml, TestSuite  # noqa: PLC0415 - a package that only this needs

    suite = TestSuite(SUITE)
    suite.add_property("candidate", _clean(result.candidate.label))  # first, as most schemas want them
    if result.baseline is not None:
        suite.add_property("baseline", _clean(result.baseline.label))
    suite.add_property("questions", str(result.questions))
    verdict = _case("verdict", result.verdict, result.why)
    verdict.system_out = _clean(f"{result.why}\n{to_text(_guard_tables(result))}".rstrip(), keep="\n")
    suite.add_testcase(verdict)
    for test in result.guards:
        guard = test.guard
        # of several cases of the same name some readers show the first
        bound = "" if test.against_baseline else f" {'at least' if guard.higher_is_better else 'at most'}"
        shown = "not defined" if guard.estimate is None else signed(_as_shown(test, guard.estimate))
        message = f"{_label(guard.name)}: {shown}, allowed {_limit(test)} ({test.test.verdict})"
        suite.add_testcase(_case(f"{guard.name}{bound}", test.test.verdict, message))
    xml = JUnitXml(SUITE)
    xml.add_testsuite(suite)
    return bytes(xml.tostring())  # type: ignore[no-untyped-call] # of lxml or the standard library


def _case(name: str, verdict: str, message: str) -> TestCase:
    from junitparser import Error, Failure, TestCase  # noqa: PLC0415 - a package that only this needs

    case = TestCase(name, classname="refusal_index.gate", time=0.0)
    if verdict == "fail":
        case.result = [Failure(_clean(message), "beyond_limit")]
    elif verdict == "inconclusive":
        case.result = [Error(_clean(message), "inconclusive")]
    return case


def _clean(text: str, keep: str = "") -> str:
    """Remove API keys and characters that XML does not allow; the writer escapes the rest."""
    lines = redacted(text).split(keep) if keep else [redacted(text)]
    return keep.join(escape(line).translate(NOT_XML) for line in lines)


NOT_XML = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
