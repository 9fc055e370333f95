"""Runs side by side: matched questions, names, and numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.analysis import Analysis
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import Identification, outcome_table, write_outcomes
from refusal_index.data.rates import draw_matrices, draw_matrix, first_draws, outcome_matrix
from refusal_index.errors import OutcomeTableError, RunFolderError
from refusal_index.findings.comparison import compare_pair
from refusal_index.findings.matching import match, matched_variants, shared_variants
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_differences import differing_settings
from refusal_index.findings.run_results import open_run, read_runs
from refusal_index.stats import (
    METRIC_NAMES,
    compare_corrected,
    compare_joint,
    compare_metrics,
    corrected_refusal_index,
    rank_corrected,
    rank_joint,
    rank_runs,
    refusal_index,
)

# --- Comparing runs

N = 400
THRESHOLDS = {"low": 0.3, "high": -0.3}


def table_of(rho: float, seed: int, variants=("low", "high"), model: str | None = "m", ids=range(N), dataset="d"):
    """Outcomes of a model whose refusals follow the difficulty of the questions, which all models share, with `rho`."""
    error = np.random.default_rng(99).standard_normal(2 * N)[list(ids)]
    refusal = rho * error + math.sqrt(1 - rho * rho) * np.random.default_rng(seed).standard_normal(len(error))
    return outcome_table(
        (
            Identification(model, dataset, variant),
            Question(f"q{question}", f"question {question}", "!"),
            Outcome(bool(refusal[i] > THRESHOLDS[variant]), bool(error[i] > -0.3)),
        )
        for variant in variants
        for i, question in enumerate(ids)
    )


def written(folder: Path, **tables: pl.DataFrame) -> list[Path]:
    paths = [folder / f"{name}.parquet" for name in tables]
    for path, table in zip(paths, tables.values(), strict=True):
        write_outcomes(table, path)
    return paths


@pytest.fixture
def three(tmp_path):
    models = {"a": 0.7, "b": 0.45, "c": 0.0}
    tables = {name: table_of(rho, seed, model=name) for seed, (name, rho) in enumerate(models.items())}
    return read_runs(written(tmp_path, **tables))


def test_pair_comparison_matches_stats_per_variant_and_jointly(three):
    found = compare_pair(three[:2], Analysis(weighted_score_p=0.5))
    assert [variant.name for variant in found.variants] == ["low", "high"]
    stacked = []
    for variant in found.variants:
        matrix = variant.match.matrix
        stacked.append((matrix.refused, matrix.wrong, matrix.scored))
        expected = compare_metrics(matrix.refused, matrix.wrong, matrix.scored, weighted_score_p=0.5)
        for name in METRIC_NAMES:
            assert variant.comparison[name].estimate == expected[name].estimate
            assert variant.comparison[name].pvalue == expected[name].pvalue
    joint = compare_joint(*(np.stack(part, axis=1) for part in zip(*stacked, strict=True)))
    assert found.joint.estimate == pytest.approx(joint.estimate, abs=1e-12)
    assert found.joint.standard_error == pytest.approx(joint.standard_error, abs=1e-12)
    assert found.joint.pvalue < 0.05


def test_variants_missing_different_questions_are_joined_by_question(three, tmp_path):
    number = pl.col("question_id").str.slice(1).cast(pl.Int64)
    lacking = (pl.col("variant") == "low") & (number >= N - 60) | (pl.col("variant") == "high") & (number < 40)
    tables = {run.label: pl.concat(run.tables.values()).filter(~lacking) for run in three[:2]}
    pair, ranking = (do(read_runs(written(tmp_path, **tables)), Analysis()) for do in (compare_pair, rank))
    stacked = np.zeros((3, 2, 2, N), bool)
    for model, table in enumerate(tables.values()):
        for variant, question, refused, wrong in table.select("variant", number, "refused", "wrong").iter_rows():
            stacked[:, model, ("low", "high").index(variant), question] = refused, wrong, True
    joint = compare_joint(*stacked)
    assert pair.joint.estimate == pytest.approx(joint.estimate, abs=1e-12)
    assert pair.joint.standard_error == pytest.approx(joint.standard_error, abs=1e-12)
    assert ranking.ranking.pairs[0].standard_error == pytest.approx(joint.standard_error, abs=1e-12)


def test_ranking_matches_stats_jointly_or_for_one_variant(three):
    jointly, low = rank(three, Analysis(seed=3)), rank(three, Analysis(variant="low", metric="f_score"))
    matches = matched_variants(three, None)
    parts = [(m.matrix.refused, m.matrix.wrong, m.matrix.scored) for m in matches.values()]
    expected = rank_joint(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)), rng=3)
    assert jointly.variant is None
    assert [run.row for run in jointly.ranking.runs] == [run.row for run in expected.runs] == [0, 1, 2]
    assert [run.letters for run in jointly.ranking.runs] == [run.letters for run in expected.runs]
    assert low.ranking.pairs == rank_runs(*parts[0], metric="f_score", rng=0).pairs
    assert low.variant == "low"


def test_variant_without_standard_error_is_left_out_of_joint_indices(three, tmp_path):
    never = table_of(0.5, 5, model="never").with_columns(
        refused=pl.col("refused") & (pl.col("variant") == "high"), first_grade=pl.lit(None, pl.String)
    )
    (run,) = read_runs(written(tmp_path, never=never))
    pair = compare_pair([three[0], run], Analysis())
    assert (pair.joint, pair.joint_over) == (None, ())
    ranking = rank([*three, run], Analysis())
    assert (ranking.variants, ranking.left_out) == (("high",), ("low",))
    assert len(ranking.ranking.runs) == 4


def test_only_the_index_has_a_joint_ranking(three):
    with pytest.raises(OutcomeTableError, match="name one prompt: low, high"):
        rank(three, Analysis(metric="f_score"))


@pytest.mark.parametrize(
    ("ids", "paired", "questions", "left_out"),
    [
        (range(N), True, N, (0, 0)),
        (range(100, N + 100), True, N - 100, (100, 100)),
        (range(300, N + 300), False, 2 * N - 100, (0, 0)),
        (range(N, 2 * N), False, 2 * N, (0, 0)),
        (range(50), True, 50, (N - 50, 0)),
    ],
    ids=["the same questions", "most of them", "a quarter of them", "none of them", "all of far fewer"],
)
def test_questions_are_matched_if_half_of_the_smaller_run_is_shared(tmp_path, ids, paired, questions, left_out):
    runs = read_runs(written(tmp_path, a=table_of(0.8, 1, model="a"), b=table_of(0.5, 2, model="b", ids=ids)))
    found = match(runs, ["low"] * len(runs))
    assert (found.paired, len(found.matrix.question_ids), found.left_out) == (paired, questions, left_out)
    assert found.matrix.scored.all() == paired


@pytest.mark.parametrize(("shared", "paired"), [(60, True), (50, True), (49, False)])
def test_half_of_the_smaller_run_is_enough_however_large_the_other(tmp_path, shared, paired):
    small = table_of(0.5, 2, model="b", ids=range(N - shared, N - shared + 100))
    runs = read_runs(written(tmp_path, a=table_of(0.8, 1, model="a"), b=small))
    for pair in (runs, runs[::-1]):
        assert match(pair, ["low", "low"]).paired == paired


def test_joint_estimates_align_variants_by_question_not_by_column(tmp_path):
    """Under one variant the first questions are missing, under the other the last, so columns do not correspond."""
    whole = [table_of(rho, seed, model=name) for seed, (name, rho) in enumerate({"a": 0.7, "b": 0.2, "c": 0.5}.items())]
    number = pl.col("question_id").str.slice(1).cast(pl.Int64)
    kept = pl.when(pl.col("variant") == "low").then(number >= 150).otherwise(number < N - 50)
    runs = read_runs(written(tmp_path, **{"abc"[i]: table.filter(kept) for i, table in enumerate(whole)}))
    shape = (len(whole), 2, N)
    refused, wrong, scored = (np.zeros(shape, bool) for _ in range(3))
    for run, table in enumerate(whole):
        for row in table.filter(kept).iter_rows(named=True):
            place = run, ("low", "high").index(row["variant"]), int(row["question_id"][1:])
            refused[place], wrong[place], scored[place] = row["refused"], row["wrong"], True
    pair = compare_pair(runs[:2], Analysis()).joint
    expected = compare_joint(refused[:2], wrong[:2], scored[:2])
    assert (pair.estimate, pair.standard_error) == pytest.approx(
        (expected.estimate, expected.standard_error), abs=1e-12
    )
    ranked = {one.row: one.low for one in rank(runs, Analysis()).ranking.runs}
    by_stats = rank_joint(refused, wrong, scored, rng=0).runs
    assert ranked == pytest.approx({row.row: row.low for row in by_stats}, abs=1e-12)


def test_an_unscored_question_is_left_out_on_both_sides(tmp_path):
    broken = table_of(0.5, 2, model="b").with_columns(
        pl.when(pl.col("question_id") == "q7").then(None).otherwise(pl.col(name)).alias(name)
        for name in ("refused", "wrong")
    )
    runs = read_runs(written(tmp_path, a=table_of(0.8, 1, model="a"), b=broken))
    found = match(runs, ["low"] * len(runs))
    assert "q7" not in found.matrix.question_ids
    assert found.left_out == (1, 0)


def test_different_prompts_of_one_model_can_be_compared(tmp_path):
    paths = written(tmp_path, mild=table_of(0.8, 1, ["low"]), strict=table_of(0.8, 1, ["high"]))
    runs = read_runs(paths)
    assert [run.label for run in runs] == ["m (mild.parquet)", "m (strict.parquet)"]
    found = compare_pair(runs, Analysis())
    assert [variant.name for variant in found.variants] == ["low / high"]
    assert found.joint is None
    assert found.variants[0].comparison["refusal_rate"].estimate < 0


def test_runs_without_a_common_variant_are_rejected_and_variants_listed(tmp_path):
    paths = written(tmp_path, a=table_of(0.8, 1, model="a"), b=table_of(0.5, 2, ["low"], model="b"))
    runs = read_runs(paths)
    assert shared_variants(runs) == ("low",)
    other = [
        runs[0],
        read_runs(
            written(tmp_path, c=table_of(0.5, 2, model="c").with_columns(variant=pl.lit("x") + pl.col("variant")))
        )[0],
    ]
    with pytest.raises(OutcomeTableError, match="a: low, high; c: xlow, xhigh"):
        compare_pair(other, Analysis())
    with pytest.raises(
        OutcomeTableError, match=r"b has no prompt 'hgih'.*did you mean|a has no prompt 'hgih'.*did you mean 'high'"
    ):
        compare_pair(runs, Analysis(variant="hgih"))


def test_one_file_may_hold_many_models_and_datasets(tmp_path):
    tables = [table_of(0.5, 1, model=model, dataset=dataset) for model in ("a", "b") for dataset in ("d", "e")]
    runs = read_runs(written(tmp_path, all=pl.concat(tables)))
    assert [run.label for run in runs] == ["a, d", "a, e", "b, d", "b, e"]


def test_same_file_under_different_paths_counts_once(tmp_path, monkeypatch):
    (path,) = written(tmp_path, a=table_of(0.5, 1))
    monkeypatch.chdir(tmp_path)
    assert [run.source for run in read_runs([path, path, Path("a.parquet")])] == [path]


def test_labels_are_unique_if_two_files_share_a_model_and_dataset(tmp_path):
    both = pl.concat([table_of(0.5, 1, dataset=dataset) for dataset in ("d", "e")])
    labels = [run.label for run in read_runs(written(tmp_path, a=both, b=table_of(0.5, 2)))]
    assert len(set(labels)) == 3


def folder_with(path: Path, table: pl.DataFrame | None, **settings: object) -> Path:
    folder = RunFolder(path)
    with folder.lock():
        folder.create_or_resume({"model": "m", **settings})
        if table is not None:
            write_outcomes(table, folder.outcomes)
    return path


def test_differing_settings_of_run_folders_are_named(tmp_path):
    exact = {"grader": {"name": "exact"}}
    one = folder_with(tmp_path / "one", table_of(0.5, 1, model="a"), decoding={"temperature": 0.7}, **exact)
    two = folder_with(
        tmp_path / "two", table_of(0.5, 2, model="b"), decoding={"temperature": 1.0}, grader={"name": "exact"}
    )
    runs = read_runs([one, two, *written(tmp_path, c=table_of(0.5, 3, model="c"))])
    assert differing_settings(runs) == ("decoding",)
    assert differing_settings(runs[1:]) == ()


@pytest.mark.parametrize(("changed", "differs"), [("questions", ()), ("sha256", ("dataset",))])
def test_differing_settings_ignore_the_number_of_questions(tmp_path, changed, differs):
    same = {"name": "d", "sha256": "a", "questions": 10, "questions_sha256": "b"}
    folders = [
        folder_with(tmp_path / model, table_of(0.5, 1, model=model), dataset=dataset)
        for model, dataset in (("a", same), ("b", {**same, changed: "other"}))
    ]
    assert differing_settings(read_runs(folders)) == differs


def test_a_folder_without_outcomes_says_how_to_make_them(tmp_path):
    with pytest.raises(RunFolderError, match=r"holds no outcomes yet.*refusal-index score"):
        read_runs([folder_with(tmp_path / "one", None)])


def test_folder_of_runs_that_is_not_a_set_stands_for_all_of_them_where_one_is_not_asked_for(tmp_path):
    for name in ("one", "two"):
        folder_with(tmp_path / "runs" / name, table_of(0.5, 1, model=name))
    (tmp_path / "runs" / "foreign").mkdir()
    assert [run.label for run in read_runs([tmp_path / "runs"])] == ["one", "two"]
    with pytest.raises(RunFolderError, match=r"found a folder of 2 runs; name one, such as .*runs/one"):
        open_run(tmp_path / "runs")


def test_nonexistent_outcome_file_is_reported_as_missing(tmp_path):
    with pytest.raises(OutcomeTableError, match="there is no such file or folder"):
        read_runs([tmp_path / "nothing"])


def drawn(model: str, slope: float, ids=range(N), n_draws: int = 2) -> tuple[pl.DataFrame, np.ndarray, np.ndarray]:
    """Repeated draws of a model (a smaller slope is more random), and the matrices they come from."""
    x, noise = np.random.default_rng(98).standard_normal((2, 2 * N))[:, list(ids)]
    rng, shape = np.random.default_rng(int(10 * slope)), (n_draws, len(x))
    refused, wrong = (slope * latent + rng.standard_normal(shape) > 0 for latent in (x, 0.6 * x + 0.8 * noise))
    answers = np.where(wrong, Grade.INCORRECT, Grade.CORRECT)
    table = outcome_table(
        (
            Identification(model, "d", "low", draw),
            Question(f"q{question}", f"question {question}", "!"),
            Outcome(bool(refused[draw, i]), bool(wrong[draw, i]), forced_grade=Grade(answers[draw, i])),
        )
        for draw in range(n_draws)
        for i, question in enumerate(ids)
    )
    return table, refused, wrong


def results(*models: tuple) -> list:
    """The corrected index of models sampled on the same questions."""
    return [corrected_refusal_index(refused, wrong) for _, refused, wrong in models]


def test_corrected_index_comparison_matches_stats_and_ri_is_headline(tmp_path):
    made = {name: drawn(name, slope, n_draws=d) for name, slope, d in (("a", 3, 2), ("b", 1, 3))}
    found = compare_pair(read_runs(written(tmp_path, **{name: one[0] for name, one in made.items()})), Analysis())
    expected = compare_corrected(*results(*made.values()))
    (variant,) = found.variants
    corrected = variant.corrected
    assert found.corrected is variant.differences()["corrected_refusal_index"] is corrected
    assert corrected.estimate == pytest.approx(expected.estimate, abs=1e-9)
    assert corrected.pvalue == pytest.approx(expected.pvalue, abs=1e-9)
    assert corrected.confidence_interval() == pytest.approx(expected.confidence_interval(), abs=1e-9)
    single = compare_metrics(*(np.stack([one[part][0] for one in made.values()]) for part in (1, 2)))["refusal_index"]
    assert found.headline is variant.differences()["refusal_index"] is variant.comparison["refusal_index"]
    assert found.headline.estimate == pytest.approx(single.estimate, abs=1e-12)


def test_joint_corrected_indices_are_compared_over_variants_with_repeated_draws(tmp_path):
    made = [drawn(name, slope) for name, slope in (("a", 3), ("b", 1))]
    both = {
        name: pl.concat([table, table.with_columns(variant=pl.lit("high"))])
        for name, (table, *_) in zip("ab", made, strict=True)
    }
    found = compare_pair(read_runs(written(tmp_path, **both)), Analysis())
    expected = compare_corrected(*results(*made))
    assert found.corrected_over == found.joint_over == ("low", "high")
    assert found.headline is found.joint
    assert found.corrected is found.joint_corrected
    assert found.joint_corrected.estimate == pytest.approx(expected.estimate, abs=1e-9)


def test_only_ri_is_compared_if_a_run_has_no_repeated_draws(tmp_path):
    once = table_of(0.5, 1, ["low"], model="once")
    runs = read_runs(written(tmp_path, a=drawn("a", 3)[0], once=once))
    found = compare_pair(runs, Analysis())
    assert found.corrected is None
    assert "corrected_refusal_index" not in found.variants[0].differences()
    assert found.headline is found.variants[0].comparison["refusal_index"]
    assert rank(runs, Analysis()).ranking.metric == "refusal_index"
    with pytest.raises(OutcomeTableError, match=r"more than once in every run .* got none of once; rank by refusal"):
        rank(runs, Analysis(metric="corrected_refusal_index"))


def test_single_sample_at_temperature_zero_is_compared_with_repeated_ones(tmp_path):
    made = {name: drawn(name, slope) for name, slope in (("a", 3), ("b", 1))}
    tables = {"a": made["a"][0], "b": made["b"][0].filter(draw=0)}
    first, second = read_runs(written(tmp_path, **tables))
    alike = replace(second, about={"sent": {"model": {"temperature": 0.0}}})
    (variant,) = compare_pair((first, alike), Analysis()).variants
    single = refusal_index(refused=made["b"][1][0], wrong=made["b"][2][0])
    assert variant.corrected.second.estimate == pytest.approx(single.estimate, abs=1e-9)


def test_ranking_by_ri_or_corrected_index_matches_stats(tmp_path):
    made = {name: drawn(name, slope) for name, slope in (("a", 3), ("b", 1), ("c", 2))}
    runs = read_runs(written(tmp_path, **{name: one[0] for name, one in made.items()}))
    single = [np.stack([one[part][0] for one in made.values()]) for part in (1, 2)]
    by_metric = {
        "refusal_index": rank_runs(*single, metric="refusal_index", rng=0),
        "corrected_refusal_index": rank_corrected(results(*made.values()), rng=0),
    }
    assert rank(runs, Analysis()).ranking.metric == "refusal_index"
    for metric, expected in by_metric.items():
        found = rank(runs, Analysis(metric=metric)).ranking
        assert found.metric == metric
        assert [(run.row, run.letters) for run in found.runs] == [(r.row, r.letters) for r in expected.runs]
        assert [run.estimate for run in found.runs] == pytest.approx([r.estimate for r in expected.runs], abs=1e-9)


@pytest.mark.parametrize(
    ("ids", "numbers"),
    [
        (range(100, N + 100), (N - 100, N - 100, N - 100)),
        (range(300, N + 300), (N, N, N - 300)),
        (range(N, 2 * N), (N, N, 0)),
        (range(N - 60, N + 40), (60, 60, 60)),
    ],
    ids=["most of them", "a quarter of them", "none of them", "most of a small run"],
)
def test_corrected_indices_use_shared_questions_if_at_least_half_are(tmp_path, ids, numbers):
    runs = read_runs(written(tmp_path, a=drawn("a", 2)[0], b=drawn("b", 2, ids)[0]))
    (variant,) = compare_pair(runs, Analysis()).variants
    difference = variant.corrected
    found = difference.first.n_repeated, difference.second.n_repeated
    assert found == numbers[:2]
    assert difference.status == "undefined" or difference.n_shared == numbers[2]


def test_run_with_undefined_index_is_unranked_with_a_reason(tmp_path):
    tables = {name: drawn(name, slope)[0] for name, slope in (("a", 3), ("b", 1), ("never", 2))}
    tables["never"] = tables["never"].with_columns(refused=pl.lit(value=False))
    runs = read_runs(written(tmp_path, **tables))
    for metric in ("refusal_index", "corrected_refusal_index"):
        found = rank(runs, Analysis(metric=metric)).ranking
        assert {run.row for run in found.runs} == {0, 1}
        assert [(run.row, run.reason) for run in found.unranked] == [(2, "nobody_refused")]


# --- Matched outcomes

CELLS = st.sampled_from([None, (False, False), (False, True), (True, False), (True, True)])
RUNS = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), CELLS, min_size=1), min_size=1, max_size=4)


def outcome(cell: tuple[bool, bool] | None, forced: Grade | None = None) -> Outcome:
    if cell is None:
        return Outcome(None, None, Grade.UNSCORED, unscored_reason="first_empty")
    refused, wrong = cell
    answer = Grade.INCORRECT if wrong else Grade.CORRECT
    return Outcome(refused, wrong, Grade.REFUSED if refused else answer, answer if refused else forced)


def table(cells: dict[str, tuple[bool, bool] | None], variant: str = "v", text: str = "") -> pl.DataFrame:
    rows = ((Identification("m", "d", variant), Question(q, text + q, "?"), outcome(c)) for q, c in cells.items())
    return outcome_table(rows)


@given(RUNS)
def test_matrix_cells_match_run_and_question_property(runs):
    matrix = outcome_matrix([table(run) for run in runs])
    assert set(matrix.question_ids) == set().union(*runs)
    assert matrix.scored.shape == (len(runs), len(matrix.question_ids))
    for row, run in enumerate(runs):
        for column, question in enumerate(matrix.question_ids):
            cell = run.get(question)
            assert matrix.scored[row, column] == (cell is not None)
            found = matrix.refused[row, column], matrix.wrong[row, column]
            assert found == (cell or (False, False))
    assert matrix.shared.tolist() == [all(run.get(q) is not None for run in runs) for q in matrix.question_ids]


def test_questions_keep_the_order_of_first_appearance():
    matrix = outcome_matrix([table({"b": (True, True), "a": None}), table({"c": (True, True), "a": (True, False)})])
    assert matrix.question_ids == ("b", "a", "c")


def test_matrix_subsets_keep_their_questions_and_rows():
    matrix = outcome_matrix([table({"a": (True, True), "b": (True, False)}), table({"b": (False, True)})])
    shared = matrix.of_questions(matrix.shared)
    assert shared.question_ids == ("b",)
    assert shared.refused.tolist() == [[True], [False]]
    assert matrix.of_rows([1]).scored.tolist() == [[False, True]]


def test_same_id_for_two_questions_raises_and_names_both():
    with pytest.raises(OutcomeTableError, match=r"'a' stands for 'that a' and for 'this a'"):
        outcome_matrix([table({"a": (True, True)}, text="this "), table({"a": (True, True)}, text="that ")])


def draws(cells: dict[tuple[str, int], tuple[tuple[bool, bool] | None, Grade | None]]) -> pl.DataFrame:
    return outcome_table(
        (Identification("m", "d", "v", draw), Question(question, question, "?"), outcome(cell, forced))
        for (question, draw), (cell, forced) in cells.items()
    )


def test_first_of_several_draws_is_matched():
    rows = draws({("a", 1): ((True, True), None), ("a", 0): ((False, False), None), ("b", 1): ((True, False), None)})
    assert first_draws(rows).select("question_id", "draw").rows() == [("a", 0), ("b", 1)]
    assert outcome_matrix([rows]).refused.tolist() == [[False, True]]


def test_draw_matrix_takes_wrong_from_the_forced_answer():
    rows = draws(
        {
            ("a", 0): ((False, False), Grade.INCORRECT),  # right when answering, wrong when forced
            ("a", 1): ((True, False), None),
            ("b", 0): ((False, True), Grade.REFUSED),
            ("b", 1): ((False, True), Grade.UNSCORED),  # no grade: a gap, which leaves b with one draw
            ("c", 0): ((True, True), None),
            ("c", 1): ((False, True), Grade.CORRECT),
            ("c", 2): (None, None),
            ("d", 0): ((True, True), None),  # sampled once
        }
    )
    matrix = draw_matrix(rows)
    assert matrix.question_ids == ("a", "c")
    assert matrix.refused.tolist() == [[False, True], [True, False]]
    assert matrix.wrong.tolist() == [[True, True], [False, False]]
    assert matrix.scored.all()


def test_draw_matrix_is_empty_without_repeated_questions():
    matrix = draw_matrix(table({"a": (True, True)}))
    assert matrix.refused.shape == (0, 0)
    assert not np.any(matrix.scored)


def test_draw_matrices_share_columns_but_not_rows():
    yes, no = ((True, True), None), ((True, False), None)
    one = draws({("a", 0): yes, ("a", 1): no, ("b", 0): yes, ("c", 0): no, ("c", 2): no})
    other = draws({("c", 1): yes, ("b", 0): yes, ("c", 3): yes})
    first, second = draw_matrices([one, other])
    assert first.question_ids == second.question_ids == ("a", "c")
    assert first.scored.tolist() == [[True, True], [True, False], [False, True]]
    assert first.wrong.tolist() == [[True, False], [False, False], [False, False]]
    assert second.scored.tolist() == second.refused.tolist() == [[False, True], [False, True]]
    assert [matrix.refused.shape for matrix in draw_matrices([table({"a": (True, True)}), other])] == [(0, 1), (2, 1)]
