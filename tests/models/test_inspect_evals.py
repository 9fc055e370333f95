"""A task of the package inspect_evals under `two_pass`, at a pinned version, in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1500)]

PINNED = "inspect_evals==0.26.0"
ROOT = Path(__file__).parents[2]

SCRIPT = """
import json
from importlib import import_module
from inspect_ai import eval, task_with
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from refusal_index.data.datasets import load_dataset, sample
from refusal_index.inspect import two_pass

simpleqa = import_module("inspect_evals.simpleqa.simpleqa")  # the package has a function of this name
questions = sample(load_dataset("almanac"), 60, 0).questions
samples = [Sample(id=one.question_id, input=one.text, target=one.gold) for one in questions]
simpleqa.simpleqa_dataset = lambda: MemoryDataset(samples, name="almanac")

def grade(messages, *_):
    gold, _, answer = messages[-1].text.rpartition("Gold target: ")[2].partition("\\nPredicted answer: ")
    letter = "A" if gold.strip() in answer.partition("\\n```")[0] else "B"
    output = ModelOutput.from_content("mockllm/model", letter)
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output

own = simpleqa.simpleqa(scorer="original")
(log,) = eval(
    task_with(own, solver=two_pass(own.solver, variant="high")),
    model="almanac/base",
    model_roles={"grader": get_model("mockllm/model", custom_outputs=grade)},
    log_dir="logs",
    display="none",
)
rows = [(one.target, one.metadata["refusal_index"]) for one in log.samples]
metrics = {name: found.value for score in log.results.scores for name, found in score.metrics.items()}
print(json.dumps({"status": log.status, "location": log.location, "rows": rows, "metrics": metrics}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the pinned package and this one."""
    folder = tmp_path_factory.mktemp("inspect_evals")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    found = folder / "bin" / "python"
    install = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*install, PINNED, f"{ROOT}[eval]"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{PINNED} cannot be installed here: {done.stderr[-300:]}")
    return found


def test_end_to_end_simpleqa_of_inspect_evals_is_graded_by_its_own_scorer(python, tmp_path):
    done = subprocess.run([str(python), "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["status"] == "success"
    assert len(found["rows"]) == 60
    refused = [row["refused"] for _, row in found["rows"]]
    assert 0 < sum(map(bool, refused)) < 60
    for gold, row in found["rows"]:
        counted = row["forced_reply"] if row["refused"] else row["first_reply"]
        assert row["wrong"] is (gold not in counted), (
            "the grader of this test asks whether the gold answer is contained"
        )
    assert {"correct", "not_attempted", "f_score"} <= set(found["metrics"]), "the task's own metrics stay"
    command = [str(python.with_name("refusal-index")), "score", found["location"], "--json"]
    scored = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    (variant,) = scored["variants"]
    assert variant["n"] == 60
