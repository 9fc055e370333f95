"""Files in an untrusted folder: only plain files are opened, nothing blocks, and nothing is written elsewhere."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.left_behind import ended_process, left_behind

from refusal_index.data import files
from refusal_index.data.files import (
    check_folder,
    check_plain,
    opened_plain,
    read_json,
    read_plain,
    replacing,
    working_folder,
    write_atomically,
)
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_sets import SET_VERSION, set_members
from refusal_index.errors import OutcomeTableError, RunFolderError
from refusal_index.findings.run_results import read_runs

pytestmark = pytest.mark.timeout(60)


def link(path: Path) -> None:
    target = Path("elsewhere").resolve()
    target.write_text("somebody's")
    path.symlink_to(target)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS = pytest.mark.parametrize(
    ("make", "message"),
    [
        (link, "a symbolic link"),
        (dangling, "a symbolic link"),
        (device, "a symbolic link"),
        (pipe, "a named pipe"),
        (unix_socket, "a socket"),
        (Path.mkdir, "a folder"),
    ],
)


@KINDS
def test_non_regular_files_are_named_by_kind_and_not_opened(tmp_path, monkeypatch, make, message):
    monkeypatch.chdir(tmp_path)  # a socket's name must be short
    path = Path("x")
    make(path)
    for attempt in (check_plain, read_plain, read_json, lambda one: opened_plain(one, os.O_RDWR | os.O_CREAT)):
        with pytest.raises(OSError, match=f"expected a plain file, got {message}"):
            attempt(path)
    assert not Path("nowhere").exists()


@KINDS
def test_lock_rejects_a_non_regular_file_and_changes_nothing(tmp_path, monkeypatch, make, message):
    monkeypatch.chdir(tmp_path)
    RunFolder(Path("r")).create_or_resume({})
    make(Path("r/.lock"))
    with pytest.raises(RunFolderError, match=rf"\.lock cannot be written \(expected a plain file, got {message}"):
        RunFolder(Path("r")).lock().__enter__()
    if make is link:
        assert Path("elsewhere").read_text() == "somebody's"
    assert not Path("r/nowhere").exists()


@pytest.mark.parametrize("content", ["somebody's\n", "x" * 10_000])
def test_hard_link_in_place_of_the_lock_is_left_unchanged(tmp_path, content):
    mine = tmp_path / "mine.txt"
    mine.write_text(content)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / ".lock").hardlink_to(mine)
    with pytest.raises(RunFolderError, match=r"\.lock"):
        RunFolder(tmp_path / "r").lock().__enter__()
    assert mine.read_text() == content


def test_lock_of_an_earlier_run_is_taken_again(tmp_path):
    folder = RunFolder(tmp_path)
    for _ in range(2):
        with folder.lock():
            assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


@KINDS
def test_settings_outcomes_and_summary_are_read_from_plain_files_only(tmp_path, monkeypatch, make, message):
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(Path("r"))
    folder.path.mkdir()
    for path, read, error in (
        (folder.run_json, folder.read_settings, RunFolderError),
        (folder.summary, folder.read_summary, RunFolderError),
        (folder.outcomes, folder.read_outcomes, OutcomeTableError),
    ):
        make(path)
        with pytest.raises(error, match=f"{path.name} cannot be read.*expected a plain file, got {message}"):
            read()
        assert set_members(folder.path) == ()


def test_check_folder_rejects_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"expected a folder, got a link or a file"):
        check_folder(tmp_path / "link")
    assert check_folder(tmp_path / "not there") == tmp_path / "not there"


def test_run_folder_reached_through_a_link_works(tmp_path):
    RunFolder(tmp_path / "r").create_or_resume({"model": "m"})
    (tmp_path / "link").symlink_to("r")
    folder = RunFolder(tmp_path / "link")
    with folder.lock():
        folder.write_summary("{}")
    assert folder.read_settings() == {"model": "m"}
    assert folder.read_summary() == {}


def test_writing_replaces_a_link_not_its_target(tmp_path):
    mine = tmp_path / "mine.json"
    mine.write_text("mine")
    folder = RunFolder(tmp_path / "r")
    folder.create_or_resume({})
    folder.summary.symlink_to(mine)
    folder.write_summary("{}")
    assert mine.read_text() == "mine"
    assert not folder.summary.is_symlink()


def test_a_file_that_is_too_large_is_not_read_into_memory(tmp_path):
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes no space
    with pytest.raises(OSError, match="expected at most 268,435,456 bytes, got 1,099,511,627,776"):
        read_json(path)
    path.rename(tmp_path / "run.json")
    with pytest.raises(RunFolderError, match=r"run\.json cannot be read \(expected at most"):
        RunFolder(tmp_path).read_settings()


@pytest.mark.parametrize("content", [b"[" * 1_000_000, b"\xff\xfe", b"", b'{"a":1', b"1" * 100_000])
def test_invalid_json_is_reported_in_one_line(tmp_path, content):
    for name, read in (("run.json", RunFolder.read_settings), ("summary.json", RunFolder.read_summary)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RunFolderError) as caught:
            read(RunFolder(tmp_path))
        assert str(caught.value).startswith(f"{tmp_path / name}")
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["../r", "/etc", "..", ".", "", "a/b", "a\0b", "x" * 300, 7, None, ["r"]])
def test_set_members_outside_its_folder_are_ignored(tmp_path, name):
    (tmp_path / "set").mkdir()
    runs = [{"folder": name, "model": "m", "dataset": "d"}, {"folder": "r", "model": "m", "dataset": "d"}]
    (tmp_path / "set" / "summary.json").write_text(json.dumps({"set_version": SET_VERSION, "runs": runs}))
    assert [member.folder for member in set_members(tmp_path / "set")] == [tmp_path / "set" / "r"]
    with pytest.raises(RunFolderError, match="r has not started yet"):
        read_runs([tmp_path / "set"])


# --- What killed processes leave

KILLED = """
import os, signal, sys
from pathlib import Path
from refusal_index.data.files import replacing, working_folder
with working_folder() as folder, replacing(Path("table.csv")) as temporary:
    (folder / "copy").write_text("half")
    temporary.write_text("half")
    temporary.with_name(temporary.name + ".parts.tmp").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_next_write_in_a_folder_removes_what_a_killed_process_left_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(files.tempfile, "tempdir", None)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    write_atomically(Path("table.csv"), b"whole")
    assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -signal.SIGKILL
    assert len(names(tmp_path / "work")) == 3
    assert len(names(tmp_path / "temporary")) == 1
    write_atomically(Path("other.csv"), b"other")
    assert names(tmp_path / "work") == ["other.csv", "table.csv"]
    assert Path("table.csv").read_bytes() == b"whole"
    with working_folder():
        assert len(names(tmp_path / "temporary")) == 1, "its own"
    assert not names(tmp_path / "temporary")


@pytest.mark.skipif(os.name == "nt", reason="processes cannot be looked up")
def test_half_written_files_of_running_processes_and_similar_names_are_kept(tmp_path):
    ours = left_behind(tmp_path / "x")
    running = ours.with_name(ours.name.replace(str(ended_process()), str(os.getppid())))
    similar = [tmp_path / name for name in (".x.abcd1234.tmp", "x.tmp", ".x.tmp", ours.name[1:], ours.name + "x")]
    for path in (running, *similar):
        path.touch()
    with replacing(tmp_path / "a") as first, replacing(tmp_path / "b") as second:
        first.write_text("a")
        second.write_text("b")
        write_atomically(tmp_path / "c", b"c")
        assert first.exists()
        assert second.exists()
    assert names(tmp_path) == sorted(["a", "b", "c", running.name, *(path.name for path in similar)])


def test_half_written_file_of_another_machine_is_removed_after_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(files.socket, "gethostname", lambda: "another")
    theirs = left_behind(tmp_path / "x")
    theirs.touch()
    monkeypatch.undo()
    write_atomically(tmp_path / "a", b"a")
    assert theirs.exists()
    os.utime(theirs, (0, files.time.time() - 86_500))
    write_atomically(tmp_path / "a", b"a")
    assert names(tmp_path) == ["a"]


def test_link_with_the_name_of_a_half_written_file_is_removed_and_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    left_behind(tmp_path / "x").symlink_to(kept, target_is_directory=True)
    write_atomically(tmp_path / "a", b"a")
    assert names(tmp_path) == ["a", "kept"]
    assert names(kept) == ["file"]
