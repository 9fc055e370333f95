"""A real training of an embedded model with the real callback, its checkpoints watched, and the report of both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import refusal_index as ri
from refusal_index.data.folder import read_runs, set_members
from refusal_index.findings.comparison import CompareOptions
from refusal_index.plugins.training.section import panels_of, steps_of_trainings
from refusal_index.plugins.training.watch import CheckpointResult, execute_watch, prepare_watch
from refusal_index.render.report import read_report_runs, write_report
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import Progress, unwatched
from refusal_index.runs.plan import Plan
from refusal_index.runs.settings import Limits
from tests.runs.training import trainer_of

pytest.importorskip("torch")
pytest.importorskip("accelerate")

STEPS, SAVE, QUESTIONS = 200, 50, 60


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a training that teaches to leave questions open, and its trainer."""
    place = tmp_path_factory.mktemp("training")
    trainer = trainer_of(place / "checkpoints", steps=STEPS, save=SAVE)
    trainer.add_callback(
        ri.RefusalIndexCallback(trainer, out=place / "panel", limit=QUESTIONS, max_tokens=32, max_time=1200)
    )
    trainer.train()
    return place, trainer


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_it_learns_to_refuse_and_the_panel_says_so(trained: tuple[Path, Any], tmp_path: Path):
    place, trainer = trained
    logs = [one for one in trainer.state.log_history if "normal/refusal_rate" in one]
    assert [one["step"] for one in logs] == [50, 100, 150, 200]
    rates = [one["normal/refusal_rate"] for one in logs]
    assert rates[-1] > rates[0] + 0.2
    assert max(one["normal/error_rate"] for one in logs) - min(one["normal/error_rate"] for one in logs) < 0.15
    (steps,) = steps_of_trainings(read_runs([place / "panel"]))
    (panel,) = panels_of(steps, CompareOptions())
    assert panel.changed("refusal_rate")
    assert not panel.changed("error_rate")
    page = write_report(read_report_runs([place / "panel"])[0], tmp_path / "report.html").path.read_text()
    assert "It refuses more since" in page


@contextmanager
def unseen(_plan: Plan) -> Iterator[Progress]:
    yield unwatched


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_its_checkpoints_are_watched_and_answer_as_the_model_in_memory_did(trained: tuple[Path, Any], tmp_path: Path):
    place, _ = trained
    values = {"limit": QUESTIONS, "variants": ("normal",), "temperature": 0.0, "max_tokens": 32, "max_connections": 32}
    watch = prepare_watch(
        place / "checkpoints", "hf/{path}", values, out=tmp_path / "watched", every=0.5, until_idle=0.0
    )

    async def all_of_them() -> list[CheckpointResult]:
        return [one async for one in execute_watch(watch, unseen, Budget(Limits()))]

    found = asyncio.run(all_of_them())
    assert [one.error for one in found] == [None] * 4
    in_memory = {one.step: ri.open_run(one.folder) for one in set_members(place / "panel")}
    for one in found:
        own, other = in_memory[one.checkpoint.step].outcomes, one.result.run.outcomes
        joined = own.join(other, on="question_id", suffix="_other")
        assert joined.height == QUESTIONS
        # Weights of half or single precision round otherwise: nearly all questions, not every one.
        assert (joined["first_reply"] == joined["first_reply_other"]).mean() > 0.95
