"""The callback within real trainers, and a training from end to end."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refusal_index as ri
from refusal_index.data.analysis import Analysis
from refusal_index.data.run_sets import set_members
from refusal_index.errors import RefusalIndexError, RunFolderError
from refusal_index.findings.run_results import read_runs
from refusal_index.models.settings import SettingError
from refusal_index.plugins.training.section import panels_of, steps_of_trainings
from refusal_index.plugins.training.watch import CheckpointResult, execute_watch, prepare_watch
from refusal_index.render.report import write_report
from refusal_index.runs.budget import Budget
from refusal_index.runs.events import Progress, ignore_events
from refusal_index.runs.plan import Plan
from refusal_index.runs.settings import Limits
from tests.runs.training import trainer_of

# --- The callback in real trainers

FEW: dict[str, Any] = {"limit": 4, "max_tokens": 6, "batch_size": 3}


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, which takes seconds to import: only the worker that runs these tests does."""
    pytest.importorskip("accelerate")
    return pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def threads(torch: Any) -> Any:
    """Use one thread, so that results do not depend on how sums are split."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(trainer: Any) -> list[dict[str, Any]]:
    """Train and return the logged panel metrics."""
    trainer.train()
    return [logs for logs in trainer.state.log_history if "normal/refusal_rate" in logs]


def weights(trainer: Any) -> list[Any]:
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def test_callback_logs_summary_metrics_every_n_steps_and_at_the_end(tmp_path: Path):
    trainer = trainer_of(tmp_path / "checkpoints", steps=5, tiny=True)
    trainer.add_callback(ri.RefusalIndexCallback(trainer, every=2, out=tmp_path / "panel", **FEW))
    logs = trained(trainer)
    assert [log["step"] for log in logs] == [2, 4, 5]
    members = set_members(tmp_path / "panel")
    assert [(one.step, one.model) for one in members] == [(2, "step 2"), (4, "step 4"), (5, "step 5")]
    for one, member in zip(logs, members, strict=True):
        (variant,) = json.loads((member.folder / "summary.json").read_text())["variants"]
        for name, metric in variant["metrics"].items():
            for key in ("estimate", "low", "high"):
                called = f"normal/{name}" if key == "estimate" else f"normal/{name}/{key}"
                assert one.get(called) == metric[key]
    # Losses are logged at every step, too.
    assert [one["step"] for one in trainer.state.log_history if "loss" in one] == [1, 2, 3, 4, 5]


def test_training_is_identical_with_and_without_the_callback(torch: Any, tmp_path: Path):
    found = []
    for asked in (False, True):
        trainer = trainer_of(tmp_path / f"checkpoints-{asked}", steps=2, tiny=True, dropout=0.2)
        if asked:
            trainer.add_callback(ri.RefusalIndexCallback(trainer, every=1, out=tmp_path / "panel", **FEW))
        assert len(trained(trainer)) == (2 if asked else 0)
        found.append((weights(trainer), torch.rand(1), random.random(), np.random.rand()))  # noqa: NPY002 - the one trainings use
    (before, *drawn), (after, *drawn_after) = found
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert drawn == drawn_after


def test_module_training_modes_are_restored(tmp_path: Path):
    trainer = trainer_of(tmp_path / "checkpoints", steps=1, tiny=True)
    callback = ri.RefusalIndexCallback(trainer, every=1, out=tmp_path / "panel", **FEW)
    model = trainer.model.train()
    model.model.embed_tokens.eval()
    trainer.state.global_step = 7
    callback.on_step_end(
        trainer.args, trainer.state, trainer.control, model=model, processing_class=trainer.processing_class
    )
    assert not model.model.embed_tokens.training
    assert model.lm_head.training
    assert (tmp_path / "panel").exists()


@pytest.mark.slow
def test_callback_runs_when_a_checkpoint_is_saved(tmp_path: Path):
    trainer = trainer_of(tmp_path / "checkpoints", steps=4, save=2, tiny=True)
    trainer.add_callback(ri.RefusalIndexCallback(trainer, out=tmp_path / "panel", **FEW))
    assert [one["step"] for one in trained(trainer)] == [2, 4]


@pytest.mark.slow
def test_the_same_training_again_resumes_and_another_is_another_run(tmp_path: Path):
    for _ in range(2):
        trainer = trainer_of(tmp_path / "checkpoints", steps=2, tiny=True)
        trainer.add_callback(ri.RefusalIndexCallback(trainer, every=2, out=tmp_path / "panel", **FEW))
        assert len(trained(trainer)) == 1
    assert len(list((tmp_path / "panel").glob("step-2-*"))) == 1
    other = trainer_of(tmp_path / "checkpoints", steps=2, tiny=True, learning_rate=1e-3)
    other.add_callback(ri.RefusalIndexCallback(other, every=2, out=tmp_path / "panel", **FEW))
    trained(other)
    assert len(list((tmp_path / "panel").glob("step-2-*"))) == 2
    assert len(set_members(tmp_path / "panel")) == 1


def test_training_continues_with_warnings_if_the_endpoint_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("GONE_KEY", "sk-1234567890abcdefghij")
    trainer = trainer_of(tmp_path / "checkpoints", steps=4, tiny=True)
    server = {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "GONE_KEY"}
    trainer.add_callback(
        ri.RefusalIndexCallback(trainer, every=2, model="m", out=tmp_path / "panel", limit=25, max_retries=0, **server)
    )
    with caplog.at_level(logging.WARNING, "refusal_index"):
        assert trained(trainer) == []
    assert trainer.state.global_step == 4
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("refusal_index")]
    assert [one.split(":")[0] for one in messages] == ["Refusal Index of step 2", "Refusal Index of step 4"]
    assert all("is the server running?" in one and "\n" not in one and "sk-1234567890" not in one for one in messages)
    document = json.loads((tmp_path / "panel" / "summary.json").read_text())
    assert [(run["step"], run["status"]) for run in document["runs"]] == [(2, "failed"), (4, "failed")]


def test_failing_model_does_not_end_the_training(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    trainer = trainer_of(tmp_path / "checkpoints", steps=2, tiny=True)

    def generate(**_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trainer.model, "generate", generate)
    trainer.add_callback(ri.RefusalIndexCallback(trainer, every=2, out=tmp_path / "panel", **FEW))
    with caplog.at_level(logging.WARNING, "refusal_index"):
        assert trained(trainer) == []
    assert "CUDA out of memory" in caplog.text
    assert trainer.model.training


def test_only_rank_zero_asks_and_sharded_models_get_a_hint(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    trainer = trainer_of(tmp_path / "checkpoints", steps=1, tiny=True)
    callback = ri.RefusalIndexCallback(trainer, every=1, out=tmp_path / "panel", **FEW)
    given = {"model": trainer.model, "processing_class": trainer.processing_class}
    trainer.state.global_step, trainer.state.is_world_process_zero = 1, False
    callback.on_step_end(trainer.args, trainer.state, trainer.control, **given)
    assert not (tmp_path / "panel").exists()
    trainer.state.is_world_process_zero = True
    next(trainer.model.parameters()).ds_id = 0
    with caplog.at_level(logging.WARNING, "refusal_index"):
        callback.on_step_end(trainer.args, trainer.state, trainer.control, **given)
    assert "no process holds the whole model" in caplog.text
    assert "refusal-index watch" in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": 0}, "every: expected a number of steps or 'save', got 0"),
        ({"every": "epoch"}, "every: expected a number of steps or 'save', got 'epoch'"),
        ({"batch_size": 0}, "batch_size: expected a whole number of at least 1, got 0"),
        ({"temperature": 0.7}, "temperature: expected 0 for a model in memory"),
        ({"limt": 3}, "limt"),
        ({"dataset": "no-such-questions"}, "no-such-questions"),
    ],
)
def test_invalid_callback_settings_raise_before_training(tmp_path: Path, given: dict, message: str):
    trainer = trainer_of(tmp_path / "checkpoints", steps=1, tiny=True)
    with pytest.raises(RefusalIndexError, match=message):
        ri.RefusalIndexCallback(trainer, **{"out": tmp_path / "panel", **given})
    assert issubclass(SettingError, RefusalIndexError)
    assert not (tmp_path / "panel").exists()


def test_run_folder_is_not_accepted_as_a_panel(tmp_path: Path):
    (tmp_path / "run.json").write_text("{}")
    trainer = trainer_of(tmp_path / "checkpoints", steps=1, tiny=True)
    with pytest.raises(RunFolderError, match="is the folder of a single run"):
        ri.RefusalIndexCallback(trainer, out=tmp_path)


# --- Digests of weights in memory


@pytest.fixture
def tag_of() -> Callable[[Any], str]:
    """Return the function under test, whose module imports transformers."""
    from refusal_index.plugins.training.callback import weights_tag

    return weights_tag


def test_changing_one_weight_changes_the_tag_in_memory(torch: Any, tag_of: Callable[[Any], str]):
    model = torch.nn.Linear(300, 200).to(torch.bfloat16)
    before = tag_of(model)
    assert tag_of(model) == before
    with torch.no_grad():
        model.weight[150, 7] += 1
    assert tag_of(model) != before
    assert len(before) == 8


def test_tag_does_not_depend_on_memory_layout(torch: Any, tag_of: Callable[[Any], str]):
    model, turned = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    turned.weight = torch.nn.Parameter(model.weight.detach().T.contiguous().T)
    turned.bias = model.bias
    assert tag_of(model) == tag_of(turned)


# --- Training an embedded model with the callback

STEPS, SAVE, QUESTIONS = 200, 50, 60


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a training run that teaches refusal, and its trainer."""
    place = tmp_path_factory.mktemp("training")
    trainer = trainer_of(place / "checkpoints", steps=STEPS, save=SAVE)
    trainer.add_callback(
        ri.RefusalIndexCallback(trainer, out=place / "panel", limit=QUESTIONS, max_tokens=32, max_time=1200)
    )
    trainer.train()
    return place, trainer


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_training_to_refuse_shows_in_the_panel(training: tuple[Path, Any], tmp_path: Path):
    place, trainer = training
    logs = [one for one in trainer.state.log_history if "normal/refusal_rate" in one]
    assert [log["step"] for log in logs] == [50, 100, 150, 200]
    rates = [log["normal/refusal_rate"] for log in logs]
    assert rates[-1] > rates[0] + 0.2
    assert max(log["normal/error_rate"] for log in logs) - min(log["normal/error_rate"] for log in logs) < 0.15
    (steps,) = steps_of_trainings(read_runs([place / "panel"]))
    (panel,) = panels_of(steps, Analysis())
    assert panel.changed("refusal_rate")
    assert not panel.changed("error_rate")
    page = write_report(read_runs([place / "panel"]), tmp_path / "report.html").path.read_text()
    assert "It refuses more since" in page


@contextmanager
def unseen(_plan: Plan) -> Iterator[Progress]:
    yield ignore_events


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_watched_checkpoints_answer_like_the_model_in_memory(training: tuple[Path, Any], tmp_path: Path):
    place, _ = training
    values = {"limit": QUESTIONS, "variants": ("normal",), "temperature": 0.0, "max_tokens": 32, "max_connections": 32}
    watch = prepare_watch(
        place / "checkpoints", "hf/{path}", values, out=tmp_path / "watched", every=0.5, until_idle=0.0
    )

    async def all_of_them() -> list[CheckpointResult]:
        return [one async for one in execute_watch(watch, unseen, Budget(Limits()))]

    found = asyncio.run(all_of_them())
    assert [one.error for one in found] == [None] * 4
    in_memory = {member.step: ri.open_run(member.folder) for member in set_members(place / "panel")}
    for one in found:
        own, other = in_memory[one.checkpoint.step].outcomes, one.result.results.outcomes
        joined = own.join(other, on="question_id", suffix="_other")
        assert joined.height == QUESTIONS
        # Half and single precision round differently: nearly all questions agree, not every one.
        assert (joined["first_reply"] == joined["first_reply_other"]).mean() > 0.95
