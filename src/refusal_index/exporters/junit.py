"""A gate's verdict as JUnit XML, which every CI system reads: a test case for each guard, and one for the verdict.

A guard beyond its limit is a failure. What is inconclusive is an error: neither passed nor failed, and red.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from refusal_index.outcomes.gate import GateResult, GuardResult
from refusal_index.outcomes.presentation.blocks import escape, to_text
from refusal_index.outcomes.presentation.gate import allowed, guard_name, guard_table
from refusal_index.redaction import redacted

if TYPE_CHECKING:
    from junitparser import TestCase

SUITE = "refusal-index gate"


def to_junit(found: GateResult) -> bytes:
    """Return the XML."""
    from junitparser import JUnitXml, TestSuite  # noqa: PLC0415 - a package that only this needs

    suite = TestSuite(SUITE)
    suite.add_property("candidate", _clean(found.candidate.label))  # first, as most schemas want them
    if found.baseline is not None:
        suite.add_property("baseline", _clean(found.baseline.label))
    suite.add_property("questions", str(found.questions))
    verdict = _case("verdict", found.verdict, found.why)
    if found.guards:
        verdict.system_out = _clean(to_text([guard_table(found)]), keep="\n")
    suite.add_testcases([verdict, *(_case(_name(one), one.test.verdict, _told(one)) for one in found.guards)])
    xml = JUnitXml(SUITE)
    xml.add_testsuite(suite)
    return bytes(xml.tostring())  # type: ignore[no-untyped-call] # of lxml or the standard library


def _name(one: GuardResult) -> str:
    """Return a name that no other guard has: of several cases with the same one some readers show the first."""
    if one.named.against_baseline:
        return one.named.guard.name
    return f"{one.named.guard.name} {'at least' if one.named.guard.higher_is_better else 'at most'}"


def _case(name: str, verdict: str, told: str) -> TestCase:
    from junitparser import Error, Failure, TestCase  # noqa: PLC0415 - a package that only this needs

    case = TestCase(name, classname="refusal_index.gate", time=0.0)
    if verdict == "fail":
        case.result = [Failure(_clean(told), "beyond_limit")]
    elif verdict == "inconclusive":
        case.result = [Error(_clean(told), "inconclusive")]
    return case


def _told(one: GuardResult) -> str:
    number = "not defined" if one.named.guard.estimate is None else f"{one.named.guard.estimate:+.3f}"
    return f"{guard_name(one)}: {number}, allowed {allowed(one)} ({one.test.verdict})"


def _clean(text: str, keep: str = "") -> str:
    """Show what XML does not take, and take keys out; the writer escapes the rest."""
    lines = redacted(text).split(keep) if keep else [redacted(text)]
    return keep.join(escape(line).translate(NOT_XML) for line in lines)


NOT_XML = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
