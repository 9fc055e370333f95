"""The files of a gate verdict can be read by standard tools, and untrusted text in them has no effect."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from junitparser import Error, Failure, JUnitXml
from markdown_it import MarkdownIt

from refusal_index.data import Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.errors import CONTROL_CATEGORIES
from refusal_index.findings.gate import GateResult, decide
from refusal_index.findings.gate_policy import Policy
from refusal_index.findings.metrics import Statement
from refusal_index.findings.run_results import RunResults, runs_of_table
from refusal_index.render.gate import _clean, escaped, line, to_junit, to_markdown
from refusal_index.render.sentences import sentence

HOSTILE = (
    "<script>x()</script>",
    "]]></testcase><x>&amp;",
    "a|b`c`*d*_e_[f](http://g)",
    "\x1b[2J\x00\x85 \u202e\u2028",
    "one\n\n# two\r\n- three",
    "![x](javascript:y) www.evil.com evil@evil.com @team #1 $x$ ~~z~~",
    "\ufffe\uffff\ud800",
    "![",
    "- x",
    "1. x",
    '"><svg onload="x()">',
    "{{ 7 * 7 }}",
    "sk-abc1" + "d" * 30,
)


def run_of(name: str, wrong_from: int, n: int = 120, temperature: float = 0.0) -> RunResults:
    rng = np.random.default_rng(5)
    refused = rng.random(n) < 0.4
    rows = (
        (
            Identification(name, "d", "normal"),
            Question(f"{HOSTILE[i % len(HOSTILE)]} {i}", f"{HOSTILE[-i % len(HOSTILE)]} {i}", "!"),
            Outcome(bool(refused[i]), i % 3 >= wrong_from),
        )
        for i in range(n)
    )
    sent = {"sent": {"model": {"temperature": temperature}}}
    return runs_of_table(Path("x.parquet"), outcome_table(rows), {}, sent)[0]


@pytest.fixture(scope="module", params=HOSTILE)
def gate_result(request) -> GateResult:
    return decide(run_of(f"candidate {request.param}", 0), run_of(f"base {request.param}", 2), Policy())


def test_junit_case_names_are_unique():
    bounds = {"at_least": {"correct_rate": 0.1}, "at_most": {"correct_rate": 0.9, "refusal_rate": 0.9}}
    (suite,) = JUnitXml.fromstring(to_junit(decide(run_of("candidate", 1), run_of("base", 1), Policy(**bounds))))
    names = [case.name for case in suite]
    assert {"correct_rate", "correct_rate at least", "correct_rate at most"} < set(names)
    assert len(names) == len(set(names)) == 8


def test_junitparser_reads_every_guard(gate_result):
    (suite,) = JUnitXml.fromstring(to_junit(gate_result))
    cases = {case.name: case for case in suite}
    assert list(cases) == ["verdict", *(one.guard.name for one in gate_result.guards)]
    kinds = {"pass": [], "fail": [Failure], "inconclusive": [Error]}
    for guard in gate_result.guards:
        assert [type(result) for result in cases[guard.guard.name].result] == kinds[guard.test.verdict]
    assert [type(result) for result in cases["verdict"].result] == kinds[gate_result.verdict] == [Failure]
    assert cases["verdict"].result[0].message == _clean(gate_result.why)
    assert suite.failures == 1 + sum(one.test.verdict == "fail" for one in gate_result.guards)
    assert {"candidate", "baseline", "questions"} == {one.name for one in suite.properties()}
    (root,) = ElementTree.fromstring(to_junit(gate_result))  # noqa: S314 - our own
    assert [one.tag for one in root] == ["properties", *["testcase"] * len(cases)]


def test_markdown_shows_untrusted_text_literally(gate_result):
    text = to_markdown(gate_result)
    assert not {unicodedata.category(one) for one in text if one != "\n"} & CONTROL_CATEGORIES
    assert "sk-abc1" not in text
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert {token.type for token in inline} <= {"text", "softbreak", "text_special"}
    assert [token.content.strip() for token in tokens if token.type == "html_block"] == [
        "<details><summary>The 10 questions that changed most</summary>",
        "</details>",
    ]
    kinds = {token.type for token in tokens} - {"inline", "html_block"}
    assert {kind.partition("_")[0] for kind in kinds} == {
        "heading",
        "paragraph",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    texts = {"".join(child.content for child in token.children).strip() for token in tokens if token.children}
    plain = [
        one.question_id for one in gate_result.changed if one.question_id.isprintable() and "sk-" not in one.question_id
    ]
    assert plain
    assert {one.strip() for one in plain} <= texts


def test_markdown_marks_changes_that_may_be_noise_and_says_why():
    text = to_markdown(decide(run_of("candidate", 0, temperature=0.7), run_of("base", 2), Policy()))
    assert line(sentence(Statement("single_responses"))) in text
    assert text.count(" | yes | ") == 10


BEGINNINGS = ("- x", "1. x", "12. x", "2024) x", "3.", "+ x", "= x", "# x", "> x", "    x", "***", "---", "/close")


@pytest.mark.parametrize("text", BEGINNINGS)
def test_line_start_never_opens_a_list_heading_or_quotation(text):
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(f"before\n\n{line(text)}\n")[3:]
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert "".join(child.content for child in tokens[1].children) == text.strip()


@pytest.mark.parametrize("text", ["/close", "  /spend 1d", "\u00a0/label ~x"])
def test_gitlab_quick_actions_are_escaped(text):
    assert line(text).startswith("\\/")


@pytest.mark.parametrize("text", ["0.444", "-0.05", "-", "1,024"])
def test_table_numbers_are_not_escaped(text):
    assert escaped(text) == text


@pytest.mark.parametrize("text", ["http://evil.com", "WWW.evil.com", "evil@evil.com", "mailto:evil@evil.com", "@team"])
def test_links_and_mentions_are_escaped_for_github(text):
    texts = escaped(text)
    assert not any(one in texts.lower() for one in ("http:", "www.", "mailto:", "l@", " @"))
    assert (
        "".join(token.content for token in MarkdownIt("gfm-like", {"linkify": False}).parseInline(texts)[0].children)
        == text
    )
