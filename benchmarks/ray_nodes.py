"""Two nodes against one on an embedded model, start-up apart.

    python -m benchmarks.ray_nodes

Each cluster is of Ray's own making on this machine: nodes of one processor each, which stand for machines. The same
first passes go through the pipeline of the Ray engine to one actor on each node. What counts is the time in which all
of them are at work: from the first shard of the last to start, until the last shard of the first to run out. The start
is printed beside. It needs as many cores that are idle otherwise as there are nodes; their load is printed, too.
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
    """Answers a shard, and tells on which node and from when to when."""

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return one row about the shard."""
        began, worked = time.time(), time.process_time()
        lines = super().__call__(table)["lines"][0].as_py().count("\n")
        node = ray.get_runtime_context().get_node_id()
        worked = time.process_time() - worked
        row = {"node": node, "requests": lines, "began": began, "ended": time.time(), "worked": worked}
        return pa.Table.from_pylist([row])


@dataclass(frozen=True)
class Found:
    """What some nodes took.

    Attributes
    ----------
    nodes
        On how many an actor through_actors.
    start
        Seconds from the first word to the cluster until all actors were at work.
    requests, seconds
        How many were through_actors while all of them were, and how long that was.
    worked
        Processor time of the actors for each request, in milliseconds: it tells what spreading costs where other
        work keeps the cores busy.
    """

    nodes: int
    start: float
    requests: int
    seconds: float
    worked: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


def first_passes(questions: int) -> list[Pending]:
    """Return the first pass of so many questions under every variant."""
    prompts, settings = load_prompt_set("default"), Settings.of(model=MODEL)
    chosen = sample(load_dataset("almanac"), questions, 0).questions
    conversations = [
        Conversation(question, variant, TwoPass(GraderKind.EXACT, Protocol(prompts, variant, GraderKind.EXACT)))
        for question in chosen
        for variant in ("low", "normal", "high", "highest")
    ]
    with ReplyStore(None) as store:
        states = question_states(conversations, store, settings, {Role.MODEL: MODEL})
        return [pending for state in states for pending in state.all_pending()]


def measured(requests: list[Pending], size: int, nodes: int) -> Found:
    """Have requests through_actors by one actor on each of some nodes."""
    tables = list(shards_of(requests, size, MODEL.partition("/")[2], MODEL.partition("/")[0]))
    began = time.time()
    made = Cluster(initialize_head=True, head_node_args=ON_EACH)
    try:
        for _ in range(nodes - 1):
            made.add_node(**ON_EACH)
        made.wait_for_nodes()
        with cluster(made.address), tempfile.TemporaryDirectory() as folder:
            ray.data.DataContext.get_current().wait_for_min_actors_s = 300  # else the first one up has done it all
            shards = Shards(folder)
            arguments = {"name": MODEL, "coordinator": start_coordinator(), "place": folder, "mark": shards.make()}
            rows = through_actors(tables, Timed, arguments, nodes).take_all()
    finally:
        made.shutdown()
    own = [[row for row in rows if row["node"] == node] for node in {row["node"] for row in rows}]
    assert len(own) == nodes, f"{nodes} nodes were there, and {len(own)} through_actors"
    start = max(min(row["began"] for row in each) for each in own)
    end = min(max(row["ended"] for row in each) for each in own)
    count = sum(row["requests"] for row in rows if row["began"] >= start and row["ended"] <= end)
    worked = 1000 * sum(row["worked"] for row in rows) / len(requests)
    return Found(nodes, start - began, count, end - start, worked)


def main() -> None:
    """Print both rates and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_nodes", description=__doc__.split("\n")[0])
    parser.add_argument("--questions", type=int, default=1000, help="each is asked under four variants")
    parser.add_argument("--shard", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    os.environ.update(QUIET)
    requests = first_passes(arguments.questions)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ray {version('ray')}")
    print(f"{len(requests):,} requests to {MODEL} in shards of {arguments.shard}; load {os.getloadavg()[0]:.1f}\n")
    print("| nodes | start, s | requests | s | requests/s | CPU ms a request |\n|---|---|---|---|---|---|")
    best: dict[int, float] = {}
    for nodes in (1, 2) * arguments.repeats:
        one = measured(requests, arguments.shard, nodes)
        best[nodes] = max(best.get(nodes, 0.0), one.rate)
        print(
            f"| {nodes} | {one.start:.1f} | {one.requests:,} | {one.seconds:.1f} | {one.rate:.1f} | {one.worked:.2f} |",
            flush=True,
        )
    print(f"\nratio of the best of each: {best[2] / best[1]:.2f}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
