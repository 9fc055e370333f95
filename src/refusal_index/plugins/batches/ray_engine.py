"""The engine for a Ray cluster, by its name: this module needs no Ray, so that it can say that Ray is missing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import Any

from refusal_index.models.functions import asked_by_name
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError, unknown
from refusal_index.plugins.batches.engine import BatchEngine
from refusal_index.protocol import Role
from refusal_index.runs.settings import Settings

EXTRA, NEEDED = "ray", ("ray", "pyarrow", "pandas", "fsspec")
VLLM_PREFIX = "vllm."


def ray_engine(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> BatchEngine:
    """Return an engine whose requests a cluster answers.

    Raises
    ------
    ModelError
        If Ray is not installed, or a model cannot be asked.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ModelError(f"{{engine}} ray needs {', '.join(missing)}; pip install 'refusal-index[{EXTRA}]'")
    from refusal_index.plugins.batches.ray_executor import RayExecutor  # noqa: PLC0415 - of an extra, and slow

    return BatchEngine(settings, names, objects, RayExecutor(settings, asked_by_name(names, objects)))


@dataclass(frozen=True)
class RayOptions:
    """How a round is cut into shards, and the workers.

    Attributes
    ----------
    shard
        Requests of a shard: what a killed process or node repeats at most, for each worker.
    storage
        The URL of a folder for finished shards until they are in the store, as ``s3://bucket/path``; None for the run's
        own folder.
    concurrency
        Workers; None for one a processor with embedded models, one a node with servers, and one with weights.
    vllm
        Arguments of vLLM's engine, by name.
    """

    shard: int = 256
    storage: str | None = None
    concurrency: int | None = None
    vllm: Mapping[str, Any] = field(default_factory=dict)


def read_options(given: Iterable[tuple[str, str]]) -> RayOptions:
    """Read options from their names and values.

    Raises
    ------
    SettingError
        If there is no such option, or its value is of another kind.

    Examples
    --------
    >>> read_options([("shard", "64"), ("vllm.tensor-parallel-size", "2")]).vllm
    {'tensor_parallel_size': 2}
    """
    own, of_vllm = dict[str, Any](), dict[str, Any]()
    known = [one.name for one in fields(RayOptions) if one.name != "vllm"]
    for name, value in given:
        if name.startswith(VLLM_PREFIX):
            try:
                parsed = json.loads(value)
            except ValueError:  # plain text
                parsed = value
            of_vllm[name.removeprefix(VLLM_PREFIX).replace("-", "_")] = parsed
        elif name not in known:
            raise unknown("engine_option", name, [*known, f"{VLLM_PREFIX}NAME"])
        elif name == "storage":
            own[name] = value
        elif value.isascii() and value.isdigit() and int(value) > 0:
            own[name] = int(value)
        else:
            raise SettingError(f"{{engine_option}}: expected a whole number from 1 in {name}, got {value!r}")
    return RayOptions(**own, vllm=of_vllm)
