"""Clusters and weights in outcome tables: read, validated, matched, summarised and shown."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from refusal_index.data.analysis import Analysis
from refusal_index.data.outcome_table import Sampling, read_outcomes, read_tables, write_outcomes
from refusal_index.data.rates import outcome_matrix
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.comparison import compare_pair
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_results import read_runs
from refusal_index.findings.summary import summarise
from refusal_index.render.comparison import pair_blocks
from refusal_index.render.format import to_text
from refusal_index.render.summary import summary_blocks, summary_document
from refusal_index.stats import METRIC_NAMES, SampledTable, compare_joint, compare_metrics, metrics, rank_runs

N = 400


def rows(seed: int = 0, **columns) -> pl.DataFrame:
    """Outcomes of 400 questions in 40 families of ten, with their share of a population."""
    rng = np.random.default_rng(seed)
    family = np.arange(N) // 10
    difficulty = np.random.default_rng(99).standard_normal(40)[family] + np.random.default_rng(98).standard_normal(N)
    refused = difficulty + rng.standard_normal(N) > 0
    frame = pl.DataFrame(
        {
            "question_id": [f"q{number}" for number in range(N)],
            "refused": refused,
            "wrong": difficulty > -0.5,
            "family": [f"family {number}" for number in family],
            "population": 1.0 + np.arange(N) % 3,
        }
    )
    return frame.with_columns(**columns)


def direct(frame: pl.DataFrame, **names: str) -> tuple:
    given = {name: frame[column].to_numpy() for name, column in names.items()}
    return metrics(SampledTable.from_arrays(frame["refused"].to_numpy(), frame["wrong"].to_numpy(), **given))


def numbers(estimates) -> list[tuple]:
    return [(estimate.estimate, estimate.low, estimate.high) for estimate in estimates]


def test_any_column_may_name_clusters_and_weights() -> None:
    sampling = Sampling("family", "population")
    (variant,) = summarise(read_outcomes(rows(), sampling), Analysis(sampling=sampling)).variants
    assert numbers(variant.metrics[: len(METRIC_NAMES)]) == numbers(
        direct(rows(), cluster="family", weight="population")
    )
    found = variant.sampling
    assert (found.cluster, found.weight, found.clusters) == ("family", "population", 40)
    assert found.degrees_of_freedom == pytest.approx(39, abs=0.5)
    assert found.effective_questions < found.effective_by_weight < N


def test_cluster_and_weight_columns_are_used_by_default() -> None:
    table = read_outcomes(rows().rename({"family": "cluster", "population": "weight"}))
    (variant,) = summarise(table).variants
    assert numbers(variant.metrics[: len(METRIC_NAMES)]) == numbers(
        direct(rows(), cluster="family", weight="population")
    )
    assert (variant.sampling.cluster, variant.sampling.weight) == ("cluster", "weight")


def test_results_are_unchanged_without_clusters_and_weights() -> None:
    (variant,) = summarise(read_outcomes(rows())).variants
    assert variant.sampling is None
    assert numbers(variant.metrics[: len(METRIC_NAMES)]) == numbers(metrics(variant.table))
    assert "clusters" not in to_text(summary_blocks(summarise(read_outcomes(rows()))))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "csv.gz"])
def test_clusters_and_weights_round_trip(suffix: str, tmp_path) -> None:
    table = read_outcomes(rows(), Sampling("family", "population"))
    write_outcomes(table, tmp_path / f"x.{suffix}")
    assert read_outcomes(tmp_path / f"x.{suffix}").equals(table)


def test_another_column_of_a_written_table_may_be_the_cluster(tmp_path) -> None:
    write_outcomes(read_outcomes(rows().rename({"family": "topic"})), tmp_path / "x.parquet")
    table = read_outcomes(tmp_path / "x.parquet", Sampling(cluster="topic"))
    assert table["cluster"].to_list() == table["topic"].to_list() == rows()["family"].to_list()


BAD = {
    "no such column": ({}, Sampling(cluster="kind"), "expected a column 'kind' for --cluster, got .*'family'"),
    "no such weights": ({}, Sampling(weight="share"), "expected a column 'share' for --weight"),
    "an empty column": (
        {"kind": None},
        Sampling(cluster="kind"),
        "column 'kind': expected a cluster for every question",
    ),
    "a negative weight": ({"weight": -1.0}, Sampling(), "row 1, column 'weight': expected a number from 0, got -1.0"),
    "an infinite weight": ({"weight": float("inf")}, Sampling(), "expected a number from 0, got inf"),
    "no number": ({"weight": "heavy"}, Sampling(), "row 1, column 'weight': expected a number, got 'heavy'"),
    "a cluster missing": ({"cluster": [None, *("a",) * (N - 1)]}, Sampling(), "row 1 has no cluster, and other"),
    "a weight missing": ({"weight": [*(1.0,) * (N - 1), None]}, Sampling(), "row 400 has no weight, and other"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_sampling_columns_are_named(case: str) -> None:
    columns, sampling, said = BAD[case]
    frame = rows(**{name: pl.Series(v) if isinstance(v, list) else pl.lit(v) for name, v in columns.items()})
    with pytest.raises(OutcomeTableError, match=said):
        read_outcomes(frame, sampling)


def test_weights_that_are_all_zero_are_refused() -> None:
    with pytest.raises(OutcomeTableError, match="row 1, column 'weight': all weights of its run are 0"):
        read_outcomes(rows(weight=pl.lit(0.0)))


def test_one_file_may_have_clusters_and_another_none(tmp_path) -> None:
    rows(model=pl.lit("a"), cluster=pl.col("family")).write_csv(tmp_path / "a.csv")
    rows(model=pl.lit("b")).write_csv(tmp_path / "b.csv")
    first, second = summarise(read_tables([tmp_path / "a.csv", tmp_path / "b.csv"])).variants
    assert (first.sampling.clusters, second.sampling) == (40, None)


def test_few_clusters_and_a_single_cluster_give_warnings() -> None:
    few = summarise(read_outcomes(rows(cluster=pl.col("population").cast(pl.String))))
    (variant,) = few.variants
    assert variant.caveats[0].code == "few_clusters"
    assert variant.caveats[0].values == {"clusters": 3, "column": "cluster", "limit": 30}
    (variant,) = summarise(read_outcomes(rows(cluster=pl.lit("all")))).variants
    assert variant.caveats[0].code == "one_cluster"
    assert variant.sampling.degrees_of_freedom is None
    assert variant.metric("refusal_index").reason == "one_cluster"
    assert variant.metric("refusal_index").estimate is not None


def test_weights_too_large_to_add_count_by_their_ratios() -> None:
    (large,), (small,) = (summarise(read_outcomes(rows(weight=pl.lit(w)))).variants for w in (1e308, 1.0))
    assert large.sampling.effective_by_weight == small.sampling.effective_by_weight == N
    for one, other in zip(large.metrics, small.metrics, strict=True):
        assert (one.estimate, one.low, one.high) == pytest.approx((other.estimate, other.low, other.high))


def test_weights_of_1e308_beside_1_are_one_line_of_error(tmp_path) -> None:
    weight = pl.when(pl.col("question_id") == "q7").then(1e308).otherwise(1.0)
    rows(weight=weight).write_csv(tmp_path / "a.csv")
    rows(seed=1, weight=weight).write_csv(tmp_path / "b.csv")
    text = (
        r"^column 'weight': weight must not differ between questions by a factor of more than 1e\+15, got 1 and 1e\+308"
    )
    with pytest.raises(OutcomeTableError, match=text):
        summarise(read_outcomes(tmp_path / "a.csv"))
    with pytest.raises(OutcomeTableError, match=text):
        compare_pair(read_runs([tmp_path / "a.csv", tmp_path / "b.csv"]), Analysis())


def test_few_questions_with_most_of_the_weight_give_a_caveat_in_score_and_compare(tmp_path) -> None:
    def weighted(largest: float) -> tuple[pl.DataFrame, pl.DataFrame]:
        weight = pl.when(pl.int_range(pl.len()) < 10).then(largest).otherwise(1.0)
        return rows(weight=weight), rows(seed=1, weight=weight)

    def weight_warnings(largest: float) -> tuple[list[str], list[str], dict[str, Any]]:
        for name, table in zip("ab", weighted(largest), strict=True):
            table.write_csv(tmp_path / f"{name}.csv")
        (variant,) = summarise(read_outcomes(tmp_path / "a.csv")).variants
        pair = compare_pair(read_runs([tmp_path / "a.csv", tmp_path / "b.csv"]), Analysis())
        (weights,) = (statement for statement in pair.statements if statement.code == "weights")
        return [caveat.code for caveat in variant.caveats], [weights.severity], weights.values

    codes, severities, values = weight_warnings(500.0)
    assert "few_dominate" in codes
    assert severities == ["serious"]
    kish = (10 * 500 + 390) ** 2 / (10 * 500**2 + 390)
    assert (values["worth"], values["few"]) == (pytest.approx(kish), True)
    assert values["in_cell"] < values["limit"]
    codes, severities, values = weight_warnings(2.0)
    assert "few_dominate" not in codes
    assert severities == ["scope"]
    kish = (10 * 2 + 390) ** 2 / (10 * 2**2 + 390)
    assert (values["worth"], values["few"]) == (pytest.approx(kish), False)


def test_sampling_design_is_shown_in_text_and_json() -> None:
    sampling = Sampling("family", "population")
    summary = summarise(read_outcomes(rows(), sampling), Analysis(sampling=sampling))
    text = " ".join(to_text(summary_blocks(summary)).split())
    assert "400 questions in 40 clusters (column 'family') with weights (column 'population'), equivalent to" in text
    document = json.loads(json.dumps(summary_document(summary)))["variants"][0]["sampling"]
    assert (document["cluster"], document["weight"], document["clusters"]) == ("family", "population", 40)


def test_first_pass_alone_uses_clusters() -> None:
    frame = rows(cluster=pl.col("family")).with_columns(
        wrong=pl.when("refused").then(None).otherwise("wrong"),
        unscored_reason=pl.when("refused").then(pl.lit("forced_not_asked")),
    )
    (variant,) = summarise(read_outcomes(frame)).variants
    whole = direct(rows(wrong=pl.col("wrong") | pl.col("refused")), cluster="family")
    assert numbers(variant.metrics[:8]) == numbers(whole[:8])
    assert variant.metrics[8].reason == variant.metrics[9].reason == "forced_not_asked"


def test_the_refusal_rate_of_a_first_pass_counts_answers_without_a_grade() -> None:
    ungraded = pl.int_range(pl.len()) % 3 > 0
    frame = rows(cluster=pl.col("family"), weight=pl.col("population")).with_columns(
        wrong=pl.when("refused").then(None).when(ungraded).then(None).otherwise("wrong"),
        unscored_reason=pl.when("refused")
        .then(pl.lit("forced_not_asked"))
        .when(ungraded)
        .then(pl.lit("first_not_graded")),
    )
    (variant,) = summarise(read_outcomes(frame)).variants
    whole = direct(rows(), cluster="family", weight="population")
    rate = next(one for one in whole if one.name == "refusal_rate")
    assert numbers([variant.metric("refusal_rate")]) == numbers([rate])
    assert variant.metric("correct_rate").reason == "first_not_graded"


def written(tmp_path, n: int, **columns):
    paths = [tmp_path / f"{name}.csv" for name in "abc"[:n]]
    for seed, path in enumerate(paths):
        rows(seed, **columns).write_csv(path)
    return paths


def test_comparisons_and_rankings_use_clusters_and_weights(tmp_path) -> None:
    sampling = Sampling("family", "population")
    options = Analysis(sampling=sampling)
    runs = read_runs(written(tmp_path, 3), Analysis(sampling=sampling))
    frames = [rows(seed) for seed in range(3)]
    refused, wrong = (np.stack([frame[name].to_numpy() for frame in frames]) for name in ("refused", "wrong"))
    design = {"cluster": frames[0]["family"].to_numpy(), "weight": frames[0]["population"].to_numpy()}
    two = compare_pair(runs[:2], options)
    expected = compare_metrics(refused[:2], wrong[:2], **design)
    found = two.variants[0].comparison
    for name in METRIC_NAMES:
        assert found[name].confidence_interval() == pytest.approx(expected[name].confidence_interval(), nan_ok=True)
    assert "The questions form 40 clusters (column 'family')." in to_text(pair_blocks(two))
    assert "weighted (column 'population') and equivalent to" in to_text(pair_blocks(two))
    assert two.to_document()["variants"][0]["sampling"]["clusters"] == 40
    ranked = rank(runs, options)
    assert ranked.ranking.critical_value == rank_runs(refused, wrong, rng=0, **design).critical_value
    assert ranked.to_document()["sampling"]["cluster"] == "family"


def test_joint_comparisons_use_clusters(tmp_path) -> None:
    for seed, name in enumerate("ab"):
        variants = [rows(10 * seed + place, variant=pl.lit(variant)) for place, variant in enumerate(("low", "high"))]
        pl.concat([variants[0], variants[1].reverse()]).write_csv(tmp_path / f"{name}.csv")
    sampling = Sampling(cluster="family")
    found = compare_pair(
        read_runs([tmp_path / "a.csv", tmp_path / "b.csv"], Analysis(sampling=sampling)), Analysis(sampling=sampling)
    )
    frames = [[rows(10 * seed + place) for place in range(2)] for seed in range(2)]
    refused, wrong = (
        np.array([[one[name].to_numpy() for one in run] for run in frames]) for name in ("refused", "wrong")
    )
    expected = compare_joint(refused, wrong, cluster=frames[0][0]["family"].to_numpy())
    assert found.joint.confidence_interval() == pytest.approx(expected.confidence_interval(), rel=1e-9)


def test_runs_that_disagree_about_a_cluster_are_refused() -> None:
    tables = [read_outcomes(rows(cluster=column)) for column in (pl.col("family"), pl.lit("other"))]
    with pytest.raises(OutcomeTableError, match=r"question_id 'q0' has the cluster 'family 0' in one run and 'other'"):
        outcome_matrix(tables)


def test_a_run_without_clusters_takes_those_of_the_other() -> None:
    tables = [read_outcomes(rows(cluster=pl.col("family"))), read_outcomes(rows())]
    assert outcome_matrix(tables).design["cluster"].tolist() == rows()["family"].to_list()
    more = read_outcomes(rows(question_id=pl.lit("r") + pl.col("question_id")))
    with pytest.raises(OutcomeTableError, match=r"question_id 'rq0' has no cluster, .*--cluster"):
        outcome_matrix([tables[0], more])


def two_draws(seed: int) -> pl.DataFrame:
    """Two draws of one model; every fourth question has `wrong` flipped, so that no index is 1."""
    wrong = pl.col("wrong") ^ (pl.int_range(pl.len()) % 4 == 0)
    draws = [rows(10 * seed + draw, draw=pl.lit(draw), wrong=wrong) for draw in range(2)]
    grade = pl.when("wrong").then(pl.lit("incorrect")).otherwise(pl.lit("correct"))
    return pl.concat(draws).with_columns(forced_grade=grade)


def test_rankings_of_repeated_draws_use_clusters(tmp_path) -> None:
    for seed, name in enumerate("abc"):
        two_draws(seed).write_csv(tmp_path / f"{name}.csv")
    sampling = Sampling(cluster="family")
    paths = [tmp_path / f"{name}.csv" for name in "abc"]
    ranked, plain = (
        rank(read_runs(paths, Analysis(sampling=own)), Analysis(sampling=own)).ranking for own in (sampling, Sampling())
    )
    assert ranked.metric == plain.metric == "refusal_index"
    # With 40 clusters, the critical value is from Student's t and exceeds the normal one.
    assert ranked.critical_value > plain.critical_value
    assert len(ranked.runs) == 3


def test_zero_weight_questions_do_not_decide_whether_an_index_exists(tmp_path) -> None:
    """Under the prompt "high", all questions refused and right have weight 0, so there is no joint index."""
    for name in "ab":
        low, high = rows(variant=pl.lit("low")), rows(1, variant=pl.lit("high"))
        both = pl.concat([low, high]).with_columns(
            weight=pl.when(
                pl.col("question_id").is_in(high.filter(pl.col("refused") & ~pl.col("wrong"))["question_id"])
            )
            .then(0.0)
            .otherwise(1.0)
        )
        both.write_csv(tmp_path / f"{name}.csv")
    found = compare_pair(read_runs([tmp_path / "a.csv", tmp_path / "b.csv"]), Analysis())
    assert found.variants[1].comparison["refusal_index"].first == 1.0
    assert found.joint is None
