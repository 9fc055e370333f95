"""The engine `command`: what it runs, its arguments, what it stores, and that no secret or process is left behind."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import time
from pathlib import Path

import pytest

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError
from refusal_index.plugins.batches.command import command_engine, command_words
from refusal_index.plugins.batches.request_files import reopened
from refusal_index.plugins.batches.rounds import question_states
from refusal_index.plugins.confidence.scores import prepare_confidence
from refusal_index.protocol import GraderKind, Role
from refusal_index.runs.engine import Assignment, RunFailedError
from refusal_index.runs.engines import check_engines_own
from refusal_index.runs.settings import Settings
from tests.models.batches.answering import make_conversations, pending_of, store_of
from tests.models.batches.cut_off import kill_once, start

NAMES = {Role.MODEL: "vllm/org/model"}
PYTHON = shlex.quote(sys.executable)
OURS = (
    f"{PYTHON} -c 'from refusal_index.cli import main; main()' run-batch -i {{requests}} -o {{replies}} "
    "--model almanac/{model}"
)
PROGRAM = """
import json, os, sys, time
source, target, *others = sys.argv[1:]
with open("calls", "a") as calls:
    print(json.dumps([others, os.getpid()]), file=calls)
{before}
with open(source) as asked, open(target, "w") as answered:
    for number, line in enumerate(asked):
        request = json.loads(line)
        body = {{"choices": [{{"message": {{"content": "<answer>4</answer>"}}, "finish_reason": "stop"}}]}}
        response = {{"status_code": 200, "body": body}}
        if number == 0 and {fails}:
            response = {{"status_code": 400, "body": {{"error": {{"message": "too long"}}}}}}
        print(json.dumps({{"custom_id": request["custom_id"], "response": response, "error": None}}), file=answered)
{after}
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def program(before: str = "", after: str = "", words: str = "{model}", *, fails: bool = False) -> Settings:
    """Write a program, and return settings whose command runs it."""
    Path("program.py").write_text(PROGRAM.format(before=before, after=after, fails=fails))
    command = f"{PYTHON} program.py {{requests}} {{replies}} {words}"
    return Settings.from_values(model="vllm/org/model", variants="low,high", engine="command", command=command)


def calls() -> list[tuple[list[str], int]]:
    return [tuple(json.loads(line)) for line in Path("calls").read_text().splitlines()]


def run_questions(settings: Settings, names=NAMES, kind=GraderKind.EXACT, meanwhile=None):
    """Ask three questions, and return the store."""
    conversations = make_conversations(3, kind)
    store = store_of(conversations, Path("replies.sqlite"))

    async def main() -> None:
        engine = command_engine(settings, names, {})
        async with engine.open(store):
            carrying = asyncio.ensure_future(engine.execute(Assignment("sums", "", conversations, settings, store)))
            if meanwhile is not None:
                await meanwhile(carrying)
            await carrying

    asyncio.run(main())
    return store


def test_each_round_is_one_command_without_a_shell():
    settings = program(words="--model={model} '{model} {replies}; touch pwned' $(touch pwned)")
    store = run_questions(settings)
    ((words, _),) = calls()
    assert words == ["--model=org/model", words[1], "$(touch", "pwned)"]
    assert words[1].startswith("org/model /")
    assert words[1].endswith(".replies.jsonl; touch pwned")
    assert not Path("pwned").exists()
    assert len(list(store.replies())) == 6
    assert [path.suffix for path in Path("rounds").iterdir()] == [".log"], "stored replies are kept nowhere else"


def test_a_placeholder_in_a_models_name_is_not_replaced():
    run_questions(program(), {Role.MODEL: "vllm/{replies}"})
    assert calls()[0][0] == ["{replies}"]


def test_the_command_is_run_for_the_model_and_then_for_the_grader():
    run_questions(program(), {**NAMES, Role.GRADER: "vllm/org/judge"}, GraderKind.MODEL)
    assert [words for words, _ in calls()][:2] == [["org/model"], ["org/judge"]]


def test_replies_written_before_a_kill_are_stored_and_not_repeated():
    settings, conversations = program(), make_conversations(3, GraderKind.EXACT)
    with store_of(conversations) as empty:
        pending = pending_of(question_states(conversations, empty, settings, NAMES))
    folder = Path("rounds")
    folder.mkdir()
    body = {"choices": [{"message": {"content": "<answer>7</answer>"}}]}
    lines = [json.dumps({"custom_id": one.custom_id, "response": {"body": body}}) for one in pending[:4]]
    failed = json.dumps({"custom_id": pending[4].custom_id, "response": {"status_code": 500, "body": None}})
    (folder / "0.replies.jsonl").write_text("\n".join([*lines, failed, lines[0][:30]]))
    store = run_questions(settings)
    assert len(calls()) == 1
    assert (
        sorted(reply.reply.text for reply in store.replies()) == ["<answer>4</answer>"] * 2 + ["<answer>7</answer>"] * 4
    )
    assert not list(folder.glob("*.jsonl"))


def test_permanently_failing_request_is_sent_once_and_others_are_stored():
    assert len(list(run_questions(program(fails=True)).replies())) == 5
    assert len(calls()) == 1


def test_failing_program_output_is_reported_without_secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hush-hush-from-the-environment")
    before = "print('loading', sys.argv[3:], flush=True); sys.exit('no memory, ' + os.environ['HF_TOKEN'])"
    settings = program(before, words="--api-key hush-one-word --key=hush-other-word")
    with pytest.raises(RunFailedError) as error:
        run_questions(settings)
    text = str(error.value)
    assert "vllm/org/model: the command ended with status 1 and wrote no replies: loading" in text
    assert "no memory, [key] (see " in text
    (log,) = Path("rounds").glob("*.log")
    assert log.read_text() == "loading ['--api-key', '[key]', '--key=[key]']\nno memory, [key]"
    assert "hush" not in text


def test_long_output_keeps_the_last_whole_lines():
    before = "print('x' * 100); print('y' * 2**18 + ' hush'); print('10 %', end='\\r'); sys.exit('the end')"
    with pytest.raises(RunFailedError, match="wrote no replies: 10 % / the end "):
        run_questions(program(before))
    (log,) = Path("rounds").glob("*.log")
    assert log.read_text() == "10 %\nthe end"


def test_replies_of_a_failing_program_are_stored():
    settings = program(after="sys.exit(3)")
    with pytest.raises(RunFailedError, match="ended with status 3: no output"):
        run_questions(settings)
    assert len(list(run_questions(settings).replies())) == 6
    assert len(calls()) == 1


def test_program_that_writes_no_replies_fails_at_once():
    with pytest.raises(RunFailedError, match="ended with status 0 and wrote no replies: nothing to do"):
        run_questions(program(before="sys.exit(print('nothing to do'))"))
    assert len(calls()) == 1


def is_running(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1][:3]
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_interruption_ends_the_program():
    async def interrupt(carrying) -> None:
        while not (Path("calls").exists() and Path("calls").read_text()):
            await asyncio.sleep(0.01)
        carrying.cancel()

    with pytest.raises(asyncio.CancelledError):
        run_questions(program(before="time.sleep(60)"), meanwhile=interrupt)
    ((_, process),) = calls()
    assert has_ended(process)


def has_ended(process: int) -> bool:
    """Whether a process ends within ten seconds: a loaded machine may take a moment to remove it."""
    end = time.monotonic() + 10
    while is_running(process) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_running(process)


@pytest.mark.slow
def test_killing_the_process_ends_the_program(tmp_path):
    sending = program(before="time.sleep(60)").sending
    settings = {"model": "vllm/org/model", "variants": "low", "grader": "exact", "count": 3}
    settings |= {"engine": "command", "command": sending.command}
    process = start(json.dumps(settings), tmp_path / "run", {})
    assert kill_once(process, lambda: Path("calls").exists() and bool(Path("calls").read_text()))
    ((_, child),) = calls()
    assert has_ended(child)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (None, r"expected a program with .* -i {requests} -o {replies} --model {model}'; got none$"),
        ("true {requests}", r"command: expected a program with .* {requests} and {replies}, .*; got {requests}$"),
        ("true {requests} {replies} {modle}", "; got {requests}, {replies}, {modle}$"),
        ("true {replies} '{requests}", r"command: .*No closing quotation"),
        ("no-such-program {requests} {replies}", "command: found no program 'no-such-program' on the PATH"),
    ],
)
def test_invalid_command_raises_before_any_request(command, message, tmp_path):
    with pytest.raises(SettingError, match=message):
        ri.evaluate("almanac/small", limit=2, engine="command", command=command, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_braces_that_are_not_placeholders_are_kept():
    assert command_words("true {requests} {replies} '{\"n\": 1}' {}")[3:] == ['{"n": 1}', "{}"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({**NAMES, Role.GRADER: "openai/judge"}, "grader 'openai/judge': .* 'vllm/org/model'; expected vllm/NAME"),
        ({Role.MODEL: "vllm/--option"}, "model 'vllm/--option': expected a name that does not start with '-'"),
    ],
)
def test_models_the_command_cannot_serve_raise(names, message):
    with pytest.raises(ModelError, match=message):
        command_engine(program(), names, {})


def test_command_without_its_engine_raises():
    with pytest.raises(SettingError, match="command: requires engine command, got direct"):
        check_engines_own(Settings.from_values(command="true").sending)


def test_direct_engine_takes_no_options():
    with pytest.raises(SettingError, match="engine_option: requires engine batch or ray, got direct"):
        check_engines_own(Settings.from_values(engine_option=["poll=2"]).sending)


def test_symlinked_rounds_folder_raises():
    Path("elsewhere").mkdir()
    Path("rounds").symlink_to("elsewhere")
    with pytest.raises(ModelError, match="expected a folder for requests and replies"):
        run_questions(program())


def test_a_command_in_a_run_json_is_never_run(tmp_path):
    folder = tmp_path / "run"
    ri.evaluate("almanac/small", limit=2, variants="low", out=folder)
    path = folder / "run.json"
    document = json.loads(path.read_text())
    theirs = {"engine": "command", "command": "touch pwned {requests} {replies}"}
    for place in (document, document["settings"], document["settings"]["decoding"], document["about"]):
        place.update(theirs)
    path.write_text(json.dumps(document))
    chosen = Settings.from_values(temperature=0.1)
    for settings in (reopened(folder, chosen).settings, prepare_confidence(folder, ["p-true"], chosen).settings):
        assert (settings.sending.engine, settings.sending.command) == ("direct", None)
        assert settings.decoding.temperature == 0.7
    ri.open_run(folder)


@pytest.mark.slow
def test_command_is_not_stored_in_the_run(tmp_path):
    command = f"{OURS} --output-tmp-dir kept-nowhere"
    run = ri.evaluate("almanac/small", limit=2, variants="low", engine="command", command=command, out=tmp_path / "run")
    assert run.is_complete
    for path in (tmp_path / "run").rglob("*"):
        assert path.suffix == ".log" or not path.is_file() or b"kept-nowhere" not in path.read_bytes()


@pytest.mark.slow
def test_embedded_model_gives_the_same_table_as_the_direct_engine(tmp_path):
    given = {"limit": 40, "draws": 2, "repeat_questions": 10}
    here = ri.evaluate("almanac/base", **given, out=tmp_path / "here")
    there = ri.evaluate("almanac/base", **given, engine="command", command=OURS, out=tmp_path / "there")
    assert there.outcomes.rows() == here.outcomes.rows()
    assert here.outcomes.height == 4 * (40 + 10)


@pytest.mark.slow
def test_run_killed_while_the_program_works_can_be_completed(tmp_path):
    settings = {"model": "almanac/base", "engine": "command", "command": OURS, "variants": "low,high", "limit": 60}
    out, rounds = tmp_path / "run", tmp_path / "run" / "rounds"
    process = start(json.dumps(settings), out, {})
    assert kill_once(process, lambda: bool(list(rounds.glob("*.jsonl"))))
    finished = ri.evaluate(out=out, **settings)
    whole = ri.evaluate(out=tmp_path / "whole", **{**settings, "engine": "direct", "command": None})
    assert finished.outcomes.rows() == whole.outcomes.rows()
    assert RunFolder(out).read_settings() == whole.folder.read_settings()
    assert not list(rounds.glob("*.jsonl"))
