"""``sensitivity`` and ``audit`` as a user runs them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table, read_outcomes, write_outcomes
from refusal_index.findings.labels import audit_sheet, labelled_arrays, read_labels, write_sheet
from refusal_index.findings.metrics import METRICS
from refusal_index.render.format import reason_text
from refusal_index.stats import (
    METRIC_NAMES,
    ContingencyTable,
    correct_guessing,
    corrected_refusal_index,
    labels_for_half_width,
    misgrading_from_labels,
    misgrading_range,
    missing_bounds,
    prediction_powered,
    refusal_index,
)

KINDS = {
    Outcome(True, True, Grade.REFUSED, Grade.INCORRECT, forced_reply="no idea"): 90,
    Outcome(True, False, Grade.REFUSED, Grade.CORRECT, forced_reply="=right()"): 20,
    Outcome(False, True, Grade.INCORRECT, first_reply="wrong"): 60,
    Outcome(False, False, Grade.CORRECT, first_reply="right"): 80,
    Outcome(True, True, Grade.REFUSED, Grade.REFUSED, forced_reply="I decline"): 8,
    Outcome(None, None, Grade.UNSCORED, None, "first_truncated"): 4,
}


@pytest.fixture
def run(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    outcomes = [kind for kind, count in KINDS.items() for _ in range(count)]
    order = np.random.default_rng(0).permutation(len(outcomes))
    asked = Identification("m", "d", "normal")
    rows = [
        (asked, Question(f"q{i}", f"question {i}", "gold", topic=f"topic {i % 3}"), outcomes[i]) for i in order.tolist()
    ]
    write_outcomes(outcome_table(rows), Path("run.parquet"))
    return "run.parquet"


def line(stdout: str, start: str) -> str:
    return next(line for line in stdout.splitlines() if line.startswith(start))


def test_every_decision_has_its_row_and_its_number(command, run):
    done = command("sensitivity", run)
    assert done.exit_code == 0
    as_scored = refusal_index(ContingencyTable(98, 20, 60, 80)).estimate
    right = refusal_index(ContingencyTable(90, 28, 60, 80)).estimate
    assert f"{as_scored:.3f}" in line(done.stdout, "refused again is wrong (as scored)")
    assert f"{right:.3f}" in line(done.stdout, "refused again is right")
    bounds = missing_bounds(ContingencyTable(90, 20, 60, 80), 8, 4)
    assert f"{bounds.low:.3f} to {bounds.high:.3f}" in line(done.stdout, "missing answers (any grade)")
    assert line(done.stdout, "within topics").startswith("within topics (3 of 3 informative)")
    for same_rates, start in ((False, "misgraded: 3% of right"), (True, "  the same if refused")):
        spread = misgrading_range(ContingencyTable(98, 20, 60, 80), (0, 0.03), (0, 0.03), same_rates=same_rates)
        assert f"{spread.low:.3f} to {spread.high:.3f}" in line(done.stdout, start)
    assert line(done.stdout, "C/A").split()[1] == f"{80 / 140:.3f}"


def test_the_first_lines_give_the_range_of_the_index_over_all_decisions(command, run):
    """The range spans the smallest and the largest number in the table below, except single topics."""
    output = command("sensitivity", run).stdout
    rows = output[output.index("RI if") : output.index("misgraded:")].splitlines()[1:]
    table = [row for row in (*rows, line(output, "misgraded:"), line(output, "  the same if")) if "  within" not in row]
    numbers = [float(word) for row in table for word in re.findall(r"(?<![\[\d.])-?\d\.\d{3}(?=[ \n])", row + " ")]
    low, high = min(numbers), max(numbers)
    assert f"As scored, RI is {refusal_index(ContingencyTable(98, 20, 60, 80)).estimate:.2f};" in output
    assert f"between {low:.2f} and {high:.2f}." in " ".join(output.split())


def test_range_that_omits_undefined_decisions_says_so(command, run):
    """Error rates of 0.5% and 50% are impossible for this table, so one end of the range is undefined."""
    output = " ".join(command("sensitivity", run, "--grader-error", "0.005,0.5").stdout.split())
    assert "where it is known." in output[: output.index("metric")]


def test_guessing_among_choices_is_corrected_for(command, run):
    done = command("sensitivity", run, "--choices", "4")
    expected = correct_guessing(ContingencyTable(98, 20, 60, 80), 4)
    assert expected.estimate is None
    assert line(done.stdout, "  corrected for guessing among 4").endswith(reason_text(expected.reason))


def test_audit_sheet_is_sampled_labelled_and_corrects_the_index(command, run):
    drawn = command("audit", run, "--out", "sheet.csv", "--size", "60")
    assert drawn.exit_code == 0
    with Path("sheet.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    assert {row["reply"] for row in rows} >= {"right", "'=right()"}
    other = {"correct": "incorrect", "incorrect": "correct"}
    for number, row in enumerate(rows):
        row["human_grade"] = row["grade"] if number % 10 else other[row["grade"]]
    with Path("labelled.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    plain, corrected = command("sensitivity", run), command("sensitivity", run, "--labels", "labelled.csv")
    assert "corrected by 60 labels" not in plain.stdout
    labels = read_labels(Path("labelled.csv"), read_outcomes(run))["m", "d"]
    table = ContingencyTable(98, 20, 60, 80)
    expected = misgrading_from_labels(table, refused=labels.refused, answered=labels.answered)
    assert f"{expected.estimate:.3f}" in line(corrected.stdout, "corrected by 60 labels")
    assert "labelled forced answers:" in corrected.stdout
    assert "pooled over prompts" in corrected.stdout


def label(run, keep) -> None:
    """Label the answers selected by `keep` with the grader's own grades."""
    sheet = audit_sheet(read_outcomes(run), 10_000, seed=0).with_columns(human_grade="grade")
    write_sheet(sheet.filter(keep), Path("labelled.csv"))


FORCED_RIGHT = (pl.col("pass") == "forced") & (pl.col("grade") == "correct")


def test_unlabelled_answer_kind_makes_correction_undefined_and_is_named(command, run):
    label(run, ~FORCED_RIGHT)
    done = command("sensitivity", run, "--labels", "labelled.csv")
    row = line(done.stdout, "corrected by")
    assert row.split()[4] == "-"
    assert line(done.stdout, "  corrected by").endswith(reason_text("no_labels:refused_graded_right"))
    assert "no label says right or wrong for the forced answers graded correct" in " ".join(done.stdout.split())


def test_absent_answer_kind_needs_no_labels(command, run):
    outcomes = read_outcomes(run)
    write_outcomes(outcomes.filter(~(pl.col("refused") & ~pl.col("wrong")).fill_null(value=False)), "few.parquet")
    label("few.parquet", pl.lit(value=True))
    done = command("sensitivity", "few.parquet", "--labels", "labelled.csv")
    assert line(done.stdout, "corrected by").split()[4] == "1.000"
    assert reason_text("zero_cell:refused_right") in line(done.stdout, "  corrected by")


def test_each_model_is_corrected_by_its_own_labels(command, run):
    outcomes = read_outcomes(run)
    write_outcomes(pl.concat([outcomes, outcomes.with_columns(model=pl.lit("other"))]), "two.parquet")
    label("two.parquet", pl.col("model") == "m")
    done = command("sensitivity", "two.parquet", "--labels", "labelled.csv")
    mine, others = (row for row in done.stdout.splitlines() if row.startswith("corrected by"))
    assert f"{refusal_index(ContingencyTable(98, 20, 60, 80)).estimate:.3f}" in mine
    assert others.split()[:5] == ["corrected", "by", "0", "labels", "-"]
    reason = reason_text("no_labels:refused_graded_wrong+refused_graded_right+answered_graded_wrong")
    assert reason in line(done.stdout, "  corrected by 0 labels")
    assert "m, d: labelled first answers" in done.stdout


def test_repeated_refusals_are_unknown_without_forced_grades(command, run):
    bare = read_outcomes(run).with_columns(forced_grade=pl.lit(None, pl.String))
    write_outcomes(bare, "bare.parquet")
    done = command("sensitivity", "bare.parquet")
    both = ("unscored and refused again: lowest", "unscored and refused again: highest")
    for start in ("refused again is right", "refused again is left out", *both):
        assert "not known" in line(done.stdout, start)
    assert f"{refusal_index(ContingencyTable(98, 20, 60, 80)).estimate:.3f}" in line(done.stdout, "as scored")
    assert "not known" not in command("sensitivity", run).stdout


def test_impossible_largest_error_rates_still_show_the_other_end(command, run):
    output = command("sensitivity", run, "--grader-error", "0.005,0.5").stdout
    assert line(output, "misgraded: 0.5% of right, 50% of wrong").count("1.000")
    row = line(output, "  the same if refused")
    smallest = refusal_index(ContingencyTable(98, 20, 60, 80)).estimate
    assert f"{smallest:.3f} to -" in row
    assert f"{row.split('  ')[1]}: {reason_text('negative_cell:refused_right')} at the largest rates" in output


def test_confidence_level_near_one_is_not_rounded_up(command, run):
    assert "99.9% interval" in command("sensitivity", run, "--confidence-level", "0.999").stdout


def test_audit_sheet_in_a_missing_folder_is_an_error(command, run):
    done = command("audit", run, "--out", "nowhere/sheet.csv")
    assert done.exit_code == 2
    assert "--out: the folder nowhere does not exist" in done.stderr


def test_existing_audit_sheet_is_not_overwritten(command, run):
    Path("sheet.csv").write_text("hours of work")
    done = command("audit", run, "--out", "sheet.csv")
    assert done.exit_code == 2
    assert "already exists" in done.stderr
    assert Path("sheet.csv").read_text() == "hours of work"


@pytest.mark.parametrize("given", ["0.1", "a,b", "0.6,0.5", "-0.1,0"])
def test_impossible_error_rates_are_rejected(command, run, given):
    done = command("sensitivity", run, f"--grader-error={given}")
    assert done.exit_code == 2
    assert "--grader-error: expected two rates" in done.stderr


def test_audit_samples_labels_for_a_half_width_with_probabilities(command, run):
    table = ContingencyTable(98, 20, 60, 80)
    wanted = labels_for_half_width(table, 0.25).n
    drawn = command("audit", run, "--out", "sheet.csv", "--half-width", "0.25")
    assert drawn.exit_code == 0
    assert f"{wanted} labels" in drawn.stdout
    sheet = pl.read_csv("sheet.csv")
    assert sheet.height == wanted
    sizes = dict(
        zip(("forced incorrect", "forced correct", "first incorrect", "first correct"), table.counts, strict=True)
    )
    for (kind, grade), part in sheet.group_by("pass", "grade"):
        assert part["inclusion_probability"].to_list() == pytest.approx(
            [part.height / sizes[f"{kind} {grade}"]] * part.height
        )


def test_unreachable_half_width_is_rejected(command, run):
    done = command("audit", run, "--out", "sheet.csv", "--half-width", "0.05")
    assert done.exit_code == 2
    assert "with every answer labelled" in done.stderr
    assert not Path("sheet.csv").exists()
    both = command("audit", run, "--out", "sheet.csv", "--half-width", "0.3", "--size", "9")
    assert "expected --size or --half-width, got both" in both.stderr


def test_each_change_from_ri_to_corrected_ri_has_a_row(command):
    rng = np.random.default_rng(5)
    x = rng.standard_normal(400)
    refused, wrong = (2 * z + rng.standard_normal((2, 400)) > 0 for z in (x, 0.7 * x + 0.7 * rng.standard_normal(400)))
    rows = (
        (
            Identification("m", "d", "v", draw),
            Question(f"q{i}", "?", "!"),
            Outcome(bool(r), bool(w), forced_grade=Grade.INCORRECT if w else Grade.CORRECT),
        )
        for draw in range(2)
        for i, (r, w) in enumerate(zip(refused[draw], wrong[draw], strict=True))
    )
    write_outcomes(outcome_table(rows), Path("drawn.parquet"))
    output = command("sensitivity", "drawn.parquet").stdout
    found = corrected_refusal_index(refused, wrong)
    low, high = found.confidence_interval()
    assert f"{found.forced_for_all:.3f}" in line(output, "every answer is a forced one")
    assert f"{found.uncorrected:.3f}" in line(output, "  from different samples")
    assert f"{found.estimate:.3f}  [{low:.3f}, {high:.3f}]" in line(output, "  without sampling noise: corrected RI")
    single = refusal_index(refused=refused[0], wrong=wrong[0])
    assert f"{single.estimate:.3f}" in line(output, "refused again is wrong (as scored)")


def test_labels_correct_every_metric_of_their_variant(command, run):
    sheet = audit_sheet(read_outcomes(Path(run)), 120, seed=0)
    labelled = sheet.with_columns(
        human_grade=pl.when(pl.int_range(pl.len()) % 9 == 0).then(pl.lit("correct")).otherwise("grade")
    )
    write_sheet(labelled, Path("sheet.csv"))
    outcomes = read_outcomes(Path(run))
    labels = read_labels(Path("sheet.csv"), outcomes)["m", "d"]
    arrays = labelled_arrays(outcomes.drop_nulls(["refused", "wrong"]), labels, "normal")
    assert arrays["labelled"].sum() == 120
    refused, wrong = arrays.pop("refused"), arrays.pop("wrong")
    output = command("sensitivity", run, "--labels", "sheet.csv").stdout
    for one, name in zip(prediction_powered(refused, wrong, **arrays), METRIC_NAMES, strict=True):
        low, high = one.confidence_interval()
        row = line(output, METRICS[name].column + " ")
        assert f"{one.estimate:.{METRICS[name].digits}f}" in row
        assert f"[{low:.{METRICS[name].digits}f}, {high:.{METRICS[name].digits}f}]" in row
    assert "By labels: prediction-powered" in output


def test_invalid_inclusion_probability_is_rejected(command, run):
    sheet = audit_sheet(read_outcomes(Path(run)), 30, seed=0).with_columns(
        human_grade="grade", inclusion_probability=0.0
    )
    write_sheet(sheet, Path("sheet.csv"))
    done = command("sensitivity", run, "--labels", "sheet.csv")
    assert done.exit_code == 2
    assert "column 'inclusion_probability': expected a number above 0" in done.stderr
