"""End to end on the embedded model: a file of questions with context and choices, from the command to the table."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from refusal_index.protocol import load_prompt_set
from tests.cli.making import stored
from tests.models.fake_api import FakeApi

RECORDS = [
    {
        "id": f"q{number}",
        "question": f"Which tree stands in garden {number}?",
        "answer": "B",
        "choices": ["an oak", "a yew"],
        "context": f"In garden {number} stands a yew.",
        "answerable": number % 3 != 0,
        "topic": "trees",
    }
    for number in range(9)
]


def reply(message: str) -> str:
    """Answer, but refuse in the first pass about every other garden."""
    is_refused = int(re.search(r"garden (\d+)\?", message)[1]) % 2 and "leaving the question open" not in message
    return f"<answer>{'UNANSWERED' if is_refused else 'a yew'}</answer>"


def requests_of(messages: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return each message that was sent, by question and pass."""
    passes = ("forced" if "leaving the question open is not allowed" in one else "first" for one in messages)
    return {("q" + re.search(r"garden (\d+)\?", one)[1], of): one for one, of in zip(messages, passes, strict=True)}


def test_context_and_choices_reach_the_model_and_what_has_no_right_answer_is_wrong(command, monkeypatch):
    Path("q.jsonl").write_text("\n".join(map(json.dumps, RECORDS)))
    asked_how = ("--data", "q.jsonl", "--grader", "exact", "--variants", "highest", "--out", "there")
    with FakeApi(reply) as api:
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        result = command("run", "--model", "openai-api/fake/any", *asked_how)
    assert result.exit_code == 0, result.stderr
    outcomes = pl.read_parquet("there/outcomes.parquet")
    assert outcomes["unscored_reason"].null_count() == outcomes.height == len(RECORDS)
    golds = dict(outcomes.select("question_id", "gold").iter_rows())
    assert golds == {one["id"]: "a yew" if one["answerable"] else None for one in RECORDS}
    assert outcomes.filter(pl.col("gold").is_null())["wrong"].all()

    asked = requests_of(api.messages())
    prompts = load_prompt_set("default")
    refused = dict(outcomes.select("question_id", "refused").iter_rows())
    for one in RECORDS:
        whole = (one["question"], one["context"], one["choices"])
        assert asked.pop((one["id"], "first")) == "\n\n".join(prompts.render("highest", *whole))
        if refused[one["id"]] and one["answerable"]:
            assert asked.pop((one["id"], "forced")) == "\n\n".join(prompts.render("forced", *whole))
    assert not asked, "nothing else was asked"


def test_the_same_command_again_asks_nothing_and_scoring_rebuilds_the_same(command):
    Path("q.jsonl").write_text("\n".join(map(json.dumps, RECORDS)))
    arguments = ("run", "--data", "q.jsonl", "--grader", "exact", "--variants", "highest", "--out", "there")
    assert command(*arguments).exit_code == 0
    before, replies = Path("there/outcomes.parquet").read_bytes(), stored("there")
    assert command(*arguments).exit_code == 0
    assert stored("there") == replies
    assert command("score", "there").exit_code == 0
    assert Path("there/outcomes.parquet").read_bytes() == before
