"""Every statement has a sentence, and no text of others is obeyed."""

from __future__ import annotations

import ast
import html
import importlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refusal_index
from refusal_index.data.analysis import DEFAULT_ANALYSIS
from refusal_index.data.rates import BY_ANSWERABLE
from refusal_index.findings.metrics import METRICS, Statement
from refusal_index.findings.sections import registered_sections
from refusal_index.render.format import Table, interval, listed, number, percent, typeset
from refusal_index.render.report.page import plain, visible
from refusal_index.render.sentences import description, fill, sentence, sentences
from refusal_index.stats import METRIC_NAMES, Estimate

# --- Statements and sentences

PACKAGE = Path(refusal_index.__file__).parent
FOLDERS = ("findings", "render", "runs", "plugins/confidence", "plugins/training")
MODULES = [path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py")]
registered_sections()  # whose plugins add their sentences


def codes_of(node: ast.expr, module: Path) -> Iterator[str]:
    """Yield the codes that the first argument of a statement can be."""
    if isinstance(node, ast.IfExp):
        yield from (*codes_of(node.body, module), *codes_of(node.orelse, module))
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.Name):
        name = ".".join(module.relative_to(PACKAGE.parent).with_suffix("").parts)
        if (constant := getattr(importlib.import_module(name), node.id, None)) is not None:
            yield constant
        else:
            assigned = [
                one.value
                for one in ast.walk(ast.parse(module.read_text()))
                if isinstance(one, ast.Assign) and any(getattr(to, "id", None) == node.id for to in one.targets)
            ]
            assert assigned, f"{module}:{node.lineno}: expected a code, got {node.id}"
            yield from (code for value in assigned for code in codes_of(value, module))
    else:
        raise AssertionError(f"{module}:{node.lineno}: expected a code, a constant, or one of two")


def emitted(modules: Iterable[Path] = MODULES) -> set[str]:
    """Return the codes of all statements created in some modules."""
    return {
        code
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Statement"
        for code in codes_of(node.args[0], module)
    }


def test_every_statement_has_a_sentence_and_every_sentence_a_statement():
    assert emitted() == set(sentences()["text"]) | set(sentences()["page"])


def test_every_comparison_or_ranking_statement_is_rendered():
    made = emitted(PACKAGE / "findings" / f"{name}.py" for name in ("comparison", "ranking"))
    texts = [PACKAGE / "render" / name for name in ("comparison.py", "report/page.py")]
    literals = {
        node.value
        for path in texts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert made <= literals


def test_every_title_belongs_to_a_statement():
    assert set(sentences()["title"]) <= emitted()


def test_every_metric_has_a_row_and_a_description():
    assert set(METRICS) == set(sentences()["metric"]) == {*METRIC_NAMES, *BY_ANSWERABLE, "corrected_refusal_index"}
    assert all(description(name, DEFAULT_ANALYSIS) for name in METRICS)


@pytest.mark.parametrize("section", sentences())
def test_templates_use_filters_and_sections_that_exist(section):
    for code, template in sentences()[section].items():
        named = re.findall(r"phrase\(?'(\w+)'", template) + re.findall(r"'phrase', '(\w+)'", template)
        assert set(named) <= set(sentences()), code
        assert "  " not in template.strip(), code


QUESTIONS_LACK = {"what": "questions", "variants": [{"name": "high", "scored": 0, "asked": 200}], "more": 0}
DRAWS_LACK = {"what": "further_draws", "variants": [{"name": "low", "scored": 10, "asked": 50}], "more": 0}
SEEN = Estimate(0.0526, 0.0145, 0.1293)


@pytest.mark.parametrize(
    ("code", "values", "text"),
    [
        (
            "missing_answers",
            {"parts": [QUESTIONS_LACK, DRAWS_LACK], "resumable": True},
            "Incomplete: high 0 of 200 questions and low 10 of 50 repeated samples scored; run the same command again "
            "to complete it.",
        ),
        (
            "missing_answers",
            {"parts": [DRAWS_LACK], "resumable": False},
            "Incomplete: low 10 of 50 repeated samples scored.",
        ),
        (
            "scored_in_part",
            {"questions": 105, "asked": 400},
            "it scored 105 of 400 questions, and describes only these.",
        ),
        (
            "few_of_a_kind",
            {"count": 5, "kind": "wrong", "questions": 105},
            "5 of its 105 answers are wrong: too few to rely on.",
        ),
        (
            "method_left_out",
            {"no_score": 7, "replies": 400, "no_grade": 0},
            "no score in 7 of 400 replies; they are excluded, not imputed.",
        ),
        (
            "error_bound",
            {"name": "p", "rule": "p >= 0.7", "level": 0.9, "max_error": 0.2, "chosen": False, "seen": SEEN},
            "Answer at p >= 0.7: on questions like these, at most 20% of the answers are wrong (90% confidence), if "
            "questions are independent and the method was not chosen by these grades. Of the questions not used to "
            "choose the threshold, 5.3% [1.5, 12.9] of the answers were wrong.",
        ),
    ],
)
def test_wording_of_what_is_lacking_and_of_a_bound(code, values, text):
    assert sentence(Statement(code, values=values)) == text


def test_values_are_never_treated_as_templates():
    assert sentence(Statement("two_models", values={"first": "{{ forced }}", "forced": "b"})).count("{{ forced }}") == 1


def test_numbers_of_the_report_are_typeset_and_names_are_not():
    values = {"value": -0.25, "share": 0.5, "names": ["a -1"]}
    template = "{{ value | number(2) }} {{ share | percent(0) }} {{ names | listed }}"
    assert fill(template, values) == "-0.25 50% a -1"
    assert fill(template, values, typeset=True) == "\u22120.25 50% a -1"


# --- Hostile text

_KEPT = "\n\t\u200c\u200d"


@given(st.text())
def test_property_visible_replaces_control_characters_and_nothing_else(text: str) -> None:
    message = str(visible(text))
    assert not [c for c in message if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in _KEPT]
    back = re.sub(r'<span class="control" title="[^"]*">U\+([0-9A-F]+)</span>', lambda m: chr(int(m[1], 16)), message)
    inside = back.removeprefix('<bdi dir="auto">').removesuffix("</bdi>")
    assert html.unescape(inside) == text or "&" in text


@given(st.text())
def test_property_plain_text_is_one_harmless_line(text: str) -> None:
    printed = plain(text)
    assert not [
        c for c in printed if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\u200c\u200d"
    ]


def test_markup_is_escaped_and_control_characters_are_named() -> None:
    assert "<script>" not in str(visible("<script>"))
    assert 'title="RIGHT-TO-LEFT OVERRIDE">U+202E' in str(visible("\u202e"))


def test_joiners_that_scripts_need_are_kept() -> None:
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert persian in str(visible(persian))


def test_undefined_is_a_dash_and_never_a_zero() -> None:
    assert number(None) == percent(None) == interval(None, 0.3) == "-"
    assert typeset("-") == "\u2013"


def test_a_rounded_zero_has_no_sign() -> None:
    assert number(-0.0001) == "0.000"


def test_names_are_listed_with_commas_and_a_final_and() -> None:
    assert [listed(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


COLUMN = st.tuples(st.sampled_from(["metric", "95% interval"]), st.text("x", max_size=40))


@given(st.lists(COLUMN, min_size=1, max_size=12), st.integers(20, 90))
def test_property_parts_of_a_table_fit_the_width_or_hold_one_metric(columns: list[tuple[str, str]], width: int) -> None:
    named = [(f"{place} {name}", cell) for place, (name, cell) in enumerate(columns)]
    table = Table.from_rows(dict(named), [dict(named).values()])
    parts = list(table.parts(width))
    assert [name for part in parts for name in part.columns[1:]] == [name for name, _ in named[1:]]
    for part in parts:
        assert part.columns[0] == table.columns[0]
        assert part.rows == (tuple(dict(named)[name] for name in part.columns),)
        needed = sum(max(len(name), len(dict(named)[name])) + 2 for name in part.columns) - 2
        assert needed <= width or sum("interval" not in name for name in part.columns[2:]) == 0
        assert len(part.columns) < 2 or len(parts) == 1 or part is parts[0] or "interval" not in part.columns[1]


def test_property_columns_that_name_the_rows_are_in_every_part_of_a_wide_table() -> None:
    columns = ("metric", "prompt", *(f"{place} numbers" for place in range(9)))
    rows = [("RI", prompt, *("0.123" for _ in range(9))) for prompt in ("low", "high")]
    parts = list(Table.from_rows(columns, rows, left=("metric", "prompt")).parts())
    assert len(parts) > 1
    assert [part.columns[:2] for part in parts] == [("metric", "prompt")] * len(parts)
    assert [name for part in parts for name in part.columns[2:]] == list(columns[2:])
