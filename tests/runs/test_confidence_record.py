"""What scores rest on is counted in the replies: of the run, beside it, and of graders where grades enter."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.findings.confidence_record import MethodRecord, read_record
from refusal_index.plugins.confidence.scores import add_scores
from refusal_index.protocol import Pass, Role
from refusal_index.runs.plan import open_store
from tests.runs import models
from tests.runs.models import ASKED, LOCAL, ROWS

pytestmark = pytest.mark.slow

METHODS = ("p-answering", "self-consistency", "likelihood", "p-true", "p-ik", "text-classifier")
DRAWS = 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of an embedded model with scores of every kind."""
    out = tmp_path_factory.mktemp("made") / "run"
    ri.evaluate("almanac/base", limit=60, variants="low,high", draws=DRAWS, out=out)
    ri.confidence_scores(out, METHODS)
    return out


@pytest.fixture
def run(made: Path) -> Path:
    return Path(shutil.copytree(made, "run"))


def records(run: Path) -> dict[tuple[str, str | None], MethodRecord]:
    return {(one.method, one.variant): one for one in read_record(RunFolder(run).confidence_record)}


def replies(run: Path, of: Pass, variant: str = "") -> list:
    with open_store(RunFolder(run)) as store:
        return [one for one in store.replies() if one.reply.pass_ is of and one.variant == variant]


def took(said: list) -> tuple[int, int, int]:
    return tuple(sum(getattr(one, name) for one in said) for name in ("requests", "input_tokens", "output_tokens"))


def usage(one: MethodRecord) -> tuple[int, int, int]:
    return one.usage.requests, one.usage.input_tokens, one.usage.output_tokens


def test_every_method_has_a_record_for_its_scores_and_the_baseline_too(made):
    found = records(made)
    table = pl.read_parquet(made / "confidence.parquet")
    assert set(found) == set(table.select("method", "variant").unique().iter_rows())
    assert ("topic", None) in found
    assert {one.questions for one in found.values()} == {60}


@pytest.mark.parametrize("variant", ["low", "high"])
def test_p_answering_rests_on_all_first_passes_of_its_prompt_and_on_nothing_else(made, variant):
    said, one = replies(made, Pass.FIRST, variant), records(made)["p-answering", variant]
    assert (one.generations, one.draws, one.own_requests) == (len(said), DRAWS, 0)
    assert usage(one) == took(said)
    assert one.seconds == pytest.approx(sum(reply.seconds for reply in said if reply.requests))


def test_agreement_rests_on_the_forced_answers_and_on_the_one_that_is_scored(made):
    run, beside = replies(made, Pass.FORCED), replies(made, Pass.FORCED, "confidence/forced")
    one = records(made)["self-consistency", None]
    assert (one.generations, one.draws) == (len(run) + len(beside), DRAWS)
    assert usage(one) == took([*run, *beside])
    assert one.own_requests == len(beside) == 60


def test_the_likelihood_rests_on_the_answer_that_came_with_log_probabilities(made):
    one, beside = records(made)["likelihood", None], replies(made, Pass.FORCED, "confidence/forced")
    assert (one.generations, one.draws, one.own_replies) == (60, 1, 0)
    assert usage(one) == took(beside)


def test_judging_an_answer_takes_the_answer_and_the_judgement(made):
    one = records(made)["p-true", None]
    asked = [
        *replies(made, Pass.FORCED, "confidence/forced"),
        *replies(made, Pass.PROBE, "confidence/p-true"),
    ]
    assert (one.generations, one.draws, one.own_replies) == (120, 1, 1)
    assert usage(one) == took(asked)


def test_what_was_trained_says_on_what_and_how_its_folds_were_made(made):
    found = records(made)
    for method in ("p-ik", "text-classifier", "topic"):
        one = found[method, None]
        assert (one.training_examples, one.n_folds, one.seed, one.grouped_by) == (60, 5, 0, "entity")
        assert 5 <= one.groups <= 60
        assert set(one.versions) == {"refusal-index", "scikit-learn"}
    assert (found["p-ik", None].states, found["p-ik", None].state_size) == (60, 192)
    assert (found["p-ik", None].is_of_model, found["text-classifier", None].is_of_model) == (True, False)
    assert found["likelihood", None].training_examples is None
    assert found["likelihood", None].needs == ("log probabilities",)


def test_scoring_again_keeps_the_records_of_the_other_methods(run):
    before = records(run)
    ri.confidence_scores(run, ["likelihood"])
    assert records(run) == before


def test_scores_of_others_have_names_of_their_own_and_leave_the_records_alone(run):
    table = pl.read_parquet(run / "confidence.parquet").filter(method="likelihood")
    table.select("question_id", "confidence").write_csv("ours.csv")
    before = records(run)
    with pytest.raises(ri.RefusalIndexError, match=r"method 'likelihood': expected a new name"):
        add_scores(run, Path("ours.csv"), method="likelihood")
    add_scores(run, Path("ours.csv"), method="mine")
    assert records(run) == before


def test_replies_of_graders_count_where_grades_enter_the_score():
    made = {**LOCAL, "grader": models.judge, "draws": 2, "out": "run"}
    run = ri.evaluate(models.answer, ROWS, **made)
    ri.confidence_scores(run, ["p-answering", "self-consistency"])
    with open_store(run.folder) as store:
        first = [one for one in store.replies() if one.reply.pass_ is Pass.FIRST]
    own = [one for one in first if one.reply.role is Role.MODEL]
    found = records(run.path)
    assert len(own) < len(first)
    assert found["p-answering", "high"].usage.requests == len(first)
    assert found["p-answering", "high"].generations == len(own)
    # How far texts agree says nothing of who graded them.
    assert found["self-consistency", None].usage.requests == found["self-consistency", None].generations == 16
    assert ASKED["judge"] > 0
