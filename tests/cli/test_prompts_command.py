"""`prompts` shows a set as it is asked, says what tells its variants apart, and explains what cannot be used."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from refusal_index.protocol import FORCED, load_prompt_set, prompt_set_names

SET = """
name = "mine \\u001b[31m"
preamble = "{examples}\\n\\n{instruction}"
question = "Q: {question}"
example = "{number}. {question} {answer}"
[variants.plain]
instruction = "Answer.\\nOr do not."
unanswered = []
[forced]
instruction = "Answer!"
unanswered = []
[[examples]]
question = "1 + 1?"
answer = "2 \\u001b[2J"
"""


def test_without_a_name_the_sets_of_the_package_are_listed(command):
    lines = command("prompts").stdout.splitlines()
    assert [line.split()[0] for line in lines] == prompt_set_names()
    for line, name in zip(lines, prompt_set_names(), strict=True):
        prompts = load_prompt_set(name)
        assert prompts.hash[:12] in line
        assert line.endswith(", ".join(prompts.variants))


def test_every_variant_is_shown_as_it_is_asked(command):
    said = command("prompts", "default", "--question", "Who wrote Persuasion?").stdout
    prompts = load_prompt_set("default")
    assert prompts.hash in said
    for name in (*prompts.variants, FORCED):
        assert f"---- {name} ---" in said
        assert "\n\n".join(prompts.render(name, "Who wrote Persuasion?")) in said


def test_what_tells_variants_apart_comes_first(command):
    head = command("prompts", "paraphrases").stdout.partition("----")[0]
    for line in (
        *("7 prompts and the forced pass; 10 worked examples", "low: 0 of 10 examples refuse\n"),
        *("highest: 6 of 10 examples refuse\n", "normal-2: 1 of 10 examples refuse; a paraphrase of normal\n"),
    ):
        assert line in head


def test_one_variant_alone(command):
    said = command("prompts", "default", "--variants", "forced").stdout
    assert said.count("\n---- ") == 1
    assert said.rstrip().endswith("Question: Who wrote the novel Emma?")
    wrong = command("prompts", "default", "--variants", "forcd")
    assert (wrong.exit_code, "did you mean 'forced'" in wrong.stderr) == (2, True)


def test_a_file_is_shown_without_the_terminal_obeying_it(command):
    Path("mine.toml").write_text(SET)
    result = command("prompts", "mine.toml")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "  Answer.\n  Or do not.\n" in result.stdout
    assert "1. 1 + 1? 2 \\x1b[2J" in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[forced]", "[force]", ["mine.toml", "'forced' must be a table"]),
        ("Q: {question}", "Q:", ["mine.toml", "template 'question'"]),
        ("unanswered = []", "unanswered = [4]", ["variants.plain", "from 1 to 1"]),
    ],
)
def test_errors_are_those_of_the_loader(command, old, new, expected):
    Path("mine.toml").write_text(SET.replace(old, new, 1))
    result = command("prompts", "mine.toml")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert all(part in result.stderr for part in expected)


@pytest.mark.parametrize("arguments", [["prompts"], ["validate", "q.csv", "--prompts"], ["run", "--prompts"]])
def test_a_configuration_is_told_from_a_prompt_set_with_the_command_that_takes_it(command, arguments):
    Path("q.csv").write_text("question,answer\nWho?,I\n")
    Path("models.toml").write_bytes(
        (resources.files("refusal_index") / "configs" / "paper" / "gpt-4.1.toml").read_bytes()
    )
    result = command(*arguments, "models.toml")
    assert result.exit_code == 2
    assert "models.toml: expected a prompt set, got a configuration" in result.stderr
    assert "'refusal-index run --config models.toml'" in result.stderr


def test_a_prompt_set_is_told_from_a_configuration_with_what_takes_it(command):
    Path("mine.toml").write_text(SET)
    result = command("run", "--config", "mine.toml")
    assert result.exit_code == 2
    assert "mine.toml: expected a configuration of models and datasets, got a prompt set" in result.stderr
    assert "'refusal-index prompts mine.toml'" in result.stderr
    assert "--prompts mine.toml" in result.stderr
