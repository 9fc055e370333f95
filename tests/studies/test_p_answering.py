"""P(Answering) of a first pass alone, joined with the answers of a run of both passes, against a local server."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.models.fake_api import FakeApi, is_forced, is_grading, plain_verdict, question_of
from tests.served import ADDRESS, at, grader_at
from tests.studies.outcomes_made import make_run, table_rows

from refusal_index.data.datasets import Dataset
from refusal_index.data.outcome import Question
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.draws import joined_p_answering
from refusal_index.findings.run_results import RunResults, find_runs
from refusal_index.plugins.studies.correlations import auroc_correlation
from refusal_index.plugins.studies.inputs import chosen_runs
from refusal_index.plugins.studies.study import StudyOptions, study_spec
from refusal_index.runs.dry_run import estimate_run
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan, prepare
from refusal_index.runs.reuse import prepare_regrade
from refusal_index.runs.settings import Settings
from refusal_index.stats import auroc

COUNT = 24
DRAWS = 5
VARIANTS = ("low", "normal", "high")
OPTIONS = StudyOptions()


class Sampled:
    """A model that refuses some questions in some samples, in three ways, and a grader.

    Question k is right if forced for odd k. No two answers to a question are alike, so that each would be graded.
    """

    def __init__(self) -> None:
        self.calls = Counter[str]()

    def __call__(self, message: str) -> str:
        if is_grading(message):
            answer = message.rpartition("<prediction>")[2].partition("</prediction>")[0]
            return plain_verdict(message) or ("A" if "right" in answer else "C" if "know" in answer else "B")
        number = int(question_of(message).split()[2])
        self.calls[message] += 1
        call = self.calls[message]
        if not is_forced(message) and call * (number + 3) % 7 < number % 7:
            return ("<answer>UNANSWERED</answer>", "I don't know.", "I do not know that, sorry.")[(call + number) % 3]
        return f"<answer>{'right' if number % 2 else 'other'} {call}</answer>"


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a first pass with five samples and a run of both passes, the requests of each, and the first's plan."""
    questions = tuple(Question(f"q{number}", f"What is {number} plus {number}?", "x") for number in range(COUNT))
    dataset = Dataset("sums", questions, "0" * 64, "made by a test", "exact", "none")
    requests: dict[str, Counter[str]] = {}

    def plan(name: str, **settings: object) -> Plan:
        common = {"model": "any", "grader": "judge", "variants": VARIANTS, **at(graded=True)}
        return prepare(Settings.from_values(**common, **settings), dataset=dataset, out=tmp_path / name)

    with FakeApi(Sampled()) as api:
        monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")
        monkeypatch.setenv(ADDRESS, api.url)
        sampled = plan("samples", answered_only=True, draws=DRAWS, temperature=1, max_choices=1)
        estimate = asyncio.run(estimate_run(sampled))
        for one in (sampled, plan("both")):
            before = len(api.answered)
            asyncio.run(execute(one))
            requests[one.folder.path.name] = Counter(map(kind_of, api.messages()[before:]))
    runs = {run.source.name: run for run in find_runs([tmp_path / "samples", tmp_path / "both"]).runs}
    return runs, requests, estimate


def kind_of(message: str) -> str:
    if plain_verdict(message) is not None:
        return "checks"
    return "grading" if is_grading(message) else "forced" if is_forced(message) else "first"


def refuses(reply: str) -> bool:
    return "UNANSWERED" in reply or "know" in reply


def share_of_answers(rows: pl.DataFrame) -> dict[str, float]:
    """Count the answers among the further samples, by their words."""
    shares = {}
    for (question_id,), samples in rows.filter(pl.col("draw") > 0).group_by("question_id"):
        replies = samples["first_reply"].to_list()
        shares[question_id] = sum(not refuses(reply) for reply in replies) / len(replies)
    return shares


def test_end_to_end_samples_of_a_first_pass_are_read_not_graded(both):
    runs, requests, estimate = both
    counted = requests["samples"]
    n_cells = COUNT * len(VARIANTS)
    assert counted["first"] == n_cells * DRAWS
    assert counted["forced"] == 0
    first = runs["samples"].outcomes.filter(draw=0)
    tagged_refusals = first["first_reply"].str.contains("UNANSWERED").sum()
    assert 0 < tagged_refusals < n_cells
    assert counted["grading"] == n_cells - tagged_refusals
    remaining = estimate.remaining
    assert remaining.first.requests.least == remaining.first.requests.most == counted["first"]
    assert remaining.forced.requests.most == 0
    assert remaining.grading.requests.least <= counted["grading"] <= remaining.grading.requests.most == 2 * n_cells
    further = runs["samples"].outcomes.filter(pl.col("draw") > 0)
    assert further["refused"].to_list() == [refuses(reply) for reply in further["first_reply"]]
    assert set(further.filter(~pl.col("refused"))["unscored_reason"]) == {"first_not_graded"}
    assert further["wrong"].null_count() == further.height
    assert runs["samples"].is_complete


def test_end_to_end_p_answering_takes_its_answers_from_the_run_of_both_passes(both):
    runs, _, _ = both
    study = auroc_correlation.make([runs["samples"], runs["both"]], OPTIONS)
    for variant in VARIANTS:
        shares = share_of_answers(runs["samples"].tables[variant])
        graded = runs["both"].tables[variant]
        right = dict(graded.select("question_id", ~pl.col("wrong")).iter_rows())
        expected = auroc([shares[name] for name in right], list(right.values())).estimate
        row = study.frame.filter(variant=variant, metric="refusal_index").row(0, named=True)
        assert row["auroc"] == pytest.approx(expected)
        assert (row["draws"], row["questions"]) == (DRAWS, COUNT)
        metric = runs["both"].summary.variants[VARIANTS.index(variant)].index.estimate
        assert row["value"] == (metric if metric is None else pytest.approx(metric))
    assert study.frame["drawn_in"].unique().to_list() == [runs["samples"].label]
    assert any(note.startswith("P(Answering) of 3 of 3 points comes from a first pass alone") for note in study.notes)
    assert not study.warning, "what was not planned is not missing"


def test_end_to_end_regrading_reads_the_samples_and_grades_the_first(both, tmp_path, monkeypatch):
    runs, _, _ = both
    with FakeApi(Sampled()) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        settings = Settings.from_values(grader="another", **grader_at())
        plan = prepare_regrade(runs["samples"].source, settings, out=tmp_path / "again")
        asyncio.run(execute(plan))
        counted = Counter(map(kind_of, api.messages()))
    first = runs["samples"].outcomes.filter(draw=0)
    assert counted["grading"] == first.height - first["first_reply"].str.contains("UNANSWERED").sum()
    assert counted["first"] == counted["forced"] == 0
    (again,) = find_runs([tmp_path / "again"]).runs
    assert again.outcomes["refused"].to_list() == runs["samples"].outcomes["refused"].to_list()
    assert again.is_complete


def first_pass_only(refused: np.ndarray, **columns: object) -> pl.DataFrame:
    """Rows of a first pass alone, whose answers are graded as wrong by a rule."""
    rows = table_rows(refused, np.ones(refused.size, bool), **columns)
    is_refused = pl.col("refused")
    return rows.with_columns(
        wrong=pl.when(~is_refused).then("wrong"),
        forced_grade=pl.lit(None, pl.String),
        unscored_reason=pl.when(is_refused).then(pl.lit("forced_not_asked")),
    )


def sampled_run(model: str, n: int, *, draws: int = 6, settings: dict | None = None) -> RunResults:
    rng = np.random.default_rng(5)
    rows = [first_pass_only(rng.random(n) < 0.5, model=model, draw=draw) for draw in range(draws)]
    tables = {"normal": pl.concat(rows)}
    return RunResults.of_tables(f"{model} samples", Path("samples"), model, "d", tables, settings)


def test_first_sample_is_left_out_and_questions_are_joined_by_id():
    drawn = pl.concat([first_pass_only(np.array(row, bool), draw=draw) for draw, row in enumerate([[1, 0], [0, 1]])])
    graded = table_rows([True, False], [False, True])
    assert joined_p_answering(drawn, graded.head(1)).rows() == [("q0", 1.0, True)]
    assert joined_p_answering(drawn, graded).rows() == [("q0", 1.0, True), ("q1", 0.0, False)]


def test_other_questions_under_the_same_id_are_an_error():
    drawn = pl.concat([first_pass_only(np.array([True]), draw=draw) for draw in range(2)])
    graded = table_rows([True], [False])
    with pytest.raises(OutcomeTableError, match="q0"):
        joined_p_answering(drawn.with_columns(question=pl.lit("Who?")), graded.with_columns(question=pl.lit("When?")))


def test_metrics_come_from_the_run_with_a_forced_pass_however_many_questions_the_other_has():
    whole = make_run("m0", n=50, draws=1, variants=("normal",))
    sampled = sampled_run("m0", 400)
    assert chosen_runs([sampled, whole])[0] == (whole,)
    assert chosen_runs([sampled])[0] == (sampled,)


RECORDED = {"model": "m", "placement": "user", "think": None, "prompts": {"sha256": "a"}}


@pytest.mark.parametrize(
    ("name", "other"),
    [("prompts", {"sha256": "b"}), ("model_args", {"revision": "b"}), ("extra_body", {"top_k": 1})],
)
def test_samples_of_other_requests_are_not_joined(name, other):
    sets = [RECORDED, {**RECORDED, name: other}]
    models = [make_run(f"m{i}", rho=0.3 * i, n=150, draws=3, seed=i, variants=("normal",)) for i in range(3)]
    single = make_run("m9", n=150, seed=9, variants=("normal",))
    both = RunResults.of_tables("m9", Path("m9"), "m9", "d", single.tables, sets[0])
    joined = auroc_correlation.make([*models, both, sampled_run("m9", 150, settings=sets[0])], OPTIONS)
    assert "m9" in set(joined.frame["model"])
    other = auroc_correlation.make([*models, both, sampled_run("m9", 150, settings=sets[1])], OPTIONS)
    assert "m9" not in set(other.frame["model"])
    assert any("has other settings" in note and name in note for note in other.notes)


def test_display_names_of_the_two_runs_may_differ(both):
    """A configuration needs other names for two runs of one model on the same questions."""
    runs, _, _ = both
    named = replace(runs["samples"], label="any, samples", model="any, samples")
    expected = auroc_correlation.make([runs["samples"], runs["both"]], OPTIONS).frame
    assert (
        auroc_correlation.make([named, runs["both"]], OPTIONS).frame.drop("drawn_in").equals(expected.drop("drawn_in"))
    )
    table = study_spec("results_table").make([named, runs["both"]], OPTIONS).frame
    assert set(table.filter(pl.col("source") == "run")["model"]) == {runs["both"].label}
    alone = study_spec("results_table").make([named], OPTIONS).frame
    assert set(alone.filter(pl.col("source") == "run")["model"]) == {"any, samples"}
