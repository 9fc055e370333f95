"""What a provider says that a response took may be nonsense: its reply is kept all the same."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from refusal_index.data.outcome import Question
from refusal_index.models.failures import CircuitBreaker
from refusal_index.models.requests import ModelRequest, Response
from refusal_index.protocol import Conversation, GraderKind, Protocol, StopReason, TwoPass, load_prompt_set
from refusal_index.runs.engine import Assignment, converse
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore
from tests.models.conftest import both_clients, run
from tests.models.fake_api import FakeApi, completion


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [-5, 2**53 + 1, 10**20])
@both_clients
def test_a_count_that_no_response_can_have_neither_loses_the_reply_nor_shuts_the_folder(plan_for, tokens, model):
    """A negative one was stored, and the store refused from then on; one beyond SQLite's integers lost the reply."""
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


def test_a_reply_that_cannot_be_kept_for_whatever_reason_ends_the_run_at_once_and_is_told(monkeypatch):
    """The run went on, lost every further reply, and said that nothing was answered."""
    protocol = Protocol(load_prompt_set("default"), "low", GraderKind.EXACT)
    talk = Conversation(Question("q", "Who?", "Ann"), "low", TwoPass(GraderKind.EXACT, protocol))
    breaker = CircuitBreaker()

    def put(_self: ReplyStore, _completions: object) -> None:
        raise OverflowError("too large")

    async def send(_ask: ModelRequest) -> Response:
        return Response([("<answer>Ann</answer>", StopReason.STOP)])

    monkeypatch.setattr(ReplyStore, "put", put)
    with ReplyStore(None) as store, pytest.raises(OverflowError):
        asyncio.run(
            converse(Assignment("sums", "low", [talk], Settings(), store, breaker=breaker), talk, send, pytest.fail)
        )
    assert "a reply cannot be kept (OverflowError: too large); no further requests are sent" in breaker.reason
