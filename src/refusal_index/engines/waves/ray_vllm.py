"""Shards of requests for weights on the GPUs of a cluster, by what Ray Data has for vLLM."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import ray
import ray.data

from refusal_index.engines.engine import ModelError
from refusal_index.engines.failures import Failure, Kind
from refusal_index.engines.settings import Settings
from refusal_index.engines.waves.formats import LONGEST_REPLY
from refusal_index.engines.waves.ray_actors import FINISHED, result_line
from refusal_index.engines.waves.ray_cluster import RayOptions
from refusal_index.engines.waves.ray_pipeline import Place
from refusal_index.engines.waves.ray_shards import Shards, failure_line

VLLM = "vllm"
ERROR = "__inference_error__"
"""The column in which vLLM's stage says why it could not answer; empty where it did."""

SAMPLED = ("temperature", "top_p", "seed", "max_tokens")
"""What a body says of how to generate, by names that vLLM has as well."""


def check_settings(name: str, settings: Settings) -> None:
    """Raise ModelError where a run wants of a model what Ray's stage for vLLM does not hand on."""
    for setting, wanted in (
        ("logprobs", settings.sending.logprobs),
        ("reasoning_effort", settings.decoding.reasoning_effort is not None),
    ):
        if wanted:
            raise ModelError(
                f"model {name!r}: Ray's stage for vLLM carries no {{{setting}}}; choose {{engine}} command, or a "
                "server and {engine} http"
            )


def check_gpus(names: Iterable[str]) -> None:
    """Raise ModelError if weights are to run on a cluster without a GPU, where they would wait for one for ever."""
    for name in names:
        if name.partition("/")[0] == VLLM and not ray.cluster_resources().get("GPU"):
            raise ModelError(
                f"model {name!r}: expected a GPU on a node of the cluster, found none; start such nodes first, or "
                "choose {engine} http and a server"
            )


def config_of(model: str, options: RayOptions) -> Any:
    """Return what Ray needs to know of a model and its engine.

    Parameters
    ----------
    model
        As vLLM knows it, or the folder of its weights on every node.
    options
        Workers, the size of a shard, and what vLLM's engine is given.
    """
    from ray.data.llm import vLLMEngineProcessorConfig  # noqa: PLC0415 - takes seconds, and only this needs it

    return vLLMEngineProcessorConfig(
        model_source=model,
        engine_kwargs=dict(options.vllm),
        concurrency=options.concurrency or 1,
        batch_size=options.shard,
        should_continue_on_error=True,  # else a prompt that is too long ends the wave
        log_engine_metrics=False,
    )


def on_gpus(tables: list[pa.Table], name: str, place: Place, options: RayOptions) -> ray.data.Dataset:
    """Return the data set in which vLLM answers; each batch of results is kept as it comes.

    Raises
    ------
    ModelError
        If what runs vLLM is not installed, or an argument of its engine cannot be used.
    """
    config = processor = None
    try:
        from ray.data.llm import build_processor  # noqa: PLC0415

        config = config_of(name.partition("/")[2], options)
        longest = options.vllm.get("max_model_len")
        processor = build_processor(config, preprocess=asked, postprocess=Answered(longest))
    except ImportError as error:
        raise ModelError(
            f"model {name!r}: expected what Ray's stage for vLLM needs, here and on every node ({error}); pip install "
            "'ray[llm]'"
        ) from error
    except ValueError as error:
        raise ModelError(f"model {name!r}: {{engine_option}}: {error}") from error
    answered: ray.data.Dataset = processor(ray.data.from_arrow(tables))
    return answered.map_batches(Keep(name, place), batch_size=None, batch_format="pyarrow")


def asked(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what vLLM's stages need of a request.

    Examples
    --------
    >>> asked({"body": '{"messages": [], "seed": 7}'})["sampling_params"]
    {'seed': 7, 'max_tokens': 4096}
    """
    body = json.loads(row["body"])
    sampling = {name: body[name] for name in SAMPLED if name in body}
    sampling.setdefault("max_tokens", LONGEST_REPLY)  # vLLM's own is 16
    return {"messages": body["messages"], "sampling_params": sampling}


class Answered:
    """Puts what vLLM generated into the line of a result.

    Parameters
    ----------
    longest
        Tokens of prompt and reply together; None where the model's own length is not known here.
    """

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the id and the line."""
        read, written = int(row["num_input_tokens"]), int(row["num_generated_tokens"])
        most = json.loads(row["body"]).get("max_tokens", LONGEST_REPLY)
        # the stage does not say why a reply ended
        is_cut = written >= most or (self._longest is not None and read + written >= self._longest)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": str(row["generated_text"])},
            "finish_reason": "length" if is_cut else "stop",
        }
        usage = {"prompt_tokens": read, "completion_tokens": written}
        line = result_line(row["custom_id"], 200, {"choices": [choice], "usage": usage})
        return {"custom_id": row["custom_id"], "line": line}


class Keep:
    """Keeps a batch of results as a shard of its own.

    Parameters
    ----------
    name, place
        Of the model, and where shards are kept.
    """

    def __init__(self, name: str, place: Place) -> None:
        self._name, self._place = name, place

    def __call__(self, table: pa.Table) -> pa.Table:
        """Write the lines of a batch and hand them on."""
        lines = "".join(f"{self._line(row)}\n" for row in table.to_pylist())
        title = hashlib.sha256(lines.encode()).hexdigest()[:24]
        shards = Shards(self._place.url)
        here = shards.is_remote or shards.has_mark(self._place.mark)
        if here and lines:
            shards.write(title, lines)
        row = {"shard": title, "lines": lines, "is_kept": here, "sent": table.num_rows, "ended": None}
        return pa.Table.from_pylist([row], schema=FINISHED)

    def _line(self, row: Mapping[str, Any]) -> str:
        if row.get(ERROR):
            return failure_line(row["custom_id"], Failure(str(row[ERROR])[:300], self._name, Kind.REQUEST))
        return str(row["line"])
