"""Files and batches of the server, over HTTP by the openai client and without a server."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import aiohttp
import openai
import pytest
from tests.faults.almanac import BatchFaults, faulty_app

from refusal_index.plugins.almanac import batches, chat_api, server
from refusal_index.plugins.almanac.batches import NEXT, CountedBatch
from refusal_index.plugins.almanac.chat_api import JsonResponse, in_order, parse_line
from refusal_index.plugins.almanac.server import ModelPool, RequestLog, listening

# --- Files and batches

DATA = Path(__file__).parent / "data"
URL = "/v1/chat/completions"
LONG = [{"role": "user", "content": "\n" * 200}]
ENDED = {"completed", "failed", "expired", "cancelled"}


def chat_request(number, **changes):
    messages = [{"role": "user", "content": f"Who wrote book {number % 7}?"}]
    return {"model": "tied", "messages": messages, "seed": number, "max_tokens": 8, "temperature": 0.9} | changes


def line(number, **changes):
    whole = {"custom_id": f"q-{number}", "method": "POST", "url": URL, "body": chat_request(number)} | changes
    return {name: value for name, value in whole.items() if value is not None}


def lines(count):
    return [line(number) for number in range(count)]


def json_lines(entries):
    return b"".join((entry if isinstance(entry, bytes) else json.dumps(entry).encode()) + b"\n" for entry in entries)


@asynccontextmanager
async def served(log_path=None, **options):
    pool = ModelPool(["tied", "grouped"], DATA.joinpath)
    async with listening(faulty_app(pool, RequestLog(log_path), **options)) as url:
        yield url


def with_client(use, log_path=None, **options):
    async def run():
        async with (
            served(log_path, **options) as url,
            openai.AsyncOpenAI(base_url=url, api_key="sk-none", max_retries=0) as client,
        ):
            return await use(client)

    return asyncio.run(run())


async def create_batch(client, entries, **options):
    file = await client.files.create(file=("wave.jsonl", json_lines(entries)), purpose="batch")
    return await client.batches.create(
        **{"input_file_id": file.id, "endpoint": URL, "completion_window": "24h"} | options
    )


async def states(client, batch, until=ENDED):
    """Return the batch after each change of its state, up to one of `until`."""
    seen = [batch]
    async with asyncio.timeout(60):
        while seen[-1].status not in until:
            await asyncio.sleep(0.01)
            found = await client.batches.retrieve(batch.id)
            seen[-1:] = [seen[-1], found] if found.status != seen[-1].status else [found]
    return seen


async def run_batch(client, entries, **options):
    return (await states(client, await create_batch(client, entries, **options)))[-1]


async def rows(client, file_id):
    """Return the lines of a file by their custom_id, each of which occurs once."""
    if file_id is None:
        return {}
    found = [json.loads(one) for one in (await client.files.content(file_id)).text.splitlines()]
    assert max(Counter(one["custom_id"] for one in found).values()) == 1
    return {one["custom_id"]: one for one in found}


async def results(client, batch):
    return await rows(client, batch.output_file_id), await rows(client, batch.error_file_id)


def replies_and_usage(body):
    return [(choice["message"]["content"], choice["finish_reason"]) for choice in body["choices"]], body["usage"]


def test_batch_replies_match_chat_completions():
    async def use(client):
        batch = await run_batch(client, lines(300))
        alone = {}
        for number in range(0, 300, 10):
            reply = await client.chat.completions.create(**chat_request(number))
            alone[f"q-{number}"] = json.loads(reply.to_json(exclude_unset=False))
        return batch, await results(client, batch), alone

    batch, (output, errors), alone = with_client(use)
    assert (batch.status, batch.request_counts.total, batch.request_counts.completed) == ("completed", 300, 300)
    assert (batch.error_file_id, errors, batch.model) == (None, {}, "tied")
    assert set(output) == {f"q-{number}" for number in range(300)}
    assert {one["response"]["status_code"] for one in output.values()} == {200}
    assert all(one["error"] is None and one["response"]["request_id"] and one["id"] for one in output.values())
    for name, body in alone.items():
        given = output[name]["response"]["body"]
        assert [each["message"]["content"] for each in given["choices"]] == [
            each["message"]["content"] for each in body["choices"]
        ]
        assert given["usage"]["total_tokens"] == body["usage"]["total_tokens"]
    assert batch.usage.total_tokens == sum(one["response"]["body"]["usage"]["total_tokens"] for one in output.values())


def test_batch_passes_through_every_state_with_timestamps():
    async def use(client):
        return await states(client, await create_batch(client, lines(5)))

    seen = with_client(use, faults=BatchFaults(delay=0.15))
    assert [one.status for one in seen] == ["validating", "in_progress", "finalizing", "completed"]
    assert [one.request_counts.total for one in seen] == [0, 5, 5, 5]
    last = seen[-1]
    assert last.created_at <= last.in_progress_at <= last.finalizing_at <= last.completed_at <= last.expires_at
    assert last.expires_at - last.created_at == 24 * 60 * 60
    assert (last.object, last.endpoint, last.completion_window) == ("batch", URL, "24h")
    assert {last.failed_at, last.expired_at, last.cancelled_at, last.errors, seen[1].output_file_id} == {None}


def test_rejected_chat_requests_are_in_the_error_file_with_their_status():
    wrong = [
        line(1, body=chat_request(1, messages=LONG)),
        line(2, body=chat_request(2, temperature=-1)),
        line(3, body=chat_request(3, stream=True)),
    ]

    async def use(client):
        batch = await run_batch(client, [line(0), *wrong])
        return batch, await results(client, batch)

    batch, (output, errors) = with_client(use)
    counts = batch.request_counts
    assert (batch.status, counts.total, counts.completed, counts.failed) == ("completed", 4, 1, 3)
    assert set(output) == {"q-0"}
    assert {name: (one["response"]["status_code"], one["error"]) for name, one in errors.items()} == {
        "q-1": (400, None),
        "q-2": (400, None),
        "q-3": (400, None),
    }
    messages = {name: one["response"]["body"]["error"] for name, one in errors.items()}
    assert messages["q-1"]["code"] == "context_length_exceeded"
    assert (messages["q-2"]["param"], messages["q-3"]["param"]) == ("temperature", "stream")


def test_no_output_file_if_every_request_fails():
    async def use(client):
        return await run_batch(client, [line(number, body=chat_request(number, n=-1)) for number in range(3)])

    batch = with_client(use)
    assert (batch.status, batch.output_file_id, batch.request_counts.failed) == ("completed", None, 3)
    assert batch.error_file_id


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([line(0), b'{"custom_id": ', line(2)], [("invalid_json_line", 2, None)]),
        ([b"[" * 100_000], [("invalid_json_line", 1, None)]),
        ([b"\xff\xfe", line(1)], [("invalid_json_line", 1, None)]),
        ([b"[]"], [("invalid_json_line", 1, None)]),
        ([line(0, custom_id=None)], [("missing_required_parameter", 1, "custom_id")]),
        ([line(0, custom_id="")], [("missing_required_parameter", 1, "custom_id")]),
        ([line(0, custom_id=7)], [("invalid_type", 1, "custom_id")]),
        (
            [line(0, body=None), line(1, body="x")],
            [("missing_required_parameter", 1, "body"), ("invalid_type", 2, "body")],
        ),
        ([line(0), b"", line(1), line(0)], [("duplicate_custom_id", 4, "custom_id")]),
        ([line(0, method="GET")], [("invalid_method", 1, "method")]),
        ([line(0), line(1, url="/v1/embeddings")], [("url_mismatch", 2, "url")]),
        ([line(0), line(1, body=chat_request(1, model="grouped"))], [("model_mismatch", 2, "body.model")]),
        ([line(n, body=chat_request(n, model="gpt-4.1")) for n in range(3)], [("model_not_found", 1, "body.model")]),
        ([line(0, body={"messages": []})], [("missing_required_parameter", 1, "body.model")]),
        ([], [("empty_file", None, None)]),
        ([b"", b"  "], [("empty_file", None, None)]),
        (lines(9), [("too_many_tasks", None, None)]),
    ],
)
def test_invalid_input_file_fails_the_batch_and_names_the_lines(entries, expected, monkeypatch):
    monkeypatch.setattr(batches, "MAX_REQUESTS", 8)

    async def use(client):
        return await run_batch(client, entries)

    batch = with_client(use)
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("failed", None, None)
    assert [(statement.code, statement.line, statement.param) for statement in batch.errors.data] == expected
    assert all(one.message for one in batch.errors.data)
    assert batch.failed_at


def test_at_most_a_hundred_line_errors_are_reported():
    async def use(client):
        return await run_batch(client, [b"{"] * 1000)

    batch = with_client(use)
    assert [one.line for one in batch.errors.data] == list(range(1, 101))


def test_expired_batch_keeps_completed_requests_and_names_the_rest():
    async def use(client):
        first, second = await run_batch(client, lines(10)), await run_batch(client, lines(10))
        return first, await results(client, first), second

    first, (output, errors), second = with_client(use, faults=BatchFaults(expire=0.35, batches=1))
    assert (first.status, first.request_counts.completed, first.request_counts.failed) == ("expired", 6, 0)
    assert first.expired_at
    assert first.completed_at is None
    assert set(output) == {f"q-{number}" for number in range(6)}
    assert set(errors) == {f"q-{number}" for number in range(6, 10)}
    assert {(error["response"], error["error"]["code"]) for error in errors.values()} == {(None, "batch_expired")}
    assert (second.status, second.request_counts.completed) == ("completed", 10), "only the first batch had to expire"


def test_share_of_requests_fails_and_retries_may_succeed():
    async def use(client):
        batch = await run_batch(client, lines(200))
        output, errors = await results(client, batch)
        again = await run_batch(client, [line(int(name[2:])) for name in errors])
        return batch, output, errors, again

    batch, output, errors, again = with_client(use, faults=BatchFaults(fail=0.3))
    assert 30 < len(errors) < 90
    assert (batch.request_counts.completed, batch.request_counts.failed) == (len(output), len(errors))
    assert {error["response"]["status_code"] for error in errors.values()} == {429, 500}
    assert output.keys().isdisjoint(errors)
    assert 0 < again.request_counts.failed < len(errors)


def test_cancelled_batch_finishes_and_keeps_requests_in_progress():
    async def use(client):
        batch = await create_batch(client, lines(3000))
        while not (await client.batches.retrieve(batch.id)).request_counts.completed:
            await asyncio.sleep(0.01)
        cancelled = await client.batches.cancel(batch.id)
        again = await client.batches.cancel(batch.id)
        last = (await states(client, cancelled))[-1]
        with pytest.raises(openai.ConflictError, match="cancelled"):
            await client.batches.cancel(batch.id)
        return cancelled, again, last, await results(client, last)

    cancelled, again, last, (output, errors) = with_client(use)
    assert cancelled.status == again.status == "cancelling"
    assert last.status == "cancelled"
    assert last.cancelling_at <= last.cancelled_at
    assert 0 < len(output) == last.request_counts.completed < 3000
    assert errors == {}


def test_batch_cancelled_before_validation_has_no_files():
    async def use(client):
        batch = await create_batch(client, lines(3))
        await client.batches.cancel(batch.id)
        return (await states(client, batch))[-1]

    batch = with_client(use, faults=BatchFaults(delay=0.1))
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("cancelled", None, None)


def test_batches_are_listed_newest_first_with_their_metadata_page_by_page():
    async def use(client):
        made = [await create_batch(client, lines(2), metadata={"wave": str(number)}) for number in range(5)]
        page = await client.batches.list(limit=2)
        every = [batch async for batch in client.batches.list(limit=2)]
        with pytest.raises(openai.BadRequestError, match="after"):
            await client.batches.list(after="batch_none")
        with pytest.raises(openai.BadRequestError, match="limit"):
            await client.batches.list(limit=0)
        return made, page, every

    made, page, every = with_client(use)
    assert [batch.id for batch in every] == [batch.id for batch in reversed(made)]
    assert [batch.metadata for batch in every] == [{"wave": str(number)} for number in (4, 3, 2, 1, 0)]
    assert (len(page.data), page.has_more) == (2, True)


def test_two_batches_at_once_do_not_mix():
    async def use(client):
        both = [
            await create_batch(client, lines(40)),
            await create_batch(client, [line(n, body=chat_request(n, model="grouped")) for n in range(40)]),
        ]
        done = [(await states(client, batch))[-1] for batch in both]
        return [(await results(client, batch))[0] for batch in done], [
            await results(client, await run_batch(client, lines(40)))
        ]

    (tied, grouped), [(again, _)] = with_client(use)
    assert {name: replies_and_usage(one["response"]["body"]) for name, one in tied.items()} == {
        name: replies_and_usage(one["response"]["body"]) for name, one in again.items()
    }
    assert {one["response"]["body"]["model"] for one in grouped.values()} == {"grouped"}
    assert len(tied) == len(grouped) == 40


def test_files_round_trip_and_can_be_listed_and_deleted():
    content = json_lines(lines(4))

    async def use(client):
        file = await client.files.create(file=("wave-1.jsonl", content), purpose="batch")
        batch = await run_batch(client, lines(1))
        listed = [one async for one in client.files.list()]
        brought = [one async for one in client.files.list(purpose="batch")]
        back = (await client.files.content(file.id)).content
        found = await client.files.retrieve(file.id)
        deleted = await client.files.delete(file.id)
        for call in (client.files.retrieve, client.files.content, client.files.delete):
            with pytest.raises(openai.NotFoundError, match=file.id):
                await call(file.id)
        return file, batch, listed, brought, back, found, deleted

    file, batch, listed, brought, back, found, deleted = with_client(use)
    assert back == content
    assert (found.filename, found.bytes, found.purpose, found.id) == ("wave-1.jsonl", len(content), "batch", file.id)
    assert deleted.deleted
    assert [one.id for one in listed] == [batch.output_file_id, batch.input_file_id, file.id]
    assert [one.id for one in brought] == [batch.input_file_id, file.id]


def test_oversized_file_is_rejected_and_not_kept(monkeypatch):
    monkeypatch.setattr(server, "MAX_FILE_SIZE", 4_000)

    async def use(client):
        for size in (4_001, 200_000):  # one is detected by the bytes read, the other by the announced length
            with pytest.raises(openai.APIStatusError) as caught:
                await client.files.create(file=("much.jsonl", b"x" * size), purpose="batch")
            assert (caught.value.status_code, caught.value.param) == (413, "file")
            assert "at most 4,000 bytes" in caught.value.message
        assert (await client.files.create(file=("fits.jsonl", b"x" * 4_000), purpose="batch")).bytes == 4_000
        return [one.bytes async for one in client.files.list()]

    assert with_client(use) == [4_000]


def test_uploads_over_the_total_limit_are_rejected_until_a_file_is_deleted(monkeypatch):
    monkeypatch.setattr(server, "MAX_KEPT", 10_000)

    async def use(client):
        async def upload(size):
            return await client.files.create(file=("a.jsonl", b"x" * size), purpose="batch")

        first = await upload(6_000)
        together = await asyncio.gather(upload(3_000), upload(3_000), return_exceptions=True)
        (refused,) = (one for one in together if isinstance(one, openai.APIStatusError))
        assert (refused.status_code, refused.param) == (413, "file")
        assert "at most 10,000 bytes of files; delete some first" in refused.message
        await client.files.delete(first.id)
        assert (await upload(7_000)).bytes == 7_000

    with_client(use)


def test_chunked_upload_of_unknown_size_is_rejected_once_too_large(monkeypatch):
    monkeypatch.setattr(server, "MAX_FILE_SIZE", 4_000)

    async def pieces():
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
        for _ in range(400):
            yield b"x" * 2**10

    async def use():
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        async with (
            served() as url,
            aiohttp.ClientSession() as session,
            session.post(f"{url}/files", data=pieces(), headers=kind) as reply,
        ):
            return reply.status

    assert asyncio.run(use()) == 413


def test_slow_or_disconnected_upload_is_dropped_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(server, "PATIENCE", 0.03)
    head = (
        "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    )

    async def use():
        async with served() as url:
            port = int(url.split(":")[2].split("/")[0])
            for waits in (True, False):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode())
                await writer.drain()
                assert not waits or b"408" in await reader.readline()
                writer.close()
            async with aiohttp.ClientSession() as session, session.get(f"{url}/files") as reply:
                return (await reply.json())["data"], list(tmp_path.iterdir())

    assert asyncio.run(use()) == ([], [])


def test_batch_outlives_its_input_file_and_its_output_supports_ranges():
    async def use():
        async with served(faults=BatchFaults(delay=0.1)) as url:
            async with openai.AsyncOpenAI(base_url=url, api_key="sk-none") as client:
                batch = (await states(client, await create_batch(client, lines(20)), until={"in_progress"}))[-1]
                await client.files.delete(batch.input_file_id)
                last = (await states(client, batch))[-1]
                whole = (await client.files.content(last.output_file_id)).content
            place = f"{url}/files/{last.output_file_id}/content"
            async with aiohttp.ClientSession() as session, session.get(place, headers={"Range": "bytes=100-"}) as rest:
                return last.request_counts.completed, rest.status, whole[100:] == await rest.read()

    assert asyncio.run(use()) == (20, 206, True)


def test_file_larger_than_the_body_limit_is_accepted():
    content = json_lines(line(n, body=chat_request(n, user="x" * 3000)) for n in range(1500))
    assert len(content) > 4 << 20

    async def use(client):
        file = await client.files.create(file=("wave.jsonl", content), purpose="batch")
        return file.bytes, (await client.files.content(file.id)).content == content

    assert with_client(use) == (len(content), True)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"metadata": {"a" * 65: "x"}}, "metadata"),
        ({"metadata": {"a": 7}}, "metadata"),
        ({"metadata": []}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 3600}}, "output_expires_after"),
    ],
)
def test_batch_with_unsupported_options_is_rejected(options, param):
    async def use(client):
        with pytest.raises(openai.BadRequestError) as caught:
            await create_batch(client, lines(1), **options)
        return caught.value.param, [batch async for batch in client.batches.list()]

    assert with_client(use) == (param, [])


def test_unknown_ids_give_404_and_outputs_are_rejected_as_input():
    async def use(client):
        for call in (client.batches.retrieve, client.batches.cancel):
            with pytest.raises(openai.NotFoundError, match="batch_none"):
                await call("batch_none")
        ask = {"endpoint": URL, "completion_window": "24h"}
        with pytest.raises(openai.NotFoundError, match="file-none"):
            await client.batches.create(input_file_id="file-none", **ask)
        batch = await run_batch(client, lines(1))
        with pytest.raises(openai.BadRequestError, match="batch_output"):
            await client.batches.create(input_file_id=batch.output_file_id, **ask)

    with_client(use)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "fine-tune", "file": b"x"}, "purpose"),
        ({"file": b"x"}, "purpose"),
        ({"purpose": "batch"}, "file"),
        ({"purpose": "batch", "file": "x"}, "file"),
        ({"purpose": "batch", "file": b"x", "expires_after[anchor]": "created_at"}, "expires_after[anchor]"),
    ],
)
def test_upload_without_batch_purpose_or_file_is_rejected(fields, param):
    async def use():
        form = aiohttp.FormData()
        for name, value in fields.items():
            form.add_field(name, value, filename="a.jsonl" if isinstance(value, bytes) else None)
        async with (
            served() as url,
            aiohttp.ClientSession() as session,
            session.post(f"{url}/files", data=form) as reply,
        ):
            return reply.status, (await reply.json())["error"]["param"]

    assert asyncio.run(use()) == (400, param)


@pytest.mark.parametrize(
    ("kind", "status"), [("multipart/form-data; boundary=x", 400), ("multipart/form-data", 400), ("text/plain", 400)]
)
def test_upload_that_is_not_a_form_is_rejected(kind, status):
    async def use():
        async with (
            served() as url,
            aiohttp.ClientSession() as session,
            session.post(f"{url}/files", data=b"--y\r\nnothing", headers={"Content-Type": kind}) as reply,
        ):
            return reply.status, set((await reply.json())["error"])

    assert asyncio.run(use()) == (status, {"message", "type", "param", "code"})


def test_a_batch_outlives_its_client():
    async def use():
        async with served() as url:
            async with openai.AsyncOpenAI(base_url=url, api_key="sk-none") as client:
                batch = await create_batch(client, lines(500), metadata={"run": "one"})
            async with openai.AsyncOpenAI(base_url=url, api_key="sk-other") as client:
                [found] = [one async for one in client.batches.list() if one.metadata == {"run": "one"}]
                last = (await states(client, found))[-1]
                return batch.id == last.id, last.request_counts.completed, len((await results(client, last))[0])

    assert asyncio.run(use()) == (True, 500, 500)


def test_log_has_one_line_per_executed_batch_request(tmp_path):
    async def use(client):
        batch = await run_batch(client, [*lines(8), line(8, body=chat_request(8, messages=LONG)), line(9), line(10)])
        return batch.id

    batch = with_client(use, tmp_path / "log.jsonl", faults=BatchFaults(expire=0.15))
    text = (tmp_path / "log.jsonl").read_text()
    entries = [json.loads(one) for one in text.splitlines()]
    inside = [entry for entry in entries if entry["path"] == URL]
    assert Counter((one["custom_id"], one["status"]) for one in inside) == {
        **{(f"q-{number}", 200): 1 for number in range(8)},
        ("q-8", 400): 1,
    }
    assert {(one["batch"], one["method"]) for one in inside} == {(batch, "POST")}
    assert {one["seed"] for one in inside if one["status"] == 200} == set(range(8))
    assert all(one["total_tokens"] > one["completion_tokens"] for one in inside if one["status"] == 200)
    [made] = [entry for entry in entries if (entry["method"], entry["path"]) == ("POST", "/v1/batches")]
    assert (made["batch"], made["status"]) == (batch, 200)
    assert sum((entry["method"], entry["path"]) == ("POST", "/v1/files") for entry in entries) == 1
    assert "Who wrote" not in text


def test_stopped_server_drops_its_batches_and_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def use(client):
        await create_batch(client, lines(3000))
        await client.files.create(file=("a.jsonl", b"{}"), purpose="batch")
        assert len(list(tmp_path.rglob("*"))) > 2

    with_client(use)
    assert list(tmp_path.iterdir()) == []


def test_batch_fails_with_server_error_if_processing_raises(monkeypatch, caplog):
    async def use(client):
        monkeypatch.setattr("refusal_index.plugins.almanac.batches.result_line", lambda *_: 1 / 0)
        return await run_batch(client, lines(3))

    batch = with_client(use)
    assert (batch.status, [statement.code for statement in batch.errors.data]) == ("failed", ["server_error"])
    assert "ZeroDivisionError" in caplog.text


# --- The parts of batches that need no server

STATES = {"validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"}


@pytest.mark.parametrize("before", sorted(STATES))
@pytest.mark.parametrize("after", sorted(STATES))
def test_states_are_reached_only_from_their_predecessors(before, after):
    batch, began = CountedBatch.new("file-1"), int(time.time())
    batch.status = before
    if after in NEXT.get(before, ()):
        batch.move(after)
        assert batch.status == after
        assert began <= getattr(batch, f"{after}_at") <= time.time()
    else:
        with pytest.raises(ValueError, match=f"{before} cannot become {after}"):
            batch.move(after)


def test_every_state_is_reachable_and_final_ones_have_no_successor():
    reached = {"validating"}.union(*NEXT.values())
    assert reached == STATES - {"expired"}, "a batch of this server has no deadline"
    assert STATES - NEXT.keys() == {"failed", "completed", "expired", "cancelled"}


def test_batch_counts_responses_and_tokens():
    batch = CountedBatch.new("file-1")
    batch.count(JsonResponse(200, {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}))
    batch.count(JsonResponse(429, {"error": {}}))
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)
    assert batch.usage.total_tokens == 7


def test_failing_share_matches_the_setting_and_tries_are_independent():
    faults = BatchFaults(fail=0.25)
    first, second = ([faults.status(f"q-{number}", tries) for number in range(4000)] for tries in (0, 1))
    assert abs(sum(map(bool, first)) / 4000 - 0.25) < 0.03
    both = sum(bool(one and other) for one, other in zip(first, second, strict=True))
    assert abs(both / 4000 - 0.25**2) < 0.02
    assert {*first} == {None, 429, 500}
    assert first == [faults.status(f"q-{number}", 0) for number in range(4000)]


def test_custom_id_with_a_lone_surrogate_is_kept():
    line = rb'{"custom_id": "\ud800", "method": "POST", "url": "u", "body": {"model": 3}}'
    assert (parse_line(1, line).custom_id, parse_line(1, line).body) == ("\ud800", {"model": 3})


def test_answers_come_in_order_even_if_later_ones_finish_first(monkeypatch):
    monkeypatch.setattr(chat_api, "MAX_IN_FLIGHT", 4)

    async def ask(number):
        await asyncio.sleep((10 - number) / 1000)
        return number

    async def use():
        return [found async for found in in_order(range(10), ask)]

    assert asyncio.run(use()) == list(range(10))


def test_pending_requests_are_cancelled_if_one_fails_or_the_caller_leaves(monkeypatch):
    monkeypatch.setattr(chat_api, "MAX_IN_FLIGHT", 3)
    begun, ended = [], []

    async def ask(number):
        begun.append(number)
        try:
            await asyncio.sleep(0 if number < 2 else 60)
        finally:
            ended.append(number)
        return 1 // number

    async def fails():
        return [found async for found in in_order(range(9), ask)]

    async def leaves():
        async with aclosing(in_order(range(1, 9), ask)) as found:
            async for _ in found:
                return

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fails())
    asyncio.run(leaves())
    assert sorted(begun) == sorted(ended)
    assert begun
