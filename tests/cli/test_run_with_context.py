"""End to end on the embedded model: a file of questions with context and choices, from the command to the table."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
from inspect_ai.log import read_eval_log

from refusal_index.protocol import load_prompt_set
from tests.cli.making import LOCAL, stored

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


def requests_of(folder: Path) -> dict[tuple[str, str], str]:
    """Return the user's message of every request that the log holds, by question and pass."""
    (path,) = (folder / "logs").glob("*.eval")
    asked = {}
    for sample in read_eval_log(str(path), resolve_attachments=True).samples:
        for event in sample.events:
            if event.event == "model":
                text = event.input[-1].text
                of = "forced" if "leaving the question open is not allowed" in text else "first"
                asked[str(sample.id), of] = text
    return asked


def test_context_and_choices_reach_the_model_and_what_has_no_right_answer_is_wrong(command, tmp_path):
    Path("q.jsonl").write_text("\n".join(map(json.dumps, RECORDS)))
    result = command("run", "--data", "q.jsonl", "--grader", "exact", "--variants", "highest", "--out", "there")
    assert result.exit_code == 0, result.stderr
    outcomes = pl.read_parquet("there/outcomes.parquet")
    assert outcomes["unscored_reason"].null_count() == outcomes.height == len(RECORDS)
    golds = dict(outcomes.select("question_id", "gold").iter_rows())
    assert golds == {one["id"]: "a yew" if one["answerable"] else None for one in RECORDS}
    assert outcomes.filter(pl.col("gold").is_null())["wrong"].all()

    asked = requests_of(Path("there"))
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
    arguments = ("run", *LOCAL, "--data", "q.jsonl", "--grader", "exact", "--variants", "highest", "--out", "there")
    assert command(*arguments).exit_code == 0
    before, replies = Path("there/outcomes.parquet").read_bytes(), stored("there")
    assert command(*arguments).exit_code == 0
    assert stored("there") == replies
    assert command("score", "there").exit_code == 0
    assert Path("there/outcomes.parquet").read_bytes() == before
