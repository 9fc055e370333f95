"""A folder of the release before: its results come out as they were, and what it paid for is not asked again.

`data/run-0.1` has two finished variants (low, and high with three draws of four questions) and one, normal, that was
interrupted: its replies lie in the cache of pickles alone, which nothing reads any more.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refusal_index as ri
from refusal_index.engines.events import Event, Opened, Replied
from refusal_index.engines.inspect import earlier_runs
from refusal_index.engines.inspect.earlier_runs import LogError
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import StoreError
from refusal_index.evaluation.regrade import prepare_regrade, regrade
from refusal_index.evaluation.writing import rebuild
from refusal_index.protocol import Pass
from tests.tiers import one_fast

EARLIER = Path(__file__).parent / "data" / "run-0.1"
LIMIT = 12


@pytest.fixture
def folder() -> Path:
    shutil.copytree(EARLIER, "run")
    return Path("run")


def resume(folder: Path, variants: str, engine: str = "local") -> tuple[ri.Run, list[Replied]]:
    asked: list[Replied] = []

    def progress(event: Event) -> None:
        if isinstance(event, Replied):
            asked.append(event)

    run = ri.evaluate("almanac/small", limit=LIMIT, variants=variants, engine=engine, out=folder, progress=progress)
    return run, asked


def test_its_results_are_derived_as_they_were(folder):
    before = pl.read_parquet(EARLIER / "outcomes.parquet")
    run = rebuild(folder)
    assert run.outcomes.select(before.columns).equals(before)
    assert run.outcomes.drop(before.columns).null_count().row(0) == (run.outcomes.height,) * 2  # cluster, weight
    assert run.variants == ("low", "high")
    assert run.outcomes.filter(variant="high")["draw"].max() == 2
    usage = {variant.variant: variant.usage.requests for variant in ri.open_run(EARLIER).summary.variants}
    assert {variant.variant: variant.usage.requests for variant in run.summary.variants} == usage


def test_finished_variants_are_taken_over_and_nothing_is_asked(folder):
    run, asked = resume(folder, "low,high")
    assert not asked
    before = pl.read_parquet(EARLIER / "outcomes.parquet")
    assert run.outcomes.select(before.columns).equals(before)


@one_fast("engine", ["local", "inspect"])
def test_what_lies_in_the_cache_alone_is_asked_again_and_nothing_twice(folder, engine):
    fresh, _ = resume(Path("fresh"), "normal")
    run, asked = resume(folder, "normal", engine)
    assert run.outcomes.filter(variant="normal").equals(fresh.outcomes)
    firsts = [one for one in asked if one.completion.reply.of is Pass.FIRST]
    assert len({one.completion.question_id for one in firsts}) == len(firsts) == LIMIT
    _, again = resume(folder, "low,normal,high", engine)
    assert not again


def opened(folder: Path, variants: str) -> Opened:
    """Return what a run says of the folder as it opens it."""
    told: list[Event] = []
    ri.evaluate("almanac/small", limit=LIMIT, variants=variants, engine="local", out=folder, progress=told.append)
    (found,) = [event for event in told if isinstance(event, Opened)]
    return found


def test_a_run_says_once_that_the_cache_is_not_read_and_only_where_something_is_missing(folder):
    assert opened(folder, "low").note is None
    note = opened(folder, "normal").note
    assert note is not None
    assert "run/cache is a cache of an earlier release: pickles" in note
    assert "asked for again" in note
    assert opened(folder, "normal").note is None


def test_a_dry_run_says_so_too_and_leaves_the_folder_as_it_is(folder):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = ri.dry_run("almanac/small", limit=LIMIT, variants="normal", out=folder)
    assert found.found.first.requests.expected == LIMIT
    assert "pickles" in found.remark
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_torn_log_that_the_outcomes_were_made_of_is_named_and_they_stay_as_they_are(folder):
    (log,) = folder.glob("logs/*almanac-high*.eval")
    content, before = log.read_bytes(), (folder / "outcomes.parquet").read_bytes()
    log.write_bytes(content[: len(content) // 2])
    for attempt in (lambda: rebuild(folder), lambda: resume(folder, "low,high")):
        with pytest.raises(LogError, match=rf"{log.name}: not a readable Inspect log.*variant high"):
            attempt()
    assert (folder / "outcomes.parquet").read_bytes() == before
    log.write_bytes(content)
    assert rebuild(folder).variants == ("low", "high"), "nothing was taken over by half"


def test_a_damaged_log_keeps_nothing_from_being_scored_that_lies_in_the_store(folder):
    before = rebuild(folder).outcomes
    for log in folder.glob("logs/*.eval"):
        log.write_bytes(log.read_bytes()[:1000] + b"garbage")
    assert rebuild(folder).outcomes.equals(before)
    assert resume(folder, "low,high")[0].outcomes.equals(before)


def log_of(folder: Path, **parts: bytes) -> Path:
    """Write another version of a log, some parts of which are others."""
    (path,) = folder.glob("logs/*almanac-low*.eval")
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in dict.fromkeys(archive.namelist())}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in found.items():
            archive.writestr(name, parts.get(name.partition("/")[0].partition(".")[0], content))
    return path


def test_a_part_of_a_log_that_unpacks_into_too_much_is_not_read(folder, monkeypatch):
    monkeypatch.setattr(earlier_runs, "MOST_ENTRY", 1 << 20)
    path = log_of(folder, samples=b" " * (2 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(LogError, match=r"expected at most 1,048,576 bytes in samples/"):
        rebuild(folder)
    with pytest.raises(LogError, match="expected at most"):
        earlier_runs.check_size(path)


def test_nor_are_parts_that_are_too_much_together(folder, monkeypatch):
    monkeypatch.setattr(earlier_runs, "MOST_LOG", 20_000)
    with pytest.raises(LogError, match=r"and 20,000 in all"):
        rebuild(folder)


@pytest.mark.parametrize("content", [b"[]", b"{}", b"null", b"[" * 100_000, b'{"id": 1, "metadata": []}', b"\xff"])
def test_what_has_not_the_shape_of_a_log_is_named(folder, content):
    path = log_of(folder, samples=content)
    with pytest.raises(LogError, match=rf"{path.name}: not a readable Inspect log"):
        rebuild(folder)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.timeout(60)
def test_a_named_pipe_or_a_link_among_the_logs_keeps_nothing_waiting(folder, tmp_path):
    os.mkfifo(folder / "logs" / "2999-01-01_pipe.eval")
    (folder / "logs" / "2999-01-02_link.eval").symlink_to(tmp_path / "elsewhere")
    assert rebuild(folder).variants == ("low", "high")
    run, _ = resume(folder, "low,normal", "inspect")
    assert run.variants == ("low", "normal", "high")


class Planted:
    """Whatever reads this makes a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.place),)


@pytest.fixture
def planted(folder) -> Path:
    """Put in the place of every cached reply what would make a file once it were unpickled as usual."""
    place = Path.cwd() / "executed"
    files = [path for path in (folder / "cache").rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(pickle.dumps((None, Planted(place))))
    pickle.loads(files[0].read_bytes())  # noqa: S301 - what is shown: it would
    assert place.exists()
    place.rmdir()
    return place


@pytest.mark.parametrize("engine", ["inspect", "local"])
def test_what_is_planted_in_the_cache_is_not_executed_on_resuming(folder, planted, engine):
    run, asked = resume(folder, "low,normal", engine)
    assert not planted.exists()
    assert run.outcomes.filter(variant="normal").height == LIMIT
    assert len([one for one in asked if one.completion.variant == "normal"]) == LIMIT


def test_nor_in_a_dry_run_nor_when_graded_anew_nor_rebuilt(folder, planted):
    ri.dry_run("almanac/small", limit=LIMIT, variants="normal", out=folder)
    rebuild(folder)
    prepared = prepare_regrade(folder, Settings.of(grader="exact"), out=Path("regraded"))
    asyncio.run(regrade(prepared))
    assert not planted.exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=6)), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(0, 2**20)),
)
def test_whatever_bytes_of_a_log_are_changed_it_is_read_or_named(folder, changes, length):
    shutil.rmtree("work", ignore_errors=True)
    work = Path(shutil.copytree(folder, "work"))
    (log,) = work.glob("logs/*almanac-low*.eval")
    content = bytearray(log.read_bytes())
    for place, given_bytes in changes:
        start = place % len(content)
        content[start : start + len(given_bytes)] = given_bytes
    log.write_bytes(content if length is None else content[: length % len(content)])
    try:
        rebuild(work)
    except (LogError, StoreError) as error:
        told = str(error)
    else:
        told = log.name
    # A question that can no longer be found in the log is named by the outcome that it has.
    assert log.name in told or "expected the replies behind outcomes.parquet, found none for" in told
