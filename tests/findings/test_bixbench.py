"""Evidence against real data: two models' BixBench answers with and without an option to refuse.

The reference counts and estimates are those of `tables.csv` beside the data.
"""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data.outcome_table import read_outcomes
from refusal_index.data.rates import completeness, contingency_table
from refusal_index.stats import refusal_index

DATA = Path(__file__).parents[3] / "shared" / "data" / "bixbench"
FILES = {
    "v1.0": "bixbench_llm_baseline_refusal_{refusal}_mcq_{model}_1.0.csv",
    "v1.5": "{model}-grader-mcq-refusal-{refusal}.csv",
}
CASES = [
    (version, model, protocol)
    for version in FILES
    for model in ("gpt-4o", "claude-3-5-sonnet-latest")
    for protocol in ("forced_all", "two_pass")
]


def answers(version: str, model: str, refusal: bool) -> pl.DataFrame:
    """One row a question: whether the refusing option was chosen (`predicted == unsure`), and whether it is wrong.

    The column `sure` is ignored: it is true exactly where the model was unsure.
    """
    path = DATA / FILES[version].format(model=model, refusal=refusal)
    if not path.is_file():
        pytest.skip(f"the real {path.name} is not at hand")
    cells = pl.read_csv(path, infer_schema=False)
    return cells.select("question", refused=pl.col("predicted") == pl.col("unsure"), wrong=pl.col("correct") == "False")


def outcomes_csv(path: Path, version: str, model: str, protocol: str) -> Path:
    """Join the run that may refuse with the run that may not, question by question.

    `forced_all` takes the forced answer of every question, `two_pass` that of the refused ones only.
    """
    first, forced = answers(version, model, refusal=True), answers(version, model, refusal=False)
    joined = first.join(forced, on="question", suffix="_forced", validate="1:1")
    takes_forced = pl.col("refused") | (protocol == "forced_all")
    wrong = pl.when(takes_forced).then("wrong_forced").otherwise("wrong")
    joined.select("refused", wrong=wrong, question_id="question").write_csv(path)
    return path


def reference(*case: str) -> dict[str, str]:
    with (DATA / "tables.csv").open(newline="", encoding="utf-8") as file:
        return next(row for row in csv.DictReader(file) if (row["version"], row["model"], row["protocol"]) == case)


@pytest.mark.parametrize(("version", "model", "protocol"), CASES)
def test_real_two_pass_tables_agree_with_the_reference(tmp_path, version, model, protocol):
    outcomes = read_outcomes(outcomes_csv(tmp_path / "outcomes.csv", version, model, protocol))
    expected = reference(version, model, protocol)
    table = contingency_table(outcomes)
    assert table.counts == tuple(int(expected[cell]) for cell in ("n11", "n10", "n01", "n00"))
    assert completeness(outcomes).unscored == 0
    # The reference of one table is off by 7e-12 from the exact value.
    assert refusal_index(table).estimate == pytest.approx(float(expected["RI"]), abs=1e-11)


@pytest.mark.parametrize(
    ("protocol", "cells", "estimate"),
    [("forced_all", (164, 68, 37, 27), 0.191), ("two_pass", (164, 68, 32, 32), 0.296)],
)
def test_gpt_4o_on_bixbench_v1_is_as_published_with_the_data(tmp_path, protocol, cells, estimate):
    table = contingency_table(read_outcomes(outcomes_csv(tmp_path / "o.csv", "v1.0", "gpt-4o", protocol)))
    assert table.counts == cells
    assert refusal_index(table).estimate == pytest.approx(estimate, abs=5e-4)
