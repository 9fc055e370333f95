"""Every kind of response, odd counts, and replies cut inside a character."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from aiohttp import web
from inspect_ai.model import GenerateConfig, ModelOutput

import refusal_index as ri
from refusal_index.data.outcome import Question
from refusal_index.models.chat_api import read_chat, usual
from refusal_index.models.failures import CircuitBreaker, NoAnswerError
from refusal_index.models.openai_client import post_chat
from refusal_index.models.requests import ModelRequest, Response
from refusal_index.plugins.batches.formats import read_result
from refusal_index.plugins.inspect.client import choices_of, replies_in, resolve_model
from refusal_index.protocol import Conversation, GraderKind, Protocol, StopReason, TwoPass, load_prompt_set
from refusal_index.protocol.reading import ReadAs, RecognisedBy, read_reply
from refusal_index.runs.conversing import converse
from refusal_index.runs.engine import Assignment
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore
from tests.models.conftest import INSPECT_MODEL, both_clients, run
from tests.models.fake_api import FakeApi, completion, is_grading
from tests.served import at, is_served

# --- Every kind of response

CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
TEXT = "<answer>1</answer>"
LOST: dict[str, Any] = {"content": None}


def response(*choices: tuple[dict[str, Any], str | None]) -> dict[str, Any]:
    body = completion(*[("", "stop")] * len(choices))
    for place, (message, reason) in enumerate(choices):
        body["choices"][place] |= {"message": {"role": "assistant", **message}, "finish_reason": reason}
    return body


async def _generate(count: int) -> ModelOutput:
    async with resolve_model(INSPECT_MODEL) as model:
        model.api.should_retry = lambda _: False
        return await model.generate("Who?", config=GenerateConfig(num_choices=count))


@pytest.fixture
def choices_from(monkeypatch: pytest.MonkeyPatch):
    """Return a function that reads the choices of a server's response."""

    def read_choices(*choices: tuple[dict[str, Any], str | None]) -> Sequence[tuple[str, StopReason] | None]:
        with FakeApi(lambda _: "", lambda *_: web.json_response(response(*choices))) as api:
            monkeypatch.setenv("SAMBANOVA_API_KEY", "sk-very-secret")
            monkeypatch.setenv("SAMBANOVA_BASE_URL", api.url)
            return choices_of(asyncio.run(_generate(len(choices))))

    return read_choices


@pytest.mark.parametrize(
    ("message", "finish_reason", "expected"),
    [
        ({"content": TEXT}, "stop", (TEXT, StopReason.STOP)),
        ({"content": ""}, "stop", ("", StopReason.STOP)),
        ({"content": None, "refusal": "I will not."}, "stop", ("I will not.", StopReason.REFUSAL)),
        ({"content": TEXT, "refusal": ""}, "stop", (TEXT, StopReason.STOP)),
        ({"content": [{"type": "refusal", "refusal": "I will not."}]}, "stop", ("I will not.", StopReason.REFUSAL)),
        ({"content": "I will not."}, "refusal", ("I will not.", StopReason.REFUSAL)),
        ({"content": None}, "refusal", ("", StopReason.REFUSAL)),
        ({"content": None, "refusal": "I will n"}, "length", ("I will n", StopReason.LENGTH)),
        ({"content": None, "refusal": "Filtered."}, "content_filter", ("Filtered.", StopReason.CONTENT_FILTER)),
        ({"content": None, "reasoning_content": "Rome? No."}, "stop", ("", StopReason.STOP)),
        ({"content": "", "reasoning": "Rome? No."}, "length", ("", StopReason.LENGTH)),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]},
            "stop",
            ("", StopReason.STOP),
        ),
        ({"content": "<think>Rome?</think> Lima"}, "stop", ("<think>Rome?</think> Lima", StopReason.STOP)),
        ({"content": " Lima\n"}, "stop", (" Lima\n", StopReason.STOP)),
        ({"content": TEXT}, "end_turn", (TEXT, StopReason.STOP)),
        ({"content": TEXT}, "eos_token", (TEXT, StopReason.STOP)),
        ({"content": TEXT}, "STOP", (TEXT, StopReason.STOP)),
        ({"content": TEXT}, None, (TEXT, StopReason.STOP)),
        ({"content": "<answer>co"}, "max_tokens", ("<answer>co", StopReason.LENGTH)),
        ({"content": "<answer>co"}, "MAX_TOKENS", ("<answer>co", StopReason.LENGTH)),
        ({"content": "<answer>co"}, "SAFETY", ("<answer>co", StopReason.CONTENT_FILTER)),
        ({"content": None}, "length", ("", StopReason.LENGTH)),
        ({"content": None}, "content_filter", ("", StopReason.CONTENT_FILTER)),
        ({"content": None, "tool_calls": [CALL]}, "tool_calls", ("", StopReason.TOOL_CALL)),
        ({"content": None, "tool_calls": [CALL]}, "stop", ("", StopReason.TOOL_CALL)),
        ({"content": " ", "tool_calls": [CALL]}, "tool_calls", (" ", StopReason.TOOL_CALL)),
        ({"content": TEXT, "tool_calls": [CALL]}, "tool_calls", (TEXT, StopReason.TOOL_CALL)),
        ({"content": TEXT, "tool_calls": [CALL]}, "stop", (TEXT, StopReason.STOP)),
    ],
)
def test_each_kind_of_response_is_distinguished_by_both_clients_and_in_batches(
    choices_from, message, finish_reason, expected
):
    body = response((message, finish_reason))
    assert read_chat(body).replies == [expected]
    assert read_chat(usual(body)).replies == [expected], "as the clients read it over HTTP"
    assert read_result(batch_line(body)).response.replies == [expected]
    assert choices_from((message, finish_reason)) == [expected]


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource", "CANCELLED", "tired"])
def test_reply_that_an_error_cut_off_is_not_whole(choices_from, reason):
    """It used to count as a whole reply."""
    partial, lost = ({"content": "<answer>co"}, reason), ({"content": ""}, reason)
    assert (
        choices_from(partial, lost)
        == read_chat(response(partial, lost)).replies
        == [("<answer>co", StopReason.UNKNOWN), None]
    )


@pytest.mark.parametrize("error", [{"code": 429, "message": "try later"}, "try later"])
@pytest.mark.parametrize("is_in_choice", [False, True])
def test_error_next_to_or_inside_a_choice_is_a_failure(error, is_in_choice):
    """Its partial text used to count as a reply."""
    body = response(({"content": "<answer>co"}, "stop"))
    (body["choices"][0] if is_in_choice else body)["error"] = error
    with pytest.raises(NoAnswerError, match="try later"):
        read_chat(body)
    failure = read_result(batch_line(body)).failure
    assert failure is not None
    assert failure.kind.is_sent_again
    assert "try later" in failure.message


@pytest.mark.parametrize("error", [None, "", {}, {"code": 0, "message": ""}])
def test_empty_error_is_none(error):
    body = response(({"content": TEXT, "refusal": None}, "stop")) | {"error": error}
    assert read_chat(body).replies == [(TEXT, StopReason.STOP)]


def test_only_the_choice_that_an_error_ended_is_without_an_answer():
    body = response(({"content": TEXT}, "stop"), ({"content": "<answer>co"}, "stop"))
    body["choices"][1]["error"] = {"code": 502}
    assert read_chat(body).replies == read_chat(usual(body)).replies == [(TEXT, StopReason.STOP), None]


def test_refusal_of_the_provider_is_a_refusal_whatever_it_says():
    reading = read_reply("The capital is Lima.", stop_reason=StopReason.REFUSAL)
    assert (reading.read_as, reading.recognised_by) == (ReadAs.REFUSAL, RecognisedBy.FLAG)


def test_reply_with_an_unknown_stop_is_unscored():
    assert read_reply(TEXT, stop_reason=StopReason.UNKNOWN).unscored_reason == "unknown_stop"


def batch_line(body: dict[str, Any]) -> dict[str, Any]:
    return {"custom_id": "ri-1", "response": {"status_code": 200, "body": body}, "error": None}


@pytest.mark.parametrize(
    "choices",
    [[(LOST, "stop")], [(LOST, None)], [({}, "stop")], [({"content": 42}, "stop")], [(LOST, "stop")] * 3],
)
def test_response_without_text_raises(choices_from, choices):
    """It used to be stored as an empty reply and never requested again."""
    with pytest.raises(NoAnswerError, match="the response holds no text"):
        choices_from(*choices)


def test_choices_with_an_answer_keep_their_positions(choices_from):
    choices = choices_from(
        (LOST, "stop"), ({"content": TEXT}, "stop"), (LOST, "stop"), (LOST, "length"), ({"content": TEXT}, "stop")
    )
    assert choices == [None, (TEXT, StopReason.STOP), None, ("", StopReason.LENGTH), (TEXT, StopReason.STOP)]


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"choices": None},
        {"choices": [None, "x"]},
        {"choices": [{"text": "a"}]},
        {"content": [{"text": None}]},
    ],
)
def test_malformed_responses_hold_no_replies(given):
    assert replies_in(given) is None


def test_choices_are_identified_by_index():
    first, second = ({"index": 1, "message": LOST}, {"index": 0, "message": {"content": "a"}})
    assert replies_in({"choices": [first, second]}) == [("a", StopReason.STOP), None]


@both_clients
def test_null_is_retried_and_a_tool_call_is_unscored(plan_for, model):
    def fault(message: str, sent_before: int) -> web.Response | None:
        if "What is 0 plus" in message and sent_before == 0:
            return web.json_response(response((LOST, "stop")))
        if "What is 1 plus" in message:
            return web.json_response(response(({"content": None, "tool_calls": [CALL]}, "tool_calls")))
        return None

    with FakeApi(lambda _: TEXT, fault) as api:
        derived = run(plan_for(api.url, count=3, model=model))
        assert set(api.received.values()) == {1, 2}
    assert derived.outcomes["unscored_reason"].to_list() == [None, "first_tool_call", None]
    assert derived.outcomes["first_reply"].to_list() == [TEXT, "", TEXT]


@both_clients
def test_only_draws_with_null_choices_are_requested_again(plan_for, model):
    bodies: list[int] = []

    def fault(_message: str, _sent_before: int) -> web.Response | None:
        bodies.append(1)
        one = ({"content": TEXT}, "stop")
        return web.json_response(response(one, (LOST, "stop"), one)) if len(bodies) == 1 else None

    with FakeApi(lambda _: TEXT, fault, max_choices=3) as api:
        derived = run(plan_for(api.url, count=1, draws=3, model=model))
    assert [body.get("n") for body in api.answered] == [3, None], "the forced pass, and the one draw that is missing"
    assert derived.outcomes["first_reply"].to_list() == [TEXT] * 3


# --- Malformed usage


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [-5, 2**53 + 1, 10**20])
@both_clients
def test_impossible_token_counts_lose_no_reply(plan_for, tokens, model):
    """A negative count used to make the store unreadable, and one beyond SQLite's integers lost the reply."""
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": tokens}
    body = completion(("<answer>2</answer>", "stop")) | {"usage": usage}
    with FakeApi(lambda _: "", lambda *_: web.json_response(body)) as api:
        first = run(plan_for(api.url, count=2, model=model))
        sent = len(api.received)
        again = run(plan_for(api.url, count=2, model=model))
        assert (sent, len(api.received)) == (2, 2)
    assert first.outcomes["unscored_reason"].to_list() == [None, None]
    assert again.outcomes.equals(first.outcomes)
    assert (again.usage["normal"].input_tokens, again.usage["normal"].output_tokens) == (0, 0)


def test_unstorable_reply_ends_the_run_and_is_reported(monkeypatch):
    """The run used to continue, lose every further reply and say that nothing was answered."""
    protocol = Protocol(load_prompt_set("default"), "low", GraderKind.EXACT)
    conversation = Conversation(Question("q", "Who?", "Ann"), "low", TwoPass(GraderKind.EXACT, protocol))
    breaker = CircuitBreaker()

    def raise_overflow(_self: ReplyStore, _completions: object) -> None:
        raise OverflowError("too large")

    async def send(_ask: ModelRequest) -> Response:
        return Response([("<answer>Ann</answer>", StopReason.STOP)])

    monkeypatch.setattr(ReplyStore, "put", raise_overflow)
    with ReplyStore(None) as store, pytest.raises(OverflowError):
        asyncio.run(
            converse(
                Assignment("sums", "low", [conversation], Settings(), store, breaker=breaker),
                conversation,
                send,
                pytest.fail,
            )
        )
    assert "a reply cannot be kept (OverflowError: too large); no further requests are sent" in breaker.reason


# --- Replies cut inside a character

HALF = "cut \ud83d"
QUESTIONS = [
    {"id": "q1", "question": "What is it?", "answer": "it \ud83d", "context": "half \udc00", "topic": "t\ud83d"}
]


def scripted(message: str) -> str:
    message.encode()  # what was sent can be encoded
    return "A" if is_grading(message) else f"<answer>{HALF}</answer>"


@both_clients
def test_reply_with_a_lone_surrogate_is_graded_once_over_http(tmp_path, monkeypatch, model):
    """Such an answer used to stay ungraded and was requested again by every command."""
    with FakeApi(scripted) as api:
        monkeypatch.setenv("SAMBANOVA_BASE_URL", api.url)
        monkeypatch.setenv("SAMBANOVA_API_KEY", "sk-none-needed")
        servers = at(api.url, graded=True) if is_served(model) else {}
        run = {
            **servers,
            "grader": model.replace("any", "grader"),
            "variants": "high",
            "out": tmp_path / "r",
            "placement": "user",
        }
        found = ri.evaluate(model, QUESTIONS, **run)
        sent = len(api.answered)
        again = ri.evaluate(model, QUESTIONS, **run)
        assert len(api.answered) == sent
    for one in (found, again):
        assert one.outcomes.select("first_reply", "wrong", "unscored_reason").row(0) == (
            "<answer>cut \ufffd</answer>",
            False,
            None,
        )


def test_functions_exchange_encodable_text(tmp_path):
    def grader(question, answer):
        return (question.gold, answer) == ("it \ufffd", "cut \ufffd")

    run = {"grader": grader, "grader_name": "g", "model_name": "m", "variants": "high"}
    found = ri.evaluate(lambda messages: scripted(messages[-1]["content"]), QUESTIONS, out=tmp_path / "r", **run)
    assert found.outcomes["wrong"].to_list() == [False]


def test_body_of_a_response_that_no_hook_normalised_is_parsed() -> None:
    class Client:
        async def post(self, *_: object, **__: object) -> httpx2.Response:
            return httpx2.Response(201, content=b'{"choices": []}')

    assert asyncio.run(post_chat(Client(), b"{}", 5.0)) == {"choices": []}
