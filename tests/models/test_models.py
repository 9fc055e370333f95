"""From a model's name to a model, or one line that says why not."""

from __future__ import annotations

import importlib.util

import pytest
from inspect_ai._util.error import PrerequisiteError

from refusal_index.plugins.inspect.client import ModelError, provider_names, resolve_model, unstyled
from refusal_index.redaction import redacted


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gpt-4.1", "expected PROVIDER/NAME"),
        ("/gpt-4.1", "expected PROVIDER/NAME"),
        ("openai/", "expected PROVIDER/NAME"),
        ("opnai/gpt-4.1", "did you mean openai/gpt-4.1?"),
        ("Anthropic/claude", "did you mean anthropic/claude?"),
        ("almanack/base", "did you mean almanac/base?"),
        ("xyzzy/gpt-4.1", "expected one of almanac, "),
        ("almanac/bse", "'base'"),
        ("openai/gpt-4.1", "OPENAI_API_KEY"),
        ("together/any", "TOGETHER_"),
    ],
)
def test_a_name_that_cannot_be_used_is_told_in_one_line(name, told, monkeypatch):
    for key in ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY", "TOGETHER_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    with pytest.raises(ModelError) as caught:
        resolve_model(name)
    message = str(caught.value)
    assert message.startswith(f"model '{name}': ")
    assert told in message
    assert "\n" not in message


def test_what_looks_like_markup_in_a_name_is_quoted_as_it_is():
    with pytest.raises(ModelError) as caught:
        resolve_model("almanac/x[red]-9")
    assert str(caught.value).count("x[red]-9'") == 2
    with pytest.raises(ModelError) as caught:
        resolve_model("almanac/[red]x[/red]")
    assert str(caught.value).count("'[red]x[/red]'") == 1, "the provider's own words about a name"


def test_what_inspect_says_for_its_own_display_is_told_without_its_styles(monkeypatch):
    monkeypatch.delenv("TOGETHER_API_KEY", raising=False)
    with pytest.raises(ModelError) as caught:
        resolve_model("together/bar")
    assert str(caught.value) == (
        "model 'together/bar': Unable to initialise Together client: No TOGETHER_API_KEY defined in the environment; "
        "set or install what is missing"
    )


def test_only_pairs_of_known_styles_are_taken_out_of_a_message():
    told = "[bold]ERROR[/bold]: [dim]a [blue]b[/blue][/dim] [x]c[/x] [red]d [/red e[/bold] [1, 2]"
    assert unstyled(PrerequisiteError(told)) == "a b [x]c[/x] [red]d [/red e[/bold] [1, 2]"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("zzz", "no embedded model 'zzz'; the embedded models are base, small, rash"),
        ("smal", "no embedded model 'smal'; the embedded models are base, small, rash; did you mean 'small'?"),
    ],
)
def test_an_embedded_model_that_is_none_is_told_in_sentences(name, told):
    with pytest.raises(ModelError) as caught:
        resolve_model(f"almanac/{name}")
    assert str(caught.value) == f"model 'almanac/{name}': {told}"


@pytest.mark.parametrize("key", ["sk-with-a-line-break\n", "sk-schlüssel"])
def test_a_key_that_no_request_can_carry_is_told_before_one_is_sent(key, monkeypatch):
    """Every request failed, of a header injection or of a codec, and none said that it was the key."""
    monkeypatch.setenv("TOGETHER_API_KEY", key)
    with pytest.raises(ModelError, match="TOGETHER_API_KEY contains a line break or an invalid character") as told:
        resolve_model("together/any")
    assert key.strip() not in str(told.value)


@pytest.mark.parametrize("provider", ["openai", "together"])
def test_an_address_without_its_scheme_is_told_and_taken_for_no_key(monkeypatch, provider):
    """Every request failed as `InvalidUrlClientError: /[key]/chat/completions`."""
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-any")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "127.0.0.1:8000/v1")
    with pytest.raises(ModelError) as caught:
        resolve_model(f"{provider}/any")
    assert redacted(str(caught.value)).endswith("begins with http:// or https://, got '127.0.0.1:8000/v1/'")


def test_the_package_of_a_provider_that_is_missing_is_named():
    if importlib.util.find_spec("groq"):
        pytest.skip("the package is there")
    with pytest.raises(ModelError, match="groq"):
        resolve_model("groq/any")


def test_whatever_a_provider_raises_when_it_is_set_up_is_told(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError("weights/none is no folder\nand no known model")

    monkeypatch.setattr("refusal_index.plugins.inspect.client.get_model", fail)
    with pytest.raises(ModelError, match=r"^model 'hf/none': weights/none is no folder and no known model$"):
        resolve_model("hf/none")


def test_models_are_not_shared_so_that_each_can_be_closed():
    assert resolve_model("almanac/base") is not resolve_model("almanac/base")


def test_the_embedded_models_are_among_the_providers():
    assert {"almanac", "openai", "anthropic", "openai-api", "vllm", "hf"} <= set(provider_names())
