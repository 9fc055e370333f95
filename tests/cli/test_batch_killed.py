"""Commands in batches that are killed at random moments, against a server that goes on and counts."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.making import outcomes
from tests.cli.serving import Server, finish, serving, start

KNOWN = ["variant", "question_id", "refused", "wrong", "first_reply", "forced_reply"]
OPTIONS = ("--engine-option", "poll=0.05", "--engine-option", "requests=12", "--engine", "batch")
SIZE = ("--limit", "30", "--variants", "low,highest", "--draws", "1")


def killed_after(server: Server, seconds: float, *arguments: str) -> bool:
    """Start a command, kill it so long after its first request, and return whether it was still at work."""
    before = len(server.entries())
    process = start(server, *arguments)
    while len(server.entries()) == before and process.poll() is None:
        time.sleep(0.005)
    time.sleep(seconds)
    was_at_work = process.poll() is None
    process.kill()
    _, errors = process.communicate()
    assert was_at_work or process.returncode == 0, errors
    return was_at_work


def submitted(folder: Path) -> list[str]:
    lines = [json.loads(line) for line in (folder / "batches.jsonl").read_text().splitlines()]
    return [one["batch"] for one in lines if one["event"] == "submitted"]


def check(server: Server, folders: list[Path]) -> None:
    """No batch was made that no run knows of, none is known twice, and nothing was answered twice."""
    known = [name for folder in folders for name in submitted(folder)]
    assert Counter(known) == Counter(server.batches())
    times = Counter((one["batch"], one["custom_id"]) for one in server.answered())
    runs = {name: folder for folder in folders for name in submitted(folder)}
    asked = Counter((runs[batch], custom_id) for batch, custom_id in times.elements())
    assert asked.most_common(1)[0][1] == 1


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_killed_at_thirty_random_moments_no_batch_is_handed_over_twice(tmp_path, command):
    chance, kills, folders = random.Random(14), 0, []
    with serving(tmp_path / "requests.jsonl", delay=0.1) as server:
        while kills < 30:
            folders.append(tmp_path / f"run-{len(folders)}")
            run = ("run", *SIZE, *OPTIONS, "--out", str(folders[-1]))
            while kills < 30 and killed_after(server, chance.uniform(0, 0.8), *run):
                kills += 1
            finish(start(server, *run))
        check(server, folders)
    assert command("run", *SIZE, "--model", "almanac/base", "--out", "whole").exit_code == 0
    whole = outcomes("whole").select(KNOWN)
    for folder in folders:
        assert outcomes(folder).select(KNOWN).equals(whole), folder.name


@pytest.mark.slow
def test_killed_once_it_goes_on_where_it_was(tmp_path):
    with serving(tmp_path / "requests.jsonl", delay=0.1) as server:
        run = ("run", "--limit", "10", "--variants", "low", "--draws", "1", *OPTIONS, "--out", str(tmp_path / "run"))
        assert killed_after(server, 0.15, *run)
        finish(start(server, *run))
        check(server, [tmp_path / "run"])
