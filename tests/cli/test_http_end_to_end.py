"""End to end over HTTP: the commands as a user types them, against ``refusal-index serve``, killed on the way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.cli.making import outcomes
from tests.cli.serving import finish, kill_once, start
from tests.tiers import others_nightly


@pytest.mark.slow
@others_nightly(("size", "kills"), [(20, (25,)), (150, (60, 200))], ids=["40", "300"])
def test_killed_and_run_again_sends_no_answered_request_twice_and_gives_the_same_result(
    server,
    command,
    monkeypatch,
    tmp_path,
    size,
    kills,
):
    arguments = ("--limit", str(size), "--variants", "low,highest", "--max-connections", "5")
    killed = ("run", *arguments, "--out", str(tmp_path / "killed"))
    for enough in kills:
        kill_once(server, enough, start(server, *killed))
    monkeypatch.setenv("ALMANAC_BASE_URL", server.url)
    monkeypatch.setenv("ALMANAC_API_KEY", "sk-none-needed")
    assert command(*killed, "--model", "openai-api/almanac/base").exit_code == 0
    sent = Counter(entry["seed"] for entry in server.answered())
    refused = outcomes(tmp_path / "killed").filter("refused")["question_id"].n_unique()
    assert len(sent) == 2 * size + refused
    assert sum(count - 1 for count in sent.values()) <= 5 * len(kills), "only what was in flight at a kill"

    before = len(server.answered())
    assert command(*killed, "--model", "openai-api/almanac/base").exit_code == 0
    assert len(server.answered()) == before, "a finished run sends nothing"

    assert command("run", *arguments, "--out", "whole").exit_code == 0
    known = ["variant", "question_id", "refused", "wrong", "first_reply", "forced_reply"]
    whole = outcomes("whole").select(known)
    assert outcomes(tmp_path / "killed").select(known).equals(whole), "and as within one process, never killed"


@pytest.mark.nightly
def test_a_model_that_knows_nothing_of_simpleqa_is_told_so_plainly(server, tmp_path):
    shared = Path(__file__).parents[3] / "shared" / "data" / "simpleqa" / "simple_qa_test_set.csv"
    if not shared.exists():
        pytest.skip("needs a local copy of the SimpleQA test set")
    arguments = ("--dataset", "simpleqa", "--data", str(shared), "--limit", "200", "--out", str(tmp_path / "out"))
    said = finish(start(server, "run", *arguments, "--variants", "normal", "--grader", "exact"))
    assert "right" in said
    assert any(reason in said for reason in ("knows next to nothing", "undefined", "limit"))
