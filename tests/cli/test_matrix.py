"""`run --config`: each model on each dataset, by single requests, over HTTP and in batches."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from aiohttp import web

from refusal_index.data.datasets import load_dataset
from refusal_index.data.files import locked
from refusal_index.data.folder import RunFolder
from refusal_index.findings.run_results import read_runs
from refusal_index.plugins.almanac.models import MODEL_NAMES
from tests.cli.making import outcomes, write_sums
from tests.cli.serving import finish, kill_once, start
from tests.faults.almanac import BatchFaults
from tests.models.batches.batch_server import almanac
from tests.models.fake_api import FakeApi, is_grading, question_of

# --- `run --config`

AT = 'api_key_env = "FAKE_API_KEY"\nbase_url ='
CONFIG = f"""
[defaults]
variants = "low,high"
grader = "exact"
max_retries = 0
attempt_timeout = 5
max_connections = 20
temperature = 0.5
[[models]]
model = "one"
{AT} "URL"
[[models]]
name = "Two"
model = "two"
{AT} "URL"
temperature = 1
price = "1000,1000"
[[datasets]]
data = "sums.csv"
[[datasets]]
name = "more"
data = "more.csv"
limit = 6
"""


def answer(message: str) -> str:
    """Refuse every third question, and answer every other one correctly."""
    if is_grading(message):
        return "A"
    number = int(question_of(message).split()[2])
    refuses = number % 3 == 0 and "leaving the question open" not in message
    return f"<answer>{'UNANSWERED' if refuses else 2 * number if number % 2 else 'none'}</answer>"


@pytest.fixture
def run(command, monkeypatch):
    """Return a function that runs the configuration above, with some text replaced, against a server."""
    write_sums("sums.csv", 8, "sums")
    write_sums("more.csv", 9, "more")
    monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")
    monkeypatch.setenv("COLUMNS", "200")

    def with_text(api: FakeApi | None, *arguments: str, old: str = "", new: str = ""):
        assert old in CONFIG
        text = CONFIG.replace(old, new, 1)
        Path("set.toml").write_text(text.replace("URL", api.url if api else "http://127.0.0.1:9/v1"))
        return command("run", "--config", "set.toml", *arguments)

    return with_text


def summary(folder: str = "runs/set") -> dict:
    return json.loads(Path(folder, "summary.json").read_text())


@pytest.mark.slow
def test_every_model_answers_every_dataset_into_one_summary(run):
    with FakeApi(answer) as api:
        result = run(api)
        assert result.exit_code == 0, result.stderr
        sent = len(api.answered)
        assert sent == 2 * (2 * 8 + 3) + 2 * (2 * 6 + forced_of("more"))
        assert {(body["model"], body["temperature"]) for body in api.answered} == {("one", 0.5), ("two", 1.0)}
        again = run(api)
        assert (again.exit_code, len(api.answered)) == (0, sent), "a further run sends nothing"
        assert again.stdout == result.stdout
    document = summary()
    cells = [(one["model"], one["dataset"], one["status"]) for one in document["runs"]]
    models = ("one", "Two")
    assert cells == [(model, dataset, "complete") for model in models for dataset in ("own/sums", "more")]
    assert document["complete"] is True
    for one in document["runs"]:
        folder = Path("runs/set", one["folder"])
        assert one["summary"] == json.loads((folder / "summary.json").read_text())
        assert one["refusal_index"]["variants"] == ["low", "high"]
        assert one["refusal_index"]["estimate"] == one["summary"]["pooled"][0]["refusal_index"]["estimate"]
        index = one["refusal_index"]
        row = next(
            line for line in result.stdout.splitlines() if line.startswith(f"{one['model']} on {one['dataset']} ")
        )
        assert f" {index['estimate']:.2f}  [{index['low']:.2f}, {index['high']:.2f}] " in row
        assert len(row.rstrip()) <= 80
    assert result.stderr.count(" of 4: ") == 4


def forced_of(dataset: str) -> int:
    """Count the refused questions of a sample that the runs of a dataset have made."""
    folder = next(one["folder"] for one in summary()["runs"] if one["dataset"] == dataset)
    return outcomes(f"runs/set/{folder}").filter("refused")["question_id"].n_unique()


@pytest.mark.slow
def test_set_names_appear_in_reports_and_loaded_runs(run):
    with FakeApi(answer) as api:
        run(api, "--limit", "5", "--variants", "low")
    runs = read_runs([Path("runs/set")])
    assert [found.label for found in runs][1:] == ["one, more", "Two, own/sums", "Two, more"]
    assert "<title>Refusal Index of Two on more</title>" in (runs[3].source / "report.html").read_text(encoding="utf-8")
    assert {runs[3].model_id, runs[3].dataset_id} == {"two", "own/more"}


def test_json_output_is_only_the_set_summary(run):
    with FakeApi(answer) as api:
        result = run(api, "--json", "--out", "elsewhere", "--limit", "3", "--variants", "low")
    assert result.stdout == Path("elsewhere/summary.json").read_text()
    assert json.loads(result.stdout)["name"] == "set"


def test_command_options_override_the_file_and_its_dataset(run):
    write_sums("other.csv", 5, "other")
    with FakeApi(answer) as api:
        result = run(api, "--variants", "normal", "--temperature", "0", "--data", "other.csv", "--limit", "3")
    assert result.exit_code == 0, result.stderr
    assert {body["temperature"] for body in api.answered} == {0}
    document = summary()
    assert [one["dataset"] for one in document["runs"]] == ["own/other"] * 2
    assert all(one["summary"]["variants"][0]["completeness"]["asked"] == 3 for one in document["runs"])
    assert all(one["refusal_index"]["variants"] == ["normal"] for one in document["runs"]), (
        "of a single variant its own"
    )


@pytest.mark.slow
def test_renaming_or_adding_a_model_repeats_no_requests(run):
    with FakeApi(answer) as api:
        run(api)
        sent = len(api.answered)
        renamed = run(api, old='name = "Two"', new='name = "Second"')
        assert (renamed.exit_code, len(api.answered)) == (0, sent)
        assert "Second on more " in renamed.stdout
        labels = [found.label for found in read_runs([Path("runs/set")])]
        assert labels[2:] == ["Second, own/sums", "Second, more"]
        run(api, old="[[datasets]]", new=f'[[models]]\nmodel = "three"\n{AT} "URL"\n[[datasets]]')
        assert {body["model"] for body in api.answered[sent:]} == {"three"}


@pytest.fixture
def down() -> Iterator[str]:
    """Start a server that rejects every request, and return its address."""
    with FakeApi(answer, lambda *_: web.json_response({"error": {"message": "no"}}, status=400)) as api:
        yield api.url


@pytest.mark.slow
def test_unavailable_model_does_not_block_others_and_is_named_at_the_end(run, down):
    with FakeApi(answer) as api:
        replaced = {"old": "URL", "new": down}
        result = run(api, **replaced)
        assert result.exit_code == 1
        assert [one["status"] for one in summary()["runs"]] == ["failed"] * 2 + ["complete"] * 2
        assert "2 of 4 runs are not complete" in result.stdout
        assert "  one on own/sums: one failed " in result.stdout
        sent = len(api.answered)
        assert run(api, **replaced).exit_code == 1
        assert len(api.answered) == sent


@pytest.mark.slow
def test_failed_run_is_reported_immediately_and_at_the_end(run, down):
    with FakeApi(answer) as api:
        result = run(api, old='name = "more"', new=f'name = "more"\ngrader = "grader"\ngrader_base_url = "{down}"')
    assert result.exit_code == 1
    assert result.stderr.count("error: ") == 2
    assert [one["status"] for one in summary()["runs"]] == ["complete", "failed"] * 2
    failed = summary()["runs"][1]
    assert failed["summary"] is None
    assert "grader 'grader' did not answer" in failed["error"]
    assert f"  one on more: {failed['error'][:50]}" in result.stdout
    assert "sk-very-secret" not in result.output


@pytest.mark.slow
def test_run_in_use_by_another_process_is_skipped(run):
    with FakeApi(answer) as api:
        assert run(api).exit_code == 0
        busy = summary()["runs"][1]
        with RunFolder(Path("runs/set", busy["folder"])).lock():
            result = run(api)
    assert result.exit_code == 1
    assert [one["status"] for one in summary()["runs"]] == ["complete", "failed", "complete", "complete"]
    assert "in use by another process" in result.stdout


BAD = {
    "a file that is not there": ('"more.csv"', '"mroe.csv"', ["set.toml, [[datasets]] 2 (more)", "mroe.csv"]),
    "too large a limit": ("limit = 6", "limit = 10", ["[[datasets]] 2 (more)", "limit", "10"]),
    "an unknown variant": (
        '"low,high"',
        '"low,hgih"',
        ["[[models]] 1 on set.toml, [[datasets]] 1", "'hgih'", "'high'"],
    ),
    "an unknown grader": ('"exact"', '"exct"', ["--grader", "'exct'", "'exact'"]),
    "a grader that cannot grade": ('"exact"', '"choice"', ["grader 'choice': expected choices"]),
    "an unknown provider": (f'"two"\n{AT} "URL"', '"opnai/two"', ["[[models]] 2 (Two)", "'opnai'", "openai"]),
    "no provider": (f'"two"\n{AT} "URL"', '"two"', ["[[models]] 2 (Two)", "PROVIDER/NAME"]),
    "an unknown grading model": ('"exact"', '"opnai/x"', ["'opnai'"]),
    "a wrong price": ('"1000,1000"', '"cheap"', ["[[models]] 2, price", "'cheap'"]),
    "a missing key": (
        f'"two"\n{AT} "URL"',
        '"two"\napi_key_env = "NO_SUCH_KEY"\nbase_url = "URL"',
        ["NO_SUCH_KEY, found no such variable"],
    ),
    "the same model twice": (
        f'model = "two"\n{AT} "URL"\ntemperature = 1',
        f'model = "one"\n{AT} "URL"',
        ["'one on own/sums' and 'Two on own/sums' are the same run", "remove one of them"],
    ),
    "a model at two addresses without a name": (
        f'name = "Two"\nmodel = "two"\n{AT} "URL"\ntemperature = 1',
        'model = "one"\nbase_url = "http://127.0.0.1:9/v1"',
        ["'one on own/sums' and 'one on own/sums' are the same run", "give each a 'name'"],
    ),
    "the same name twice": ('name = "Two"', 'name = "one"', ["two runs are called", "'name'"]),
    "a wrong draw": ('"low,high"', '"low,high"\ndraws = 1\nrepeat_questions = 3', ["--repeat-questions", "--draws"]),
    "a column that is not there": ('name = "more"', 'column = "question=q"', ["[[datasets]] 2", "'q'"]),
}


@pytest.mark.parametrize("case", BAD)
def test_any_configuration_error_is_reported_before_the_first_request(run, case):
    old, new, expected = BAD[case]
    with FakeApi(answer) as api:
        result = run(api, old=old, new=new)
        assert sum(api.received.values()) == 0
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert all(part in result.stderr for part in expected), result.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize("option", ["--model=x/y", "--think=/think", "--reasoning-effort=low", "--price=1,2"])
def test_model_specific_options_are_rejected_with_a_configuration(run, option):
    result = run(None, option)
    assert result.exit_code == 2
    assert option.partition("=")[0] in result.stderr
    assert "[[models]]" in result.stderr


def test_set_does_not_overwrite_an_unrelated_folder(run):
    Path("single").mkdir()
    Path("single/run.json").write_text("{}")
    assert "single run" in run(None, "--out", "single").stderr
    Path("other").mkdir()
    Path("other/summary.json").write_text('{"years": "of work"}')
    result = run(None, "--out", "other")
    assert (result.exit_code, "not the summary of a set" in result.stderr) == (2, True)
    assert Path("other/summary.json").read_text() == '{"years": "of work"}'


def test_set_in_use_by_another_process_is_rejected(run):
    with FakeApi(answer) as api:
        with locked(Path("runs/set")):
            result = run(api)
        assert not api.received
    assert result.exit_code == 2
    assert "in use by another process" in result.stderr


def test_dry_run_of_a_set_needs_no_key_and_counts_all_runs(run, monkeypatch):
    monkeypatch.delenv("FAKE_API_KEY")
    result = run(None, "--dry-run", "--json")
    assert result.exit_code == 0, result.stderr
    runs = json.loads(result.stdout)["runs"]
    assert [one["first"]["requests"]["least"] for one in runs] == [16, 12, 16, 12]
    assert [one["cost"] is None for one in runs] == [True, True, False, False]
    output = run(None, "--dry-run").stdout
    assert output.startswith("dry run: nothing is sent\n")
    (total,) = [line for line in output.splitlines() if line.startswith("all ")]
    assert total.split()[1] == "56"
    assert not Path("runs").exists()


@pytest.mark.slow
def test_set_budget_includes_finished_runs_and_explains_incomplete_ones(run):
    """Each further command spent the whole budget on the remaining runs, and blamed unscored questions."""
    budget = ("--data", "more.csv", "--variants", "low", "--max-requests")
    with FakeApi(answer) as api:
        run(api, *budget, "14", "--max-connections", "1")
        assert [one["status"] for one in summary()["runs"]] == ["complete", "incomplete"]
        result = run(api, *budget, "14")
        assert (result.exit_code, len(api.answered)) == (1, 14)
        assert "Two on own/more: the budget of 14 requests is used up; raise it to continue from here" in result.stdout
        assert run(api, *budget, "100").exit_code == 0


# --- A set of runs over HTTP

CONNECTIONS = 8
ALMANAC, OWN = 24, 20
VARIANTS = 4
SIBLINGS_CONFIG = f"""
name = "siblings"
[defaults]
max_connections = {CONNECTIONS}
{"".join(f'[[models]]{os.linesep}model = "{name}"{os.linesep}' for name in MODEL_NAMES)}
[[datasets]]
dataset = "almanac"
limit = {ALMANAC}
[[datasets]]
name = "own"
data = "own.csv"
grader = "exact"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the configuration and its own file of questions."""
    (tmp_path / "siblings.toml").write_text(SIBLINGS_CONFIG)
    with (tmp_path / "own.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["question_id", "question", "answer"])
        for question in load_dataset("almanac").questions[-OWN:]:
            writer.writerow([f"own-{question.question_id}", question.text, question.gold])
    return tmp_path


@pytest.mark.slow
def test_matrix_killed_twice_completes_without_repeated_requests(server, folder):
    cells = len(MODEL_NAMES) * 2
    firsts = len(MODEL_NAMES) * (ALMANAC + OWN) * VARIANTS
    command = ("run", "--config", "siblings.toml")
    for share in (0.3, 0.7):
        kill_once(server, int(share * firsts), start(server, *command, cwd=folder))
    output = finish(start(server, *command, cwd=folder))

    document = json.loads((folder / "runs/siblings/summary.json").read_text())
    assert document["complete"] is True
    assert [run["status"] for run in document["runs"]] == ["complete"] * cells
    assert len([path for path in (folder / "runs/siblings").iterdir() if path.is_dir()]) == cells
    forced = 0
    for run in document["runs"]:
        outcomes = pl.read_parquet(folder / "runs/siblings" / run["folder"] / "outcomes.parquet")
        assert outcomes.height == VARIANTS * (OWN if run["dataset"] == "own" else ALMANAC)
        assert len(run["refusal_index"]["variants"]) == VARIANTS
        assert f" {run['refusal_index']['estimate']:.2f} " in output
        forced += outcomes.filter("refused")["question_id"].n_unique()

    sent = Counter((entry["model"], entry["seed"]) for entry in server.answered())
    assert len(sent) == firsts + forced
    repeated = sum(count - 1 for count in sent.values())
    assert repeated <= 2 * CONNECTIONS, "only what was in flight at a kill"

    before = len(server.answered())
    assert finish(start(server, *command, cwd=folder)) == output
    assert len(server.answered()) == before, "a finished set sends nothing"


# --- A set of runs in batches

KNOWN = ["variant", "question_id", "refused", "wrong", "first_reply", "forced_reply"]
BATCH_CONFIG = """
name = "several"
[defaults]
engine = "batch"
engine_option = ["poll=0.05"]
limit = 10
variants = ["low"]
draws = 1
[[models]]
model = "small"
[[models]]
model = "base"
[[models]]
model = "nobody"
[[datasets]]
dataset = "almanac"
"""
RUN = ("run", "--config", "several.toml")


@pytest.fixture
def batch_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.toml").write_text(BATCH_CONFIG)
    return tmp_path


def runs(folder: Path) -> dict[str, dict[str, object]]:
    document = json.loads((folder / "runs/several/summary.json").read_text())
    return {run["model"].rpartition("/")[2]: run for run in document["runs"]}


@pytest.mark.slow
def test_first_batches_of_all_models_run_concurrently_despite_a_failure(batch_folder, monkeypatch, command):
    with almanac(batch_folder, monkeypatch, faults=BatchFaults(delay=0.3)) as server:
        assert command(*RUN).exit_code == 1
        steps = [
            ("sent", entry["batch"]) if entry["method"] == "POST" else ("read", "")
            for entry in server.entries()
            if (entry["method"], entry["path"]) == ("POST", "/v1/batches") or entry["path"].endswith("/content")
        ]
        assert [step for step, _ in steps[:3]] == ["sent"] * 3, "nothing is waited for before all are in flight"
        assert len(server.answered_ids()) == len(set(server.answered_ids())), "ids tell models apart"
    found = runs(batch_folder)
    assert {name: run["status"] for name, run in found.items()} == {
        "small": "complete",
        "base": "complete",
        "nobody": "failed",
    }
    assert "model_not_found" in found["nobody"]["error"]
    for name in ("small", "base"):
        model = (
            "--model",
            f"almanac/{name}",
            "--limit",
            "10",
            "--variants",
            "low",
            "--draws",
            "1",
        )
        assert command("run", *model, "--out", name).exit_code == 0
        there = outcomes(batch_folder / "runs/several" / found[name]["folder"]).select(KNOWN)
        assert there.equals(outcomes(batch_folder / name).select(KNOWN))


@pytest.mark.nightly
def test_detached_matrix_submits_once_and_resumes_with_same_command(batch_folder, monkeypatch, command):
    with almanac(batch_folder, monkeypatch, faults=BatchFaults(delay=0.5)) as server:
        output = command(*RUN, "--detach")
        assert output.output.count("collects the results") == 3, "said of each run, once"
        assert len(server.batches()) == 3
        assert {name: run["status"] for name, run in runs(batch_folder).items()} == dict.fromkeys(
            ("small", "base", "nobody"), "waiting"
        )
        command(*RUN)
        assert {name: run["status"] for name, run in runs(batch_folder).items()} == {
            "small": "complete",
            "base": "complete",
            "nobody": "failed",
        }
        assert len(server.batches()) == 5


def test_dry_run_prices_batches_at_the_batch_rate(batch_folder, command):
    shared = ("run", "--dry-run", "--limit", "10", "--model", "base", "--price", "2,8")
    shared = (*shared, "--assume-refusal", "0.5", "--grader", "exact")
    shared = (*shared, "--base-url", "http://127.0.0.1:9/v1")
    costs = {}
    for name, options in {
        "single": (),
        "batch": ("--engine", "batch", "--batch-rate", "0.5"),
        "no rate": ("--engine", "batch"),
    }.items():
        output = command(*shared, *options, "--json")
        (run,) = json.loads(output.output)["runs"]
        costs[name] = run["cost"]["expected"], run["remark"]
    assert costs["batch"][0] == pytest.approx(costs["single"][0] / 2)
    assert costs["no rate"][0] == costs["single"][0]
    assert "50% of the given prices" in costs["batch"][1]
    assert "--batch-rate" in costs["no rate"][1]
    assert "2 rounds of batches" in costs["batch"][1]
    assert "24 hours" in costs["batch"][1]
    assert "s per request" in command(*shared).output
    assert "s per request" not in command(*shared, "--engine", "batch").output
    assert costs["single"][1] is None


@pytest.mark.slow
def test_results_are_priced_at_the_batch_rate(batch_folder, monkeypatch, command):
    with almanac(batch_folder, monkeypatch):
        shared = ("run", "--limit", "5", "--variants", "low", "--draws", "1", "--price", "2,8", "--batch-rate", "0.25")
        shared = (*shared, "--model", "base", "--engine", "batch", "--engine-option", "poll=0.05")
        assert command(*shared, "--out", "run").exit_code == 0
    rows = pl.read_parquet("run/outcomes.parquet")
    (variant,) = json.loads(Path("run/summary.json").read_text())["variants"]
    tokens = variant["usage"]
    whole = (2 * tokens["input_tokens"] + 8 * tokens["output_tokens"]) / 1_000_000
    assert rows.height == 5
    assert tokens["cost"] == pytest.approx(whole / 4, rel=1e-6), tokens
