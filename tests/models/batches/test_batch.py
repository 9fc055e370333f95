"""Runs in batches, against the embedded server's and a stand-in of Anthropic's, by their official clients."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web

import refusal_index as ri
from refusal_index.data.files import locked
from refusal_index.models.accounts import Account
from refusal_index.models.failures import CircuitBreaker, RequestFailedError, UnreadableReplyError
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError
from refusal_index.plugins.almanac import batches, server
from refusal_index.plugins.batches import engine, providers
from refusal_index.plugins.batches.formats import RequestResult
from refusal_index.plugins.batches.journal import Journal
from refusal_index.plugins.batches.providers import BatchClient, OpenAIBatchApi, State
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import RunFailedError, WaitingError
from refusal_index.runs.events import Underway
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import prepare
from refusal_index.runs.settings import Limits, Settings
from refusal_index.runs.sweep import execute_sweep, prepare_sweep
from tests.faults.almanac import BatchFaults
from tests.models.batches.batch_server import almanac, serve_in_thread
from tests.served import ADDRESS, at

MODEL = "small"
SMALL = {"limit": 8, "variants": "low,high", "draws": 1}
BATCH = {"engine": "batch", "engine_option": ("poll=0.01",), "out": "run", "max_retries": 2}
CLAUDE = "anthropic/claude-any"


@pytest.fixture(autouse=True)
def _quickly(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(providers, "SETTLED", 0.05)


@pytest.fixture
def serving(tmp_path, monkeypatch):
    return partial(almanac, tmp_path, monkeypatch)


def evaluate(notes=None, **changes):
    notes = [] if notes is None else notes

    def record_note(event):
        if isinstance(event, Underway):
            notes.append(event.note)

    changes = {**SMALL, **BATCH, **at(), **changes}
    return ri.evaluate(changes.pop("model", MODEL), progress=record_note, **changes), notes


def outcomes(run):
    return run.outcomes.drop("model", "grader", strict=False)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The outcomes of the embedded model within this process."""
    return outcomes(ri.evaluate("almanac/small", out=tmp_path_factory.mktemp("local") / "run", **SMALL))


def journal(folder="run"):
    return [json.loads(line) for line in (Path(folder) / "batches.jsonl").read_text().splitlines()]


def test_batch_table_matches_other_engines_and_requests_are_sent_once(serving, local):
    with serving() as server:
        run, notes = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.answered_ids()) == len(set(server.answered_ids())) > 16
        assert len(server.batches()) == 2, "one for the first passes, one for the forced passes"
        evaluate()
        assert len(server.batches()) == 2, "a complete run asks for nothing"
    host = server.url.removeprefix("http://").removesuffix("/v1")
    assert any(f"1 batch at {host}: 1 " in note for note in notes)
    assert [one["event"] for one in journal()] == ["begun", "uploaded", "submitted", "collected"] * 2
    assert "sk-none-needed" not in Path("run/batches.jsonl").read_text()


@pytest.mark.slow
def test_uploaded_files_are_deleted_once_results_are_stored(serving):
    with serving() as server:
        evaluate()
        deleted = [
            entry["path"] for entry in server.entries() if entry["method"] == "DELETE" and entry["status"] == 200
        ]
    assert deleted == [f"/v1/files/{one['file']}" for one in journal() if one["event"] == "uploaded"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        BatchFaults(expire=0.5, batches=3),
        BatchFaults(fail=0.4),
        BatchFaults(delay=0.05, expire=0.3, fail=0.2, batches=2),
    ],
)
def test_expired_failed_and_slow_batches_are_completed(serving, local, faults):
    with serving(faults=faults) as server:
        run, _ = evaluate(max_retries=8)
        assert outcomes(run).equals(local)
        assert len(server.answered_ids()) == len(set(server.answered_ids())), (
            "results are kept and only the rest is sent again"
        )


@pytest.mark.slow
def test_batch_cancelled_elsewhere_is_completed(serving, local):
    cancelled = []

    async def cancel(self, batch, look=OpenAIBatchApi.look):
        if not cancelled:
            cancelled.append(await self.cancel(batch))
        return await look(self, batch)

    with serving(faults=BatchFaults(delay=0.05)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenAIBatchApi, "look", cancel)
        run, notes = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.answered_ids()) == len(set(server.answered_ids()))
    assert any("1 cancelling" in note or "1 cancelled" in note for note in notes)


def test_detached_run_submits_and_the_same_command_collects(serving, local):
    with serving(faults=BatchFaults(delay=0.1)) as server:
        with pytest.raises(
            WaitingError, match=r"^1 batch with 16 requests at 127.0.0.1:\d+ is in flight; run the same command"
        ):
            evaluate(detach=True)
        assert len(server.batches()) == 1
        with pytest.raises(SettingError, match=r"1 batch with 16 requests .* is in flight: another engine"):
            evaluate(engine="direct", engine_option=())
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.batches()) == 2
        assert len(server.answered_ids()) == len(set(server.answered_ids()))


@pytest.mark.slow
def test_repeated_detached_commands_complete_the_run(serving, local):
    ended = []
    with serving(faults=BatchFaults(delay=0.05)) as server:
        for _ in range(100):
            try:
                run, _ = evaluate(detach=True)
            except WaitingError as error:
                ended.append(str(error))
                continue
            if run.ended is None:
                break
            ended.append(run.ended)
        assert outcomes(run).equals(local)
        assert len(server.batches()) == 2
    assert len(ended) > 1


class Killed(BaseException):
    """Not caught anywhere, like a kill."""


@pytest.mark.parametrize("moment", ["uploaded", "submitted", "collected"])
def test_run_killed_while_writing_finds_its_batch_and_pays_once(serving, local, monkeypatch, moment):
    def killed(self, *_, **__):
        raise Killed

    with serving() as server:
        with monkeypatch.context() as patch:
            patch.setattr(Journal, moment, killed)
            with pytest.raises(Killed):
                evaluate()
        assert len(server.batches()) == (moment != "uploaded")
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.batches()) == 2
        assert len(server.answered_ids()) == len(set(server.answered_ids()))
    assert journal()[-1]["event"] == "collected"


def test_lost_submission_response_is_looked_up_before_resubmitting(serving, local):
    lost = []

    @web.middleware
    async def losing(request, handler):
        response = await handler(request)
        if (request.method, request.path) == ("POST", "/v1/batches") and len(lost) < 2:
            lost.append(request.transport.close())
        return response

    with serving(losing) as server:
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(lost) == len(server.batches()) == 2


@pytest.mark.slow
def test_uncertain_submission_is_not_repeated_without_a_batch_list(serving):
    @web.middleware
    async def losing(request, handler):
        if (request.method, request.path) == ("GET", "/v1/batches"):
            raise web.HTTPNotFound
        response = await handler(request)
        if (request.method, request.path) == ("POST", "/v1/batches"):
            request.transport.close()
        return response

    with serving(losing) as server:
        with pytest.raises(RunFailedError, match=r"unknown whether a batch arrived .*404"):
            evaluate()
        with pytest.raises(
            ModelError,
            match=r"may be in flight, and the list of batches at http://\S+ does not show whether .*forget=ri-",
        ):
            evaluate()
        assert len(server.batches()) == 1
        key = journal()[0]["key"]
        with pytest.raises(RunFailedError, match="whether a batch arrived"):
            evaluate(engine_option=("poll=0.01", f"forget={key}"))
        assert len(server.batches()) == 2, "as requested"


@pytest.mark.slow
def test_changed_base_url_raises_while_a_batch_may_be_in_flight(serving, monkeypatch):
    with serving():
        monkeypatch.setattr(Journal, "submitted", lambda *_, **__: pytest.fail("not so far"))
        monkeypatch.setattr(OpenAIBatchApi, "submit", lambda *_: asyncio.sleep(0, Killed()).throw(Killed))
        with pytest.raises(Killed):
            evaluate()
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9/v1")
    with pytest.raises(
        ModelError, match=r"may be in flight at http://127.0.0.1:\d+/v1, but the address of the model is now http://127"
    ):
        evaluate()


@pytest.mark.slow
def test_missing_batch_ends_the_run_with_advice(serving, local):
    @web.middleware
    async def forgetting(request, handler):
        if request.method == "GET" and request.path.startswith("/v1/batches/"):
            raise web.HTTPNotFound
        return await handler(request)

    with serving(forgetting):
        with pytest.raises(RunFailedError, match=r"batch_\w+ cannot be polled .*404.*forget=(ri-\w+)"):
            evaluate()
        key = journal()[0]["key"]
        run, _ = evaluate(engine="direct", engine_option=(f"forget={key}",))
        assert outcomes(run).equals(local)


@pytest.mark.slow
def test_run_resumes_from_a_truncated_journal(serving, local):
    with serving(faults=BatchFaults(delay=0.05)) as server:
        with pytest.raises(WaitingError):
            evaluate(detach=True)
        with Path("run/batches.jsonl").open("a") as file:
            file.write('{"event": "collected", "key": "ri-')
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.batches()) == 2


def test_server_without_batches_raises_at_once(monkeypatch, serving):
    async def chat(_request):
        return web.json_response({})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    with serve_in_thread(app) as url:
        monkeypatch.setenv(ADDRESS, url)
        with pytest.raises(
            RunFailedError, match=r"small: http://\S+ does not accept batches .*404.*: .* --engine direct"
        ):
            evaluate()
    assert [one["event"] for one in journal()] == ["begun", "given_up"]


@pytest.mark.slow
def test_oversized_batch_is_sent_once_and_smaller_ones_are_accepted(serving, local, monkeypatch):
    monkeypatch.setattr(batches, "MAX_REQUESTS", 5)
    with serving() as server:
        with pytest.raises(RunFailedError, match=r"small: a batch was refused \(too_many_tasks: .*5"):
            evaluate()
        assert len(server.batches()) == 1
        run, _ = evaluate(engine_option=("poll=0.01", "requests=5"))
        assert outcomes(run).equals(local)
        assert all(len(one["requests"]) <= 5 for one in journal()[4:] if one["event"] == "begun")


@pytest.mark.slow
def test_oversized_file_error_gives_advice(serving, monkeypatch):
    monkeypatch.setattr(server, "MAX_FILE_SIZE", 2_000)
    with (
        serving(),
        pytest.raises(RunFailedError, match=r"too large .*413.*requests=1000"),
    ):
        evaluate()


def test_an_unknown_model_ends_the_run_at_once(serving):
    with serving() as server:
        with pytest.raises(RunFailedError, match=r"a batch was refused \(line 1: model_not_found: "):
            evaluate(model="nobody")
        assert len(server.batches()) == 1
        assert not server.answered_ids()


@pytest.mark.slow
def test_batches_over_the_token_limit_wait_for_others(serving, local, monkeypatch):
    """OpenAI refuses a batch while too many tokens are in flight."""
    refused = []

    async def crowded(self, batch, look=OpenAIBatchApi.look):
        state = await look(self, batch)
        if len(refused) < 2 and journal()[0]["key"] != state.key and batch not in refused:
            refused.append(batch)
            await self.cancel(batch)
        if batch in refused:
            told = {"status": "failed", "ended": True, "refusal": "token_limit_exceeded", "is_crowded": True}
            return replace(state, **told)
        return state

    monkeypatch.setattr(OpenAIBatchApi, "look", crowded)
    with serving(faults=BatchFaults(delay=0.05)):
        run, _ = evaluate(engine_option=("poll=0.01", "requests=4"))
    assert outcomes(run).equals(local)
    assert len(refused) == 2


@pytest.mark.slow
def test_time_limit_ends_waiting_and_the_batch_continues(serving, local):
    with serving(faults=BatchFaults(delay=0.3)) as server:
        with pytest.raises(WaitingError, match=r"the time of 0.2 seconds is up; .*1 batch with 16 requests"):
            evaluate(max_time=0.2, engine_option=("poll=30",))
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.batches()) == 2


@pytest.mark.slow
def test_interrupt_reports_batches_in_flight(serving, local):
    notes = []
    budget = Budget(Limits())

    def record_note(event):
        if isinstance(event, Underway):
            notes.append(event.note)
            if "validating" in event.note:
                budget.end("interrupted")

    async def interrupted():
        settings = Settings.from_values(
            model=MODEL, **{**SMALL, **at(), "engine": "batch", "engine_option": ("poll=30",)}
        )
        await execute(prepare(settings, out=Path("run")), record_note, budget)

    with serving(faults=BatchFaults(delay=0.3)) as server:
        with pytest.raises(WaitingError, match="interrupted"):
            asyncio.run(interrupted())
        assert notes[-1].startswith("1 batch with 16 requests at 127.0.0.1:")
        assert notes[-1].endswith(" is in flight; run the same command again to collect the results")
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.batches()) == 2


@pytest.mark.slow
def test_request_budget_holds_for_batches(serving, local):
    with serving() as server:
        run, _ = evaluate(max_requests=10)
        assert "budget of 10 requests" in run.ended
        assert len(server.answered_ids()) == 10
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.answered_ids()) == len(set(server.answered_ids()))


@pytest.mark.slow
def test_omitting_variants_later_keeps_paid_replies(serving, local):
    with serving(faults=BatchFaults(delay=0.05)) as server:
        with pytest.raises(WaitingError):
            evaluate(detach=True)
        evaluate(variants="low")
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.answered_ids()) == len(set(server.answered_ids()))


class Listing:
    """A provider that lists these batches and result lines."""

    account = Account("any", "127.0.0.1:9", "any", "http://127.0.0.1:9/v1")

    def __init__(self, states=(), lines=(), *, keeps_keys=True):
        self.states, self.lines, self.keeps_keys = states, lines, keeps_keys

    async def batches(self):
        for state in self.states:
            yield state

    async def results(self, _state):
        for line in self.lines:
            yield line


def in_doubt(provider):
    """Return a client, and the entry of two requests whose submission was cut off."""
    client = BatchClient(MODEL, provider, Journal(), 0)
    entry = client._journal.begin("almanac", "http://127.0.0.1:9/v1", MODEL, ["ri-1", "ri-2"])
    return client, client._journal.uploaded(entry.key, "file-1")


DAY = 86_400.0
UNKNOWN = {"total": 2, "age": 0.0, "key": None, "file": None}


def found_batch(states, *, keeps_keys=True):
    client, entry = in_doubt(provider := Listing(keeps_keys=keeps_keys))
    for number, one in enumerate(states):
        given = {**UNKNOWN, **one}
        age, key = given.pop("age"), entry.key if given["key"] == "ours" else given["key"]
        created = None if age is None else entry.time - age
        given |= {"key": key, "created": created}
        provider.states = [*provider.states, State(f"batch_{number}", "in_progress", ended=False, **given)]
    assignment = SimpleNamespace(budget=Budget(Limits()), breaker=CircuitBreaker())
    state = asyncio.run(client.find(entry, assignment))
    return None if state is None else int(state.id.removeprefix("batch_"))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ([], None),
        ([{"file": "file-9"}, {"key": "ours"}], 1),
        ([{"total": 3, "age": 30 * DAY}, {"file": "file-1", "age": 30 * DAY, "total": 0}], 1),
        ([{"key": "ri-of-another"}], None),
        ([{"total": 3}, {"total": 0, "file": "file-9"}, {"age": 4 * DAY}], None),
    ],
)
def test_lost_submission_is_found_by_key_or_file(shown, expected):
    assert found_batch(shown) == expected


@pytest.mark.parametrize(
    "one", [{}, {"age": -2 * DAY}, {"age": 2 * DAY}, {"age": None}, {"file": "file-9"}, {"total": 0}]
)
def test_possible_match_for_a_lost_batch_raises(one):
    with pytest.raises(UnreadableReplyError, match="may be this one, such as batch_0"):
        found_batch([one])


def test_lost_batch_without_key_or_file_is_matched_by_size():
    assert found_batch([{"total": 3}, {"age": 2 * DAY}, {"age": -DAY}], keeps_keys=False) == 2
    assert found_batch([{"total": 3, "age": 4 * DAY}], keeps_keys=False) is None
    with pytest.raises(UnreadableReplyError, match="batch_0"):
        found_batch([{"total": 3}], keeps_keys=False)


@pytest.mark.parametrize("is_guess", [True, False])
def test_forgotten_batch_is_cancelled_unless_its_match_is_a_guess(is_guess):
    client, entry = in_doubt(provider := Listing())
    cancelled = []
    provider.cancel = provider.delete = lambda name: asyncio.sleep(0, cancelled.append(name))
    client._journal.submitted(entry.key, "batch_1", is_guess=is_guess)
    asyncio.run(client.forget(*client.entries))
    assert cancelled == [*([] if is_guess else ["batch_1"]), "file-1"]
    assert not client.entries


def test_incomplete_results_are_kept_and_failures_are_not_answers():
    """The state reports two answers and two failures, so one answer and two failures are incomplete."""
    failures = [{"custom_id": f"ri-{number}", "response": {"status_code": 500, "body": {}}} for number in (3, 4)]
    body = {"choices": [{"message": {"content": "Lima"}}]}
    lines = [json.dumps(one) for one in ({"custom_id": "ri-1", "response": {"body": body}}, *failures)]
    client, entry = in_doubt(Listing(lines=lines))
    state, results = State("batch_1", "completed", ended=True, total=4, done=4, answered=2), {}
    with pytest.raises(RequestFailedError, match="expected at least 2 results, got 1: the download is incomplete"):
        asyncio.run(client.collect(entry, state, CircuitBreaker(), results))
    assert list(results) == ["ri-1"]


@pytest.mark.parametrize(
    ("matched", "status", "answered", "ends"),
    [
        (0, "completed", 0, True),
        (1, "completed", 20, True),
        (2, "completed", 20, False),
        (0, "expired", 20, True),
        (0, "expired", 0, False),
    ],
)
def test_batch_with_under_ten_percent_usable_results_ends_the_run(matched, status, answered, ends):
    client, ids = BatchClient(MODEL, Listing(), Journal(), 0), [f"ri-{number}" for number in range(20)]
    entry = client._journal.begin("almanac", "http://127.0.0.1:9/v1", MODEL, ids)
    results = {one: RequestResult(one, is_empty=place >= matched) for place, one in enumerate(ids)}
    state = State("batch_1", status, ended=True, total=20, done=answered, answered=answered)
    with pytest.raises(RequestFailedError, match=f"{matched} of 20 results can be") if ends else nullcontext():
        client.check_matched(entry, state, results)


def test_small_useless_batches_end_the_run_only_together():
    client, state = BatchClient(MODEL, Listing(), Journal(), 0), State("batch_1", "completed", ended=True)
    few, others = (client._journal.begin("almanac", "p", MODEL, [f"{name}-{n}" for n in range(6)]) for name in "ab")
    for _ in range(6):
        client.check_matched(few, state, {})
    with pytest.raises(RequestFailedError, match="0 of 6 results can be"):
        client.check_matched(others, state, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("pol=1",), "expected one of poll, requests, forget, got 'pol'"),
        (("poll=never",), "poll: expected a number"),
        (("requests=0",), "requests: expected a number from 1"),
        (("requests=1.5",), "requests: expected a number from 1"),
    ],
)
def test_invalid_engine_options_raise(serving, options, message):
    with serving(), pytest.raises(SettingError, match=message):
        evaluate(engine_option=options)


@pytest.mark.slow
def test_unreachable_batch_server_is_reported_once_and_waiting_ends(serving, local, monkeypatch):
    down, notes = [], []

    @web.middleware
    async def failing(request, handler):
        if down and request.method == "GET":
            raise web.HTTPServiceUnavailable
        return await handler(request)

    monkeypatch.setattr(providers, "OUTAGE", 0.1)
    with serving(failing, faults=BatchFaults(delay=0.1)) as server:
        down.append(True)
        with pytest.raises(
            RunFailedError, match=r"cannot be polled since \d\d:\d\d \(.*503.*same command again to resume"
        ):
            evaluate(notes)
        with pytest.raises(WaitingError, match=r"cannot be polled since .*; 1 batch with 16 .* is in flight"):
            evaluate(detach=True)
        down.clear()
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.batches()) == 2
        assert len(server.answered_ids()) == len(set(server.answered_ids()))
    assert sum("cannot be polled" in note for note in notes) == 1, "reported once, not at every poll"


@pytest.mark.slow
def test_sweep_reports_an_unreachable_server_and_ends_after_a_while(serving, monkeypatch):
    monkeypatch.setattr(providers, "OUTAGE", 0.3)
    Path("set.toml").write_text(
        f'name = "set"\n[defaults]\nengine = "batch"\nengine_option = ["poll=0.05"]\nlimit = 4\nvariants = "low"\n'
        f'draws = 1\n[[models]]\nmodel = "{MODEL}"\n[[datasets]]\ndataset = "almanac"\n'
    )
    notes = []

    @contextmanager
    def watched(_place, _plan):
        yield lambda event: notes.append(event.note) if isinstance(event, Underway) and event.is_notice else None

    async def run_sweep():
        sweep = prepare_sweep("set.toml", at())
        with locked(sweep.path):
            return [one async for one in execute_sweep(sweep, watched)]

    looked = []

    @web.middleware
    async def failing(request, handler):
        if request.method == "GET":
            looked.append(request.path)
            if len(looked) > 1:
                raise web.HTTPServiceUnavailable
        return await handler(request)

    with serving(failing, faults=BatchFaults(delay=30)):
        (found,) = asyncio.run(run_sweep())
    assert (found.status, len(notes)) == ("failed", 1)
    assert "cannot be polled since" in found.error


@pytest.mark.slow
def test_batch_at_another_address_is_kept_until_collected(serving, local, monkeypatch):
    with serving(faults=BatchFaults(delay=0.1)) as server:
        with pytest.raises(WaitingError):
            evaluate(detach=True)
        monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9/v1")
        with pytest.raises(ModelError, match=f"is in flight at {server.url}, .*base_url {server.url} "):
            evaluate()
        monkeypatch.setenv(ADDRESS, server.url)
        run, _ = evaluate()
        assert outcomes(run).equals(local)
        assert len(server.batches()) == 2


@pytest.mark.slow
def test_forgetting_an_unknown_batch_raises_and_a_forgotten_one_does_not(serving, local):
    with serving(faults=BatchFaults(delay=0.05)):
        with pytest.raises(WaitingError):
            evaluate(detach=True)
        key = journal()[0]["key"]
        for engine_name in ("batch", "direct"):
            with pytest.raises(
                SettingError, match=f"forget: no batch 'ri-no' was submitted from here; in flight: {key}"
            ):
                evaluate(engine=engine_name, engine_option=("forget=ri-no", f"forget={key}"))
        assert journal()[-1]["event"] == "submitted", "none is forgotten if one is unknown"
        run, _ = evaluate(engine="direct", engine_option=(f"forget={key}",))
        assert outcomes(run).equals(local)
        assert journal()[-1]["event"] == "given_up"
        evaluate(engine_option=(f"forget={key}", "poll=0.01"), variants="low,high,normal")
