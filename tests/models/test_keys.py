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
from tests.models.conftest import both_clients, make_dataset
from tests.models.fake_api import FakeApi, completion, is_forced, question_of
from tests.served import is_served, options_at

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
        monkeypatch.setenv("SAMBANOVA_BASE_URL", api.url)
        monkeypatch.setenv("OTHER_BASE_URL", with_secrets(api.url))
        address = options_at(f"{api.url}?key={ARGUMENT}") if is_served(model) else ()  # a login excludes a key
        ran = subprocess.run([*command, "run", *options.split(), *address], capture_output=True, check=False)
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
