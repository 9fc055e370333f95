"""Damaged or untrusted folders: every command succeeds or prints one line, and touches nothing else.

The damage to each file of a finished run is tried with each command; in the thorough tier, any bytes are changed.
"""

from __future__ import annotations

import html
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import refusal_index as ri
from refusal_index.data import files
from refusal_index.errors import NotWrittenError, RefusalIndexError
from refusal_index.runs.rebuild import rebuild
from tests.cli.making import LOW
from tests.models.checksums import write_checksums
from tests.tiers import one_fast

pytestmark = pytest.mark.timeout(300)

READ = {
    "report": ("report", "r", "--out", "page.html"),
    "compare": ("compare", "r", "other"),
    "study": ("study", "results_table", "r", "other", "--format", "csv", "--out", "made"),
    "sensitivity": ("sensitivity", "r"),
    "audit": ("audit", "r", "--out", "sheet.csv"),
}
MAKE = {"run": (*LOW, "--out", "r"), "score": ("score", "r")}
LOOK = {
    "dry run": (*LOW, "--out", "r", "--dry-run"),
    "regrade": ("regrade", "r", "--grader", "exact", "--out", "again"),
}
DERIVED = ("outcomes.parquet", "summary.json", "report.html")
PAID = ("run.json", "replies.sqlite")


def zero(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\x00 garbage" * 100)


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to(Path("mine").resolve())


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: tuple[Callable[[Path], None], ...] = (half, pipe, zero, garbage, link, folder)


@pytest.fixture
def other(run_folder: Path) -> Path:
    """Put another finished run next to the first, and a file that must not change."""
    Path("mine").write_text("mine")
    shutil.copytree(run_folder, "other")
    run = pl.read_parquet("other/outcomes.parquet").with_columns(model=pl.lit("other"))
    run.write_parquet("other/outcomes.parquet")
    return Path("other")


def one_line(ended) -> None:
    assert ended.exit_code in (1, 2), ended.output
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("error: ") == 1


@one_fast("damage", DAMAGE)
@pytest.mark.parametrize("name", DERIVED)
def test_run_and_score_rebuild_derived_files(run_folder, other, command, name, damage):
    before = pl.read_parquet(run_folder / "outcomes.parquet")
    for arguments in MAKE.values():
        damage(run_folder / name)
        ended = command(*arguments)
        if damage is folder:  # a folder may hold a user's files
            one_line(ended)
            assert f"r/{name} cannot be written (expected a plain file, got a folder)" in ended.stderr
            (run_folder / name).rmdir()
            command(*arguments)
        else:
            assert ended.exit_code == 0, ended.output
        assert pl.read_parquet(run_folder / "outcomes.parquet").equals(before)
        assert json.loads((run_folder / "summary.json").read_text())["variants"]
        assert (run_folder / name).is_file()
    assert Path("mine").read_text() == "mine"


@one_fast("damage", DAMAGE)
def test_readers_name_damaged_outcomes_and_the_rebuild_command(run_folder, other, command, damage):
    damage(run_folder / "outcomes.parquet")
    for arguments in READ.values():
        ended = command(*arguments)
        if arguments[0] == "study":  # for the other run only
            assert ended.exit_code == 1
            assert "Traceback" not in ended.stderr
        else:
            one_line(ended)
        assert "r/outcomes.parquet" in ended.stderr
        assert "'refusal-index score r' rebuilds it" in ended.stderr.replace("\n", " ")
    with pytest.raises(RefusalIndexError, match=r"r/outcomes\.parquet.*'refusal-index score r' rebuilds it"):
        ri.open_run("r")


@one_fast("damage", DAMAGE)
def test_readers_do_not_depend_on_a_damaged_summary(run_folder, other, command, damage):
    damage(run_folder / "summary.json")
    for arguments in READ.values():
        assert command(*arguments).exit_code == 0
    with pytest.raises(RefusalIndexError, match=r"r/summary\.json cannot be read.*'refusal-index score r' rebuilds it"):
        ri.open_run("r")


@one_fast("damage", DAMAGE)
@pytest.mark.parametrize("name", PAID)
def test_unrecoverable_damage_is_named_without_requests_or_writes(run_folder, other, command, name, damage):
    damage(run_folder / name)
    kept = {path.name: path.read_bytes() for path in run_folder.iterdir() if path.is_file() and path.name != ".lock"}
    for arguments in (*MAKE.values(), *LOOK.values()):
        ended = command(*arguments)
        one_line(ended)
        assert f"r/{name}" in ended.stderr
    assert {name: (run_folder / name).read_bytes() for name in kept} == kept
    assert Path("mine").read_text() == "mine"


def settings_of(path: Path, section: str, **changes: object) -> None:
    document = json.loads((path / "run.json").read_text())
    document[section] |= changes
    (path / "run.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("settings", "model", ["x"]),
        ("settings", "dataset", "x"),
        ("settings", "dataset", {"name": 1}),
        ("settings", "prompts", {"variants": "low"}),
        ("settings", "prompts", {"variants": []}),
        ("settings", "grader", "exact"),
        ("settings", "grader", {"name": 7}),
        ("settings", "first_pass", "x"),
        ("settings", "first_pass", {"model": 1}),
        ("settings", "regraded_from", "../../other"),
        ("settings", "comparability_version", "1"),
        ("settings", "seed", 0.5),
        ("about", "weighted_score_p", "lots"),
        ("about", "weighted_score_p", -1),
        ("about", "weighted_score_p", float("inf")),
        ("about", "price", {"input": "free", "output": 1}),
        ("about", "price", 2),
        ("about", "price", {"temperature": 0}),
        ("about", "price", {"input": 1, "output": 1, "": 0}),
        ("about", "grader_price", {"input": 1}),
    ],
)
def test_settings_of_wrong_types_are_named(run_folder, other, command, section, key, value):
    settings_of(run_folder, section, **{key: value})
    for arguments in (("score", "r"), ("report", "r", "--out", "page.html")):
        ended = command(*arguments)
        one_line(ended)
        assert "run.json" in ended.stderr


@pytest.mark.parametrize("key", ["model", "dataset", "prompts", "seed"])
def test_missing_settings_are_named(run_folder, command, key):
    document = json.loads((run_folder / "run.json").read_text())
    del document["settings"][key]
    (run_folder / "run.json").write_text(json.dumps(document))
    ended = command("score", "r")
    one_line(ended)
    assert f"lacks {key}" in ended.stderr


@pytest.mark.parametrize("value", [{"model": None}, {"model": "../x", "path": "/etc/passwd"}])
def test_first_pass_is_read_only_from_the_run_folder(run_folder, command, value):
    settings_of(run_folder, "settings", first_pass=value)
    ended = command("score", "r")
    one_line(ended)


def test_regraded_folder_is_compared_only_with_its_own_files(run_folder, command):
    settings_of(run_folder, "settings", regraded_from={"grader": {"name": "x"}, "path": "../other"})
    ended = command("score", "r")
    one_line(ended)
    assert "r/before.parquet" in ended.stderr


def test_report_of_a_hostile_folder_is_harmless(run_folder, command):
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(1)><a href='javascript:alert(1)'>x</a>"
    settings_of(run_folder, "settings", model=hostile, **{f"{hostile}": {hostile: [hostile]}})
    settings_of(
        run_folder, "about", versions={hostile: hostile}, prompt_set={hostile: hostile}, dataset={"source": hostile}
    )
    assert command("score", "r").exit_code == 0
    page = (run_folder / "report.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    for live in ("<script>alert", "<img src=x", "<a href='javascript", 'href="javascript'):
        assert live not in page
    assert "default-src 'none'" in html.unescape(page)


def test_broken_run_in_a_comparison_is_named(run_folder, other, command):
    shutil.copytree(other, "third")
    half(run_folder / "outcomes.parquet")
    table = pl.read_parquet("third/outcomes.parquet").with_columns(model=pl.lit("third"))
    table.write_parquet("third/outcomes.parquet")
    ended = command("compare", "other", "r", "third")
    assert ended.exit_code == 1
    assert "left out: r/outcomes.parquet cannot be" in ended.stderr
    assert "other" in ended.stdout


@pytest.fixture
def full_disk(monkeypatch) -> Iterator[None]:
    """Leave no disk space for any file that is replaced as a whole."""

    def no_room(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", no_room)
        yield


def test_full_disk_while_summarising_is_one_line_and_keeps_old_files(run_folder, command, full_disk):
    before = {name: (run_folder / name).read_bytes() for name in DERIVED}
    for arguments in MAKE.values():
        ended = command(*arguments)
        one_line(ended)
        assert ended.exit_code == 1
        assert "r/outcomes.parquet cannot be written (No space left on device); every reply is kept" in ended.stderr
        assert "'refusal-index score r' writes the results" in ended.stderr
    ended = command("report", "r")
    one_line(ended)
    assert ended.exit_code == 1
    assert "r/report.html cannot be written (No space left on device)" in ended.stderr
    assert {name: (run_folder / name).read_bytes() for name in DERIVED} == before
    assert not [path for path in run_folder.iterdir() if path.name.endswith(".tmp")]
    with pytest.raises(NotWrittenError, match="every reply is kept"):
        rebuild(run_folder)


@pytest.mark.slow
def test_real_full_disk_is_reported(run_folder, command):
    Path("small").mkdir()
    mounted = ("mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", "small")
    if not shutil.which("mount") or subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        for name in (*PAID, "outcomes.parquet", "summary.json"):
            Path("small/r").mkdir(exist_ok=True)
            shutil.copy(run_folder / name, Path("small/r") / name)
        before = {path.name: path.read_bytes() for path in Path("small/r").iterdir()}
        with suppress(OSError), Path("small/filler").open("wb", buffering=0) as file:
            while file.write(b"x" * 512):
                pass
        ended = command("score", "small/r")
        one_line(ended)
        assert ended.exit_code == 1
        after = {name: (Path("small/r") / name).read_bytes() for name in before}
        assert after == before
        Path("small/filler").unlink()
        assert command("score", "small/r").exit_code in (0, 1)
    finally:
        subprocess.run(("umount", "small"), check=True)


@pytest.mark.parametrize("given", [None, 5, b"r", "r\0", object()])
def test_invalid_path_values_are_rejected(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RefusalIndexError, match="path: expected a path, got"):
        ri.open_run(given)
    if given is not None:
        with pytest.raises(RefusalIndexError, match="out: expected a path, got"):
            ri.evaluate("almanac/base", limit=1, out=given)
        with pytest.raises(RefusalIndexError, match="runs: expected a path, got"):
            ri.study("results_table", [given])


def test_report_to_an_unwritable_place_raises(run_folder):
    run = ri.open_run(run_folder)
    Path("place").mkdir()
    for place in ("place", "mine/report.html"):
        Path("mine").write_text("mine")
        with pytest.raises(NotWrittenError, match=f"{place.partition('/')[0]}.* cannot be written"):
            run.report(place)


def test_named_pipe_at_report_path_does_not_block(run_folder, command):
    pipe(run_folder / "report.html")
    one_line(command("report", "r"))


def files_outside(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and folder not in path.parents}


def read_with_every_reader(work: Path) -> None:
    """Check that every reader succeeds or explains why not, and that nothing outside the folder changes."""
    before = files_outside(work)
    for read in (
        lambda: ri.open_run(work),
        lambda: ri.compare(work, "other"),
        lambda: rebuild(work),
        lambda: ri.open_run(work).report(),
    ):
        with suppress(RefusalIndexError):
            read()
    assert files_outside(work) == before


def copied(finished: Path) -> Path:
    work = Path("work")
    shutil.rmtree(work, ignore_errors=True)
    return Path(shutil.copytree(finished, work))


def aborts(path: Path) -> bool:
    """Whether Polars ends the whole process: version 2.1 does if a page has a negative number of values."""
    read = "import polars, sys; polars.read_parquet(sys.argv[1])"
    ended = subprocess.run((sys.executable, "-c", read, str(path)), capture_output=True, check=False)
    return ended.returncode == -signal.SIGABRT


FUZZED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@FUZZED
@given(
    st.sampled_from(["run.json", "replies.sqlite", "outcomes.parquet", "summary.json", ".lock"]),
    st.lists(st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=6)), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(0, 2**20)),
)
def test_readers_succeed_or_explain_with_any_changed_bytes_property(finished_run, other, name, changes, length):
    work = copied(finished_run)
    content = bytearray((work / name).read_bytes()) or bytearray(b"\n")
    for place, given_bytes in changes:
        start = place % len(content)
        content[start : start + len(given_bytes)] = given_bytes
    (work / name).write_bytes(content if length is None else content[: length % len(content)])
    if name == "outcomes.parquet" and aborts(work / name):
        reject()
    read_with_every_reader(work)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(document: object, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value within a document."""
    if path:
        yield path
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inside:
        yield from places(value, *path, key)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@FUZZED
@given(st.sampled_from(["run.json", "summary.json"]), st.integers(0, 2**20), JSON)
def test_readers_succeed_or_explain_with_any_document_value_property(finished_run, other, name, number, value):
    work = copied(finished_run)
    document = json.loads((work / name).read_text())
    found = list(places(document))
    *path, last = found[number % len(found)]
    inside = document
    for key in path:
        inside = inside[key]
    inside[last] = value
    (work / name).write_text(json.dumps(document))
    read_with_every_reader(work)


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@FUZZED
@given(st.integers(0, 2**20), VALUES)
def test_readers_succeed_or_explain_with_any_store_value_property(finished_run, other, number, value):
    work = copied(finished_run)
    with closing(sqlite3.connect(work / "replies.sqlite")) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        columns = [(name, one[1]) for name in tables for one in connection.execute(f"PRAGMA table_info({name})")]
        table, column = columns[number % len(columns)]
        with suppress(sqlite3.Error, OverflowError):  # values that the schema itself rejects
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = 1 + {number % 7}", (value,))  # noqa: S608
            if number % 2:
                write_checksums(connection)
            connection.commit()
    read_with_every_reader(work)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@FUZZED
@given(st.integers(0, 2**20), VALUES)
def test_readers_succeed_or_explain_with_any_outcome_value_property(finished_run, other, number, value):
    work = copied(finished_run)
    table = pl.read_parquet(work / "outcomes.parquet")
    name = table.columns[number % table.width]
    cells: list[object] = table[name].to_list()
    cells[number % 7] = value
    column = pl.Series(name, cells, strict=False)
    if column.dtype == pl.Object:  # a value that no column can hold together with the others
        column = pl.Series(name, [value] * table.height)
    table.with_columns(column).write_parquet(work / "outcomes.parquet")
    read_with_every_reader(work)
