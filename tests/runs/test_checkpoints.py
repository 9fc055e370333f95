"""Checkpoints as a training leaves them: their order, and whether they are whole."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from refusal_index.errors import RunFolderError
from refusal_index.plugins.training.watch import Settled, checkpoint_at, checkpoints_in, is_whole


def safetensors(values: int = 8, *, lost: int = 0) -> bytes:
    """A file of one tensor of so many numbers, of which some bytes are lost at the end."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    whole = len(header).to_bytes(8, "little") + header + bytes(4 * values)
    return whole[: len(whole) - lost]


def written(place: Path, **files: bytes | str) -> Path:
    place.mkdir(parents=True)
    for name, content in {"config.json": "{}", "model.safetensors": safetensors(), **files}.items():
        if content:
            (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def test_they_come_by_the_number_in_their_names_and_then_by_time(tmp_path: Path):
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
def test_what_half_written_ones_lack_is_told(tmp_path: Path, files: dict, lacks: str | None):
    one = checkpoint_at(written(tmp_path / "step-1", **files))
    assert one is not None
    assert one.lacks == lacks


def test_a_folder_of_something_else_is_none(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.log").touch()
    assert checkpoint_at(tmp_path / "runs") is None
    assert checkpoint_at(tmp_path / "gone") is None


def test_no_folder_is_told(tmp_path: Path):
    with pytest.raises(RunFolderError, match="expected the folder to which the training writes its checkpoints"):
        checkpoints_in(tmp_path / "gone")


def test_hostile_headers_are_not_whole(tmp_path: Path):
    for content in (b'{"w": 3}', b'{"w": {"data_offsets": [0, "x"]}}', b"[1]", b"null", b"[" * 200_000):
        (tmp_path / "w").write_bytes(len(content).to_bytes(8, "little") + content)
        assert not is_whole(tmp_path / "w")


def test_it_settles_once_nothing_changed_between_looks_or_its_files_are_old(tmp_path: Path):
    place = written(tmp_path / "step-1")
    settled = Settled(0.2)
    assert not settled(checkpoint_at(place))
    (place / "late.json").touch()
    time.sleep(0.1)
    assert not settled(checkpoint_at(place))
    time.sleep(0.25)
    assert settled(checkpoint_at(place))
    for file in place.iterdir():
        os.utime(file, (1, 1))
    assert Settled(1000)(checkpoint_at(place))


def test_one_that_cannot_be_read_waits_and_the_others_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
