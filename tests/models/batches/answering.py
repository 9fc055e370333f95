"""A scripted model and scripted graders: replies depend only on the request, not on how it arrives."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refusal_index.data.outcome import Outcome, Question
from refusal_index.models.failures import Failure, classify_error
from refusal_index.models.requests import ModelRequest, Response
from refusal_index.plugins.batches.rounds import Pending, QuestionState
from refusal_index.protocol import (
    Completion,
    Conversation,
    GraderKind,
    Protocol,
    Role,
    StopReason,
    TwoPass,
    load_prompt_set,
    outcomes,
)
from refusal_index.runs.conversing import execute_concurrently
from refusal_index.runs.engine import Assignment
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

SETTINGS = Settings.from_values(model="openai/gpt-4.1", variants="low,high")
NAMES = {Role.MODEL: "openai/gpt-4.1", Role.GRADER: "openai/one", Role.SECOND_GRADER: "openai/two"}
REPLIES = (
    ("<answer>4</answer>", StopReason.STOP),
    ("<answer>five</answer>", StopReason.STOP),
    ("<answer>UNANSWERED</answer>", StopReason.STOP),
    ("<answer>UNANSWERED</answer> \u2028", StopReason.STOP),
    ("I am \ud83d cut", StopReason.STOP),
    ("no end", StopReason.LENGTH),
    ("", StopReason.CONTENT_FILTER),
)
VERDICTS = (("A", StopReason.STOP), ("B", StopReason.STOP), ("C", StopReason.STOP), ("who knows", StopReason.STOP))

ScriptedReply = tuple[str, StopReason]


def pending_of(states: Iterable[QuestionState], *, singly: bool = False) -> list[Pending]:
    """Return all requests that are pending."""
    return [pending for state in states for pending in state.all_pending(singly=singly)]


def questions(count: int) -> list[Question]:
    return [Question(f"q{n}", f"What is {n} plus {n}?", str(2 * n)) for n in range(count)]


def make_conversations(
    count: int = 3, kind: GraderKind = GraderKind.EXACT, draws: int = 1, variants: Sequence[str] = ("low", "high")
) -> list[Conversation]:
    """Return conversations about questions, grouped by question."""
    prompts = load_prompt_set("default")
    procedures = {name: TwoPass(kind, Protocol(prompts, name, kind)) for name in variants}
    return [Conversation(each, name, procedures[name], draws) for each in questions(count) for name in variants]


def store_of(conversations: Sequence[Conversation], path: Any = None) -> ReplyStore:
    """Return a store that knows the required questions."""
    store = ReplyStore(path)
    for conversation in conversations:
        store.require(conversation.variant, {conversation.question: conversation.draws})
    return store


@dataclass
class Script:
    """Give the same reply to the same request, and record all requests."""

    salt: int = 0
    requests: list[ModelRequest] = field(default_factory=list)

    def reply(self, ask: ModelRequest, place: int = 0) -> ScriptedReply:
        request, question_id = ask.request, ask.conversation.question.question_id
        about: tuple[Any, ...] = (request.pass_, request.role, request.attempt)
        if request.role is Role.MODEL:
            variant = "" if request.pass_.is_shared else ask.conversation.variant
            return self._one_of(REPLIES, *about, question_id, variant, ask.pending.draw + place)
        return self._one_of(VERDICTS, *about, *(message.content for message in request.messages))

    def _one_of(self, known: Sequence[ScriptedReply], *about: object) -> ScriptedReply:
        digest = hashlib.sha256(ascii((self.salt, *map(str, about))).encode()).digest()
        return known[int.from_bytes(digest[:4], "big") % len(known)]

    def response(self, ask: ModelRequest, choices: int | None = None) -> Response:
        self.requests.append(ask)
        return Response([self.reply(ask, place) for place in range(choices or ask.n)], 7, 3)

    async def send(self, ask: ModelRequest) -> Response:
        return self.response(ask)


def explain(error: Exception, asked: Role) -> Failure:
    return classify_error(error, str(error), NAMES[asked])


def answered_in_sequence(
    conversations: Sequence[Conversation], script: Script, settings: Settings = SETTINGS
) -> ReplyStore:
    """Return the store after asking one question after the other, as every other engine does."""
    store = store_of(conversations)
    assignment = Assignment("sums", "", conversations, settings, store)
    asyncio.run(execute_concurrently(assignment, script.send, explain, 1))
    return store


def outcomes_of(conversations: Sequence[Conversation], store: ReplyStore) -> list[list[Outcome] | None]:
    return [
        outcomes(conversation, store.completions(conversation.question.question_id, conversation.variant))
        for conversation in conversations
    ]


def replies_by_key(store: ReplyStore) -> dict[tuple[Any, ...], Completion]:
    """Return the replies of a store by their keys."""
    return {
        (reply.question_id, reply.variant, reply.reply.pass_, reply.reply.role, reply.draw, reply.attempt): reply
        for reply in store.replies()
    }


def chat(replies: Sequence[ScriptedReply], **usage: Any) -> dict[str, Any]:
    """Return the body of a chat completion."""
    reasons = {StopReason.LENGTH: "length", StopReason.CONTENT_FILTER: "content_filter"}
    choices = [
        {"index": place, "message": {"role": "assistant", "content": text}, "finish_reason": reasons.get(why, "stop")}
        for place, (text, why) in enumerate(replies)
    ]
    return {"choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 3, **usage}}


def openai_line(name: str, replies: Sequence[ScriptedReply]) -> dict[str, Any]:
    return {"id": "1", "custom_id": name, "response": {"status_code": 200, "body": chat(replies)}, "error": None}


def anthropic_line(name: str, replies: Sequence[ScriptedReply]) -> dict[str, Any]:
    ((text, why),) = replies
    reason = {StopReason.LENGTH: "max_tokens", StopReason.CONTENT_FILTER: "content_filter"}.get(why, "end_turn")
    content = [{"type": "text", "text": part} for part in (text[:2], text[2:])]
    message = {"content": content, "stop_reason": reason, "usage": {"input_tokens": 7, "output_tokens": 3}}
    return {"custom_id": name, "result": {"type": "succeeded", "message": message}}


LINES = {"openai": openai_line, "compatible": openai_line, "anthropic": anthropic_line}
"""How a result is written in each format."""

PASSING: Mapping[str, Any] = {"code": "batch_expired", "message": "This request could not be executed in time."}


def failed_line(name: str, style: str) -> dict[str, Any]:
    """Return the result of a request that failed and may be sent again."""
    if style == "anthropic":
        return {"custom_id": name, "result": {"type": "expired"}}
    return {"id": "1", "custom_id": name, "response": None, "error": dict(PASSING)}


def dumped(lines: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
