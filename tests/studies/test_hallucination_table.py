"""The index over datasets: the paper's W and entropy from its printed table, and the index within sources."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import polars as pl
import pytest
from scipy.stats import rankdata
from tests.studies.made import made_run

from refusal_index.data.published import hallucination_rows
from refusal_index.plugins.studies.inputs import run_index
from refusal_index.plugins.studies.results import (
    AGREEMENT,
    HALLUCINATION_SCHEMA,
    hallucination_table,
    ranked_block,
    truth_of,
    with_agreement,
)
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions, tex_text
from refusal_index.stats import refusal_index

OPTIONS = StudyOptions()
DATASETS = ("precise_wiki", "faitheval_counterfactual", "faitheval_inconsistent", "faitheval_unanswerable")


def statistics_of(frame: pl.DataFrame) -> dict[str, float]:
    return dict(frame.filter(pl.col("statistic").is_in(AGREEMENT)).select("statistic", "estimate").rows())


@pytest.fixture(scope="module")
def paper():
    rows = [
        {
            "statistic": "refusal_index",
            "model": model,
            "dataset": dataset,
            "truth": truth_of(dataset),
            "estimate": value,
        }
        for model, *values in hallucination_rows().iter_rows()
        for dataset, value in zip(DATASETS, values, strict=True)
    ]
    return with_agreement(pl.DataFrame(rows, schema=HALLUCINATION_SCHEMA))


def test_agreement_of_the_papers_table(paper):
    found = statistics_of(paper)
    assert found["kendall_w"] == pytest.approx(0.2125, abs=5e-5)
    assert found["kendall_w_ties"] == pytest.approx(0.2179, abs=5e-5)
    assert found["winner_entropy"] == pytest.approx(0.6460, abs=5e-5)
    assert found["kendall_w_random"] == 0.25


def test_averages_of_the_papers_table(paper):
    averages = paper.filter(statistic="average")["estimate"].to_list()
    assert averages == pytest.approx([0.480, 0.560, 0.244, 0.318])
    assert [round(value, 2) for value in averages] == [0.48, 0.56, 0.24, 0.32]


def test_truth_contrast_over_models_from_paper_table(paper):
    """By hand: contrasts .29, .285, .24, .37, .01, of mean .239; Student's t with 4 degrees of freedom is 2.776."""
    own = paper.filter(statistic="truth_contrast")["estimate"].to_list()
    assert own == pytest.approx([0.29, 0.285, 0.24, 0.37, 0.01])
    average = paper.filter(statistic="truth_contrast_average").row(0, named=True)
    reach = 2.776445 * np.std(own, ddof=1) / math.sqrt(5)
    assert average["estimate"] == pytest.approx(0.239)
    assert (average["low"], average["high"]) == pytest.approx((0.239 - reach, 0.239 + reach), abs=1e-6)
    assert average["models"] == 5


def test_contrast_of_one_model_assumes_independent_indices():
    kinds = ("simpleqa", "faitheval_counterfactual", "faitheval_unanswerable")
    runs = [
        made_run("m", dataset=name, rho=0.2 * i, seed=i, n=250, variants=["normal"]) for i, name in enumerate(kinds)
    ]
    # Separate questions: the errors of the indices are independent.
    for number, run in enumerate(runs):
        own = pl.format("{} {}", pl.lit(number), "question")
        run.tables["normal"] = run.tables["normal"].with_columns(question=own)
    study = hallucination_table.make(runs, OPTIONS)
    found = [
        refusal_index(refused=t["refused"].to_numpy(), wrong=t["wrong"].to_numpy())
        for t in (run.tables["normal"] for run in runs)
    ]
    row = study.frame.filter(statistic="truth_contrast").row(0, named=True)
    first, second, third = found
    assert row["estimate"] == pytest.approx((first.estimate + second.estimate) / 2 - third.estimate)
    error = math.hypot(math.hypot(first.standard_error, second.standard_error) / 2, third.standard_error)
    assert row["high"] - row["low"] == pytest.approx(2 * 1.959964 * error, rel=1e-5)
    assert study.groups == {name: f"Truth {'un' * (name == kinds[2])}available" for name in kinds}
    assert any(note.endswith("an interval over models needs 3.") for note in study.notes)
    tex = tex_text(study)
    assert (
        "& \\multicolumn{2}{c}{\\textbf{Truth available}} & \\multicolumn{1}{c}{\\textbf{Truth unavailable}} & " in tex
    )
    assert "\\cmidrule(lr){2-3} \\cmidrule(lr){4-4}" in tex
    assert study.printed(study.frame).columns == ["block", "Model", *kinds, "available less unavailable"]


def test_contrast_without_sampling_error_has_no_interval():
    runs = [made_run("m", dataset=name, n=200, variants=["normal"]) for name in ("simpleqa", "faitheval_unanswerable")]
    row = hallucination_table.make(runs, OPTIONS).frame.filter(statistic="truth_contrast").row(0, named=True)
    assert (row["estimate"], row["low"], row["high"]) == (0, None, None)


def test_ceiling_of_w_accounts_for_errors_of_every_index():
    runs = [made_run(f"m{i}", dataset=dataset, rho=0.25 * i, n=400, seed=i) for i in range(4) for dataset in ("a", "b")]
    study = hallucination_table.make(runs, OPTIONS)
    found = study.frame.filter(statistic="kendall_w_ceiling").row(0, named=True)
    # Both datasets have the same questions and answers: their errors are identical, and W is 1.
    assert found["estimate"] == pytest.approx(1)
    assert any("would reduce W to 1.00" in note for note in study.notes)


def test_agreement_against_its_definitions():
    runs = [
        made_run(f"m{i}", dataset=dataset, rho=0.2 * i, n=200, seed=10 * i + j)
        for i in range(3)
        for j, dataset in enumerate(("a", "b", "c"))
    ]
    frame = hallucination_table.make(runs, OPTIONS).frame
    scores = np.array([run_index(run, OPTIONS).index.estimate for run in runs]).reshape(3, 3).T
    sums = np.array([rankdata(row) for row in scores]).sum(axis=0)
    found = statistics_of(frame)
    assert found["kendall_w"] == pytest.approx(12 * ((sums - sums.mean()) ** 2).sum() / (9 * 24))
    shares = [count / 3 for count in Counter(np.argmax(scores, axis=1).tolist()).values()]
    assert found["winner_entropy"] == pytest.approx(-sum(p * math.log(p, 3) for p in shares))


def test_index_of_a_mix_is_computed_within_sources():
    """Two sources, one of which is refused and wrong more often: the pooled index is larger."""
    easy = made_run(
        "m", dataset="faitheval_unanswerable+precise_wiki", rho=0.3, right=0.9, variants=["high"], n=600, topic="easy"
    )
    hard = made_run("m", rho=0.3, right=0.2, variants=["highest"], n=600, seed=5, topic="hard")
    mixed = pl.concat(
        [
            easy.tables["high"],
            hard.tables["highest"].with_columns(
                variant=pl.lit("high"), dataset=pl.col("dataset"), question_id="h" + pl.col("question_id")
            ),
        ]
    )
    easy.tables["high"] = mixed
    frame = hallucination_table.make([easy, made_run("m", dataset="precise_wiki")], OPTIONS).frame
    row = frame.row(0, named=True)
    pooled = refusal_index(refused=mixed["refused"].to_numpy(), wrong=mixed["wrong"].to_numpy())
    assert row["estimate"] == pytest.approx(pooled.estimate)
    assert row["within_low"] < row["within_source"] < row["within_high"]
    assert row["within_source"] < row["estimate"]
    assert frame["truth"].to_list()[:2] == ["unavailable", "available"]
    assert frame["within_source"][1] is None


def test_single_dataset_raises_and_single_model_is_not_ranked():
    with pytest.raises(NotPossibleError, match="two datasets or more"):
        hallucination_table.make([made_run("a"), made_run("b")], OPTIONS)
    study = hallucination_table.make([made_run("a", dataset="x"), made_run("a", dataset="y", seed=1)], OPTIONS)
    assert any("undefined (no two models on two datasets)" in note for note in study.notes)
    assert statistics_of(study.frame)["kendall_w"] is None


def test_models_that_miss_a_dataset_are_shown_but_not_ranked():
    runs = [made_run(m, dataset=d, seed=s, n=150) for s, (m, d) in enumerate([("a", "x"), ("a", "y"), ("b", "x")])]
    study = hallucination_table.make(runs, OPTIONS)
    assert study.frame.filter(statistic="refusal_index").height == 3
    assert any("no two models on two datasets" in note for note in study.notes)
    table = study.printed(study.frame)
    assert table["Model"].to_list() == ["a", "b"]
    assert table.filter(pl.col("Model") == "b")["y"].to_list() == ["-"]


def test_averages_and_agreement_are_of_the_largest_complete_block():
    """Models a, b and c on x and y have six cells, all but c on three datasets; d and the dataset w have fewer."""
    places = [*((m, d) for m in "abc" for d in "xy"), ("a", "z"), ("b", "w"), ("d", "x")]
    runs = [made_run(m, dataset=d, rho=0.1 * s, n=150, seed=s) for s, (m, d) in enumerate(places)]
    study = hallucination_table.make(runs, OPTIONS)
    averages = study.frame.filter(statistic="average")
    assert averages.select("dataset", "models").rows() == [("x", 3), ("y", 3)]
    for dataset, average in averages.select("dataset", "estimate").rows():
        own = study.frame.filter(pl.col("model").is_in(list("abc")), statistic="refusal_index", dataset=dataset)
        assert average == pytest.approx(own["estimate"].mean())
    assert statistics_of(study.frame)["kendall_w_random"] == 1 / 2
    assert any(note.endswith("Models left out: d. Datasets left out: z; w.") for note in study.notes)
    last = study.printed(study.frame).row(-1, named=True)
    assert (last["Model"], last["z"], last["w"]) == ("Average of 3 models", "-", "-")


def test_average_of_the_contrast_is_in_a_row_of_its_own_if_it_is_of_other_models():
    kinds = ("simpleqa", "precise_wiki", "faitheval_unanswerable")
    places = [*((m, d) for m in "abc" for d in kinds[:2]), ("a", kinds[2]), ("b", kinds[2])]
    runs = [made_run(m, dataset=d, rho=0.1 * s, n=150, seed=s) for s, (m, d) in enumerate(places)]
    study = hallucination_table.make(runs, StudyOptions(without_paper=True))
    table = study.printed(study.frame).tail(2)
    assert table["Model"].to_list() == ["Average of 3 models", "Average of 2 models with both kinds"]
    contrast = table["available less unavailable"].to_list()
    assert contrast[0] == "-"
    assert contrast[1] != "-"
    assert table["simpleqa"][1] == "-"


def test_a_second_run_of_a_model_on_a_dataset_is_left_out():
    runs = [made_run("a", dataset="x"), made_run("a", dataset="y"), made_run("a", dataset="x", seed=3)]
    study = hallucination_table.make(runs, OPTIONS)
    assert any("another run on the same dataset" in note for note in study.notes)
    assert study.figure().axes
    assert study._repr_html_().startswith('<figure><img src="data:image/png;base64,')


def test_paper_values_are_a_block_below_the_runs_unless_left_out():
    kinds = ("precise_wiki", "faitheval_unanswerable+precise_wiki")
    runs = [made_run(m, dataset=d, n=150, seed=s) for s, (m, d) in enumerate((m, d) for m in "ab" for d in kinds)]
    study = hallucination_table.make(runs, OPTIONS)
    table = study.printed(study.frame)
    published = table.filter(pl.col("block").str.starts_with("Published: Pan et al."))
    assert table["block"].to_list() == ["Runs"] * 3 + published["block"].to_list()
    assert published["Model"].to_list() == [*hallucination_rows()["model"], "Average of 5 models"]
    assert [f"{value:.2f}" for value in hallucination_rows()[kinds[0]]] == published[kinds[0]].to_list()[:-1]
    assert published.row(-1, named=True)[kinds[0]] == "0.48"  # as the paper prints it
    assert published.row(-1, named=True)[kinds[1]] == "0.32"
    # The paper's values are in no average and no ranking of the runs.
    alone = hallucination_table.make(runs, StudyOptions(without_paper=True))
    assert statistics_of(study.frame) == statistics_of(alone.frame)
    assert "published_index" not in alone.frame["statistic"]
    assert alone.printed(alone.frame)["block"].to_list() == ["Runs"] * 3
    assert study.figure().legends[0].get_texts()[-1].get_text() == "the paper's models"


def test_index_at_the_boundary_is_shown_and_in_no_average():
    """Model c refuses no question that it could answer right, so its RI is 1 whatever its other counts are."""
    rows = [
        {"statistic": "refusal_index", "model": model, "dataset": dataset, "estimate": value, "reason": reason}
        for dataset in ("x", "y")
        for model, value, reason in (("a", 0.2, None), ("b", 0.4, None), ("c", 1.0, "zero_cell:refused_right"))
    ]
    frame = pl.DataFrame(rows, schema=HALLUCINATION_SCHEMA)
    found = with_agreement(frame)
    assert found.filter(statistic="average")["estimate"].to_list() == pytest.approx([0.3, 0.3])
    assert ranked_block(frame).models == ("a", "b")
