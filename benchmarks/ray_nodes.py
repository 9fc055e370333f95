"""Throughput of an embedded model on two Ray nodes compared with one, without start-up.

    python -m benchmarks.ray_nodes

The clusters are simulated on this machine, with one CPU per node. The same first passes are sent through the Ray
engine's pipeline to one actor on each node. Throughput is measured while all actors are working: from the first shard
of the last actor to start until the last shard of the first actor to finish. The start-up time is printed separately.
The machine needs as many idle cores as there are nodes; its load is printed, too.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version

import pyarrow as pa
import ray
import ray.data
from ray.cluster_utils import Cluster

from refusal_index.data.datasets import load_dataset, sample
from refusal_index.plugins.batches.ray_executor import QUIET, cluster, shards_of, start_coordinator, through_actors
from refusal_index.plugins.batches.ray_nodes import EmbeddedWorker, Shards
from refusal_index.plugins.batches.rounds import Pending, question_states
from refusal_index.protocol import Conversation, GraderKind, Protocol, Role, TwoPass, load_prompt_set
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

MODEL = "almanac/base"
ON_EACH = {"num_cpus": 1, "object_store_memory": 200 << 20, "include_dashboard": False}


class Timed(EmbeddedWorker):
    """A worker that returns the times and the node of each shard instead of its results."""

    def __call__(self, table: pa.Table) -> pa.Table:
        """Process a shard and return a row of measurements."""
        began, worked = time.time(), time.process_time()
        lines = super().__call__(table)["lines"][0].as_py().count("\n")
        node = ray.get_runtime_context().get_node_id()
        worked = time.process_time() - worked
        row = {"node": node, "requests": lines, "began": began, "ended": time.time(), "worked": worked}
        return pa.Table.from_pylist([row])


@dataclass(frozen=True)
class Measured:
    """The measurements of one cluster.

    Attributes
    ----------
    nodes
        Number of nodes, each with one actor.
    start
        Seconds from the start of the cluster until all actors were working.
    requests, seconds
        Number of requests answered while all actors were working, and the duration of that phase.
    worked
        CPU time of the actors per request in milliseconds, which is meaningful even if other work keeps the cores busy.
    """

    nodes: int
    start: float
    requests: int
    seconds: float
    worked: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def first_passes(questions: int) -> list[Pending]:
    """Return the requests of the first passes of some questions under all variants."""
    prompts, settings = load_prompt_set("default"), Settings.from_values(model=MODEL)
    chosen = sample(load_dataset("almanac"), questions, 0).questions
    conversations = [
        Conversation(question, variant, TwoPass(GraderKind.EXACT, Protocol(prompts, variant, GraderKind.EXACT)))
        for question in chosen
        for variant in ("low", "normal", "high", "highest")
    ]
    with ReplyStore(None) as store:
        states = question_states(conversations, store, settings, {Role.MODEL: MODEL})
        return [pending for state in states for pending in state.all_pending()]


def measure(requests: list[Pending], size: int, nodes: int) -> Measured:
    """Send requests through one actor on each of some nodes."""
    tables = list(shards_of(requests, size, MODEL.partition("/")[2], MODEL.partition("/")[0]))
    began = time.time()
    made = Cluster(initialize_head=True, head_node_args=ON_EACH)
    try:
        for _ in range(nodes - 1):
            made.add_node(**ON_EACH)
        made.wait_for_nodes()
        with cluster(made.address), tempfile.TemporaryDirectory() as folder:
            ray.data.DataContext.get_current().wait_for_min_actors_s = (
                300  # otherwise the first actor does all the work
            )
            shards = Shards(folder)
            arguments = {"name": MODEL, "coordinator": start_coordinator(), "location": folder, "mark": shards.make()}
            rows = through_actors(tables, Timed, arguments, nodes).take_all()
    finally:
        made.shutdown()
    own = [[row for row in rows if row["node"] == node] for node in {row["node"] for row in rows}]
    assert len(own) == nodes, f"expected {nodes} nodes to process shards, got {len(own)}"
    start = max(min(row["began"] for row in each) for each in own)
    end = min(max(row["ended"] for row in each) for each in own)
    count = sum(row["requests"] for row in rows if row["began"] >= start and row["ended"] <= end)
    worked = 1000 * sum(row["worked"] for row in rows) / len(requests)
    return Measured(nodes, start - began, count, end - start, worked)


def main() -> None:
    """Print both rates and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_nodes", description=__doc__.split("\n")[0])
    parser.add_argument("--questions", type=int, default=1000, help="each has four variants")
    parser.add_argument("--shard", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    os.environ.update(QUIET)
    requests = first_passes(arguments.questions)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ray {version('ray')}")
    print(f"{len(requests):,} requests to {MODEL} in shards of {arguments.shard}; load {os.getloadavg()[0]:.1f}\n")
    print("| nodes | start, s | requests | s | requests/s | CPU ms per request |\n|---|---|---|---|---|---|")
    best: dict[int, float] = {}
    for nodes in (1, 2) * arguments.repeats:
        one = measure(requests, arguments.shard, nodes)
        best[nodes] = max(best.get(nodes, 0.0), one.rate)
        print(
            f"| {nodes} | {one.start:.1f} | {one.requests:,} | {one.seconds:.1f} | {one.rate:.1f} | {one.worked:.2f} |",
            flush=True,
        )
    print(f"\nratio of the best of each: {best[2] / best[1]:.2f}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
