"""The mutants apply to the current package; ``python -m tests.mutants`` checks whether fast tests kill them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import mutants
from tests.mutants import MUTANTS, main, problems


def test_every_mutant_applies_and_its_tests_exist():
    assert list(problems(MUTANTS)) == []
    assert len({(one.file, one.old, one.new) for one in MUTANTS}) == len(MUTANTS)
    assert all(one.old != one.new for one in MUTANTS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"old": "no such text"}, "stands there 0 times, not once"),
        ({"old": "rho"}, "times, not once"),
        ({"file": "stats/gone.py"}, "there is no such file"),
        ({"tests": "stats/test_gone.py"}, "there is no tests/stats/test_gone.py"),
    ],
)
def test_inapplicable_mutant_is_rejected(change, said, monkeypatch, capsys):
    monkeypatch.setattr(mutants, "MUTANTS", [replace(MUTANTS[0], **change)])
    assert main([]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("survived", "status", "last"), [(True, 1, "0 of 1 killed"), (False, 0, "1 of 1 killed")])
def test_surviving_mutant_is_named_and_fails_the_run(survived, status, last, monkeypatch, capsys):
    monkeypatch.setattr(mutants, "MUTANTS", MUTANTS[:1])
    # Without a mutant the tests pass; over the changed copy they pass or fail.
    monkeypatch.setattr(mutants, "failing", lambda source, _: source != mutants.ROOT / "src" and not survived)
    assert main([]) == status
    first, end = capsys.readouterr().out.splitlines()
    assert first.startswith("SURVIVED" if survived else "killed")
    assert end == last
