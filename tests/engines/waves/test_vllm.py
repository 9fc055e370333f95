"""Waves as files for a program: the same table, what it left is taken up, and it ends with whoever started it."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest

import refusal_index as ri
from refusal_index.engines.engine import Assignment, ModelError, RunFailedError
from refusal_index.engines.settings import Settings
from refusal_index.engines.waves import vllm
from refusal_index.engines.waves.vllm import RunBatch, command, vllm_engine
from refusal_index.engines.waves.wave import talks_of, wave
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked, GraderKind
from tests.engines.waves.answering import store_of, talks
from tests.engines.waves.cut_off import kill_once, start

NAMES = {Asked.MODEL: "vllm/org/model"}
SETTINGS = Settings.of(model="vllm/org/model", variants="low,high")
PROGRAM = """#!{python}
import json, os, sys, time
arguments = sys.argv[1:]
source, target = (arguments[arguments.index(name) + 1] for name in ("-i", "-o"))
with open(os.environ["CALLS"], "a") as calls:
    print(json.dumps(arguments), os.getpid(), file=calls)
{before}
with open(source) as asked, open(target, "w") as answered:
    for number, line in enumerate(asked):
        name = json.loads(line)["custom_id"]
        body = {{"choices": [{{"message": {{"content": "<answer>4</answer>"}}, "finish_reason": "stop"}}]}}
        response = {{"status_code": 200, "body": body}}
        if number == 0 and {fails}:
            response = {{"status_code": 400, "body": {{"error": {{"message": "too long"}}}}}}
        print(json.dumps({{"custom_id": name, "response": response, "error": None}}), file=answered)
{after}
"""


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Return the file that a stand-in for vllm, made by `program`, writes its calls to."""
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("CALLS", str(path))
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cpu")
    return path


def program(monkeypatch, tmp_path: Path, before: str = "", after: str = "", *, fails: bool = False) -> None:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    path = folder / "vllm"
    path.write_text(PROGRAM.format(python=sys.executable, before=before, after=after, fails=fails))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def called(calls: Path) -> list[list[str]]:
    return [json.loads(line.rsplit(" ", 1)[0]) for line in calls.read_text().splitlines()]


def carry(folder: Path, count: int = 3, settings: Settings = SETTINGS, names=NAMES, engine=None):
    """Carry conversations to their end, and return their store and what was told."""
    conversations = talks(count, GraderKind.EXACT)
    store, told = store_of(conversations, folder / "replies.sqlite"), []
    assignment = Assignment("sums", "", conversations, settings, store, progress=told.append)

    async def main() -> None:
        carrier = engine or vllm_engine(settings, names, {})
        async with carrier.open(store):
            await carrier.carry(assignment)

    asyncio.run(main())
    return store, told


def test_a_wave_is_one_call_with_the_options_that_were_given(calls, monkeypatch, tmp_path):
    program(monkeypatch, tmp_path)
    options = ["tensor_parallel_size=2", "--enforce-eager=true", "enable-prefix-caching=false"]
    store, _ = carry(tmp_path, settings=SETTINGS.changed(engine_option=options))
    (told,) = called(calls)
    assert told[0] == "run-batch"
    expected = ["--tensor-parallel-size", "2", "--enforce-eager", "--no-enable-prefix-caching"]
    assert told[5:] == ["--model", "org/model", *expected]
    assert len(list(store.replies())) == 6
    assert [one.suffix for one in (tmp_path / "waves").iterdir()] == [".log"], "what is in the store lies nowhere else"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "usage: vllm run-batch ...\\nvllm run-batch: error: unrecognized arguments: --foo 1",
            "arguments: --foo 1$",
        ),
        ("usage: vllm ...\\nvllm: error: argument --foo: invalid int value: '1'", "argument --foo: invalid int value"),
    ],
)
def test_an_option_that_the_program_does_not_take_is_bad_input_without_its_usage(
    calls, monkeypatch, tmp_path, said, told
):
    program(monkeypatch, tmp_path, before=f"print({said!r}, file=sys.stderr); sys.exit(2)".replace("\\\\n", "\\n"))
    with pytest.raises(ModelError, match=f"engine_option: the program does not take foo=1: .*{told}") as error:
        carry(tmp_path, settings=SETTINGS.changed(engine_option=["foo=1"]))
    assert "usage" not in str(error.value)


def test_graders_with_other_weights_are_run_one_after_the_other(calls, monkeypatch, tmp_path):
    program(monkeypatch, tmp_path, before="time.sleep(.1)")
    names = {Asked.MODEL: "vllm/org/model", Asked.GRADER: "vllm/org/judge"}
    conversations = talks(2, GraderKind.MODEL)
    store = store_of(conversations, tmp_path / "replies.sqlite")
    assignment = Assignment("sums", "", conversations, SETTINGS, store)

    async def main() -> None:
        engine = vllm_engine(SETTINGS, names, {})
        async with engine.open(store):
            await engine.carry(assignment)

    asyncio.run(main())
    assert {told[told.index("--model") + 1] for told in called(calls)} == {"org/model", "org/judge"}


def test_results_that_were_there_when_the_process_was_killed_are_taken_and_not_made_again(calls, monkeypatch, tmp_path):
    program(monkeypatch, tmp_path)
    conversations = talks(3, GraderKind.EXACT)
    with store_of(conversations) as empty:
        pending = list(wave(talks_of(conversations, empty), SETTINGS, NAMES))
    folder = tmp_path / "waves"
    folder.mkdir()
    body = {"choices": [{"message": {"content": "<answer>7</answer>"}}]}
    lines = [json.dumps({"custom_id": one.custom_id, "response": {"body": body}}) for one in pending[:4]]
    failed = json.dumps({"custom_id": pending[4].custom_id, "response": {"status_code": 500, "body": None}})
    (folder / "0.results.jsonl").write_text("\n".join([*lines, failed, lines[0][:30]]))
    store, _ = carry(tmp_path)
    assert len(called(calls)) == 1
    assert sorted(one.reply.text for one in store.replies()) == ["<answer>4</answer>"] * 2 + ["<answer>7</answer>"] * 4
    assert not list(folder.glob("*.jsonl"))


def test_a_request_that_fails_is_told_and_the_others_are_taken(calls, monkeypatch, tmp_path):
    program(monkeypatch, tmp_path, fails=True)
    store, _ = carry(tmp_path)
    assert len(list(store.replies())) == 5
    assert len(called(calls)) == 1, "a request that is itself at fault is not sent again"


def test_a_program_that_fails_is_told_in_its_own_last_words_without_keys(calls, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz0123456789")
    program(monkeypatch, tmp_path, before="print('loading'); sys.exit('no memory, ' + os.environ['HF_TOKEN'])")
    with pytest.raises(RunFailedError, match=r"status 1: .*no memory, \[key\] \(all it said is in .*\.log\)"):
        carry(tmp_path)


def test_what_a_program_answered_before_it_failed_is_kept(calls, monkeypatch, tmp_path):
    program(monkeypatch, tmp_path, after="sys.exit(3)")
    with pytest.raises(RunFailedError, match="status 3: it said nothing"):
        carry(tmp_path)
    store, _ = carry(tmp_path)
    assert len(list(store.replies())) == 6
    assert len(called(calls)) == 1


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1][:3]


def test_an_interruption_ends_the_program(calls, monkeypatch, tmp_path):
    program(monkeypatch, tmp_path, before="time.sleep(60)")

    async def main() -> None:
        conversations = talks(3, GraderKind.EXACT)
        store = store_of(conversations, tmp_path / "replies.sqlite")
        engine = vllm_engine(SETTINGS, NAMES, {})
        async with engine.open(store):
            carrying = asyncio.ensure_future(engine.carry(Assignment("sums", "", conversations, SETTINGS, store)))
            while not calls.read_text():
                await asyncio.sleep(0.01)
            carrying.cancel()
            await asyncio.wait([carrying])

    asyncio.run(main())
    process = int(calls.read_text().split()[-1])
    assert not is_running(process)


@pytest.mark.slow
def test_a_killed_process_takes_the_program_with_it(calls, monkeypatch, tmp_path):
    program(monkeypatch, tmp_path, before="time.sleep(60)")
    settings = json.dumps(
        {"model": "vllm/org/model", "variants": "low", "engine": "vllm", "grader": "exact", "count": 3}
    )
    killed = kill_once(start(settings, tmp_path / "run", {}), lambda: bool(calls.read_text()))
    assert killed
    process, end = int(calls.read_text().split()[-1]), time.monotonic() + 10
    while is_running(process) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(process)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openai/gpt-4.1", r"expected vllm/NAME"),
        ("vllm/org/model", r"expected the program vllm, found none on the PATH"),
    ],
)
def test_what_cannot_be_run_here_is_told_before_anything(name, told, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError, match=told):
        vllm_engine(SETTINGS, {Asked.MODEL: name}, {})


def test_a_machine_without_a_gpu_is_told_before_anything(calls, monkeypatch, tmp_path):
    program(monkeypatch, tmp_path)
    monkeypatch.delenv("VLLM_TARGET_DEVICE")
    monkeypatch.setattr(vllm, "DEVICES", ["no-such-device*"])
    with pytest.raises(ModelError, match="expected a GPU, found none on this machine"):
        vllm_engine(SETTINGS, NAMES, {})


def test_an_option_that_the_engine_sets_itself_is_refused():
    settings = SETTINGS.changed(engine_option=["model=other"])
    with pytest.raises(ModelError, match=r"engine_option.*model is set by the engine itself"):
        RunBatch(settings, NAMES)


def test_the_embedded_models_are_run_by_the_program_of_the_same_interface():
    told = command("almanac/base", Path("in"), Path("out"), [])
    assert told[0] == sys.executable
    assert told[3:] == ["run-batch", "-i", "in", "-o", "out", "--model", "almanac/base"]


def test_a_folder_that_leads_elsewhere_is_refused(calls, monkeypatch, tmp_path):
    program(monkeypatch, tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "waves").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="expected a folder for requests and results"):
        carry(tmp_path)


@pytest.mark.slow
def test_the_embedded_model_gives_the_same_table_as_the_local_engine(tmp_path):
    runs = [
        ri.evaluate("almanac/base", limit=40, draws=2, repeat_questions=10, engine=engine, out=tmp_path / engine)
        for engine in ("local", "vllm")
    ]
    assert runs[1].outcomes.rows() == runs[0].outcomes.rows()
    assert runs[0].outcomes.height == 4 * (40 + 10)


@pytest.mark.slow
def test_a_run_that_is_killed_while_the_program_works_ends_complete(tmp_path):
    settings = {"model": "almanac/base", "engine": "vllm", "variants": "low,high", "limit": 60}
    out, waves = tmp_path / "run", tmp_path / "run" / "waves"
    process = start(json.dumps(settings), out, {})
    assert kill_once(process, lambda: bool(list(waves.glob("*.jsonl"))))
    finished = ri.evaluate(out=out, **settings)
    whole = ri.evaluate(out=tmp_path / "whole", **{**settings, "engine": "local"})
    assert finished.outcomes.rows() == whole.outcomes.rows()
    assert RunFolder(out).read_settings() == whole.folder.read_settings()
    assert not list(waves.glob("*.jsonl"))
