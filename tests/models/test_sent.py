"""What models are sent, seen by the server, equals what a run records; and what rests on temperature 0 follows it."""

from __future__ import annotations

import asyncio
import json

import pytest

import refusal_index as ri
from refusal_index.data.run_json import decoding_sent, is_deterministic
from refusal_index.models.sent import SETTINGS, sent_in
from refusal_index.models.settings import Decoding, Servers
from refusal_index.render.dry_run import dry_run_blocks
from refusal_index.render.format import to_text
from refusal_index.runs.api import plan_of
from refusal_index.runs.dry_run import estimate_run
from refusal_index.runs.events import Underway
from refusal_index.runs.sent import difference, merged_settings, sends_as_set
from tests.models.provider_server import ProviderServer
from tests.served import at, grader_at, is_served

ALL_SENT = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096, "seed": True}
PACKAGES = {"anthropic": "anthropic", "google": "google.genai"}
REASONS = {**dict.fromkeys(SETTINGS), "max_tokens": 4096}


def servers_of(model: str, grader: object = None) -> dict[str, str]:
    """Return the settings of the server that the test serves, for models that have only its name."""
    return {**(at() if is_served(model) else {}), **(grader_at() if is_served(grader) else {})}


def evaluate(model: str, **settings: object) -> tuple[ri.RunResults, dict, list[str]]:
    """Run a model, and return the run, `about` of its folder, and the lines that were printed meanwhile."""
    lines: list[str] = []

    def watch(event: object) -> None:
        if isinstance(event, Underway) and event.is_notice:
            lines.append(event.note)

    how = {"variants": "normal", "grader": "exact", "limit": 3, "max_retries": 0, "out": "r"}
    how |= servers_of(model, settings.get("grader")) | settings
    run = ri.evaluate(model, "own", data="q.csv", progress=watch, **how)
    return run, run.folder.read_about(), lines


def received_settings(server: ProviderServer) -> dict[str, float | bool | None]:
    """Return the settings in the bodies that arrived, which must be alike but for the seed; read by other code."""
    names = {
        "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"),
        "top_p": ("top_p", "topP"),
    }
    found = []
    for whole in server.bodies:
        text, body = json.dumps(whole), {**whole, **whole.get("generationConfig", {})}
        if "hello, world" in text:  # Inspect tries out what an OpenAI account may do
            continue
        values = {name: [body[key] for key in names.get(name, (name,)) if key in body] for name in SETTINGS}
        for name in ("temperature", "seed"):  # nowhere else in the body
            assert (f'"{name}"' in text) is bool(values[name])
        found.append({name: (value or [None])[0] for name, value in values.items()})
    assert found
    assert all({**one, "seed": 0} == {**found[0], "seed": 0} for one in found)
    return {**found[0], "seed": None if found[0]["seed"] is None else True}


@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")  # of Google's client
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("any", ALL_SENT),
        ("together/any", ALL_SENT),
        ("openai/gpt-4.1", ALL_SENT),
        ("openai/o3", REASONS),
        ("openai/gpt-5", REASONS),
        ("anthropic/claude-sonnet-4-6", REASONS),
        ("google/gemini-2.5-flash", {**ALL_SENT, "seed": None}),
    ],
)
def test_end_to_end_a_run_records_what_arrived_at_the_server(provider_server, model, expected):
    if (provider := model.partition("/")[0]) in PACKAGES:
        pytest.importorskip(PACKAGES[provider], reason="needs the provider's own client")
    _, about, lines = evaluate(model)
    assert about["sent"] == {"model": received_settings(provider_server)} == {"model": expected}
    left_out = [name for name in SETTINGS if expected[name] is None]
    assert len(lines) == bool(left_out)
    assert all(model in line and name in line for line in lines for name in left_out)


def test_end_to_end_a_grader_is_recorded_with_its_own_settings(provider_server):
    _, about, lines = evaluate("any", grader="judge", max_retries=0, retry=())
    assert about["sent"]["model"] == ALL_SENT
    assert about["sent"]["grader"] == {**dict.fromkeys(SETTINGS), "seed": True}
    assert not lines


def test_end_to_end_the_embedded_model_records_what_it_samples_with(provider_server):
    _, about, lines = evaluate("almanac/small", temperature=0.3, top_p=0.8, max_tokens=40)
    assert about["sent"] == {"model": {"temperature": 0.3, "top_p": 0.8, "max_tokens": 40, "seed": True}}
    assert about["answered_by"] == {"model": {"small": sum(about["answered_by"]["model"].values())}}
    assert not lines


def test_end_to_end_a_function_is_sent_no_settings_so_that_temperature_0_says_nothing(provider_server):
    run, about, lines = evaluate("python:tests.faults.pipeline:answer", temperature=0)
    assert "sent" not in about
    assert not is_deterministic(run.folder.read_settings(), about)
    assert not lines


@pytest.mark.parametrize(("model", "is_sent"), [("any", True), ("openai/o3", False)])
def test_end_to_end_corrected_ri_repeats_ri_only_if_temperature_0_was_sent(provider_server, model, is_sent):
    run, about, _ = evaluate(model, temperature=0)
    assert is_deterministic(run.folder.read_settings(), about) is is_sent
    assert (run.summary.variants[0].corrected is not None) is is_sent


def test_end_to_end_settings_of_a_resumed_run_that_differ_are_listed(provider_server, monkeypatch):
    from refusal_index.models import chat_api

    evaluate("gpt-4.1", temperature=0, max_requests=2, max_connections=1)
    monkeypatch.setattr(chat_api, "rejects_sampling", lambda *_: True)
    run, about, _ = evaluate("gpt-4.1", temperature=0)
    assert about["sent"]["model"]["temperature"] == [0, None]
    assert not is_deterministic(run.folder.read_settings(), about)
    assert "temperature" not in decoding_sent(run.folder.read_settings(), about)


def test_theory_settings_are_found_under_the_names_of_every_provider():
    expected = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "seed": None}
    google = {
        "contents": [{"seed": 1}],
        "generation_config": {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 64},
    }
    bedrock = {"modelId": "m", "inferenceConfig": {"temperature": 0.5, "topP": 0.9, "maxTokens": 64}}
    sagemaker = {"temperature": 0.5, "top_p": 0.9, "max_new_tokens": 64, "seed": None}
    assert sent_in(google) == sent_in(bedrock) == sent_in(sagemaker) == expected
    assert sent_in({"random_seed": 7})["seed"] is True
    assert sent_in({"temperature": True, "messages": [{"temperature": 1}], "max_tokens": "9"}) == dict.fromkeys(
        SETTINGS
    )


def test_property_a_merged_record_lists_each_value_once():
    record = None
    for value in (0.0, None, 0.0, 1.0, None):
        record = merged_settings(record, {"temperature": value})
    assert record == {"temperature": [0.0, None, 1.0]}
    assert not is_deterministic({}, {"sent": {"model": record}})


def test_theory_a_line_names_what_was_left_out_and_what_was_changed():
    sent = {**ALL_SENT, "top_p": None, "max_tokens": 6144}
    line = difference("a/b", Decoding(), sent)
    assert line == "a/b: top_p was not sent; the provider's defaults apply; max_tokens was sent as 6144 instead of 4096"
    assert difference("a/b", Decoding(), ALL_SENT) is None


def test_theory_only_clients_that_send_everything_are_known_beforehand():
    names = ("almanac/base", "a/b", "openai/gpt-4.1", "python:a:b")
    assert [name for name in names if sends_as_set(name, Servers())] == ["almanac/base"]
    assert all(sends_as_set(name, Servers(base_url="http://127.0.0.1:8000/v1")) for name in names)
    at_openai = Servers(base_url="https://api.openai.com/v1")
    assert [name for name in ("gpt-4.1", "o3", "gpt-5") if sends_as_set(name, at_openai)] == ["gpt-4.1"]


@pytest.mark.parametrize(
    ("settings", "sent", "expected"),
    [
        ({}, {"temperature": 0}, True),
        ({}, {"temperature": 0.1}, False),
        ({}, {"temperature": None}, False),
        ({}, {"temperature": [0, 1]}, False),
        ({}, None, False),
        ({"first_pass": {}}, {"temperature": 0}, False),
        ({"decoding": {"temperature": 0}}, None, False),
    ],
)
def test_theory_a_run_is_deterministic_if_all_its_requests_sent_temperature_0(settings, sent, expected):
    assert is_deterministic(settings, {} if sent is None else {"sent": {"model": sent}}) is expected


@pytest.mark.parametrize(("model", "known"), [("any", True), ("openai/o3", False), ("openai/gpt-4.1", False)])
def test_end_to_end_a_plan_relies_on_temperature_0_where_the_client_is_known_to_send_it(provider_server, model, known):
    how = {"data": "q.csv", "limit": 3, "variants": "normal", "grader": "exact", "draws": 2, **servers_of(model)}
    plan = plan_of(model, "own", out="p", temperature=0, **how)
    assert plan.is_deterministic is known
    text = " ".join(to_text(dry_run_blocks([asyncio.run(estimate_run(plan))])).split())
    assert ("if the model accepts it" in text) is not known
    assert not plan_of(model, "own", out="p", temperature=0.1, **how).is_deterministic
    run, _, _ = evaluate("openai/gpt-4.1", temperature=0)
    again = plan_of(
        "openai/gpt-4.1", "own", out="r", temperature=0, **{**how, "draws": 1, "base_url": None, "api_key_env": None}
    )
    assert run.folder.path == again.folder.path
    assert again.is_deterministic, "by what was sent before"
