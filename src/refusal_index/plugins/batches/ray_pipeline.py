"""From shards of requests to shards of results: a data set of Ray's, in which actors answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from refusal_index.models.accounts import Account
from refusal_index.models.chat_api import chat_body
from refusal_index.models.openai_client import CONCURRENCY
from refusal_index.plugins.batches.ray_actors import Desk, EmbeddedAsker, HttpAsker
from refusal_index.plugins.batches.ray_cluster import RayOptions
from refusal_index.plugins.batches.wave import Pending
from refusal_index.runs.settings import Settings

SHARE = 0.5
"""Of a processor that Ray books for an actor: where half of the nodes are lost, those left have room for all."""


@dataclass(frozen=True)
class Place:
    """Where shards are kept, and what tells that folder from one of the same name on another disk."""

    url: str
    mark: str


def shards_of(requests: Sequence[Pending], size: int, model: str, provider: str) -> Iterator[pa.Table]:
    """Yield requests as tables of so many rows, each named by what is in it."""
    for start in range(0, len(requests), size):
        some = requests[start : start + size]
        title = hashlib.sha256("\n".join(one.custom_id for one in some).encode()).hexdigest()[:24]
        yield pa.Table.from_pylist(
            [
                {
                    "shard": title,
                    "custom_id": one.custom_id,
                    "role": str(one.ask.request.role),
                    "about": one.ask.conversation.question.question_id,
                    "body": json.dumps(chat_body(one.ask, model, provider)),
                }
                for one in some
            ]
        )


def desk_here() -> Any:
    """Return a new desk on the node of this process: it lives as long as that does."""
    node = ray.get_runtime_context().get_node_id()
    beside = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=beside)(Desk).remote()


def embedded(tables: list[pa.Table], name: str, desk: Any, place: Place, options: RayOptions) -> ray.data.Dataset:
    """Return the data set in which actors answer that hold an embedded model."""
    processors = int(ray.cluster_resources().get("CPU", 1))
    arguments = {"name": name, "desk": desk, "place": place.url, "mark": place.mark}
    return answered(tables, EmbeddedAsker, arguments, options.concurrency or processors)


def over_http(
    tables: list[pa.Table], account: Account, desk: Any, place: Place, options: RayOptions, settings: Settings
) -> ray.data.Dataset:
    """Return the data set in which actors answer that ask a server; its key goes to them over the desk."""
    workers = min(options.concurrency or len(ray.nodes()), len(tables))
    at_once = max((settings.sending.max_connections or CONCURRENCY) // workers, 1)
    ray.get(desk.hold.remote(account))
    arguments = {
        "name": account.name,
        "desk": desk,
        "place": place.url,
        "mark": place.mark,
        "at_once": at_once,
        "max_retries": settings.sending.max_retries,
        "attempt_timeout": settings.sending.attempt_timeout,
    }
    return answered(tables, HttpAsker, arguments, workers)


def answered(tables: list[pa.Table], actor: type, arguments: Mapping[str, Any], workers: int) -> ray.data.Dataset:
    """Return the data set in which so many actors answer shards, each made with the arguments."""
    # one shard at a time for each: whoever is quicker gets more of them, and a lost one loses few
    pool = ray.data.ActorPoolStrategy(size=min(workers, len(tables)), max_tasks_in_flight_per_actor=1)
    return ray.data.from_arrow(tables).map_batches(
        actor,
        fn_constructor_kwargs=dict(arguments),
        batch_size=None,
        batch_format="pyarrow",
        compute=pool,
        num_cpus=SHARE,
    )
