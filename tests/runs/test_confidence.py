"""Scores of confidence for a run, and what they rest on."""

from __future__ import annotations

import itertools
import shutil
import signal
import threading
from pathlib import Path

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.findings.confidence_record import MethodRecord, read_record
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.hidden_states import FILE, states_of
from refusal_index.plugins.confidence.plan import ConfidencePlan, Replies, pending
from refusal_index.plugins.confidence.scores import add_scores, allowed, prepare_confidence, refresh_scores
from refusal_index.protocol import GraderKind, Message, Pass, Role
from refusal_index.runs.events import Finished, Replied
from refusal_index.runs.rebuild import rebuild
from refusal_index.runs.results import procedure_of
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError, open_store
from tests.runs import models
from tests.runs.models import ASKED, LOCAL, ROWS

# --- Confidence scores of a run

EMBEDDED = {"limit": 30, "variants": "low,high", "out": "run"}
SAMPLED = ("p-answering", "self-consistency", "answer-entropy")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of an embedded model, with a third of its questions sampled three times."""
    out = tmp_path_factory.mktemp("made") / "run"
    ri.evaluate("almanac/base", draws=3, repeat_questions=10, **{**EMBEDDED, "out": out})
    return out


@pytest.fixture
def run(run_folder: Path) -> Path:
    return Path(shutil.copytree(run_folder, "run"))


def plan_of(run: Path, *methods: str, **settings: object) -> ConfidencePlan:
    return prepare_confidence(run, methods, Settings.from_values(**settings))


@pytest.mark.slow
def test_only_missing_forced_answers_are_requested(run):
    with open_store(RunFolder(run)) as store:
        before = list(store.replies()), store.draws()
    outcomes = pl.read_parquet(run / "outcomes.parquet")
    forced = outcomes.filter((pl.col("draw") == 0) & pl.col("forced_grade").is_not_null())["question_id"].unique()
    told: list[object] = []
    ri.confidence_scores(run, SAMPLED, progress=told.append)
    replied = {one.completion.question_id for one in told if isinstance(one, Replied)}
    assert replied == set(outcomes["question_id"]) - set(forced)
    assert 0 < len(replied) < 30
    again: list[object] = []
    ri.confidence_scores(run, SAMPLED, progress=again.append)
    assert not again, "nothing is left to request and no engine is opened"
    with open_store(RunFolder(run)) as store:
        assert (list(store.paid()), store.draws()) == before, "the run's replies are unchanged"
    assert pl.read_parquet(run / "outcomes.parquet").equals(outcomes)


@pytest.mark.slow
def test_dry_run_predicts_the_requests_sent(run):
    plan = plan_of(run, "likelihood", "p-answering")
    foreseen = pending(plan)
    told: list[object] = []
    ri.confidence_scores(run, ["likelihood", "p-answering"], progress=told.append)
    assert [(one.name, one.requests) for one in foreseen] == [("forced", sum(isinstance(one, Replied) for one in told))]
    assert foreseen[0].questions == sum(isinstance(one, Finished) for one in told) == 30
    assert pending(plan) == []


@pytest.mark.slow
def test_run_with_logprobs_needs_no_further_requests():
    run = ri.evaluate("almanac/base", logprobs=True, draws=2, **EMBEDDED)
    assert pending(plan_of(run.path, "likelihood", *SAMPLED)) == []
    table = ri.confidence_scores(run, ["likelihood", *SAMPLED])
    with open_store(run.folder) as store:
        logprobs = {
            reply.question_id for reply in store.replies() if reply.reply.pass_ is Pass.FORCED and reply.logprobs
        }
    assert set(table.filter(method="likelihood").drop_nulls("confidence")["question_id"]) == logprobs
    assert len(logprobs) == 30


@pytest.mark.slow
def test_scored_answers_keep_the_grades_of_the_run(run):
    table = ri.confidence_scores(run, ["self-consistency"])
    outcomes = pl.read_parquet(run / "outcomes.parquet").filter(pl.col("draw") == 0, pl.col("variant") == "low")
    graded = table.join(outcomes, on="question_id").filter(pl.col("forced_grade").is_not_null())
    assert graded.height == 10
    assert graded["wrong"].to_list() == [grade != "correct" for grade in graded["forced_grade"]]


def test_self_consistency_counts_agreeing_answers_against_theory():
    turns = itertools.cycle([0, 1, 1])

    def changing(messages):
        """Always answer the first question the same way and alternate on the second one."""
        number = models.number_in(messages[-1]["content"])
        return f"<answer>{number and number + next(turns)}</answer>"

    made = LOCAL | {"draws": 4, "out": "run", "max_connections": 1}
    run = ri.evaluate(changing, ROWS[:2], model_name="changing", **made)
    forced = {
        question: run.outcomes.filter(question_id=question).sort("draw")["forced_reply"].to_list()
        for question in ("q0", "q1")
    }
    table = ri.confidence_scores(run, ["self-consistency"], model=changing)
    found = dict(table.select("question_id", "confidence").iter_rows())
    assert found["q0"] == 1
    first, *others = forced["q1"]
    assert found["q1"] == pytest.approx(sum(other == first for other in others) / 3)
    assert 0 < found["q1"] < 1


def test_function_without_logprobs_raises_and_names_other_methods():
    run = ri.evaluate(models.answer, ROWS, **LOCAL, draws=2, out="run")
    asked = ASKED.total()
    with pytest.raises(SettingError, match=r"likelihood: needs log probabilities, .* returns none; .*p-answering"):
        ri.confidence_scores(run, ["likelihood"])
    assert ASKED.total() == asked, "it raises before any request"


def test_methods_that_need_draws_name_the_option_that_adds_them():
    run = ri.evaluate("almanac/base", draws=1, **EMBEDDED)
    with pytest.raises(SettingError, match=r"self-consistency: needs several samples.*--draws 5 adds them"):
        ri.confidence_scores(run, ["self-consistency"])
    reasons = {method.name: reason for method, reason in allowed(run.path, Settings.from_values()).items()}
    assert reasons["likelihood"] is None
    assert "several samples" in reasons["p-answering"]


def test_unknown_method_error_suggests_the_nearest(run):
    with pytest.raises(ri.RefusalIndexError, match=r"got 'likelyhood'.*likelihood"):
        ri.confidence_scores(run, ["likelyhood"])


def test_interrupted_scoring_keeps_replies_and_resumes():
    run = ri.evaluate(models.answer, ROWS, **LOCAL | {"draws": 1}, out="run")
    asked = ASKED.total()
    plan = prepare_confidence(run.path, ["p-true"], Settings.from_values())
    foreseen = {one.name: one.requests for one in pending(plan)}
    assert foreseen["forced"] == 4, "those that were answered"
    with pytest.raises(KeyboardInterrupt):
        ri.confidence_scores(run, ["p-true"], model=interrupting(asked + 2), max_connections=1)
    assert _own(run.path), "paid replies are stored"
    after = ASKED.total()
    ri.confidence_scores(run, ["p-true"], model=models.answer)
    assert ASKED.total() - asked == 4 + 8 * 10
    assert after > asked


def interrupting(after: int):
    def answer(messages):
        if ASKED.total() >= after:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return models.answer(messages)

    return answer


def test_grader_of_the_run_grades_additional_answers():
    made = {**LOCAL, "grader": models.judge, "out": "run"}
    run = ri.evaluate(models.answer, ROWS, **made)
    before = ASKED["judge"]
    table = ri.confidence_scores(run, ["p-true"], model=models.answer, grader=models.judge)
    assert ASKED["judge"] - before == 4
    assert table["wrong"].null_count() == 0
    assert Role.GRADER in {one.reply.role for one in _own(run.path)}


def _own(path: Path):
    with open_store(RunFolder(path)) as store:
        return list(store.paid(auxiliary=True))


def test_scores_with_outdated_grades_are_removed_and_reported(run):
    ri.confidence_scores(run, ["likelihood", "self-consistency"])
    table = pl.read_parquet(run / "confidence.parquet")
    other = pl.when(pl.col("method") == "likelihood").then(~pl.col("wrong")).otherwise("wrong")
    table.with_columns(wrong=other).write_parquet(run / "confidence.parquet")
    rebuilt = rebuild(run)
    assert rebuilt.outdated == ("likelihood",)
    assert rebuilt.confidence["method"].unique().to_list() == ["self-consistency"]
    assert [one.method for one in rebuilt.summary.sections["confidence"]] == ["self-consistency"]
    again: list[object] = []
    assert ri.confidence_scores(run, ["likelihood"], progress=again.append).height == table.height
    assert not again, "the replies were there"


@pytest.mark.slow
def test_draw_based_scores_are_removed_when_draws_are_added():
    made = EMBEDDED | {"limit": 10, "logprobs": True}
    run = ri.evaluate("almanac/base", draws=2, **made)
    ri.confidence_scores(run, ["p-answering", "self-consistency", "likelihood"])
    further = ri.evaluate("almanac/base", draws=4, **made)
    assert further.outdated == ("p-answering", "self-consistency")
    assert further.confidence["method"].unique().to_list() == ["likelihood"]
    found = ri.confidence_scores(further, ["self-consistency"]).filter(method="self-consistency")
    assert set((found["confidence"] * 3).round(6).to_list()) <= {0.0, 1.0, 2.0, 3.0}, "three further draws each"


def test_added_scores_follow_run_grades_unless_they_bring_their_own(run):
    outcomes = pl.read_parquet(run / "outcomes.parquet").filter(pl.col("draw") == 0)
    ids = outcomes["question_id"].unique(maintain_order=True).to_list()
    found = pl.DataFrame({"question_id": ids, "method": "found", "confidence": 0.5})
    stated = pl.DataFrame({"question_id": ids, "method": "stated", "confidence": 0.5, "wrong": True})
    add_scores(run, pl.concat([found, stated], how="diagonal"))
    changed = pl.read_parquet(run / "outcomes.parquet").with_columns(wrong=~pl.col("wrong"), first_grade=None)
    changed = changed.with_columns(pl.lit(None, pl.String).alias("first_grade"), forced_grade=pl.lit(None, pl.String))
    before = pl.read_parquet(run / "confidence.parquet")
    with open_store(RunFolder(run)) as store:
        refresh_scores(RunFolder(run), store, procedure_of(RunFolder(run).read_settings()), changed.lazy())
    after = pl.read_parquet(run / "confidence.parquet")
    assert (after.filter(method="found")["wrong"] != before.filter(method="found")["wrong"]).all()
    assert after.filter(method="stated").equals(before.filter(method="stated"))


def test_missing_verdict_does_not_repeat_the_answer_request(run):
    with open_store(RunFolder(run)) as store:
        (question, *_) = store.questions().values()
        answers = Replies(store, GraderKind.MODEL).forced(question)
    assert all(answer.wrong is None for answer in answers.values())
    assert all(answer.text for answer in answers.values())


@pytest.mark.slow
def test_all_methods_of_a_run_share_folds(run):
    ri.confidence_scores(run, ["text-classifier"], group="none")
    table = ri.confidence_scores(run, ["topic"], group="entity")
    folds = [table.filter(method=name).sort("question_id")["fold"].to_list() for name in ("text-classifier", "topic")]
    assert folds[0] == folds[1]


def test_early_end_raises_and_keeps_replies(run):
    with pytest.raises(ri.RefusalIndexError, match=r"ended early.*the same call resumes"):
        ri.confidence_scores(run, ["likelihood"], max_requests=5)
    assert len(_own(run)) == 5


def test_symlinked_states_folder_is_not_followed(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (run / "confidence").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ri.RefusalIndexError, match=r"confidence cannot be used .*link"):
        states_of("almanac/base", {"q1": [Message("user", "Where?")]}, run / FILE, ["q1"])
    assert not list((tmp_path / "elsewhere").iterdir())


def test_folder_with_a_second_reply_store_raises(run):
    with ReplyStore(RunFolder(run).replies) as store:
        (run / "confidence").mkdir()
        with ReplyStore(RunFolder(run / "confidence").replies) as other:
            other.copy_from(store)
    for use in (rebuild, lambda path: ri.confidence_scores(path, ["likelihood"])):
        with pytest.raises(StoreError, match=r"^[^\n]*confidence/replies\.sqlite: [^\n]*$"):
            use(run)


def test_damaged_confidence_table_raises_before_any_request(run):
    (run / "confidence.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(ri.RefusalIndexError, match=r"confidence\.parquet"):
        ri.confidence_scores(run, ["likelihood"])
    assert not (run / "confidence").exists()


def test_invalid_layer_raises_before_any_request(run):
    told: list[object] = []
    with pytest.raises(SettingError, match=r"layer: expected 0, before the first layer, to 4, after the last, got 9"):
        ri.confidence_scores(run, ["p-ik", "likelihood"], layer=9, progress=told.append)
    assert not told


@pytest.mark.slow
def test_only_confidence_prompts_are_requested_if_answers_exist():
    run = ri.evaluate("almanac/base", draws=2, **EMBEDDED | {"limit": 6})
    table = ri.confidence_scores(run, ["verbalised-number-after"], max_requests=6)
    assert table.height == 6
    assert {one.reply.pass_ for one in _own(run.path)} == {Pass.PROBE}


# --- Requests counted for confidence scores

METHODS = ("p-answering", "self-consistency", "likelihood", "p-true", "p-ik", "text-classifier")
DRAWS = 3


@pytest.fixture(scope="module")
def scored_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of an embedded model with scores of every kind."""
    out = tmp_path_factory.mktemp("made") / "run"
    ri.evaluate("almanac/base", limit=60, variants="low,high", draws=DRAWS, out=out)
    ri.confidence_scores(out, METHODS)
    return out


@pytest.fixture
def scored_run(scored_folder: Path) -> Path:
    return Path(shutil.copytree(scored_folder, "run"))


def records(run: Path) -> dict[tuple[str, str | None], MethodRecord]:
    return {(one.method, one.variant): one for one in read_record(RunFolder(run).confidence_record)}


def replies(run: Path, of: Pass, variant: str = "") -> list:
    with open_store(RunFolder(run)) as store:
        return [reply for reply in store.replies() if reply.reply.pass_ is of and reply.variant == variant]


def usage_totals(events: list) -> tuple[int, int, int]:
    return tuple(sum(getattr(one, name) for one in events) for name in ("requests", "input_tokens", "output_tokens"))


def usage(one: MethodRecord) -> tuple[int, int, int]:
    return one.usage.requests, one.usage.input_tokens, one.usage.output_tokens


@pytest.mark.slow
def test_every_method_and_the_baseline_has_a_record(scored_folder):
    found = records(scored_folder)
    table = pl.read_parquet(scored_folder / "confidence.parquet")
    assert set(found) == set(table.select("method", "variant").unique().iter_rows())
    assert ("topic", None) in found
    assert {one.questions for one in found.values()} == {60}


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["low", "high"])
def test_p_answering_counts_only_first_passes_of_its_prompt(scored_folder, variant):
    events, one = replies(scored_folder, Pass.FIRST, variant), records(scored_folder)["p-answering", variant]
    assert (one.generations, one.draws, one.own_requests) == (len(events), DRAWS, 0)
    assert usage(one) == usage_totals(events)
    assert one.seconds == pytest.approx(sum(reply.seconds for reply in events if reply.requests))


@pytest.mark.slow
def test_agreement_counts_forced_answers_and_the_scored_answer(scored_folder):
    run, beside = replies(scored_folder, Pass.FORCED), replies(scored_folder, Pass.FORCED, "confidence/forced")
    one = records(scored_folder)["self-consistency", None]
    assert (one.generations, one.draws) == (len(run) + len(beside), DRAWS)
    assert usage(one) == usage_totals([*run, *beside])
    assert one.own_requests == len(beside) == 60


@pytest.mark.slow
def test_likelihood_counts_the_answer_with_logprobs(scored_folder):
    one, beside = records(scored_folder)["likelihood", None], replies(scored_folder, Pass.FORCED, "confidence/forced")
    assert (one.generations, one.draws, one.own_replies) == (60, 1, 0)
    assert usage(one) == usage_totals(beside)


@pytest.mark.slow
def test_p_true_counts_the_answer_and_the_judgement(scored_folder):
    one = records(scored_folder)["p-true", None]
    asked = [
        *replies(scored_folder, Pass.FORCED, "confidence/forced"),
        *replies(scored_folder, Pass.PROBE, "confidence/p-true"),
    ]
    assert (one.generations, one.draws, one.own_replies) == (120, 1, 1)
    assert usage(one) == usage_totals(asked)


@pytest.mark.slow
def test_trained_methods_record_their_training_data_and_folds(scored_folder):
    found = records(scored_folder)
    for method in ("p-ik", "text-classifier", "topic"):
        one = found[method, None]
        assert (one.training_examples, one.n_folds, one.seed, one.grouped_by) == (60, 5, 0, "entity")
        assert 5 <= one.groups <= 60
        assert set(one.versions) == {"refusal-index", "scikit-learn"}
    assert (found["p-ik", None].states, found["p-ik", None].state_size) == (60, 192)
    assert (found["p-ik", None].is_of_model, found["text-classifier", None].is_of_model) == (True, False)
    assert found["likelihood", None].training_examples is None
    assert found["likelihood", None].needs == ("log probabilities",)


@pytest.mark.slow
def test_scoring_again_keeps_the_records_of_the_other_methods(scored_run):
    before = records(scored_run)
    ri.confidence_scores(scored_run, ["likelihood"])
    assert records(scored_run) == before


@pytest.mark.slow
def test_added_scores_need_new_names_and_keep_the_records(scored_run):
    table = pl.read_parquet(scored_run / "confidence.parquet").filter(method="likelihood")
    table.select("question_id", "confidence").write_csv("ours.csv")
    before = records(scored_run)
    with pytest.raises(ri.RefusalIndexError, match=r"method 'likelihood': expected a new name"):
        add_scores(scored_run, Path("ours.csv"), method="likelihood")
    add_scores(scored_run, Path("ours.csv"), method="mine")
    assert records(scored_run) == before


@pytest.mark.slow
def test_grader_replies_count_if_the_score_uses_grades():
    made = {**LOCAL, "grader": models.judge, "draws": 2, "out": "run"}
    run = ri.evaluate(models.answer, ROWS, **made)
    ri.confidence_scores(run, ["p-answering", "self-consistency"])
    with open_store(run.folder) as store:
        asked = [reply for reply in store.replies() if reply.question_id]  # the others test the grader
        first = [one for one in asked if one.reply.pass_ is Pass.FIRST]
    own = [one for one in first if one.reply.role is Role.MODEL]
    found = records(run.path)
    assert len(own) < len(first)
    assert found["p-answering", "high"].usage.requests == len(first)
    assert found["p-answering", "high"].generations == len(own)
    # Agreement of texts does not depend on grades.
    assert found["self-consistency", None].usage.requests == found["self-consistency", None].generations == 16
    assert ASKED["judge"] > 0
