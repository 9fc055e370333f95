"""Calls of functions that exit, hang, are cancelled or raise what cannot be shown."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path

import pytest

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.models.calls import FunctionCaller, FunctionError, ReturnedTypeError
from refusal_index.models.failures import FailureKind
from refusal_index.models.functions import classify_function_error
from refusal_index.models.requests import ModelError
from refusal_index.runs.store import open_store
from tests.runs import models
from tests.runs.models import LOCAL, ROWS


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Unshown:
    def __repr__(self) -> str:
        raise ValueError("no repr")


RAISED = {
    "sys.exit": SystemExit(0),
    "cancelled": asyncio.CancelledError(),
    "generator exit": GeneratorExit(),
    "own base class": type("OwnError", (BaseException,), {})("own"),
    "group": BaseExceptionGroup("two", [SystemExit(3), ValueError("no")]),
    "without text": UnreadableError(),
    "stop iteration": StopIteration(),
}


def raising(error: BaseException):
    def function(question, *, must_answer=False):
        raise error

    async def coroutine(question, *, must_answer=False):
        await asyncio.sleep(0)
        raise error

    return {"thread": function, "coroutine": coroutine}


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
def test_whatever_a_function_raises_becomes_one_error(error, kind):
    with pytest.raises(FunctionError, match="own raised ") as caught:
        asyncio.run(FunctionCaller(raising(error)[kind], "own")("?"))
    assert classify_function_error(caught.value, "own").kind is FailureKind.OWN


def test_wrong_type_is_not_retried():
    error = ReturnedTypeError("own", "returned 3, expected the reply as text")
    assert classify_function_error(error, "own").kind is FailureKind.REQUEST


def test_keyboard_interrupt_in_a_thread_is_not_the_users():
    with pytest.raises(FunctionError, match="own raised KeyboardInterrupt"):
        asyncio.run(FunctionCaller(raising(KeyboardInterrupt())["thread"], "own")("?"))


@pytest.mark.parametrize("is_async", [False, True])
def test_function_that_hangs_fails_at_the_time_limit_like_a_request_without_a_response(is_async):
    release = threading.Event()

    def function():
        release.wait(60)

    async def coroutine():
        await asyncio.sleep(60)

    try:
        with pytest.raises(FunctionError, match=r"own did not return within 0\.05 seconds") as caught:
            asyncio.run(FunctionCaller(coroutine if is_async else function, "own", 0.05)())
    finally:
        release.set()
    assert classify_function_error(caught.value, "own").kind is FailureKind.PASSING


def test_a_call_that_waits_for_a_thread_is_not_timed():
    def function():
        time.sleep(0.15)
        return "x"

    async def several() -> list[str]:
        call = FunctionCaller(function, "own", 0.4, threads=1)
        return await asyncio.gather(*(call() for _ in range(5)))

    assert asyncio.run(several()) == ["x"] * 5


def test_a_coroutine_that_cancels_itself_fails_alone():
    async def coroutine():
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    async def both() -> str:
        with pytest.raises(FunctionError, match="raised CancelledError"):
            await FunctionCaller(coroutine, "own")()
        return "goes on"

    assert asyncio.run(both()) == "goes on"


def test_cancelling_a_call_cancels_its_coroutine():
    ended = []

    async def coroutine():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def cancelled() -> None:
        task = asyncio.ensure_future(FunctionCaller(coroutine, "own")())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)

    asyncio.run(cancelled())
    assert ended


def test_returned_object_that_cannot_be_shown_is_named_by_its_class():
    with pytest.raises(ri.RefusalIndexError, match="returned <Unshown>, expected the reply as text"):
        ri.evaluate(lambda question, must_answer=False: Unshown(), ROWS, model_name="own", **LOCAL)


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
@pytest.mark.parametrize(
    "error", [SystemExit(0), asyncio.CancelledError(), UnreadableError()], ids=["exit", "cancelled", "without text"]
)
def test_one_failed_call_leaves_its_question_unscored_and_no_other(error, kind):
    fails = raising(error)[kind]

    def function(messages):
        return fails("?") if models.number_in(messages[-1]["content"]) == 3 else models.answer(messages)

    run = ri.evaluate(function, ROWS, model_name="own", out="run", **LOCAL)
    assert [one.question_id for one in run.missing] == ["q3"]
    assert type(error).__name__ in run.missing[0].error
    with open_store(run.folder) as store:
        assert len({reply.question_id for reply in store.replies()}) == len(ROWS) - 1


@pytest.mark.parametrize("statement", ["import sys; sys.exit()", "raise SystemExit(3)"])
def test_module_that_exits_when_it_is_imported_is_named(statement, tmp_path, monkeypatch):
    (tmp_path / "own_exiting.py").write_text(f"{statement}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match="own_exiting cannot be imported"):
        ri.evaluate("python:own_exiting:answer", ROWS, **LOCAL)
    assert "own_exiting" not in sys.modules


def test_refusal_function_that_exits_is_named():
    with pytest.raises(FunctionError, match="raised SystemExit"):
        ri.evaluate(models.answer, ROWS, **LOCAL | {"refusal": exits})


def exits(_reply):
    sys.exit(0)


def test_sibling_failure_in_a_task_group_keeps_the_replies_in_flight():
    begun = asyncio.Event()

    async def slow(messages):
        begun.set()
        await asyncio.sleep(0.2)
        return models.answer(messages)

    async def sibling() -> None:
        await begun.wait()
        raise ValueError("sibling")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ri.evaluate_async(slow, ROWS, model_name="slow", out="run", **LOCAL))
            group.create_task(sibling())

    with pytest.raises(ExceptionGroup):
        asyncio.run(both())
    with open_store(RunFolder(Path("run"))) as store:
        assert len(list(store.replies())) == len(ROWS)
