"""Where a model is asked, and that no key is kept or printed."""

from __future__ import annotations

import asyncio
import base64
import gzip
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from aiohttp import web
from inspect_ai.model import GenerateConfig, Model, get_model

import refusal_index as ri
from refusal_index.models.requests import NO_KEY, OPENAI_URL, Account, ModelError, account_of, called
from refusal_index.redaction import redacted_error
from tests.models.conftest import both_clients, make_dataset
from tests.models.fake_api import FakeApi, completion, is_forced, question_of

# --- Keys never leak

KEY, PASSWORD, ARGUMENT = "fK+/3key-of mine!", "hush&hush-password-1", "argument-1-of-a-url"
ROWS = [
    {"id": question.question_id, "question": question.text, "answer": question.gold}
    for question in make_dataset(6).questions
]
SETTINGS = {"variants": "high", "grader": "exact", "max_connections": 1, "max_retries": 0, "out": "run"}


def forms(secret: str) -> list[bytes]:
    """Return a secret as plain text, URL-encoded and as base64."""
    encoded = base64.b64encode(secret.encode()).rstrip(b"=")
    return [secret.encode(), quote(secret).encode(), quote(secret, safe="").encode(), encoded]


def every_content(path: Path) -> dict[str, bytes]:
    """Return every file below a folder, with archives and compressed tables also unpacked."""
    found = {}
    for file in sorted(one for one in path.rglob("*") if one.is_file()):
        found[str(file)] = content = file.read_bytes()
        if zipfile.is_zipfile(BytesIO(content)):
            with zipfile.ZipFile(file) as archive:
                found |= {f"{file}!{name}": archive.read(name) for name in archive.namelist()}
        elif file.suffix == ".parquet":
            found[f"{file}!"] = pl.read_parquet(file).write_csv().encode()
        elif file.suffix == ".gz":
            found[f"{file}!"] = gzip.decompress(content)
    return found


def assert_no_key(contents: dict[str, bytes]) -> None:
    assert contents
    for secret in (KEY, PASSWORD, ARGUMENT):
        leaks = [(name, form) for name, content in contents.items() for form in forms(secret) if form in content]
        assert not leaks


def refused(code: str, status: int = 400) -> web.Response:
    text = f"{code}: key {KEY}, {quote(KEY)}, {base64.b64encode(KEY.encode()).decode()}, {PASSWORD} of ?key={ARGUMENT}"
    body = {"error": {"message": text, "type": "invalid_request_error", "code": code, "param": KEY}}
    return web.json_response(body, status=status, headers={"x-echo": quote(KEY)})


def echoing(message: str, _sent_before: int) -> web.Response | None:
    """Echo the key in every way that a provider has, one for each question."""
    number = int(question_of(message).split()[2])
    if number == 3:
        return web.json_response(completion((f"<answer>{KEY}</answer>", "stop")))
    if number == 4:
        return web.Response(text=f"<html>{KEY}</html>", content_type="text/html", status=500)
    if number == 5 and is_forced(message):
        return web.json_response(completion((f"{quote(KEY)} <answer>10</answer>", "stop")))
    kinds = {0: ("content_filter", 400), 1: ("context_length_exceeded", 400), 2: ("invalid_key", 401)}
    return refused(*kinds[number]) if number in kinds else None


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_API_KEY", KEY)
    monkeypatch.setenv("SAMBANOVA_API_KEY", KEY)


def with_secrets(url: str) -> str:
    return f"{url.replace('://', f'://me:{quote(PASSWORD)}@')}?key={ARGUMENT}"


@pytest.mark.slow
@both_clients
def test_echoing_provider_leaves_no_keys(inside, monkeypatch, model):
    pl.DataFrame(ROWS).write_csv("questions.csv")
    command = [sys.executable, "-c", "from refusal_index.cli import main; main()"]
    options = f"--model {model} --data questions.csv --grader exact --variants high --out run --max-retries 0"
    with FakeApi(lambda _: "<answer>UNANSWERED</answer>", echoing) as api:
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        monkeypatch.setenv("SAMBANOVA_BASE_URL", api.url)
        monkeypatch.setenv("OTHER_BASE_URL", with_secrets(api.url))
        ran = subprocess.run([*command, "run", *options.split()], capture_output=True, check=False)
    reported = subprocess.run([*command, "report", "run", "--out", "run/page.html"], capture_output=True, check=False)
    contents = every_content(Path())
    assert b"[key]" in contents["run/outcomes.parquet!"]
    assert b"[key]" in contents["run/replies.sqlite"]
    assert b"[key]" in ran.stdout + ran.stderr
    assert_no_key(contents | {"stdout": ran.stdout, "stderr": ran.stderr})
    assert_no_key({"stdout": reported.stdout, "stderr": reported.stderr})


async def evaluate_with(model: Model) -> ri.RunResults:
    async with model:
        return await ri.evaluate_async(model, ROWS, **SETTINGS)


def test_inspect_model_leaves_no_secrets(inside, capfd):
    text = f"<answer>{KEY} {ARGUMENT} {PASSWORD} from-memory-alone-1</answer>"
    with FakeApi(lambda _: text) as api:
        model = get_model(
            "openai-api/fake/any",
            base_url=with_secrets(api.url).partition("?")[0],
            config=GenerateConfig(extra_headers={"X-Api-Key": ARGUMENT}),
            api_key="from-memory-alone-1",
            default_headers={"Authorization": f"Basic {KEY}"},
            memoize=False,
        )
        run = asyncio.run(evaluate_with(model))
    assert set(run.outcomes["first_reply"]) == {"<answer>[key] [key] [key] [key]</answer>"}
    contents = every_content(Path()) | dict(zip(("stdout", "stderr"), map(str.encode, capfd.readouterr()), strict=True))
    assert not [name for name, content in contents.items() if b"from-memory-alone-1" in content]
    assert_no_key(contents)


def test_echoing_function_leaves_no_keys(inside):
    def telling(messages: list[dict[str, str]]) -> str:
        number = int(question_of(messages[-1]["content"]).split()[2])
        if number == 0:
            raise ValueError(f"no {KEY}")
        return f"<answer>{KEY} {quote(KEY)}</answer>"

    ri.evaluate(telling, ROWS, model_name="telling", **SETTINGS).report("run/page.html")
    contents = every_content(Path("run"))
    assert b"[key]" in contents["run/replies.sqlite"]
    assert_no_key(contents)


def test_keys_are_redacted_from_tracebacks_and_streams(inside):
    output = f"import sys; print({KEY!r}); print({KEY!r}, file=sys.stderr); raise ValueError({KEY!r})"
    code = f"from refusal_index.cli.console import filter_streams as filter; filter(); {output}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ran.returncode == 1
    assert b"ValueError: [key]" in ran.stderr
    assert ran.stdout == b"[key]\n"
    assert_no_key({"stdout": ran.stdout, "stderr": ran.stderr.replace(repr(KEY).encode(), b"")})


# --- Addresses and accounts

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
def test_name_splits_into_provider_and_model(name, expected):
    assert called(name) == expected


def test_openai_base_url_can_be_overridden():
    key = {"OPENAI_API_KEY": "k-123456"}
    assert account_of("openai/any", key) == Account(
        "openai/any", "openai", "any", OPENAI_URL, "k-123456", "OPENAI_API_KEY"
    )
    assert account_of("openai/any", key | {"OPENAI_BASE_URL": URL}).base_url == URL
    assert account_of("openai/any", {"OPENAI_BASE_URL": URL}).api_key == NO_KEY, "a server that asks for none"


@pytest.mark.parametrize("name", ["my-own.host/org/any", "openai-api/my-own.host/org/any"])
def test_other_providers_use_their_base_url_variable(name):
    account = account_of(name, {"MY_OWN_HOST_BASE_URL": URL, "MY_OWN_HOST_API_KEY": "k-123456"})
    assert (account.provider, account.model, account.base_url) == ("my-own.host", "org/any", URL)
    assert (account.api_key, account.key_name) == ("k-123456", "MY_OWN_HOST_API_KEY")


@pytest.mark.parametrize(
    ("name", "environment", "message"),
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
def test_invalid_account_settings_raise(name, environment, message):
    with pytest.raises(ModelError) as raised:
        account_of(name, environment)
    assert message in raised.value.message
    assert repr(name) in raised.value.message
    assert raised.value.message.isprintable()


def test_account_secrets_are_redacted():
    environment = {"FAKE_BASE_URL": "http://me:hush-hush@host/v1?token=hidden-1", "FAKE_API_KEY": "tr0ub4dor"}
    account = account_of("fake/any", environment)
    assert "tr0ub4dor" not in repr(account)
    for secret in ("tr0ub4dor", "hush-hush", "hidden-1"):
        assert redacted_error(f"it was {secret}.") == "it was [key]."


def test_long_invalid_address_is_shortened_in_the_error():
    with pytest.raises(ModelError) as raised:
        account_of("fake/any", {"FAKE_BASE_URL": "x" * 10_000})
    assert len(raised.value.message) < 300
