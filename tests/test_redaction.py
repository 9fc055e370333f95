"""The filter for everything that is written or printed: keys are removed, and ordinary text is unchanged."""

from __future__ import annotations

import base64
import json
import os
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index import redaction
from refusal_index.redaction import (
    redacted,
    redacted_error,
    redacted_in,
    remember,
    remember_headers,
    secrets_in_url,
    without_credentials,
)

SECRET = "p+a/s=s wörd&7"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_remembered", set())


@pytest.mark.parametrize(
    "name",
    [
        "KEY",
        "FAKE_API_KEY",
        "FAKE_API_KEY_1",
        "OPENAI_API_KEY2",
        "HF_TOKEN",
        "TOKEN_OF_MINE",
        "A_SECRET",
        "MY_PASSWORD",
        "PASSWD",
        "CREDENTIALS",
        "AUTH",
        "X_AUTH_HEADER",
        "AUTHORIZATION",
        "my_api_key",
        "APIKEY",
    ],
)
def test_values_of_key_like_variables_are_redacted(monkeypatch, name):
    monkeypatch.setenv(name, "hush-hush")
    assert redacted_error("so hush-hush it is") == "so [key] it is"


@pytest.mark.parametrize("name", ["KEYBOARD", "GIT_AUTHOR_NAME", "XAUTHORITY", "MAX_TOKENS", "SECRETARY", "MODEL"])
def test_values_of_other_variables_are_kept(monkeypatch, name):
    monkeypatch.setenv(name, "qwertyuiop")
    assert redacted_error("qwertyuiop") == "qwertyuiop"


@pytest.mark.parametrize("value", ["abc", "ollama", "not-needed", "Secret", "/"])
def test_short_values_placeholders_and_paths_are_not_keys(monkeypatch, value):
    monkeypatch.setenv("SOME_API_KEY", value)
    assert redacted_error(f"the word {value} here") == f"the word {value} here"


def test_key_is_redacted_in_every_encoding(monkeypatch):
    monkeypatch.setenv("SOME_KEY", SECRET)
    forms = [SECRET, quote(SECRET), quote(SECRET, safe=""), quote_plus(SECRET), quote(SECRET, safe="").lower()]
    forms += [json.dumps(SECRET)[1:-1], json.dumps(SECRET, ensure_ascii=False)[1:-1], repr(SECRET)[1:-1]]
    assert [redacted_error(f"x {form} y") for form in forms] == ["x [key] y"] * len(forms)


@given(st.text(alphabet="ab/+ü7-", min_size=8, max_size=30))
def test_the_base64_of_a_key_is_redacted_with_and_without_padding(secret):
    remember(secret)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(secret.encode()).decode()
        assert redacted_error(f"x {encoded} y") == redacted_error(f"x {encoded.rstrip('=')} y") == "x [key] y"


def test_longer_key_with_a_shorter_key_as_prefix_is_fully_redacted(monkeypatch):
    monkeypatch.setenv("ONE_KEY", "hush-hush")
    monkeypatch.setenv("OTHER_KEY", "hush-hush-hush")
    assert redacted_error("hush-hush-hush") == "[key]"
    monkeypatch.setenv("KEYS", "one-of-two,two-of-two")
    assert redacted_error("one-of-two two-of-two") == "[key] [key]"


def test_secrets_in_environment_urls_are_redacted_but_urls_are_kept(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://me:pass%2Bword@host/v1?api_key=123456789&n=1234567")
    assert redacted_error("pass+word, pass%2Bword and 123456789") == "[key], [key] and [key]"
    assert redacted_error("host/v1 1234567") == "host/v1 1234567"


def test_key_changes_in_the_environment_take_effect_immediately(monkeypatch):
    text = "one-of-two two-of-two"
    monkeypatch.setenv("OTHER_KEY", "")
    assert redacted_error(text) == text
    monkeypatch.setenv("SOME_KEY", "one-of-two")
    assert redacted_error(text) == "[key] two-of-two"
    monkeypatch.setenv("SOME_KEY", "two-of-two")
    assert redacted_error(text) == "one-of-two [key]"
    os.environ.update(SOME_KEY="nothing-of-it", OTHER_KEY="one-of-two")
    assert redacted_error(text) == "[key] two-of-two"
    del os.environ["OTHER_KEY"]
    assert redacted_error(text) == text


def test_replaced_environment_mapping_is_read(monkeypatch):
    monkeypatch.setattr(os, "environ", {"SOME_KEY": "hush-hush"})
    assert redacted_error("so hush-hush it is") == "so [key] it is"
    os.environ["SOME_KEY"] = "it-is-so"
    assert redacted_error("so hush-hush it-is-so") == "so hush-hush [key]"


def test_remembered_secrets_and_url_credentials_are_redacted():
    remember(None, "", "from-memory", "https://me:hush-hush@host/v1")
    assert redacted_error("from-memory of hush-hush at host") == "[key] of [key] at host"
    assert secrets_in_url("https://averyverylongname@host") == ["averyverylongname"]
    assert secrets_in_url("https://me@host") == secrets_in_url("http://[half") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sk-proj-3fGh8jKl2mNp5qRs7tVw9", "[key]"),
        ("key=sk-ant-api03-3fGh8jKl2mNp5qRs7tVw9_-x", "key=[key]"),
        ("hf_" + "aB" * 17, "[key]"),
        ("AIza" + "a-B_5" * 7, "[key]"),
        ("xai-" + "a1" * 30, "[key]"),
        ("gsk_" + "a1" * 26, "[key]"),
        ("ghp_" + "a1" * 18, "[key]"),
        ("AKIAIOSFODNN7EXAMPLE.", "[key]."),
        ("Authorization: Bearer abcdef123456.ghijkl", "Authorization: Bearer [key]"),
        ("Authorization: Basic bWU6aHVzaC1odXNo.", "Authorization: Basic [key]."),
        ("https://x/y?a=1&access_token=abc&b=2", "https://x/y?a=1&access_token=[key]&b=2"),
        ("https://x/y?key=abc", "https://x/y?key=[key]"),
        ("postgres://me:abc@host/db", "postgres://[key]@host/db"),
    ],
)
def test_key_like_text_is_redacted(text, expected):
    assert redacted(text) == expected
    assert redacted(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<answer>sk-learn is scikit-learn, a task-oriented library of 2007</answer>",
        "The bearer of bad news arrived in 1914; Bearer bonds are instruments",
        "Basic responsibilities, basic introductions-to-everything and the Basic Law of 1949",
        "https://en.wikipedia.org/wiki/Lima?action=raw&section=2",
        "key=value, token=3 and password=hunter2 in prose",
        "ask me at user@example.org about http://example.org/@user",
        "AIza, hf_hub, gsk_one, ghp_x, xai-grok and AKIA are prefixes",
        "1 + 1 = 2://",
    ],
)
def test_ordinary_text_is_unchanged(text):
    assert redacted(text) == text


GIVEN, UNUSED, WORD = "gateway-3fGh8jKl2mNp", "another-3fGh8jKl2mNp", "variant"


def test_each_filter_removes_what_it_says(monkeypatch):
    monkeypatch.setenv("SORT_KEY", WORD)
    monkeypatch.setenv("OTHER_API_KEY", UNUSED)
    remember(GIVEN, "answer")
    text = f"{GIVEN}, {UNUSED}, sk-proj-3fGh8jKl2mNp5qRs, {WORD} and answer"
    assert without_credentials(text) == text.replace(GIVEN, "[key]")
    assert redacted(text) == f"[key], [key], [key], {WORD} and answer"
    assert redacted_error(text) == "[key], [key], [key], [key] and [key]"


@pytest.mark.parametrize("value", ["variant", "a-long-word-without-digits", "0123456789012345", "any", "none-needed-1"])
def test_only_long_values_of_letters_and_digits_are_credentials(value):
    remember(value)
    assert without_credentials(f"it is {value}") == redacted(f"it is {value}") == f"it is {value}"


def test_values_of_custom_headers_are_credentials(monkeypatch):
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Org: {UNUSED}\nX-Short: swordfish")
    assert redacted(f"{UNUSED} of swordfish") == "[key] of swordfish"
    assert redacted_error(f"{UNUSED} of swordfish") == "[key] of [key]"
    remember_headers({"X-Gateway": f"Bearer {GIVEN}"})
    assert without_credentials(f"Bearer {GIVEN} or {GIVEN}") == "[key] or [key]"


@given(st.text())
def test_redaction_is_idempotent_and_changes_nothing_else(text):
    once = redacted(text)
    assert redacted(once) == once
    assert once == text or "[key]" in once


def test_collections_are_redacted_recursively_and_keep_their_types(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "hush-hush")
    held = {"hush-hush": ["a", ("no hush-hush", 3)], "b": None}
    assert redacted_in(held, redacted_error) == {"hush-hush": ["a", ("no [key]", 3)], "b": None}, "names are kept"
    assert redacted_in(held) is held
    clean = {"a": ["b", 3]}
    assert redacted_in(clean) is clean
