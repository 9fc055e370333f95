"""`--grader-prompt` from end to end: what is sent, recorded, resumed and refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from refusal_index.protocol import default_grader_prompt
from tests.cli.making import outcomes, write_sums
from tests.models.fake_api import FakeApi, is_forced, question_of

PROMPT = """
gold = '''
{instruction}: <Q>{{question}}</Q> <Gold>{{gold}}</Gold> <Reply>{{prediction}}</Reply>'''
"""
OURS = "Grade this as A, B or C"
SUMS = ("--data", "q.csv", "--model", "openai-api/fake/any", "--variants", "low", "--max-retries", "0")
GRADED = ("--grader", "openai-api/fake/grader", "--grader-prompt", "grader.toml")


def between(message: str, mark: str) -> str:
    return message.split(f"<{mark}>", 1)[1].split(f"</{mark}>", 1)[0]


def script(message: str) -> str:
    """Answer right from the third question on, refuse the second, and grade by the own prompt only."""
    if message.startswith(OURS):
        reply = between(message, "Reply")
        return "C" if "know" in reply else "A" if reply == between(message, "Gold") else "B"
    if "<prediction>" in message:
        return "B"
    number = int(question_of(message).split()[2])
    if number == 2 and not is_forced(message):
        return "I do not know"
    return f"<answer>{2 * number if number > 2 else 'seven'}</answer>"


def write_prompt(instruction: str = OURS) -> None:
    Path("grader.toml").write_text(PROMPT.format(instruction=instruction))


@pytest.fixture
def ask(command, monkeypatch):
    write_sums("q.csv", 6)
    write_prompt()
    monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")
    monkeypatch.setenv("COLUMNS", "200")

    def run(api: FakeApi, *arguments: str):
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        return command(*arguments)

    return run


def run_json(folder: str) -> dict[str, Any]:
    return json.loads(Path(folder, "run.json").read_text())


def grades(folder: str) -> dict[str, int]:
    variant = json.loads(Path(folder, "summary.json").read_text())["variants"][0]
    return variant["counts"]


def test_end_to_end_every_grading_request_has_the_prompt_of_the_file(ask):
    with FakeApi(script) as api:
        result = ask(api, "run", *SUMS, *GRADED, "--out", "run")
        assert result.exit_code == 0, result.output
        gradings = [message for message in api.messages() if message.startswith(OURS)]
        sent = len(api.answered)
        assert not [message for message in api.messages() if "<prediction>" in message]
        assert [between(message, "Reply") for message in gradings[:3]] == ["Paris", "Berlin", "I don't know."]
        assert ask(api, "run", *SUMS, *GRADED, "--out", "run").exit_code == 0
        assert len(api.answered) == sent, "resumed"
    settings, about = run_json("run")["settings"], run_json("run")["about"]
    assert settings["grader"]["prompt_sha256"] not in (None, default_grader_prompt().hash)
    assert settings["grader"]["no_gold_prompt_sha256"] is None
    assert about["grader_prompt"]["gold"].startswith(OURS)
    assert about["grader_prompt"]["no_gold"] == default_grader_prompt().no_gold


def test_another_text_is_another_run_and_a_copy_is_not(ask):
    with FakeApi(script) as api:
        assert ask(api, "run", *SUMS, *GRADED, "--out", "run").exit_code == 0
        sent = len(api.answered)
        Path("copy.toml").write_text(Path("grader.toml").read_text() + "\n# a comment\n")
        assert ask(api, "run", *SUMS, *GRADED[:3], "copy.toml", "--out", "run").exit_code == 0
        write_prompt(f"{OURS} please")
        other = ask(api, "run", *SUMS, *GRADED, "--out", "run")
        assert len(api.answered) == sent
    assert other.exit_code == 2
    assert "grader.prompt_sha256" in other.stderr


def test_grader_that_does_not_follow_the_prompt_ends_the_run_before_a_question(ask):
    write_prompt("Say something about")
    with FakeApi(lambda message: "fine" if message.startswith("Say") else script(message)) as api:
        result = ask(api, "run", *SUMS, *GRADED, "--out", "run")
        assert len(api.answered) == 1
    assert result.exit_code == 2
    assert "expected the letter A for a plainly right answer" in result.stderr
    assert "or correct what grader.toml asks for" in " ".join(result.stderr.split())


@pytest.mark.parametrize("grader", ["exact", "python:tests.cli.some_pipeline:grade"])
def test_prompt_without_a_grading_model_is_an_error(ask, grader):
    with FakeApi(script) as api:
        result = ask(api, "run", *SUMS, "--grader", grader, "--grader-prompt", "grader.toml", "--out", "run")
        assert not api.answered
    assert result.exit_code == 2
    assert "--grader-prompt: has no effect" in result.stderr


def test_missing_file_is_an_error_before_anything_is_sent(ask):
    with FakeApi(script) as api:
        result = ask(api, "run", *SUMS, *GRADED[:3], "none.toml", "--out", "run")
        assert not api.answered
    assert result.exit_code == 2
    assert "none.toml: a grader's prompt cannot be read" in result.stderr


def test_regrade_and_force_take_the_prompt(ask):
    with FakeApi(script) as api:
        assert ask(api, "run", *SUMS, "--grader", "exact", "--out", "exact").exit_code == 0
        sent = len(api.answered)
        regraded = ask(api, "regrade", "exact", *GRADED, "--out", "model")
        assert regraded.exit_code == 0, regraded.output
        assert all(message.startswith(OURS) for message in api.messages()[sent:])
        sent = len(api.answered)
        own = ("--model", "openai-api/fake/any", *GRADED, "--out", "forced")
        forced = ask(api, "force", "exact/outcomes.parquet", *own)
        assert forced.exit_code == 0, forced.output
        assert len(api.messages()[sent:]) == 3 + 2
    for folder in ("model", "forced"):
        assert run_json(folder)["about"]["grader_prompt"]["gold"].startswith(OURS)
    assert "grader_prompt" not in run_json("exact")["about"]


def test_regrading_by_rule_records_no_prompt(ask):
    with FakeApi(script) as api:
        assert ask(api, "run", *SUMS, *GRADED, "--out", "model").exit_code == 0
        assert ask(api, "regrade", "model", "--grader", "exact", "--out", "exact").exit_code == 0
    assert run_json("exact")["settings"]["grader"]["prompt_sha256"] is None
    assert "grader_prompt" not in run_json("exact")["about"]


def test_configuration_sets_the_prompt_of_a_dataset(ask):
    models = '[[models]]\nmodel = "openai-api/fake/any"\n'
    datasets = '[[datasets]]\ndata = "q.csv"\ngrader = "openai-api/fake/grader"\ngrader_prompt = "grader.toml"\n'
    Path("set.toml").write_text(f"{models}{datasets}variants = 'low'\n")
    with FakeApi(script) as api:
        result = ask(api, "run", "--config", "set.toml", "--out", "set")
        assert result.exit_code == 0, result.output
        assert sum(message.startswith(OURS) for message in api.messages()) > 6
    (folder,) = (path.parent for path in Path("set").glob("*/run.json"))
    assert run_json(str(folder))["about"]["grader_prompt"]["gold"].startswith(OURS)


@pytest.mark.slow
def test_later_commands_take_the_prompt_from_the_folder(ask):
    """Its file may be gone: the text in ``run.json`` is used, whose hash identifies the run."""
    with FakeApi(script) as api:
        assert ask(api, "run", *SUMS, *GRADED, "--out", "run", "--max-requests", "6").exit_code == 1
        Path("grader.toml").rename("moved.toml")
        pending = ask(api, "requests", "run", "--out", "w.jsonl")
        assert pending.exit_code == 0, pending.output
        lines = "".join(path.read_text() for path in Path().glob("w*.jsonl"))
        assert f"{OURS}: <Q>" in lines
        assert "<prediction>" not in lines
        Path("moved.toml").rename("grader.toml")
        assert ask(api, "run", *SUMS, *GRADED, "--out", "run").exit_code == 0
        Path("grader.toml").unlink()
        sent = len(api.answered)
        scored = ask(api, "confidence", "run", "--method", "verbalised-number", "--max-retries", "0")
        assert scored.exit_code == 0, scored.output
        assert sum(message.startswith(OURS) for message in api.messages()[sent:]) == 5 + 6, "five more forced answers"
        assert "<prediction>" not in "".join(api.messages()[sent:])
        assert ask(api, "export", "run", "--to", "inspect", "--out", "log").exit_code == 0
    (log,) = Path("log").rglob("*.eval")
    with zipfile.ZipFile(log) as archive:
        samples = "".join(archive.read(name).decode() for name in archive.namelist() if name.startswith("samples/"))
    assert samples.count(f"{OURS}: <Q>") >= 6
    assert "<prediction>" not in samples


def test_damaged_record_of_the_prompt_is_an_error_with_the_folder(ask):
    with FakeApi(script) as api:
        assert ask(api, "run", *SUMS, *GRADED, "--out", "run").exit_code == 0
        document = run_json("run")
        for gold in ("<a>{question}</a><a>{gold}</a><a>{prediction}</a>", "{question.__class__}"):
            document["about"]["grader_prompt"]["gold"] = gold
            Path("run/run.json").write_text(json.dumps(document))
            result = ask(api, "requests", "run", "--out", "files")
            assert result.exit_code == 2, result.output
            assert "run" in result.stderr
            assert "grader_prompt" in result.stderr


CHOSEN = ["B", "D) a fir", "It is b", "a yew", "UNANSWERED"]


def choose(message: str) -> str:
    """Answer a question about a tree in different forms, and grade by the text of the right choice, as a model may."""
    if message.startswith(OURS):
        assert "\nA) an oak\nB) a yew\n" in message or "France" in message
        reply = between(message, "Reply")
        gold = between(message, "Gold").removeprefix("B) ")
        return "A" if gold in reply else "C" if "know" in reply else "B"
    return f"<answer>{CHOSEN[int(question_of(message).split('garden ')[1][0])]}</answer>"


def test_end_to_end_counterfactual_faitheval_is_graded_by_a_model_on_request(ask):
    choices = {"label": ["A", "B", "C", "D"], "text": ["an oak", "a yew", "an ash", "a fir"]}
    records = [
        {"id": f"t{number}", "question": f"What grows in garden {number}?", "context": "A yew grows in every garden.",
         "choices": choices, "answerKey": "B"}
        for number in range(len(CHOSEN))
    ]  # fmt: skip
    pl.DataFrame(records).write_parquet("trees.parquet")
    trees = ("--dataset", "faitheval_counterfactual", "--data", "trees.parquet", *SUMS[2:])
    with FakeApi(choose) as api:
        result = ask(api, "run", *trees, *GRADED, "--out", "run")
        assert result.exit_code == 0, result.output
        graded = [between(message, "Reply") for message in api.messages() if message.startswith(OURS)]
    assert sorted(graded[3:]) == sorted(["B) a yew", "D) a fir", "It is b\nB) a yew", "a yew"])
    table = outcomes("run").sort("question_id")
    assert table["first_grade"].to_list() == ["correct", "incorrect", "correct", "correct", "refused"]
    assert json.loads(Path("run/run.json").read_text())["settings"]["grader"]["name"] == "openai-api/fake/grader"


def test_prompts_shows_what_a_grader_is_asked(command):
    write_prompt()
    own = command("prompts", "grader.toml", "--grader", "--question", "Who wrote Persuasion?")
    assert f"{OURS}: <Q>Who wrote Persuasion?</Q> <Gold>{{gold}}</Gold> <Reply>{{prediction}}</Reply>" in own.stdout
    packaged = command("prompts", "--grader")
    assert default_grader_prompt().hash in packaged.stdout
    assert packaged.stdout.count("Who wrote the novel Emma?") == 2


def test_files_of_the_other_kind_are_named(command):
    write_prompt()
    wrong = command("prompts", "grader.toml")
    assert wrong.exit_code == 2
    assert "'refusal-index prompts grader.toml --grader' shows it" in " ".join(wrong.stderr.split())
    Path("set.toml").write_text("preamble = ''")
    wrong = command("prompts", "set.toml", "--grader")
    assert wrong.exit_code == 2
    assert "expected a grader's prompt, got a prompt set" in wrong.stderr
    assert command("prompts", "--grader", "--variants", "low").exit_code == 2
