"""Models through Inspect: from a name to a model, what passes between them, and many choices of one response."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_ai._util.error import PrerequisiteError, pip_dependency_error
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageUser,
    GenerateConfig,
    ModelCall,
    ModelOutput,
    get_model,
)

import refusal_index
from refusal_index.data.datasets import load_dataset
from refusal_index.models.failures import (
    FailureKind,
    NoAnswerError,
    UnreadableReplyError,
    classify_error,
    describe_error,
)
from refusal_index.plugins.almanac.inspect_api import AlmanacAPI
from refusal_index.plugins.inspect.client import (
    PACKED,
    ModelError,
    choices_of,
    classify,
    guard,
    packed,
    provider_names,
    resolve_model,
    unstyled,
)
from refusal_index.protocol import StopReason, load_prompt_set
from refusal_index.redaction import redacted, redacted_error

# --- Resolving model names


@pytest.mark.parametrize(
    ("name", "text"),
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
def test_unusable_model_name_raises_one_line(name, text, monkeypatch):
    for key in ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY", "TOGETHER_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    with pytest.raises(ModelError) as caught:
        resolve_model(name)
    message = str(caught.value)
    assert message.startswith(f"model '{name}': ")
    assert text in message
    assert "\n" not in message


def test_markup_in_a_model_name_is_quoted_literally():
    with pytest.raises(ModelError) as caught:
        resolve_model("almanac/x[red]-9")
    assert str(caught.value).count("x[red]-9'") == 2
    with pytest.raises(ModelError) as caught:
        resolve_model("almanac/[red]x[/red]")
    assert str(caught.value).count("'[red]x[/red]'") == 1, "the provider's own words about a name"


def test_inspect_messages_are_shown_without_styles(monkeypatch):
    monkeypatch.delenv("TOGETHER_API_KEY", raising=False)
    with pytest.raises(ModelError) as caught:
        resolve_model("together/bar")
    assert str(caught.value) == (
        "model 'together/bar': Unable to initialise Together client: No TOGETHER_API_KEY defined in the environment; "
        "set what is missing, or name a server of your own with base_url and api_key_env"
    )


def test_missing_package_is_one_instruction_with_one_colon(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise pip_dependency_error("Groq API", ["groq"])

    monkeypatch.setattr("refusal_index.plugins.inspect.client.get_model", fail)
    with pytest.raises(ModelError) as caught:
        resolve_model("groq/any")
    assert str(caught.value) == (
        "model 'groq/any': Groq API requires optional dependencies. Install with: pip install groq"
    )


def test_only_known_style_pairs_are_removed():
    text = "[bold]ERROR[/bold]: [dim]a [blue]b[/blue][/dim] [x]c[/x] [red]d [/red e[/bold] [1, 2]"
    assert unstyled(PrerequisiteError(text)) == "a b [x]c[/x] [red]d [/red e[/bold] [1, 2]"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("zzz", "no embedded model 'zzz'; the embedded models are base, small, rash"),
        ("smal", "no embedded model 'smal'; the embedded models are base, small, rash; did you mean 'small'?"),
    ],
)
def test_unknown_embedded_model_error_lists_the_models(name, message):
    with pytest.raises(ModelError) as caught:
        resolve_model(f"almanac/{name}")
    assert str(caught.value) == f"model 'almanac/{name}': {message}"


@pytest.mark.parametrize("key", ["sk-with-a-line-break\n", "sk-schlüssel"])
def test_unusable_key_raises_before_any_request(key, monkeypatch):
    """Every request used to fail with a header or codec error that did not mention the key."""
    monkeypatch.setenv("TOGETHER_API_KEY", key)
    with pytest.raises(ModelError, match="TOGETHER_API_KEY contains a line break or an invalid character") as told:
        resolve_model("together/any")
    assert key.strip() not in str(told.value)


@pytest.mark.parametrize("provider", ["openai", "together"])
def test_base_url_without_scheme_raises_unredacted(monkeypatch, provider):
    """Every request used to fail as `InvalidUrlClientError: /[key]/chat/completions`."""
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-any")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "127.0.0.1:8000/v1")
    with pytest.raises(ModelError) as caught:
        resolve_model(f"{provider}/any")
    assert redacted(str(caught.value)).endswith("begins with http:// or https://, got '127.0.0.1:8000/v1/'")


def test_missing_provider_package_is_named():
    if importlib.util.find_spec("groq"):
        pytest.skip("the package is there")
    with pytest.raises(ModelError, match="groq"):
        resolve_model("groq/any")


def test_provider_setup_errors_are_reported(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError("weights/none is no folder\nand no known model")

    monkeypatch.setattr("refusal_index.plugins.inspect.client.get_model", fail)
    with pytest.raises(ModelError, match=r"^model 'hf/none': weights/none is no folder and no known model$"):
        resolve_model("hf/none")


def test_models_are_not_shared_so_that_each_can_be_closed():
    assert resolve_model("almanac/base") is not resolve_model("almanac/base")


def test_the_embedded_models_are_among_the_providers():
    assert {"almanac", "openai", "anthropic", "openai-api", "vllm", "hf"} <= set(provider_names())


# --- Requests and responses of Inspect providers

OWN, ENVIRONMENT = "sk-own-key", "very-secret-token"


class FakeProvider:
    """Calls a test's function in place of a request."""

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


def test_missing_requirement_is_reported_without_styles_or_keys():
    def fail() -> None:
        raise pip_dependency_error(f"vLLM Server for {OWN}", ["vllm"])

    with pytest.raises(PrerequisiteError) as caught:
        guarded(fail)
    assert describe_error(caught.value) == (
        "PrerequisiteError: vLLM Server for [key] requires optional dependencies. Install with: pip install vllm"
    )


def test_missing_requirement_is_a_lasting_failure():
    found = classify(pip_dependency_error("vLLM Server", ["vllm"]), get_model("none/none", memoize=False))
    assert found.kind is FailureKind.LASTING
    assert found.advice == "run the same command again to resume", "the message says how to install it"


def test_missing_key_is_a_lasting_failure_with_advice():
    error = PrerequisiteError("[bold]ERROR[/bold]: No [bold]GROQ_API_KEY[/bold] defined")
    found = classify(error, get_model("none/none", memoize=False))
    assert found.kind is FailureKind.LASTING
    assert found.advice == "set what is missing; run the same command again to resume"


@pytest.mark.parametrize("error", [AttributeError(f"no field {OWN}"), TypeError("no text"), KeyError("usage")])
def test_reply_that_inspect_cannot_parse_is_not_retried(error):
    """It used to be paid for six times."""

    def fail() -> None:
        raise error

    with pytest.raises(UnreadableReplyError, match="the reply cannot be read: ") as caught:
        guarded(fail)
    assert OWN not in describe_error(caught.value)
    assert classify_error(caught.value, describe_error(caught.value), "m").kind is FailureKind.REQUEST


class ProviderError(Exception):
    """As in the openai and anthropic clients."""

    def __init__(self, message: str, body: object) -> None:
        super().__init__(message)
        self.message, self.body = message, body


def test_keys_in_an_error_and_its_causes_are_redacted():
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


def test_circular_error_causes_terminate():
    def fail() -> None:
        one, other = ValueError(OWN), ValueError(OWN)
        one.__cause__, other.__cause__ = other, one
        raise one

    with pytest.raises(ValueError, match=r"^\[key\]$"):
        guarded(fail)


def test_returned_error_and_its_response_are_redacted():
    call = ModelCall(request={"n": OWN}, response={"error": f"bad {OWN}", "headers": [OWN], "status": 400})
    error, same = guarded(lambda: (ProviderError(f"bad {OWN}", None), call))
    assert str(error) == "bad [key]"
    assert same.response == {"error": "bad [key]", "headers": ["[key]"], "status": 400}
    assert same.request == {"n": "[key]"}


def test_guard_rejects_only_responses_without_choices():
    with pytest.raises(NoAnswerError):
        guarded(lambda: SimpleNamespace(choices=[]))
    with pytest.raises(NoAnswerError):
        guarded(lambda: (SimpleNamespace(choices=[]), None))
    output = ModelOutput.from_content("m", "a reply")
    assert guarded(lambda: output) is output
    assert guarded(lambda: (output, None)) == (output, None)


def test_key_in_a_filtered_reply_is_redacted():
    """A provider's 400 that echoes the key becomes a reply that was stopped by a filter."""
    output = ModelOutput.from_content("m", f"blocked: {OWN}", stop_reason="content_filter", error=f"no {OWN}")
    output.metadata = {"why": [ENVIRONMENT]}
    clean = guarded(lambda: output)
    assert (clean.completion, clean.stop_reason, clean.error) == ("blocked: [key]", "content_filter", "no [key]")
    assert clean.metadata == {"why": ["[key]"]}


def test_provider_key_is_redacted_from_errors_from_then_on():
    guarded(lambda: ModelOutput.from_content("m", ""))
    assert redacted_error(f"so {OWN} is") == "so [key] is"


def test_guarding_a_provider_twice_changes_nothing():
    provider = FakeProvider(lambda: ModelOutput.from_content("m", "a reply"))
    guard(provider)
    once = provider.generate
    guard(provider)
    assert provider.generate is once


# --- Many choices of one response

REASONS = {"stop": StopReason.STOP, "max_tokens": StopReason.LENGTH, "content_filter": StopReason.CONTENT_FILTER}
CAME = st.lists(st.tuples(st.text(max_size=4), st.sampled_from(list(REASONS))), min_size=1, max_size=20)


def output(came: list[tuple[str, str]]) -> ModelOutput:
    choices = [
        ChatCompletionChoice(message=ChatMessageAssistant(content=text), stop_reason=reason) for text, reason in came
    ]
    return ModelOutput(model="m", choices=choices, metadata={"kept": 1})


@given(CAME)
def test_round_trip(came):
    whole = output(came)
    expected = [(text, REASONS[reason]) for text, reason in came]
    assert choices_of(whole) == choices_of(packed(whole)) == expected
    again = ModelOutput.model_validate_json(packed(whole).model_dump_json())
    assert choices_of(again) == expected, "also from a log"


def test_packing_stores_each_distinct_text_once():
    whole = output([("Lima", "stop")] * 99 + [("Cuzco", "stop")])
    one = packed(whole)
    assert len(one.choices) == 1
    assert one.metadata["kept"] == 1
    assert one.metadata[PACKED]["distinct"] == [["Lima", "stop"], ["Cuzco", "stop"]]
    assert len(whole.choices) == 100, "the response itself is left alone"


def test_single_choice_is_not_packed():
    whole = output([("Lima", "stop")])
    assert packed(whole) is whole


# --- The embedded models behind Inspect's interface

PROMPT = "\n\n".join(load_prompt_set("default").render("normal", load_dataset("almanac").questions[0].text))


def ask(**config: object) -> ModelOutput:
    async def once() -> ModelOutput:
        model = resolve_model("almanac/base")
        return await model.generate(PROMPT, config=GenerateConfig(**config))

    return asyncio.run(once())


def test_a_reply_has_text_tokens_and_a_stop_reason():
    output = ask(seed=1, max_tokens=200)
    assert "<answer>" in output.completion
    assert output.stop_reason == "stop"
    assert output.usage.input_tokens > 100
    assert 0 < output.usage.output_tokens < 200
    assert output.usage.total_tokens == output.usage.input_tokens + output.usage.output_tokens


def test_truncated_reply_has_stop_reason_max_tokens():
    output = ask(seed=1, max_tokens=2)
    assert output.stop_reason == "max_tokens"
    assert output.usage.output_tokens == 2


def test_the_same_seed_gives_the_same_reply_and_others_differ():
    hot = {"temperature": 1.5, "max_tokens": 30}
    replies = [ask(seed=seed, **hot).completion for seed in range(5)]
    assert [ask(seed=seed, **hot).completion for seed in range(5)] == replies
    assert len(set(replies)) > 1


def test_choices_are_sampled_separately_and_counted_together():
    output = ask(seed=1, temperature=1.5, max_tokens=30, num_choices=4)
    drawn = choices_of(output)
    assert len(drawn) == 4
    assert len(set(drawn)) > 1
    one = ask(seed=1, temperature=1.5, max_tokens=30)
    assert output.usage.input_tokens == one.usage.input_tokens, "a shared prompt is read once"
    assert output.usage.output_tokens > one.usage.output_tokens


def test_a_stop_sequence_ends_the_reply():
    assert "</answer>" not in ask(seed=1, stop_seqs=["</answer>"]).completion


def test_temperature_0_needs_no_seed():
    assert ask(temperature=0.0).completion == ask(temperature=0.0).completion


def test_overlong_conversation_raises():
    async def once() -> None:
        await resolve_model("almanac/base").generate([ChatMessageUser(content="word " * 20_000)])

    with pytest.raises(Exception, match="shorten the messages"):
        asyncio.run(once())


def test_provider_takes_no_arguments_and_is_registered_with_inspect():
    with pytest.raises(ValueError, match=r"almanac/base takes no model arguments, got device"):
        AlmanacAPI("base", device="cuda")
    assert isinstance(get_model("almanac/base", memoize=False).api, AlmanacAPI)


# --- Incompatible releases of Inspect

PACKAGE = Path(refusal_index.__path__[0])


def private_imports(path: Path) -> set[str]:
    """Return every private name that a module imports from Inspect."""
    found = set()
    for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("inspect_ai"):
            names = [f"{one.module}:{each.name}" for each in one.names]
            found |= {name for name in names if "._" in name or ":_" in name}
    return found


def test_private_names_of_inspect_are_imported_in_one_module():
    importing = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if private_imports(path)]
    assert importing == ["plugins/inspect/__init__.py"]


@pytest.mark.slow
def test_incompatible_inspect_ends_the_command_with_one_line():
    code = (
        "import inspect_ai._util.registry as found; del found.registry_find\nfrom refusal_index.cli import main; main()"
    )
    command = ("run", "--model", "openai/gpt-4.1", "--limit", "1")
    ended = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    line = " ".join(ended.stderr.split())
    assert "cannot import name 'registry_find' from 'inspect_ai._util.registry'" in line
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    given = next(one for one in project["optional-dependencies"]["eval"] if one.startswith("inspect-ai"))
    named = line.rpartition("pip install '")[2].partition("'")[0]
    assert sorted(named.removeprefix("inspect-ai").split(",")) == sorted(given.removeprefix("inspect-ai").split(","))


@pytest.mark.slow
def test_missing_inspect_is_not_reported_as_incompatible():
    code = "import sys; sys.modules['inspect_ai'] = None; import refusal_index.plugins.inspect"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: import of inspect_ai halted" in ended.stderr


@pytest.mark.parametrize(
    ("given", "expected"), [({"stop_reason": "unknown"}, StopReason.UNKNOWN), ({}, StopReason.STOP)]
)
def test_unknown_stop_reason_counts_only_if_the_provider_set_it(given, expected):
    answer = ChatCompletionChoice(message=ChatMessageAssistant(content="Lima"), **given)
    output = guarded(lambda: ModelOutput(model="m", choices=[answer]))
    assert choices_of(output) == [("Lima", expected)]


@pytest.mark.parametrize(
    ("word", "expected"), [("refusal", StopReason.REFUSAL), ("end_turn", StopReason.STOP), ("odd", StopReason.UNKNOWN)]
)
def test_stop_reason_of_anthropic_is_read_from_its_response(word, expected):
    """Inspect takes the mark of a refusal for that of a filter."""
    output = ModelOutput.from_content("m", "Lima", stop_reason="content_filter" if word == "refusal" else "stop")
    call = ModelCall(request={}, response={"content": [{"type": "text", "text": "Lima"}], "stop_reason": word})
    assert choices_of(guarded(lambda: (output, call))[0]) == [("Lima", expected)]
