"""Further headers and fields of a request's body: sent as given, stored without values, refused where not sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web

import refusal_index as ri
from refusal_index.models.settings import SettingError
from refusal_index.runs.settings import Settings
from tests.faults.api import Exchange, FakeApi
from tests.served import at

KEY = "gateway-3fGh8jKl2mNp"
ROWS = [{"id": f"q{number}", "question": f"What is {number}?", "answer": str(number)} for number in range(3)]
RUN = {"grader": "exact", "variants": "high", "out": "run", "max_retries": 0}


def ask(*, model: str = "any", **settings: object) -> ri.RunResults:
    return ri.evaluate(model, ROWS, **settings)


async def echo(exchange: Exchange) -> web.StreamResponse:
    """Answer with the value of the header."""
    value = exchange.request.headers["X-Gateway"] if exchange.request is not None else ""
    return web.json_response(exchange.answered((f"<answer>{value}</answer>", "stop")))


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_API_KEY", "k-0123456789")
    monkeypatch.setenv("GATEWAY_KEY", KEY)


def test_header_and_extra_body_are_sent_and_no_value_is_stored_end_to_end(inside, monkeypatch):
    with FakeApi(lambda _: "", lambda *_: echo) as api:
        run = ask(**RUN, **at(api.url), header="X-Gateway=env:GATEWAY_KEY", extra_body='{"top_k": 20}')
        assert {body["top_k"] for body in api.answered} == {20}
        assert {headers["x-gateway"] for headers in api.headers} == {KEY}
    settings = json.loads(Path("run/run.json").read_text())["settings"]
    assert (settings["headers"], settings["extra_body"]) == (["x-gateway"], {"top_k": 20})
    assert set(run.outcomes["first_reply"]) == {"<answer>[key]</answer>"}
    assert not [file for file in Path("run").rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]


def test_value_of_a_custom_header_in_the_environment_is_removed_from_replies(inside, monkeypatch):
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Gateway: {KEY}")
    with FakeApi(lambda _: "", lambda *_: echo) as api:
        run = ask(**RUN, **at(api.url))
    assert set(run.outcomes["first_reply"]) == {"<answer>[key]</answer>"}
    (caveat,) = [caveat for caveat in run.summary.variants[0].caveats if caveat.code == "keys_removed"]
    assert caveat.values == {"replies": 3}


def test_missing_variable_of_a_header_is_an_error(inside, monkeypatch):
    monkeypatch.delenv("GATEWAY_KEY")
    with pytest.raises(ri.RefusalIndexError, match="expected its value in GATEWAY_KEY, found none"):
        ask(**RUN, **at("http://127.0.0.1:9/v1"), header={"X-Gateway": "env:GATEWAY_KEY"})


@pytest.mark.parametrize("name", ["header", "extra_body"])
@pytest.mark.parametrize(
    "given",
    [
        {"model": "almanac/small"},
        {"model": "openai/any"},
        {"engine": "command", "command": "true", **at("http://127.0.0.1:9/v1")},
    ],
)
def test_wire_setting_that_would_not_be_sent_is_an_error(inside, name, given):
    value = {"header": "X-Gateway=env:GATEWAY_KEY", "extra_body": {"top_k": 20}}[name]
    with pytest.raises(ri.RefusalIndexError, match=f"{name}: requires base_url and engine direct"):
        ask(**{**RUN, **given, name: value})


@pytest.mark.parametrize("value", [f"X-Gateway={KEY}", f"X-Gateway: {KEY}", {"X-Gateway": KEY}, "=env:A", "X-Gateway="])
def test_literal_value_of_a_header_is_refused_and_not_shown(value):
    with pytest.raises(SettingError, match="env:") as raised:
        Settings.from_values(header=value)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("value", [["X-A=env:A", "x-a=env:B"], "Host=env:A", "content-type=env:A"])
def test_header_given_twice_or_of_the_client_is_refused(value):
    with pytest.raises(SettingError, match="leave it out"):
        Settings.from_values(header=value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "expected a JSON object"),
        ("[]", "expected a JSON object"),
        ("{}", "expected a JSON object"),
        ('{"a": NaN}', "expected a JSON object"),
        (5, "expected a JSON object"),
        ({"temperature": 0}, "temperature has an option of its own"),
        ({"messages": []}, "messages is set by the run"),
        ({"stream": True}, "stream is set by the run"),
    ],
)
def test_unusable_extra_body_is_refused(value, message):
    with pytest.raises(SettingError, match=message):
        Settings.from_values(extra_body=value)
