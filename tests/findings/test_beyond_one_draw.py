"""What a summary says of several prompts, repeated draws and other decisions."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import ndtri
from tests.render.making import report_run

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.analysis import DEFAULT_ANALYSIS
from refusal_index.data.files import json_text
from refusal_index.data.outcome_table import SCHEMA, Identification, outcome_table
from refusal_index.findings.conclusions import indices, joint, summary_caveats
from refusal_index.findings.draws import LARGE_SPREAD, PooledSummary, corrected_indices, draws_summary
from refusal_index.findings.sensitivity import outcome_counts, sensitivity
from refusal_index.findings.summary import Summary, summarise
from refusal_index.render.format import to_text
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import first_screen, summary_blocks, summary_document
from refusal_index.stats import (
    METRIC_NAMES,
    ContingencyTable,
    Estimate,
    HomogeneityTest,
    OutcomeCounts,
    corrected_refusal_index,
    joint_corrected_refusal_index,
    joint_refusal_index,
    refusal_index,
    scoring_rules,
    within_topic_refusal_index,
)

# --- Combined RI, repeated samples and other decisions

N = 600
VARIANTS = {"low": -0.8, "normal": 0.0, "high": 0.8}


def latent(seed: int = 1, rho: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(N)
    return x, rho * x + math.sqrt(1 - rho * rho) * rng.standard_normal(N)


def outcome(refused: bool, forced_wrong: bool) -> Outcome:
    """Return an outcome with a forced answer, refused or not, and the same grade in both passes."""
    answer = Grade.INCORRECT if forced_wrong else Grade.CORRECT
    return Outcome(refused, forced_wrong, Grade.REFUSED if refused else answer, answer)


def table_of(refused: np.ndarray, wrong: np.ndarray, variant: str, draw: int = 0, topics=None) -> pl.DataFrame:
    asked = Identification("m", "d", variant, draw)
    return outcome_table(
        (asked, Question(f"q{i}", "?", "!", topic=topics[i] if topics else None), outcome(bool(r), bool(w)))
        for i, (r, w) in enumerate(zip(refused, wrong, strict=True))
    )


def test_the_pooled_index_is_the_joint_estimate_over_matched_questions():
    refusal, error = latent()
    refused = np.array([refusal > threshold for threshold in (0.8, 0.0, -0.8)])
    wrong = error > -0.3
    tables = [table_of(row, wrong, name) for row, name in zip(refused, VARIANTS, strict=True)]
    shuffled = tables[1].sample(fraction=1.0, shuffle=True, seed=3)
    (pooled,) = summarise(pl.concat([tables[0], shuffled, tables[2]])).pooled
    joint = joint_refusal_index(refused, np.broadcast_to(wrong, refused.shape))
    assert (pooled.model, pooled.dataset, pooled.variants) == ("m", "d", tuple(VARIANTS))
    index = pooled.refusal_index
    assert index.estimate == pytest.approx(joint.estimate, abs=1e-12)
    assert (index.low, index.high) == pytest.approx(joint.confidence_interval(), abs=1e-12)
    assert pooled.homogeneity.pvalue == pytest.approx(joint.homogeneity.pvalue, abs=1e-9)


def test_a_variant_without_refusals_is_left_out_of_the_joint_estimate_and_named():
    refusal, error = latent()
    tables = [table_of(refusal > threshold, error > 0, name) for name, threshold in VARIANTS.items()]
    nobody = table_of(np.zeros(N, bool), error > 0, "never")
    (pooled,) = summarise(pl.concat([*tables, nobody])).pooled
    assert pooled.left_out == {"never": "nobody_refused"}
    assert pooled.refusal_index.status == "ok"


def test_prompts_are_not_said_to_agree_if_one_is_at_the_boundary_and_another_nearly_is():
    refusal, error = latent()
    tables = [table_of(refusal > threshold, error > 0, name) for name, threshold in VARIANTS.items()]
    boundary = table_of((refusal > 1) & (error > 0), error > 0, "boundary")
    nearly = np.flatnonzero((refusal > 1) & (error <= 0))[0]
    sparse = table_of((refusal > 1) & (error > 0) | (np.arange(N) == nearly), error > 0, "sparse")
    for added, untested in (((boundary,), False), ((boundary, sparse), True), ((sparse,), False)):
        summary = summarise(pl.concat([*tables, *added]))
        (pooled,) = summary.pooled
        assert (pooled.homogeneity.reason == "variants_at_boundary") == untested
        assert (pooled.homogeneity.pvalue is None) == untested
        text = " ".join(sentence(caveat) for caveat in summary_caveats(summary))
        assert ("Whether the other prompts agree cannot be tested" in text) == untested


def test_single_variant_is_not_pooled_and_models_are_pooled_separately():
    refusal, error = latent()
    one = table_of(refusal > 0, error > 0, "normal")
    assert summarise(one).pooled == ()
    assert summarise(one).index == summarise(one).variants[0].metric("refusal_index")
    both = pl.concat([one, table_of(refusal > 1, error > 0, "high")])
    other = both.with_columns(model=pl.lit("other"))
    assert summarise(both).index == summarise(both).pooled[0].refusal_index
    assert [pooled.model for pooled in summarise(pl.concat([both, other])).pooled] == ["m", "other"]
    assert summarise(pl.concat([both, other])).index is None
    assert summarise(one.clear()).index is None


def repeated(draws: int = 4) -> tuple[np.ndarray, np.ndarray, pl.DataFrame]:
    rng, (x, y) = np.random.default_rng(7), latent(5)
    refused, wrong = (latent + rng.standard_normal((draws, N)) > 0 for latent in (x, y))
    table = pl.concat([table_of(refused[d], wrong[d], "normal", d) for d in range(draws)])
    return refused, wrong, table


def test_corrected_index_of_repeated_draws_matches_stats():
    refused, wrong, table = repeated()
    found = draws_summary(table, DEFAULT_ANALYSIS)
    expected = corrected_refusal_index(refused, wrong)
    assert (found.questions, found.draws) == (N, 4)
    index = found.corrected_refusal_index
    assert index.estimate == pytest.approx(expected.estimate, abs=1e-12)
    assert (index.low, index.high) == pytest.approx(expected.confidence_interval())
    assert found.forced_for_all == expected.forced_for_all
    assert found.uncorrected == expected.uncorrected
    assert found.refusal_reliability == expected.refusal_reliability
    assert index.estimate > found.mid_rank_spearman.estimate > found.uncorrected


def two_draws(twice: int = 400) -> tuple[np.ndarray, np.ndarray, pl.DataFrame]:
    """Return a first draw of every question and a second draw of some."""
    refused, wrong, table = repeated(2)
    few = pl.col("question_id").is_in([f"q{i}" for i in range(twice)])
    return refused, wrong, table.filter((pl.col("draw") == 0) | few)


def test_corrected_index_with_extra_first_draws_matches_stats():
    refused, wrong, table = two_draws()
    scored = np.tile(np.arange(N) < 400, (2, 1))
    expected = corrected_refusal_index(refused, wrong, scored, single=(refused[0], wrong[0]))
    (variant,) = summarise(table).variants
    assert (variant.draws.questions, variant.table.n) == (400, N)
    assert variant.corrected is variant.metric("corrected_refusal_index")
    assert variant.corrected.estimate == pytest.approx(expected.estimate, abs=1e-12)


def test_ri_uses_only_the_first_response_to_each_question():
    refused, wrong, table = two_draws()
    expected = refusal_index(refused=refused[0], wrong=wrong[0])
    for outcomes in (table, table.filter(draw=0)):
        (variant,) = summarise(outcomes).variants
        assert variant.index is variant.metric("refusal_index")
        assert variant.index.estimate == expected.estimate
        assert (variant.index.low, variant.index.high) == expected.confidence_interval()


def test_corrected_index_is_undefined_without_repeated_draws():
    refusal, error = latent()
    table = table_of(refusal > 0, error > 0, "normal")
    (variant,) = summarise(table).variants
    defined = variant.metric("corrected_refusal_index")
    assert (defined.estimate, defined.status, defined.reason) == (None, "undefined", "no_repeated_questions")
    assert variant.corrected is summarise(table).corrected is None
    text = to_text(summary_blocks(summarise(table)))
    assert "RI" in {column.strip() for line in text.splitlines() for column in line.split("  ")}
    assert "orrected" not in text


def test_corrected_index_that_is_not_identified_is_not_shown_as_a_number():
    rng = np.random.default_rng(3)
    draws = [table_of(rng.random(300) < 0.4, rng.random(300) < 0.6, "normal", draw) for draw in range(2)]
    summary = summarise(pl.concat(draws))
    assert summary.corrected.status == "not_identified"
    assert summary.corrected.estimate is not None
    assert "Corrected RI not identified" in to_text(first_screen(summary)).splitlines()


def at_temperature_0(*tables: pl.DataFrame) -> Summary:
    return summarise(pl.concat(tables), is_deterministic=True)


def test_corrected_index_equals_ri_at_temperature_zero_alone_and_jointly():
    refusal, error = latent()
    once = [table_of(refusal > threshold, error > 0, name) for name, threshold in VARIANTS.items()]
    twice = [pl.concat([table, table.with_columns(draw=pl.lit(1, table["draw"].dtype))]) for table in once]
    for tables in (once, twice):
        summary = at_temperature_0(*tables)
        (pooled,) = summary.pooled
        for corrected, index in (
            *((variant.corrected, variant.index) for variant in summary.variants),
            (pooled.corrected_refusal_index, pooled.refusal_index),
        ):
            assert (corrected.name, index.name) == ("corrected_refusal_index", "refusal_index")
            ends = [(one.estimate, one.low, one.high) for one in (corrected, index)]
            assert ends[0] == pytest.approx(ends[1], abs=1e-12)
    for tables in (once, twice):
        assert repeats_ri(at_temperature_0(*tables))
    assert not repeats_ri(summarise(pl.concat(once)))


def test_samples_that_differ_only_in_answers_are_used():
    refusal, error = latent()
    again = error + 0.5 * np.random.default_rng(3).standard_normal(error.shape)
    table = pl.concat([table_of(refusal > 0, wrong > 0, "low", draw) for draw, wrong in enumerate((error, again))])
    (variant,), (plain,) = at_temperature_0(table).variants, summarise(table).variants
    assert variant.corrected == plain.corrected
    assert variant.corrected.estimate != variant.index.estimate
    assert not repeats_ri(at_temperature_0(table))


def test_joint_index_uses_ri_of_identical_samples_at_temperature_zero():
    *_, differs = two_draws()
    same = differs.filter(pl.col("draw") == 0).with_columns(variant=pl.lit("high"))
    (pooled,) = at_temperature_0(differs, same).pooled
    expected = joint_corrected_refusal_index(corrected_indices([differs, same], [True, True]))
    assert pooled.corrected_refusal_index.estimate == pytest.approx(expected.estimate, abs=1e-12)


def test_samples_that_differ_at_temperature_zero_are_used():
    *_, table = two_draws()
    (variant,), (plain,) = at_temperature_0(table).variants, summarise(table).variants
    assert variant.corrected == plain.corrected == variant.draws.corrected_refusal_index
    assert variant.corrected.estimate != variant.index.estimate
    another = table.with_columns(variant=pl.lit("high"))
    (pooled,), (expected,) = (
        summarise(pl.concat([table, another]), is_deterministic=same).pooled for same in (True, False)
    )
    assert pooled.corrected_refusal_index == expected.corrected_refusal_index


def test_joint_corrected_index_matches_stats_and_needs_every_variant():
    refused, wrong, table = repeated(2)
    stricter = refused & (np.random.default_rng(1).random(N) < 0.8)
    other = pl.concat([table_of(stricter[d], wrong[d], "high", d) for d in range(2)])
    (pooled,) = summarise(pl.concat([table, other])).pooled
    each = [corrected_refusal_index(one, wrong) for one in (refused, stricter)]
    expected = joint_corrected_refusal_index(each)
    index = pooled.corrected_refusal_index
    assert index.name == "corrected_refusal_index"
    assert index.estimate == pytest.approx(expected.estimate, abs=1e-9)
    assert (index.low, index.high) == pytest.approx(expected.confidence_interval(), abs=1e-9)
    (single,) = summarise(pl.concat([table, other.filter(draw=0)])).pooled
    assert single.corrected_refusal_index is None
    assert single.refusal_index == pooled.refusal_index


def repeats_ri(summary: Summary) -> bool:
    return "corrected_repeats_ri" in [statement.code for statement in indices(summary)]


def codes_of(table: pl.DataFrame) -> dict[str, dict[str, object]]:
    (variant,) = summarise(table).variants
    return {caveat.code: dict(caveat.values) for caveat in variant.caveats}


def test_warning_reports_unusable_repeated_draws():
    *_, table = repeated(2)
    unforced = table.with_columns(forced_grade=pl.lit(None, pl.String))
    assert codes_of(unforced)["repeated_draws_unused"] == {"questions": N}
    assert "repeated_draws_unused" not in codes_of(table)
    assert "repeated_draws_unused" not in codes_of(table.filter(draw=0))


def test_warning_reports_too_few_repeated_draws():
    assert codes_of(two_draws(49)[2])["few_repeated"] == {"questions": 49, "limit": 50}
    assert "few_repeated" not in codes_of(two_draws(50)[2])


def test_p_answering_auroc_matches_pairwise_count():
    refused, wrong, table = repeated()
    share, right = 1 - refused[1:].mean(axis=0), ~wrong[0]
    above, below = share[right][:, np.newaxis], share[~right]
    area = np.mean((above > below) + 0.5 * (above == below))
    assert draws_summary(table, DEFAULT_ANALYSIS).p_answering_auroc.estimate == pytest.approx(area, abs=1e-12)


def test_draws_summary_is_none_for_one_draw():
    refusal, error = latent()
    assert draws_summary(table_of(refusal > 0, error > 0, "normal"), DEFAULT_ANALYSIS) is None


def test_the_same_outcomes_give_the_same_summary():
    *_, table = repeated(2)
    assert json_text(summary_document(summarise(table))) == json_text(summary_document(summarise(table)))


CASES = {
    Outcome(True, True, Grade.REFUSED, Grade.INCORRECT): 50,
    Outcome(True, False, Grade.REFUSED, Grade.CORRECT): 20,
    Outcome(False, True, Grade.INCORRECT): 30,
    Outcome(False, False, Grade.CORRECT): 40,
    Outcome(True, True, Grade.REFUSED, Grade.REFUSED): 6,
    Outcome(True, None, Grade.REFUSED, Grade.UNSCORED, "forced_truncated"): 3,
    Outcome(None, None, Grade.UNSCORED, None, "first_truncated"): 2,
}
COUNTS = OutcomeCounts(50, 20, 30, 40, refused_again=6, unscored_forced=3, unscored_first=2)


def incomplete() -> pl.DataFrame:
    asked = Identification("m", "d", "normal")
    outcomes = [case for case, count in CASES.items() for _ in range(count)]
    return outcome_table((asked, Question(f"q{i}", "?", "!"), one) for i, one in enumerate(outcomes))


def test_outcomes_are_counted_by_category():
    assert outcome_counts(incomplete()) == COUNTS


def test_ungraded_outcomes_are_counted_from_refused_and_wrong():
    cells = {"refused": [True, True, False, False, None, True], "wrong": [True, False, True, False, None, None]}
    rows = pl.DataFrame(cells).with_columns(forced_grade=pl.lit(None, pl.String))
    assert outcome_counts(rows) == OutcomeCounts(1, 1, 1, 1, 0, unscored_forced=1, unscored_first=1)


def test_sensitivity_and_its_range_match_scoring_rules_of_stats():
    found = sensitivity(incomplete(), DEFAULT_ANALYSIS)
    expected = scoring_rules(COUNTS)
    assert [(rule.rule, rule.estimate) for rule in found.rules] == [
        (r, result.estimate) for r, result in expected.items()
    ]
    estimates = [result.estimate for result in expected.values()]
    index = found.range_of("refusal_index")
    assert (index.low, index.high) == (min(estimates), max(estimates))
    assert [one.name for one in found.ranges] == list(METRIC_NAMES)
    headline = {metric.name: metric.estimate for metric in summarise(incomplete()).variants[0].metrics}
    assert index.low <= headline["refusal_index"] <= index.high
    rate = found.range_of("refusal_rate")
    assert (rate.low, rate.high) == (79 / 151, 81 / 151)  # two of the missing may be refusals; the others are known


def test_within_topic_index_matches_stats_and_needs_two_topics():
    refusal, error = latent()
    topics = ["easy" if i % 2 else "hard" for i in range(N)]
    shift = np.array([0.8 if topic == "hard" else -0.8 for topic in topics])
    refused, wrong = refusal + shift > 0, error + shift > 0
    found = sensitivity(table_of(refused, wrong, "normal", topics=topics), DEFAULT_ANALYSIS).topics
    expected = within_topic_refusal_index(refused, wrong, topics)
    assert (found.topics, found.informative) == (2, 2)
    assert found.within.estimate == expected.estimate
    for one in found.each:
        chosen = np.array([topic == one.topic for topic in topics])
        alone = refusal_index(refused=refused[chosen], wrong=wrong[chosen])
        assert (one.questions, one.refusal_index.estimate) == (N // 2, alone.estimate)
        assert (one.refusal_index.low, one.refusal_index.high) == alone.confidence_interval()
    pooled = ContingencyTable.from_arrays(refused, wrong)
    assert found.within.estimate < summarise(table_of(refused, wrong, "v")).variants[0].index.estimate
    assert pooled.n == N
    assert sensitivity(table_of(refused, wrong, "normal", topics=["one"] * N), DEFAULT_ANALYSIS).topics is None


def test_summary_json_includes_pooled_draws_and_sensitivity():
    *_, table = repeated(2)
    document = json.loads(
        json_text(summary_document(summarise(pl.concat([table, table.with_columns(variant=pl.lit("again"))]))))
    )
    (pooled,), variant = document["pooled"], document["variants"][0]
    assert pooled["homogeneity"]["reason"] == "variants_repeat_each_other"
    assert pooled["refusal_index"]["standard_error"] > 0
    name = "corrected_refusal_index"
    assert variant["draws"][name]["estimate"] == variant["metrics"][name]["estimate"] is not None
    assert variant["metrics"]["refusal_index"]["status"] == "ok"
    assert {rule["rule"] for rule in variant["sensitivity"]["rules"]} >= {"refused_again_right", "all_lowest"}


# --- Agreement of prompts

BEYOND_CHANCE = HomogeneityTest(40.0, 3.0, 1e-8, "ok", None)
CHANCE = HomogeneityTest(2.0, 3.0, 0.57, "ok", None)


def tables(rhos: tuple[float, ...], n: int = 3000, error_rate: float = 0.5, seed: int = 1) -> pl.DataFrame:
    """Outcomes of several prompts on the same questions, each with the given index."""
    error, noise = np.random.default_rng(seed).standard_normal((2, n))
    names = [f"v{number}" for number in range(len(rhos))]
    rates = np.linspace(0.35, 0.65, len(rhos))
    frames = [
        pl.DataFrame(
            {
                "model": "m",
                "dataset": "d",
                "variant": name,
                "question_id": [str(i) for i in range(n)],
                "draw": 0,
                "refused": rho * error + math.sqrt(1 - rho**2) * noise > -ndtri(rate),
                "wrong": error > -ndtri(error_rate),
            }
        )
        for name, rho, rate in zip(names, rhos, rates, strict=True)
    ]
    return pl.concat(frames)


def pooled_of(rhos: tuple[float, ...], **options: float) -> PooledSummary:
    (pooled,) = summary_of(rhos, **options).pooled
    return pooled


def summary_of(rhos: tuple[float, ...], **options: float) -> Summary:
    return summarise(completed(tables(rhos, **options)))


def completed(table: pl.DataFrame) -> pl.DataFrame:
    """Add the columns that no calculation needs."""
    others = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in table.columns]
    return table.with_columns(others).select(list(SCHEMA)).cast(dict(SCHEMA))


def with_spread(estimate: float, high: float, test: HomogeneityTest) -> PooledSummary:
    between = Estimate(estimate, 0.0 if test is CHANCE else estimate / 2, high)
    return replace(pooled_of((0.5, 0.5)), between_prompts=between, homogeneity=test)


def arrays_of(table: pl.DataFrame) -> list[np.ndarray]:
    parts = table.partition_by("variant", maintain_order=True)
    return [np.stack([part[name].to_numpy() for part in parts]) for name in ("refused", "wrong")]


def test_spread_and_new_prompt_interval_match_stats() -> None:
    table = tables((0.7, 0.5, 0.3))
    expected, (pooled,) = joint_refusal_index(*arrays_of(table)), summarise(completed(table)).pooled
    between = expected.between_prompts
    assert pooled.between_prompts.estimate == pytest.approx(between.estimate)
    assert (pooled.between_prompts.low, pooled.between_prompts.high) == pytest.approx(between.confidence_interval())
    assert (pooled.new_prompt.low, pooled.new_prompt.high) == pytest.approx(expected.prediction_interval())
    index = pooled.refusal_index
    assert (index.low, index.high) == pytest.approx(expected.confidence_interval())
    assert index.high - index.low > 2 * 1.96 * expected.standard_error


def test_json_includes_spread_and_interval_for_a_new_prompt() -> None:
    (document,) = json.loads(json_text(summary_document(summary_of((0.7, 0.5, 0.3)))))["pooled"]
    assert document["between_prompts"]["estimate"] > 0.1
    mean, new = document["refusal_index"], document["new_prompt"]
    assert new["low"] < mean["low"] < mean["high"] < new["high"]
    assert new["estimate"] == mean["estimate"]


def test_two_prompts_that_differ_have_a_caveat_with_the_interval_of_these_two() -> None:
    pooled = pooled_of((0.7, 0.3))
    (caveat,) = (item for item in summary_caveats(summary_of((0.7, 0.3))) if item.code == "two_prompts")
    fixed, index = caveat.values["these"], pooled.refusal_index
    # The interval over prompts like these has one degree of freedom; that of these two holds them fixed.
    assert caveat.severity == "serious"
    assert index.low < -0.5 < 0.3 < fixed.low < fixed.high < 0.7
    assert index.high > 0.9
    result = joint_refusal_index(*arrays_of(tables((0.7, 0.3))))
    assert (fixed.low, fixed.high) == pytest.approx(result.confidence_interval(prompts="fixed"))
    assert sentence(caveat).count(f"{fixed.low:.2f}") == 1


@pytest.mark.parametrize("rhos", [(0.7, 0.5, 0.3), (0.5, 0.5)])
def test_three_prompts_or_two_that_agree_have_no_caveat_of_two_prompts(rhos: tuple[float, ...]) -> None:
    assert "two_prompts" not in {item.code for item in summary_caveats(summary_of(rhos))}


@pytest.mark.parametrize(
    ("spread", "test", "disagree"),
    [
        (LARGE_SPREAD + 0.01, BEYOND_CHANCE, True),
        # A large run finds differences that do not matter.
        (LARGE_SPREAD - 0.01, BEYOND_CHANCE, False),
        # A small run shows spread that is due to chance.
        (LARGE_SPREAD + 0.01, CHANCE, False),
    ],
)
def test_prompts_disagree_only_if_large_and_significant(spread: float, test: HomogeneityTest, disagree: bool) -> None:
    assert with_spread(spread, 0.3, test).disagree(DEFAULT_ANALYSIS) is disagree


def test_prompts_that_cannot_be_compared_do_not_disagree() -> None:
    nothing = HomogeneityTest(None, None, None, "undefined", "fewer_than_two_variants")
    none = replace(pooled_of((0.5, 0.5)), between_prompts=Estimate(None, status="undefined"), homogeneity=nothing)
    assert not none.disagree(DEFAULT_ANALYSIS)
    assert "Between prompts" not in sentence(joint(summary_of((0.5, 0.5)), none))


@pytest.mark.parametrize(
    ("spread", "high", "test", "weight", "title"),
    [
        (0.15, 0.3, BEYOND_CHANCE, "serious", "Prompts disagree"),
        (0.05, 0.08, BEYOND_CHANCE, "note", "Prompts differ"),
        (0.05, 0.2, CHANCE, "note", "Prompts may differ"),
        (0.0, 0.08, CHANCE, None, None),
    ],
)
def test_report_describes_spread_between_prompts_by_size(
    spread: float, high: float, test: HomogeneityTest, weight: str | None, title: str | None
) -> None:
    run = report_run(completed(tables((0.5, 0.5))))
    found = summary_caveats(replace(run.summary, pooled=(with_spread(spread, high, test),)))
    statements = [
        (statement.severity, sentence(statement, "title"))
        for statement in found
        if statement.code.startswith("prompts")
    ]
    assert statements == ([] if title is None else [(weight, title)])


def test_joint_index_states_the_spread_between_prompts_and_the_range_of_a_new_one() -> None:
    pooled = replace(with_spread(0.15, 0.3, BEYOND_CHANCE), new_prompt=Estimate(0.4, 0.1, 0.7))
    summary = summary_of((0.5, 0.5))
    stated = joint(summary, pooled)
    between, new = stated.values["between"], stated.values["new"]
    assert (stated.code, between.estimate, between.high, (new.low, new.high)) == ("joint_index", 0.15, 0.3, (0.1, 0.7))
    assert "0.15 [0.07, 0.30]" in sentence(stated)
    assert "up to 0.20" in sentence(joint(summary, with_spread(0.0, 0.2, CHANCE)))
