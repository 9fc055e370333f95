"""Request files and results, in every format of the providers, in memory and on the disk."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from refusal_index.models.failures import FailureKind
from refusal_index.plugins.batches import request_files
from refusal_index.plugins.batches.formats import (
    FORMATS,
    RequestResult,
    ResultError,
    format_of,
    provider_failure,
    read_result,
    to_line,
)
from refusal_index.plugins.batches.request_files import MAX_NAMED, ResultFileError, StagedResults
from refusal_index.protocol import Message, Placement, Role, StopReason
from tests.models.batches.answering import anthropic_line, chat, failed_line, openai_line
from tests.models.test_chat import ANY_JSON, ask_of

# --- Request and result files

STOP = StopReason.STOP
LIMA = ("Lima", STOP)


def line_of(style: str, asked: Role = Role.MODEL, **changes: Any) -> dict[str, Any]:
    found = json.loads(to_line("ri-1", ask_of(asked, **changes), FORMATS[style], "any"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("provider", "style"),
    [
        ("openai", "openai"),
        ("anthropic", "anthropic"),
        *((provider, "compatible") for provider in ("", "vllm", "google", "almanac", "127.0.0.1:8000")),
    ],
)
def test_format_of_each_provider(provider, style):
    assert format_of(provider).name == style


def test_file_limits_match_those_of_providers():
    assert {one.name: (one.most_requests, one.most_bytes, one.gives_choices) for one in FORMATS.values()} == {
        "openai": (50_000, 200_000_000, True),
        "compatible": (50_000, 200_000_000, True),
        "anthropic": (100_000, 256_000_000, False),
    }


@pytest.mark.parametrize("style", list(FORMATS))
def test_request_is_always_one_line(style):
    ask = ask_of()
    odd = replace(ask.request, messages=(Message("user", "one\ntwo\r\u2028three \ud83d"),))
    line = to_line("ri-1", replace(ask, request=odd), FORMATS[style], "any")
    assert not re.search(r"[\r\n]", line)
    assert "three \ufffd" in line
    assert json.loads(line.encode())


@pytest.mark.parametrize("style", ["openai", "compatible"])
def test_openai_compatible_request_lines(style):
    line = line_of(style, draws=3)
    body = line.pop("body")
    assert line == {"custom_id": "ri-1", "method": "POST", "url": "/v1/chat/completions"}
    assert body["n"] == 3
    assert ("max_tokens" in body) is (style == "compatible")


def test_anthropic_requests_omit_unsupported_parameters():
    line = line_of("anthropic", max_tokens=77, temperature=1.7, logprobs=True)
    params = line.pop("params")
    assert line == {"custom_id": "ri-1"}
    assert set(params) == {"model", "max_tokens", "messages"}
    assert params["max_tokens"] == 77
    assert line_of("anthropic", Role.GRADER)["params"]["max_tokens"] == 4096
    assert set(FORMATS["anthropic"].leaves_out) == {"temperature", "top_p", "seed", "logprobs"}


def test_anthropic_system_message_is_a_separate_field():
    ask = ask_of(placement=Placement.SYSTEM)
    system, user = (one.content for one in ask.request.messages)
    params = FORMATS["anthropic"].line("", ask, "any")["params"]
    assert (params["system"], params["messages"]) == (system, [{"role": "user", "content": user}])


@pytest.mark.parametrize(
    ("effort", "expected"),
    [
        (None, {}),
        ("none", {"thinking": {"type": "disabled"}}),
        ("minimal", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        ("high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
    ],
)
def test_anthropic_reasoning_effort(effort, expected):
    params = line_of("anthropic", reasoning_effort=effort)["params"]
    assert {name: params[name] for name in ("thinking", "output_config") if name in params} == expected


@pytest.mark.slow
@pytest.mark.parametrize("effort", [None, "none", "minimal", "low", "medium", "high"])
def test_anthropic_requests_against_the_types_of_its_client(effort):
    batch = pytest.importorskip("anthropic.types.messages.batch_create_params")
    params = pytest.importorskip("anthropic.types.message_create_params")
    for asked in (Role.MODEL, Role.GRADER):
        for placement in Placement:
            line = line_of("anthropic", asked, placement=placement, reasoning_effort=effort)
            TypeAdapter(batch.Request).validate_python(line)
            known = (
                params.MessageCreateParamsNonStreaming.__annotations__ | params.MessageCreateParamsBase.__annotations__
            )
            assert set(line["params"]) <= set(known)


def result(document: Any) -> RequestResult:
    found = read_result(document, "openai/any")
    assert (found.response is None) is not (found.failure is None)
    return found


def openai(status: Any = 200, body: Any = None, error: Any = None) -> RequestResult:
    return result({"id": "1", "custom_id": "a", "response": {"status_code": status, "body": body}, "error": error})


def test_openai_compatible_answers_are_read():
    found = openai(body=chat([LIMA, ("Cuzco", StopReason.LENGTH)]))
    assert found.response.replies == [LIMA, ("Cuzco", StopReason.LENGTH)]
    assert (found.custom_id, found.response.input_tokens, found.response.output_tokens) == ("a", 7, 3)
    assert openai(None, chat([LIMA])).response.replies == [LIMA], "a server may say no status"
    assert openai(True, chat([LIMA])).response.replies == [LIMA]


BAD = {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}


@pytest.mark.parametrize(("body", "error"), [(BAD, None), ({}, BAD), ({}, BAD["error"])])
def test_prompt_rejected_with_400_becomes_a_reply_as_over_http(body, error):
    assert openai(400, body, error).response.replies == [("too long", StopReason.LENGTH)]


@pytest.mark.parametrize(
    ("found", "kind", "message"),
    [
        # a status of 400 and above with an error that is null is a failure
        (lambda: openai(400, {}), FailureKind.REQUEST, "400"),
        (
            lambda: openai(400, {"error": {"message": "what is that", "code": "unknown"}}),
            FailureKind.REQUEST,
            "what is that",
        ),
        (lambda: openai(429, BAD), FailureKind.PASSING, "too long"),
        (lambda: openai(500, None), FailureKind.PASSING, "500"),
        (lambda: openai(503, "<html>busy</html>"), FailureKind.PASSING, "503"),
        (lambda: openai(401, {"error": {"message": "no"}}), FailureKind.LASTING, "no"),
        (lambda: openai(402, {}), FailureKind.LASTING, "402"),
        (lambda: openai(404, {"error": {"message": "no such model"}}), FailureKind.LASTING, "no such model"),
        (lambda: openai(429, {"error": {"code": "insufficient_quota", "message": "pay"}}), FailureKind.LASTING, "pay"),
        (lambda: openai(400, {"error": {"code": "batch_expired", "message": "late"}}), FailureKind.PASSING, "late"),
        # vLLM reports failures next to a response
        (lambda: openai(400, None, "Unsupported endpoint"), FailureKind.REQUEST, "Unsupported endpoint"),
        (lambda: openai(400, None, {"error": {"message": "too long", "code": 400}}), FailureKind.REQUEST, "too long"),
        (lambda: openai(200, chat([LIMA]), {"message": "half of it", "code": 500}), FailureKind.PASSING, "half of it"),
        # a response that says 200 and is an error
        (lambda: openai(200, {"error": {"message": "busy", "code": 429}}), FailureKind.PASSING, "busy"),
        (lambda: openai(200, {"error": {"message": "no"}, "choices": []}), FailureKind.PASSING, "no"),
        (lambda: openai(200, {}), FailureKind.PASSING, "no choices"),
        (lambda: openai(200, None), FailureKind.PASSING, "no choices"),
        (lambda: openai("200", "text"), FailureKind.PASSING, "no choices"),
    ],
)  # fmt: skip
def test_openai_compatible_failures_are_classified(found, kind, message):
    failure = found().failure
    assert failure.kind is kind
    assert message in failure.message
    assert failure.model == "openai/any"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"code": "batch_expired", "message": "out of time"}, FailureKind.PASSING, "batch_expired: out of time"),
        ({"code": "batch_cancelled", "message": ""}, FailureKind.PASSING, "batch_cancelled"),
        ({"code": "invalid_prompt", "message": "no"}, FailureKind.PASSING, "invalid_prompt: no"),
        ({"code": 400, "message": "bad"}, FailureKind.REQUEST, "bad"),
        ({"code": 999, "message": "odd"}, FailureKind.PASSING, "odd"),
        ({"code": True}, FailureKind.PASSING, "no reason given"),
        ("in words", FailureKind.PASSING, "in words"),
        (["a", "list"], FailureKind.PASSING, "no reason given"),
        (5, FailureKind.PASSING, "no reason given"),
    ],
)
def test_unanswered_requests_are_classified(error, kind, message):
    failure = result({"custom_id": "a", "response": None, "error": error}).failure
    assert (failure.kind, message in failure.message) == (kind, True), failure.message


def anthropic(kind: Any = "succeeded", **rest: Any) -> RequestResult:
    return result({"custom_id": "a", "result": {"type": kind, **rest}})


def message(*content: Any, stop: Any = "end_turn", usage: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content), "stop_reason": stop, "usage": usage}


TEXT = {"type": "text", "text": "Lima"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (message(TEXT), LIMA),
        (message({"type": "thinking", "thinking": "hm"}, {**TEXT, "text": "Li"}, {**TEXT, "text": "ma"}), LIMA),
        (message({"type": "thinking", "thinking": "hm"}, 5, None), ("", STOP)),
        (message(), ("", STOP)),
        (message(TEXT, stop="max_tokens"), ("Lima", StopReason.LENGTH)),
        (message(TEXT, stop="model_context_window_exceeded"), ("Lima", StopReason.LENGTH)),
        (message(stop="refusal"), ("", StopReason.REFUSAL)),
        (message({"type": "tool_use", "id": "1"}, stop="tool_use"), ("", StopReason.TOOL_CALL)),
        (message(TEXT, stop=None), LIMA),
        (message(TEXT, stop=["odd"]), ("Lima", StopReason.UNKNOWN)),
        (message(TEXT, stop="pause_turn"), ("Lima", StopReason.UNKNOWN)),
    ],
)  # fmt: skip
def test_anthropic_answers_are_read(given, expected):
    assert anthropic(message=given).response.replies == [expected]


def test_anthropic_text_block_without_text_is_a_failure():
    """It used to be stored as an empty answer."""
    found = anthropic(message=message({"type": "text"}, {"type": "text", "text": None}))
    assert (found.failure.kind, found.failure.message) == (FailureKind.PASSING, "the response holds no text")


def test_anthropic_usage_is_read():
    found = anthropic(message=message(TEXT, usage={"input_tokens": 7, "output_tokens": 3})).response
    assert (found.input_tokens, found.output_tokens) == (7, 3)
    for odd in (None, 5, [], {"input_tokens": "7"}, {"input_tokens": True}, {"output_tokens": math.nan}):
        found = anthropic(message=message(TEXT, usage=odd)).response
        assert (found.input_tokens, found.output_tokens) == (0, 0)


def errored(name: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": name, "message": "it says"}, "request_id": "r"}


@pytest.mark.parametrize(
    ("found", "kind", "message"),
    [
        (lambda: anthropic("errored", error=errored("invalid_request_error")), FailureKind.REQUEST, "it says"),
        (lambda: anthropic("errored", error=errored("request_too_large")), FailureKind.REQUEST, "it says"),
        (lambda: anthropic("errored", error=errored("authentication_error")), FailureKind.LASTING, "it says"),
        (lambda: anthropic("errored", error=errored("permission_error")), FailureKind.LASTING, "it says"),
        (lambda: anthropic("errored", error=errored("billing_error")), FailureKind.LASTING, "it says"),
        (lambda: anthropic("errored", error=errored("not_found_error")), FailureKind.LASTING, "it says"),
        (lambda: anthropic("errored", error=errored("rate_limit_error")), FailureKind.PASSING, "it says"),
        (lambda: anthropic("errored", error=errored("api_error")), FailureKind.PASSING, "api_error: it says"),
        (lambda: anthropic("errored", error=errored("overloaded_error")), FailureKind.PASSING, "it says"),
        (lambda: anthropic("errored"), FailureKind.PASSING, "the request was errored"),
        (lambda: anthropic("canceled"), FailureKind.PASSING, "the request was canceled"),
        (lambda: anthropic("expired"), FailureKind.PASSING, "the request was expired"),
        (lambda: anthropic(None), FailureKind.PASSING, "the request was None"),
        (lambda: anthropic(message=None), FailureKind.PASSING, "no content"),
        (lambda: anthropic(message={"content": "Lima"}), FailureKind.PASSING, "no content"),
    ],
)
def test_anthropic_failures_are_classified(found, kind, message):
    failure = found().failure
    assert (failure.kind, message in failure.message) == (kind, True), failure.message


def test_failure_messages_contain_no_keys_or_control_characters(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value")
    echo = {"message": "Incorrect API key very-secret-value, sk-proj-3fGh8jKl2mNp5qRs \x1b[2J\x07\u202e" + "x" * 10**6}
    for found in (
        openai(401, {"error": echo}),
        openai(200, None, echo),
        anthropic("errored", error=echo),
    ):
        message = found.failure.message
        assert "very-secret" not in message
        assert "3fGh8jKl" not in message
        assert message.isprintable()
        assert len(message) < 400


def test_lasting_failures_are_distinguished():
    assert openai(401, {}).failure.kind is FailureKind.LASTING
    assert openai(500, {}).failure.kind is not FailureKind.LASTING
    assert openai(200, chat([LIMA])).failure is None
    assert provider_failure(None, "any").message == "no reason given"


NAMES = ["custom_id", "response", "error", "result", "status_code", "body", "type", "message", "content", "code"]
NAMES += ["text", "choices", "stop_reason"]
DOCUMENTS = st.recursive(
    ANY_JSON | st.sampled_from(["succeeded", "errored", 200, 400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(NAMES), DOCUMENTS, max_size=5))
def test_arbitrary_documents_never_crash_property(document):
    try:
        found = result({**document, "custom_id": "a"})
    except ResultError:
        return
    if found.failure is not None:
        assert found.failure.message.isprintable()


# --- Results on disk

LIMA_REPLY, CUZCO = ("Lima", StopReason.STOP), ("Cuzco", StopReason.STOP)


@pytest.fixture
def read(tmp_path):
    """Return a function that writes each list of lines to a file and reads the files."""
    opened = []

    def of(*files: list[Any]) -> StagedResults:
        staged = StagedResults()
        opened.append(staged)
        for number, lines in enumerate(files):
            path = tmp_path / f"{number}.jsonl"
            raw = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
            path.write_bytes(b"\n".join(raw))
            staged.read(path)
        return staged

    yield of
    for staged in opened:
        staged.__exit__(None, None, None)


def count(staged: StagedResults) -> int:
    """Return the number of stored results."""
    return int(staged._connection.execute("SELECT count(*) FROM results").fetchone()[0])


def replies(staged: StagedResults, name: str) -> list[Any]:
    result = staged.get(name)
    assert result is not None
    assert result.response is not None, result.failure
    return list(result.response.replies)


def test_results_of_all_formats_can_be_mixed(read):
    staged = read([openai_line("a", [LIMA_REPLY, CUZCO])], [anthropic_line("b", [LIMA_REPLY])])
    assert count(staged) == 2
    assert [replies(staged, name) for name in "ab"] == [[LIMA_REPLY, CUZCO], [LIMA_REPLY]]
    assert staged.get("d") is None
    assert staged.unused().count == 0


@pytest.mark.parametrize("lines", list(permutations([0, 1, 2])))
def test_success_takes_precedence_over_failure_in_any_order(read, lines):
    known = [openai_line("a", [LIMA_REPLY]), failed_line("a", "openai"), failed_line("a", "openai")]
    for files in ([[known[line] for line in lines]], [[known[line]] for line in lines]):
        staged = read(*files)
        assert replies(staged, "a") == [LIMA_REPLY]
        assert (count(staged), staged.contradicting.count) == (1, 0)


def test_first_of_two_replies_is_kept_and_the_other_is_named(read, tmp_path):
    staged = read([openai_line("a", [LIMA_REPLY])], [openai_line("b", [LIMA_REPLY]), openai_line("a", [CUZCO])])
    assert replies(staged, "a") == [LIMA_REPLY]
    assert staged.contradicting.count == 1
    assert staged.contradicting.named == [
        f"{tmp_path / '1.jsonl'}, line 2: 'a' has a different reply in {tmp_path / '0.jsonl'}, line 1"
    ]


def test_repeated_reply_in_another_format_is_not_a_contradiction(read):
    once = openai_line("a", [LIMA_REPLY])
    staged = read([once, once, {**once, "id": "2"}, anthropic_line("a", [LIMA_REPLY])])
    assert (count(staged), staged.contradicting.count) == (1, 0)


def test_file_given_twice_counts_once(read, tmp_path):
    staged = read([openai_line("a", [LIMA_REPLY])])
    staged.read(tmp_path / "0.jsonl")
    assert (count(staged), staged.contradicting.count) == (1, 0)


def test_unused_results_are_named_with_failures_listed_separately(read):
    names = [f"other-{number}" for number in range(MAX_NAMED + 3)]
    staged = read(
        [
            openai_line("a", [LIMA_REPLY]),
            *(openai_line(name, [LIMA_REPLY]) for name in names),
            failed_line("f", "openai"),
        ]
    )
    staged.get("a")
    unknown = staged.unused()
    assert unknown.count == MAX_NAMED + 3
    assert [one.rpartition(": ")[2] for one in unknown.named] == [repr(name) for name in names[:MAX_NAMED]]
    assert [one.rpartition(": ")[2] for one in staged.unused(failures=True).named] == ["'f'"]


DEEP = b'{"custom_id": "a", "response": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"custom_id": "a", "respo', "expected a line of JSON"),
        (b"[1, 2]", "expected a JSON object, got [1, 2]"),
        (b'"a"', "expected a JSON object, got 'a'"),
        (b"null", "expected a JSON object"),
        (b"NaN", "expected a JSON object"),
        (b"{}", "expected a custom_id that is text, got None"),
        (b'{"custom_id": 7, "response": {}}', "that is text, got 7"),
        (b'{"custom_id": "", "response": {}}', "that is text, got ''"),
        (b'{"custom_id": "a"}', "expected a response or an error, found neither"),
        (b'{"custom_id": "a", "result": 1}', "expected a result that is an object, got 1"),
        (b'{"custom_id": "a", "method": "POST", "url": "/v1", "body": {}}', "found neither"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b'{"custom_id": "a", "response": 1' + b"0" * 5000 + b"}", "cannot be read"),
        (DEEP, "cannot be read"),
        (b"\x1b[2J" * 5, "cannot be read"),
    ],
)
def test_invalid_result_line_is_named_and_others_are_read(read, tmp_path, line, expected):
    staged = read([openai_line("b", [LIMA_REPLY]), line, b"", b"  ", openai_line("c", [LIMA_REPLY])])
    assert count(staged) == 2
    assert staged.unreadable.count == 1
    (named,) = staged.unreadable.named
    assert named.startswith(f"{tmp_path / '0.jsonl'}, line 2: ")
    assert expected in named
    assert named.isprintable()
    assert len(named) < 1000


@pytest.mark.slow
def test_deeply_nested_values_do_not_crash(read):
    """A value that can be read near the top of the stack may be too deep further down."""
    lines = []
    for depth in range(100, 1000, 3):
        nested: Any = 0
        for _ in range(depth):
            nested = [nested]
        try:
            lines.append(json.dumps({**openai_line(f"d{depth}", [LIMA_REPLY]), "extra": nested}).encode())
        except RecursionError:
            break
    staged = read(lines)

    def deeper(name: str, more: int) -> Any:
        return staged.get(name) if not more else deeper(name, more - 1)

    found = [deeper(f"d{depth}", 300) for depth in range(100, 1000, 3)]
    assert found[0].response.replies == [LIMA_REPLY]
    assert any(one is None for one in found)


def test_byte_order_mark_and_crlf_are_ignored(read):
    line = json.dumps(openai_line("a", [("one\u2028two", StopReason.STOP)]), ensure_ascii=False).encode()
    staged = read([b"\xef\xbb\xbf" + line + b"\r"])
    assert replies(staged, "a") == [("one\u2028two", StopReason.STOP)]


def test_ids_may_contain_lone_surrogates_or_nul(read):
    staged = read([openai_line("\ud83d", [LIMA_REPLY]), openai_line("a\0b", [LIMA_REPLY])])
    assert count(staged) == 2
    assert all(one.isprintable() for one in staged.unused().named)


def test_ten_megabyte_line_is_read(read):
    text = "x" * 10_000_000
    assert replies(read([openai_line("a", [(text, StopReason.STOP)])]), "a") == [(text, StopReason.STOP)]


def test_overlong_line_is_skipped_and_named(read, monkeypatch):
    whole = [openai_line(name, [LIMA_REPLY]) for name in ("a", "b")]
    monkeypatch.setattr(request_files, "MAX_LINE", len(json.dumps(whole[0])) + 1)
    for endless in (b"[" * 5_000, json.dumps(openai_line("c", [("x" * 5_000, StopReason.STOP)])).encode()):
        staged = read([whole[0], endless, whole[1]])
        assert count(staged) == 2
        assert "line 2: expected a line of at most" in staged.unreadable.named[0]
        assert replies(staged, "b") == [LIMA_REPLY]


def test_results_larger_than_one_write_are_read(read, monkeypatch):
    staged = read([openai_line(str(number), [LIMA_REPLY]) for number in range(10)], [openai_line("9", [CUZCO])])
    assert count(staged) == 10
    assert staged.contradicting.count == 1
    for number in range(10):
        assert replies(staged, str(number)) == [LIMA_REPLY]
    assert staged.unused().count == 0


@pytest.mark.parametrize("make", [Path, Path.mkdir])
def test_unreadable_result_file_raises(tmp_path, make):
    path = tmp_path / "results.jsonl"
    make(path)
    with StagedResults() as staged, pytest.raises(ResultFileError, match=r"results\.jsonl: expected a file of results"):
        staged.read(path)


def test_full_disk_for_temporary_files_raises(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(openai_line("a", [LIMA_REPLY])))
    with StagedResults() as staged:
        staged._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(ResultFileError, match="temporary files"):
            staged.read(path)


def test_temporary_database_is_closed():
    with StagedResults() as staged:
        pass
    with pytest.raises(sqlite3.ProgrammingError):
        count(staged)
