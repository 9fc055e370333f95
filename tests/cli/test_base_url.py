"""``--base-url`` in every command that asks a model, against the embedded models behind their own server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file

from refusal_index.plugins.almanac.batches import RequestLog
from refusal_index.plugins.almanac.chat_api import ModelPool
from refusal_index.plugins.almanac.models import MODEL_NAMES, model_folder
from refusal_index.plugins.almanac.server import create_app
from refusal_index.protocol import load_prompt_set
from refusal_index.runs.sweep import prepare_sweep
from tests.cli.conftest import Command
from tests.cli.serving import Server
from tests.models.batches.batch_server import serve_in_thread
from tests.models.fake_api import FakeApi, is_grading

SMALL = ("--limit", "6", "--variants", "low", "--max-retries", "0")
MODEL = "almanac/base"
"""The server's name for a model, which is also that of an embedded one."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    log = tmp_path / "requests.jsonl"
    with serve_in_thread(create_app(ModelPool(MODEL_NAMES, model_folder), RequestLog(log))) as url:
        yield Server(url, log)


@pytest.fixture
def asked(server: Server, command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs a command and checks that it succeeds."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-0123456789")

    def run(*arguments: str) -> Any:
        done = command(*arguments)
        assert done.exit_code == 0, done.output
        return done

    return run


def run_json(folder: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(folder, "run.json").read_text())
    return document


def test_end_to_end_a_server_gives_what_the_embedded_model_behind_it_gives(asked, server):
    asked("run", "--model", MODEL, "--base-url", server.url, *SMALL, "--out", "served")
    n_asked = len(server.answered())
    asked("run", "--model", MODEL, *SMALL, "--out", "embedded")
    assert len(server.answered()) == n_asked > 6
    served, embedded = (pl.read_parquet(f"{folder}/outcomes.parquet") for folder in ("served", "embedded"))
    assert served.equals(embedded)
    assert run_json("served")["settings"] == {**run_json("embedded")["settings"], "named_by_server": True}
    assert run_json("served")["about"]["asked_at"] == {"model": [server.url]}
    assert "asked_at" not in run_json("embedded")["about"]


def test_folder_of_a_server_and_of_a_provider_are_not_the_same_run(asked, command, server):
    asked("run", "--model", MODEL, "--base-url", server.url, *SMALL, "--out", "r")
    done = command("run", "--model", MODEL, *SMALL, "--out", "r")
    assert done.exit_code == 2
    assert "named_by_server" in done.stderr


def test_dry_run_asks_no_server_and_counts_without_an_embedded_model(asked):
    done = asked("run", "--model", MODEL, "--base-url", "http://127.0.0.1:9/v1", *SMALL, "--dry-run", "--json")
    (run,) = json.loads(done.stdout)["runs"]
    assert run["first"]["requests"] == {"least": 6, "expected": 6, "most": 6}
    assert run["forced"]["requests"] == {"least": 0, "expected": 3, "most": 6}, "its refusals are not known"


@pytest.mark.slow
def test_gate_asks_the_candidate_at_a_server(asked, command, server):
    asked("run", "--model", MODEL, *SMALL, "--out", "base")
    given = ("--run", "--baseline", "base", "--model", MODEL, "--base-url", server.url, "--limit", "6", "--looks", "1")
    done = command("gate", "candidate", *given)
    assert done.exit_code == 3, done.output
    assert len(server.answered()) > 6
    assert run_json("candidate")["about"]["asked_at"] == {"model": [server.url]}


@pytest.mark.slow
def test_watch_asks_checkpoints_at_a_server(asked, server):
    for name in ("base", "small"):
        checkpoint = Path("checkpoints", name)
        checkpoint.mkdir(parents=True)
        (checkpoint / "config.json").write_text("{}")
        save_file({"weight": np.frombuffer(name.encode(), np.uint8)}, checkpoint / "model.safetensors")
    asked("watch", "checkpoints", "--once", "--model-template", "almanac/{name}", "--base-url", server.url, *SMALL)
    assert {entry["model"] for entry in server.answered()} == {"almanac/base", "almanac/small"}


def test_force_asks_the_forced_pass_at_a_server(asked, server):
    Path("first.csv").write_text("question,answer,grade\nWho?,I,refused\nWhat?,It,incorrect\n")
    asked("force", "first.csv", "--model", MODEL, "--base-url", server.url, "--grader", "exact", "--out", "f")
    assert len(server.answered()) == 1
    assert run_json("f")["settings"]["named_by_server"] is True


def test_commands_that_score_prints_name_the_address_of_the_grader(asked):
    Path("first.csv").write_text("question,answer,reply\nWho?,Ann,I do not know\n")
    with FakeApi(lambda prompt: "A" if prompt.count("Paris") > 1 else "B" if "Berlin" in prompt else "C") as judge:
        done = asked("score", "first.csv", "--grader", "judge", "--grader-base-url", judge.url)
    assert done.stdout.count(f"--grader judge --grader-base-url {judge.url}") == 2


def test_regrade_asks_a_grader_at_a_server_and_keeps_where_the_model_was_asked(asked, server):
    asked("run", "--model", MODEL, "--base-url", server.url, *SMALL, "--out", "r")
    with FakeApi(lambda _: "A") as judge:
        asked("regrade", "r", "--grader", "judge", "--grader-base-url", judge.url, "--out", "g")
        assert judge.answered
        assert all(is_grading(message) for message in judge.messages())
        assert {headers.get("Authorization") for headers in judge.headers} == {None}
    assert run_json("g")["about"]["asked_at"] == {"model": [server.url], "grader": [judge.url]}
    assert run_json("g")["settings"]["grader"]["named_by_server"] is True
    assert asked("score", "g", "--json").stdout


def test_confidence_asks_again_only_where_the_command_names_the_address(asked, command, server):
    asked("run", "--model", MODEL, "--base-url", server.url, *SMALL, "--out", "r")
    method = ("--method", "verbalised-number", "--yes")
    before = len(server.answered())
    refused = command("confidence", "r", *method)
    assert refused.exit_code == 2
    assert "no address is taken from a folder; name it with --base-url" in refused.stderr
    assert len(server.answered()) == before, "run.json has the address, which is not used"
    asked("confidence", "r", *method, "--base-url", server.url)
    n_asked = len(server.answered())
    assert n_asked > before
    asked("confidence", "r", *method)
    assert len(server.answered()) == n_asked, "nothing more is to be asked, so no address is needed"


def test_confidence_takes_no_address_for_a_model_of_a_provider(asked, command, server):
    asked("run", "--model", MODEL, *SMALL, "--out", "r")
    done = command("confidence", "r", "--base-url", server.url)
    assert (done.exit_code, "--base-url: this run did not ask that model at a server" in done.stderr) == (2, True)
    assert not server.answered()


def test_model_at_two_addresses_is_two_runs_of_a_configuration(asked, server):
    with FakeApi(lambda _: "<answer>UNANSWERED</answer>") as other:
        models = (
            f'[[models]]\nname = "{name}"\nmodel = "{MODEL}"\nbase_url = "{url}"\n'
            for name, url in (("here", server.url), ("there", other.url))
        )
        text = f'{"".join(models)}[[datasets]]\ndataset = "almanac"\nlimit = 6\nvariants = "low"\n'
        Path("two.toml").write_text(text)
        output = asked("run", "--config", "two.toml").stdout
        assert len(other.answered) == 12, "it refuses all six questions"
    assert "here" in output
    assert "there" in output
    folders = {path.parent for path in Path("runs/two").glob("*/run.json")}
    assert {folder.name.partition("-")[0] for folder in folders} == {"here", "there"}
    refused = {folder.name[:4]: pl.read_parquet(folder / "outcomes.parquet")["refused"].mean() for folder in folders}
    assert refused["ther"] == 1 > refused["here"]


def test_configuration_names_the_setting_of_a_grader_whose_key_is_missing(command):
    text = f'[[models]]\nmodel = "{MODEL}"\n[[datasets]]\ndataset = "almanac"\nlimit = 2\ngrader = "judge"\n'
    servers = 'grader_base_url = "http://127.0.0.1:9/v1"\ngrader_api_key_env = "NO_SUCH_KEY"\n'
    Path("keyless.toml").write_text(text + servers)
    done = command("run", "--config", "keyless.toml")
    assert done.exit_code == 2
    assert "grader_api_key_env: expected a key in the environment variable NO_SUCH_KEY" in " ".join(done.stderr.split())


def test_run_with_a_folder_of_its_own_keeps_its_caveats(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = load_prompt_set("default").examples[1].question
    Path("own.jsonl").write_text(json.dumps({"question_id": "q1", "question": example, "answer": "1879"}) + "\n")
    models = (
        f'[[models]]\nname = "{name}"\nmodel = "{MODEL}"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        for name, port in (("here", 8), ("there", 9))
    )
    Path("two.toml").write_text(f'{"".join(models)}[[datasets]]\ndata = "own.jsonl"\ngrader = "exact"\n')
    plans = prepare_sweep("two.toml").plans
    assert [plan.folder.path.name.partition("-")[0] for plan in plans] == ["here", "there"]
    assert [[caveat.code for caveat in plan.caveats] for plan in plans] == [["example_asked"]] * 2


def test_configuration_that_grows_by_another_address_or_renames_an_entry_repeats_nothing(asked, server):
    def configured(**urls: str) -> int:
        models = (f'[[models]]\nname = "{name}"\nmodel = "{MODEL}"\nbase_url = "{url}"\n' for name, url in urls.items())
        text = f'{"".join(models)}[[datasets]]\ndataset = "almanac"\nlimit = 6\nvariants = "low"\n'
        Path("two.toml").write_text(text)
        before = len(server.answered())
        asked("run", "--config", "two.toml")
        return len(server.answered()) - before

    with FakeApi(lambda _: "<answer>UNANSWERED</answer>") as other:
        assert configured(here=server.url) > 6
        assert configured(renamed=server.url) == 0
        assert configured(renamed=server.url, there=other.url) == 0
        assert len(other.answered) == 12
        assert configured(there=other.url) == 0
        assert len(other.answered) == 12, "the folder of the other address is not taken for its own"
    assert len(list(Path("runs/two").glob("*/run.json"))) == 2


def test_files_for_a_server_hold_its_own_name_for_the_model(asked, command):
    given = ("--model", "openai/gpt-4.1", "--base-url", "http://127.0.0.1:9/v1", "--engine", "files")
    assert command("run", *given, *SMALL, "--out", "r").exit_code == 1
    asked("requests", "r", "--out", "requests-of-r.jsonl")
    lines = [json.loads(line) for line in Path("requests-of-r.jsonl").read_text().splitlines()]
    assert {line["body"]["model"] for line in lines} == {"openai/gpt-4.1"}
    assert {"max_tokens", "temperature"} <= lines[0]["body"].keys(), "the format of compatible servers"
    assert "asked_at" not in run_json("r")["about"], "nothing was sent there"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--base-url", "http://127.0.0.1:9/v1"), "--base-url: requires --model, the server's own name"),
        (("--model", "gpt-x"), "for a server's own name, add its address with --base-url"),
        (("--model", "m", "--base-url", "127.0.0.1:9/v1"), "--base-url: expected a URL that begins with http://"),
        (("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "NO_SUCH"), "NO_SUCH, found no such"),
        (("--model", "openai/gpt-4.1", "--api-key-env", "K"), "--api-key-env: requires --base-url"),
        (("--model", "m", "--base-url", "https://api.openai.com/v1"), "name another variable with --api-key-env"),
        (("--model", "openai/gpt-4.1"), "name a server of your own with --base-url and --api-key-env"),
    ],
)
def test_bad_address_is_one_line_before_any_folder_is_made(command, monkeypatch, arguments, message):
    for name in ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    done = command("run", *arguments, "--limit", "3")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("runs").exists()


def test_password_in_an_address_is_shown_and_kept_nowhere(asked, server):
    secret = server.url.replace("://", "://me:swordfish-77@") + "?token=argument-77"
    done = asked("run", "--model", MODEL, "--base-url", secret, *SMALL, "--out", "r")
    asked("report", "r")
    contents = [path.read_bytes() for path in Path("r").rglob("*") if path.is_file()]
    assert len(contents) > 4
    for text in (done.output.encode(), *contents):
        assert b"swordfish-77" not in text
        assert b"argument-77" not in text
    assert run_json("r")["about"]["asked_at"] == {"model": [server.url]}


def test_resuming_at_another_address_prints_a_note(asked, command, server):
    given = ("--model", MODEL, *SMALL, "--out", "r")
    command("run", *given, "--base-url", server.url, "--max-requests", "2", "--max-connections", "1")
    with FakeApi(lambda _: "<answer>UNANSWERED</answer>") as other:
        done = asked("run", *given, "--base-url", other.url)
    assert f"note: The model was asked at 2 addresses, {server.url} and {other.url}." in done.stderr
    assert "at 2 addresses" in asked("show", "r").stdout
