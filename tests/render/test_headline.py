"""The first screen: against simulation, against the summary, and against what must never be said."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats as scipy_stats

from refusal_index.findings.summary import summarise
from refusal_index.render.report import write_report
from refusal_index.render.report.headline import Finding, headline, pair_shares, pairs_sentence, verdict
from refusal_index.render.report.overview import overview, run_view
from refusal_index.render.report.tables import sensitivity_rows
from refusal_index.stats import ContingencyTable, Estimate, refusal_index
from tests.render.making import counts_table, report_run, rows


def drawn_twice(n: int) -> pl.DataFrame:
    """Make outcomes sampled twice, the second time anew for every third question."""
    one, other = rows(n, variants=("normal",)), rows(n, variants=("normal",), seed=1)
    second = pl.concat([one.filter(pl.int_range(pl.len()) % 3 != 0), other.filter(pl.int_range(pl.len()) % 3 == 0)])
    return pl.concat([one, second.with_columns(draw=pl.lit(1, pl.Int64))])


@pytest.mark.parametrize(("index", "error_rate"), [(0.27, 0.49), (0.48, 0.92), (0.8, 0.3), (-0.4, 0.6)])
def test_pairs_told_apart_against_simulation(index: float, error_rate: float) -> None:
    rho = 2 * np.sin(np.pi * index / 6)
    refusal, error = (
        np.random.default_rng(1).multivariate_normal((0, 0), ((1, rho), (rho, 1)), 400_000, method="cholesky").T
    )
    wrong = error > scipy_stats.norm.ppf(1 - error_rate)
    ranks = scipy_stats.rankdata(refusal)
    auroc = (ranks[wrong].sum() - wrong.sum() * (wrong.sum() + 1) / 2) / (wrong.sum() * (~wrong).sum())
    shares = pair_shares(Finding(Estimate(index, index - 0.1, index + 0.1), error_rate))
    assert shares is not None
    assert shares[0] == pytest.approx(auroc, abs=0.004)
    assert shares[1] < shares[0] < shares[2]


def test_a_coin_tells_half_of_the_pairs_apart_and_perfect_knowledge_all() -> None:
    assert pair_shares(Finding(Estimate(0.0, 0.0, 1.0), 0.4)) == pytest.approx((0.5, 0.5, 1.0))


@pytest.mark.parametrize(
    ("estimate", "low", "high", "said"),
    [
        (0.1, 0.02, 0.19, "knowledge barely."),
        (0.3, 0.2, 0.39, "knowledge loosely."),
        (0.5, 0.4, 0.59, "knowledge moderately well."),
        (0.7, 0.6, 0.79, "knowledge closely."),
        (0.9, 0.8, 0.95, "knowledge very closely."),
        (0.3, 0.19, 0.39, "knowledge, barely to loosely."),
        (0.36, 0.02, 0.70, "how well is not settled: anything from barely to closely"),
        (0.1, -0.1, 0.19, "no sign"),
        (-0.1, -0.5, 0.05, "no sign"),
        (0.1, -0.1, 0.2, "is not settled: anything from not at all to loosely"),
        (0.24, -0.03, 0.49, "is not settled: anything from not at all to moderately well"),
        (0.5, 0.0, 1.0, "is not settled: anything from not at all to very closely"),
        (-0.3, -0.4, -0.1, "against"),
        (None, None, None, "cannot be said"),
    ],
)
def test_words_claim_what_both_ends_hold(
    estimate: float | None, low: float | None, high: float | None, said: str
) -> None:
    assert said in verdict(Finding(Estimate(estimate, low, high), 0.5))


@pytest.mark.parametrize("code", ["boundary", "next_to_no_knowledge"])
def test_nothing_is_made_of_a_number_that_means_nothing(code: str) -> None:
    index = Finding(Estimate(0.9, 0.5, 1.0), 0.5, frozenset({code}))
    assert "cannot be said" in verdict(index)
    assert pairs_sentence(index) is None


def test_the_first_screen_says_which_index_it_shows() -> None:
    once, twice = report_run(rows(400, variants=("normal",))), report_run(drawn_twice(400))
    ri = refusal_index(once.variants[0].table).estimate
    assert headline(once).index.estimate == headline(twice).index.estimate == pytest.approx(ri, abs=1e-12)
    said = "RI is the Refusal Index as the paper reports it"
    assert headline(once).which.startswith(said)
    assert "orrected" not in headline(once).which
    corrected = twice.summary.corrected
    assert corrected.estimate != pytest.approx(ri, abs=0.01)
    assert headline(twice).which.startswith(said)
    ends = f"{corrected.estimate:.2f} [{corrected.low:.2f}, {corrected.high:.2f}]"
    assert f"Corrected RI is {ends}: RI estimated for the model's probabilities" in headline(twice).which


def test_at_temperature_zero_the_first_screen_says_that_both_indices_are_one() -> None:
    run = report_run(rows(400, variants=("normal",)))
    found = headline(replace(run, summary=summarise(run.shown, is_deterministic=True)))
    assert found.which.endswith(
        "Corrected RI repeats RI: the model was asked at temperature 0, and no repeated sample differs."
    )


def test_one_axis_holds_one_kind_of_index() -> None:
    """However often a run was sampled, it is shown by RI."""
    drawn, once = report_run(drawn_twice(400), label="a"), report_run(rows(400, rho=0.3, seed=2, variants=("normal",)))
    found = overview([run_view(run, place) for place, run in enumerate((drawn, once))])
    assert {line.index.name for line in found.lines} == {"refusal_index"}
    shown = {line.label: line.index.estimate for line in found.lines}
    assert shown == pytest.approx(
        {run.run.label: refusal_index(run.variants[0].table).estimate for run in (drawn, once)}, abs=1e-12
    )


def test_several_prompts_give_the_joint_index_one_its_own() -> None:
    several, one = report_run(rows(400)), report_run(rows(400, variants=("normal",)))
    assert several.pooled is not None
    assert headline(several).index.estimate == several.pooled.refusal_index.estimate
    assert [line.name for line in headline(several).lines] == ["jointly", "low", "normal", "high", "highest"]
    assert headline(one).index.estimate == one.variants[0].index.estimate
    assert [line.name for line in headline(one).lines] == ["normal"]


def test_best_and_worst_prompt_are_named() -> None:
    run = report_run(rows(400))
    found = {v.variant: v.index.estimate for v in run.variants}
    best, worst = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
    (sentence,) = (said for said in headline(run).compared if "best prompt" in said)
    assert f"best prompt is {best} at {found[best]:.2f}, its worst {worst} at {found[worst]:.2f}" in sentence


@pytest.mark.parametrize(
    ("counts", "title"),
    [
        ((0, 0, 50, 50), "Undefined"),
        ((50, 0, 30, 60), "At its limit"),
        ((600, 2, 398, 0), "Next to no knowledge"),
        ((60, 3, 20, 40), "Few right answers"),
        ((30, 40, 2, 60), "A small cell"),
    ],
)
def test_cautions_are_grave_and_come_first(counts: tuple[int, int, int, int], title: str) -> None:
    spoilers = headline(report_run(counts_table(*counts))).spoilers
    titles = [one.title for one in spoilers if one.weight == "grave"]
    assert title in titles
    assert [one.weight for one in spoilers] == sorted((one.weight for one in spoilers), key=["grave", "note"].index)


def test_missing_answers_are_said_however_few() -> None:
    table = rows(400, variants=("normal",))
    first = pl.int_range(pl.len()) < 2
    gone = table.with_columns(
        pl.when(~first).then(pl.col(name)).alias(name) for name in ("refused", "wrong", "first_grade")
    ).with_columns(unscored_reason=pl.when(first).then(pl.lit("first_truncated")))
    found = headline(report_run(gone))
    titles = {one.title: one.text for one in found.spoilers}
    assert titles["Unscored"].startswith("2 of 400 outcomes")
    missing = report_run(gone).variants[0].missing
    ends = f"{missing.low:.2f} and {missing.high:.2f}"
    assert f"Missing are 2 of 400: whatever they are, the index of all lies between {ends}." in found.sure
    assert found.lacks is None
    by_name = {row.name: row for row in sensitivity_rows(report_run(gone))}
    (cell,) = by_name["whatever is missing"].cells
    assert (cell.low, cell.high, by_name["whatever is missing"].kind) == (missing.low, missing.high, "range")


def test_what_is_incomplete_is_said_before_any_number(tmp_path: Path) -> None:
    table = rows(30, variants=("low", "high"))
    columns = ("refused", "wrong", "first_grade", "forced_grade", "first_reply", "forced_reply")
    to_come = (pl.col("variant") == "high") & (pl.int_range(pl.len()) % 2 == 0)
    gone = table.with_columns(
        *(pl.when(~to_come).then(pl.col(name)).alias(name) for name in columns),
        unscored_reason=pl.when(to_come).then(pl.lit("not_finished")),
    )
    said = "Incomplete: high 15 of 30 questions scored; the run&#39;s own command asks for the rest."
    write_report((report_run(gone),), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert page.count(said) == 1
    assert page.index(said) < page.index('class="headline"')
    assert "Missing under high are 15 of 30" in page
    write_report((report_run(table),), tmp_path / "r.html")
    assert "Incomplete" not in (tmp_path / "r.html").read_text()


def test_the_same_caution_of_several_prompts_is_told_once() -> None:
    table = rows(300)
    refused_again = table.with_columns(
        forced_grade=pl.when(pl.col("refused")).then(pl.lit("refused")).otherwise("forced_grade"),
        wrong=pl.col("wrong") | pl.col("refused"),
    )
    told = [one for one in headline(report_run(refused_again)).spoilers if one.title == "Refused when forced"]
    assert len(told) == 1
    assert told[0].weight == "grave"
    assert "The same holds for normal, high and highest." in told[0].text


def test_the_papers_rows_stand_beside_simpleqa_only() -> None:
    assert headline(report_run(rows(300))).paper == ()
    assert len(headline(report_run(rows(300, dataset="simpleqa"))).paper) == 16


def missing_of(kind: str, count: int) -> pl.DataFrame:
    """Return outcomes of which some have no grade, or were refused again when forced."""
    table, chosen = rows(1000, variants=("normal",)), pl.col("refused").cum_sum() <= count
    chosen &= pl.col("refused")
    if kind == "again":
        changed = {"forced_grade": "refused", "wrong": True}
    else:
        changed = {"forced_grade": "unscored", "wrong": None, "unscored_reason": "forced_truncated"}
    given = (pl.when(chosen).then(pl.lit(value)).otherwise(pl.col(name)).alias(name) for name, value in changed.items())
    return table.with_columns(given)


@pytest.mark.parametrize(
    ("kind", "title", "count", "weight"),
    [
        ("again", "Refused when forced", 1, "note"),
        ("again", "Refused when forced", 8, "grave"),
        ("missing", "Unscored", 1, "note"),
        ("missing", "Unscored", 12, "grave"),
    ],
)
def test_what_pulls_as_far_as_the_interval_is_wide_is_grave(kind: str, title: str, count: int, weight: str) -> None:
    """One question in a thousand moves little; some ten refused ones can move the index by more than .05."""
    found = {one.title: one for one in headline(report_run(missing_of(kind, count))).spoilers}
    assert found[title].weight == weight


@pytest.mark.parametrize(("kind", "title"), [("again", "Refused when forced"), ("missing", "Unscored")])
def test_a_pull_is_from_the_index_without_weights_as_the_ranges_have_none(kind: str, title: str) -> None:
    plain = missing_of(kind, 7)
    right_and_answered = ~pl.col("refused") & ~pl.col("wrong")
    weighted = plain.with_columns(weight=pl.when(right_and_answered).then(20.0).otherwise(1.0))
    texts = [
        next(one.text for one in headline(report_run(rows)).spoilers if one.title == title)
        for rows in (plain, weighted)
    ]
    assert texts[0] == texts[1]
    assert re.search(r"\bRI could be|move RI by", texts[0])


def test_one_response_per_question_spoils_nothing() -> None:
    assert headline(report_run(rows(2000, variants=("normal",)))).spoilers == ()


def test_index_1_is_an_order_and_loses_right_answers_last(tmp_path: Path) -> None:
    """(5, 0, 495, 500) has an index of 1 though 495 wrong answers were given."""
    assert refusal_index(ContingencyTable(5, 0, 495, 500)).estimate == 1
    write_report((report_run(rows(300)), report_run(rows(300), label="n")), tmp_path / "r.html")
    page = " ".join((tmp_path / "r.html").read_text().split())
    assert "strictly in order of difficulty" in page
    assert "refuses exactly what it would get wrong" not in page
    assert "loses none until only right ones are left to refuse" in page
