"""Where a model is asked: addresses, and which server receives which key."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from aiohttp import web

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import addresses_in, as_json
from refusal_index.findings.models_asked import several_addresses
from refusal_index.models.accounts import (
    OPENAI_URL,
    Account,
    account_for,
    address_of,
    asked_as,
    is_openai,
    plugin_of,
    split_name,
)
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import ADDRESS_NOT_GIVEN, Servers, SettingError
from refusal_index.protocol import GraderKind, Role
from refusal_index.redaction import redacted_error
from refusal_index.runs.made_with import grader_before
from refusal_index.runs.plan import prepare
from refusal_index.runs.results import procedure_of
from refusal_index.runs.servers import as_in_folder
from refusal_index.runs.settings import Settings
from tests.models.conftest import make_dataset
from tests.models.fake_api import FakeApi, is_grading, plain_verdict
from tests.models.fake_api import question_of as asked

URL = "http://127.0.0.1:8000/v1"
OPENAI_KEY, OWN_KEY = "sk-of-openai-0123456789", "k-of-my-server-0123456789"
OWN = {"base_url": URL, "api_key_env": "K"}
KEYS = {"OPENAI_API_KEY": OPENAI_KEY, "OWN_KEY": OWN_KEY}


def account(
    name: str = "any", role: Role = Role.MODEL, environment: dict[str, str] | None = None, **servers: str
) -> Account:
    return account_for(role, name, Settings.from_values(**servers), KEYS if environment is None else environment)


# --- Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai/gpt-4.1", ("openai", "gpt-4.1")),
        ("together/meta-llama/any", ("together", "meta-llama/any")),
        ("nothing", ("nothing", "")),
        ("/model", ("", "model")),
    ],
)
def test_name_splits_into_provider_and_model(name, expected):
    assert split_name(name) == expected


@pytest.mark.parametrize("name", ["any", "org/any", "openai/gpt-4.1", "almanac/base", "anthropic/any", "-x", "a/b/c"])
def test_name_at_a_server_is_sent_as_it_is(name):
    servers = Servers(base_url=URL, grader_base_url=URL)
    for role in (Role.MODEL, Role.GRADER, Role.SECOND_GRADER):
        assert asked_as(servers, role, name) == ("", name)
        assert plugin_of(servers, role, name) == (None, name), "no plugin has a server's models"
    assert account(name, base_url=URL).model == name


def test_openai_itself_is_known_by_its_address():
    """Its API has other names for some fields."""
    assert asked_as(Servers(base_url=OPENAI_URL), Role.MODEL, "o3") == ("openai", "o3")
    assert account("o3", base_url=OPENAI_URL).provider == "openai"


# --- Keys


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.openai.com/v1", True),
        ("https://api.openai.com", True),
        ("https://API.OpenAI.com:443/v1/", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com:8443/v1", False),
        ("https://api.openai.com.example.org/v1", False),
        ("https://eu.api.openai.com/v1", False),
        ("https://api.openai.com@example.org/v1", False),
        ("https://example.org/api.openai.com/v1", False),
        ("http://127.0.0.1:8000/v1?host=api.openai.com", False),
    ],
)
def test_openai_key_is_for_openais_host_over_https_only(url, expected):
    assert is_openai(url) is expected
    assert account(base_url=url).api_key == (OPENAI_KEY if expected else "")
    assert account(role=Role.GRADER, grader_base_url=url).api_key == (OPENAI_KEY if expected else "")


def test_named_variable_is_for_its_own_server():
    model = {"base_url": OPENAI_URL, "api_key_env": "OWN_KEY"}
    assert account(**model).api_key == OWN_KEY
    both = {"base_url": URL, "api_key_env": "OWN_KEY", "grader_base_url": "http://127.0.0.1:9/v1"}
    assert account(**both).api_key == OWN_KEY
    assert account(role=Role.GRADER, **both).api_key == "", "the model's key is not for the grader's server"


@pytest.mark.parametrize(
    ("role", "servers", "environment", "message"),
    [
        (
            Role.MODEL,
            {"base_url": URL, "api_key_env": "NONE"},
            {},
            "api_key_env: expected a key in .* NONE, found no such",
        ),
        (
            Role.MODEL,
            {"base_url": URL, "api_key_env": "NONE"},
            {"NONE": ""},
            "api_key_env: .* NONE, found an empty one",
        ),
        (
            Role.MODEL,
            {"base_url": URL, "api_key_env": "NONE"},
            {"NONE": "  "},
            "api_key_env: .* NONE, found an empty one",
        ),
        (Role.GRADER, {"grader_base_url": URL, "grader_api_key_env": "NONE"}, {}, "grader_api_key_env: expected a key"),
        (Role.MODEL, {"base_url": OPENAI_URL}, {}, "'any': expected a key in OPENAI_API_KEY, found none.*api_key_env"),
        (Role.MODEL, OWN, {"K": "line\nbreak"}, "K contains a line break"),
        (Role.MODEL, OWN, {"K": "k\u00e9y"}, "K contains .* an invalid character"),
        (Role.MODEL, {}, {}, "'any': this engine needs the address of a server .*base_url"),
        (Role.GRADER, {}, {}, "'any': this engine needs the address of a server .*grader_base_url"),
    ],
)
def test_key_or_address_that_is_missing_is_named(role, servers, environment, message):
    with pytest.raises(ModelError, match=message):
        account(role=role, environment=environment, **servers)


def test_engine_without_an_address_names_the_command_that_serves_a_plugins_models():
    with pytest.raises(ModelError, match="'refusal-index serve' offers one"):
        account("almanac/base")


def test_openai_by_its_providers_name_uses_its_own_variables():
    assert account("openai/any") == Account(
        "openai/any", "openai", "any", OPENAI_URL, OPENAI_KEY, "OPENAI_API_KEY", "OPENAI_BASE_URL="
    )
    assert account("openai/any", environment=KEYS | {"OPENAI_BASE_URL": URL}).base_url == URL
    assert account("openai/any", environment={"OPENAI_BASE_URL": URL}).api_key == "", "a server that asks for none"
    with pytest.raises(ModelError, match="expected a key in OPENAI_API_KEY, found none"):
        account("openai/any", environment={})
    with pytest.raises(ModelError, match="'openai/any': OPENAI_BASE_URL: expected a URL that begins with http"):
        account("openai/any", environment={"OPENAI_BASE_URL": "localhost:8000"})


def test_secrets_of_an_account_are_removed_from_errors():
    with_secrets = "http://me:hush-hush@host/v1?token=hidden-1"
    made = account(base_url=with_secrets, api_key_env="K", environment={"K": "tr0ub4dor"})
    assert not [secret for secret in ("tr0ub4dor", "hush-hush", "hidden-1") if secret in repr(made)]
    for secret in ("tr0ub4dor", "hush-hush", "hidden-1"):
        assert redacted_error(f"it was {secret}.") == "it was [key]."
    settings = Settings.from_values(base_url=with_secrets)
    assert "hush-hush" not in repr(settings)
    assert address_of(with_secrets) == "http://host/v1"


# --- Values of the settings


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "ftp://host/v1", "http://", "http://host:port/v1", "http://host:99999/v1", "http://host:0/v1",
     " http://host/v1", "http://host/v1\n", "http://[::1/v1", "file:///etc/passwd", "", 7],
)  # fmt: skip
@pytest.mark.parametrize("name", ["base_url", "grader_base_url"])
def test_value_that_is_no_base_url_is_refused(name, url):
    with pytest.raises(SettingError, match=rf"^{name}: expected a URL that begins with http") as raised:
        Settings.from_values(**{name: url})
    assert raised.value.message.isprintable()


def test_invalid_base_url_is_shown_short_and_without_its_password():
    with pytest.raises(SettingError) as raised:
        Settings.from_values(base_url="ftp://me:swordfish-77@host/" + "x" * 10_000)
    assert len(raised.value.message) < 300
    assert "swordfish" not in raised.value.message


def test_path_of_the_chat_api_is_not_part_of_a_base_url():
    with pytest.raises(SettingError, match="ends in /chat/completions; leave that out"):
        Settings.from_values(base_url=f"{URL}/chat/completions")


@pytest.mark.parametrize("value", ["sk-of-openai-0123456789", "", "A B", "1A"])
def test_key_in_place_of_its_variable_is_refused_and_not_shown(value):
    with pytest.raises(SettingError, match=r"^api_key_env: expected the name of an environment variable") as raised:
        Settings.from_values(base_url=URL, api_key_env=value)
    assert not value or value not in raised.value.message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "openai/gpt-4.1", "api_key_env": "K"}, "api_key_env: requires base_url"),
        ({"grader": "openai/gpt-4.1", "grader_api_key_env": "K"}, "grader_api_key_env: requires grader_base_url"),
        ({"grader": "exact", "grader_base_url": URL}, "grader_base_url: expected a model as grader"),
        ({"grader_base_url": URL}, "grader_base_url: requires grader"),
        ({"model": "python:tests.runs.models:answer", "base_url": URL}, "base_url: expected a model of a server"),
        ({"model": "any"}, "'any': expected PROVIDER/NAME.* add its address with base_url"),
        ({"model": "any", "base_url": URL, "grader": "other"}, "grader: expected one of.* with grader_base_url"),
        ({"refusal": "model:other"}, "grader 'other': expected PROVIDER/NAME.* with grader_base_url"),
        (
            {"model": "m", "base_url": URL, "grader": "m", "grader_base_url": f"{URL}/2", "engine": "batch"},
            "grader: expected another name than that of the model, 'm'.* engine direct can ask both, batch cannot",
        ),
    ],
)
def test_address_that_would_not_be_used_is_an_error(settings, message):
    with pytest.raises(SettingError, match=message):
        prepare(Settings.from_values(limit=4, **settings))


# --- What identifies a run


def test_address_is_no_part_of_a_runs_identity_but_that_a_server_named_its_model_is():
    by_provider, here, there = (
        prepare(Settings.from_values(model="openai/any", limit=4, **servers))
        for servers in ({}, {"base_url": URL}, {"base_url": "https://example.org/v1"})
    )
    assert here.identity == there.identity
    assert here.folder.path == there.folder.path
    assert here.identity == {**by_provider.identity, "named_by_server": True}
    assert by_provider.folder.path != here.folder.path


def test_that_a_server_named_a_grader_is_part_of_the_identity():
    named, provided = (
        prepare(Settings.from_values(model="almanac/base", limit=4, grader="openai/any", **servers)).identity["grader"]
        for servers in ({"grader_base_url": URL}, {})
    )
    assert named == {**provided, "named_by_server": True}
    by_rule = prepare(Settings.from_values(model="any", base_url=URL, limit=4)).identity["grader"]
    assert "named_by_server" not in by_rule


def test_any_name_is_a_grading_model_at_its_server():
    plan = prepare(Settings.from_values(model="almanac/base", limit=4, grader="one,b/c", grader_base_url=URL))
    assert plan.graders == ("one", "b/c")
    assert plan.identity["grader"]["prompt_sha256"], "its verdicts depend on the prompt"


@pytest.mark.parametrize("name", ["model", "agree"])
def test_grading_model_of_a_server_may_be_called_like_a_kind_of_grader(name):
    plan = prepare(Settings.from_values(model="almanac/base", limit=4, grader=name, grader_base_url=URL))
    assert procedure_of(as_json(plan.identity)).grader is GraderKind.MODEL
    assert grader_before(as_json(plan.identity)) == (GraderKind.MODEL, (name,))


# --- Over HTTP


def sums(message: str) -> str:
    if is_grading(message):
        return plain_verdict(message) or "A"
    return f"<answer>{asked(message)}</answer>"


def ask(out: Path, count: int = 6, **settings: object) -> ri.RunResults:
    rows = [{"id": one.question_id, "question": one.text, "answer": one.gold} for one in make_dataset(count).questions]
    usual = {"grader": "exact", "variants": "normal", "max_retries": 0, "out": out}
    return ri.evaluate("any", rows, **{**usual, **settings})


def codes(run: ri.RunResults) -> list[str]:
    return [caveat.code for variant in run.summary.variants for caveat in variant.caveats]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-mine")


def test_each_server_receives_its_own_key_and_no_other(keys, tmp_path):
    with FakeApi(sums) as model, FakeApi(sums) as grader:
        servers = {"base_url": model.url, "grader_base_url": grader.url, "grader_api_key_env": "OWN_KEY"}
        ask(tmp_path / "run", grader="judge", **servers)
    assert {headers.get("Authorization") for headers in model.headers} == {None}
    assert {headers.get("Authorization") for headers in grader.headers} == {f"Bearer {OWN_KEY}"}
    received = [str(dict(headers)) for api in (model, grader) for headers in api.headers]
    assert not [text for text in received if OPENAI_KEY in text or "-of-mine" in text]
    assert {body["model"] for body in model.answered} == {"any"}
    assert {body["model"] for body in grader.answered} == {"judge"}


def test_redirect_to_another_server_receives_neither_questions_nor_key(keys, tmp_path):
    with FakeApi(sums) as elsewhere:

        async def redirected(exchange: object) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": f"{elsewhere.url}/chat/completions"})

        with FakeApi(sums, lambda *_: redirected) as api, pytest.raises(ri.RefusalIndexError, match="another server"):
            ask(tmp_path / "run", 25, base_url=api.url, api_key_env="OWN_KEY")
        assert not elsewhere.headers
    assert {headers["Authorization"] for headers in api.headers} == {f"Bearer {OWN_KEY}"}


@pytest.mark.parametrize(
    ("servers", "advice"),
    [
        ({}, "no key was sent: name the environment variable that holds it with --api-key-env"),
        ({"api_key_env": "OWN_KEY"}, "check OWN_KEY"),
    ],
)
def test_rejected_key_error_says_what_to_do(keys, tmp_path, servers, advice):
    async def rejecting(exchange: object) -> web.StreamResponse:
        return web.json_response({"error": {"message": "who are you?"}}, status=401)

    with FakeApi(sums, lambda *_: rejecting) as api, pytest.raises(ri.RefusalIndexError, match=advice) as raised:
        ask(tmp_path / "run", 25, base_url=api.url, **servers)
    assert OWN_KEY not in str(raised.value)


def test_grader_without_a_key_is_named_with_the_option_for_its_key(keys, tmp_path):
    async def rejecting(exchange: object) -> web.StreamResponse:
        return web.json_response({"error": {"message": "who are you?"}}, status=401)

    with (
        FakeApi(sums, lambda *_: rejecting) as judge,
        pytest.raises(ri.RefusalIndexError, match="--grader-api-key-env"),
    ):
        ask(tmp_path / "run", base_url="http://127.0.0.1:9/v1", grader="judge", grader_base_url=judge.url)


@pytest.mark.parametrize(
    "recorded", [7, "http://a", ["http://a", "http://b"], {"model": "http://a"}, {"model": [7, {}]}]
)
def test_recorded_addresses_of_another_form_are_left_out(recorded):
    assert several_addresses(addresses_in({"asked_at": recorded})) == ()


def test_address_for_a_model_in_memory_is_an_error(tmp_path):
    with pytest.raises(SettingError, match="base_url: expected a model of a server as model"):
        ri.evaluate(sums, [{"question": "?", "answer": "a"}], base_url=URL, answered_only=True, grader="exact")


def test_addresses_are_recorded_without_credentials(keys, tmp_path):
    with FakeApi(sums) as api:
        secret = api.url.replace("://", "://me:swordfish-77@") + "?key=argument-77"
        run = ask(tmp_path / "run", base_url=secret, grader="judge", grader_base_url=api.url)
    assert RunFolder(run.path).read_about()["asked_at"] == {"model": [api.url], "grader": [api.url]}
    login = base64.b64encode(b"me:swordfish-77").decode()
    contents = {str(path): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    for hidden in ("swordfish-77", "argument-77", login):
        assert not [path for path, content in contents.items() if hidden.encode() in content]


def test_resuming_at_another_address_is_noted_and_not_an_error(tmp_path):
    out = tmp_path / "run"
    with FakeApi(sums) as first, FakeApi(sums) as second:
        begun = ask(out, base_url=first.url, max_requests=2, max_connections=1)
        whole = ask(out, base_url=second.url)
        ask(out, base_url=first.url)
    assert len(first.answered) == 2
    assert len(second.answered) == 4
    assert begun.path == whole.path
    assert "several_addresses" in codes(whole)
    assert RunFolder(out).read_about()["asked_at"] == {"model": [first.url, second.url]}


def test_address_at_which_no_model_answered_is_not_kept(tmp_path):
    with FakeApi(sums) as api:
        with pytest.raises(ri.RefusalIndexError):
            ask(tmp_path / "run", 25, base_url="http://127.0.0.1:9/v1")
        run = ask(tmp_path / "run", 25, base_url=api.url)
    assert RunFolder(run.path).read_about()["asked_at"] == {"model": [api.url]}
    assert "several_addresses" not in codes(run)


def test_address_in_a_folder_is_never_asked():
    """A folder may come from a stranger, who would receive questions and keys."""
    before = {"model": "any", "named_by_server": True, "grader": {"name": "judge", "named_by_server": True}}
    settings = as_in_folder(Settings(), before)
    assert settings.servers == Servers(base_url=ADDRESS_NOT_GIVEN, grader_base_url=ADDRESS_NOT_GIVEN)
    with pytest.raises(ModelError, match="no address is taken from a folder; name it with base_url"):
        account_for(Role.MODEL, "any", settings)
    with pytest.raises(ModelError, match="no address is taken from a folder; name it with grader_base_url"):
        account_for(Role.GRADER, "judge", settings)
    given = as_in_folder(Settings.from_values(base_url=URL), before)
    assert given.servers.base_url == URL
    with pytest.raises(SettingError, match="base_url: this run did not ask that model at a server; leave it out"):
        as_in_folder(Settings.from_values(base_url=URL), {"model": "openai/any"})
