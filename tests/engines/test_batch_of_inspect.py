"""Evidence for Inspect's own batches: who has them, who is refused, and a run over a real server of batches."""

from __future__ import annotations

import ast
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import inspect_ai
import pytest
from aiohttp import web
from inspect_ai.model import get_model
from inspect_ai.model._providers._openai_batch import OpenAIBatcher
from inspect_ai.model._providers.util import batch as inspects_batch
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.almanac.batch_faults import BatchFaults
from refusal_index.cli import app
from refusal_index.cli.options import HELP
from refusal_index.engines.breaker import OUTAGE_SECONDS, CircuitBreaker
from refusal_index.engines.engine import Assignment, ModelError, RunFailedError
from refusal_index.engines.events import Opened, Underway
from refusal_index.engines.failures import Failure, status_of
from refusal_index.engines.inspect.batches import (
    READ_LINE,
    SUBMIT,
    batches_under_way,
    check_batches,
    has_batches,
    read_line,
    submit,
)
from refusal_index.engines.registry import IN_MEMORY
from refusal_index.engines.setting import SettingError
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.outcomes.folder import RunFolder
from tests.engines.batch_server import answered, batch_server, submitted
from tests.engines.fake_api import FakeApi, completion

PROVIDERS = Path(inspect_ai.__file__).parent / "model" / "_providers"
MODEL = "gpt-4o"
NAME, KEY = f"openai/{MODEL}", "sk-very-secret-3fGh8jKl2mNp5qRs"


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_API_KEY", KEY)
    monkeypatch.setenv("FAKE_BASE_URL", "http://127.0.0.1:9/v1")
    for name in ("DEFAULT_BATCH_TICK", "DEFAULT_SEND_DELAY"):
        monkeypatch.setattr(inspects_batch, name, 0.2)  # of 15 seconds


def batched(url: str, **options: Any) -> ri.Run:
    """Evaluate in Inspect's batches the model behind a URL, under a name of OpenAI's that goes to its chat API."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.setenv("OPENAI_BASE_URL", url)
        return ri.evaluate(NAME, out="batched", batch=True, **{"variants": "low", **options})


def replies(run: ri.Run) -> Counter[tuple[Any, ...]]:
    with ReplyStore(RunFolder(run.path).replies) as store:
        return Counter((one.question_id, one.variant, one.draw, one.reply) for one in store.replies())


def providers_with_collectors() -> set[str]:
    """Return the modules of Inspect's in which a provider keeps what collects requests, as their sources say."""
    found = set()
    for path in PROVIDERS.glob("[a-z]*.py"):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.FunctionDef) and one.name in ("__init__", "initialize"):
                targets = (node.target for node in ast.walk(one) if isinstance(node, ast.AnnAssign))
                if any(isinstance(target, ast.Attribute) and target.attr.endswith("_batcher") for target in targets):
                    found.add(path.stem)
    return found


def test_who_has_batches_is_told_by_what_the_installed_inspect_does():
    """Every provider that has them must look after its batches by one helper of Inspect's."""
    by_helper = {path.stem for path in PROVIDERS.glob("[a-z]*.py") if "batch_admin_retry_config(" in path.read_text()}
    assert providers_with_collectors() == by_helper == {"openai", "anthropic", "google", "grok", "together"}
    for name in by_helper:
        assert name.replace("openai", "OpenAI") in HELP["batch"] or name.title() in HELP["batch"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai/gpt-4o", True),
        ("together/any", True),
        ("openai-api/fake/any", False),
        ("openrouter/any", False),
        ("mockllm/any", False),
        ("none/none", False),
    ],
)
def test_a_model_says_whether_its_requests_go_in_batches(name, expected, monkeypatch):
    for key in ("OPENAI_API_KEY", "TOGETHER_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(key, KEY)
    assert has_batches(get_model(name, memoize=False).api) is expected


@pytest.mark.parametrize(
    ("service", "expected"), [(None, True), ("azure", True), ("vertex", False), ("bedrock", False)]
)
def test_a_service_without_the_providers_batches_has_none(service, expected):
    assert has_batches(SimpleNamespace(_batcher=None, service=service)) is expected


def test_where_only_graders_are_asked_one_of_them_needs_batches():
    with_them, without = get_model(NAME, api_key=KEY, memoize=False), get_model("mockllm/any")
    check_batches(None, [without, with_them])
    check_batches(with_them, [without])
    for model, graders in ((None, [without]), (None, []), (without, [with_them])):
        with pytest.raises(ModelError, match="one request at a time"):
            check_batches(model, graders)


@pytest.mark.parametrize("model", ["openai-api/fake/any", "almanac/base", "python:statistics:mean"])
def test_a_model_that_would_ignore_batches_is_an_error_before_anything_is_asked(model):
    command = ["run", "--model", model, "--limit", "5", "--batch", "--out", "r"]
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert result.stderr.startswith("error: --batch: ")
    assert "--engine batch" in result.stderr
    assert not Path("r").exists()


@pytest.mark.parametrize("engine", ["local", "http"])
def test_batches_of_inspect_by_another_engine_are_an_error_that_names_the_one_for_them(engine):
    result = CliRunner().invoke(app, ["run", "--engine", engine, "--batch", "--limit", "5", "--out", "r"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert f"expected --engine inspect beside it, got {engine}" in result.stderr
    assert "--engine batch" in result.stderr
    assert not Path("r").exists()
    with pytest.raises(SettingError, match="sends batches"):
        ri.evaluate("almanac/base", limit=5, engine=engine, batch=True, out="r")


@pytest.mark.slow
def test_a_run_in_batches_waits_longer_than_for_a_response_and_ends_as_any(tmp_path, capsys):
    log, told = tmp_path / "log.jsonl", []
    with batch_server(log, MODEL, faults=BatchFaults(delay=0.5)) as url:
        run = batched(url, limit=20, attempt_timeout=1, progress=told.append)
        alone = ri.evaluate("almanac/base", out="alone", engine="local", limit=20, variants="low")
        assert replies(run) == replies(alone)
        assert answered(log) == replies(run).total(), "each request was paid for once"
        assert 2 <= submitted(log) <= 6, "first and forced passes, each in a batch or a few"
    assert capsys.readouterr().out == "", "results go there"
    assert [event.note for event in told if isinstance(event, Opened)] == [IN_MEMORY]
    notes = [event.note for event in told if isinstance(event, Underway) and event.note]
    assert any("on their way" in note for note in notes)


@pytest.mark.slow
def test_one_variant_after_the_other_goes_in_batches(tmp_path):
    """What collects requests ends with an evaluation of Inspect's, and each variant is one."""
    log = tmp_path / "log.jsonl"
    with batch_server(log, MODEL) as url:
        run = batched(url, limit=4, variants="low,normal,high")
    assert run.variants == ("low", "normal", "high")
    assert not run.missing
    assert answered(log) == replies(run).total()


@pytest.mark.slow
def test_requests_that_fail_or_expire_in_a_batch_take_no_other_with_them(tmp_path):
    log = tmp_path / "log.jsonl"
    with batch_server(log, MODEL, faults=BatchFaults(fail=0.3, expire=0.3, batches=1)) as url:
        run = batched(url, limit=30)
    assert not run.missing
    assert answered(log) == replies(run).total(), "each request was paid for once"


@pytest.mark.slow
def test_results_that_cannot_be_fetched_at_first_are_not_lost(tmp_path):
    log, fetched = tmp_path / "log.jsonl", list[str]()

    @web.middleware
    async def torn(request: web.Request, handler: Any) -> Any:
        if request.path.endswith("/content"):
            fetched.append(request.path)
            if len(fetched) == 1:
                return web.json_response({"error": {"message": "not now"}}, status=503)
        return await handler(request)

    with batch_server(log, MODEL, middleware=torn) as url:
        run = batched(url, limit=10)
    assert not run.missing
    assert answered(log) == replies(run).total(), "each request was paid for once"
    assert fetched.count(fetched[0]) == 2


@pytest.mark.slow
def test_a_server_without_batches_ends_the_run_in_one_line(tmp_path):
    with FakeApi(lambda _: "<answer>1</answer>") as api:
        with pytest.raises(RunFailedError, match="404") as caught:
            batched(f"{api.url}/elsewhere", limit=25)
        assert not api.received
    assert "\n" not in str(caught.value)
    assert "the same command resumes" in str(caught.value)


@pytest.mark.slow
def test_a_grader_without_batches_is_asked_one_request_at_a_time(tmp_path):
    log = tmp_path / "log.jsonl"
    with FakeApi(lambda _: "A") as grader, batch_server(log, MODEL) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_BASE_URL", grader.url)
        run = batched(url, limit=8, grader="openai-api/fake/grader")
        graded = sum(one.requests for one in verdicts(run))
        assert len(grader.answered) == graded > 1, "the plain case of the beginning among them"
    assert answered(log) == sum(one[3].asked == "model" for one in replies(run).elements())


def verdicts(run: ri.Run) -> list[Any]:
    with ReplyStore(RunFolder(run.path).replies) as store:
        return [one for one in store.replies() if one.reply.asked != "model"]


def test_errors_long_after_another_are_no_outage_while_batches_are_under_way():
    clock = [0.0]
    for under_way in (False, True):
        breaker = CircuitBreaker(lambda: clock[0])
        assignment = Assignment("d", "low", (), Settings(), ReplyStore(None), breaker=breaker)
        if under_way:
            with batches_under_way(assignment):
                assert breaker.patience == math.inf
        for number in range(4):
            clock[0] += OUTAGE_SECONDS
            breaker.troubled("model", f"q{number}", Failure("expired", "openai/any"))
        assert (breaker.reason is None) is under_way


def test_inspect_is_as_it_was_once_batches_are_done():
    with batches_under_way(Assignment("d", "low", (), Settings(), ReplyStore(None))):
        assert getattr(OpenAIBatcher, READ_LINE) is not read_line
        assert getattr(inspects_batch.Batcher, SUBMIT) is not submit
    assert getattr(OpenAIBatcher, READ_LINE) is read_line
    assert getattr(inspects_batch.Batcher, SUBMIT) is submit


LINES = {
    "a refusal": ({"response": {"status_code": 400, "body": {"error": {"message": "too rude"}}}}, 400, "too rude"),
    "an overload": ({"response": {"status_code": 429, "body": {"error": {"message": "slowly"}}}}, 429, "slowly"),
    "expired": ({"response": None, "error": {"code": "batch_expired", "message": "too late"}}, None, "too late"),
    "an error in words": ({"response": None, "error": "no"}, None, "no"),
    "no body": ({"response": {"status_code": 200}}, 200, "no reason given"),
    "a body that is none": ({"response": {"status_code": 200, "body": {"id": 7}}}, 200, "choices"),
    "nothing": ({}, None, "no reason given"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_failure_in_a_batch_is_read_as_one_with_its_status(case):
    line, status, told = LINES[case]
    with batches_under_way(Assignment("d", "low", (), Settings(), ReplyStore(None))):
        custom_id, error = getattr(OpenAIBatcher, READ_LINE)(_batcher(), {"custom_id": "c", **line})
    assert custom_id == "c"
    assert isinstance(error, Exception)
    assert status_of(error) == status
    assert told in str(error)


def test_a_reply_in_a_batch_is_read_as_inspect_reads_it():
    body = completion(("Lima", "stop"))
    line = {"custom_id": "c", "response": {"status_code": 200, "body": body}, "error": None}
    with batches_under_way(Assignment("d", "low", (), Settings(), ReplyStore(None))):
        assert getattr(OpenAIBatcher, READ_LINE)(_batcher(), line) == ("c", ChatCompletion.model_validate(body))


def _batcher() -> Any:
    client = AsyncOpenAI(api_key=KEY)
    retries: Any = {}
    return OpenAIBatcher(client, inspects_batch.BatchConfig(), retries, ChatCompletion)
