"""Properties: a reply is stored, read and graded as the server sent it, whatever the environment holds."""

from __future__ import annotations

import asyncio
import json
import os
from unittest import mock

import httpx2
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from inspect_ai.model import ModelOutput

from refusal_index import redaction
from refusal_index.data.outcome import Question
from refusal_index.data.text import sound_text
from refusal_index.models.chat_api import BODY, read_chat, receive
from refusal_index.models.functions import function_sender
from refusal_index.models.requests import ModelRequest, Response, model_request, to_completions
from refusal_index.models.settings import Sending
from refusal_index.plugins.batches.formats import read_result
from refusal_index.plugins.inspect.client import choices_of, packed, replies_in
from refusal_index.protocol import (
    Completion,
    Conversation,
    GraderKind,
    Pass,
    Protocol,
    Role,
    StopReason,
    TwoPass,
    load_prompt_set,
    next_requests,
    outcomes,
    read_reply,
)
from refusal_index.replies import grade_reply
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore
from tests.models.fake_api import FakeApi, completion
from tests.served import at

CREDENTIAL = "gateway-3fGh8jKl2mNp"
QUESTION = Question("q", "Where?", "Lima")
PROTOCOL = Protocol(load_prompt_set("default"), "low", GraderKind.EXACT)
CONVERSATION = Conversation(QUESTION, "low", TwoPass(GraderKind.EXACT, PROTOCOL))
NAMES = ["ANSWER_KEY", "SORT_KEY", "PGPASSWORD", "DB_TOKEN", "OPENAI_API_KEY", "X_CUSTOM_HEADERS", "SITE_URL"]

words = st.sampled_from(
    [
        "answer",
        "<answer>",
        "</answer>",
        "variant",
        "Lima",
        "UNANSWERED",
        "sk-proj-3fGh8jKl2mNp5qRs",
        "Bearer abc123def456",
        "https://me:hush@host/?key=abc",
        "AKIAIOSFODNN7EXAMPLE",
        "I don't know. ",
        "\n",
        "\ud800",
    ]
)
replies = st.lists(st.text(max_size=20) | words, max_size=6).map("".join)
environments = st.dictionaries(
    st.sampled_from(NAMES), words.filter(lambda word: word.isprintable()) | st.text("abcde 0123456789", min_size=1)
)


def over_http(body: bytes) -> Response:
    """Read a body as OpenAI's client does."""

    async def receive_it() -> Response:
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body))
        async with httpx2.AsyncClient(transport=transport, event_hooks={"response": [receive]}) as client:
            came = await client.post("http://server/v1/chat/completions", json={})
        return read_chat(came.extensions[BODY])

    return asyncio.run(receive_it())


def through_inspect(body: bytes) -> Response:
    document = json.loads(body)
    output = ModelOutput.from_content("m", "as Inspect changed it")
    return Response(choices_of(packed(output, replies_in(document))))


def in_batch(body: bytes) -> Response:
    line = {"custom_id": "ri-1", "response": {"status_code": 200, "body": json.loads(body)}, "error": None}
    response = read_result(line).response
    assert response is not None
    return response


def pending() -> ModelRequest:
    (due,) = next_requests(CONVERSATION, [])
    return model_request(Settings(), CONVERSATION, due)


@pytest.mark.parametrize("read", [over_http, through_inspect, in_batch])
@given(text=replies, environment=environments, holds_key=st.booleans())
def test_stored_text_is_the_text_that_was_sent_unless_it_holds_a_key_of_the_run_property(
    read, text, environment, holds_key
):
    assume(CREDENTIAL not in text)
    sent = text + CREDENTIAL + text if holds_key else text
    body = json.dumps(completion((sent, "stop"))).encode()
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(redaction, "_remembered", {CREDENTIAL, "answer", "any"}),
        ReplyStore(None) as store,
    ):
        store.put(to_completions(pending(), read(body)))
        (stored,) = store.completions("q", "low")
        expected = sound_text(sent).replace(CREDENTIAL, "[key]")
        assert (stored.reply.text, stored.filtered) == (expected, holds_key)
        check_graded_as_stored(stored, expected)


def check_graded_as_stored(stored: Completion, expected: str) -> None:
    outcome = next(iter(outcomes(CONVERSATION, [stored]) or ()), None)
    if outcome is not None:
        assert outcome.first_reply == stored.reply.text == expected
        assert outcome.refused == (None if outcome.unscored_reason else read_reply(expected, "Where?").refused)
        if outcome.first_grade is not None:
            assert outcome.first_grade == grade_reply(expected, "Lima", "Where?")


@given(
    text=replies,
    environment=environments.map(lambda one: {name: value[:15] for name, value in one.items()}),
    holds_key=st.booleans(),
)
def test_stored_text_is_what_a_function_returned_unless_it_holds_a_key_of_the_environment_property(
    text, environment, holds_key
):
    assume(CREDENTIAL not in text)
    sent = text + CREDENTIAL + text if holds_key else text
    with (
        mock.patch.dict(os.environ, environment | {"GATEWAY_API_KEY": CREDENTIAL}),
        mock.patch.object(redaction, "_remembered", set()),
        ReplyStore(None) as store,
    ):
        send = function_sender(Role.MODEL, "python:any:answer", lambda messages: sent, Sending())
        store.put(to_completions(pending(), asyncio.run(send(pending()))))
        (stored,) = store.completions("q", "low")
        expected = sound_text(sent).replace(CREDENTIAL, "[key]")
        assert (stored.reply.text, stored.filtered) == (expected, holds_key)
        check_graded_as_stored(stored, expected)


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(text=replies, environment=environments)
def test_replies_of_a_run_are_stored_and_graded_as_sent_end_to_end_property(tmp_path_factory, text, environment):
    import refusal_index as ri

    assume(text.strip())
    folder = tmp_path_factory.mktemp("run") / "r"
    rows = [{"id": "q", "question": "Where?", "answer": "Lima"}]
    with FakeApi(lambda _: text) as api:
        ours = {"FAKE_API_KEY": "k-0123456789"}
        with mock.patch.dict(os.environ, environment | ours):
            how = {"grader": "exact", "variants": "normal", "max_retries": 0, **at(api.url)}
            run = ri.evaluate("any", rows, out=folder, **how)
            with ReplyStore(folder / "replies.sqlite") as store:
                stored = [reply for reply in store.replies() if reply.reply.pass_ is Pass.FIRST]
    assert [(one.reply.text, one.filtered) for one in stored] == [(sound_text(text), False)]
    assert run.outcomes["first_reply"].to_list() == [sound_text(text)]
    assert run.outcomes["variant"].to_list() == ["normal"]
    assert StopReason.STOP is stored[0].reply.stop_reason
