"""Seeded numbers that users see are the same, whatever processor the linear algebra library was written for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

PROGRAM = """
import json
import numpy as np
import threadpoolctl
from refusal_index import stats
from refusal_index.plugins.studies.stability import kendall_w_ceiling
from refusal_index.plugins.training.steps import metric_over_steps

rng = np.random.default_rng(11)
doubt, own = rng.standard_normal(400), rng.standard_normal((2, 6, 400))
refused, wrong = 0.7 * doubt + 0.7 * own[0] > 0.2, 0.8 * doubt + 0.6 * own[1] > 0
refused[5], wrong[5] = refused[0], wrong[0]  # a run that is there twice: its covariance with the first is singular

ranking = stats.rank_runs(refused, wrong, rng=1)
joint = stats.joint_refusal_index(refused, wrong)
scores = np.linspace(0.3, 0.6, 6) + 0.04 * rng.standard_normal((3, 6))
covariance = 0.002 * np.kron(np.eye(3), np.eye(6)) + 0.001 * np.kron(np.ones((3, 3)), np.eye(6))  # equal eigenvalues
ceiling = kendall_w_ceiling(scores, covariance, rng=1)
table = stats.refusal_index(refused=refused[1], wrong=wrong[1])
numbers = {
    "p-values by max-t": [pair.pvalue_max_t for pair in ranking.pairs],
    "their critical value": [ranking.critical_value],
    "p-value of a change point": [
        metric_over_steps(refused, wrong, metric=metric, rng=1).pvalue for metric in ("refusal_index", "refusal_rate")
    ],
    "ceiling of Kendall's W": [ceiling.estimate, ceiling.low, ceiling.high],
    "joint index": [joint.estimate, joint.standard_error, *joint.confidence_interval(), *joint.weights],
    "its test of homogeneity": [joint.homogeneity.statistic, joint.homogeneity.pvalue],
    "interval by bootstrap": table.confidence_interval(method="bootstrap", n_resamples=500, rng=1),
    "interval by Jeffreys' prior": table.confidence_interval(method="jeffreys", n_resamples=500, rng=1),
}
print(json.dumps([sorted({one["architecture"] for one in threadpoolctl.threadpool_info()}), numbers]))
"""


def numbers_of(processor: str) -> tuple[str, Mapping[str, list[float]]]:
    """Compute them with the kernels of a processor; return with them the kernels that were really loaded."""
    environment = os.environ | {"OPENBLAS_CORETYPE": processor, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment)
    if done.returncode == -signal.SIGILL:
        pytest.skip(f"this processor lacks the instructions of {processor}")
    done.check_returncode()
    loaded, numbers = json.loads(done.stdout)
    return ", ".join(loaded), numbers


@pytest.fixture(scope="module")
def haswell() -> tuple[str, Mapping[str, list[float]]]:
    return numbers_of("Haswell")


@pytest.mark.parametrize("processor", ["SkylakeX", "Prescott"])
def test_seeded_numbers_against_those_of_another_processor(haswell, processor: str) -> None:
    loaded, numbers = numbers_of(processor)
    if loaded == haswell[0]:
        pytest.skip(f"this processor runs {loaded} for both")
    assert numbers.keys() == haswell[1].keys()
    for name, values in numbers.items():
        assert values == pytest.approx(haswell[1][name], rel=1e-9), (name, loaded)
