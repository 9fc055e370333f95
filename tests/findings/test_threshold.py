"""Score thresholds: chosen on one half without the other's grades, within the error bound, judged on the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from benchmarks.coverage import selection as simulation
from tests.tiers import others_nightly

from refusal_index.data.analysis import Analysis
from refusal_index.data.outcome_table import (
    CONFIDENCE_SCHEMA,
    OPTIONAL,
    SCHEMA,
    ConfidenceError,
    read_outcomes,
    write_outcomes,
)
from refusal_index.errors import OutcomeTableError, RunFolderError
from refusal_index.findings.comparison import compare_pair
from refusal_index.findings.run_results import RunResults, read_runs, runs_of_table
from refusal_index.plugins.confidence.scored_answers import ScoredAnswers, rule_of, scored_answers
from refusal_index.plugins.confidence.threshold import (
    BOUND_LEVEL,
    CUTS,
    Threshold,
    ThresholdOptions,
    find_threshold,
    halves_of,
    threshold_blocks,
)
from refusal_index.render.format import to_text
from refusal_index.stats import (
    ContingencyTable,
    SampledTable,
    auroc,
    metrics,
    risk_controlling_threshold,
    selective_report,
    utility,
    utility_threshold,
)

HERE = Path(__file__).parent
PENALTY = ThresholdOptions("mine", penalty=3)
MAX_ERROR = ThresholdOptions("mine", max_error=0.2)


def planted(n: int = 600, seed: int = 0, variants: tuple[str | None, ...] = ("low", "high"), **more: Any) -> RunResults:
    """Make a run whose score is the probability that each answer is right, with noisier refusals."""
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    wrong = rng.random(n) >= score
    ids = [f"q{number:05}" for number in range(n)]
    tables = {
        variant: rows(
            ids,
            refused=score + rng.standard_normal(n) < 0.2 + 0.4 * place,
            wrong=wrong,
            variant=variant,
            topic=[f"t{number % 4}" for number in range(n)],
            **more,
        )
        for place, variant in enumerate(variants)
    }
    scores = scores_of(ids, score, wrong)
    return RunResults.of_tables("m", HERE, "m", "d", tables, {}, scores)


def rows(ids: list[str], **columns: Any) -> pl.DataFrame:
    """Make an outcome table; columns not given are null."""
    given = {"model": "m", "dataset": "d", "question_id": ids, "draw": 0, "schema_version": 1, **columns}
    kinds = {**SCHEMA, **{name: kind for name, kind in OPTIONAL.items() if name in given}}
    frame = pl.DataFrame({"question_id": ids})
    return frame.select(
        (pl.Series(name, given[name]) if isinstance(given.get(name), list | np.ndarray) else pl.lit(given.get(name)))
        .cast(kind)
        .alias(name)
        for name, kind in kinds.items()
    )


def scores_of(ids: list[str], confidence: Any, wrong: Any, **more: Any) -> pl.DataFrame:
    given = {"method": "mine", "variant": None, "draw": 0, "pass": "forced", "fold": None, **more}
    frame = pl.DataFrame({"question_id": ids, "confidence": confidence, "wrong": wrong})
    return frame.with_columns(pl.lit(value).alias(name) for name, value in given.items()).select(
        pl.col(name).cast(kind) for name, kind in CONFIDENCE_SCHEMA.items()
    )


def with_scores(run: RunResults, *expressions: pl.Expr, **named: pl.Expr) -> RunResults:
    assert run.confidence is not None
    return replace(run, scores=run.confidence.with_columns(*expressions, **named))


def halves_arrays(run: RunResults, found: Threshold) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the scores and errors of each half."""
    for half in (found.halves.first, found.halves.second):
        part = run.confidence.filter(pl.col("question_id").is_in(list(half)))
        yield part["confidence"].to_numpy(), part["wrong"].to_numpy()


def in_half(half: frozenset[str]) -> pl.Expr:
    return pl.col("question_id").is_in(list(half))


# --- Halves


def questions(n: int, cluster: Any = None) -> pl.DataFrame:
    clusters = pl.Series("cluster", [None] * n if cluster is None else cluster, pl.String)
    return pl.DataFrame({"question_id": [f"q{number}" for number in range(n)]}).with_columns(clusters)


@pytest.mark.parametrize("n", [2, 3, 100, 1001])
def test_halves_are_disjoint_complete_and_independent_of_order(n):
    asked = questions(n)
    found = halves_of(asked, seed=5)
    assert not found.first & found.second
    assert found.first | found.second == set(asked["question_id"])
    assert abs(len(found.first) - len(found.second)) <= 1
    assert halves_of(asked.reverse(), seed=5) == found
    assert n < 100 or halves_of(asked, seed=6) != found


def test_clusters_are_not_split_and_halves_are_as_even_as_possible():
    sizes = [1, 1, 2, 5, 30, 3, 8, 50]
    cluster = [f"c{place}" for place, size in enumerate(sizes) for _ in range(size)]
    asked = questions(sum(sizes), cluster)
    for seed in range(20):
        found = halves_of(asked, seed)
        in_first, in_second = (set(asked.filter(in_half(half))["cluster"]) for half in (found.first, found.second))
        assert in_first
        assert in_second
        assert not in_first & in_second
        assert abs(len(found.first) - 50) <= 50


@pytest.mark.parametrize(("n", "cluster"), [(1, None), (5, ["a"] * 5), (0, None)])
def test_one_cluster_cannot_be_split(n, cluster):
    with pytest.raises(OutcomeTableError, match="or more to split into halves, got"):
        halves_of(questions(n, cluster), 0)


def test_all_methods_of_a_run_are_judged_on_the_same_half():
    run = planted()
    other = run.confidence.filter(pl.col("question_id") < "q00400").with_columns(method=pl.lit("other"))
    run = replace(run, scores=pl.concat([run.confidence, other]))
    mine, theirs = (find_threshold(run, replace(PENALTY, method=name)) for name in ("mine", "other"))
    assert mine.halves == theirs.halves
    assert set(theirs.table["question_id"]) < set(mine.table["question_id"]) == mine.halves.second


# --- Choice of a threshold


def test_threshold_choice_matches_stats_on_the_first_half():
    run = planted()
    for_utility, bounded = (find_threshold(run, options) for options in (PENALTY, MAX_ERROR))
    (score, wrong), (other, _) = halves_arrays(run, for_utility)
    assert for_utility.selected == utility_threshold(score, ~wrong, 3)
    grid = np.quantile(other, np.arange(CUTS) / CUTS, method="inverted_cdf")
    assert bounded.selected == risk_controlling_threshold(score, wrong, 0.2, grid=grid, confidence_level=BOUND_LEVEL)
    assert bounded.selected.cut in other


@pytest.mark.parametrize("options", [PENALTY, MAX_ERROR], ids=["utility", "bound"])
def test_cut_depends_only_on_grades_of_the_first_half(options):
    run = planted()
    found = find_threshold(run, options)
    other = pl.when(in_half(found.halves.second)).then(~pl.col("wrong")).otherwise("wrong")
    turned = find_threshold(with_scores(run, wrong=other), options)
    assert turned.selected == found.selected
    assert turned.points[0].error_rate != found.points[0].error_rate
    own = pl.when(in_half(found.halves.first)).then(~pl.col("wrong")).otherwise("wrong")
    assert find_threshold(with_scores(run, wrong=own), options).selected != found.selected


def test_utility_choice_ignores_scores_of_the_second_half():
    run = planted()
    found = find_threshold(run, PENALTY)
    other = pl.when(in_half(found.halves.second)).then(pl.col("confidence") / 2).otherwise("confidence")
    assert find_threshold(with_scores(run, confidence=other), PENALTY).selected == found.selected


def test_different_seed_gives_a_different_split():
    run = planted()
    first, again, other = (find_threshold(run, replace(PENALTY, seed=seed)) for seed in (1, 1, 2))
    assert first.to_document() == again.to_document()
    assert first.halves != other.halves


# --- The threshold report


def test_threshold_report_matches_stats_on_the_second_half():
    run = planted()
    found = find_threshold(run, PENALTY)
    _, (score, wrong) = halves_arrays(run, found)
    cut, low, high, every = found.points
    report = selective_report(score, ~wrong, found.selected.cut, penalty=3)
    assert cut.coverage == report.coverage
    assert cut.error_rate == report.error_rate
    assert cut.utility == report.utility
    assert (cut.kind, low.kind, low.variant, high.variant, every.kind) == (
        "score",
        *("refusals", "low", "high", "answer_all"),
    )
    refused = run.tables["low"].filter(in_half(found.halves.second))["refused"].to_numpy()
    table = ContingencyTable.from_arrays(refused, wrong)
    assert low.utility == utility(table, 3)
    assert low.coverage.estimate == pytest.approx(1 - refused.mean())
    assert low.error_rate.estimate == pytest.approx(wrong[~refused].mean())
    assert every.coverage.estimate == 1
    assert every.error_rate.estimate == pytest.approx(wrong.mean())


def test_differences_are_paired_question_by_question():
    run = planted()
    found = find_threshold(run, PENALTY)
    _, (score, wrong) = halves_arrays(run, found)
    refused = run.tables["low"].filter(in_half(found.halves.second))["refused"].to_numpy()
    worth = np.where(wrong, -3.0, 1.0)
    apart = worth * (score >= found.selected.cut) - worth * ~refused
    difference = found.points[1].difference
    error = apart.std() / math.sqrt(apart.size)
    assert difference.utility.estimate == pytest.approx(apart.mean(), abs=1e-12)
    assert difference.utility.low == pytest.approx(apart.mean() - 1.959964 * error, abs=1e-6)
    assert difference.utility.high == pytest.approx(apart.mean() + 1.959964 * error, abs=1e-6)
    assert difference.coverage.estimate == pytest.approx(
        (score >= found.selected.cut).mean() - (~refused).mean(), abs=1e-12
    )
    own, theirs = wrong[score >= found.selected.cut].mean(), wrong[~refused].mean()
    assert difference.error_rate.estimate == pytest.approx(own - theirs, abs=1e-12)
    assert difference.error_rate.low < own - theirs < difference.error_rate.high


def test_rules_that_answer_the_same_questions_are_named_not_compared():
    run, options = planted(), ThresholdOptions(max_error=0.25)
    below = run.confidence.select("question_id", below=pl.col("confidence") < find_threshold(run, options).selected.cut)
    same = run.tables["low"].join(below, on="question_id", maintain_order="left").with_columns(refused="below")
    found = find_threshold(run.with_tables({**run.tables, "low": same.drop("below")}), options)
    ways = [("score", None), ("refusals", "low"), ("refusals", "high"), ("answer_all", None)]
    assert [(point.kind, point.variant) for point in found.points] == ways
    assert [point.difference is None for point in found.points] == [True, True, False, False]
    assert "answers the same questions as the model's refusals under low." in str(found)
    none = find_threshold(run, ThresholdOptions(max_error=0.9))  # a limit so high that nothing is refused
    (all_of_them,) = (point for point in none.points if point.kind == "answer_all")
    assert (none.points[0].coverage.estimate, all_of_them.difference) == (1, None)
    assert "answers the same questions as" in str(none)


def test_question_without_first_grade_is_excluded_from_that_variant_only():
    run = planted()
    lacking = pl.when(pl.col("question_id") < "q00100").then(None).otherwise("refused")
    table = run.tables["low"].with_columns(refused=lacking)
    found = find_threshold(run.with_tables({**run.tables, "low": table}), PENALTY)
    cut, low, high, _ = found.points
    assert low.questions < high.questions == cut.questions
    assert low.difference is not None


def test_refused_unanswerable_questions_with_a_score_are_errors_of_answering_everything():
    rows = [
        {"question_id": str(number), "refused": number % 3 == 0, "wrong": number % 3 == 0 or number % 5 == 0}
        | {"confidence": number / 100, "answerable": number % 3 != 0, "schema_version": 1}
        for number in range(1, 91)
    ]
    (run,) = runs_of_table(HERE, read_outcomes(rows), {})
    chosen = find_threshold(run, ThresholdOptions(penalty=1))
    assert not [one for one in chosen.statements if one.code == "unanswerable_left_out"]
    answer_all = chosen.points[-1]
    other_half = [row for row in rows if row["question_id"] in chosen.halves.second]
    assert answer_all.kind == "answer_all"
    assert answer_all.questions == len(other_half)
    assert answer_all.error_rate.estimate == pytest.approx(sum(row["wrong"] for row in other_half) / len(other_half))


def test_threshold_report_accounts_for_clusters_and_weights():
    run = planted()
    plain = find_threshold(run, PENALTY)
    cluster = pl.col("question_id").str.slice(1).cast(pl.Int64) // 20
    weight = pl.when(pl.col("question_id") < "q00300").then(3.0).otherwise(1.0)
    tables = {name: one.with_columns(cluster=cluster.cast(pl.String)) for name, one in run.tables.items()}
    clustered = find_threshold(run.with_tables(tables), PENALTY)
    tables = {name: one.with_columns(weight=weight) for name, one in run.tables.items()}
    weighted = find_threshold(run.with_tables(tables), PENALTY)
    assert weighted.selected == plain.selected
    assert weighted.points[0].utility.estimate != plain.points[0].utility.estimate
    assert "numbers below are weighted" in str(weighted)
    part = clustered.run.tables["low"].filter(in_half(clustered.halves.second))
    score = run.confidence.filter(in_half(clustered.halves.second))
    table = SampledTable.from_arrays(
        score["confidence"].to_numpy() < clustered.selected.cut,
        score["wrong"].to_numpy(),
        cluster=part["cluster"].to_numpy(),
    )
    expected = {metric.name: metric for metric in metrics(table, weighted_score_p=0.75)}
    worth = clustered.points[0]
    assert worth.utility.estimate == pytest.approx(utility(_counts(table), 3).estimate)
    assert worth.utility.low == pytest.approx(4 * expected["weighted_score"].low)
    assert worth.coverage.high == pytest.approx(1 - expected["refusal_rate"].low)
    assert worth.error_rate.low == pytest.approx(1 - expected["correct_given_attempted"].high)
    bounded = find_threshold(run.with_tables(clustered.run.tables), MAX_ERROR)
    assert "30 clusters, none of which is in both halves" in " ".join(str(bounded).split())


def _counts(table: SampledTable) -> ContingencyTable:
    return ContingencyTable(*(round(count) for count in table.counts))


def values_of(found: Threshold) -> dict[str, Mapping[str, Any]]:
    """Return the values of each statement by its code."""
    return {statement.code: statement.values for statement in found.statements}


def test_threshold_states_the_bound_and_the_observed_error_rate():
    found = find_threshold(planted(), MAX_ERROR)
    stated = values_of(found)
    assert next(iter(stated)) == "error_bound"
    assert to_text(threshold_blocks(found)).startswith(f"Answer at {found.rule}: ")
    rate = found.points[0].error_rate
    assert stated["error_bound"] == {
        "name": "mine",
        "rule": found.rule,
        "level": 0.9,
        "max_error": 0.2,
        "chosen": False,
        "seen": rate,
    }
    assert stated["judged_on_other_half"] == {"level": 0.95, "price": 1}
    confident = values_of(find_threshold(planted(3000), replace(MAX_ERROR, confidence_level=0.99)))
    assert confident["error_bound"]["level"] == confident["judged_on_other_half"]["level"] == 0.99


def test_threshold_text_says_which_rules_have_lower_utility():
    text = " ".join(str(find_threshold(planted(2000), PENALTY)).split())
    assert "which is optimistic" in text
    others = "the model's refusals under low, the model's refusals under high and answering everything"
    assert f"the threshold has a higher utility than {others}." in text


@pytest.mark.parametrize(
    ("penalty", "share", "words"), [(0, 1.0, "Answering everything was"), (1e6, 0.0, "Refusing everything was")]
)
def test_answering_or_refusing_everything_can_be_chosen(penalty, share, words):
    run = with_scores(planted(), wrong=pl.col("question_id") > "q00010") if share == 0 else planted()
    run = with_scores(run, confidence=pl.col("confidence").rank("ordinal", seed=0) / 600) if share == 0 else run
    if share == 0:  # the highest score is wrong
        run = with_scores(run, wrong=(pl.col("confidence") > 0.5) | (pl.col("question_id") > "q00010"))
    found = find_threshold(run, ThresholdOptions(penalty=penalty))
    assert found.selected.status == "boundary"
    assert found.points[0].coverage.estimate == share
    assert str(found).startswith(words)
    assert ("answer_all" in {point.kind for point in found.points}) == (share == 0)
    assert found.to_document()["cut"] is None
    assert found.table["refused"].mean() == 1 - share
    assert found.rule in found.table["model"][0]


def test_more_questions_can_find_a_threshold_even_if_observed_rate_is_above_limit():
    few = find_threshold(planted(200), ThresholdOptions(max_error=0.15))
    first = few.selected.tested[0]
    assert first.n_errors / first.n_answered > 0.15
    assert "with more questions, they could be tested" in str(few)
    assert find_threshold(planted(1200), ThresholdOptions(max_error=0.15)).selected.cut is not None


@pytest.mark.parametrize(
    ("n", "max_error", "reason", "words"),
    [
        (600, 0.001, "too_few_questions", "too few to show even half that share with 90% confidence"),
        (600, 0.05, "no_cut_holds", "with more questions, they could be tested"),
    ],
)
def test_missing_valid_cut_is_reported_as_undefined_with_a_reason(n, max_error, reason, words):
    run = with_scores(planted(n), confidence=1 - pl.col("confidence"))
    found = find_threshold(run, ThresholdOptions(max_error=max_error))
    assert (found.selected.status, found.selected.reason, found.rule, found.table) == ("undefined", reason, None, None)
    assert [point.kind for point in found.points] == ["refusals", "refusals", "answer_all"]
    assert all(point.difference is None for point in found.points)
    assert words in str(found)
    assert found.to_document()["cut"] is None
    with pytest.raises(ConfidenceError, match="there is no threshold"):
        found.write("x.parquet")


def test_answers_without_score_or_grade_are_unscored_in_the_virtual_run():
    number = pl.col("question_id").str.slice(1).cast(pl.Int64)
    run = with_scores(
        planted(),
        confidence=pl.when(number % 10 == 0).then(None).otherwise("confidence"),
        wrong=pl.when(number % 10 == 1).then(None).otherwise("wrong"),
    )
    found = find_threshold(run, PENALTY)
    assert "mine: no score in 60 of 600 replies, no grade for 60 answers; they are excluded" in str(found)
    document = found.to_document()
    assert document["chosen_on"] + document["judged_on"] == 480
    assert (document["without_score"], document["without_grade"]) == (60, 60)
    table = found.table.with_columns(number=number)
    no_score, no_grade = (table.filter(pl.col("number") % 10 == place) for place in (0, 1))
    assert set(no_score["unscored_reason"]) == {"no_score"}
    assert no_score["refused"].null_count() == no_score["wrong"].null_count() == no_score.height
    assert no_grade["refused"].null_count() == 0
    assert set(no_grade.filter("refused")["unscored_reason"]) == {"forced_not_graded"}
    assert set(no_grade.filter(~pl.col("refused"))["unscored_reason"]) == {"first_not_graded"}
    assert set(no_grade.filter(~pl.col("refused"))["first_grade"]) == {"unscored"}
    assert found.points[0].questions == table.height - no_score.height - no_grade.height


def test_threshold_says_a_method_was_trained_on_both_halves():
    run = planted()
    assert "trained_on_both_halves" not in values_of(find_threshold(run, PENALTY))
    trained = values_of(find_threshold(with_scores(run, fold=pl.lit(1)), PENALTY))["trained_on_both_halves"]
    assert (trained["name"], trained["reason"]) == ("mine", "its scores come from elsewhere")


# --- The virtual run


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "csv.gz"])
def test_virtual_run_is_an_outcome_table_of_the_second_half(tmp_path, suffix):
    run = planted()
    found = find_threshold(run, PENALTY)
    assert read_outcomes(found.write(tmp_path / f"virtual.{suffix}")).equals(found.table)
    assert set(found.table["question_id"]) == found.halves.second
    joined = found.table.join(run.confidence, on="question_id", suffix="_scored")
    assert (joined["refused"] == (joined["confidence"] < found.selected.cut)).all()
    assert (joined["wrong"] == joined["wrong_scored"]).all()
    assert joined["topic"].null_count() == 0
    assert found.table["model"].unique().to_list() == [f"m, {found.rule}"]
    assert found.table["variant"].null_count() == found.table.height


def test_question_scoring_exactly_the_cut_is_answered_in_the_virtual_run():
    run = with_scores(planted(), pl.col("confidence").round(1))
    found = find_threshold(run, PENALTY)
    tied = found.table.join(run.confidence, on="question_id").filter(pl.col("confidence") == found.selected.cut)
    assert tied.height > 0
    assert not tied["refused"].any()


def test_question_columns_are_kept_from_any_variant():
    run = planted()
    columns = [pl.lit("why?").alias("question"), pl.lit("so").alias("gold"), pl.lit(2.0).alias("weight")]
    tables = {"low": run.tables["low"], "high": run.tables["high"].with_columns(columns)}
    table = find_threshold(run.with_tables(tables), PENALTY).table
    assert table.select("question", "gold", "weight").unique().rows() == [("why?", "so", 2.0)]


def test_virtual_run_has_replies_only_for_scores_of_counted_answers(tmp_path):
    run = planted(variants=(None,))
    (own,) = run.tables.values()
    table = own.with_columns(
        first_reply=pl.when(~pl.col("refused")).then(pl.lit("free")),
        forced_reply=pl.when("refused").then(pl.lit("forced")),
        confidence=run.confidence["confidence"],
    )
    write_outcomes(table, tmp_path / "others.parquet")
    (read,) = read_runs([tmp_path / "others.parquet"])
    found = find_threshold(read, ThresholdOptions(penalty=1))
    assert found.answers.method == "confidence"
    both = found.table.join(own, on="question_id", suffix="_own")
    columns = pl.when("refused_own").then(pl.lit("forced")).otherwise(pl.lit("free"))
    expected = both.select(
        first_reply=pl.when(~pl.col("refused")).then(columns), forced_reply=pl.when("refused").then(columns)
    )
    assert both.select("first_reply", "forced_reply").equals(expected)
    of_forced = with_scores(run, **{"pass": pl.lit("forced")})
    table = find_threshold(of_forced.with_tables({None: table.drop("confidence")}), PENALTY).table
    assert table["first_reply"].null_count() == table["forced_reply"].null_count() == table.height


def test_a_run_without_variants_is_compared_with_each_variant_of_another(tmp_path):
    run = planted(2000)
    found = find_threshold(run, PENALTY)
    (virtual,) = read_runs([found.write(tmp_path / "virtual.parquet")])
    pair = compare_pair((run, virtual), Analysis())
    assert [variant.name for variant in pair.variants] == ["low", "high"]
    assert all(variant.match.paired for variant in pair.variants)
    (only,) = compare_pair((run, virtual), Analysis(variant="high")).variants
    assert only.comparison == pair.variants[1].comparison
    alone = compare_pair((run.with_tables({"high": run.tables["high"]}), virtual), Analysis())
    assert alone.variants[0].comparison == pair.variants[1].comparison
    assert pair.joint.estimate < 0
    assert pair.joint.pvalue < 1e-6
    both = compare_pair((virtual, virtual), Analysis())
    assert [variant.name for variant in both.variants] == ["all"]


@pytest.mark.parametrize(
    ("cut", "scores", "shown"),
    [
        (0.61834, [0.2, 0.61834, 0.7], "0.618"),
        (2 / 3, [1 / 3, 2 / 3], "0.6666"),
        (0.5, [0.25, 0.5], "0.50"),
        (0.9999991, [0.9999989, 0.9999991], "0.999999"),
        (1.0, [0.9999999, 1.0], "1.00"),
        (0.1 + 0.2, [0.3, 0.1 + 0.2], "0.30000000000000004"),
        (0.00001234, [0.0, 0.00001234], "0.00001"),
    ],
)
def test_cut_is_shown_with_as_few_digits_as_give_the_same_answers(cut, scores, shown):
    rows = pl.DataFrame({"confidence": scores})
    assert rule_of(ScoredAnswers("s", None, rows, is_trained=False), cut) == f"s >= {shown}"
    assert [score >= float(shown) for score in scores] == [score >= cut for score in scores]


# --- Which scores are used


def test_scores_that_differ_by_variant_require_choosing_one():
    run = planted()
    by_variant = [run.confidence.with_columns(variant=pl.lit(name, pl.String)) for name in ("low", "high")]
    several = replace(run, scores=pl.concat(by_variant))
    with pytest.raises(ConfidenceError, match=r"scores of mine differ between prompts; name one of low, high"):
        find_threshold(several, PENALTY)
    with pytest.raises(ConfidenceError, match=r"got 'hihg'; did you mean 'high'"):
        find_threshold(several, replace(PENALTY, variant="hihg"))
    found = find_threshold(several, replace(PENALTY, variant="high"))
    assert found.table["variant"].unique().to_list() == ["high"]
    assert found.rule.startswith("mine (high) >= ")
    assert [point.variant for point in found.points] == [None, "low", "high", None]
    with pytest.raises(ConfidenceError, match="apply to all prompts, got 'low'; leave it out"):
        find_threshold(run, replace(PENALTY, variant="low"))


def test_unknown_method_error_lists_available_methods():
    run = planted()
    two = pl.concat([run.confidence, run.confidence.with_columns(method=pl.lit("yours"))])
    for given, columns in (
        (None, "name one of mine, yours"),
        ("yuors", "expected one of mine, yours .*did you mean 'yours'"),
    ):
        with pytest.raises(ConfidenceError, match=f"method: {columns}"):
            scored_answers(replace(run, scores=two), given)
    assert scored_answers(run).method == "mine"


def test_first_draw_counts_and_mixed_passes_are_rejected():
    run = planted()
    later = run.confidence.with_columns(draw=pl.lit(1, pl.Int64), confidence=1 - pl.col("confidence"))
    assert (
        scored_answers(replace(run, scores=pl.concat([later, run.confidence])))
        .rows["confidence"]
        .equals(run.confidence["confidence"])
    )
    other = run.confidence.with_columns(pl.lit("probe").alias("pass"))
    with pytest.raises(ConfidenceError, match=r"of one pass, got those of forced, probe"):
        scored_answers(replace(run, scores=pl.concat([run.confidence, other])))
    halves = pl.concat([run.confidence[:300], other[300:]])
    with pytest.raises(ConfidenceError, match=r"of one pass, got those of forced, probe"):
        scored_answers(replace(run, scores=halves))


def test_scores_of_questions_not_in_the_run_are_rejected():
    run = planted()
    tables = {name: one.filter(pl.col("question_id") >= "q00010") for name, one in run.tables.items()}
    with pytest.raises(
        ConfidenceError, match="scores of 10 questions that are not in its outcomes, the first of 'q00000'"
    ):
        scored_answers(run.with_tables(tables))


def test_missing_scores_error_says_how_to_create_them(tmp_path):
    run = planted()
    for none in (None, run.confidence.clear()):
        with pytest.raises(RunFolderError, match=r"has no scores yet; 'refusal-index confidence .*'"):
            scored_answers(replace(run, scores=none))
    (table,) = runs_of_table(tmp_path / "t.csv", run.tables["low"], {})
    with pytest.raises(OutcomeTableError, match=r"t\.csv: expected the columns 'confidence'"):
        scored_answers(table)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"confidence": pl.lit(0.5)}, "expected scores that differ, got 0.5 for all 600 answers"),
        ({"wrong": pl.lit(value=True)}, "expected right and wrong answers, got 600 that are all wrong"),
        ({"wrong": pl.lit(value=False)}, "expected right and wrong answers, got 600 that are all right"),
        ({"confidence": pl.lit(None, pl.Float64)}, "got none: no score in 600 of 600 replies"),
        ({"wrong": pl.lit(None, pl.Boolean)}, "expected answers with a score and a grade, got none"),
    ],
)
def test_uninformative_scores_are_rejected(changed, message):
    for options in (PENALTY, MAX_ERROR):
        with pytest.raises(ConfidenceError, match=message):
            find_threshold(with_scores(planted(), **changed), options)


def test_answers_in_only_one_half_are_rejected():
    run = planted()
    found = find_threshold(run, PENALTY)
    right, wrong = (
        run.confidence.filter(in_half(found.halves.first) & (pl.col("wrong") == value)).head(1)
        for value in (False, True)
    )
    with pytest.raises(ConfidenceError, match="in both halves of the questions, got 2 in total and none in one half"):
        find_threshold(replace(run, scores=pl.concat([right, wrong])), PENALTY)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "expected penalty or max_error, got neither"),
        ({"penalty": 1, "max_error": 0.1}, "got penalty and max_error"),
        ({"penalty": -1}, "penalty: expected a number from 0"),
        ({"penalty": math.inf}, "penalty: expected a number from 0"),
        ({"penalty": math.nan}, "penalty: expected a number from 0"),
        ({"max_error": 10}, "max_error: expected a number above 0 and below 1, got 10; is it a percentage"),
        ({"max_error": math.nan}, "max_error: expected"),
        ({"penalty": 1, "confidence_level": 95}, "confidence_level: expected"),
    ],
)
def test_invalid_threshold_options_are_rejected(given, message):
    with pytest.raises(ConfidenceError, match=message):
        ThresholdOptions(**given)


def test_threshold_frame_and_document_contain_unrounded_numbers():
    found = find_threshold(planted(), MAX_ERROR)
    frame, document = found.to_frame(), found.to_document()
    assert frame.height == 3 * len(found.points) == 3 * len(document["points"])
    row = frame.filter(kind="refusals", variant="low", measure="error_rate").row(0, named=True)
    assert row["estimate"] == document["points"][1]["error_rate"]["estimate"]
    assert row["difference_high"] == document["points"][1]["difference"]["error_rate"]["high"]
    assert document["tested"][-1].keys() == {"cut", "n_answered", "n_errors", "upper_bound"}
    assert document["cut"] == found.selected.cut


# --- The choice of the method


def several(seed: int = 0, n: int = 600) -> RunResults:
    """Make a run with four methods: the planted one, two noisier ones, and one that gives the same score to all."""
    run = planted(n, seed)
    rng = np.random.default_rng([seed, 1])
    noisy = [
        run.confidence.with_columns(
            method=pl.lit(name), confidence=pl.Series(np.clip(run.confidence["confidence"] + noise, 0, 1))
        )
        for name, noise in (("noisy", rng.normal(0, 0.3, n)), ("noisier", rng.normal(0, 1, n)))
    ]
    same = run.confidence.with_columns(method=pl.lit("same"), confidence=pl.lit(0.5))
    return replace(run, scores=pl.concat([noisy[1], run.confidence, noisy[0], same]))


ANY_PENALTY = ThresholdOptions(penalty=3)
ANY_LIMIT = ThresholdOptions(max_error=0.2)


@pytest.mark.parametrize("options", [ANY_PENALTY, ANY_LIMIT])
def test_definition_best_method_on_its_half_is_chosen_and_thresholded_like_a_fixed_one(options):
    run = several()
    found = find_threshold(run, options)
    half = found.halves.first if options.max_error is None else found.halves.second
    by_method = {
        name: run.confidence.filter(in_half(half), method=name) for name in ("noisier", "mine", "noisy", "same")
    }
    areas = {
        name: auroc(rows["confidence"].to_numpy(), ~rows["wrong"].to_numpy()).estimate
        for name, rows in by_method.items()
    }
    assert {candidate.answers.method: candidate.auroc for candidate in found.candidates} == areas
    assert [candidate.answers.method for candidate in found.candidates if candidate.left_out] == ["same"]
    assert found.answers.method == max(areas, key=areas.get) == "mine"
    fixed = find_threshold(run, replace(options, method="mine"))
    assert (found.selected, found.points, fixed.candidates) == (fixed.selected, fixed.points, ())
    if options.max_error is None:
        utilities = [
            utility_threshold(rows["confidence"].to_numpy(), ~rows["wrong"].to_numpy(), 3).utility
            for rows in by_method.values()
        ]
        assert [candidate.utility for candidate in found.candidates] == utilities


@pytest.mark.parametrize("options", [ANY_PENALTY, ANY_LIMIT])
def test_property_method_does_not_depend_on_grades_of_the_half_that_did_not_choose(options):
    for seed in range(10):
        run = several(seed, n=100)
        found = find_threshold(run, options)
        other = found.halves.second if options.max_error is None else found.halves.first
        turned = with_scores(run, wrong=pl.col("wrong") ^ in_half(other))
        assert find_threshold(turned, options).answers.method == found.answers.method
        assert [candidate.auroc for candidate in find_threshold(turned, options).candidates] == [
            candidate.auroc for candidate in found.candidates
        ]


def test_named_methods_are_the_only_candidates():
    found = find_threshold(several(), replace(ANY_LIMIT, method=("noisy", "noisier")))
    assert [candidate.answers.method for candidate in found.candidates] == ["noisy", "noisier"]
    assert found.answers.method == "noisy"
    with pytest.raises(ConfidenceError, match="did you mean 'noisier'"):
        find_threshold(several(), replace(ANY_LIMIT, method=("noisy", "noiser")))


def test_prompts_are_candidates_too():
    run = planted()
    by_variant = [
        run.confidence.with_columns(variant=pl.lit(name, pl.String), confidence=score)
        for name, score in (("low", 1 - pl.col("confidence")), ("high", pl.col("confidence")))
    ]
    every = replace(run, scores=pl.concat([*by_variant, run.confidence.with_columns(method=pl.lit("other"))]))
    found = find_threshold(every, ANY_LIMIT)
    assert [candidate.answers.name for candidate in found.candidates] == ["mine (low)", "mine (high)", "other"]
    assert "among 3 methods and prompts" in str(found)
    low = find_threshold(every, replace(ANY_LIMIT, variant="low"))
    assert [candidate.answers.name for candidate in low.candidates] == ["mine (low)", "other"]
    with pytest.raises(ConfidenceError, match=r"variant: expected one of low, high, got 'hihg'"):
        find_threshold(every, replace(ANY_LIMIT, variant="hihg"))


def test_methods_with_few_scores_or_trained_elsewhere_are_left_out_with_a_reason():
    run = several()
    few = run.confidence.filter(pl.col("question_id") < "q00200", method="mine").with_columns(method=pl.lit("few"))
    trained = run.confidence.filter(method="mine").with_columns(method=pl.lit("trained"), fold=pl.lit(0, pl.Int64))
    rest = run.confidence.filter(pl.col("method") != "mine")
    found = find_threshold(replace(run, scores=pl.concat([few, trained, rest])), ANY_LIMIT)
    assert found.answers.method == "noisy"
    chosen = values_of(found)["method_chosen"]
    assert (chosen["name"], chosen["count"], chosen["questions"], chosen["by_utility"]) == ("noisy", 2, 300, False)
    few_scores = (["few"], "too few scores")
    assert chosen["left_out"] == [
        few_scores,
        (["trained"], "not trained on one half: its scores come from elsewhere"),
        (["same"], "all scores are the same"),
    ]
    assert all(reason in " ".join(str(found).split()) for _, reason in chosen["left_out"])
    single = find_threshold(replace(run, scores=pl.concat([few, run.confidence.filter(method="mine")])), ANY_LIMIT)
    chosen = values_of(single)["method_chosen"]
    assert (chosen["name"], chosen["count"], chosen["left_out"]) == ("mine", 1, [few_scores])
    only = replace(run, scores=pl.concat([trained, run.confidence.filter(method="same")]))
    with pytest.raises(ConfidenceError, match="expected one that can be chosen on half of the questions, got none"):
        find_threshold(only, ANY_LIMIT)


def test_bound_after_a_choice_says_what_was_done():
    limited = values_of(find_threshold(several(), ANY_LIMIT))
    assert limited["error_bound"]["chosen"]
    assert limited["judged_where_chosen"]["name"] == "mine"
    paid = values_of(find_threshold(several(), ANY_PENALTY))
    chosen = paid["method_chosen"]
    assert (chosen["name"], chosen["count"], chosen["questions"], chosen["by_utility"]) == ("mine", 3, 300, True)
    assert "judged_where_chosen" not in paid
    document = find_threshold(several(), ANY_PENALTY).to_document()
    assert [candidate["method"] for candidate in document["candidates"]] == ["noisier", "mine", "noisy", "same"]
    assert document["candidates"][3]["left_out"] == "all scores are the same"


def test_simulation_limit_holds_after_choosing_among_twelve_methods():
    limit = simulation.Limit(simulation.Methods((0.5,) * 12, 0.0), 200, 0.21, 0.2)
    rows = list(simulation.limit_rows(limit, 60, np.random.default_rng(1)))
    exceeded = {row.scenario.rpartition(", method ")[2]: row for row in rows if row.quantity == "limit exceeded"}
    assert exceeded["chosen on the other half"].holds
    contrast = next(row for row in rows[::-1] if row.quantity == "limit exceeded")
    assert contrast.value > 0.2  # the same methods, chosen on the questions that set the threshold


# --- The error bound


PROFILES = {
    "steep": lambda score: 1 - score,  # the error rate at a cut c is (1 - c) / 2
    "at the bound": lambda score: np.where(score < 0.5, 0.5, 0.2),  # any cut above .5 has an error rate of exactly .2
    "just above it": lambda score: np.where(score < 0.5, 0.5, 0.22),  # no cut has an error rate of .2 or less
}


def rate_above(profile: str, cut: float) -> float:
    scores = np.linspace(cut, 1, 20_001)
    return float(PROFILES[profile](scores).mean())


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("coarse", [False, True], ids=["continuous", "ten values"])
@pytest.mark.parametrize("profile", PROFILES)
def test_error_bound_holds_with_stated_confidence_in_simulation(profile, coarse):
    """The true rate at the cut exceeds the bound in at most 10% of choices, and intervals have nominal coverage."""
    times, n, bound = 400, 500, 0.2
    broken = covered = found_some = 0
    for seed in range(times):
        rng = np.random.default_rng([17, seed])
        score = rng.random(n)
        wrong = rng.random(n) < PROFILES[profile](score)
        given = np.floor(10 * score) / 10 if coarse else score
        ids = [f"q{number}" for number in range(n)]
        table = rows(ids, refused=rng.random(n) < 0.3, wrong=wrong, variant="low")
        run = RunResults.of_tables("m", HERE, "m", "d", {"low": table}, {}, scores_of(ids, given, wrong))
        found = find_threshold(run, ThresholdOptions(max_error=bound, seed=seed))
        if found.selected.cut is None:
            continue
        found_some += 1
        true = rate_above(profile, math.ceil(10 * found.selected.cut - 1e-9) / 10 if coarse else found.selected.cut)
        broken += true > bound + 1e-9
        rate = found.points[0].error_rate
        covered += rate.low <= true <= rate.high
    print(f"{profile}, {coarse}: found {found_some / times:.3f}, broken {broken / times:.3f}, covered {covered}")
    slack = 3 * math.sqrt(0.1 * 0.9 / times)
    assert broken / times <= 0.1 + slack
    assert covered >= (0.95 - 3 * math.sqrt(0.05 * 0.95 / max(found_some, 1))) * found_some
    if profile == "steep":
        assert found_some > 0.6 * times  # in the rest, the first cut tested has too many errors by chance


@others_nightly("seed", range(4))
def test_error_bound_holds_for_single_splits(seed):
    found = find_threshold(planted(3000, seed), replace(MAX_ERROR, seed=seed))
    assert (1 - found.selected.cut) / 2 <= 0.2
    assert found.points[0].coverage.estimate > 0.3
