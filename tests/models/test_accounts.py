"""Where a model is asked: from its name and the environment, or a line that says what is missing."""

from __future__ import annotations

import pytest

from refusal_index.models.requests import NO_KEY, OPENAI_URL, Account, ModelError, account_of, called
from refusal_index.redaction import redacted

URL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai/gpt-4.1", ("openai", "gpt-4.1")),
        ("openai-api/together/meta-llama/any", ("together", "meta-llama/any")),
        ("vllm/org/model", ("vllm", "org/model")),
        ("nothing", ("nothing", "")),
        ("/model", ("", "model")),
    ],
)
def test_a_name_tells_the_provider_and_what_it_calls_the_model(name, expected):
    assert called(name) == expected


def test_openai_has_an_address_that_a_variable_may_change():
    key = {"OPENAI_API_KEY": "k-123456"}
    assert account_of("openai/any", key) == Account(
        "openai/any", "openai", "any", OPENAI_URL, "k-123456", "OPENAI_API_KEY"
    )
    assert account_of("openai/any", key | {"OPENAI_BASE_URL": URL}).base_url == URL
    assert account_of("openai/any", {"OPENAI_BASE_URL": URL}).api_key == NO_KEY, "a server that asks for none"


@pytest.mark.parametrize("name", ["my-own.host/org/any", "openai-api/my-own.host/org/any"])
def test_any_other_provider_is_where_its_variable_says(name):
    account = account_of(name, {"MY_OWN_HOST_BASE_URL": URL, "MY_OWN_HOST_API_KEY": "k-123456"})
    assert (account.provider, account.model, account.base_url) == ("my-own.host", "org/any", URL)
    assert (account.api_key, account.key_name) == ("k-123456", "MY_OWN_HOST_API_KEY")


@pytest.mark.parametrize(
    ("name", "environment", "told"),
    [
        ("nothing", {}, "expected PROVIDER/MODEL"),
        ("openai/", {}, "expected PROVIDER/MODEL"),
        ("/model", {}, "expected PROVIDER/MODEL"),
        ("openai-api/x", {}, "expected PROVIDER/MODEL"),
        ("openai-api//x", {}, "expected PROVIDER/MODEL"),
        ("", {}, "expected PROVIDER/MODEL"),
        ("fake/any", {}, "FAKE_BASE_URL, as in http://127.0.0.1:8000/v1, found none"),
        ("fake/any", {"FAKE_BASE_URL": ""}, "found none"),
        ("almanac/base", {}, "'refusal-index serve' offers one"),
        ("openai/any", {}, "expected a key in OPENAI_API_KEY, found none"),
        ("openai/any", {"OPENAI_API_KEY": "line\nbreak"}, "OPENAI_API_KEY contains a line break"),
        ("openai/any", {"OPENAI_API_KEY": "kéy"}, "an invalid character"),
        *(
            ("fake/any", {"FAKE_BASE_URL": url}, "begins with http:// or https://")
            for url in ("localhost:8000", "ftp://host/v1", "http://", "http://host:port/v1", "http://host:99999/v1",
                        "http://host:0/v1", " http://host/v1", "http://host/v1\n", "http://[::1/v1", "file:///etc/passwd")
        ),
    ],
)  # fmt: skip
def test_what_is_missing_or_cannot_be_is_told(name, environment, told):
    with pytest.raises(ModelError) as raised:
        account_of(name, environment)
    assert told in raised.value.message
    assert repr(name) in raised.value.message
    assert raised.value.message.isprintable()


def test_no_key_is_shown_or_passes_the_filter():
    environment = {"FAKE_BASE_URL": "http://me:hush-hush@host/v1?token=hidden-1", "FAKE_API_KEY": "tr0ub4dor"}
    account = account_of("fake/any", environment)
    assert "tr0ub4dor" not in repr(account)
    for secret in ("tr0ub4dor", "hush-hush", "hidden-1"):
        assert redacted(f"it was {secret}.") == "it was [key]."


def test_a_long_address_that_is_none_is_shown_in_part():
    with pytest.raises(ModelError) as raised:
        account_of("fake/any", {"FAKE_BASE_URL": "x" * 10_000})
    assert len(raised.value.message) < 300
