"""What surrounds vLLM on a cluster: its configuration, what its stages get, and what becomes of what they give.

The stage itself needs GPUs; where these tests run there are none, and a stand-in with the columns of Ray's own stage
takes its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra 'ray'")

import pyarrow as pa
import ray.data

from refusal_index.models.failures import FailureKind
from refusal_index.models.requests import ModelError
from refusal_index.plugins.almanac.models import model_folder
from refusal_index.plugins.batches.command import ray_engine
from refusal_index.plugins.batches.ray_executor import (
    ERROR,
    RayExecutor,
    RayOptions,
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
from refusal_index.plugins.batches.ray_nodes import Shards, read_shard
from refusal_index.plugins.batches.rounds import question_states
from refusal_index.protocol import GraderKind, Role, StopReason
from refusal_index.runs.settings import Settings
from tests.models.batches.answering import pending_of, store_of, talks

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
NAME = "vllm/org/model"
NAMES = {Role.MODEL: NAME, Role.GRADER: "vllm/org/judge"}


def tables(count: int = 6, size: int = 4) -> list[pa.Table]:
    conversations = talks(count, GraderKind.EXACT)
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


def test_the_engine_of_vllm_gets_the_arguments_that_were_given():
    options = read_options([("vllm.tensor-parallel-size", "2"), ("vllm.dtype", "bfloat16"), ("concurrency", "3")])
    config = config_of("org/model", options)
    assert config.model_source == "org/model"
    given = {name: value for name, value in config.engine_kwargs.items() if name != "task_type"}
    assert given == {"tensor_parallel_size": 2, "dtype": "bfloat16"}
    assert (config.batch_size, config.concurrency) == (256, 3)
    assert config.should_continue_on_error, "else one prompt that is too long would end the wave"


def test_a_request_reaches_vllm_with_its_seed_and_a_length_of_its_own():
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
def test_a_reply_of_the_greatest_length_counts_as_cut(read, written, longest, reason):
    (row, *_) = tables()[0].to_pylist()
    counts = {"generated_text": "x", "num_input_tokens": read, "num_generated_tokens": written}
    found = read_shard([from_vllm({**row, **counts}, longest)["line"]], NAME)[row["custom_id"]].response
    assert found is not None
    assert found.replies == [("x", StopReason.LENGTH if reason == "length" else StopReason.STOP)]
    assert (found.input_tokens, found.output_tokens) == (read, written)


@pytest.mark.nightly
def test_batches_around_the_stage_are_kept_as_they_come_and_failures_are_values(tmp_path):
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
    assert [(one.kind, one.message) for one in failures] == [
        (FailureKind.REQUEST, "ValueError: the prompt is too long")
    ] * 2


def test_one_reply_a_request_is_asked_for_since_the_stage_hands_on_no_more():
    assert not RayExecutor(Settings.from_values(model=NAME), NAMES).gives_choices
    assert RayExecutor(Settings.from_values(), {Role.MODEL: "almanac/base"}).gives_choices


@pytest.mark.parametrize(("setting", "value"), [("logprobs", True), ("reasoning_effort", "low")])
def test_what_the_stage_does_not_hand_on_is_refused(setting, value):
    with pytest.raises(ModelError, match=rf"does not support {setting}; choose engine command"):
        ray_engine(Settings.from_values(model=NAME, **{setting: value}), {Role.MODEL: NAME}, {})


@pytest.mark.nightly
def test_weights_on_a_cluster_without_a_gpu_are_told_in_one_line():
    with cluster(None), pytest.raises(ModelError, match="expected a GPU on a node of the cluster, found none"):
        check_gpus(NAMES.values())


@pytest.mark.slow
def test_the_stages_of_rays_are_put_together_around_the_weights(tmp_path, capsys):
    options = RayOptions(shard=4, vllm={"max_model_len": 512})
    with cluster(None):
        through_vllm(tables(), f"vllm/{model_folder('base')}", Shards(str(tmp_path), "mark"), options).explain()
    plan = capsys.readouterr().out.rpartition("Optimized")[2]
    order = [plan.index(one) for one in ("(write_shard)", "vLLMEngineStageUDF", "ChatTemplateUDF", "Input")]
    assert order == sorted(order)
    assert "_postprocess)->MapBatches(write_shard)" in plan, "kept by whoever puts it into lines, and no step later"
