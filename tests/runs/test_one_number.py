"""End to end: RI is the same number and orders runs the same way wherever this tool shows it.

The three models are asked 60 questions twice. In this sample, corrected RI puts them in a different order, so
no surface can show it, or sort by it, unnoticed.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from inspect_ai.scorer import SampleScore, Score
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.cli import app
from refusal_index.findings.planning import scenarios_of
from refusal_index.findings.run_results import read_runs
from refusal_index.plugins.inspect import outcomes

NAMES = ("base", "small", "rash")
Numbers = dict[str, float]


def command(*arguments: str) -> str:
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def read(*arguments: str) -> Any:
    return json.loads(command(*arguments))


def name_of(model: str) -> str:
    return model.removeprefix("almanac/")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("siblings")
    for name in NAMES:
        run = ri.evaluate(f"almanac/{name}", limit=60, seed=2, draws=2, variants="normal", out=folder / name)
        assert run.is_complete
    return folder


@pytest.fixture(autouse=True)
def in_runs_folder(place, monkeypatch):
    monkeypatch.chdir(place)


@pytest.fixture(scope="module")
def expected(place) -> Numbers:
    """Return RI by the paper's definition of the table: from the first response to each question."""
    numbers = {}
    for name in NAMES:
        once = pl.read_parquet(place / name / "outcomes.parquet").filter(draw=0)
        assert once.height == 60
        numbers[name] = ri.refusal_index(refused=once["refused"].to_numpy(), wrong=once["wrong"].to_numpy()).estimate
    return numbers


def order(numbers: Numbers) -> list[str]:
    return sorted(numbers, key=numbers.__getitem__, reverse=True)


# Each surface that holds the number unrounded.


def from_python(metric: str = "refusal_index") -> Numbers:
    return {name: getattr(ri.open_run(name), metric)().estimate for name in NAMES}


def from_python_summary() -> Numbers:
    return {name: ri.open_run(name).summary.index.estimate for name in NAMES}


def from_run_table() -> Numbers:
    return {name: ri.refusal_index(ri.open_run(name).summary.variants[0].table).estimate for name in NAMES}


def from_metrics(documents: dict[str, Any], metric: str) -> Numbers:
    return {name: one["variants"][0]["metrics"][metric]["estimate"] for name, one in documents.items()}


def from_score(metric: str = "refusal_index") -> Numbers:
    return from_metrics({name: read("score", name, "--json") for name in NAMES}, metric)


def from_score_of_table() -> Numbers:
    return from_metrics({name: read("score", f"{name}/outcomes.parquet", "--json") for name in NAMES}, "refusal_index")


def from_summary_json() -> Numbers:
    return from_metrics({name: json.loads(Path(name, "summary.json").read_text()) for name in NAMES}, "refusal_index")


def from_compare(metric: str = "refusal_index") -> Numbers:
    pairs = [(one, read("compare", one, other, "--json")) for one, other in zip(NAMES, NAMES[1:] + NAMES, strict=False)]
    return {name: found["variants"][0]["metrics"][metric]["first"] for name, found in pairs}


def from_ranking(*arguments: str) -> Numbers:
    """Return the numbers in the order of the ranking."""
    runs = read("compare", *NAMES, "--json", *arguments)["runs"]
    return {name_of(run["run"]): run["estimate"] for run in runs}


def from_python_ranking() -> Numbers:
    frame = ri.rank([ri.open_run(name) for name in NAMES]).to_frame()
    return {name_of(row["run"]): row["estimate"] for row in frame.iter_rows(named=True)}


def from_ranking_with_ties() -> Numbers:
    frame = ri.study("ranking_with_ties", list(NAMES)).frame.filter(part="model").sort("place")
    return {name_of(row["model"]): row["estimate"] for row in frame.iter_rows(named=True)}


def from_results_table() -> Numbers:
    frame = ri.study("results_table", list(NAMES)).frame.filter(metric="refusal_index", source="run")
    return {name_of(row["model"]): row["estimate"] for row in frame.iter_rows(named=True)}


def from_export(metric: str = "refusal_index") -> Numbers:
    command("export", *NAMES, "--to", "csv", "--out", "metrics.csv")
    with Path("metrics.csv").open(newline="") as file:
        return {
            name_of(row["model"]): float(row["estimate"]) for row in csv.DictReader(file) if row["metric"] == metric
        }


def from_inspect_eval() -> Numbers:
    """Pass the cells of a run to the metric of the Inspect task."""
    found = {}
    for name in NAMES:
        rows = ri.open_run(name).outcomes.filter(draw=0)
        scores = [
            SampleScore(score=Score(value="N", metadata={outcomes.OUTCOME: row}))
            for row in rows.select("refused", "wrong", "draw", "reading").iter_rows(named=True)
        ]
        found[name] = outcomes.refusal_index()(scores)["refusal_index"]
    return found


def from_gate() -> Numbers:
    found = {}
    for name, other in zip(NAMES, NAMES[1:] + NAMES, strict=False):
        verdict = read("gate", name, "--baseline", other, "--json")
        (guard,) = (one for one in verdict["guards"] if one["metric"] == "refusal_index")
        # the guard itself leaves out what was refused again
        again = verdict["refused_again"]
        candidate, baseline = (
            again[role]["index_as_scored"] if again else guard[role] for role in ("candidate", "baseline")
        )
        found[name] = candidate
        assert found.setdefault(other, baseline) == pytest.approx(baseline, abs=1e-12)
    return found


def from_plan() -> Numbers:
    return {name_of(run.label): scenarios_of(run)["normal"].refusal_index for run in read_runs(list(map(Path, NAMES)))}


SURFACES: tuple[Callable[[], Numbers], ...] = (
    from_python,
    from_python_summary,
    from_run_table,
    from_score,
    from_score_of_table,
    from_summary_json,
    from_compare,
    from_ranking,
    from_python_ranking,
    from_ranking_with_ties,
    from_results_table,
    from_export,
    from_inspect_eval,
    from_gate,
    from_plan,
)


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_holds_the_same_ri(surface, expected):
    assert surface() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("ranking", [from_ranking, from_python_ranking, from_ranking_with_ties])
def test_every_ranking_is_in_the_order_of_ri(ranking, expected):
    assert list(ranking()) == order(expected)


def test_corrected_ri_differs_and_has_its_own_name(expected):
    name = "corrected_refusal_index"
    corrected = from_python(name)
    assert all(abs(corrected[one] - expected[one]) > 0.01 for one in NAMES)
    assert order(corrected) != order(expected)
    for found in (from_score(name), from_compare(name), from_export(name), from_ranking("--metric", name)):
        assert found == pytest.approx(corrected, abs=1e-9)
    assert list(from_ranking("--metric", name)) == order(corrected)


# Each surface that shows it, rounded.


def displayed(name: str) -> Iterator[tuple[str, str, int]]:
    """Yield what is shown, the pattern that finds RI in it, and to how many digits."""
    number = r"(-?\d\.\d+)"
    yield command("score", name), rf"\nnormal +{number} ", 2
    yield command("score", name), rf"\nRI {number} ", 2
    yield command("show", name), rf"\nnormal +60 +{number} ", 3
    yield command("compare", *NAMES, "--full"), rf"\nalmanac/{name} +{number} ", 3
    yield (
        command("compare", name, next(one for one in NAMES if one != name), "--full"),
        rf"\nRI +normal +{number} +-?\d\.\d+\n",
        3,
    )
    yield (
        command("gate", name, "--baseline", name),
        rf"candidate \d+\s+of\s+\d+\s+refusals\s+\(RI\s+\S+\s+{number} as",
        3,
    )
    yield command("plan", name), rf"\nnormal +{number} ", 2
    yield str(ri.open_run(name)), rf"\nnormal +{number} ", 2
    yield Path(name, "report.html").read_text(), rf'class="large">{number}<', 2


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_displayed_ri_is_the_same_number(name, expected):
    for text, pattern, digits in displayed(name):
        found = re.findall(pattern, text.replace("\u2212", "-"))
        assert found == [f"{expected[name]:.{digits}f}"], (pattern, text)


def test_no_surface_uses_the_former_name():
    every = [
        command(*one) for one in (("score", "base"), ("compare", *NAMES), ("compare", "base", "rash"), ("plan", "base"))
    ]
    every += [Path("base", name).read_text() for name in ("summary.json", "report.html")]
    assert not any(re.search(r"single[-_ ]draw", text) for text in every)
