"""Every kind of response: an answer, none, or something that is kept and says why it cannot be scored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web
from inspect_ai.model import GenerateConfig, ModelOutput

from refusal_index.models.failures import NoAnswerError
from refusal_index.plugins.inspect.client import choices_of, places_without_answer, resolve_model
from refusal_index.protocol import StopReason
from tests.models.conftest import OVER_INSPECT, both_clients, run
from tests.models.fake_api import FakeApi, completion

CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
TEXT = "<answer>1</answer>"
LOST: dict[str, Any] = {"content": None}


def response(*choices: tuple[dict[str, Any], str | None]) -> dict[str, Any]:
    body = completion(*[("", "stop")] * len(choices))
    for place, (message, reason) in enumerate(choices):
        body["choices"][place] |= {"message": {"role": "assistant", **message}, "finish_reason": reason}
    return body


async def _generate(count: int) -> ModelOutput:
    async with resolve_model(OVER_INSPECT) as model:
        model.api.should_retry = lambda _: False
        return await model.generate("Who?", config=GenerateConfig(num_choices=count))


@pytest.fixture
def came(monkeypatch: pytest.MonkeyPatch):
    """Return what reads the choices of a response that a server gives."""

    def asked(*choices: tuple[dict[str, Any], str | None]) -> Sequence[tuple[str, StopReason] | None]:
        with FakeApi(lambda _: "", lambda *_: web.json_response(response(*choices))) as api:
            monkeypatch.setenv("SAMBANOVA_API_KEY", "sk-very-secret")
            monkeypatch.setenv("SAMBANOVA_BASE_URL", api.url)
            return choices_of(asyncio.run(_generate(len(choices))))

    return asked


@pytest.mark.parametrize(
    ("message", "finish_reason", "expected"),
    [
        ({"content": TEXT}, "stop", (TEXT, StopReason.STOP)),
        ({"content": ""}, "stop", ("", StopReason.STOP)),
        ({"content": None, "refusal": "I will not."}, "stop", ("I will not.", StopReason.STOP)),
        ({"content": None}, "length", ("", StopReason.LENGTH)),
        ({"content": None}, "content_filter", ("", StopReason.CONTENT_FILTER)),
        ({"content": None, "tool_calls": [CALL]}, "tool_calls", ("", StopReason.TOOL_CALL)),
        ({"content": None, "tool_calls": [CALL]}, "stop", ("", StopReason.TOOL_CALL)),
        ({"content": " ", "tool_calls": [CALL]}, "tool_calls", (" ", StopReason.TOOL_CALL)),
        ({"content": TEXT, "tool_calls": [CALL]}, "tool_calls", (TEXT, StopReason.STOP)),
    ],
)
def test_each_kind_of_response_is_told_apart(came, message, finish_reason, expected):
    assert came((message, finish_reason)) == [expected]


@pytest.mark.parametrize(
    "choices",
    [[(LOST, "stop")], [(LOST, None)], [({}, "stop")], [({"content": 42}, "stop")], [(LOST, "stop")] * 3],
)
def test_a_response_without_any_text_is_no_answer(came, choices):
    """It was kept as an empty reply, and never asked for again."""
    with pytest.raises(NoAnswerError, match="the response holds no text"):
        came(*choices)


def test_of_several_choices_those_that_hold_an_answer_are_kept_in_their_places(came):
    choices = came(
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
def test_in_any_other_shape_every_choice_counts(given):
    assert places_without_answer(given) == set()


def test_choices_are_known_by_their_index_as_inspect_orders_them():
    first, second = ({"index": 1, "message": LOST}, {"index": 0, "message": {"content": "a"}})
    assert places_without_answer({"choices": [first, second]}) == {1}


@both_clients
def test_null_is_asked_for_again_and_a_tool_call_is_kept_as_unscored(plan_for, model):
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
def test_draws_whose_choice_was_null_are_asked_for_again_and_the_others_are_not(plan_for, model):
    bodies: list[int] = []

    def fault(_message: str, _sent_before: int) -> web.Response | None:
        bodies.append(1)
        one = ({"content": TEXT}, "stop")
        return web.json_response(response(one, (LOST, "stop"), one)) if len(bodies) == 1 else None

    with FakeApi(lambda _: TEXT, fault, max_choices=3) as api:
        derived = run(plan_for(api.url, count=1, draws=3, model=model))
    assert [body.get("n") for body in api.answered] == [3, None], "the forced pass, and the one draw that is missing"
    assert derived.outcomes["first_reply"].to_list() == [TEXT] * 3
