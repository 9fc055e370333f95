"""What passes between Inspect and a provider: no key, and no response without a reply."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from inspect_ai._util.error import PrerequisiteError, pip_dependency_error
from inspect_ai.model import ModelCall, ModelOutput, get_model

from refusal_index.models.failures import (
    FailureKind,
    NoAnswerError,
    UnreadableReplyError,
    classify_error,
    describe_error,
)
from refusal_index.plugins.inspect.client import classify, guard
from refusal_index.redaction import redacted

OWN, ENVIRONMENT = "sk-own-key", "very-secret-token"


class FakeProvider:
    """Does what a test tells it to in place of a request."""

    def __init__(self, behaviour: Any, api_key: str | None = OWN) -> None:
        self.behaviour, self.api_key = behaviour, api_key

    async def generate(self) -> Any:
        return self.behaviour()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_OTHER_TOKEN", ENVIRONMENT)


def guarded(behaviour: Any) -> Any:
    provider = FakeProvider(behaviour)
    guard(provider)
    return asyncio.run(provider.generate())


def test_what_a_request_lacks_is_told_without_the_styles_of_inspects_display_and_without_keys():
    def fail() -> None:
        raise pip_dependency_error(f"vLLM Server for {OWN}", ["vllm"])

    with pytest.raises(PrerequisiteError) as caught:
        guarded(fail)
    assert describe_error(caught.value) == (
        "PrerequisiteError: vLLM Server for [key] requires optional dependencies. Install with: pip install vllm"
    )


def test_what_must_be_provided_first_is_not_waited_for():
    found = classify(pip_dependency_error("vLLM Server", ["vllm"]), get_model("none/none", memoize=False))
    assert found.kind is FailureKind.LASTING
    assert found.advice == "set or install what is missing; run the same command again to resume"


@pytest.mark.parametrize("error", [AttributeError(f"no field {OWN}"), TypeError("no text"), KeyError("usage")])
def test_a_reply_that_inspect_cannot_parse_is_not_asked_for_again(error):
    """It was paid for six times."""

    def fail() -> None:
        raise error

    with pytest.raises(UnreadableReplyError, match="the reply cannot be read: ") as caught:
        guarded(fail)
    assert OWN not in describe_error(caught.value)
    assert classify_error(caught.value, describe_error(caught.value), "m").kind is FailureKind.REQUEST


class ProviderError(Exception):
    """As the openai and the anthropic client have them."""

    def __init__(self, message: str, body: object) -> None:
        super().__init__(message)
        self.message, self.body = message, body


def test_keys_in_an_error_and_in_those_that_led_to_it_are_blacked_out():
    body = {"error": {"type": "overloaded_error", "message": f"key {OWN}", "tried": [OWN, 3]}}

    def fail() -> None:
        try:
            try:
                raise KeyError(ENVIRONMENT)
            except KeyError:
                raise OSError(401, f"no {OWN}")  # noqa: B904 - the context is what is tested
        except OSError as error:
            raise ProviderError(f"{OWN} and {ENVIRONMENT}", body) from error

    with pytest.raises(ProviderError) as caught:
        guarded(fail)
    error = caught.value
    assert (str(error), error.message) == ("[key] and [key]", "[key] and [key]")
    assert error.body == {"error": {"type": "overloaded_error", "message": "key [key]", "tried": ["[key]", 3]}}
    assert error.__cause__.args == (401, "no [key]")
    assert error.__cause__.__context__.args == ("[key]",)


def test_errors_that_led_to_each_other_end():
    def fail() -> None:
        one, other = ValueError(OWN), ValueError(OWN)
        one.__cause__, other.__cause__ = other, one
        raise one

    with pytest.raises(ValueError, match=r"^\[key\]$"):
        guarded(fail)


def test_an_error_that_is_returned_is_cleaned_with_the_response_beside_it():
    call = ModelCall(request={"n": OWN}, response={"error": f"bad {OWN}", "headers": [OWN], "status": 400})
    error, same = guarded(lambda: (ProviderError(f"bad {OWN}", None), call))
    assert str(error) == "bad [key]"
    assert same.response == {"error": "bad [key]", "headers": ["[key]"], "status": 400}
    assert same.request == {"n": "[key]"}


def test_a_response_without_choices_is_an_error_and_any_other_passes_unchanged():
    with pytest.raises(NoAnswerError):
        guarded(lambda: SimpleNamespace(choices=[]))
    with pytest.raises(NoAnswerError):
        guarded(lambda: (SimpleNamespace(choices=[]), None))
    output = ModelOutput.from_content("m", "a reply")
    assert guarded(lambda: output) is output
    assert guarded(lambda: (output, None)) == (output, None)


def test_a_reply_that_holds_a_key_comes_without_it():
    """A provider's 400 that echoes the key becomes a reply that was stopped by a filter."""
    output = ModelOutput.from_content("m", f"blocked: {OWN}", stop_reason="content_filter", error=f"no {OWN}")
    output.metadata = {"why": [ENVIRONMENT]}
    clean = guarded(lambda: output)
    assert (clean.completion, clean.stop_reason, clean.error) == ("blocked: [key]", "content_filter", "no [key]")
    assert clean.metadata == {"why": ["[key]"]}


def test_the_key_of_a_provider_is_known_from_then_on():
    guarded(lambda: ModelOutput.from_content("m", ""))
    assert redacted(f"so {OWN} is") == "so [key] is"


def test_a_provider_that_is_guarded_already_stays_as_it_is():
    provider = FakeProvider(lambda: ModelOutput.from_content("m", "a reply"))
    guard(provider)
    once = provider.generate
    guard(provider)
    assert provider.generate is once
