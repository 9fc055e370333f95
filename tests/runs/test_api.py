"""Evaluation from Python: in a script, a thread or a running loop, with questions of any type, interrupted or not."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelAPI, ModelOutput, modelapi

import refusal_index as ri
from refusal_index.data.datasets.dataset import questions_from
from refusal_index.data.folder import RunFolder
from refusal_index.errors import OutcomeTableError, RunFolderError
from refusal_index.models.settings import SettingError
from refusal_index.runs.events import Begun, Event, Finished, Opened, Replied
from refusal_index.runs.store import open_store
from tests.runs import models
from tests.runs.models import ASKED, LOCAL, ROWS, TABLE, cells


class AnsweringAPI(ModelAPI):
    """A provider of Inspect that answers as the function does."""

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - the name in Inspect's interface
        tools: object,  # noqa: ARG002
        tool_choice: object,  # noqa: ARG002
        config: GenerateConfig,  # noqa: ARG002
    ) -> ModelOutput:
        await asyncio.sleep(0)
        return ModelOutput.from_content("any", models.answer([{"role": "user", "content": input[-1].text}]))


def provided_model() -> Model:
    return Model(modelapi("answering")(AnsweringAPI)("any"), GenerateConfig())


def test_evaluate_works_in_a_script_a_thread_and_a_running_loop():
    async def plainly() -> ri.RunResults:
        return ri.evaluate(models.answer, ROWS, out="loop", **LOCAL)

    async def awaited() -> ri.RunResults:
        return await ri.evaluate_async(models.answer, ROWS, out="awaited", **LOCAL)

    with ThreadPoolExecutor(1) as thread:
        runs = [
            ri.evaluate(models.answer, ROWS, out="script", **LOCAL),
            thread.submit(ri.evaluate, models.answer, ROWS, out="thread", **LOCAL).result(),
            asyncio.run(plainly()),
            asyncio.run(awaited()),
        ]
    assert [run.path.name for run in runs] == ["script", "thread", "loop", "awaited"]
    assert all(cells(run) == TABLE for run in runs)
    assert set(ASKED.values()) == {4}


@pytest.mark.parametrize("model", [models.answer, provided_model()], ids=["function", "model of Inspect"])
def test_concurrent_runs_in_threads_and_in_one_loop(model):
    async def together() -> list[ri.RunResults]:
        return await asyncio.gather(*(ri.evaluate_async(model, ROWS, out=f"task{n}", **LOCAL) for n in range(2)))

    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(ri.evaluate, model, ROWS, out=f"thread{n}", **LOCAL) for n in range(2)]
        runs = [one.result(timeout=60) for one in waiting]
    runs += asyncio.run(together())
    assert all(cells(run) == TABLE for run in runs)
    assert set(ASKED.values()) == {4}, "each run sends its own requests"


def test_concurrent_runs_in_one_folder_raise():
    entered, leave = threading.Event(), threading.Event()

    def slow(messages: list[dict[str, str]]) -> str:
        entered.set()
        assert leave.wait(30)
        return models.answer(messages)

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(ri.evaluate, slow, ROWS, model_name="slow", out="one", **LOCAL)
        assert entered.wait(30)
        with pytest.raises(RunFolderError, match="another"):
            ri.evaluate(slow, ROWS, model_name="slow", out="one", **LOCAL)
        leave.set()
        assert cells(first.result(timeout=30)) == TABLE


def table(rows: list[dict[str, Any]], kind: str) -> Any:
    frame = pl.DataFrame(rows)
    if kind == "pandas":
        pandas = pytest.importorskip("pandas")
        return pandas.DataFrame(rows)
    if kind == "Arrow":
        pytest.importorskip("pyarrow")
        return frame.to_arrow()
    if kind == "file":
        frame.write_csv("own.csv")
        return "own.csv"
    return frame if kind == "Polars" else rows


@pytest.mark.parametrize("kind", ["dictionaries", "pandas", "Polars", "Arrow", "file"])
def test_question_hash_does_not_depend_on_the_table_type(kind):
    run = ri.evaluate(models.answer, table(ROWS, kind), **LOCAL)
    assert cells(run) == TABLE
    asked = run.folder.read_settings()["dataset"]["questions_sha256"]
    assert asked == questions_from(ROWS).questions_sha256


def test_own_questions_take_columns_name_and_limit():
    rows = [{"problem": row["question"], "gold truth": row["answer"]} for row in ROWS]
    columns = {"question": "problem", "answer": "gold truth"}
    run = ri.evaluate(models.answer, rows, columns=columns, dataset_name="sums", limit=3, seed=1, **LOCAL)
    assert run.outcomes.height == 3
    assert run.outcomes["dataset"].unique().to_list() == ["sums"]
    assert "sums" in run.path.name


def test_named_dataset_and_methods_of_a_run():
    run = ri.evaluate("almanac/small", "almanac", limit=10, variants="low,high")
    assert run.outcomes.height == 20
    assert run.variants == ("low", "high")
    assert run.is_complete
    assert run.refusal_index("high").table.n == 10
    assert run.corrected_refusal_index("high").reason == "no_repeated_questions"
    with pytest.raises(OutcomeTableError, match="expected one of low, high, got 'hihg'; did you mean 'high'"):
        run.refusal_index("hihg")
    with pytest.raises(OutcomeTableError, match="expected one of low, high, got None"):
        run.refusal_index()
    again = ri.open_run(run.path)
    assert again.outcomes.equals(run.outcomes)
    assert again.summary.variants == run.summary.variants
    assert run.report("page.html").read_bytes().startswith(b"<!doctype html>")
    assert str(run.path) in repr(run)
    assert "<table" in run._repr_html_()
    pytest.importorskip("pandas")
    assert list(run.to_pandas().columns) == run.outcomes.columns


def test_a_dry_run_sends_and_writes_nothing(tmp_path):
    found = ri.dry_run(models.answer, ROWS, **LOCAL | {"variants": "low,high"})
    assert found.remaining.first.requests.expected == 16
    assert f"{found.model}, {found.dataset}: about {found.requests.expected:,.0f} requests" in repr(found)
    assert "forced pass" in str(found)
    assert "<table" in found._repr_html_()
    assert not ASKED
    assert list(tmp_path.iterdir()) == []
    run = ri.evaluate(models.answer, ROWS, **LOCAL)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    found = ri.dry_run(models.answer, ROWS, **LOCAL | {"variants": "low,high"})
    assert found.remaining.first.requests.expected == 8, "stored replies are subtracted"
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_progress_callback_receives_every_event_in_order():
    events: list[Event] = []
    ri.evaluate(models.answer, ROWS, progress=events.append, **LOCAL)
    assert events[:2] == [Opened(0), Begun("high")]
    assert sum(isinstance(event, Replied) for event in events) == 12
    finished = [event.question_id for event in events if isinstance(event, Finished)]
    assert sorted(finished) == [f"q{n}" for n in range(8)]


def test_raising_callback_ends_the_run_and_keeps_replies(tmp_path):
    class EnoughError(Exception):
        pass

    def once(event: object) -> None:
        if isinstance(event, Replied):
            raise EnoughError

    ASKED.clear()
    how = LOCAL | {"max_connections": 1, "out": tmp_path / "run"}
    with pytest.raises(EnoughError):
        ri.evaluate(models.answer, ROWS, progress=once, **how)
    asked = ASKED.total()
    assert asked <= 2, "only requests in flight"
    run = ri.evaluate(models.answer, ROWS, **how)
    assert run.is_complete
    assert set(ASKED.values()) == {1}


def test_progress_bar_is_shown(capsys):
    ri.evaluate(models.answer, ROWS, progress=True, **LOCAL)
    assert "8/8" in capsys.readouterr().err


def test_interrupt_in_a_running_loop_keeps_replies():
    """As in a notebook, where the run works in a separate thread and the main thread waits for it."""

    async def stopping(messages: list[dict[str, str]]) -> str:
        if ASKED.total() == 5:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.sleep(0.1)
        return models.answer(messages)

    async def cell() -> None:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as a notebook's kernel has it
        try:
            with pytest.raises(KeyboardInterrupt):
                ri.evaluate(stopping, ROWS, model_name="stopping", out="run", **LOCAL | {"max_connections": 1})
        finally:
            signal.signal(signal.SIGINT, before)

    asyncio.run(cell())
    with open_store(RunFolder(Path("run"))) as store:
        assert len(list(store.replies())) == 6, "the one in flight is kept"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temprature": 1}, "no setting is called 'temprature'; did you mean 'temperature'?"),
        ({"temperature": -1}, "temperature: expected a number from 0, got -1"),
        ({"top_p": 2}, "top_p: expected a number from 0 to 1, got 2"),
        ({"temperature": float("nan")}, "temperature: expected a number from 0, got nan"),
        ({"draws": 2.5}, "draws: expected a whole number, got 2.5"),
        ({"draws": True}, "draws: expected a whole number, got True"),
        ({"reasoning_effort": "hihg"}, "reasoning_effort: expected one of none, minimal, .*did you mean 'high'"),
        ({"variants": "hihg"}, "variants: .*did you mean 'high'"),
        ({"placement": "usr"}, "placement: .*did you mean 'user'"),
        ({"engine": "dirct"}, "engine: .*did you mean 'direct'"),
        ({"grader": "exct"}, "grader: .*did you mean 'exact'"),
        ({"repeat_questions": 3, "draws": 1}, "repeat_questions: requires draws of at least 2"),
        ({"price": "two"}, "price: "),
    ],
)
def test_invalid_setting_is_named_and_no_folder_is_made(values, message, tmp_path):
    with pytest.raises(SettingError, match=message) as caught:
        ri.evaluate(models.answer, ROWS, **LOCAL | values)
    assert "{" not in str(caught.value)
    assert not ASKED
    assert list(tmp_path.iterdir()) == []


def test_setting_errors_use_option_names_on_the_command_line():
    error = SettingError("{repeat_questions}: requires {draws} of at least 2")
    assert error.shown(lambda name, _: "--" + name.replace("_", "-")) == (
        "--repeat-questions: requires --draws of at least 2"
    )


def test_runs_can_be_compared_ranked_and_studied():
    settings = {"limit": 40, "variants": "high"}
    runs = [ri.evaluate(f"almanac/{name}", **settings) for name in ("small", "base")]
    assert [variant.name for variant in ri.compare(runs[0], runs[1].path).variants] == ["high"]
    assert ri.rank(runs).to_frame().height == 2
    assert ri.study("results_table", runs).frame.height >= 2
    with pytest.raises(ri.RefusalIndexError, match="did you mean 'results_table'"):
        ri.study("results_tabel", runs)


def test_lone_surrogates_in_replies_are_replaced_and_stay_stable():
    def odd(messages: list[dict[str, str]]) -> str:
        return "<answer>\ud800</answer>"

    run = ri.evaluate(odd, ROWS, model_name="odd", out="run", **LOCAL)
    assert run.outcomes["first_reply"].unique().to_list() == ["<answer>\ufffd</answer>"]
    assert ri.evaluate(odd, ROWS, model_name="odd", out="run", **LOCAL).outcomes.equals(run.outcomes)


@pytest.mark.slow
def test_ri_and_corrected_ri_of_a_run_match_its_summary():
    how = {"limit": 120, "variants": "normal"}
    drawn = ri.evaluate("almanac/small", "almanac", draws=2, **how)
    (variant,) = drawn.summary.variants
    found, corrected = drawn.refusal_index(), drawn.corrected_refusal_index()
    assert (found.estimate, found.status) == (variant.index.estimate, variant.index.status)
    assert (corrected.estimate, corrected.status) == (variant.corrected.estimate, variant.corrected.status)
    assert corrected.n_repeated == 120
    steady = ri.evaluate("almanac/small", "almanac", temperature=0, **how)
    found, corrected = steady.refusal_index(), steady.corrected_refusal_index()
    assert corrected.estimate == pytest.approx(found.estimate, abs=1e-9)
    assert corrected.confidence_interval() == pytest.approx(found.confidence_interval(), abs=1e-9)
