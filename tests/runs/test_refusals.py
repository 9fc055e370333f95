"""Refusals in words, end to end: what a run counts, what `--refusal` changes and which runs cannot be compared."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import refusal_index as ri
from refusal_index.data import Grade, Question
from refusal_index.data.imports import ReadOptions
from refusal_index.data.run_json import refusal_setting
from refusal_index.findings.imported import reading_statements
from refusal_index.models.calls import FunctionError
from refusal_index.models.settings import SettingError
from refusal_index.protocol import same_answer
from refusal_index.render.sentences import sentence
from refusal_index.runs.execute import execute
from refusal_index.runs.graders import refusals_of
from refusal_index.runs.rebuild import rebuild
from refusal_index.runs.reuse import import_file, prepare_regrade
from refusal_index.runs.settings import Settings

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


def finds(reply: str) -> np.bool_:
    return np.bool_(declines(reply))


def never(question: str, *, must_answer: bool = False) -> str:
    raise AssertionError


def is_right(question: Question, answer: str) -> bool:
    return same_answer(question.gold, answer)


@pytest.fixture(autouse=True)
def run_in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def evaluated(out: str, **settings) -> ri.RunResults:
    return ri.evaluate(answer, ROWS, out=out, **{**LOCAL, **settings})


def refusals(run: ri.RunResults) -> dict[str, int]:
    return json.loads(run.folder.summary.read_text())["variants"][0]["replies"]["refusals"]


def codes(run: ri.RunResults) -> list[str]:
    return [caveat.code for caveat in run.summary.variants[0].caveats]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refusal", "counts"),
    [
        ("wording", {"tag": 5, "wording": 20}),
        ("tag", {"tag": 5}),
        ("+cannot FIND", {"phrase": 20, "tag": 5}),
        (re.compile("cannot find"), {"phrase": 20, "tag": 5}),
        (re.compile("no comment"), {"tag": 5, "wording": 20}),
        (declines, {"function": 20, "tag": 5}),
    ],
    ids=["wording", "tag", "pattern", "compiled", "other pattern", "function"],
)
def test_run_counts_how_refusals_were_recognised(refusal, counts):
    run = evaluated("run", refusal=refusal)
    assert refusals(run) == counts
    assert run.summary.variants[0].table.n_refused == sum(counts.values())
    function = "python:tests.runs.test_refusals:declines" if "function" in counts else None
    assert refusals(rebuild(Path("run"), refusal=function)) == counts
    assert dict(ri.open_run("run").summary.variants[0].replies.refusals) == counts
    readings = run.outcomes["reading"].value_counts().rows()
    assert dict(readings) == {**counts, "answer": len(ROWS) - sum(counts.values())}


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ("+(", r"expected 'wording', 'tag', \+REGEX"),
        ("cannot find", r"write it as '\+cannot find'"),
        ("+", r"'\+' must be followed by a regular expression"),
        ("+ ", r"'\+' must be followed by a regular expression"),
        ("@", "'@' must be followed by the name of a file"),
        ("@.", "'@' must be followed by the name of a file"),
        ("@missing.txt", r"missing\.txt cannot be used"),
        ("@empty.txt", "it holds no regular expression"),
        ("@wrong.txt", "line 2"),
    ],
)
def test_invalid_refusal_raises_before_any_request(refusal, message):
    Path("empty.txt").write_text("# nothing\n")
    Path("wrong.txt").write_text("no comment\n(\n")
    with pytest.raises(SettingError, match=rf"refusal.*{message}"):
        ri.evaluate(never, ROWS, out="run", **LOCAL, refusal=refusal)


@pytest.mark.parametrize("grader", ["mockllm/model", "mockllm/model,mockllm/other"])
@pytest.mark.parametrize("refusal", ["wording", "tag", "+no comment", "model:mockllm/model"])
def test_refusal_beside_a_grading_model_has_no_effect_and_is_an_error(grader, refusal):
    with pytest.raises(SettingError, match="refusal: has no effect, because mockllm/model decides"):
        ri.evaluate(never, ROWS, out="run", variants="normal", grader=grader, refusal=refusal)


def test_model_that_recognises_refusals_needs_a_rule_as_the_grader():
    with pytest.raises(SettingError, match=r"refusal: 'model:mockllm/model' expects a rule as grader"):
        ri.evaluate(never, ROWS, out="run", variants="normal", grader=is_right, refusal="model:mockllm/model")


def test_import_asks_no_model():
    Path("graded.csv").write_text("question,answer,prediction,grade\nWho?,Ann,Bob,incorrect\n")
    with pytest.raises(SettingError, match="an import asks no model"):
        import_file(Path("graded.csv"), None, ReadOptions(refusal="model:mockllm/model"))


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
    assert refusals(anew)["function"] > 0


NEW_PROCESS = """
import sys
from pathlib import Path
import refusal_index as ri
from refusal_index.runs.rebuild import rebuild
named = sys.argv[1] or None
if sys.argv[2] == "score":
    print(rebuild(Path("run"), refusal=named).summary.variants[0].table.n_refused)
else:
    print(ri.confidence_scores("run", "likelihood", refusal=named)["method"].unique().to_list())
"""


def in_a_new_process(refusal: str, command: str) -> tuple[int, str]:
    line = [sys.executable, "-c", NEW_PROCESS, refusal, command]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    last = (done.stdout or done.stderr).strip().splitlines()[-1]
    return done.returncode, last


@pytest.mark.slow
@pytest.mark.parametrize(("command", "printed"), [("score", "10"), ("confidence", "['likelihood']")])
def test_function_that_a_folder_names_runs_in_a_new_process_only_if_the_user_names_it_too(command, printed):
    source = Path("recogniser.py")
    source.write_text("from pathlib import Path\nPath('imported').touch()\ndef all_refuse(reply):\n    return True\n")
    name = "python:recogniser:all_refuse"
    settings = {"limit": 10, "variants": "high", "logprobs": True, "out": "run", "refusal": name}
    ri.evaluate("almanac/small", **settings)
    sys.modules.pop("recogniser")
    Path("imported").unlink()
    assert in_a_new_process(name, command) == (0, printed)
    Path("imported").unlink()
    status, told = in_a_new_process("", command)
    assert (status, Path("imported").exists()) == (1, False)
    assert f"recognised by the function {name}, which only runs if you name it" in told
    status, told = in_a_new_process("python:elsewhere:declines", command)
    assert (status, Path("imported").exists()) == (1, False)
    assert f"refusal: expected that of the run, '{name}', got 'python:elsewhere:declines'; leave it out" in told
    source.unlink()
    status, told = in_a_new_process(name, command)
    assert status == 1
    assert f"refusal '{name}': recogniser cannot be imported (ModuleNotFoundError" in told


def test_two_functions_of_one_name_in_one_process_do_not_mix():
    by_object = {"python:mine:declines": lambda reply: reply == "A"}
    settings = Settings.from_values(refusal="python:mine:declines")
    first = refusals_of(settings, by_object)
    second = refusals_of(settings, {"python:mine:declines": lambda reply: reply == "B"})
    assert (first.function("A"), second.function("A"), second.function("B")) == (True, False, True)


@pytest.mark.parametrize(("function", "returned"), [(str.lower, ""), (len, "58"), (print, "None")])
def test_refusal_function_must_return_a_bool(function, returned):
    with pytest.raises(FunctionError, match=rf"returned {returned}.* for the reply .*, expected True or False"):
        refusals_of(Settings.from_values(refusal="python:mine:declines"), {"python:mine:declines": function}).function(
            IN_WORDS
        )


def test_refusal_function_may_return_a_bool_of_numpy():
    assert refusals(evaluated("run", refusal=finds))["function"] == 20


def test_empty_reasoning_is_an_error():
    with pytest.raises(SettingError, match="reasoning: '' cannot be used: it is empty"):
        ri.evaluate(never, ROWS, out="run", **LOCAL, reasoning="")


def test_repeated_opening_sentence_of_wrong_answers_is_quoted():
    (found,) = [
        caveat
        for caveat in evaluated("run", refusal="tag").summary.variants[0].caveats
        if caveat.code == "repeated_sentence"
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


def test_functions_as_graders_get_answers_only_and_may_refuse_themselves():
    seen = []

    def grade(question: Question, reply: str) -> bool | str:
        seen.append(reply)
        return "refused" if reply == "seven" else is_right(question, reply)

    run = ri.evaluate(answer, ROWS, out="run", variants="normal", grader=grade, grader_name="own")
    assert refusals(run) == {"grader": 5, "tag": 5, "wording": 20}
    assert IN_WORDS not in seen
    assert run.summary.variants[0].table.n_refused == 30
    assert run.folder.read_settings()["grader"]["refusal"] == "wording"


def test_reading_does_not_depend_on_the_right_answers():
    hedged = "I'm not sure, but it may be {}."
    rows = [{"question": f"What is {n} plus {n}?", "answer": str(2 * n if n % 2 else 99)} for n in range(30)]

    def hedging(question: str, *, must_answer: bool = False) -> str:
        return hedged.format(2 * int(question.split()[2]))

    run = ri.evaluate(hedging, rows, model_name="hedging", out="run", grader="includes", variants="normal")
    table = run.summary.variants[0].table
    assert (table.n_refused, table.answered_wrong, table.answered_right) == (0, 15, 15)
    assert run.refusal_index().reason == "nobody_refused"


def test_older_run_keeps_the_tag_setting_when_regraded():
    run = evaluated("run")
    settings = run.folder.read_settings()
    grader = {name: value for name, value in settings["grader"].items() if name != "refusal"}
    run.folder.change_settings({"grader": grader, "comparability_version": settings["comparability_version"] - 1})
    assert refusal_setting(run.folder.read_settings()) == "tag"
    anew = rebuild(Path("run"), regrade=True)
    assert refusals(anew) == {"tag": 5}
    assert anew.folder.read_settings()["grader"]["refusal"] == "tag"


def test_model_graders_have_no_refusal_setting():
    assert refusal_setting({"grader": {"name": "openai/gpt-4.1"}}) is None
    assert refusal_setting({"grader": {"name": "python:mine:grade"}}) is None, "as in runs of earlier versions"
    assert refusal_setting({"grader": {"name": "python:mine:grade", "refusal": "wording"}}) == "wording"
    assert refusal_setting({}) == "tag"


@pytest.mark.parametrize(
    ("refusal", "refused"),
    [
        (None, ["<answer>UNANSWERED</answer>"]),
        ("wording", ["Not mentioned in the text.", "<answer>UNANSWERED</answer>"]),
        ("tag", ["<answer>UNANSWERED</answer>"]),
        ("+no tag", ["Not mentioned in the text.", "<answer>UNANSWERED</answer>", "No tag."]),
        ("@phrases.txt", ["Not mentioned in the text.", "<answer>UNANSWERED</answer>", "No tag."]),
        ("python:recogniser:names_nobody", ["Not mentioned in the text.", "<answer>UNANSWERED</answer>", "No tag."]),
    ],
)
def test_refusals_are_recognised_in_imported_files_whatever_their_grade(refusal, refused):
    rows = [
        ("Not mentioned in the text.", "incorrect"),
        ("<answer>UNANSWERED</answer>", "incorrect"),
        ("Bob", "incorrect"),
        ("No tag.", "correct"),
    ]
    Path("phrases.txt").write_text("# ours\nno tag\n")
    Path("recogniser.py").write_text("def names_nobody(reply):\n    return 'Bob' not in reply\n")
    with Path("graded.jsonl").open("w") as file:
        for number, (reply, grade) in enumerate(rows):
            row = {"question": f"Who is {number}?", "answer": "Ann", "prediction": reply, "grade": grade}
            file.write(json.dumps(row) + "\n")
    read = import_file(Path("graded.jsonl"), None, ReadOptions(refusal=refusal)).read
    assert [one.reply for one in read.passes if one.grade is Grade.REFUSED] == refused
    overruled = Counter(grade for reply, grade in rows if reply in refused)
    assert read.overruled == overruled
    sentences = [sentence(statement) for statement in reading_statements(read) if statement.code == "overruled_grades"]
    if overruled == {"correct": 1, "incorrect": 2}:
        assert sentences == ["3 graded answers are read as refusals: 1 correct, 2 incorrect."]
    assert bool(sentences) == bool(refused)
