"""Checkpoints: in order, whole, told apart by their weights, and evaluated as they come."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from refusal_index.data.run_sets import SET_VERSION, set_document, set_members
from refusal_index.errors import RunFolderError
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError
from refusal_index.plugins.almanac.models import model_folder
from refusal_index.plugins.training.watch import (
    CheckpointResult,
    StabilityCheck,
    TemplateError,
    checkpoint_at,
    checkpoints_in,
    execute_watch,
    is_whole,
    prepare_watch,
    weights_digest,
)
from refusal_index.runs.budget import Budget
from refusal_index.runs.events import Event, Progress, Replied
from refusal_index.runs.plan import Plan
from refusal_index.runs.settings import Limits

# --- Evaluating checkpoints

VALUES = {"limit": 6, "variants": ("normal",), "temperature": 0.0}


def checkpoint(place: Path, name: str = "small", *, old: bool = True) -> Path:
    """Copy an embedded model as a checkpoint."""
    shutil.copytree(model_folder(name), place)
    for file in place.iterdir():
        os.utime(file, (1_000_000, 1_000_000) if old else None)
    return place


class ReplyCounter:
    """Count the replies."""

    def __init__(self) -> None:
        self.replies = 0

    @contextmanager
    def __call__(self, plan: Plan) -> Iterator[Progress]:
        assert plan.folder.path.name == plan.title[0]

        def count(event: Event) -> None:
            self.replies += isinstance(event, Replied)

        yield count


def watched(
    folder: Path,
    out: Path,
    *,
    template: str = "almanac/{name}",
    asked: ReplyCounter | None = None,
    limit: int = 6,
    **more: Any,
) -> list[CheckpointResult]:
    values = {**VALUES, "limit": limit}
    planned = prepare_watch(folder, template, values, out=out, **{"every": 0.1, "until_idle": 0.0, **more})

    async def all_of_them() -> list[CheckpointResult]:
        return [one async for one in execute_watch(planned, asked or ReplyCounter(), Budget(Limits()))]

    return asyncio.run(all_of_them())


def test_each_checkpoint_is_one_run_and_asked_once(tmp_path: Path):
    for name in ("small", "base"):
        checkpoint(tmp_path / "checkpoints" / name, name)
    asked, out = ReplyCounter(), tmp_path / "panel"
    found = watched(tmp_path / "checkpoints", out, asked=asked)
    assert [(one.checkpoint.name, one.result.status) for one in found] == [("base", "complete"), ("small", "complete")]
    assert asked.replies > 12
    assert [(member.folder.name, member.model, member.step) for member in set_members(out)] == [
        ("base", "base", 1),
        ("small", "small", 2),
    ]
    again = ReplyCounter()
    assert [one.result.status for one in watched(tmp_path / "checkpoints", out, asked=again)] == ["complete"] * 2
    assert again.replies == 0
    assert [member.step for member in set_members(out)] == [1, 2]


def test_steps_come_from_the_names_and_fill_the_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "served.py").write_text('def at_3(messages):\n    return "<answer>UNANSWERED</answer>"\n')
    checkpoint(tmp_path / "checkpoints" / "checkpoint-20")
    checkpoint(tmp_path / "checkpoints" / "checkpoint-3")
    found = watched(tmp_path / "checkpoints", tmp_path / "panel", template="python:served:at_{step}")
    assert found[0].result.status == "complete"
    assert "python:served:at_20" in str(found[1].error)


@pytest.mark.parametrize("template", ["{name}", "python:{name}:answer", "python:served:{name}"])
def test_checkpoint_name_cannot_select_a_function(template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "served.py").write_text('__import__("pathlib").Path("mark").touch()\nanswer = print\n')
    name = "python:served:answer" if template == "{name}" else "served" if "{name}:" in template else "answer"
    checkpoint(tmp_path / "checkpoints" / name)
    with pytest.raises(TemplateError, match=r"independent of the folder's name, got 'python:served:"):
        watched(tmp_path / "checkpoints", tmp_path / "panel", template=template)
    assert not Path("mark").exists()


def test_incomplete_checkpoint_is_reported_at_the_end(tmp_path: Path):
    place = checkpoint(tmp_path / "checkpoints" / "small")
    (place / "model.safetensors").write_bytes((place / "model.safetensors").read_bytes()[:5000])
    (one,) = watched(tmp_path / "checkpoints", tmp_path / "panel")
    assert one.result is None
    assert one.left_out == "model.safetensors is incomplete"


def test_recently_written_checkpoint_is_waited_for(tmp_path: Path):
    checkpoint(tmp_path / "checkpoints" / "small", old=False)
    (one,) = watched(tmp_path / "checkpoints", tmp_path / "panel", every=0.5)
    assert one.result.status == "complete"


@pytest.mark.slow
def test_checkpoint_finished_during_the_watch_is_evaluated(tmp_path: Path):
    place = checkpoint(tmp_path / "checkpoints" / "small")
    whole = (place / "model.safetensors").read_bytes()
    (place / "model.safetensors").write_bytes(whole[:5000])

    def finish() -> None:
        time.sleep(0.5)
        (place / "model.safetensors").write_bytes(whole)

    writer = threading.Thread(target=finish)
    writer.start()
    (one,) = watched(tmp_path / "checkpoints", tmp_path / "panel", until_idle=3.0)
    writer.join()
    assert one.result.status == "complete"


def test_unloadable_checkpoint_is_reported_and_others_continue(tmp_path: Path):
    checkpoint(tmp_path / "checkpoints" / "huge")
    checkpoint(tmp_path / "checkpoints" / "small")
    first, second = watched(tmp_path / "checkpoints", tmp_path / "panel")
    assert (first.checkpoint.name, first.result) == ("huge", None)
    assert "almanac/huge" in str(first.error)
    assert second.result.status == "complete"


def test_changed_weights_under_the_same_name_raise(tmp_path: Path):
    place = checkpoint(tmp_path / "checkpoints" / "small")
    watched(tmp_path / "checkpoints", tmp_path / "panel")
    shutil.copy(model_folder("rash") / "model.safetensors", place / "model.safetensors")
    os.utime(place / "model.safetensors", (1_000_000, 1_000_000))
    (one,) = watched(tmp_path / "checkpoints", tmp_path / "panel")
    assert "was run with different settings (weights: " in str(one.error)


def test_rejected_settings_leave_the_panel_unchanged(tmp_path: Path):
    checkpoint(tmp_path / "checkpoints" / "small")
    watched(tmp_path / "checkpoints", tmp_path / "panel")
    known = (tmp_path / "panel" / "summary.json").read_bytes()
    (one,) = watched(tmp_path / "checkpoints", tmp_path / "panel", limit=7)
    assert (one.result.status, "with different settings" in str(one.error)) == ("failed", True)
    assert (tmp_path / "panel" / "summary.json").read_bytes() == known


def test_watch_without_checkpoints_creates_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VLLM_BASE_URL", "http://127.0.0.1:9/v1")
    (tmp_path / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    (one,) = watched(tmp_path / "checkpoints", tmp_path / "panel", template="vllm/{path}")
    assert (one.checkpoint.step, one.left_out) == (5, "no config.json")
    assert not (tmp_path / "panel").exists()


def test_watching_a_checkpoint_or_panel_folder_raises(tmp_path: Path):
    place = checkpoint(tmp_path / "checkpoints" / "small")
    with pytest.raises(RunFolderError, match=f"is a checkpoint itself; name its parent folder, {place.parent}"):
        prepare_watch(place, "almanac/{name}", VALUES)
    checkpoint(place / "base", "base")
    prepare_watch(place, "almanac/{name}", VALUES)  # trainers save the last one around the others
    watched(tmp_path / "checkpoints", tmp_path / "panel")
    with pytest.raises(RunFolderError, match="contains runs, not checkpoints; name the folder"):
        prepare_watch(tmp_path / "panel", "almanac/{name}", VALUES)


@pytest.mark.parametrize("provider", ["vllm", "sglang"])
def test_missing_server_package_raises_before_the_first_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
):
    monkeypatch.setattr("refusal_index.plugins.training.watch.find_spec", lambda _name: None)
    monkeypatch.delenv(f"{provider.upper()}_BASE_URL", raising=False)
    with pytest.raises(ModelError, match=f"{provider} is not installed, .* or set {provider.upper()}_BASE_URL to"):
        prepare_watch(tmp_path, f"{provider}/{{path}}", VALUES)
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "http://127.0.0.1:9/v1")
    prepare_watch(tmp_path, f"{provider}/{{path}}", VALUES)


def test_exhausted_budget_ends_the_watch(tmp_path: Path):
    for name in ("small", "base"):
        checkpoint(tmp_path / "checkpoints" / name, name)
    watch = prepare_watch(tmp_path / "checkpoints", "almanac/{name}", VALUES, out=tmp_path / "panel", every=0.1)
    budget = Budget(Limits())

    async def first() -> list[CheckpointResult]:
        found = []
        async for one in execute_watch(watch, ReplyCounter(), budget):
            found.append(one)
            budget.end("interrupted")
        return found

    assert len(asyncio.run(first())) == 1  # and it does not wait for ever


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("vllm/model", r"expected it to contain one of \{path\}, \{name\}, \{step\}, as in vllm/\{path\}"),
        ("vllm/{paht}", r"in braces, got 'paht'; did you mean 'path'\?"),
        ("vllm/{path", "expected one such as vllm/{path}"),
        ("vllm/{}", "in braces, got ''"),
        ("vllm/{path.parent}", "in braces, got 'path.parent'"),
    ],
)
def test_invalid_template_error_lists_its_fields(tmp_path: Path, template: str, message: str):
    with pytest.raises(TemplateError, match=message):
        prepare_watch(tmp_path, template, VALUES)


def test_invalid_settings_raise_before_the_first_checkpoint(tmp_path: Path):
    with pytest.raises(SettingError, match="limt"):
        prepare_watch(tmp_path, "almanac/{name}", {"limt": 3})
    with pytest.raises(RunFolderError, match="expected the folder to which the training writes"):
        prepare_watch(tmp_path / "gone", "almanac/{name}", VALUES)
    checkpoint(tmp_path / "small")
    with pytest.raises(TemplateError, match="expected a number in the name of"):
        prepare_watch(tmp_path, "almanac/{step}", VALUES)


def test_watch_rejects_other_folders_as_output(tmp_path: Path):
    checkpoint(tmp_path / "checkpoints" / "small")
    out = tmp_path / "panel"
    watched(tmp_path / "checkpoints", out)
    with pytest.raises(RunFolderError, match="is the folder of a single run"):
        prepare_watch(tmp_path / "checkpoints", "almanac/{name}", VALUES, out=out / "small")
    (out / "summary.json").write_text(json.dumps({"set_version": SET_VERSION, "config": {}, "runs": []}))
    with pytest.raises(RunFolderError, match="is not the summary of checkpoints"):
        prepare_watch(tmp_path / "checkpoints", "almanac/{name}", VALUES, out=out)
    assert "config" in set_document(out)


# --- Order and completeness of checkpoints


def safetensors(values: int = 8, *, lost: int = 0) -> bytes:
    """A file of one tensor with ``values`` numbers, truncated by ``lost`` bytes."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    whole = len(header).to_bytes(8, "little") + header + bytes(4 * values)
    return whole[: len(whole) - lost]


def written(place: Path, **files: bytes | str) -> Path:
    place.mkdir(parents=True)
    for name, content in {"config.json": "{}", "model.safetensors": safetensors(), **files}.items():
        if content:
            (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def test_checkpoints_are_sorted_by_step_then_by_time(tmp_path: Path):
    for number, name in enumerate(("checkpoint-1000", "final", "checkpoint-200", "best")):
        place = written(tmp_path / name)
        for file in place.iterdir():
            os.utime(file, (1000 + number, 1000 + number))
    (tmp_path / "runs").mkdir()
    (tmp_path / "log.txt").touch()
    written(tmp_path / "tmp-checkpoint-300")
    found = checkpoints_in(tmp_path)
    assert [(one.name, one.step) for one in found] == [
        ("checkpoint-200", 200),
        ("checkpoint-1000", 1000),
        ("final", None),
        ("best", None),
    ]


INDEX = json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})


@pytest.mark.parametrize(
    ("files", "lacks"),
    [
        ({}, None),
        ({"config.json": ""}, "no config.json"),
        ({"config.json": '{"a": '}, "config.json is incomplete"),
        ({"config.json": "[]"}, "config.json is incomplete"),
        ({"model.safetensors": ""}, "no weights"),
        ({"model.safetensors": safetensors(lost=1)}, "model.safetensors is incomplete"),
        ({"model.safetensors": safetensors(lost=40)}, "model.safetensors is incomplete"),
        ({"model.safetensors": b"\0" * 3}, "model.safetensors is incomplete"),
        ({"model.safetensors": b"\xff" * 40}, "model.safetensors is incomplete"),
        ({"model.safetensors": "", "pytorch_model.bin": "x"}, None),
        ({"model.safetensors": "", "model.safetensors.index.json": INDEX}, "no one.safetensors"),
        (
            {"model.safetensors": "", "model.safetensors.index.json": INDEX[:9]},
            "model.safetensors.index.json is incomplete",
        ),
        (
            {"model.safetensors": "", "model.safetensors.index.json": INDEX, "one.safetensors": safetensors()},
            "no two.safetensors",
        ),
        (
            {
                "model.safetensors": "",
                "model.safetensors.index.json": INDEX,
                "one.safetensors": safetensors(),
                "two.safetensors": safetensors(),
            },
            None,
        ),
        ({"config.json": "", "model.safetensors": "", "adapter_config.json": "{}"}, "no weights"),
        (
            {
                "config.json": "",
                "model.safetensors": "",
                "adapter_config.json": "{}",
                "adapter_model.safetensors": safetensors(),
            },
            None,
        ),
    ],
)
def test_incomplete_checkpoint_says_what_is_missing(tmp_path: Path, files: dict, lacks: str | None):
    one = checkpoint_at(written(tmp_path / "step-1", **files))
    assert one is not None
    assert one.lacks == lacks


def test_other_folders_are_not_checkpoints(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.log").touch()
    assert checkpoint_at(tmp_path / "runs") is None
    assert checkpoint_at(tmp_path / "gone") is None


def test_missing_checkpoint_folder_raises(tmp_path: Path):
    with pytest.raises(RunFolderError, match="expected the folder to which the training writes its checkpoints"):
        checkpoints_in(tmp_path / "gone")


def test_hostile_safetensors_headers_are_incomplete(tmp_path: Path):
    for content in (b'{"w": 3}', b'{"w": {"data_offsets": [0, "x"]}}', b"[1]", b"null", b"[" * 200_000):
        (tmp_path / "w").write_bytes(len(content).to_bytes(8, "little") + content)
        assert not is_whole(tmp_path / "w")


def test_checkpoint_settles_when_unchanged_or_old(tmp_path: Path):
    place = written(tmp_path / "step-1")
    is_stable = StabilityCheck(0.2)
    assert not is_stable(checkpoint_at(place))
    (place / "late.json").touch()
    time.sleep(0.1)
    assert not is_stable(checkpoint_at(place))
    time.sleep(0.25)
    assert is_stable(checkpoint_at(place))
    for file in place.iterdir():
        os.utime(file, (1, 1))
    assert StabilityCheck(1000)(checkpoint_at(place))


def test_unreadable_checkpoint_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bad, good = written(tmp_path / "step-1"), written(tmp_path / "step-2")
    opened = Path.open

    def refusing(path: Path, *given: object, **more: object) -> object:
        if path == bad / "model.safetensors":
            raise PermissionError(13, "Permission denied")
        return opened(path, *given, **more)

    monkeypatch.setattr(Path, "open", refusing)
    found = checkpoints_in(tmp_path)
    assert [one.path for one in found] == [bad, good]
    assert [one.lacks for one in found] == ["it cannot be read (Permission denied)", None]


# --- Digests of weights


@pytest.mark.parametrize("place", [-1, -150_000, -399_000])
def test_changing_any_weight_changes_the_digest(tmp_path: Path, place: int):
    content = safetensors(100_000)
    changed = bytearray(content)
    changed[place] ^= 1
    first = written(tmp_path / "a" / "step-1", **{"model.safetensors": content})
    same = written(tmp_path / "b" / "step-1", **{"model.safetensors": content, "notes.json": "x"})
    other = written(tmp_path / "c" / "step-1", **{"model.safetensors": bytes(changed)})
    digests = [weights_digest(checkpoint_at(place)) for place in (first, same, other)]
    assert digests[0] == digests[1] != digests[2]
