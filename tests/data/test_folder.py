"""The folders of a run and of a set of runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from tests.studies.made import made_run

from refusal_index.data import Outcome, Question
from refusal_index.data.files import write_atomically
from refusal_index.data.folder import CREATED, RUN_ID, RunFolder
from refusal_index.data.outcome_table import Identification, outcome_table, read_outcomes, write_outcomes
from refusal_index.data.run_json import default_run_name
from refusal_index.data.run_sets import SET_VERSION, member_of_set, set_members
from refusal_index.errors import RunFolderError
from refusal_index.findings.run_results import find_runs, read_runs

# --- The run folder

SETTINGS = {"model": "m", "variants": ("low", "high"), "generation": {"temperature": 0.0, "max_tokens": 256}}


def hold_lock_in_another_process(folder: Path) -> subprocess.Popen[str]:
    code = (
        "import sys, time; from pathlib import Path; from refusal_index.data.folder import RunFolder\n"
        f"with RunFolder(Path({str(folder)!r})).lock(): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_same_settings_resume_and_keep_the_first_notes(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "a")
    assert folder.create_or_resume(SETTINGS, about={"version": "1"}) is False
    assert folder.create_or_resume(json.loads(json.dumps(SETTINGS)), about={"version": "2"}) is True
    assert folder.read_settings()["variants"] == ["low", "high"]
    about = folder.read_about()
    assert about == {"version": "1", RUN_ID: folder.read_id(), CREATED: about[CREATED]}
    assert folder.run_json.is_file()


def test_other_settings_are_refused_with_every_difference_named(tmp_path):
    folder = RunFolder(tmp_path / "a")
    folder.create_or_resume(SETTINGS)
    before = folder.run_json.read_bytes()
    other = {"model": "m", "variants": ["low"], "generation": {"temperature": 1.0, "max_tokens": 256}, "seed": 3}
    with pytest.raises(RunFolderError) as caught:
        folder.create_or_resume(other)
    message = str(caught.value)
    assert "generation.temperature: 0.0 before, 1.0 now" in message
    assert "seed: nothing before, 3 now" in message
    assert "variants: ['low', 'high'] before, ['low'] now" in message
    assert "max_tokens" not in message
    assert "another folder" in message
    assert folder.run_json.read_bytes() == before


def test_long_and_many_differences_stay_readable(tmp_path):
    folder = RunFolder(tmp_path / "a")
    folder.create_or_resume({f"s{i}": "x" * 10_000 for i in range(9)})
    with pytest.raises(RunFolderError, match="and 4 more") as caught:
        folder.create_or_resume({f"s{i}": "y" * 10_000 for i in range(9)})
    assert len(str(caught.value)) < 1000


def test_unrelated_folder_is_rejected_and_left_unchanged(tmp_path):
    (tmp_path / "thesis.tex").touch()
    for attempt in (RunFolder(tmp_path).lock, lambda: RunFolder(tmp_path).create_or_resume(SETTINGS)):
        with pytest.raises(RunFolderError, match=r"'thesis\.tex' but no run\.json"):
            attempt()
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_file_in_place_of_a_run_folder_is_rejected(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(RunFolderError, match="cannot be read as a folder"):
        RunFolder(path).create_or_resume(SETTINGS)
    with pytest.raises(RunFolderError, match="cannot be created"):
        RunFolder(path / "below").create_or_resume(SETTINGS)


def test_leftovers_of_a_killed_start_do_not_block_a_run(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".run.json.0123abcd.tmp").write_text('{"half')
    assert RunFolder(tmp_path).create_or_resume(SETTINGS) is False


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"half', "cannot be read"),
        (b"[]", "expected run_format 1, got None"),
        (b'{"run_format": 2, "settings": {}}', "expected run_format 1, got 2; use the release that wrote it"),
        (b'{"run_format": 1, "settings": []}', "expected 'settings' to be an object"),
    ],
)
def test_a_run_json_that_is_damaged_or_of_another_version_is_refused(tmp_path, content, message):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunFolderError, match=re.escape(message)):
        RunFolder(tmp_path).create_or_resume(SETTINGS)


def test_a_run_json_without_an_id_is_refused(tmp_path):
    (tmp_path / "run.json").write_bytes(b'{"run_format": 1, "settings": {}, "about": {}}')
    with pytest.raises(RunFolderError, match=r"run\.json: about: expected run_id, found none"):
        RunFolder(tmp_path).read_id()


def test_absent_setting_differs_from_none(tmp_path):
    RunFolder(tmp_path).create_or_resume(SETTINGS)
    with pytest.raises(RunFolderError, match=r"seed: nothing before, None now"):
        RunFolder(tmp_path).create_or_resume({**SETTINGS, "seed": None})


def test_reading_settings_without_a_run_raises(tmp_path):
    with pytest.raises(RunFolderError, match=r"found no run\.json"):
        RunFolder(tmp_path).read_settings()


def test_two_processes_cannot_run_in_one_folder_and_a_killed_one_frees_it(tmp_path):
    folder = RunFolder(tmp_path / "a")
    other = hold_lock_in_another_process(folder.path)
    try:
        with pytest.raises(RunFolderError, match=rf"in use by another process \(id {other.pid}\)"), folder.lock():
            pass
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    with folder.lock():
        assert (folder.path / ".lock").read_text() == f"{os.getpid()}\n"
        assert folder.create_or_resume(SETTINGS) is False
    with folder.lock():
        assert folder.create_or_resume(SETTINGS) is True


def test_derived_files_have_their_documented_paths(tmp_path):
    folder = RunFolder(tmp_path)
    row = (Identification("m", "d", "low"), Question("q", "?", "!"), Outcome(True, True))
    table = outcome_table([row])
    write_outcomes(table, folder.outcomes)
    folder.write_summary("{}")
    assert read_outcomes(tmp_path / "outcomes.parquet").equals(table)
    assert (tmp_path / "summary.json").read_text() == "{}"
    assert folder.report == tmp_path / "report.html"


def test_new_files_have_the_usual_mode(tmp_path):
    (tmp_path / "plain").touch()
    write_atomically(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("model", ["openai/gpt-4.1", "../../etc/passwd", "a\\b:c*d?", "...", "模型", "x" * 500, "CON"])
def test_run_names_are_safe_for_file_systems_and_differ_with_the_settings(model):
    name = default_run_name(model, "simple qa", SETTINGS)
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,140}-[0-9a-f]{8}", name)
    assert name == default_run_name(model, "simple qa", dict(reversed(SETTINGS.items())))
    assert name != default_run_name(model, "simple qa", {**SETTINGS, "model": "n"})
    assert name != default_run_name(model + "'", "simple qa", SETTINGS)


# --- Reading the folder of a set

NAMES = {"one": ("Large", "Ours"), "two": ("Small", "Ours")}


def make_run(path: Path, model: str) -> Path:
    folder = RunFolder(path)
    with folder.lock():
        folder.create_or_resume({"model": model})
        write_outcomes(pl.concat(list(made_run(model, n=20).tables.values())), folder.outcomes)
    return path


def write_summary(path: Path, names=NAMES, version: object = SET_VERSION) -> None:
    runs = [{"folder": folder, "model": model, "dataset": dataset} for folder, (model, dataset) in names.items()]
    (path / "summary.json").write_text(json.dumps({"set_version": version, "runs": runs}))


@pytest.fixture
def run_set(tmp_path: Path) -> Path:
    for name in NAMES:
        make_run(tmp_path / "set" / name, f"acme/{name}")
    write_summary(tmp_path / "set")
    return tmp_path / "set"


def test_set_expands_to_its_runs_in_order_with_its_names(run_set):
    runs = read_runs([run_set])
    assert [run.label for run in runs] == ["Large", "Small"]
    assert [(run.model, run.dataset) for run in runs] == [("Large", "Ours"), ("Small", "Ours")]
    assert [(run.model_id, run.dataset_id) for run in runs] == [("acme/one", "d"), ("acme/two", "d")]
    assert [run.source for run in runs] == [run_set / "one", run_set / "two"]


def test_changed_run_name_takes_effect_immediately(run_set):
    write_summary(run_set, {**NAMES, "two": ("Tiny", "Ours")})
    assert [run.label for run in read_runs([run_set])] == ["Large", "Tiny"]


def test_run_folder_uses_its_set_name_but_its_table_does_not(run_set, monkeypatch):
    monkeypatch.chdir(run_set / "two")
    assert [run.label for run in read_runs([run_set / "one", Path()])] == ["Large", "Small"]
    assert [run.label for run in read_runs([run_set / "one" / "outcomes.parquet"])] == ["acme/one"]


def test_run_removed_from_the_set_uses_its_model_name(run_set):
    write_summary(run_set, {"one": NAMES["one"]})
    assert [run.label for run in read_runs([run_set])] == ["Large"]
    assert [run.label for run in read_runs([run_set / "two"])] == ["acme/two"]


def test_a_run_given_within_its_set_and_by_itself_counts_once(run_set):
    assert [run.label for run in read_runs([run_set / "two", run_set, run_set / "one"])] == ["Small", "Large"]


def test_runs_of_two_sets_get_distinct_labels(run_set, tmp_path):
    make_run(tmp_path / "other" / "one", "acme/one")
    write_summary(tmp_path / "other", {"one": ("Large", "Theirs")})
    assert [run.label for run in read_runs([run_set, tmp_path / "other"])] == [
        "Large, Ours",
        "Small, Ours",
        "Large, Theirs",
    ]


def test_folder_with_several_models_is_labelled_from_its_table(run_set):
    both = pl.concat([rows for m in ("a", "b") for rows in made_run(m, n=20).tables.values()])
    write_outcomes(both, RunFolder(run_set / "one").outcomes)
    assert [run.label for run in read_runs([run_set])] == ["a", "b", "Small"]


def test_runs_not_started_or_without_outcomes_are_reported(run_set):
    (run_set / "one" / "outcomes.parquet").unlink()
    write_summary(run_set, {**NAMES, "three": ("Next", "Ours")})
    found = find_runs([run_set])
    assert [run.label for run in found.runs] == ["Small"]
    assert "one holds no outcomes yet" in found.left_out[0]
    assert "three has not started yet; repeat the command" in found.left_out[1]
    with pytest.raises(RunFolderError, match="holds no outcomes yet"):
        read_runs([run_set])


def test_set_without_readable_runs_raises_one_error(run_set):
    for name in NAMES:
        (run_set / name / "outcomes.parquet").unlink()
    with pytest.raises(
        RunFolderError, match=r"none of 2 runs can be read: .*one holds no outcomes yet.*two holds no outcomes yet"
    ):
        find_runs([run_set])


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
def test_broken_summary_is_not_a_set_and_hides_no_run(run_set, text):
    (run_set / "summary.json").write_text(text.replace("VERSION", str(SET_VERSION)))
    assert set_members(run_set) == ()
    assert member_of_set(run_set / "one") is None
    assert [run.label for run in read_runs([run_set / "one"])] == ["acme/one"]
    assert [run.label for run in read_runs([run_set])] == ["acme/one", "acme/two"]
    with pytest.raises(RunFolderError, match=r"found a folder of 2 runs; name one, such as .*set/one"):
        RunFolder(run_set).read_settings()


@pytest.mark.parametrize("version", [SET_VERSION - 1, SET_VERSION + 1, None, "two"])
def test_set_of_another_version_says_how_to_rewrite_it(run_set, version):
    write_summary(run_set, version=version)
    with pytest.raises(RunFolderError) as caught:
        read_runs([run_set])
    assert str(caught.value).startswith(f"{run_set / 'summary.json'}: expected set_version {SET_VERSION}, got ")
    assert str(caught.value).endswith("use the release that wrote it, or watch into another folder")
    summary = run_set / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"config": {"source": "models.toml"}}))
    with pytest.raises(RunFolderError, match="repeat 'refusal-index run --config', which writes it again"):
        read_runs([run_set])
    assert len(str(caught.value).splitlines()) == 1
    assert [run.label for run in read_runs([run_set / "one"])] == ["acme/one"]


@pytest.mark.parametrize("folder", ["", ".", "..", "../one", "one/logs", "/etc"])
def test_folder_outside_the_set_is_not_a_member(run_set, folder):
    write_summary(run_set, {folder: ("Large", "Ours")})
    assert set_members(run_set) == ()


def test_set_given_instead_of_a_run_names_one_of_its_runs(run_set):
    with pytest.raises(RunFolderError, match=r"a folder of 2 runs; name one, such as .*set/one"):
        RunFolder(run_set).read_settings()
    write_summary(run_set, {f"run{number}": (f"m{number}", "d") for number in range(7)})
    with pytest.raises(RunFolderError, match=r"a folder of 7 runs; name one, such as .*set/run0 "):
        RunFolder(run_set).read_settings()
