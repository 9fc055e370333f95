"""What scores took, from the record in a run's folder, beside what the two passes took."""

from __future__ import annotations

import polars as pl
import pytest
from tests.studies.made import made_run
from tests.studies.outcomes_made import HOSTILE, check_files
from tests.studies.scores_made import in_folder, record, with_scores

from refusal_index.findings.summary import Usage
from refusal_index.plugins.studies.cost import MODEL, PREDICTOR, TRAINED, calibrator_cost, cost_in_words
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions

OPTIONS = StudyOptions()


TRAINED_ON = {"training_examples": 55, "n_folds": 5, "seed": 0, "groups": 40, "grouped_by": "topic"}
RECORDS = [
    record("likelihood", usage=Usage(6000, 300, 60, 0.25)),
    record("p-answering", variant="low", draws=5, generations=300, seconds=None),
    record("p-ik", states=60, state_size=192, **TRAINED_ON),
    record("text-classifier", is_of_model=False, **TRAINED_ON),
]


@pytest.fixture
def run():
    return made_run("m", n=60, variants=["low", "high"], draws=3)


def rows_of(frame: pl.DataFrame) -> dict[str, dict]:
    return {row["method"]: row for row in frame.iter_rows(named=True)}


def test_the_numbers_are_those_that_were_measured(run, tmp_path):
    found = rows_of(calibrator_cost.make([in_folder(run, tmp_path, RECORDS)], OPTIONS).frame)
    for one in RECORDS:
        row = found[one.method]
        assert (row["variant"], row["questions"], row["generations"]) == (one.variant, 60, one.generations)
        assert (row["requests"], row["input_tokens"], row["output_tokens"]) == (60, 6000, 300)
        assert (row["seconds"], row["own_requests"]) == (one.seconds, 12)
        assert (row["training_examples"], row["states"]) == (one.training_examples, one.states)
    assert found["likelihood"]["cost_usd"] == 0.25


def test_what_each_score_is_an_estimate_of_and_costs_in_the_papers_terms(run, tmp_path):
    found = rows_of(calibrator_cost.make([in_folder(run, tmp_path, RECORDS)], OPTIONS).frame)
    assert {name: (row["estimate_of"], row["cost"]) for name, row in found.items() if name != "refusal_index"} == {
        "likelihood": (MODEL, "N generations"),
        "p-answering": (MODEL, "S N generations"),
        "p-ik": (TRAINED, "N generations + N states of d numbers + training on N_train answers + N predictions"),
        "text-classifier": (PREDICTOR, "N generations + training on N_train answers + N predictions"),
    }
    stated = record("verbalised-number", draws=0, own_replies=1)
    assert cost_in_words(stated) == "N generations with a confidence"
    assert cost_in_words(record("p-true", own_replies=1)) == "N generations + N judgements of the answer"


def test_the_index_takes_the_refused_of_one_prompt_and_all_that_the_run_asked(run, tmp_path):
    frame = calibrator_cost.make([in_folder(run, tmp_path, RECORDS)], OPTIONS).frame.filter(method="refusal_index")
    once, as_run = frame.iter_rows(named=True)
    refused = run.variants["low"].filter(draw=0)["refused"].sum()
    assert (once["variant"], once["generations"], once["requests"]) == ("low", 60 + refused, None)
    assert once["cost"] == "at most 2 N generations"
    # Three first answers under each of two prompts, and three forced answers that they share.
    assert (as_run["variant"], as_run["generations"]) == ("2 prompts, 3 draws", 60 * 3 * 2 + 60 * 3)
    assert (as_run["requests"], as_run["input_tokens"]) == (1000, 18_000)
    assert as_run["cost"] == "at most 3 S N generations"


def test_one_prompt_and_draw_is_one_line_with_what_it_took(tmp_path):
    run = with_scores(made_run("m", n=60, variants=["low"]), ["likelihood"])
    frame = calibrator_cost.make([in_folder(run, tmp_path, RECORDS[:1])], OPTIONS).frame.filter(method="refusal_index")
    assert frame.select("variant", "requests", "draws").rows() == [("low", 500, 1)]


def test_scores_that_nobody_measured_are_said_and_not_zero(run, tmp_path):
    made = in_folder(run, tmp_path, RECORDS[:1])
    added = with_scores(made, {"likelihood": 1, "ours": 1})
    study = calibrator_cost.make([added], OPTIONS)
    assert rows_of(study.frame)["ours"]["requests"] is None
    assert study.notes == (
        "Unknown for m, ours: these scores were not computed by 'refusal-index confidence RUN --method NAME'.",
    )
    assert study.printed(study.frame).filter(Method="ours")["Requests"].item() == "-"
    check_files(study)


def test_runs_of_which_nothing_was_measured_are_said(run, tmp_path):
    with pytest.raises(NotPossibleError, match="refusal-index confidence"):
        calibrator_cost.make([run, with_scores(run)], OPTIONS)
    made = in_folder(run, tmp_path, RECORDS)
    (tmp_path / "confidence.json").write_text('{"record_version": 1, "methods": {"likelihood": [{}]}}')
    with pytest.raises(NotPossibleError, match="which measures their cost"):
        calibrator_cost.make([made], OPTIONS)


def test_it_draws_and_prints_one_method_and_many_runs(run, tmp_path):
    check_files(calibrator_cost.make([in_folder(run, tmp_path, RECORDS[:1])], OPTIONS))
    hostile = [*RECORDS, record(HOSTILE)]
    runs = [in_folder(made_run(f"{HOSTILE}{i}", n=30), tmp_path / str(i), hostile) for i in range(4)]
    check_files(calibrator_cost.make(runs, OPTIONS))
