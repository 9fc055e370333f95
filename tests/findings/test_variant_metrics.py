"""Metrics of variants, also of first passes that nobody forced, and against real data."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data.analysis import Analysis
from refusal_index.data.first_pass import self_contained, to_outcomes
from refusal_index.data.imports import ReadOptions, read_first_passes
from refusal_index.data.outcome import FORCED_NOT_ASKED, Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table, read_outcomes, write_outcomes
from refusal_index.data.rates import ANSWERABLE_NOT_RECORDED, BY_ANSWERABLE, completeness, contingency_table
from refusal_index.data.source_files import SourceFile
from refusal_index.findings.comparison import compare_pair
from refusal_index.findings.gate import decide as gate
from refusal_index.findings.gate_policy import Policy
from refusal_index.findings.run_results import read_runs, runs_of_table
from refusal_index.findings.sensitivity import DecisionOptions, decide_otherwise
from refusal_index.findings.summary import Summary, VariantSummary, summarise
from refusal_index.render.format import to_text
from refusal_index.render.summary import first_screen, summary_blocks, summary_table
from refusal_index.stats import refusal_index
from refusal_index.stats.intervals import normal_quantile, proportion

# --- First-pass metrics

UNASKED = Outcome(True, None, Grade.REFUSED, unscored_reason=FORCED_NOT_ASKED)
SETTLED = Outcome(True, True, Grade.REFUSED, Grade.INCORRECT)  # there is no right answer, so no forced request was made
UNGRADED = Outcome(False, None, unscored_reason="first_not_graded")
RIGHT, WRONG = Outcome(False, False, Grade.CORRECT), Outcome(False, True, Grade.INCORRECT)
REAL = Path(__file__).parents[3] / "shared" / "data" / "squad2_refusal"


def summary_of(counts: dict[Outcome, int], gold: str | None = None) -> Summary:
    asked = Identification("m", "d", "normal")
    outcomes = [outcome for outcome, count in counts.items() for _ in range(count)]
    return summarise(outcome_table((asked, Question(f"q{i}", "?", gold), one) for i, one in enumerate(outcomes)))


def variant_of(counts: dict[Outcome, int], gold: str | None = None) -> VariantSummary:
    (variant,) = summary_of(counts, gold).variants
    return variant


def check_unknown(variant: VariantSummary, names: str, reason: str) -> None:
    for name in names.split():
        found = variant.metric(name)
        assert (found.estimate, found.low, found.status, found.reason) == (None, None, "undefined", reason), name


def codes(variant: VariantSummary) -> list[str]:
    return [caveat.code for caveat in variant.caveats]


def test_refused_unanswerable_questions_do_not_represent_all_refused_ones() -> None:
    """Made-up counts: five settled, three still to force, two answered wrong, ten answered without a grade."""
    variant = variant_of({SETTLED: 5, UNASKED: 3, WRONG: 2, UNGRADED: 10})
    assert variant.metric("refusal_rate").estimate == 8 / 20
    check_unknown(variant, "error_rate refusal_index", FORCED_NOT_ASKED)
    check_unknown(variant, "correct_rate correct_given_attempted f_score weighted_score", "first_not_graded")
    assert codes(variant) == [FORCED_NOT_ASKED, "incomplete"]


def test_rates_are_exact_without_warnings_if_every_answer_is_graded() -> None:
    variant = variant_of({SETTLED: 5, UNASKED: 3, WRONG: 4, RIGHT: 8})
    expected = {"correct_rate": 8 / 20, "refusal_rate": 8 / 20, "correct_given_attempted": 8 / 12}
    assert {name: variant.metric(name).estimate for name in expected} == pytest.approx(expected)
    check_unknown(variant, "error_rate refusal_index", FORCED_NOT_ASKED)
    assert codes(variant) == [FORCED_NOT_ASKED]


def test_one_forced_answer_makes_a_two_pass_run() -> None:
    """As after regrading, when a reply that was right becomes a refusal: the rest of the run keeps its index."""
    forced = Outcome(True, False, Grade.REFUSED, Grade.CORRECT, first_reply="?", forced_reply="x")
    variant = variant_of({forced: 5, SETTLED: 20, UNASKED: 1, WRONG: 20, RIGHT: 20}, gold="x")
    assert variant.index.status == "ok"


def test_sensitivity_agrees_on_an_unforced_first_pass() -> None:
    rows = [SETTLED] * 5 + [UNASKED] * 3 + [WRONG] * 2 + [UNGRADED] * 10
    table = outcome_table(
        (Identification("m", "d", "normal"), Question(f"q{i}", "?", None), one) for i, one in enumerate(rows)
    )
    (found,) = decide_otherwise(table, DecisionOptions())
    assert found.as_scored["refusal_rate"].estimate == 8 / 20
    assert found.as_scored["error_rate"].reason == FORCED_NOT_ASKED


def test_comparison_notes_runs_that_were_never_forced(tmp_path: Path) -> None:
    rows = [SETTLED] * 5 + [UNASKED] * 3 + [WRONG] * 12
    for name in ("a", "b"):
        asked = Identification(name, "d", "normal")
        write_outcomes(
            outcome_table((asked, Question(f"q{i}", "?", None), one) for i, one in enumerate(rows)),
            tmp_path / f"{name}.csv",
        )
    first, second = read_runs([tmp_path / "a.csv", tmp_path / "b.csv"])
    statements = compare_pair((first, second), Analysis()).statements
    assert [statement.code for statement in statements].count("never_forced") == 2
    (primary,) = (statement for statement in statements if statement.code == "primary")
    assert (primary.values["metric"], primary.values["has_pvalue"]) == ("refusal_index", False)


def test_repeated_refusals_are_unknown_without_a_forced_grade() -> None:
    """A table of `refused` and `wrong` alone does not tell a wrong forced answer from another refusal."""
    bare, told = Outcome(True, True, Grade.REFUSED), Outcome(True, True, Grade.REFUSED, Grade.INCORRECT)
    found = []
    for one in (bare, told):
        table = summary_table(summary_of({one: 20, Outcome(True, False, Grade.REFUSED, Grade.CORRECT): 5, RIGHT: 30}))
        found.append(table.rows[0][table.columns.index("scoring rules")])
    assert found[0] == "not known"
    assert found[1] != "not known"


@pytest.mark.skipif(not REAL.is_dir(), reason="needs real data")
@pytest.mark.parametrize(("name", "rate"), [("explicit", 0.540), ("implicit", 0.292)])
def test_real_squad2_refusals_match_published_rates(name: str, rate: float) -> None:
    passes = read_first_passes(SourceFile.read(REAL / f"{name}_n500.jsonl"), "graded", ReadOptions()).passes
    (variant,) = summarise(to_outcomes(map(self_contained, passes))).variants
    assert variant.metric("refusal_rate").estimate == pytest.approx(rate)
    check_unknown(variant, "error_rate refusal_index", FORCED_NOT_ASKED)
    check_unknown(variant, "correct_given_attempted f_score", "first_not_graded")
    published = json.loads((REAL / "summary_n500.json").read_text())[name]
    assert variant.metric("refused_unanswerable").estimate == pytest.approx(published["abstention_rate"])
    assert variant.metric("refused_answerable").estimate == pytest.approx(1 - published["answer_attempt_rate"])


def both_kinds(without: dict[Outcome, int], answerable: dict[Outcome, int]) -> pl.DataFrame:
    """Make outcomes of questions without a right answer, and with one."""
    asked = Identification("m", "d", "normal")
    golds = [(gold, count) for gold, counts in ((None, without), ("a", answerable)) for count in counts]
    rows = [(gold, one) for gold, one in golds for _ in range((without if gold is None else answerable)[one])]
    return outcome_table((asked, Question(f"q{i}", "?", gold), one) for i, (gold, one) in enumerate(rows))


@pytest.mark.parametrize("refused", [UNASKED, Outcome(True, True, Grade.REFUSED, Grade.INCORRECT)])
def test_refusals_are_split_by_answerability(refused: Outcome) -> None:
    (variant,) = summarise(both_kinds({SETTLED: 6, WRONG: 2}, {refused: 3, RIGHT: 6, WRONG: 3})).variants
    for name, part, whole in (("refused_unanswerable", 6, 8), ("refused_answerable", 3, 12)):
        expected, found = proportion("", part, whole, normal_quantile(0.95), None), variant.metric(name)
        assert (found.estimate, found.low, found.high) == (expected.estimate, expected.low, expected.high)
        assert (found.name, found.status) == (name, "ok")


@pytest.mark.parametrize("gold", [None, "a"])
def test_refusals_are_not_split_without_both_kinds_of_questions(gold: str | None) -> None:
    check_unknown(variant_of({SETTLED: 5, WRONG: 3}, gold), " ".join(BY_ANSWERABLE), ANSWERABLE_NOT_RECORDED)


def test_missing_gold_answer_does_not_mark_a_question_unanswerable() -> None:
    (variant,) = summarise(both_kinds({SETTLED: 5, RIGHT: 1}, {RIGHT: 3})).variants
    check_unknown(variant, " ".join(BY_ANSWERABLE), ANSWERABLE_NOT_RECORDED)


def test_answerability_rates_are_shown_only_for_datasets_with_both_kinds() -> None:
    split = summarise(both_kinds({SETTLED: 6, WRONG: 2}, {RIGHT: 6, WRONG: 3}))
    assert "refused unanswerable" in to_text(summary_blocks(split))
    assert "refused unanswerable" not in to_text(summary_blocks(summary_of({SETTLED: 5, RIGHT: 3}, "a")))
    assert "nanswerable" not in to_text(first_screen(split))


def test_answerability_rates_can_be_gate_guards() -> None:
    (base,) = runs_of_table(Path("b.parquet"), both_kinds({SETTLED: 90, WRONG: 10}, {RIGHT: 90, WRONG: 10}), {})
    (worse,) = runs_of_table(Path("w.parquet"), both_kinds({SETTLED: 20, WRONG: 80}, {RIGHT: 90, WRONG: 10}), {})
    margins = {"refused_unanswerable": 0.2, "refused_answerable": 0.1}
    verdicts = {guard.guard.name: guard for guard in gate(worse, base, Policy(margins=margins)).guards}
    lost, kept = (verdicts[name] for name in margins)
    assert (lost.test.verdict, lost.guard.estimate) == ("fail", pytest.approx(-0.7))
    assert (kept.test.verdict, kept.guard.estimate) == ("pass", 0)
    bounds = gate(worse, None, Policy(at_least={"refused_unanswerable": 0.5}, at_most={"refused_answerable": 0.1}))
    assert [(guard.candidate, guard.test.verdict) for guard in bounds.guards] == [(0.2, "fail"), (0, "pass")]
    (alike,) = runs_of_table(Path("a.parquet"), base.tables["normal"].with_columns(gold=pl.lit("a")), {})
    bound = Policy(at_most={"refused_answerable": 1})
    for found in (gate(alike, base, Policy(margins=margins)), gate(alike, None, bound)):
        assert found.guards[-1].reason == ANSWERABLE_NOT_RECORDED
        assert found.verdict == "inconclusive"


# --- Real data: BixBench

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
    """One row per question: whether the refusing option was chosen (`predicted == unsure`), and whether it is wrong.

    The column `sure` is ignored: it is true exactly where the model was unsure.
    """
    path = DATA / FILES[version].format(model=model, refusal=refusal)
    if not path.is_file():
        pytest.skip(f"the real {path.name} is not available")
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
def test_gpt_4o_on_bixbench_v1_matches_published_values(tmp_path, protocol, cells, estimate):
    table = contingency_table(read_outcomes(outcomes_csv(tmp_path / "o.csv", "v1.0", "gpt-4o", protocol)))
    assert table.counts == cells
    assert refusal_index(table).estimate == pytest.approx(estimate, abs=5e-4)
