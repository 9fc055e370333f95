"""Metrics of variants, also of first passes that nobody forced, and against real data."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data.analysis import Analysis
from refusal_index.data.first_pass import NOT_KNOWN, FirstPass, from_outcomes, self_contained, to_outcomes
from refusal_index.data.imports import ReadOptions, read_first_passes
from refusal_index.data.outcome import FORCED_NOT_ASKED, Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table, read_outcomes, write_outcomes
from refusal_index.data.rates import ANSWERABLE_NOT_RECORDED, BY_ANSWERABLE, completeness, contingency_table
from refusal_index.data.source_files import SourceFile
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.comparison import PairComparison, compare_pair
from refusal_index.findings.gate import decide as gate
from refusal_index.findings.gate_policy import Policy
from refusal_index.findings.headline import headline
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_results import RunResults, read_runs, runs_of_table
from refusal_index.findings.sensitivity import DecisionOptions, decide_otherwise
from refusal_index.findings.summary import Summary, VariantSummary, by_topic, summarise
from refusal_index.findings.tallies import tallies
from refusal_index.render.format import to_text
from refusal_index.render.summary import first_screen, rates_table, summary_blocks, summary_table
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
    assert set(codes(variant)) == {FORCED_NOT_ASKED, "unanswerable_right"}  # no question here has a right answer


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


@pytest.mark.parametrize(
    ("gold", "known", "unknown", "reason"),
    [
        (None, "refused_unanswerable", "refused_answerable", "all_unanswerable"),
        ("a", "refused_answerable", "refused_unanswerable", "all_answerable"),
    ],
)
def test_theory_rate_of_the_only_kind_of_questions_is_the_refusal_rate(
    gold: str | None, known: str, unknown: str, reason: str
) -> None:
    summary = summary_of({SETTLED: 5, WRONG: 3}, gold)
    (variant,) = summary.variants
    found, refused = variant.metric(known), variant.metric("refusal_rate")
    assert (found.estimate, found.low, found.high) == (refused.estimate, refused.low, refused.high)
    check_unknown(variant, unknown, reason)
    assert summary.records(known) is (gold is None)


def read(rows: dict[str, list[object]]) -> VariantSummary:
    (variant,) = summarise(read_outcomes(pl.DataFrame(rows, strict=False))).variants
    return variant


def test_missing_gold_answer_does_not_mark_a_question_unanswerable() -> None:
    """Of three gold answers two are recorded; an answer without one is right, so the third is only missing."""
    rows: dict[str, list[object]] = {"refused": [True, False, False], "wrong": [True, True, False]}
    variant = read({**rows, "gold": ["a", "b", None]})
    assert variant.answerability == {"answerable": 2, "unanswerable": 0, "unknown": 1}
    check_unknown(variant, "refused_unanswerable", "all_answerable")
    none = read({**rows, "gold": [None] * 3})
    check_unknown(none, " ".join(BY_ANSWERABLE), ANSWERABLE_NOT_RECORDED)


def test_theory_gold_answers_tell_which_questions_are_unanswerable_in_a_table_without_that_column() -> None:
    rows: dict[str, list[object]] = {"refused": [True, False, False, True], "wrong": [True, True, False, False]}
    variant = read({**rows, "gold": [None, None, "a", "b"]})
    assert variant.answerability == {"answerable": 2, "unanswerable": 2, "unknown": 0}
    assert [variant.metric(name).estimate for name in BY_ANSWERABLE] == [0.5, 0.5]


def test_questions_of_unknown_answerability_are_counted_and_left_out() -> None:
    """Made up: of the four whose kind is known, one of two unanswerable and none of two answerable was refused."""
    refused = [True, False, False, False, True, True]
    kinds = [False, False, True, True, None, None]
    variant = read({"refused": refused, "wrong": [True, True, False, False, True, False], "answerable": kinds})
    assert [variant.metric(name).estimate for name in BY_ANSWERABLE] == [0.5, 0.0]
    (caveat,) = (caveat for caveat in variant.caveats if caveat.code == "answerable_unknown")
    assert (caveat.severity, dict(caveat.values)) == ("serious", {"unknown": 2, "asked": 6})


def test_theory_unanswerable_questions_that_count_as_right_are_counted_in_a_caveat() -> None:
    """No answer to them is right, so a table that says so means something else by `wrong`."""
    marks = {"refused": [True, True, False, False], "answerable": [False, False, False, True]}
    variant = read({**marks, "wrong": [False, True, False, False]})
    (caveat,) = (caveat for caveat in variant.caveats if caveat.code == "unanswerable_right")
    assert (caveat.severity, dict(caveat.values)) == ("serious", {"right": 2, "unanswerable": 3})
    assert "unanswerable_right" not in codes(read({**marks, "wrong": [True, True, True, False]}))


def test_a_mark_is_enough_without_gold_answers() -> None:
    """As in a log of a retrieval pipeline: question, answerable, refused."""
    first = [
        FirstPass(Question(f"q{i}", "?", None if i % 2 else NOT_KNOWN), "m", "d", grade, is_marked_answerable=not i % 2)
        for i, grade in enumerate([Grade.REFUSED, Grade.REFUSED, None, Grade.INCORRECT, None, Grade.REFUSED])
    ]
    table = to_outcomes(first)
    assert table["answerable"].to_list() == [True, False] * 3
    (variant,) = summarise(table).variants
    (tally,) = tallies(first)
    for metrics in (variant.metrics, tally.by_answerable):
        found = {metric.name: metric.estimate for metric in metrics}
        assert [found[name] for name in BY_ANSWERABLE] == pytest.approx([2 / 3, 1 / 3])
    assert [one.answerable for one in from_outcomes(table)] == table["answerable"].to_list()


def test_answerability_rates_are_shown_only_if_a_question_is_unanswerable() -> None:
    split = summarise(both_kinds({SETTLED: 6, WRONG: 2}, {RIGHT: 6, WRONG: 3}))
    alike = summary_of({SETTLED: 5, RIGHT: 3}, "a")
    for blocks in (summary_blocks, first_screen):
        assert "refused unanswerable" in to_text(blocks(split))
        assert "refused unanswerable" not in to_text(blocks(alike))


def test_first_screen_of_an_unforced_first_pass_has_no_column_without_a_number() -> None:
    summary = summarise(both_kinds({SETTLED: 6, UNGRADED: 2}, {UNASKED: 3, UNGRADED: 9}))
    table = rates_table(summary)
    assert table.columns == ("prompt", "refused unanswerable", "refused answerable", "unscored")
    assert [cell.partition(" ")[0] for cell in table.rows[0]] == ["normal", "75%", "25%", "14"]
    refused = headline(summary, {}).refused
    assert refused is not None
    assert [refused.values[name] for name in BY_ANSWERABLE] == [(0.75, 0.75), (0.25, 0.25)]
    assert headline(summary, {}).conclusions == (refused,)


def test_theory_topics_are_summarised_as_datasets_of_their_own() -> None:
    table = both_kinds({SETTLED: 6, WRONG: 2}, {RIGHT: 6, WRONG: 3})
    topics = pl.Series("topic", ["a", "b"] * 8 + [None], pl.String)
    summary = by_topic(table.with_columns(topics))
    assert [variant.dataset for variant in summary.variants] == ["a", "b", "(no topic)"]
    for variant in summary.variants:
        rows = table.filter(topics.eq_missing(pl.Series([variant.dataset if variant.dataset in "ab" else None] * 17)))
        (alone,) = summarise(rows).variants
        assert variant.metrics == alone.metrics
    assert repr(summary) == "Summary(a; b; (no topic); variants: 3)"
    assert rates_table(summary, "topic").columns[:3] == ("topic", "n", "refused unanswerable")
    with pytest.raises(OutcomeTableError, match="expected topics, got none"):
        by_topic(table)


def pair_of(worse: pl.DataFrame, base: pl.DataFrame) -> PairComparison:
    runs = [run for name, rows in (("w", worse), ("b", base)) for run in runs_of_table(Path(name), rows, {})]
    return compare_pair(runs)


def test_comparison_splits_refusals_over_all_questions_also_ungraded_ones() -> None:
    """Without grades, only metrics of refusals are known: the share wrong of the graded few would be another number."""
    worse = both_kinds({SETTLED: 4, UNGRADED: 4}, {UNASKED: 6, UNGRADED: 6})
    compared = pair_of(worse, both_kinds({SETTLED: 6, WRONG: 2}, {UNASKED: 3, UNGRADED: 9}))
    assert {*BY_ANSWERABLE} < {*compared.to_frame()["metric"]}
    found = {metric: difference for metric, _, difference, _ in compared.rows()}
    assert [(found[name].first, found[name].second) for name in BY_ANSWERABLE] == [(0.5, 0.75), (0.5, 0.25)]
    assert (found["refusal_rate"].first, found["refusal_rate"].second) == (0.5, 9 / 20)
    assert found["correct_given_attempted"].reason == "first:first_not_graded;second:first_not_graded"
    codes = [statement.code for statement in compared.statements]
    assert codes[:3] == ["refused_by_answerable", "refused_by_answerable", "difference_unknown"]


def test_runs_are_ranked_by_their_refusals_of_one_kind() -> None:
    tables = [both_kinds({SETTLED: n, UNGRADED: 100 - n}, {UNASKED: 20, UNGRADED: 80}) for n in (90, 50, 10)]
    tables.append(both_kinds({}, {UNASKED: 20, UNGRADED: 180}))
    runs = [run for i, rows in enumerate(tables) for run in runs_of_table(Path(f"r{i}"), rows, {})]
    ranking = rank(runs, Analysis(metric="refused_unanswerable")).ranking
    assert [(run.row, run.estimate, run.letters) for run in ranking.runs] == [
        (0, 0.9, "a"),
        (1, 0.5, "b"),
        (2, 0.1, "c"),
    ]
    assert [(run.row, run.reason) for run in ranking.unranked] == [(3, "all_answerable")]
    with pytest.raises(OutcomeTableError, match="needs graded answers"):
        rank(runs, Analysis(metric="correct_rate"))


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
    unmarked = base.tables["normal"].with_columns(answerable=pl.lit(None, pl.Boolean))
    (alike,) = runs_of_table(Path("a.parquet"), unmarked, {})
    answerable = base.tables["normal"].filter("answerable")
    (settled,) = runs_of_table(Path("s.parquet"), answerable, {})
    lost, kept = gate(settled, settled, Policy(margins=margins)).guards[-2:]
    assert (lost.test.verdict, lost.reason) == ("inconclusive", "first:all_answerable;second:all_answerable")
    assert (kept.test.verdict, kept.guard.estimate) == ("pass", 0)
    bound = Policy(at_most={"refused_answerable": 1})
    for found in (gate(alike, base, Policy(margins=margins)), gate(alike, None, bound)):
        assert ANSWERABLE_NOT_RECORDED in (found.guards[-1].reason or "")
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


def test_gate_states_refusals_under_the_prompt_that_it_judges() -> None:
    tables = {
        "low": both_kinds({SETTLED: 20, WRONG: 80}, {RIGHT: 100}),
        "high": both_kinds({SETTLED: 90, WRONG: 10}, {RIGHT: 100}),
    }
    run = RunResults.of_tables("two", Path("two"), "m", "d", tables)
    found = gate(run, None, Policy(at_least={"refused_unanswerable": 0.5}, variant="high"))
    (stated,) = [statement for statement in found.statements if statement.code == "refused_by_answerable"]
    assert stated.values["refused_unanswerable"] == (0.9, 0.9)


def test_a_comparison_or_gate_with_unknown_refusals_does_not_state_them_by_answerability(tmp_path: Path) -> None:
    """What is missing may be refused more often than the rest, as in the virtual run of a threshold."""
    answerable = [index % 2 == 0 for index in range(40)]
    refused = [index % 3 == 0 for index in range(40)]
    wrong = [not mark or index % 5 == 0 for index, mark in enumerate(answerable)]
    ids = [f"q{index}" for index in range(40)]
    whole = pl.DataFrame({"question_id": ids, "refused": refused, "wrong": wrong, "answerable": answerable})
    missing = whole.with_columns(
        pl.when(pl.col("refused") & ~pl.col("answerable")).then(None).otherwise(pl.col(name)).alias(name)
        for name in ("refused", "wrong")
    )
    stated = {}
    for name, second in (("whole", whole), ("missing", missing)):
        whole.with_columns(model=pl.lit("a")).write_csv(tmp_path / "a.csv")
        second.with_columns(model=pl.lit("b")).write_csv(tmp_path / "b.csv")
        runs = read_runs([tmp_path / "a.csv", tmp_path / "b.csv"])
        for result in (compare_pair(runs, Analysis()), gate(runs[1], runs[0], Policy(margins={"refusal_index": 0.2}))):
            codes_of = [statement.code for statement in result.statements]
            stated[name, type(result).__name__] = codes_of.count("refused_by_answerable")
    assert [stated[name, "PairComparison"] for name in ("whole", "missing")] == [2, 0]
    assert [stated[name, "GateResult"] for name in ("whole", "missing")] == [2, 0]
