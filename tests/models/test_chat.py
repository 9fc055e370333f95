"""OpenAI's chat format: bodies of requests, and responses whatever they hold."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from refusal_index.models import chat_api
from refusal_index.models.chat_api import MAX_RESPONSE_BYTES, chat_body, read_chat, receive, rewrite
from refusal_index.models.failures import (
    FailureKind,
    NoAnswerError,
    UnreadableReplyError,
    classify_error,
    describe_error,
)
from refusal_index.models.requests import ModelRequest, model_request
from refusal_index.plugins.inspect.client import resolve_model
from refusal_index.protocol import (
    Conversation,
    GraderKind,
    Pass,
    Placement,
    Protocol,
    Role,
    Step,
    StopReason,
    TwoPass,
    load_prompt_set,
    next_requests,
)
from refusal_index.protocol.conversation import PendingRequest
from refusal_index.runs.settings import Settings
from tests.models.batches.answering import questions

# --- OpenAI's chat format

STOP = StopReason.STOP


def ask_of(
    asked: Role = Role.MODEL, placement: Placement = Placement.USER, draws: int = 1, **changes: Any
) -> ModelRequest:
    """Return a first request, or one to a grader."""
    protocol = Protocol(load_prompt_set("default"), "low", GraderKind.MODEL, placement)
    conversation = Conversation(questions(1)[0], "low", TwoPass(GraderKind.MODEL, protocol), draws)
    one = (
        next_requests(conversation, [])[0]
        if asked is Role.MODEL
        else PendingRequest(Step(Pass.FIRST, asked, prediction="4"))
    )
    return model_request(Settings.from_values(**changes), conversation, one)


def test_model_request_uses_the_settings_of_the_run():
    ask = ask_of(temperature=0.3, top_p=0.9, max_tokens=77)
    body = chat_body(ask, "any")
    (message,) = body.pop("messages")
    assert message == {"role": "user", "content": ask.request.messages[0].content}
    assert "What is 0 plus 0?" in message["content"]
    assert body == {"model": "any", "seed": ask.seed, "temperature": 0.3, "top_p": 0.9, "max_tokens": 77}


def test_instruction_can_be_a_system_message():
    body = chat_body(ask_of(placement=Placement.SYSTEM), "any")
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_openai_uses_max_completion_tokens():
    body = chat_body(ask_of(max_tokens=77), "gpt-4.1", "openai")
    assert body["max_completion_tokens"] == 77
    assert "max_tokens" not in body


@pytest.mark.parametrize("model", ["o1", "o3-mini", "o4-mini-2025-04-16", "gpt-5", "gpt-5-mini", "gpt-5.1"])
def test_openai_reasoning_models_get_no_temperature(model):
    at_openai, elsewhere = chat_body(ask_of(), model, "openai"), chat_body(ask_of(), model, "openrouter")
    assert not {"temperature", "top_p"} & at_openai.keys()
    assert {"temperature", "top_p"} <= elsewhere.keys()


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1", "gpt-5-chat-latest", "ft:gpt-4o:me", "open-o1"])
def test_other_openai_models_get_a_temperature(model):
    assert chat_body(ask_of(temperature=0.0), model, "openai")["temperature"] == 0.0


def test_reasoning_effort_is_sent_only_if_set():
    assert chat_body(ask_of(reasoning_effort="low"), "any")["reasoning_effort"] == "low"
    assert "reasoning_effort" not in chat_body(ask_of(), "any")


def test_grader_requests_use_provider_defaults():
    body = chat_body(ask_of(Role.GRADER, temperature=0.3, reasoning_effort="low", logprobs=True), "any", "openai")
    assert set(body) == {"model", "messages", "seed"}


def test_several_draws_are_several_choices():
    assert chat_body(ask_of(draws=5), "any")["n"] == 5
    assert chat_body(ask_of(draws=5, max_choices=3), "any")["n"] == 3
    assert "n" not in chat_body(ask_of(), "any")


def test_logprobs_are_requested_only_if_wanted():
    body = chat_body(ask_of(logprobs=True), "any")
    assert body["logprobs"] is True
    assert "top_logprobs" not in body
    assert chat_body(replace(ask_of(), top_logprobs=20), "any")["top_logprobs"] == 20
    assert "logprobs" not in chat_body(ask_of(), "any")


@pytest.mark.parametrize("provider", ["", "openai"])
@pytest.mark.parametrize("changes", [{}, {"logprobs": True, "reasoning_effort": "minimal", "draws": 3}])
def test_body_against_the_types_of_the_official_client(provider, changes):
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

    for ask in (ask_of(**changes), ask_of(Role.GRADER, **changes), ask_of(placement=Placement.SYSTEM, **changes)):
        body = chat_body(ask, "gpt-4.1", provider)
        TypeAdapter(CompletionCreateParamsNonStreaming).validate_python(body, strict=False)
        assert set(body) <= set(CompletionCreateParamsNonStreaming.__annotations__)
        assert json.loads(json.dumps(body)) == body


def choice(text: Any = "Lima", reason: Any = "stop", **message: Any) -> dict[str, Any]:
    return {"message": {"content": text, **message}, "finish_reason": reason}


def read(*choices: Any, **body: Any) -> Any:
    return read_chat({"choices": list(choices), **body}).replies


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (choice(), ("Lima", STOP)),
        (choice(""), ("", STOP)),
        (choice(reason="length"), ("Lima", StopReason.LENGTH)),
        (choice(reason="content_filter"), ("Lima", StopReason.CONTENT_FILTER)),
        (choice(reason=None), ("Lima", STOP)),
        (choice(reason="end_turn"), ("Lima", STOP)),
        (choice(reason=["stop"]), ("Lima", StopReason.UNKNOWN)),
        (choice(reason={"a": 1}), ("Lima", StopReason.UNKNOWN)),
        (choice(None), None),
        (choice(None, None), None),
        (choice(None, "eos"), None),
        (choice(None, "content_filter"), ("", StopReason.CONTENT_FILTER)),
        (choice(None, "length"), ("", StopReason.LENGTH)),
        (choice(None, refusal="I must not."), ("I must not.", StopReason.REFUSAL)),
        (choice("", refusal="I must not."), ("I must not.", StopReason.REFUSAL)),
        (choice([{"type": "text", "text": "Li"}, {"text": "ma"}, {"image": 1}, 3]), ("Lima", STOP)),
        (choice([{"text": None}, {"text": 5}]), None),
        (choice([]), None),
        (choice(5), None),
        (choice(5, "length"), ("", StopReason.LENGTH)),
        (choice(None, "tool_calls", tool_calls=[{"id": "1"}]), ("", StopReason.TOOL_CALL)),
        (choice(" ", "stop", function_call={"name": "f"}), (" ", StopReason.TOOL_CALL)),
        (choice("Lima", "tool_calls", tool_calls=[{"id": "1"}]), ("Lima", StopReason.TOOL_CALL)),
        (choice("Lima", refusal={"odd": 1}), ("Lima", STOP)),
        (choice("cut \ud83d"), ("cut \ud83d", STOP)),
        ({"message": None}, None),
        ({"text": "Lima"}, None),
        ({}, None),
    ],
)
def test_choices_are_read(given, expected):
    assert read(given) == [expected]


def test_choices_are_sorted_by_index():
    assert read({**choice("b"), "index": 1}, {**choice("a"), "index": 0}) == [("a", STOP), ("b", STOP)]
    assert read(choice("a"), {**choice("b"), "index": "x"}) == [("a", STOP), ("b", STOP)]


@pytest.mark.parametrize(
    "body", [None, 5, "text", [], {}, {"choices": None}, {"choices": {}}, {"choices": []}, {"choices": [1, None]}]
)
def test_response_without_choices_raises(body):
    with pytest.raises(NoAnswerError, match="no choices"):
        read_chat(body)


@pytest.mark.parametrize(
    "usage", [None, 5, [], {}, {"prompt_tokens": "7"}, {"prompt_tokens": math.nan}, {"prompt_tokens": True}]
)
def test_invalid_usage_counts_nothing(usage):
    response = read_chat({"choices": [choice()], "usage": usage}, 1.5)
    assert (response.input_tokens, response.output_tokens, response.seconds) == (0, 0, 1.5)


def test_usage_is_read():
    response = read_chat({"choices": [choice()], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    assert (response.input_tokens, response.output_tokens) == (7, 3)


TOKEN = {"token": "Lima", "logprob": -0.5, "top_logprobs": [{"token": "Cuzco", "logprob": -2.0}]}


def test_log_probabilities_are_read():
    (found,) = read_chat({"choices": [{**choice(), "logprobs": {"content": [TOKEN]}}]}).logprobs
    assert "Lima" in found
    assert "Cuzco" in found


@pytest.mark.parametrize(
    "logprobs",
    [
        *(None, 5, {}, {"content": None}, {"content": "text"}, {"content": ["text"]}, {"content": [None]}),
        *({"content": [{**TOKEN, "logprob": value}]} for value in (math.nan, "x", None, [], 10**400)),
        *({"content": [{**TOKEN, "top_logprobs": value}]} for value in (5, ["text"], {"a": 1}, [{"token": "b"}])),
    ],
)
def test_invalid_logprobs_do_not_lose_the_reply(logprobs):
    response = read_chat({"choices": [{**choice(), "logprobs": logprobs}]})
    assert response.replies == [("Lima", STOP)]
    assert response.logprobs == [None]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "refusal", "finish_reason", "logprobs", "usage", "index", "text"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.builds(lambda one, usage: {"choices": [one, {"message": one}], "usage": usage}, ANY_JSON, ANY_JSON))
def test_arbitrary_responses_never_crash_property(body):
    try:
        response = read_chat(body)
    except NoAnswerError:
        return
    assert all(reply is None or (isinstance(reply[0], str) and reply[1] in StopReason) for reply in response.replies)
    assert isinstance(response.input_tokens, int)


# --- Size limit and normalisation of responses

CHAT = "http://server/v1/chat/completions"
BODY = {"choices": [{"index": 0, "message": {"content": "Lima"}, "finish_reason": "stop"}]}


async def post(url: str, sent: Any, **response: Any) -> httpx2.Response:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(**{"status_code": 200, **response}))
    async with httpx2.AsyncClient(transport=transport, event_hooks={"response": [receive, rewrite]}) as client:
        return await client.post(url, json=sent)


def response_to(url: str = CHAT, sent: Any = None, **response: Any) -> httpx2.Response:
    return asyncio.run(post(url, sent or {}, **response))


def events(*chunks: Any, end: str = "\n") -> dict[str, Any]:
    lines = [f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}{end}{end}" for chunk in chunks]
    return {"text": ": a comment\n\n" + "".join(lines), "headers": {"Content-Type": "text/event-stream"}}


def piece(index: int = 0, reason: str | None = None, **delta: object) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def test_response_is_read_only_up_to_the_limit():
    read = []

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(1000):
            read.append(1)
            yield b" " * 2**20

    with pytest.raises(UnreadableReplyError, match="larger than 64 MiB") as caught:
        response_to(content=pieces())
    assert len(read) == MAX_RESPONSE_BYTES // 2**20 + 1
    assert classify_error(caught.value, describe_error(caught.value), "m").kind is FailureKind.REQUEST


@pytest.mark.parametrize("status", [200, 500])
def test_response_limit_counts_decompressed_bytes_exactly(monkeypatch, status):
    content = json.dumps(BODY).encode() + b" " * 5000
    packed = {"content": gzip.compress(content), "headers": {"Content-Encoding": "gzip"}, "status_code": status}
    monkeypatch.setattr(chat_api, "MAX_RESPONSE_BYTES", len(content))
    assert response_to(**packed).json()["choices"][0]["message"]["content"] == "Lima"
    monkeypatch.setattr(chat_api, "MAX_RESPONSE_BYTES", len(content) - 1)
    with pytest.raises(UnreadableReplyError):
        response_to(**packed)


def test_stream_events_are_combined_into_choices():
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    response = response_to(
        **events(
            piece(1, content="Cuz"),
            piece(0, role="assistant", content="Li"),
            piece(0, content="ma"),
            piece(1, content="co", refusal=None),
            piece(0, "stop"),
            piece(1, "length"),
            {"choices": [], "usage": usage, "model": "m"},
            "[DONE]",
            end="\r\n",
        )
    )
    body = response.json()
    assert [one["message"]["content"] for one in body["choices"]] == ["Lima", "Cuzco"]
    assert [one["finish_reason"] for one in body["choices"]] == ["stop", "length"]
    assert (body["usage"], body["model"]) == (usage, "m")
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        ((piece(content="Li"), "[DONE]"), 502),
        ((piece(content="Li", reason="stop"), piece(1, content="Cuz")), 502),
        ((piece(content="Li"), {"error": {"message": "slow", "code": 429}}), 429),
        ((piece(content="Li"), '{"torn": '), 502),
    ],
)
def test_incomplete_or_failed_stream_is_an_error(chunks, status):
    assert response_to(**events(*chunks)).status_code == status


def test_requested_streams_are_left_unchanged():
    stream = events(piece(content="Li", reason="stop"))
    for sent in ({"stream": True}, {"messages": [], "stream": True}):
        assert response_to(sent=sent, **stream).text == stream["text"]
    quoted = response_to(sent={"messages": '"stream":true'}, **stream)
    assert quoted.json()["choices"][0]["message"]["content"] == "Li"


@pytest.mark.parametrize(
    ("content", "headers", "expected"),
    [
        ("é".encode("latin-1"), {"Content-Type": "application/json; charset=latin-1"}, "é"),
        ("é".encode("latin-1"), {"Content-Type": "application/json"}, "\ufffd"),
        ("é".encode(), {"Content-Type": "application/json; charset=none-such"}, "é"),
        ("é".encode(), {}, "é"),
    ],
)
def test_text_uses_the_charset_of_the_header(content, headers, expected):
    body = json.dumps(BODY).encode().replace(b"Lima", content)
    assert response_to(content=body, headers=headers).json()["choices"][0]["message"]["content"] == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": "odd"}, (3, 2, 5)),
        ({"prompt_tokens": "3", "completion_tokens": 2.5}, (0, 0, 0)),
        ("odd", None),
    ],
)
def test_body_is_normalised_to_api_types(usage, expected):
    message = {"content": [{"type": "text", "text": "Li"}, {"text": "ma"}], "refusal": 5, "role": "assistant"}
    choices = [{"message": message, "finish_reason": ["stop"]}, {"message": None, "index": 1}, "none"]
    body = response_to(content=json.dumps({"choices": choices, "model": None, "usage": usage}).encode()).json()
    assert body["usage"] == (expected and dict(zip(chat_api.COUNTS, expected, strict=True)))
    first, second = body["choices"]
    assert first["message"] == {"content": "Lima", "refusal": None, "role": "assistant"}
    assert (first["finish_reason"], first["index"], body["model"]) == ("stop", 0, "")
    assert second["message"] == {"content": None, "refusal": None}


def test_text_completion_is_left_unchanged():
    body = {"choices": [{"text": "Lima", "index": 0, "finish_reason": "stop"}], "usage": None, "model": "m"}
    assert response_to("http://server/v1/completions", content=json.dumps(body).encode()).json() == body


def test_responses_of_other_endpoints_are_left_unchanged():
    assert response_to("http://server/v1/models", content=b"[1]").content == b"[1]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"<html>maintenance</html>", "InternalServerError: 200"), (b" " * 101, "UnreadableReplyError: the response is")],
)
def test_response_hook_applies_to_providers_with_their_own_client(monkeypatch, content, expected):
    pytest.importorskip("anthropic", reason="needs the extra 'batch'")
    monkeypatch.setattr(chat_api, "MAX_RESPONSE_BYTES", 100)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-very-secret")
    sent = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, content=content, headers={"Content-Type": "text/html"})

    async def ask() -> None:
        async with resolve_model("anthropic/any") as model:
            model.api.client._client._transport = httpx2.MockTransport(respond)
            model.api.client.max_retries = 0
            model.api.should_retry = lambda _: False
            await model.generate("Who?")

    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        asyncio.run(ask())
    assert describe_error(caught.value).startswith(expected)
    assert len(sent) == 1
