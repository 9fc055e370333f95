"""Commands killed at their changes to files, or at random moments, and run again: as if they had run once."""

from __future__ import annotations

import random

import pytest

from tests.faults.kills import COMMANDS, problems, undisturbed

MOMENTS = 10
"""Kills of each command at random moments."""


def test_command_killed_at_its_last_change_to_a_file_is_as_if_it_ran_once():
    _, changes = undisturbed("import")
    assert problems("import", changes) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_command_killed_halfway_through_its_changes_to_files_is_as_if_it_ran_once(name):
    _, changes = undisturbed(name)
    assert problems(name, (changes + 1) // 2) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", COMMANDS)
def test_command_killed_at_any_change_to_a_file_is_as_if_it_ran_once(name):
    _, changes = undisturbed(name)
    found = {change: problems(name, change) for change in range(1, changes + 1)}
    assert {change: wrong for change, wrong in found.items() if wrong} == {}


@pytest.mark.nightly
@pytest.mark.parametrize("name", COMMANDS)
def test_command_killed_at_a_random_moment_is_as_if_it_ran_once(name):
    rng = random.Random(name)
    found = {after: problems(name, after=after) for after in (rng.uniform(0, 2) for _ in range(MOMENTS))}
    assert {after: wrong for after, wrong in found.items() if wrong} == {}
