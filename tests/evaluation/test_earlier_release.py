"""A folder of the release before: its results come out as they were, and what it paid for is not asked again.

`data/run-0.1` has two finished variants (low, and high with three draws of four questions) and one, normal, that was
interrupted: eight of its replies lie in the cache of pickles alone.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
from pathlib import Path

import polars as pl
import pytest
from inspect_ai.model import ModelOutput

import refusal_index as ri
from refusal_index.engines.engine import Event, Replied
from refusal_index.engines.inspect import earlier_runs
from refusal_index.engines.settings import Settings
from refusal_index.evaluation.regrade import prepare_regrade, regrade
from refusal_index.evaluation.run import open_store, rebuild
from refusal_index.protocol import Completion

EARLIER = Path(__file__).parent / "data" / "run-0.1"
LIMIT = 12
IN_THE_CACHE_ALONE = 8


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
    assert run.outcomes.equals(before)
    assert run.variants == ("low", "high")
    assert run.outcomes.filter(variant="high")["draw"].max() == 2
    usage = {variant.variant: variant.usage.requests for variant in ri.open_run(EARLIER).summary.variants}
    assert {variant.variant: variant.usage.requests for variant in run.summary.variants} == usage


def test_finished_variants_are_taken_over_and_nothing_is_asked(folder):
    run, asked = resume(folder, "low,high")
    assert not asked
    assert run.outcomes.equals(pl.read_parquet(EARLIER / "outcomes.parquet"))


def test_resuming_asks_only_what_is_neither_in_a_log_nor_in_the_cache(folder):
    fresh, _ = resume(Path("fresh"), "normal")
    run, asked = resume(folder, "normal", "inspect")
    assert run.outcomes.filter(variant="normal").equals(fresh.outcomes)
    assert [one.completion.variant for one in asked].count("normal") == LIMIT - IN_THE_CACHE_ALONE
    with open_store(run.folder) as store:
        assert len({place(one) for one in store.replies()}) == len(list(store.replies()))
    _, again = resume(folder, "low,normal,high", "inspect")
    assert not again


def test_an_embedded_model_that_is_asked_directly_gives_the_same_though_it_reads_no_cache(folder):
    fresh, _ = resume(Path("fresh"), "normal")
    run, _ = resume(folder, "normal", "local")
    assert run.outcomes.filter(variant="normal").equals(fresh.outcomes)


def place(one: Completion) -> tuple[object, ...]:
    return one.question_id, one.variant, one.reply.of, one.reply.asked, one.draw, one.attempt


def test_a_dry_run_takes_off_what_lies_in_the_cache_and_leaves_the_folder_as_it_is(folder):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = ri.dry_run("almanac/small", limit=LIMIT, variants="normal", out=folder)
    assert found.found.first.requests.expected == LIMIT - IN_THE_CACHE_ALONE
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


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
    assert len(files) > IN_THE_CACHE_ALONE
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
    assert len([one for one in asked if one.completion.variant == "normal"]) == LIMIT, "nothing of it is a reply"


def test_nor_in_a_dry_run_nor_when_graded_anew_nor_rebuilt(folder, planted):
    ri.dry_run("almanac/small", limit=LIMIT, variants="normal", out=folder)
    rebuild(folder)
    prepared = prepare_regrade(folder, Settings.of(grader="exact"), out=Path("regraded"))
    asyncio.run(regrade(prepared))
    assert not planted.exists()


@pytest.mark.parametrize(
    "planted",
    [os.system, eval, shutil.rmtree, Path, pickle.Unpickler, type],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_the_reader_admits_the_types_of_a_reply_and_nothing_else(planted, tmp_path):
    path = tmp_path / "one"
    path.write_bytes(pickle.dumps((None, planted)))
    with path.open("rb") as file, pytest.raises(pickle.UnpicklingError, match="is no part of a reply"):
        earlier_runs._load_plain(file)
    output = ModelOutput.from_content("m", "Lima")
    path.write_bytes(pickle.dumps((None, output)))
    with path.open("rb") as file:
        assert earlier_runs._load_plain(file) == (None, output)


def test_inspects_own_reader_is_back_in_its_place_afterwards(folder):
    resume(folder, "normal", "inspect")
    assert vars(earlier_runs.inspect_cache)["pickle"] is pickle
    assert "INSPECT_CACHE_DIR" not in os.environ
