"""Every statement has a sentence and every sentence a statement; every metric has one row and one description."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import refusal_index
from refusal_index.data.rates import BY_ANSWERABLE
from refusal_index.findings.metrics import METRICS, Statement
from refusal_index.render.sections import report_sections
from refusal_index.render.sentences import description, fill, sentence, sentences
from refusal_index.stats import METRIC_NAMES
from refusal_index.stats.baseline import Payoffs

PACKAGE = Path(refusal_index.__file__).parent
FOLDERS = ("findings", "render", "runs", "plugins/confidence", "plugins/training")
MODULES = [path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py")]
report_sections()  # whose plugins add their sentences


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
    """Return the codes of all statements that are made in some modules."""
    return {
        code
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Statement"
        for code in codes_of(node.args[0], module)
    }


def test_every_statement_has_a_sentence_and_every_sentence_a_statement():
    assert emitted() == set(sentences()["text"]) | set(sentences()["page"])


def test_every_statement_of_a_comparison_or_a_ranking_has_its_place_where_it_is_shown():
    made = emitted(PACKAGE / "findings" / f"{name}.py" for name in ("comparison", "ranking"))
    texts = [PACKAGE / "render" / name for name in ("comparison.py", "report/page.py")]
    literals = {
        node.value
        for path in texts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert made <= literals


def test_every_title_is_of_a_statement():
    assert set(sentences()["title"]) <= emitted()


def test_every_metric_has_a_row_and_a_description():
    assert set(METRICS) == set(sentences()["metric"]) == {*METRIC_NAMES, *BY_ANSWERABLE, "corrected_refusal_index"}
    assert all(description(name, Payoffs()) for name in METRICS)


@pytest.mark.parametrize("section", sentences())
def test_templates_use_filters_and_sections_that_exist(section):
    for code, template in sentences()[section].items():
        named = re.findall(r"phrase\(?'(\w+)'", template) + re.findall(r"'phrase', '(\w+)'", template)
        assert set(named) <= set(sentences()), code
        assert "  " not in template.strip(), code


def test_a_value_is_never_a_template():
    assert sentence(Statement("two_models", values={"first": "{{ forced }}", "forced": "b"})).count("{{ forced }}") == 1


def test_numbers_of_the_report_are_typeset_and_names_are_not():
    values = {"value": -0.25, "share": 0.5, "names": ["a -1"]}
    template = "{{ value | number(2) }} {{ share | percent(0) }} {{ names | listed }}"
    assert fill(template, values) == "-0.25 50% a -1"
    assert fill(template, values, typeset=True) == "\u22120.25 50% a -1"
