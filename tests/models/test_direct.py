"""The engine that sends requests one by one, against a scripted server."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import shutil
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from inspect_ai.log import transcript
from inspect_ai.model import get_model

import refusal_index as ri
from refusal_index.models.functions import plain_request
from refusal_index.models.requests import ModelError
from refusal_index.plugins.inspect.client import make_client
from refusal_index.protocol import Role, read_logprobs
from refusal_index.runs.direct import DirectEngine
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.execute import execute
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError, open_store
from tests.faults import kinds
from tests.faults.api import Exchange, Misdeed
from tests.models.conftest import INSPECT_MODEL, VARIANTS, both_clients, cells, run
from tests.models.conftest import run as carried
from tests.models.fake_api import FakeApi, is_forced, is_grading, plain_verdict, question_of
from tests.runs import models
from tests.served import KEY_NAME
from tests.tiers import others_nightly

# --- The direct engine

KEY = "sk-very-secret-0123456789abcdef"
TABLE = [
    ("q0", False, False),
    ("q1", True, True),
    ("q2", False, True),
    ("q3", True, False),
    ("q4", False, False),
    ("q5", True, True),
    ("q6", False, True),
    ("q7", True, True),
]
"""The outcomes of `sums`."""


def once(misdeed: Misdeed, number: int = 2) -> Callable[[str, int], Misdeed | None]:
    """Misbehave on the first request about a question."""

    def fault(message: str, sent_before: int) -> Misdeed | None:
        return misdeed if not sent_before and question_of(message).split()[2] == str(number) else None

    return fault


def failure_of(plan: Any) -> str:
    """Run a plan that cannot finish, and return the error of its first question."""
    with suppress(RunFailedError):  # if nothing at all was answered
        carried(plan)
    with open_store(plan.folder) as store:
        return next(iter(store.failures().values()))


def key_name_of(model: str) -> str:
    return "SAMBANOVA_API_KEY" if model == INSPECT_MODEL else KEY_NAME


def graded(message: str) -> str:
    return "A" if is_grading(message) else sums(message)


def test_two_passes_give_the_scripted_table_and_each_request_is_sent_once(plan_for):
    with FakeApi(sums) as api:
        derived = carried(plan_for(api.url, variants=list(VARIANTS)))
        sent = len(api.answered)
        again = carried(plan_for(api.url, variants=list(VARIANTS)))
        assert len(api.answered) == sent == 4 * 8 + 4
    assert cells(derived) == TABLE * 4
    assert again.outcomes.equals(derived.outcomes)
    assert [derived.usage[variant].requests for variant in VARIANTS] == [12, 8, 8, 8]
    assert derived.usage["low"].input_tokens == 12 * 100


def test_inspect_provider_sends_the_same_as_the_openai_client(plan_for):
    sent = []
    for model, grader in (("any", "grader"), (INSPECT_MODEL, "sambanova/grader")):
        with FakeApi(graded) as api:
            carried(plan_for(api.url, model=model, grader=grader, out=grader, draws=2))
        asked = [body for body in api.answered if "capital of France" not in str(body)]
        sent.append(sorted(json.dumps(body, sort_keys=True) for body in asked))
    assert sent[0] == sent[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_one_inspect_model_works_in_several_threads_and_event_loops(plan_for):
    with FakeApi(sums, lambda *_: 0.01) as api:
        out = plan_for(api.url).folder.path.parent
        model, rows = get_model(INSPECT_MODEL, memoize=False), models.ROWS
        settings = {"variants": "normal", "grader": "exact", "max_retries": 0, "max_connections": 4}

        def ask(name: str) -> ri.RunResults:
            return ri.evaluate(model, rows, out=out / name, **settings)

        async def together() -> list[ri.RunResults]:
            return await asyncio.gather(*(ri.evaluate_async(model, rows, out=out / n, **settings) for n in ("c", "d")))

        with ThreadPoolExecutor(2) as threads:
            runs = [*threads.map(ask, ("a", "b")), *asyncio.run(together()), ask("e")]
        assert len(api.answered) == 5 * 12
    assert all(run.outcomes.select("question_id", "refused", "wrong").rows() == TABLE for run in runs)
    model = None
    gc.collect()  # its connections stay open because the caller owns it


def test_inspect_keeps_no_finished_requests(plan_for):
    async def new_events() -> int:
        before = len(transcript().events)
        client = make_client(Role.MODEL, INSPECT_MODEL, None, Settings())
        async with client.connection:
            await client.send(plain_request(Role.MODEL))
        return len(transcript().events) - before

    with FakeApi(lambda _: "A") as api:
        plan_for(api.url)
        assert asyncio.run(new_events()) == 0


@both_clients
def test_concurrent_requests_never_exceed_max_connections(plan_for, model):
    busy, most = 0, 0

    async def counted(exchange: Exchange) -> web.StreamResponse:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.02)
        busy -= 1
        return web.json_response(exchange.answered())

    with FakeApi(sums, lambda *_: counted) as api:
        assert cells(carried(plan_for(api.url, model=model, max_connections=3))) == TABLE
    assert most == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("misdeed", "line"),
    [
        (kinds.ERROR_BODY, "InternalServerError: 200: upstream provider is out of order"),
        (kinds.HTML_AS_JSON, "InternalServerError: 200 text/html: maintenance"),
        (kinds.TRUNCATED_JSON, 'InternalServerError: 200 application/json: {"id": "x", "choi'),
        (kinds.NO_CHOICES, "NoAnswerError: the response holds no choices"),
        (kinds.NULL_CONTENT, "NoAnswerError: the response holds no answer"),
        (kinds.body({"choices": [7, None, "x"]}), "NoAnswerError: the response holds no choices"),
        (kinds.body([]), "InternalServerError: 200 application/json: []"),
        (kinds.RATE_LIMIT, "RateLimitError: 429: Rate limit reached"),
        (kinds.HTML, "InternalServerError: 502 text/html: 502 Bad Gateway"),
        (
            kinds.dropped_connection,
            "ServerDisconnectedError: Server disconnected",
        ),
    ],
)
def test_invalid_response_is_retried_and_reported_in_one_line(plan_for, misdeed, line):
    with FakeApi(sums, once(misdeed)) as api:
        assert cells(carried(plan_for(api.url, max_retries=1))) == TABLE
        assert sum(api.received.values()) == len(api.answered) + 1
    with FakeApi(sums, lambda *_: misdeed) as api:
        assert failure_of(plan_for(api.url, max_retries=0, out="failing")) == line


@pytest.mark.parametrize(
    ("code", "reason"), [("content_filter", "first_content_filter"), ("context_length_exceeded", "first_truncated")]
)
@both_clients
def test_prompt_rejected_by_the_provider_is_unscored_and_not_retried(plan_for, model, code, reason):
    refused = kinds.refused(400, "no such prompt, sk-very-secret", code)
    with FakeApi(sums, once(refused)) as api:
        derived = carried(plan_for(api.url, model=model))
        row = derived.outcomes.row(2, named=True)
        assert (row["question_id"], row["unscored_reason"]) == ("q2", reason)
        assert row["first_reply"] == "no such prompt, [key]"
        assert carried(plan_for(api.url, model=model)).outcomes.equals(derived.outcomes)
        assert sum(api.received.values()) == len(api.answered) + 1


@pytest.mark.slow
@both_clients
def test_retry_after_header_is_respected(plan_for, model):
    slow_down = kinds.refused(429, "slow down", Retry_After="0.4")
    with FakeApi(sums, once(slow_down)) as api:
        began = time.monotonic()
        carried(plan_for(api.url, model=model, max_retries=1))
    assert time.monotonic() - began > 0.4


@pytest.mark.slow
@both_clients
def test_slow_response_times_out(plan_for, model):
    async def drip(exchange: Exchange) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
        await response.prepare(exchange.request)
        for _ in range(100):
            await response.write(b" ")
            await asyncio.sleep(0.1)
        return response

    with FakeApi(sums, lambda *_: drip) as api:
        began = time.monotonic()
        received = failure_of(plan_for(api.url, model=model, max_retries=0, attempt_timeout=1))
    assert "TimeoutError: " in received
    assert time.monotonic() - began < 6


@both_clients
def test_rejected_key_error_names_the_variable_but_not_the_key(plan_for, monkeypatch, model):
    name = key_name_of(model)
    misdeed = kinds.refused(401, f"wrong key {KEY}", "invalid_api_key")
    with FakeApi(sums, lambda *_: misdeed) as api:
        plan = plan_for(api.url, count=30, model=model)
        monkeypatch.setenv(name, KEY)
        with pytest.raises(RunFailedError, match=f"check {name}") as caught:
            carried(plan)
    assert KEY not in str(caught.value)
    assert all(KEY.encode() not in path.read_bytes() for path in plan.folder.path.rglob("*") if path.is_file())


@both_clients
def test_keys_in_replies_are_not_stored(plan_for, monkeypatch, model):
    with FakeApi(lambda _: f"<answer>{KEY}</answer>") as api:
        plan = plan_for(api.url, model=model)
        monkeypatch.setenv(key_name_of(model), KEY)
        derived = carried(plan)
    assert set(derived.outcomes["first_reply"]) == {"<answer>[key]</answer>"}
    assert all(KEY.encode() not in path.read_bytes() for path in plan.folder.path.rglob("*") if path.is_file())


def test_server_without_keys_needs_no_key(plan_for, monkeypatch):
    with FakeApi(sums) as api:
        plan = plan_for(api.url, api_key_env=None)
        assert cells(carried(plan)) == TABLE
    received = {(header.get("Authorization"), header["Content-Type"]) for header in api.headers}
    assert received == {(None, "application/json")}


def test_credentials_in_the_base_url_are_sent_as_basic_auth(plan_for):
    with FakeApi(sums) as api:
        assert cells(carried(plan_for(api.url.replace("//", "//me:hush%40hush@"), api_key_env=None))) == TABLE
    received = {headers["Authorization"] for headers in api.headers}
    assert received == {f"Basic {base64.b64encode(b'me:hush@hush').decode()}"}


@both_clients
def test_missing_choices_are_requested_again(plan_for, model):
    with FakeApi(sums, max_choices=2) as api:
        derived = carried(plan_for(api.url, model=model, draws=5))
    asked = [
        body.get("n", 1)
        for body in api.answered
        if question_of(body["messages"][-1]["content"]).startswith("What is 0")
    ]
    assert asked == [5, 5, 3, 3, 1, 1]
    assert derived.outcomes.height == 8 * 5
    assert derived.usage["normal"].requests == len(api.answered) == 8 * 6


@both_clients
def test_logprobs_are_requested_and_stored(plan_for, model):
    async def reporting(exchange: Exchange) -> web.StreamResponse:
        body = exchange.answered()
        token = {"token": "<answer>", "logprob": -0.25, "bytes": None, "top_logprobs": []}
        for choice in body["choices"]:
            choice["logprobs"] = {"content": [token]}
        return web.json_response(body)

    with FakeApi(sums, lambda *_: reporting) as api:
        plan = plan_for(api.url, model=model, logprobs=True)
        carried(plan)
    assert all(body["logprobs"] is True for body in api.answered)
    with open_store(plan.folder) as store:
        kept = [read_logprobs(reply.logprobs) for reply in store.replies()]
    assert {(token.token, token.logprob) for tokens in kept for token in tokens} == {("<answer>", -0.25)}


@pytest.mark.parametrize("grader", ["grader", "sambanova/grader"])
def test_grader_is_checked_once_before_any_request(plan_for, grader):
    with FakeApi(graded) as api:
        plan = plan_for(api.url, grader=grader)
        derived = carried(plan)
        capital = [message for message in api.messages() if "capital of France" in message]
        assert api.messages()[:3] == capital, "one right, one wrong and one refused answer"
        carried(plan_for(api.url, grader=grader, draws=2))
        assert [message for message in api.messages() if "capital of France" in message] == capital
    assert derived.usage["normal"].requests == 12 + 4 + 4, "those of the model, and a verdict on each answer"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            kinds.KEY_REFUSED,
            "grader 'grader' did not answer: AuthenticationError: 401: Incorrect API key",
        ),
        (kinds.replies_with("B"), "expected the letter A for a plainly right answer, 'Paris' to .*, got 'B'"),
        (kinds.replies_with("A"), "expected the letter B for a plainly wrong answer, 'Berlin' to .*, got 'A'"),
        (kinds.NULL_CONTENT, "did not answer: NoAnswerError"),
    ],
)
def test_unusable_grader_raises_before_any_paid_request(plan_for, fault, message):
    with FakeApi(graded, lambda text, _: fault if is_grading(text) else None) as api:
        with pytest.raises(RunFailedError if "did not answer" in message else ModelError, match=message):
            carried(plan_for(api.url, grader="grader"))
        assert all(map(is_grading, api.messages()))


def test_two_graders_of_a_server_must_agree(plan_for):
    async def judge(exchange: Exchange) -> web.StreamResponse:
        plain = plain_verdict(exchange.body["messages"][-1]["content"])
        verdict = plain or ("A" if exchange.body["model"] == "one" else "B")
        return web.json_response(exchange.answered((verdict, "stop")))

    with FakeApi(graded, lambda message, _: judge if is_grading(message) else None) as api:
        derived = carried(plan_for(api.url, grader="one,other"))
    assert set(derived.outcomes.filter(refused=False)["unscored_reason"]) == {"first_graders_disagree"}


def test_function_graders_run_in_process(plan_for):
    models.ASKED.clear()
    with FakeApi(sums) as api:
        derived = carried(plan_for(api.url, grader="python:tests.runs.models:judge"))
    assert cells(derived) == TABLE
    assert len(api.answered) == 12
    assert models.ASKED["judge"] == 1 + 8, "a plainly wrong answer, and those of the model"


def test_function_grader_is_checked_once_although_the_run_ended_before_any_grade(plan_for, tmp_path):
    async def opened(store: ReplyStore) -> None:
        async with DirectEngine(plan.settings, {Role.GRADER: plan.settings.grader}, {}).open(store):
            pass

    plan = plan_for("", model="python:tests.runs.models:answer", grader="python:tests.runs.models:judge")
    models.ASKED.clear()
    for _ in range(2):
        with ReplyStore(tmp_path / "replies.sqlite") as store:
            asyncio.run(opened(store))
    assert models.ASKED["judge"] == 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({Role.MODEL: "any"}, "expected PROVIDER/NAME.*base_url"),
        ({Role.MODEL: "openai/gpt-4.1"}, "OPENAI_API_KEY.*own with base_url and api_key_env"),
        ({Role.GRADER: "any"}, "grader: .*expected PROVIDER/NAME.*grader_base_url.*grader includes"),
        ({Role.GRADER: "openai/gpt-4.1"}, "grader: .*OPENAI_API_KEY.*own with grader_base_url.*grader includes"),
        ({Role.MODEL: "in memory"}, "model 'in memory': expected a function or an Inspect model, got object"),
        ({Role.MODEL: "python:tests.runs.models:no_such"}, "expected a function"),
    ],
)
def test_misconfigured_models_raise_at_once(monkeypatch, names, message):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelError, match=message):
        DirectEngine(Settings(), names, {"in memory": object()})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StoreError("no room for q4"), "no room for q4; no further requests are sent"),
        (OverflowError("q4 is too large"), r"a reply cannot be kept \(OverflowError: q4 is too large\)"),
    ],
)
def test_unstorable_reply_ends_the_run_without_losing_others(plan_for, monkeypatch, error, message):
    put = ReplyStore.put

    def picky(self: ReplyStore, completions: Any) -> None:
        if any(completion.question_id == "q4" for completion in completions):
            raise error
        put(self, completions)

    monkeypatch.setattr(ReplyStore, "put", picky)
    with FakeApi(sums) as api:
        plan = plan_for(api.url, max_connections=8)
        with pytest.raises(RunFailedError, match=message):
            carried(plan)
    with open_store(plan.folder) as store:
        kept = sum(reply.requests for reply in store.replies())
    assert kept == len(api.answered) - 1


def test_next_request_waits_until_the_reply_is_on_disk(plan_for):
    """Every request follows from what the file contains at that moment."""
    seen: list[bool] = []

    def fault(message: str, _sent: int) -> None:
        if is_forced(message):
            seen.append(first_reply_is_stored(folder, question_of(message)))

    folder: Path = Path()
    with FakeApi(sums, fault) as api:
        plan = plan_for(api.url, max_connections=8)
        folder = plan.folder.replies
        carried(plan)
    assert seen == [True] * 4


def first_reply_is_stored(path: Path, question: str) -> bool:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        found = connection.execute(
            "SELECT count(*) FROM replies WHERE question_id = ? AND pass = 'first'", (f"q{question.split()[2]}",)
        ).fetchone()
    finally:
        connection.close()
    return found == (1,)


@both_clients
def test_cancelling_keeps_received_replies(plan_for, model):
    async def hanging_after(exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.json_response(exchange.answered())

    def fault(message: str, _sent: int) -> Misdeed | None:
        return hanging_after if int(question_of(message).split()[2]) >= 4 else None

    async def cut_off(plan: Any) -> None:
        running = asyncio.create_task(execute(plan))
        while len(api.answered) < 6:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with FakeApi(sums, fault) as api:
        plan = plan_for(api.url, model=model, max_connections=8, attempt_timeout=1)
        asyncio.run(cut_off(plan))
        with open_store(plan.folder) as store:
            assert sum(reply.requests for reply in store.replies()) == len(api.answered) == 6
        api._fault = None
        assert cells(carried(plan)) == TABLE
    assert len(api.answered) == 12


# --- Sharing of forced requests


def sums(message: str) -> str:
    """Refuse odd numbers unless forced; forced answers are right for multiples of 3."""
    number = int(question_of(message).split()[2])
    if number % 2 and not is_forced(message):
        return "<answer>UNANSWERED</answer>"
    right = number % 3 == 0 if is_forced(message) else number % 4 == 0
    return f"<answer>{2 * number if right else 'none'}</answer>"


def test_each_request_is_one_user_message_with_its_own_seed(plan_for):
    with FakeApi(sums) as api:
        run(plan_for(api.url, count=8, variants=list(VARIANTS)))
    assert all([message["role"] for message in body["messages"]] == ["user"] for body in api.answered)
    seeds = [body["seed"] for body in api.answered]
    assert len(set(seeds)) == len(seeds)
    assert {body["temperature"] for body in api.answered} == {0.7}
    assert {body["top_p"] for body in api.answered} == {0.95}


def error(status: int, message: str = "no") -> web.Response:
    return web.json_response({"error": {"message": message, "type": "t", "code": None}}, status=status)


def truncated_json() -> web.Response:
    return web.Response(text='{"id": "x", "choi', content_type="application/json")


def no_choices() -> web.Response:
    return web.json_response({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []})


TRANSIENT = {
    "429": lambda: error(429),
    "500": lambda: error(500),
    "html": lambda: web.Response(status=502, text="<html>bad gateway</html>", content_type="text/html"),
    "truncated JSON": truncated_json,
    "no choices": no_choices,
    "nothing at all": lambda: 30.0,
}


@pytest.mark.slow
@others_nightly("fault", TRANSIENT)
def test_transient_fault_through_inspect_changes_nothing(fault, plan_for):
    def first_time_of_q3(message: str, sent_before: int) -> web.StreamResponse | float | None:
        return TRANSIENT[fault]() if "3 plus 3" in question_of(message) and sent_before == 0 else None

    with FakeApi(sums, first_time_of_q3) as api:
        derived = run(plan_for(api.url, model=INSPECT_MODEL))
    assert not derived.missing
    assert ("q3", True, False) in cells(derived)


@pytest.mark.slow
@both_clients
def test_permanent_400_is_reported_and_other_questions_count(plan_for, model):
    def always_q3(message: str, sent_before: int) -> web.StreamResponse | None:
        return error(400, "this question breaks the server") if "3 plus 3" in question_of(message) else None

    with FakeApi(sums, always_q3) as api:
        derived = run(plan_for(api.url, model=model))
        assert [(missing.variant, missing.question_id) for missing in derived.missing] == [("normal", "q3")]
        assert "breaks the server" in derived.missing[0].error
        assert cells(derived)[3] == ("q3", None, None)
        assert derived.outcomes["unscored_reason"].to_list()[3] == "request_failed"
        assert derived.outcomes["refused"].null_count() == 1
        sent = len(api.answered)
        api._fault = None
        fixed = run(plan_for(api.url, model=model))
        assert len(api.answered) == sent + 2, "only the missing question is asked, in both passes"
    assert not fixed.missing


@both_clients
def test_truncated_or_filtered_reply_is_unscored_not_refused(plan_for, model):
    def cut(message: str) -> str:
        number = int(question_of(message).split()[2])
        return {0: "<answer>UNANSWERED</answer>[length]", 1: "I will not[content_filter]"}.get(number, sums(message))

    with FakeApi(cut) as api:
        derived = run(plan_for(api.url, count=4, model=model))
    assert cells(derived)[:2] == [("q0", None, None), ("q1", None, None)]
    assert derived.outcomes["unscored_reason"].to_list()[:2] == ["first_truncated", "first_content_filter"]


def grading(message: str) -> str:
    """Answer in words; as the grader, accept 0, 4, ..., call 2 not attempted and reply unreadably to 6."""
    if not is_grading(message):
        return sums(message).replace("<answer>none</answer>", "It is none.")
    if "capital of France" in message:
        return "A"
    number = int(message.split("What is ")[1].split(maxsplit=1)[0])
    return {0: "A", 2: "C", 4: "CORRECT", 6: "hm"}.get(number, "B")


@both_clients
def test_model_grader_is_asked_again_after_an_unreadable_grade(plan_for, model):
    with FakeApi(grading) as api:
        plan = plan_for(api.url, model=model, grader=model.replace("any", "grader"))
        derived = run(plan)
    by_id = {row["question_id"]: row for row in derived.outcomes.iter_rows(named=True)}
    assert (by_id["q0"]["refused"], by_id["q0"]["wrong"]) == (False, False)
    assert (by_id["q2"]["refused"], by_id["q2"]["first_grade"]) == (True, "refused")
    assert by_id["q2"]["forced_reply"] is not None
    assert by_id["q2"]["forced_grade"] == "refused", "NOT_ATTEMPTED when forced"
    assert by_id["q2"]["wrong"] is True
    assert (by_id["q6"]["refused"], by_id["q6"]["unscored_reason"]) == (None, "first_grade_unreadable")
    asked_about_6 = [m for m in api.messages() if is_grading(m) and "What is 6" in m]
    assert len(asked_about_6) == 2
    assert is_grading(api.messages()[0]), "the grader is checked before the first question"
    graders = [body for body in api.answered if is_grading(body["messages"][-1]["content"])]
    assert all("temperature" not in body for body in graders), "the grader keeps its provider's settings"


@both_clients
def test_echoed_key_is_in_no_file_of_the_run(plan_for, model):
    def echo(message: str, sent_before: int) -> web.StreamResponse | None:
        return error(400, "bad key sk-very-secret") if "3 plus 3" in question_of(message) else None

    with FakeApi(sums, echo) as api:
        plan = plan_for(api.url, count=4, model=model)
        derived = run(plan)
    assert "sk-very-secret" not in json.dumps([missing.error for missing in derived.missing])
    assert "[key]" in derived.missing[0].error
    assert not any(b"sk-very-secret" in path.read_bytes() for path in plan.folder.path.rglob("*") if path.is_file())


def test_store_of_another_run_raises_before_any_request(plan_for):
    """Its questions used to be counted among those of the run."""
    with FakeApi(sums) as api:
        run(plan_for(api.url, count=3))
        run(plan_for(api.url, count=6, out="other"))
        ours, sent = plan_for(api.url, count=3), sum(api.received.values())
        shutil.copy(ours.folder.path.parent / "other/replies.sqlite", ours.folder.replies)
        with pytest.raises(StoreError, match="holds 3 questions that this run does not ask, such as 'q3'"):
            run(ours)
        assert sum(api.received.values()) == sent
