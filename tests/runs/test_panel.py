"""The summary of a panel: what it keeps of checkpoints, and in which order they stand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refusal_index.data.folder import SET_VERSION, set_members
from refusal_index.errors import RunFolderError
from refusal_index.plugins.training.watch import PanelFolder
from refusal_index.runs.sweep import CellResult


def failed(name: str, error: str = "gone") -> CellResult:
    plan: Any = SimpleNamespace(title=(name, "almanac"), folder=SimpleNamespace(path=Path(name)))
    return CellResult(plan, error=error)


def test_those_without_a_number_stand_as_they_came_behind_all_others(tmp_path: Path) -> None:
    for name, step in (("final", None), ("at-500", 500), ("best", None), ("final", None), ("at-1000", 1000)):
        PanelFolder(tmp_path).put(failed(name), step)
    assert [(one.model, one.step) for one in set_members(tmp_path)] == [
        ("at-500", 500),
        ("at-1000", 1000),
        ("final", 1001),
        ("best", 1002),
    ]


@pytest.mark.parametrize("version", [SET_VERSION - 1, SET_VERSION + 1])
def test_a_panel_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path, version: int) -> None:
    PanelFolder(tmp_path).put(failed("at-5"), 5)
    place = tmp_path / "summary.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"set_version": version}))
    before = place.read_bytes()
    said = rf"summary\.json: expected set_version {SET_VERSION}, got {version}; .*watch into another folder"
    with pytest.raises(RunFolderError, match=said):
        PanelFolder(tmp_path)
    assert place.read_bytes() == before


def test_one_that_came_to_nothing_takes_the_place_of_nothing_only(tmp_path: Path) -> None:
    PanelFolder(tmp_path).put(failed("at-5", "first"), 5)
    PanelFolder(tmp_path).put(failed("at-5", "second"), 5)
    place = tmp_path / "summary.json"
    document = json.loads(place.read_text())
    assert [one["error"] for one in document["runs"]] == ["second"]
    document["runs"][0] |= {"status": "complete", "summary": {"variants": []}, "error": None}
    place.write_text(json.dumps(document))
    PanelFolder(tmp_path).put(failed("at-5", "third"), 5)
    after = json.loads(place.read_text())
    assert (after["runs"], after["complete"]) == (document["runs"], True)
