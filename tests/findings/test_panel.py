"""Steps as the summary of a set has them, and what of them may be told as a change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refusal_index.data.folder import SET_VERSION, set_members


@pytest.mark.parametrize(
    ("step", "read"),
    [(2000, 2000), (0, 0), (None, None), (True, None), (-1, None), (1.5, None), ("2", None), (10**20, None)],
)
def test_a_step_is_a_whole_number_that_a_training_can_have(tmp_path: Path, step: Any, read: int | None):
    run = {"folder": "a", "model": "m", "dataset": "d", "step": step}
    (tmp_path / "summary.json").write_text(json.dumps({"set_version": SET_VERSION, "runs": [run]}))
    assert [one.step for one in set_members(tmp_path)] == [read]


def test_sets_of_before_have_no_steps(tmp_path: Path):
    run = {"folder": "a", "model": "m", "dataset": "d"}
    (tmp_path / "summary.json").write_text(json.dumps({"set_version": SET_VERSION, "runs": [run]}))
    assert [one.step for one in set_members(tmp_path)] == [None]
