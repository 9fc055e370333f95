"""`validate` and `prompts`: questions and prompt sets before a run."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.cli.inputs import MAX_PROBLEMS
from refusal_index.protocol import FORCED, load_prompt_set, prompt_set_names
from tests.cli.making import PIPELINE

# --- Validate


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["validate", *arguments], catch_exceptions=False)


def write(path: Path, records: list[dict]) -> str:
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return str(path)


RECORDS = [
    {"q": "Who was it?", "answer": "B", "choices": ["Ann", "Bob"], "context": "Bob was it.", "topic": "people"},
    {"q": "Who was it?", "answer": "B", "choices": ["Ann", "Bob"], "context": "Bob was it.", "topic": "people"},
    {"q": "When?", "answer": "1804", "aliases": ["in 1804"], "pattern": "(in )?1804", "topic": "dates"},
    {"q": "Where?", "answer": "", "answerable": False, "context": "x" * 5000},
]


@pytest.mark.parametrize("key", ["hush.hush <&> key 1", "hf_" + "a1" * 20, "github_pat_" + "b" * 40])
def test_key_in_a_question_is_named_by_row_and_not_shown(command, key, monkeypatch):
    """A key in the user's own questions was sent and stored without a warning."""
    monkeypatch.setenv("SOME_API_KEY", "hush.hush <&> key 1")
    rows = [{"question": f"Is the task-based risk-free sk-{n}?", "answer": "?token=12345678"} for n in range(3)]
    rows += [{"question": f"Who {did} {key}?", "answer": "Ann"} for did in ("wrote", "read")]
    path = write(Path("q.jsonl"), rows)
    asks = ("run", "--dry-run", *PIPELINE, "--data", path, "--grader", "exact")
    for words in (("validate", path), asks):
        done = command(*words)
        assert done.exit_code == 0, done.output
        assert done.output.count("q.jsonl, line 4 holds an API key, or text that looks like one") == 1
        assert "line 5" not in done.output
        assert key not in done.output
    write(Path(path), rows[:3])
    assert "holds an API key" not in command("validate", path).output


@pytest.mark.parametrize("gold", ["unanswerable", "Not enough information", "I don't know"])
def test_gold_answer_that_declines_is_named_by_row(command, gold):
    rows = [{"question": "Who?", "answer": "Ann"}, {"question": "When?", "answer": gold}]
    rows += [
        {"question": "Which?", "answer": gold, "choices": ["yes", gold]},
        {"question": "How?", "answerable": False},
    ]
    path = write(Path("q.jsonl"), with_flags(rows))
    for words in (("validate", path), ("run", "--dry-run", *PIPELINE, "--data", path, "--grader", "exact")):
        done = command(*words)
        assert done.exit_code == 0, done.output
        assert done.output.count("2 gold answers decline to answer") == 1
        assert "has no right answer" in done.output
    assert "q.jsonl, line 2" in command("validate", path).output
    write(Path(path), with_flags([rows[0], rows[3]]))
    assert "decline" not in command("validate", path).output


def with_flags(records: list[dict]) -> list[dict]:
    return [{"answerable": True, **record} for record in records]


def test_valid_file_is_summarised_with_its_first_prompt(tmp_path):
    result = run(write(tmp_path / "q.jsonl", with_flags(RECORDS)), "--column", "question=q", "--variants", "high")
    assert result.exit_code == 0, result.stderr
    output = result.stdout
    assert "4 questions, question in 'q', answer in 'answer'" in output
    for line in (
        *("3 with a context", "2 with choices", "1 with aliases", "1 with a pattern", "1 without a right answer"),
        *("2 topics, most often people (2), dates (1)", "longest context: 5,000 characters", "1 asked more than once"),
    ):
        assert f"  {line}" in output
    assert "with the prompt 'high'" in output
    assert "  Question: Who was it?" in output
    assert "  Bob was it." in output
    assert output.rstrip().endswith("A) Ann\n  B) Bob")
    assert "write <answer>UNANSWERED</answer>" in output


def test_longest_prompt_covers_all_questions_and_variants(tmp_path):
    output = run(write(tmp_path / "q.jsonl", with_flags(RECORDS)), "--column", "question=q").stdout
    (line,) = [line for line in output.splitlines() if "longest prompt" in line]
    characters = int(line.split(": ")[1].split()[0].replace(",", ""))
    assert characters > 5_000 + 1_000
    assert f"about {characters // 4:,} tokens" in line


def test_a_plain_file_has_a_short_summary(tmp_path):
    output = run(write(tmp_path / "q.jsonl", [{"question": "Who?", "answer": "Ann"}])).stdout
    assert "1 questions" in output
    assert "context" not in output.partition("the first question")[0]
    assert "0 asked more than once" in output


def test_the_same_question_with_another_gold_answer_is_named_with_its_line(tmp_path):
    records = [{"question": "Who?", "answer": answer} for answer in ("Ann", "Ann", "Bob")]
    output = run(write(tmp_path / "q.jsonl", records)).stdout
    assert "  2 asked more than once in the same words\n  1 of them with another gold answer (first: " in output
    assert "q.jsonl, line 3): check which is right" in output


def test_every_problem_is_listed_with_its_line_and_the_status_is_2(tmp_path):
    bad = [
        {"question": "a", "answer": "Z", "choices": ["A", "B"]},
        {"question": "", "answer": "A"},
        {"question": "c", "answer": "C"},
        {"question": "d", "answer": "", "aliases": 3},
    ]
    result = run(write(tmp_path / "q.jsonl", bad))
    assert result.exit_code == 2
    assert not result.stdout
    lines = result.stderr.splitlines()
    assert [line.partition(" line ")[2].partition(",")[0] for line in lines] == ["1", "2", "4", "4"]
    assert all(line.startswith("error: ") for line in lines)


def test_a_file_full_of_problems_does_not_fill_the_screen(tmp_path):
    result = run(write(tmp_path / "q.jsonl", [{"question": "a", "answer": "A", "aliases": 3}] * 50))
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len(lines) == MAX_PROBLEMS + 1
    assert lines[-1] == "and 30 more; fix these first"


def test_prompt_longer_than_the_context_is_a_problem(tmp_path):
    path = write(tmp_path / "q.jsonl", with_flags(RECORDS))
    assert run(path, "--column", "question=q", "--max-context-tokens", "8000").exit_code == 0
    result = run(path, "--column", "question=q", "--max-context-tokens", "1000")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "at most 1,000 tokens, got about" in line
    assert "shorten its context" in line


def test_too_long_prompt_is_named_by_line_and_by_own_id(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text(f'question,answer,context\n"Who\nwas it?",Ann,short\n\nWhen?,1804,{"x" * 5000}\n')
    (line,) = run(str(path), "--max-context-tokens", "1000").stderr.splitlines()
    assert line.startswith(f"error: {path}, line 5: expected a prompt of at most 1,000 tokens")
    records = [{"id": "a7", "question": "When?", "answer": "1804", "context": "x" * 5000}]
    (line,) = run(write(tmp_path / "q.jsonl", records), "--max-context-tokens", "1000").stderr.splitlines()
    assert "q.jsonl, line 1: question_id 'a7': expected a prompt" in line


def test_text_of_the_file_cannot_move_the_cursor(tmp_path):
    path = write(tmp_path / "q.jsonl", [{"question": "Who?\u001b[2J", "answer": "Ann", "topic": "\u202ex"}])
    output = run(path).stdout
    assert "\u001b" not in output
    assert "\u202e" not in output
    assert "Who?\\x1b[2J" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["absent.csv"], ["absent.csv", "cannot be read"]),
        (["{file}", "--column", "question"], ["ROLE=NAME", "'question'"]),
        (["{file}", "--column", "qestion=q"], ["'qestion'", "did you mean 'question'"]),
        (["{file}", "--column", "context=passages"], ["'passages'", "context"]),
        (["{file}", "--variants", "hihg"], ["--variants", "did you mean 'high'"]),
        (["{file}", "--prompts", "defualt"], ["defualt", "default"]),
    ],
)
def test_bad_arguments_get_one_clear_line(tmp_path, arguments, expected):
    file = write(tmp_path / "q.jsonl", [{"question": "Who?", "answer": "Ann"}])
    result = run(*(argument.format(file=file) for argument in arguments))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert all(part in result.stderr for part in expected), result.stderr


# --- Prompts

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


def test_prompts_without_a_name_lists_packaged_sets(command):
    lines = command("prompts").stdout.splitlines()
    assert [line.split()[0] for line in lines] == prompt_set_names()
    for line, name in zip(lines, prompt_set_names(), strict=True):
        prompts = load_prompt_set(name)
        assert prompts.hash[:12] in line
        assert line.endswith(", ".join(prompts.variants))


def test_every_variant_is_shown_as_sent(command):
    output = command("prompts", "default", "--question", "Who wrote Persuasion?").stdout
    prompts = load_prompt_set("default")
    assert prompts.hash in output
    for name in (*prompts.variants, FORCED):
        assert f"---- {name} ---" in output
        assert "\n\n".join(prompts.render(name, "Who wrote Persuasion?")) in output


def test_differences_between_variants_come_first(command):
    head = command("prompts", "paraphrases").stdout.partition("----")[0]
    for line in (
        *("7 prompts and the forced pass; 10 worked examples", "low: 0 of 10 examples refuse\n"),
        *("highest: 6 of 10 examples refuse\n", "normal-2: 1 of 10 examples refuse; a paraphrase of normal\n"),
    ):
        assert line in head


def test_variants_option_shows_one_variant(command):
    output = command("prompts", "default", "--variants", "forced").stdout
    assert output.count("\n---- ") == 1
    assert output.rstrip().endswith("Question: Who wrote the novel Emma?")
    wrong = command("prompts", "default", "--variants", "forcd")
    assert (wrong.exit_code, "did you mean 'forced'" in wrong.stderr) == (2, True)


def test_prompt_file_is_shown_with_control_characters_escaped(command):
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
def test_prompt_errors_match_the_loader(command, old, new, expected):
    Path("mine.toml").write_text(SET.replace(old, new, 1))
    result = command("prompts", "mine.toml")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert all(part in result.stderr for part in expected)


@pytest.mark.parametrize("arguments", [["prompts"], ["validate", "q.csv", "--prompts"], ["run", "--prompts"]])
def test_configuration_given_as_prompt_set_names_the_right_command(command, arguments):
    Path("q.csv").write_text("question,answer\nWho?,I\n")
    Path("models.toml").write_bytes(
        (resources.files("refusal_index") / "configs" / "paper" / "gpt-4.1.toml").read_bytes()
    )
    result = command(*arguments, "models.toml")
    assert result.exit_code == 2
    assert "models.toml: expected a prompt set, got a configuration" in result.stderr
    assert "'refusal-index run --config models.toml'" in result.stderr


def test_prompt_set_given_as_configuration_names_the_right_command(command):
    Path("mine.toml").write_text(SET)
    result = command("run", "--config", "mine.toml")
    assert result.exit_code == 2
    assert "mine.toml: expected a configuration of models and datasets, got a prompt set" in result.stderr
    assert "'refusal-index prompts mine.toml'" in result.stderr
    assert "--prompts mine.toml" in result.stderr
