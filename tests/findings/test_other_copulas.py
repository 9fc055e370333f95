"""What a comparison says of a difference of RI that depends on the copula, and how it names runs without shared ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from refusal_index import stats
from refusal_index.data.analysis import Analysis
from refusal_index.findings.comparison import PairComparison, compare_pair
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_results import RunResults, read_runs
from refusal_index.render.comparison import pair_blocks, pair_screen, ranking_screen
from refusal_index.render.format import to_text
from refusal_index.render.report.page import write_report

BOLD, CAUTIOUS, CLEARLY_BETTER = (370, 230, 120, 280), (145, 5, 555, 295), (480, 120, 10, 390)
NEVER_RIGHT = (150, 0, 550, 300)


def outcomes(**prompts: tuple[int, int, int, int]) -> pl.DataFrame:
    """Outcomes of one model from the counts of each prompt, with the questions in random order."""
    frames = []
    for seed, (name, counts) in enumerate(prompts.items()):
        codes = np.random.default_rng(seed).permutation(np.repeat(np.arange(4), counts))
        columns = {"question_id": [f"q{i}" for i in range(len(codes))], "refused": codes < 2, "wrong": codes % 2 == 0}
        frames.append(pl.DataFrame(columns).with_columns(variant=pl.lit(name if name != "one" else None, pl.String)))
    return pl.concat(frames)


def written(folder: Path, **tables: pl.DataFrame) -> tuple[RunResults, ...]:
    for name, table in tables.items():
        table.write_csv(folder / f"{name}.csv")
    return read_runs([folder / f"{name}.csv" for name in tables])


def pair(folder: Path, first, second) -> PairComparison:
    """Compare two models, each with one prompt or with the counts of several."""
    tables = [outcomes(**counts) if isinstance(counts, dict) else outcomes(one=counts) for counts in (first, second)]
    return compare_pair(written(folder, first=tables[0], second=tables[1]), Analysis())


def caveats(found: PairComparison) -> list[dict]:
    return [
        each
        for statement in found.statements
        if statement.code == "depends_on_copula"
        for each in statement.values["each"]
    ]


def test_a_difference_that_another_copula_explains_has_a_caveat_in_text_json_and_report(tmp_path) -> None:
    found = pair(tmp_path, BOLD, CAUTIOUS)
    assert [statement.code for statement in found.statements[:2]] == ["ahead", "depends_on_copula"]
    arrays = (array[:, np.newaxis] for array in found.variants[0].match.matrix.arrays)
    expected = stats.compare_under_copula(*arrays, family="survival_clayton")
    (each,) = caveats(found)
    assert dict(each["families"]) == {"survival_clayton": expected.pvalue}
    assert (each["first_rate"], each["second_rate"]) == pytest.approx((0.6, 0.15))
    text = (
        "first refuses 60% of the questions and second 15%. The difference in RI assumes a Gaussian copula; under a "
        f"survival Clayton copula (p = {expected.pvalue:.4f}) it is not significant. Compare the runs at similar "
        "refusal rates."
    )
    for blocks in (pair_screen(found), pair_blocks(found)):
        assert text in " ".join(to_text(blocks).split())
    (document,) = found.to_document()["under_other_copulas"]
    assert list(document["copulas"]) == list(stats.OTHER_COPULAS)
    assert document["copulas"]["survival_clayton"]["estimate"] == expected.estimate
    assert document["copulas"]["t"]["pvalue"] < 0.05
    runs = read_runs([tmp_path / "first.csv", tmp_path / "second.csv"])
    page = write_report(runs, tmp_path / "report.html").path.read_text()
    assert "The difference in RI assumes a Gaussian copula; under a survival Clayton copula" in page


def test_differences_that_are_not_significant_or_hold_under_every_copula_have_no_caveat(tmp_path) -> None:
    clear = pair(tmp_path, CLEARLY_BETTER, CAUTIOUS)
    assert clear.under_other_copulas
    assert caveats(clear) == []
    alike = pair(tmp_path, (320, 280, 100, 300), (110, 40, 310, 540))
    assert alike.headline.pvalue > 0.05
    assert alike.under_other_copulas == ()


def test_refusal_rates_closer_than_15_points_are_not_compared_under_other_copulas(tmp_path) -> None:
    found = pair(tmp_path, (480, 120, 10, 390), (300, 200, 200, 300))
    assert found.headline.pvalue < 0.001
    assert found.under_other_copulas == ()
    assert found.to_document()["under_other_copulas"] == []


def test_an_index_at_the_boundary_cannot_be_tested_under_other_copulas(tmp_path) -> None:
    found = pair(tmp_path, BOLD, NEVER_RIGHT)
    assert found.headline.status == "boundary"
    (each,) = caveats(found)
    assert dict(each["families"]) == dict.fromkeys(stats.OTHER_COPULAS)
    assert "cannot be tested under another, since a cell is empty" in " ".join(to_text(pair_screen(found)).split())


def test_several_prompts_are_compared_combined_and_each_with_its_adjusted_p_value(tmp_path) -> None:
    found = pair(tmp_path, {"low": BOLD, "high": BOLD}, {"low": CAUTIOUS, "high": CAUTIOUS})
    by_variant = {copula.variant: copula for copula in found.under_other_copulas}
    assert "combined" in by_variant
    joint = by_variant["combined"]
    assert joint.pvalues == {one.family: one.pvalue for one in joint.differences}
    # of a prompt: Holm over all rows but the primary, with this difference in the place of that of RI
    alone = compare_pair(found.runs, replace(found.analysis, confidence_level=0.5))
    for variant in ("low", "high"):
        place = next(i for i, row in enumerate(alone.rows()) if row[:2] == ("refusal_index", variant))
        pvalues = [row[2].pvalue for row in alone.rows()]
        one = next(copula for copula in alone.under_other_copulas if copula.variant == variant)
        for difference in one.differences:
            pvalues[place] = difference.pvalue
            others = {i: p for i, p in enumerate(pvalues) if i and p is not None}
            adjusted = dict(zip(others, stats.holm(list(others.values())), strict=True))
            assert one.pvalues[difference.family] == pytest.approx(adjusted[place])


def test_the_screen_says_which_p_values_are_adjusted(tmp_path) -> None:
    def screen_text(found: PairComparison) -> str:
        return " ".join(to_text(pair_screen(found)).split())

    assert "all but RI are adjusted" in screen_text(pair(tmp_path, BOLD, CAUTIOUS))
    several = pair(tmp_path, {"low": BOLD, "high": BOLD}, {"low": CAUTIOUS, "high": CAUTIOUS})
    assert "all but the combined RI are adjusted" in screen_text(several)
    unusual = pair(tmp_path, {"low": BOLD, "high": NEVER_RIGHT}, {"low": CAUTIOUS, "high": CAUTIOUS})
    assert not unusual.has_primary
    assert "; all are adjusted" in screen_text(unusual)


def test_runs_that_share_no_question_are_named_with_the_columns_of_their_ids(tmp_path) -> None:
    table = outcomes(one=BOLD)
    other = table.with_columns(question_id="other " + pl.col("question_id"))
    runs = written(tmp_path, a=table, b=other, c=table.drop("question_id"))
    found = rank(runs, Analysis())
    (none_shared,) = (statement for statement in found.statements if statement.code == "none_shared")
    assert none_shared.values["own"] == [("a", 1000), ("b", 1000), ("c", 1000)]
    columns = [(ids["column"], ids["first"]) for ids in none_shared.values["ids"]]
    assert columns[:2] == [("question_id", "q0"), ("question_id", "other q0")]
    assert columns[2][0] is None, "its rows are numbered"
    output = " ".join(to_text(ranking_screen(found)).split())
    assert "all: " not in output
