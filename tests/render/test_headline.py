"""The first screen of a result, on the page and in the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats as scipy_stats

from refusal_index.cli import console
from refusal_index.data.outcome_table import Identification
from refusal_index.findings.headline import Headline, headline, pairs, strength
from refusal_index.findings.metrics import Statement
from refusal_index.findings.summary import summarise
from refusal_index.render.report.page import headline_of, index_picture, overview, sensitivity_rows
from refusal_index.render.report.published import published_pictures
from refusal_index.render.run_view import RunView
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import first_screen, scale
from refusal_index.stats import ContingencyTable, Estimate, refusal_index
from tests.cli.test_score_and_report import summary, table
from tests.render.making import counts_table, report_run, rows, write_page

# --- The headline of the report


def two_draws(n: int) -> pl.DataFrame:
    """Make outcomes sampled twice, the second time again for every third question."""
    one, other = rows(n, variants=("normal",)), rows(n, variants=("normal",), seed=1)
    second = pl.concat([one.filter(pl.int_range(pl.len()) % 3 != 0), other.filter(pl.int_range(pl.len()) % 3 == 0)])
    return pl.concat([one, second.with_columns(draw=pl.lit(1, pl.Int64))])


@pytest.mark.parametrize(("index", "error_rate"), [(0.27, 0.49), (0.48, 0.92), (0.8, 0.3), (-0.4, 0.6)])
def test_share_of_ordered_pairs_against_simulation(index: float, error_rate: float) -> None:
    rho = 2 * np.sin(np.pi * index / 6)
    refusal, error = (
        np.random.default_rng(1).multivariate_normal((0, 0), ((1, rho), (rho, 1)), 400_000, method="cholesky").T
    )
    wrong = error > scipy_stats.norm.ppf(1 - error_rate)
    ranks = scipy_stats.rankdata(refusal)
    auroc = (ranks[wrong].sum() - wrong.sum() * (wrong.sum() + 1) / 2) / (wrong.sum() * (~wrong).sum())
    found = pairs(Estimate(index, index - 0.1, index + 0.1), error_rate)
    assert found is not None
    assert found.values["share"] == pytest.approx(auroc, abs=0.004)
    assert found.values["low"] < found.values["share"] < found.values["high"]


def test_share_of_ordered_pairs_is_half_at_index_0_and_1_at_index_1() -> None:
    found = pairs(Estimate(0.0, 0.0, 1.0), 0.4)
    assert found.values == pytest.approx({"share": 0.5, "low": 0.5, "high": 1.0, "error_rate": 0.4})


def test_share_of_ordered_pairs_names_its_assumption_and_error_rate() -> None:
    by_rate = [pairs(Estimate(0.5, 0.4, 0.6), rate) for rate in (0.5, 0.9)]
    assert [round(one.values["share"], 2) for one in by_rate] == [0.74, 0.78]
    assert sentence(by_rate[1], "page").startswith("Under the Gaussian copula and with 90% wrong overall, ")
    assert "in 78% of such pairs (" in sentence(by_rate[1], "page")


@pytest.mark.parametrize(
    ("estimate", "low", "high", "code", "steps"),
    [
        (0.1, 0.02, 0.19, "follows", ["very_weakly"]),
        (0.3, 0.2, 0.39, "follows", ["weakly"]),
        (0.5, 0.4, 0.59, "follows", ["moderately"]),
        (0.7, 0.6, 0.79, "follows", ["strongly"]),
        (0.9, 0.8, 0.95, "follows", ["very_strongly"]),
        (0.3, 0.19, 0.39, "follows_between", ["very_weakly", "weakly"]),
        (0.36, 0.02, 0.70, "follows_unsettled", ["very_weakly", "strongly"]),
        (0.1, -0.1, 0.19, "no_sign", None),
        (-0.1, -0.5, 0.05, "no_sign", None),
        (0.1, -0.1, 0.2, "sign_unsettled", ["weakly"]),
        (0.24, -0.03, 0.49, "sign_unsettled", ["moderately"]),
        (0.5, 0.0, 1.0, "sign_unsettled", ["very_strongly"]),
        (-0.07, -0.12, -0.02, "negative", ["very_weakly"]),
        (-0.3, -0.39, -0.1, "negative_between", ["very_weakly", "weakly"]),
        (-0.5, -0.7, -0.4, "negative_between", ["moderately", "strongly"]),
        (-0.4, -0.9, -0.1, "negative_unsettled", ["very_weakly", "very_strongly"]),
        (0.3, None, None, "no_conclusion", []),
        (None, None, None, "follows_undefined", []),
    ],
)
def test_verdict_claims_only_what_both_interval_ends_support(
    estimate: float | None, low: float | None, high: float | None, code: str, steps: list[str] | None
) -> None:
    found = strength(Estimate(estimate, low, high))
    assert found.code == code
    assert steps is None or list(found.values.values()) == steps


def test_verdict_sentences() -> None:
    assert sentence(strength(Estimate(0.3, 0.2, 0.39)), "page") == "Refusals are weakly correlated with errors."
    text = sentence(strength(Estimate(0.24, -0.03, 0.49)), "page")
    assert text == "Refusals are at most moderately correlated with errors, if at all."


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.05, 0.38, "at best weakly correlated with errors."),
        (0.25, 0.5, "weakly to moderately correlated with errors."),
        (-0.12, -0.02, "very weakly, negatively correlated with errors."),
        (-0.38, -0.05, "negatively, but at most weakly, correlated with errors."),
        (-0.5, -0.25, "weakly to moderately, negatively correlated with errors."),
        (-0.9, -0.1, "negatively correlated with errors, very weakly to very strongly."),
    ],
)
def test_verdict_is_in_proportion_to_the_size_of_the_index(low: float, high: float, text: str) -> None:
    assert sentence(strength(Estimate((low + high) / 2, low, high))) == f"Refusals are {text}"


def test_verdict_without_information_names_no_strength() -> None:
    found = sentence(strength(Estimate(0.5, -0.2, 1.0)))
    assert found == "These questions do not show whether refusals are correlated with errors."


def test_every_verdict_fits_one_terminal_line() -> None:
    ends = [place / 20 for place in range(-20, 21)]
    verdicts = [strength(Estimate(low, low, high)) for low in ends for high in ends if low <= high]
    assert {verdict.code for verdict in verdicts} >= {
        "negative",
        "negative_unsettled",
        "no_sign",
        "sign_unsettled",
        "follows_unsettled",
    }
    assert max(len(sentence(verdict)) for verdict in verdicts) <= 80


def headline_of_run(run: RunView) -> Headline:
    return headline(run.summary, run.run.about)


def by_title(run: RunView) -> dict[str, Statement]:
    return {sentence(caveat, "title"): caveat for caveat in headline_of_run(run).caveats}


@pytest.mark.parametrize("counts", [(50, 0, 30, 60), (600, 2, 398, 0)])
def test_meaningless_index_gives_no_conclusion(counts: tuple[int, int, int, int]) -> None:
    run = report_run(counts_table(*counts))
    found = headline_of_run(run)
    assert found.index.estimate is not None
    assert found.verdict.code == "no_conclusion"
    assert found.pairs is None
    assert sentence(found.verdict) in first_screen(run.summary)


def test_the_first_screen_says_which_index_it_shows() -> None:
    once, twice = report_run(rows(400, variants=("normal",))), report_run(two_draws(400))
    ri = refusal_index(once.variants[0].table).estimate
    assert headline_of_run(once).index.estimate == headline_of_run(twice).index.estimate == pytest.approx(ri, abs=1e-12)
    assert [statement.code for statement in headline_of_run(once).indices] == ["what_ri_is"]
    corrected = twice.summary.corrected
    assert corrected.estimate != pytest.approx(ri, abs=0.01)
    what, which = headline_of_run(twice).indices
    assert (what.code, which.values) == ("what_ri_is", {"each": {"": corrected}})
    ends = f"{corrected.estimate:.2f} [{corrected.low:.2f}, {corrected.high:.2f}]"
    assert f"Corrected RI is {ends}: RI estimated for the model's probabilities" in sentence(which, "page")


def test_first_screen_says_both_indices_agree_at_temperature_zero() -> None:
    run = report_run(rows(400, variants=("normal",)))
    at_zero = replace(run.run, computed=summarise(run.shown, is_deterministic=True))
    found = headline_of_run(replace(run, run=at_zero))
    assert [statement.code for statement in found.indices] == ["what_ri_is", "corrected_repeats_ri"]


def test_overview_axis_shows_only_ri() -> None:
    """Runs are shown by RI however often they were sampled."""
    drawn, once = report_run(two_draws(400), label="a"), report_run(rows(400, rho=0.3, seed=2, variants=("normal",)))
    found = overview([replace(run, number=place) for place, run in enumerate((drawn, once))])
    assert {line.index.name for line in found.lines} == {"refusal_index"}
    estimates = {line.name: line.index.estimate for line in found.lines}
    assert estimates == pytest.approx(
        {run.run.label: refusal_index(run.variants[0].table).estimate for run in (drawn, once)}, abs=1e-12
    )


def test_first_screen_shows_joint_index_only_for_several_prompts() -> None:
    several, one = report_run(rows(400)), report_run(rows(400, variants=("normal",)))
    assert several.pooled is not None
    assert headline_of_run(several).index.estimate == several.pooled.refusal_index.estimate
    assert [line.name for line in index_picture(several).lines] == ["all", "low", "normal", "high", "highest"]
    assert headline_of_run(one).index.estimate == one.variants[0].index.estimate
    assert [line.name for line in index_picture(one).lines] == ["normal"]


def test_best_and_worst_prompt_are_named() -> None:
    run = report_run(rows(400))
    found = {v.variant: v.index.estimate for v in run.variants}
    best, worst = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
    (compared,) = (
        comparison.values for comparison in headline_of_run(run).comparisons if comparison.code == "best_and_worst"
    )
    values = {"best": best, "high": found[best], "worst": worst, "low": found[worst]}
    assert values.items() <= compared.items()


@pytest.mark.parametrize(
    ("counts", "title"),
    [
        ((0, 0, 50, 50), "Undefined"),
        ((50, 0, 30, 60), "At the boundary"),
        ((600, 2, 398, 0), "Next to no knowledge"),
        ((60, 3, 20, 40), "Few right answers"),
        ((30, 40, 2, 60), "A small cell"),
    ],
)
def test_serious_cautions_come_first(counts: tuple[int, int, int, int], title: str) -> None:
    run = report_run(counts_table(*counts))
    assert by_title(run)[title].severity == "serious"
    severities = [caveat.severity for caveat in headline_of_run(run).caveats]
    assert severities == sorted(severities, key=["serious", "note"].index)


def test_missing_answers_are_reported_however_few() -> None:
    table = rows(400, variants=("normal",))
    first = pl.int_range(pl.len()) < 2
    gone = table.with_columns(
        pl.when(~first).then(pl.col(name)).alias(name) for name in ("refused", "wrong", "first_grade")
    ).with_columns(unscored_reason=pl.when(first).then(pl.lit("first_truncated")))
    run = report_run(gone)
    found, missing = headline_of_run(run), run.variants[0].missing
    unscored = by_title(run)["Unscored"].values
    assert (unscored["missing"], unscored["asked"]) == (2, 400)
    values = {"missing": 2, "asked": 400, "variant": None, "low": missing.low, "high": missing.high}
    assert Statement("missing_range", "scope", values) in found.certainty
    assert found.missing_answers is None
    by_name = {row.name: row for row in sensitivity_rows(report_run(gone))}
    (cell,) = by_name["missing answers"].cells
    assert (cell.low, cell.high, by_name["missing answers"].kind) == (missing.low, missing.high, "range")


def test_incomplete_prompts_are_reported_before_any_number(tmp_path: Path) -> None:
    table = rows(30, variants=("low", "high"))
    columns = ("refused", "wrong", "first_grade", "forced_grade", "first_reply", "forced_reply")
    to_come = (pl.col("variant") == "high") & (pl.int_range(pl.len()) % 2 == 0)
    gone = table.with_columns(
        *(pl.when(~to_come).then(pl.col(name)).alias(name) for name in columns),
        unscored_reason=pl.when(to_come).then(pl.lit("not_finished")),
    )
    text = "Incomplete: high 15 of 30 questions scored; run the same command again to complete it."
    write_page((report_run(gone),), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert page.count(text) == 1
    assert page.index(text) < page.index('class="headline"')
    assert "15 of 30 questions under high have no grade" in page
    write_page((report_run(table),), tmp_path / "r.html")
    assert "Incomplete" not in (tmp_path / "r.html").read_text()


def test_same_caution_of_several_prompts_appears_once() -> None:
    table = rows(300)
    refused_again = table.with_columns(
        forced_grade=pl.when(pl.col("refused")).then(pl.lit("refused")).otherwise("forced_grade"),
        wrong=pl.col("wrong") | pl.col("refused"),
    )
    caveats = headline_of_run(report_run(refused_again)).caveats
    (found,) = (caveat for caveat in caveats if sentence(caveat, "title") == "Refused when forced (low)")
    assert found.severity == "serious"
    assert (found.values["first"], found.values["others"]) == ("low", ["normal", "high", "highest"])
    assert "The same holds for normal, high and highest." in sentence(found, "page")


def test_paper_models_are_shown_only_for_datasets_of_the_paper() -> None:
    assert published_pictures([report_run(rows(300))]) == []
    view = report_run(rows(300, dataset="simpleqa"))
    (picture,) = published_pictures([view])
    assert [line.is_run for line in picture.lines].count(False) == 16
    assert all(line.is_grey for line in picture.lines if not line.is_run), "an outcome table is not comparable"
    stated = [comparison.code for comparison in headline_of(view).comparisons]
    assert stated[-2:] == ["published_place", "published_not_comparable"]


def test_runs_of_one_dataset_share_a_picture_and_other_datasets_have_their_own() -> None:
    one, other = report_run(rows(300, dataset="simpleqa")), report_run(rows(300, dataset="simpleqa", seed=1), label="n")
    wiki = report_run(rows(300, dataset="precise_wiki", variants=("normal",)), label="w")
    pictures = published_pictures([one, wiki, other])
    names = [[line.name for line in picture.lines if line.is_run] for picture in pictures]
    assert [sorted(runs) for runs in names] == [["m", "n"], ["w"]]
    assert [len(picture.lines) for picture in pictures] == [18, 6]


def test_page_has_a_picture_of_the_paper_with_the_reasons(tmp_path: Path) -> None:
    write_page([report_run(rows(300, dataset="simpleqa"))], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert page.count('<tr class="grey">') == 16
    assert page.count('<tr class="own">') == 1
    assert "300 of the 4,326 questions" in page
    assert "does not record prompts" in page
    write_page([report_run(rows(300))], tmp_path / "other.html")
    assert "Among the models of the paper" not in (tmp_path / "other.html").read_text()


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
        ("again", "Refused when forced", 8, "serious"),
        ("missing", "Unscored", 1, "note"),
        ("missing", "Unscored", 12, "serious"),
    ],
)
def test_caution_with_a_large_effect_on_the_index_is_serious(kind: str, title: str, count: int, weight: str) -> None:
    """One question in a thousand matters little; about ten refused ones can move the index by more than .05."""
    assert by_title(report_run(missing_of(kind, count)))[title].severity == weight


@pytest.mark.parametrize(("kind", "title"), [("again", "Refused when forced"), ("missing", "Unscored")])
def test_pull_is_computed_from_the_unweighted_index(kind: str, title: str) -> None:
    plain = missing_of(kind, 7)
    right_and_answered = ~pl.col("refused") & ~pl.col("wrong")
    weighted = plain.with_columns(weight=pl.when(right_and_answered).then(20.0).otherwise(1.0))
    shifts = [by_title(report_run(rows))[title].values["shift"] for rows in (plain, weighted)]
    assert shifts[0] == shifts[1] > 0


def test_one_response_per_question_raises_no_doubts() -> None:
    assert headline_of_run(report_run(rows(2000, variants=("normal",)))).caveats == ()


def test_report_explains_that_index_1_concerns_order_only(tmp_path: Path) -> None:
    """(5, 0, 495, 500) has an index of 1 though 495 wrong answers were given."""
    assert refusal_index(ContingencyTable(5, 0, 495, 500)).estimate == 1
    write_page((report_run(rows(300)), report_run(rows(300), label="n")), tmp_path / "r.html")
    page = " ".join((tmp_path / "r.html").read_text().split())
    assert "strictly in order of difficulty" in page
    assert "refuses exactly what it would get wrong" not in page
    assert "refuses only questions it would get wrong, as long as there are any" in page


# --- The first screen of the terminal

FOUR = {
    "low": (80, 20, 300, 600),
    "normal": (200, 80, 180, 540),
    "high": (260, 150, 120, 470),
    "a variant with quite a long name": (320, 300, 60, 320),
}


@pytest.mark.parametrize(("columns", "most_lines"), [("60", 21), ("80", 15), ("300", 15)])
def test_four_prompts_take_few_lines_that_fit_the_terminal(capsys, monkeypatch, columns, most_lines):
    """A run adds a blank line, what it used, two commands and its report: 20 lines of 80 columns."""
    monkeypatch.setenv("COLUMNS", columns)
    console.show(first_screen(summary(**FOUR)))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= most_lines
    assert max(map(len, lines)) <= min(80, int(columns))


def refused_again(found: pl.DataFrame) -> pl.DataFrame:
    """Give each forced answer its grade; a tenth of the wrong ones refused again."""
    refused = pl.col("refused") & pl.col("wrong") & (pl.int_range(pl.len()) % 10 == 0)
    forced = (
        pl.when(refused).then(pl.lit("refused")).when("wrong").then(pl.lit("incorrect")).otherwise(pl.lit("correct"))
    )
    return found.with_columns(forced_grade=pl.when("refused").then(forced))


def test_first_screen_with_a_caution_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    tables = [table(counts, Identification("m", "d", name[:16])) for name, counts in FOUR.items()]
    console.show(first_screen(summarise(refused_again(pl.concat(tables)))))
    lines = capsys.readouterr().out.splitlines()
    assert "Caveat, prompt low: " in "\n".join(lines)
    assert len(lines) <= 20 - 3
    assert max(map(len, lines)) <= 80


def test_row_shows_rates_by_definition(capsys):
    console.show(first_screen(summary(normal=(710, 30, 210, 50))))
    title, _, index, sentence, *rest = capsys.readouterr().out.splitlines()
    assert title == "m on d: 1,000 questions"
    assert index.startswith("RI 0.48 [0.36, 0.59]   0 chance |")
    assert sentence
    row = next(line.split() for line in rest if line.startswith("normal"))
    # refused 740/1000, wrong 710/740 of the refused and 210/260 of the answered, refused 30/80 of the right
    assert " ".join(row) == "normal 0.48 [0.36, 0.59] 74% 96% 81% 38%"


def test_an_undefined_index_says_why_and_columns_without_a_number_are_left_out(capsys):
    console.show(first_screen(summary(normal=(0, 0, 60, 40))))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("RI undefined (no refusals")
    assert next(line.split() for line in lines if line.startswith("normal")) == ["normal", "0%", "60%", "0%"]


def test_missing_answers_are_shown_beside_the_numbers(capsys):
    found = summarise(table((30, 20, 20, 29), Identification("m", "d", "normal"), unscored=1))
    console.show(first_screen(found))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "m on d: 100 questions"
    assert next(line for line in lines if line.startswith("normal")).endswith("1 (1.0%)")


def test_several_models_get_one_row_each_and_no_joint_index(capsys):
    rows = [table((30, 20, 20, 30), Identification(model, "d", "normal")) for model in ("one", "two")]
    console.show(first_screen(summarise(pl.concat(rows))))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == ["one, d, normal", "two, d, normal"]
    assert not any(line.startswith("RI ") for line in lines)


@pytest.mark.parametrize(
    "ends", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (-1.0, -1.0, 1.0), (-0.2, 0.1, 0.4), (0.9, 1.0, 1.0)]
)
def test_property_the_scale_has_one_width_and_shows_the_estimate_once(ends):
    low, estimate, high = ends
    drawn = scale(Estimate(estimate, low, high)).split("|")[1]
    assert len(drawn) == 29
    assert drawn.count("O") == 1
    start = -1 if low < 0 else 0
    assert drawn.index("O") == pytest.approx((estimate - start) / (1 - start) * 28, abs=0.5)
