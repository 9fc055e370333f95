"""The folder of a set, read: its runs under the names that it has for them, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from tests.studies.made import made_run

from refusal_index.data.folder import SET_VERSION, RunFolder, find_runs, member_of_set, read_runs, set_members
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.errors import RunFolderError

NAMES = {"one": ("Large", "Ours"), "two": ("Small", "Ours")}


def make_run(path: Path, model: str) -> Path:
    folder = RunFolder(path)
    with folder.lock():
        folder.create_or_resume({"model": model})
        write_outcomes(pl.concat(list(made_run(model, n=20).variants.values())), folder.outcomes)
    return path


def write_summary(path: Path, names=NAMES, version: object = SET_VERSION) -> None:
    runs = [{"folder": folder, "model": model, "dataset": dataset} for folder, (model, dataset) in names.items()]
    (path / "summary.json").write_text(json.dumps({"set_version": version, "runs": runs}))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    for name in NAMES:
        make_run(tmp_path / "set" / name, f"acme/{name}")
    write_summary(tmp_path / "set")
    return tmp_path / "set"


def test_a_set_stands_for_its_runs_in_its_order_under_its_names(made):
    runs = read_runs([made])
    assert [run.label for run in runs] == ["Large", "Small"]
    assert [(run.model, run.dataset) for run in runs] == [("Large", "Ours"), ("Small", "Ours")]
    assert [(run.model_id, run.dataset_id) for run in runs] == [("acme/one", "d"), ("acme/two", "d")]
    assert [run.source for run in runs] == [made / "one", made / "two"]


def test_a_new_name_is_read_at_once(made):
    write_summary(made, {**NAMES, "two": ("Tiny", "Ours")})
    assert [run.label for run in read_runs([made])] == ["Large", "Tiny"]


def test_a_run_alone_has_its_name_however_its_folder_is_spelt_and_its_table_has_not(made, monkeypatch):
    monkeypatch.chdir(made / "two")
    assert [run.label for run in read_runs([made / "one", Path()])] == ["Large", "Small"]
    assert [run.label for run in read_runs([made / "one" / "outcomes.parquet"])] == ["acme/one"]


def test_a_run_that_the_set_has_dropped_keeps_its_own_name(made):
    write_summary(made, {"one": NAMES["one"]})
    assert [run.label for run in read_runs([made])] == ["Large"]
    assert [run.label for run in read_runs([made / "two"])] == ["acme/two"]


def test_a_run_given_within_its_set_and_by_itself_counts_once(made):
    assert [run.label for run in read_runs([made / "two", made, made / "one"])] == ["Small", "Large"]


def test_runs_of_two_sets_are_told_apart(made, tmp_path):
    make_run(tmp_path / "other" / "one", "acme/one")
    write_summary(tmp_path / "other", {"one": ("Large", "Theirs")})
    assert [run.label for run in read_runs([made, tmp_path / "other"])] == [
        "Large, Ours",
        "Small, Ours",
        "Large, Theirs",
    ]


def test_a_folder_with_several_models_goes_by_its_table(made):
    both = pl.concat([rows for m in ("a", "b") for rows in made_run(m, n=20).variants.values()])
    write_outcomes(both, RunFolder(made / "one").outcomes)
    assert [run.label for run in read_runs([made])] == ["a", "b", "Small"]


def test_what_is_not_begun_or_has_no_outcomes_is_left_out_and_said(made):
    (made / "one" / "outcomes.parquet").unlink()
    write_summary(made, {**NAMES, "three": ("Next", "Ours")})
    found = find_runs([made])
    assert [run.label for run in found.runs] == ["Small"]
    assert "one holds no outcomes yet" in found.left_out[0]
    assert "three has not started yet; repeat the command" in found.left_out[1]
    with pytest.raises(RunFolderError, match="holds no outcomes yet"):
        read_runs([made])


def test_a_set_of_which_nothing_can_be_read_says_so_once(made):
    for name in NAMES:
        (made / name / "outcomes.parquet").unlink()
    with pytest.raises(
        RunFolderError, match=r"none of 2 runs can be read: .*one holds no outcomes yet.*two holds no outcomes yet"
    ):
        find_runs([made])


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"set_version": VERSION}',
        '{"set_version": VERSION, "runs": {}}',
        '{"set_version": VERSION, "runs": ["one", {"folder": "one"}, {"folder": 1, "model": "m", "dataset": "d"}]}',
    ],
)
def test_a_broken_summary_is_no_set_and_hides_no_run(made, text):
    (made / "summary.json").write_text(text.replace("VERSION", str(SET_VERSION)))
    assert set_members(made) == ()
    assert member_of_set(made / "one") is None
    assert [run.label for run in read_runs([made / "one"])] == ["acme/one"]
    with pytest.raises(RunFolderError, match=r"found a folder of 2 runs; name one or all of them, as in .*set/\*/"):
        read_runs([made])


@pytest.mark.parametrize("version", [SET_VERSION - 1, SET_VERSION + 1, None, "two"])
def test_a_set_of_another_version_says_what_makes_it_anew_and_hides_no_run(made, version):
    write_summary(made, version=version)
    with pytest.raises(RunFolderError) as caught:
        read_runs([made])
    assert str(caught.value).startswith(f"{made / 'summary.json'}: expected set_version {SET_VERSION}, got ")
    assert str(caught.value).endswith("use the release that wrote it, or watch into another folder")
    summary = made / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"config": {"source": "models.toml"}}))
    with pytest.raises(RunFolderError, match="repeat 'refusal-index run --config', which writes it again"):
        read_runs([made])
    assert len(str(caught.value).splitlines()) == 1
    assert [run.label for run in read_runs([made / "one"])] == ["acme/one"]


@pytest.mark.parametrize("folder", ["", ".", "..", "../one", "one/logs", "/etc"])
def test_a_folder_outside_of_the_set_is_none_of_its_runs(made, folder):
    write_summary(made, {folder: ("Large", "Ours")})
    assert set_members(made) == ()


def test_where_one_run_is_expected_a_set_names_those_it_holds(made):
    with pytest.raises(RunFolderError, match=r"a set of 2 runs; name one of them: .*set/one \(Large on Ours\); .*two"):
        RunFolder(made).read_settings()
    write_summary(made, {f"run{number}": (f"m{number}", "d") for number in range(7)})
    with pytest.raises(RunFolderError, match=r"a set of 7 runs; .*run4 \(m4 on d\); and 2 more$"):
        RunFolder(made).read_settings()
