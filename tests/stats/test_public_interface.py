"""The public names, what importing them costs, and the benchmark that times them."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from benchmarks import estimator

import refusal_index
from refusal_index import stats

PUBLIC = {"ConfidenceInterval", "ContingencyTable", "RefusalIndexResult", "refusal_index", "refusal_index_many"}


def test_public_names_are_these_and_exist() -> None:
    assert set(refusal_index.__all__) == PUBLIC
    for module in (refusal_index, stats):
        assert all(hasattr(module, name) for name in module.__all__)


def test_version_is_the_installed_one() -> None:
    assert refusal_index.__version__ == version("refusal-index")


def test_import_loads_nothing_heavy() -> None:
    heavy = ["inspect_ai", "pandas", "matplotlib", "torch", "polars", "typer", "scipy.stats"]
    program = f"import sys, refusal_index; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_benchmark_times_every_contender(capsys, monkeypatch) -> None:
    sizes = ["--many", "200", "--one", "5", "--slow", "2", "--repetitions", "1"]
    monkeypatch.setattr(sys, "argv", ["estimator", *sizes])
    estimator.main()
    printed = capsys.readouterr().out
    for contender in ("plain SciPy", "refusal_index_many", "one call", "with profile interval"):
        (line,) = [line for line in printed.splitlines() if contender in line]
        assert float(line.split()[-2]) > 0
