"""Rounds on a cluster of Ray, of one machine and of two nodes, and with vLLM."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("ray", reason="needs the extra 'ray'")

import pyarrow as pa
import ray
import ray.data
from aiohttp import web
from ray.cluster_utils import Cluster

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.models.failures import FailureKind
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError
from refusal_index.plugins.almanac.models import model_folder
from refusal_index.plugins.batches.command import ray_engine, read_lines
from refusal_index.plugins.batches.ray_executor import (
    ERROR,
    QUIET,
    RayExecutor,
    RayOptions,
    check_address,
    check_gpus,
    cluster,
    config_of,
    from_vllm,
    read_options,
    shards_of,
    through_vllm,
    to_vllm,
    write_shard,
)
from refusal_index.plugins.batches.ray_nodes import Shards, read_shard, result_line, storage_name
from refusal_index.plugins.batches.rounds import custom_id, question_states
from refusal_index.protocol import Conversation, GraderKind, Role, StopReason
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore
from tests.faults.api import FakeApi, question_of
from tests.models.batches.answering import make_conversations, pending_of, store_of
from tests.models.batches.cut_off import kill_once, settled, start
from tests.models.conftest import cells, run
from tests.models.test_direct import sums
from tests.served import KEY_NAME, at
from tests.tiers import others_nightly

pytestmark = [
    # From Ray: deprecated names, and sockets that it leaves to the garbage collector
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

# --- Shards on one node

KEY = "sk-very-secret"


@pytest.fixture(scope="module")
def here():
    """Connect to a cluster on this machine; each run uses this connection."""
    with cluster(None):
        yield


@pytest.fixture
def ray_plan(plan_for):
    """Return what `plan_for` does, for this engine and small shards."""

    def make(url: str, *options: str, **changes: object):
        given = {"engine": "ray", "grader": "exact", "engine_option": ["shard=4", *options], **changes}
        return plan_for(url, **given)

    return make


def shards(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "rounds" / "shards").glob("*.jsonl"))


@pytest.mark.slow
def test_embedded_model_gives_the_same_table_as_the_direct_engine(here, tmp_path):
    given = {"limit": 40, "draws": 2, "repeat_questions": 10}
    local = ri.evaluate("almanac/base", out=tmp_path / "local", **given)
    ours = ri.evaluate("almanac/base", engine="ray", engine_option=["shard=32"], out=tmp_path / "ray", **given)
    assert ours.outcomes.rows() == local.outcomes.rows()
    assert ours.folder.read_settings() == local.folder.read_settings()
    assert shards(ours.path) == [], "what is in the store lies nowhere else"


@pytest.mark.nightly
def test_ray_actors_leave_no_key_in_ray_files(here, ray_plan, plan_for):
    with FakeApi(sums, max_choices=8) as api:
        ours = run(ray_plan(api.url, count=20, draws=3, repeat_questions=5))
        sent = len(api.answered)
        theirs = run(plan_for(api.url, count=20, draws=3, repeat_questions=5, out="one by one", grader="exact"))
        assert len(api.answered) == 2 * sent
    assert cells(ours) == cells(theirs)
    assert {header["Authorization"] for header in api.headers} == {f"Bearer {KEY}"}
    session = Path(ray._private.worker.global_worker.node.get_session_dir_path())
    found = [path for path in session.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert not found
    assert any(path.stat().st_size for path in session.rglob("*.log")), "there are logs to search"


@pytest.mark.nightly
def test_rejections_rate_limits_and_hangs_do_not_end_the_run(here, ray_plan):
    asked: list[tuple[str, float]] = []

    def fault(message: str, sent_before: int):
        question, number = question_of(message), int(question_of(message).split()[2])
        asked.append((question, time.monotonic()))
        if number == 3:
            return web.json_response({"error": {"message": f"no such thing, says {KEY}"}}, status=400)
        if number == 4:
            refused = {"message": f"flagged, says {KEY}", "code": "content_filter"}
            return web.json_response({"error": refused}, status=400)
        if number in (5, 6) and sent_before < 2:
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "3"})
        if number == 7 and sent_before == 0:
            return 30.0
        return None

    with FakeApi(sums, fault) as api:
        plan = ray_plan(api.url, count=12, attempt_timeout=1)
        derived = run(plan)
    answered = {question for question, *_ in cells(derived)}
    assert answered >= {f"q{number}" for number in range(12) if number != 3}
    assert sum("What is 3 plus" in question for question, _ in asked) == 1, "an invalid request is not sent again"
    times = [moment for question, moment in asked if "What is 5 plus" in question]
    assert min(b - a for a, b in pairwise(times)) >= 3, "as long as the server asks for"
    files = [path for path in plan.folder.path.rglob("*") if path.is_file()]
    assert not [file for file in files if KEY.encode() in file.read_bytes()]
    with ReplyStore(plan.folder.replies) as store:
        (failed,) = [one.failures["normal"] for one in store.each_question() if one.failures]
        filtered = [reply for reply in store.replies() if reply.reply.stop_reason is StopReason.CONTENT_FILTER]
    assert "400: no such thing, says [key]" in failed
    assert {one.question_id for one in filtered} == {"q4"}, "a rejected prompt is a reply, as with every engine"


@pytest.mark.nightly
def test_rejected_key_ends_the_run_after_few_requests(here, ray_plan):
    def fault(_message: str, _sent_before: int):
        return web.json_response({"error": {"message": "bad key"}}, status=401)

    with (
        FakeApi(sums, fault) as api,
        pytest.raises(RunFailedError, match=r"20 questions in a row .*check FAKE_API_KEY"),
    ):
        run(ray_plan(api.url, "concurrency=1", count=200))
    assert sum(api.received.values()) <= 40


@pytest.mark.nightly
def test_shards_of_an_earlier_command_are_reused(here, ray_plan, tmp_path):
    with FakeApi(sums) as api:
        first = ray_plan(api.url, f"storage=file://{tmp_path}/far", count=12)
        whole = run(first)
        bodies = list(api.answered)
        again = ray_plan(api.url, f"storage=file://{tmp_path}/far", count=12, out="other/run")
        kept = {name: body for name, body in ids_of(again).items() if "What is 2 " in body or "What is 4 " in body}
        lines = [
            result_line(name, 200, {"choices": [{"message": {"content": sums(body)}}]}) for name, body in kept.items()
        ]
        with again.folder.lock():
            again.folder.create_or_resume(again.identity, about=again.about)
        far = Shards(f"file://{tmp_path}/far/{storage_name(again.folder.path / 'rounds')}")
        far.make()
        far.write("left", "\n".join([*lines, lines[0][:40]]) + "\n")
        assert cells(run(again)) == cells(whole)
        asked = [body["messages"][-1]["content"] for body in api.answered[len(bodies) :]]
    assert len(kept) == 2
    assert len(asked) == len(bodies) - 2
    assert not set(kept.values()) & set(asked)
    assert [path.name for path in (again.folder.path / "rounds").iterdir()] == ["storage"]
    assert len(list((tmp_path / "far").iterdir())) == 2, "each run has its own folder, whatever its name"
    assert list(far.read()) == []


def ids_of(plan) -> dict[str, str]:
    """Return the ids of the first round of a plan with the prompt of each."""
    with ReplyStore(None) as store:
        conversations = [
            Conversation(question, variant, plan.procedures[variant], draws)
            for variant in plan.procedures
            for question, draws in plan.draws[variant].items()
        ]
        return {
            one.custom_id: one.ask.request.messages[-1].content
            for one in pending_of(question_states(conversations, store, plan.settings, plan.names))
        }


@pytest.mark.slow
@others_nightly("after", [23, 0, 7, 41, 58])
def test_killed_driver_repeats_only_shards_in_flight(here, after, ray_plan, tmp_path):
    """Kill times are counted in answers, so that they fall within and between shards and rounds."""
    count = 60
    with FakeApi(sums, lambda _message, _sent: 0.1) as api:
        given = {
            **at(api.url, key_name=KEY_NAME),
            "model": "any",
            "variants": "normal",
            "max_connections": 4,
            "engine": "ray",
            "grader": "exact",
            "engine_option": ["shard=4", "concurrency=2"],
            "count": count,
        }
        keys = {KEY_NAME: KEY}
        out = tmp_path / "run"
        assert kill_once(
            start(json.dumps(given), out, keys),
            lambda: (len(api.answered) >= after > 0) or ((out / "run.json").exists() and after == 0),
        )
        before = settled(lambda: sum(api.received.values()))
        plan = ray_plan(api.url, count=count, max_connections=4)
        kept = replies(plan.folder) + leftover(out)
        derived = run(plan)
        after_all = sum(api.received.values())
    whole = count + count // 2  # each first pass, and the forced passes of the odd half
    assert len(cells(derived)) == count
    assert after_all - before == whole - kept, "only requests without a stored reply are sent again"
    assert shards(out) == [], "what is in the store lies nowhere else"
    assert before - kept <= 2 * 4 + 4, "no more is lost than the shards in flight"


def replies(folder: RunFolder) -> int:
    if not folder.replies.exists():
        return 0
    with ReplyStore(folder.replies) as store:
        return sum(1 for _ in store.replies())


def leftover(out: Path) -> int:
    """Count the results in shards that are not in the store."""
    folder = out / "rounds" / "shards"
    files = Shards(str(folder)).read() if folder.exists() else ()
    ids = {line.custom_id for _, lines in files for line in read_lines(lines) if line.response is not None}
    with ReplyStore(out / "replies.sqlite") as store:
        there = {custom_id("any", reply.request_sha256 or "") for reply in store.replies()}
    return len(ids - there)


def test_address_without_a_cluster_raises_within_seconds():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"ray_address: no Ray cluster at 127.0.0.1:\d+ \(Connection refused\)"):
        check_address(f"127.0.0.1:{port}")
    assert time.monotonic() - started < 5


@pytest.mark.nightly
def test_server_that_is_not_ray_raises_within_seconds():
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, FakeApi(sums) as api:
        for address in (api.url.split("/")[2], f"127.0.0.1:{silent.getsockname()[1]}"):
            started = time.monotonic()
            with pytest.raises(ModelError, match="no Ray cluster at"):
                check_address(address)
            assert time.monotonic() - started < 8


@pytest.mark.parametrize(
    "address", ["head", "ray://head:10001", "head:0", "head:99999", ":6379", "http://me:pw@head:1"]
)
def test_invalid_ray_address_raises(address):
    with pytest.raises(ModelError, match="expected HOST:PORT of a cluster") as caught:
        check_address(address)
    assert "pw@" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("shard=0", "shard: expected a whole number from 1, got '0'"),
        ("shard=many", "expected a whole number"),
        ("shards=3", "did you mean 'shard'"),
        ("tensor-parallel-size=2", "expected one of shard, storage, concurrency, vllm.NAME"),
    ],
)
def test_invalid_ray_option_raises(option, message):
    with pytest.raises(SettingError, match=message):
        read_options([tuple(option.split("="))])


@pytest.mark.parametrize(
    ("name", "message"),
    [("almanac/gone", "no embedded model 'gone'"), ("fake/any", "base_url"), ("any", "base_url")],
)
def test_invalid_model_raises_before_connecting_to_a_cluster(name, message):
    with pytest.raises(SettingError, match=message):
        ray_engine(Settings.from_values(model=name), {Role.MODEL: name}, {})


def test_missing_ray_package_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("refusal_index.plugins.batches.command.NEEDED", ("ray", "no_such_package"))
    with pytest.raises(ModelError, match=r"needs no_such_package; pip install 'refusal-index\[ray\]'"):
        ray_engine(Settings.from_values(), {Role.MODEL: "almanac/base"}, {})


@pytest.mark.parametrize("place", ["{}/shards", "file://{}/shards", "memory://{}"])
def test_shards_are_written_atomically(place, tmp_path):
    kept = Shards(place.format(tmp_path))
    kept.make()
    assert kept.is_here
    assert Shards(kept.place, "another").is_here == ("memory" in place)
    stop, broken = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            broken.extend(lines for _, lines in Shards(kept.place).read() if len(lines) not in (0, 1000))

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(20):
        kept.write(f"s{number % 3}", "{}\n" * 1000)
    stop.set()
    thread.join()
    assert not broken
    assert sorted(name for name, _ in kept.read()) == ["s0", "s1", "s2"]
    for name, _ in list(kept.read()):
        kept.remove(name)
    kept.close()
    assert list(kept.read()) == []
    assert kept.is_here == ("memory" in place)


def test_unknown_storage_url_raises():
    with pytest.raises(ModelError, match=r"engine_option: expected the URL of a folder in storage"):
        Shards("nosuch://me:hush-hush@bucket/path")


def test_runs_sharing_storage_have_stable_distinct_names(tmp_path):
    folders = [tmp_path / one / "run" for one in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
    first, second = (storage_name(one / "rounds") for one in folders)
    assert first != second
    moved = folders[0].rename(tmp_path / "moved")
    assert storage_name(moved / "rounds") == first


def test_storage_name_outside_the_folder_raises(tmp_path):
    (tmp_path / "rounds").mkdir()
    (tmp_path / "rounds" / "storage").write_text("../another")
    with pytest.raises(ModelError, match=r"storage: expected the name of this run's shards, got '\.\./another'"):
        storage_name(tmp_path / "rounds")
    (tmp_path / "rounds" / "storage").unlink()
    (tmp_path / "rounds" / "storage").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match="cannot be read or written"):
        storage_name(tmp_path / "rounds")


@pytest.mark.nightly
def test_ray_usage_statistics_are_disabled(here):
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.nightly
def test_interrupt_keeps_all_replies_in_flight(tmp_path):
    with FakeApi(sums, lambda _message, _sent: 0.3) as api:
        given = {"model": "any", "variants": "normal", "max_connections": 4, "engine": "ray"}
        given |= at(api.url, key_name=KEY_NAME)
        given |= {"grader": "exact", "engine_option": ["shard=8", "concurrency=2"], "count": 100}
        out = tmp_path / "run"
        process = start(json.dumps(given), out, {KEY_NAME: KEY})
        while len(api.answered) < 20:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
        sent = sum(api.received.values())
    assert len(api.answered) == sent < 100
    assert replies(RunFolder(out)) + leftover(out) == sent


# --- Two nodes, one of which is killed

ON_EACH = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}


@pytest.fixture
def nodes(monkeypatch):
    """Return a cluster of two nodes with one processor each."""
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    cluster = Cluster(initialize_head=True, head_node_args=ON_EACH)
    cluster.add_node(**ON_EACH)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


@pytest.mark.nightly
def test_run_survives_a_lost_node_and_repeats_only_its_shards(nodes, plan_for):
    count, second = 60, next(iter(nodes.worker_nodes))
    killing, killed = threading.Event(), threading.Event()

    def kill() -> None:
        workers = psutil.Process(second.all_processes["raylet"][0].process.pid).children(recursive=True)
        nodes.remove_node(second, allow_graceful=False)
        for worker in workers:  # on a lost machine they would be gone; here they would only notice after a while
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        killed.set()

    def slow(_message: str, _sent_before: int) -> float:
        on_their_way = sum(api.received.values()) - len(api.answered)
        # More than one actor is sending: both are in the middle of it and stay there until one node is gone.
        if on_their_way > 2 and not killing.is_set():
            killing.set()
            threading.Thread(target=kill).start()
        return 0.2 if killed.is_set() else 10.0

    with FakeApi(sums, slow) as api:
        options = {"engine": "ray", "ray_address": nodes.address, "engine_option": ["shard=4", "concurrency=2"]}
        plan = plan_for(api.url, count=count, grader="exact", max_connections=4, **options)
        derived = run(plan)
        sent = settled(lambda: sum(api.received.values()), 1)
    assert killed.is_set()
    assert len(cells(derived)) == count
    whole = count + count // 2
    assert whole < sent <= whole + 4, "only the shard of the lost node is sent again"
    assert not list((plan.folder.path / "rounds" / "shards").glob("*.jsonl"))


@pytest.mark.nightly
def test_two_nodes_share_the_work_on_an_embedded_model(nodes, tmp_path):
    given = {"limit": 40, "variants": "low,high"}
    ours = ri.evaluate(
        engine="ray", ray_address=nodes.address, engine_option=["shard=8"], out=tmp_path / "ray", **given
    )
    local = ri.evaluate(out=tmp_path / "local", **given)
    assert ours.outcomes.rows() == local.outcomes.rows()


# --- vLLM on a cluster

NAME = "vllm/org/model"
NAMES = {Role.MODEL: NAME, Role.GRADER: "vllm/org/judge"}


def tables(count: int = 6, size: int = 4) -> list[pa.Table]:
    conversations = make_conversations(count, GraderKind.EXACT)
    with store_of(conversations) as store:
        pending = pending_of(
            question_states(conversations, store, Settings.from_values(model=NAME), {Role.MODEL: NAME})
        )
    return list(shards_of(pending, size, "org/model", "vllm"))


def generated(row: Mapping[str, Any], tokens: int = 3) -> dict[str, Any]:
    """Return a row with the columns that Ray's stage adds."""
    about = row["messages"][-1]["content"]
    if "What is 0 plus" in about:
        return {"custom_id": row["custom_id"], ERROR: "ValueError: the prompt is too long", "prompt": about}
    told = {"generated_text": "<answer>4</answer>", "num_input_tokens": 20, "num_generated_tokens": tokens}
    return {**from_vllm({**row, **told}), ERROR: ""}


def test_vllm_engine_gets_the_given_arguments():
    options = read_options([("vllm.tensor-parallel-size", "2"), ("vllm.dtype", "bfloat16"), ("concurrency", "3")])
    config = config_of("org/model", options)
    assert config.model_source == "org/model"
    given = {name: value for name, value in config.engine_kwargs.items() if name != "task_type"}
    assert given == {"tensor_parallel_size": 2, "dtype": "bfloat16"}
    assert (config.batch_size, config.concurrency) == (256, 3)
    assert config.should_continue_on_error, "otherwise one overlong prompt would end the round"


def test_vllm_request_has_its_seed_and_maximum_length():
    (row, *_) = tables()[0].to_pylist()
    told = to_vllm(row)
    body = json.loads(row["body"])
    assert told["messages"] == body["messages"]
    assert told["sampling_params"] == {"seed": body["seed"], "temperature": 0.7, "top_p": 0.95, "max_tokens": 4096}
    grader = to_vllm({"body": json.dumps({"messages": [], "seed": 1})})
    assert grader["sampling_params"] == {"seed": 1, "max_tokens": 4096}


@pytest.mark.parametrize(
    ("read", "written", "longest", "reason"),
    [(20, 4095, None, "stop"), (20, 4096, None, "length"), (100, 412, 512, "length"), (100, 411, 512, "stop")],
)
def test_reply_of_maximum_length_counts_as_truncated(read, written, longest, reason):
    (row, *_) = tables()[0].to_pylist()
    counts = {"generated_text": "x", "num_input_tokens": read, "num_generated_tokens": written}
    found = read_shard([from_vllm({**row, **counts}, longest)["line"]], NAME)[row["custom_id"]].response
    assert found is not None
    assert found.replies == [("x", StopReason.LENGTH if reason == "length" else StopReason.STOP)]
    assert (found.input_tokens, found.output_tokens) == (read, written)


@pytest.mark.nightly
def test_stage_results_are_written_as_they_come_and_failures_are_values(tmp_path):
    shards = Shards(str(tmp_path))
    mark = shards.make()
    with cluster(None):
        dataset = ray.data.from_arrow(tables()).map(lambda row: row | to_vllm(row)).map(generated)
        rows = dataset.map_batches(
            write_shard,
            fn_kwargs={"model": NAME, "location": shards.place, "mark": mark},
            batch_size=None,
            batch_format="pyarrow",
        ).take_all()
    assert all(row["is_kept"] for row in rows)
    kept = {key: one for _, lines in shards.read() for key, one in read_shard(lines, NAME).items()}
    handed = {key: one for row in rows for key, one in read_shard(row["lines"].split("\n"), NAME).items()}
    assert kept == handed
    assert len(kept) == 12
    failures = [one.failure for one in kept.values() if one.failure is not None]
    assert [(failure.kind, failure.message) for failure in failures] == [
        (FailureKind.REQUEST, "ValueError: the prompt is too long")
    ] * 2


def test_vllm_requests_ask_for_one_reply_each():
    assert not RayExecutor(Settings.from_values(model=NAME), NAMES).gives_choices
    assert RayExecutor(Settings.from_values(), {Role.MODEL: "almanac/base"}).gives_choices


@pytest.mark.parametrize(("setting", "value"), [("logprobs", True), ("reasoning_effort", "low")])
def test_settings_unsupported_by_the_vllm_stage_raise(setting, value):
    with pytest.raises(ModelError, match=rf"does not support {setting}; choose engine command"):
        ray_engine(Settings.from_values(model=NAME, **{setting: value}), {Role.MODEL: NAME}, {})


@pytest.mark.nightly
def test_cluster_without_a_gpu_raises_one_line():
    with cluster(None), pytest.raises(ModelError, match="expected a GPU on a node of the cluster, found none"):
        check_gpus(NAMES.values())


@pytest.mark.slow
def test_ray_stages_are_assembled_in_order(tmp_path, capsys):
    options = RayOptions(shard=4, vllm={"max_model_len": 512})
    with cluster(None):
        through_vllm(tables(), f"vllm/{model_folder('base')}", Shards(str(tmp_path), "mark"), options).explain()
    plan = capsys.readouterr().out.rpartition("Optimized")[2]
    order = [plan.index(one) for one in ("(write_shard)", "vLLMEngineStageUDF", "ChatTemplateUDF", "Input")]
    assert order == sorted(order)
    assert "_postprocess)->MapBatches(write_shard)" in plan, "results are written by the step that formats them"
