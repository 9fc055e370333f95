"""The options of the Ray engine: how large a shard is, where shards are kept, and how many work at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from refusal_index.engines.setting import SettingError, unknown

OF_VLLM = "vllm."


@dataclass(frozen=True)
class RayOptions:
    """How waves are cut into shards, and who works on them.

    Attributes
    ----------
    shard
        Requests of a shard: what a killed process or node repeats at most, for each worker.
    storage
        Where finished shards are kept until they are in the store: the URL of a folder, as ``s3://bucket/path``; None
        for the run's own folder.
    concurrency
        Workers; None for one a processor with embedded models, one a node with servers, and one with weights.
    vllm
        What vLLM's engine is given, by the names of its arguments.
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
        If there is none of a name, or its value is of another kind.

    Examples
    --------
    >>> read_options([("shard", "64"), ("vllm.tensor-parallel-size", "2")]).vllm
    {'tensor_parallel_size': 2}
    """
    own, of_vllm = dict[str, Any](), dict[str, Any]()
    known = [one.name for one in fields(RayOptions) if one.name != "vllm"]
    for name, value in given:
        if name.startswith(OF_VLLM):
            of_vllm[name.removeprefix(OF_VLLM).replace("-", "_")] = _plain(value)
        elif name not in known:
            raise unknown("engine_option", name, [*known, f"{OF_VLLM}NAME"])
        else:
            own[name] = value if name == "storage" else _count(name, value)
    return RayOptions(**own, vllm=of_vllm)


def _count(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise SettingError(f"{{engine_option}}: expected a whole number from 1 in {name}, got {value!r}")
    return int(value)


def _plain(value: str) -> Any:
    """Return what a value stands for: a number, true or false, anything that JSON holds, else the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value
