"""The mutants apply to the current package; ``python -m tests.mutants`` checks whether fast tests kill them."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests import mutants
from tests.mutants import MUTANTS, Definition, main, named, problems


def test_every_mutant_applies_and_its_tests_exist():
    assert list(problems(MUTANTS)) == []
    assert len({(mutant.definition, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant.old != mutant.new for mutant in MUTANTS)


def test_mutant_changes_its_definition_only():
    definition = Definition(Path("a.py"), "x = 1\ny = 1\nz = 1\n", 6, 12)
    assert definition.count("1") == 1
    assert definition.replaced("1", "2") == "x = 1\ny = 2\nz = 1\n"


def test_methods_constants_and_conditional_definitions_have_qualified_names():
    source = """
LIMIT = 3
if LIMIT:
    def f(): ...
else:
    def f(): ...
class Table:
    cells: int
    def counts(self):
        inner = 1
"""
    assert [name for name, _ in named(ast.parse(source).body)] == [
        "LIMIT",
        "f",
        "f",
        "Table",
        "Table.cells",
        "Table.counts",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"old": "no such text"}, "stands there 0 times, not once"),
        ({"old": " "}, "times, not once"),
        ({"definition": "gone"}, "there is no such definition"),
        ({"tests": "stats/test_gone.py"}, "there is no tests/stats/test_gone.py"),
    ],
)
def test_inapplicable_mutant_is_rejected(change, message, monkeypatch, capsys):
    monkeypatch.setattr(mutants, "MUTANTS", [replace(MUTANTS[0], **change)])
    assert main([]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("survived", "status", "last"), [(True, 1, "0 of 1 killed"), (False, 0, "1 of 1 killed")])
def test_surviving_mutant_is_named_and_fails_the_run(survived, status, last, monkeypatch, capsys):
    monkeypatch.setattr(mutants, "MUTANTS", MUTANTS[:1])
    # Without a mutant the tests pass; over the changed copy they pass or fail.
    monkeypatch.setattr(mutants, "failing", lambda source, _: source != mutants.ROOT / "src" and not survived)
    assert main([]) == status
    first, end = capsys.readouterr().out.splitlines()
    assert first.startswith("SURVIVED" if survived else "killed")
    assert end == last
