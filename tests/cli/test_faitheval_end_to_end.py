"""End to end over HTTP: each task of FaithEval, from a file of its columns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from tests.cli.making import outcomes
from tests.cli.serving import finish, start
from tests.tiers import others_nightly

COUNT = 30


def write(path: Path, task: str) -> Path:
    """Make up questions under exactly the published columns."""
    records = [
        {"qid": f"id{i}", "question": f"Who tends garden {i}?", "context": f"Garden {i} is tended.", "answers": ["x"]}
        for i in range(COUNT)
    ]
    if task == "counterfactual":
        choices = {"label": ["A", "B", "C", "D"], "text": ["an oak", "a yew", "an ash", "a fir"]}
        records = [
            {"id": one["qid"], "question": "Which tree?", "context": f"{one['context']} In it stands a yew.",
             "choices": choices, "answer": "a yew", "answerKey": "B", "num of options": 4}
            for one in records
        ]  # fmt: skip
    pl.DataFrame(records).write_parquet(path)
    return path


@pytest.mark.slow
@others_nightly("task", ["counterfactual", "unanswerable", "inconsistent"])
def test_a_task_asks_no_more_than_it_must_and_nothing_again(server, tmp_path, task):
    file = write(tmp_path / "test.parquet", task)
    arguments = ("--dataset", f"faitheval_{task}", "--data", str(file), "--grader", "exact", "--variants", "highest")
    out = tmp_path / "out"
    finish(start(server, "run", *arguments, "--out", str(out)))
    table = outcomes(out)
    assert table["question_id"].n_unique() == table.height == COUNT
    refused, no_gold = table["refused"], table["gold"].is_null()
    assert no_gold.all() == (task != "counterfactual")
    sent = Counter(entry["seed"] for entry in server.answered())
    assert len(sent) == COUNT + (refused & ~no_gold).sum(), "a forced answer only where one can be right"
    assert table.filter(no_gold)["wrong"].all()

    before = len(server.answered())
    finish(start(server, "run", *arguments, "--out", str(out)))
    assert len(server.answered()) == before
