"""Refusals in words, end to end: what a run counts, what `--refusal` changes and which runs cannot be compared."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

import refusal_index as ri
from refusal_index.data import Grade
from refusal_index.data.imports import ReadOptions
from refusal_index.data.run_json import refusal_setting
from refusal_index.models.functions import FunctionError
from refusal_index.models.settings import SettingError
from refusal_index.runs.execute import execute
from refusal_index.runs.reuse import import_file, prepare_regrade
from refusal_index.runs.settings import Settings
from refusal_index.runs.writing import rebuild

ROWS = [{"question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(40)]
IN_WORDS = "I'm sorry, but I cannot find that in the provided context."
LOCAL = {"grader": "exact", "variants": "normal"}


def answer(messages):
    """Refuse in words below 20 and by the tag below 25; answer wrongly below 30 and correctly above."""
    asked = messages[-1]["content"]
    number = int(re.findall(r"What is (\d+) plus", asked)[-1])
    if "leaving" not in asked and "UNANSWERED" not in asked:
        return f"<answer>{2 * number if number % 3 else 'nine'}</answer>"
    if number < 20:
        return IN_WORDS
    if number < 25:
        return "<answer>UNANSWERED</answer>"
    return f"<answer>{2 * number if number >= 30 else 'seven'}</answer>"


def declines(reply: str) -> bool:
    return "cannot find" in reply


@pytest.fixture(autouse=True)
def run_in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def evaluated(out: str, **settings) -> ri.Run:
    return ri.evaluate(answer, ROWS, out=out, **{**LOCAL, **settings})


def refusals(run: ri.Run) -> dict[str, int]:
    return json.loads(run.folder.summary.read_text())["variants"][0]["refusals"]


def codes(run: ri.Run) -> list[str]:
    return [one.code for one in run.summary.variants[0].warnings]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refusal", "counts"),
    [
        ("wording", {"tag": 5, "wording": 20, "choice": 0}),
        ("tag", {"tag": 5, "wording": 0, "choice": 0}),
        ("cannot FIND", {"tag": 5, "wording": 20, "choice": 0}),
        (re.compile("no comment"), {"tag": 5, "wording": 0, "choice": 0}),
        (declines, {"tag": 5, "wording": 20, "choice": 0}),
    ],
    ids=["wording", "tag", "pattern", "compiled", "function"],
)
def test_run_counts_how_refusals_were_recognised(refusal, counts):
    run = evaluated("run", refusal=refusal)
    assert refusals(run) == counts
    assert run.summary.variants[0].table.n_refused == sum(counts.values())
    assert refusals(rebuild(Path("run"))) == counts
    assert dict(ri.open_run("run").summary.variants[0].refusals) == counts


def test_invalid_refusal_pattern_raises_before_any_request():
    with pytest.raises(SettingError, match=r"refusal.*expected 'wording', 'tag', a regular expression"):
        evaluated("run", refusal="(")


def test_raising_refusal_function_ends_the_run_and_can_be_regraded(monkeypatch):
    source = Path("raising.py")
    source.write_text("def declines(reply):\n    return reply.index('cannot find') >= 0\n")
    with pytest.raises(FunctionError, match=r"python:raising:declines raised ValueError .* 'refusal-index regrade'"):
        evaluated("run", refusal="python:raising:declines")
    monkeypatch.delitem(sys.modules, "raising")
    source.write_text("def declines(reply):\n    corrected = 'cannot find' in reply\n    return corrected\n")
    settings = Settings.from_values(grader="exact", refusal="python:raising:declines")
    anew = asyncio.run(execute(prepare_regrade(Path("run"), settings, out=Path("anew"))))
    assert anew.summary.variants[0].usage.requests == 0
    assert refusals(anew)["wording"] > 0


def test_repeated_opening_sentence_of_wrong_answers_is_quoted():
    (found,) = [
        one for one in evaluated("run", refusal="tag").summary.variants[0].warnings if one.code == "repeated_sentence"
    ]
    assert dict(found.values) == {"sentence": IN_WORDS, "count": 20, "wrong": 25}
    assert "repeated_sentence" not in codes(evaluated("words"))


def test_run_without_refusals_gets_a_warning():
    run = ri.evaluate(lambda messages: "<answer>4</answer>", ROWS, model_name="four", out="run", **LOCAL)
    assert "no_refusals_found" in codes(run)
    assert "no_refusals_found" not in codes(evaluated("other"))


def test_runs_that_recognise_refusals_in_different_ways_are_not_compared():
    first, second = evaluated("words"), evaluated("tag", refusal="tag")
    for compared in (ri.compare, lambda one, other: ri.gate(one, baseline=other)):
        with pytest.raises(ri.RefusalIndexError, match="refusals are recognised in the same way"):
            compared(first, second)


def test_older_run_keeps_the_tag_setting_when_regraded():
    run = evaluated("run")
    settings = run.folder.read_settings()
    grader = {name: value for name, value in settings["grader"].items() if name != "refusal"}
    run.folder.change_settings({"grader": grader, "comparability_version": settings["comparability_version"] - 1})
    assert refusal_setting(run.folder.read_settings()) == "tag"
    anew = rebuild(Path("run"), regrade=True)
    assert refusals(anew) == {"tag": 5, "wording": 0, "choice": 0}
    assert anew.folder.read_settings()["grader"]["refusal"] == "tag"


def test_model_graders_have_no_refusal_setting():
    assert refusal_setting({"grader": {"name": "openai/gpt-4.1"}}) is None
    assert refusal_setting({"grader": {"name": "python:mine:grade"}}) is None
    assert refusal_setting({}) == "tag"


@pytest.mark.parametrize(
    ("refusal", "refused"),
    [
        (None, []),
        ("wording", ["Not mentioned in the text.", "<answer>UNANSWERED</answer>"]),
        ("tag", ["<answer>UNANSWERED</answer>"]),
        ("in the text", ["Not mentioned in the text."]),
        ("python:recogniser:names_nobody", ["Not mentioned in the text.", "<answer>UNANSWERED</answer>"]),
    ],
)
def test_refusals_are_recognised_in_imported_files(refusal, refused):
    rows = [
        ("Not mentioned in the text.", "incorrect"),
        ("<answer>UNANSWERED</answer>", "incorrect"),
        ("Bob", "incorrect"),
        ("No tag.", "correct"),
    ]
    Path("recogniser.py").write_text("def names_nobody(reply):\n    return 'Bob' not in reply\n")
    with Path("graded.jsonl").open("w") as file:
        for number, (reply, grade) in enumerate(rows):
            row = {"question": f"Who is {number}?", "answer": "Ann", "prediction": reply, "grade": grade}
            file.write(json.dumps(row) + "\n")
    passes = import_file(Path("graded.jsonl"), None, ReadOptions(refusal=refusal)).passes
    assert [one.reply for one in passes if one.grade is Grade.REFUSED] == refused
