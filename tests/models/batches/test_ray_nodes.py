"""Waves on a cluster of two nodes, one of which is killed with all that runs on it."""

from __future__ import annotations

import threading
from contextlib import suppress

import psutil
import pytest

pytest.importorskip("ray", reason="needs the extra 'ray'")

from ray.cluster_utils import Cluster

import refusal_index as ri
from refusal_index.plugins.batches.ray_executor import QUIET
from tests.faults.api import FakeApi
from tests.models.batches.cut_off import settled
from tests.models.conftest import cells, run
from tests.models.test_run import sums

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
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


def test_a_run_outlives_a_node_with_its_actors_and_pays_for_its_shards_in_flight_alone(nodes, plan_for):
    count, second = 60, next(iter(nodes.worker_nodes))
    killing, killed = threading.Event(), threading.Event()

    def kill() -> None:
        workers = psutil.Process(second.all_processes["raylet"][0].process.pid).children(recursive=True)
        nodes.remove_node(second, allow_graceful=False)
        for worker in workers:  # those of a machine that is gone go with it; here they would notice after a while
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        killed.set()

    def slow(_message: str, _sent_before: int) -> float:
        on_their_way = sum(api.received.values()) - len(api.answered)
        # More than one actor sends at a time: both are in the midst of it, and stay there until one node is gone.
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
    assert whole < sent <= whole + 4, "the shard of the lost node is asked again, and no other"
    assert not list((plan.folder.path / "rounds" / "shards").glob("*.jsonl"))


def test_two_nodes_share_the_work_on_an_embedded_model(nodes, tmp_path):
    given = {"limit": 40, "variants": "low,high"}
    ours = ri.evaluate(
        engine="ray", ray_address=nodes.address, engine_option=["shard=8"], out=tmp_path / "ray", **given
    )
    local = ri.evaluate(out=tmp_path / "local", **given)
    assert ours.outcomes.rows() == local.outcomes.rows()
