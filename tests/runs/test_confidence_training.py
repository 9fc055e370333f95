"""Trained methods on a run: what shares a fold, what raises beforehand, and states that are computed once."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.datasets import load_dataset
from refusal_index.data.outcome import Question
from refusal_index.models.settings import SettingError
from refusal_index.plugins.almanac import provider as embedded
from refusal_index.plugins.confidence import hidden_states
from refusal_index.plugins.confidence.hidden_states import states_of
from refusal_index.plugins.confidence.scores import allowed, prepare_confidence
from refusal_index.plugins.confidence.summary import summarise_confidence
from refusal_index.plugins.confidence.trained import RELATIONS, entity_of, groups_of, training_shortage
from refusal_index.protocol import Message
from refusal_index.runs.settings import Settings
from tests.runs.models import ASKED, LOCAL, ROWS, answer

TRAINED = ["likelihood-platt", "likelihood-isotonic", "topic", "p-ik", "text-classifier"]
TALKS = {"q1": [Message("user", "Who wrote it?")], "q2": [Message("user", "When was it?")]}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "run"
    return ri.evaluate("almanac/base", limit=80, variants="high", out=out).path


@pytest.fixture
def run(run_folder: Path) -> Path:
    return Path(shutil.copytree(run_folder, "run"))


@pytest.fixture
def computed(monkeypatch) -> list[int]:
    """Return a list that grows by the number of conversations whenever states are computed."""
    counts: list[int] = []

    def counted(model, conversations, own=embedded.hidden_states):
        counts.append(len(conversations))
        return own(model, conversations)

    monkeypatch.setattr(embedded, "hidden_states", counted)
    return counts


def of(topic: str | None, *ids: str) -> dict[str, Question]:
    return {one: Question(one, "?", "!", topic=topic) for one in ids}


@pytest.mark.slow
def test_trained_methods_score_out_of_fold_and_keep_entities_together(run):
    table = ri.confidence_scores(run, TRAINED)
    assert table.group_by("method").len().sort("method").rows() == [(one, 80) for one in sorted(TRAINED)]
    assert table["confidence"].null_count() == 0
    assert table.group_by("question_id").agg(pl.col("fold").n_unique())["fold"].to_list() == [1] * 80
    entities = table.with_columns(entity=pl.col("question_id").map_elements(entity_of, pl.String))
    assert entities.group_by("entity").agg(pl.col("fold").n_unique())["fold"].max() == 1
    assert ri.confidence_scores(run, TRAINED).equals(table), "the run's seed determines the folds"


@pytest.mark.slow
def test_topic_baseline_accompanies_only_trained_methods(run):
    assert set(ri.confidence_scores(run, ["text-classifier"])["method"]) == {"text-classifier", "topic"}
    alone = ri.confidence_scores(run, ["likelihood"]).filter(pl.col("method") == "likelihood")
    assert alone["fold"].null_count() == 80
    names = [method.name for method in prepare_confidence(run, ["likelihood"], Settings.from_values()).methods]
    assert names == ["likelihood"]


def test_all_excludes_methods_that_train_for_hours(run):
    plan = prepare_confidence(run, ["all"], Settings.from_values())
    assert {method.name for method in plan.methods} >= set(TRAINED)
    assert "apricot" not in {method.name for method in plan.methods}


@pytest.mark.slow
def test_folds_by_topic_make_the_topic_uninformative(run):
    table = ri.confidence_scores(run, ["topic"], group="topic")
    assert table.group_by("fold").agg(pl.col("confidence").n_unique())["confidence"].to_list() == [1] * 5


@pytest.mark.slow
def test_states_are_computed_once_for_all_layers(run, computed):
    areas = [ri.confidence_scores(run, ["p-ik"], layer=layer) for layer in (None, 2, 4)]
    assert computed == [80]
    assert areas[0].equals(areas[1])
    assert not areas[0].equals(areas[2])
    with np.load(run / "confidence" / "states.npz", allow_pickle=False) as held:
        assert held["states"].shape == (80, 5, 192)
        assert held["states"].dtype == np.float16


def test_thresholds_use_predictors_that_were_trained_on_one_half(run):
    stored = ri.confidence_scores(run, ["likelihood", "likelihood-platt", "text-classifier"])
    fixed = ri.threshold(run, "likelihood-platt", penalty=0.1)
    assert fixed.answers.is_trained_on_half
    assert "likelihood-platt was trained again without the grades of the half below." in " ".join(str(fixed).split())
    assert "trained on answers from both halves" not in " ".join(str(fixed).split())
    before = stored.filter(method="likelihood-platt").sort("question_id")
    now = fixed.answers.rows.sort("question_id")
    assert now["question_id"].equals(before["question_id"])
    assert now["wrong"].equals(before["wrong"])
    assert not now["confidence"].equals(before["confidence"])
    chosen = ri.threshold(run, penalty=0.1)
    reasons = {candidate.answers.method: candidate.left_out for candidate in chosen.candidates}
    assert list(reasons) == ["likelihood", "likelihood-platt", "topic", "text-classifier"]
    assert reasons["likelihood-platt"] is None
    bounded = ri.threshold(run, "likelihood-platt", max_error=0.5)
    assert "trained again without the grades of the half that sets the threshold" in " ".join(str(bounded).split())


def test_method_that_cannot_be_trained_on_one_half_says_why(run):
    ri.confidence_scores(run, ["likelihood", "likelihood-platt"])
    document = (run / "run.json").read_text().replace('"name": "default"', '"name": "own-prompts"')
    (run / "run.json").write_text(document)
    found = ri.threshold(run, "likelihood-platt", penalty=0.1)
    assert found.answers.not_trained.startswith("prompts: expected the file of the prompt set 'own-prompts'")
    assert "It cannot be trained on one half: prompts: expected the file" in str(found)


def test_run_with_too_few_training_answers_raises_before_any_request():
    run = ri.evaluate(answer, [{**row, "answer": "none"} for row in ROWS], **LOCAL, out="run")
    ASKED.clear()
    reasons = {method.name: reason for method, reason in allowed(run.path, Settings.from_values()).items()}
    with pytest.raises(
        SettingError, match=r"text-classifier: needs 5 right and 5 wrong answers .* there are .*; this run"
    ):
        ri.confidence_scores(run, ["text-classifier"], model=answer)
    assert not ASKED
    assert "needs 5 right and 5 wrong" in str(reasons["text-classifier"])
    assert reasons["topic"] == "needs topics, but no question of this run has one"
    assert "needs hidden states" in str(reasons["p-ik"])


def test_hf_hidden_states_need_torch(run, monkeypatch):
    monkeypatch.setattr("refusal_index.plugins.confidence.method.versions", lambda names: {*names} - {"torch"})
    document = (run / "run.json").read_text().replace('"model": "almanac/base"', '"model": "hf/some/model"')
    (run / "run.json").write_text(document)
    reasons = {method.name: reason for method, reason in allowed(run, Settings()).items()}
    assert reasons["p-ik"] == "needs torch; pip install 'refusal-index[transformers]'"


def test_every_question_of_the_almanac_is_about_an_entity():
    questions = load_dataset("almanac").questions
    entities = {question.question_id: entity_of(question.question_id) for question in questions}
    assert None not in entities.values()
    assert len(set(entities.values())) == 640
    assert {entity.partition("-of-")[0] for entity in entities} == RELATIONS
    assert entity_of("almanac/genre-of-the-lord-of-mice") == "the-lord-of-mice"
    assert entity_of("capital-of-peru") is None


def test_groups_use_the_first_known_key_with_enough_groups():
    ids = [f"river-of-t{number}" for number in range(6)]
    clusters = pl.DataFrame({"question_id": ids, "cluster": ["a", "a", "b", "c", "d", "e"]})
    known = of("rivers", *ids)
    assert groups_of(clusters, known)["river-of-t1"] == "a"
    assert groups_of(clusters.with_columns(cluster=pl.lit(None, pl.String)), known)["river-of-t1"] == "t1"
    assert groups_of(clusters.drop("cluster"), known, "topic") == dict.fromkeys(ids, "rivers")
    few = clusters.with_columns(cluster=pl.lit("a"))
    assert groups_of(few, known)["river-of-t1"] == "t1", "one cluster cannot fill five folds"
    other = {**of("x", "q1"), **of("y", "q2"), **of(None, "q3")}
    outcomes = pl.DataFrame({"question_id": list(other)})
    assert groups_of(outcomes, other) == {}, "two topics cannot fill five folds"
    assert groups_of(clusters, known, "none") == {}


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("topics", "group: expected one of auto, cluster, entity, topic, none, got 'topics'; did you mean 'topic'"),
        ("entity", "group: expected questions whose entity is known, but it is unknown for all of them"),
        ("cluster", "group: expected questions whose cluster is known"),
    ],
)
def test_unknown_groups_raise(by, message):
    with pytest.raises(SettingError, match=message):
        groups_of(pl.DataFrame({"question_id": ["q1"]}), of("x", "q1"), by)


def test_training_shortage_counts_questions_over_all_variants():
    ids = [f"q{number}" for number in range(10)]
    outcomes = pl.DataFrame({"question_id": ids * 3, "wrong": [True, False] * 15})
    assert training_shortage(outcomes, {}) is None
    few = pl.DataFrame({"question_id": ["a", "b", "c", "d"] * 3, "wrong": [True, False, False, None] * 3})
    assert "there are 2 right and 1 wrong" in str(training_shortage(few, {}))
    assert "needs 5 groups" in str(training_shortage(outcomes, dict.fromkeys(ids, "g")))


def test_states_of_other_prompts_or_models_are_not_reused(tmp_path, computed):
    path = tmp_path / "confidence" / "states.npz"
    first = states_of("almanac/small", TALKS, path, ["q2", "q1"])
    assert first.dtype == np.float32
    np.testing.assert_array_equal(states_of("almanac/small", TALKS, path, ["q1"])[0], first[1])
    assert computed == [2]
    states_of("almanac/small", {**TALKS, "q2": [Message("user", "Where?")]}, path, ["q1"])
    states_of("almanac/rash", TALKS, path, ["q1"])
    assert computed == [2, 2, 2]


def test_states_of_changed_weights_are_not_reused(tmp_path, monkeypatch):
    called: list[str] = []

    def planted(name, conversations):
        called.append(name)
        return np.ones((len(conversations), 2, 3), np.float32)

    monkeypatch.setattr(hidden_states, "hidden_states", planted)
    weights, path = tmp_path / "weights", tmp_path / "states.npz"
    weights.mkdir()
    for content in ("a", "a", "ab"):
        if not (weights / "model").exists() or (weights / "model").read_text() != content:
            (weights / "model").write_text(content)
        states_of(f"hf/{weights}", TALKS, path, ["q1"])
    assert called == [str(weights)] * 2


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 half of it", b"\x93NUMPY"])
def test_damaged_states_file_is_recomputed(tmp_path, computed, damage):
    path = tmp_path / "states.npz"
    path.write_bytes(damage)
    states_of("almanac/small", TALKS, path, ["q1"])
    states_of("almanac/small", TALKS, path, ["q1"])
    assert computed == [2]


def test_pickled_code_in_a_states_file_is_not_loaded(tmp_path, computed):
    path = tmp_path / "states.npz"
    states_of("almanac/small", TALKS, path, ["q1"])
    with np.load(path) as held:
        key = held["key"]
    np.savez(path, key=key, states=np.array([print], dtype=object))
    assert states_of("almanac/small", TALKS, path, ["q1"]).shape[0] == 1
    assert computed == [2, 2]


def test_states_too_large_for_float16_are_kept_in_float32(monkeypatch, tmp_path):
    large = np.full((2, 1, 3), 1e5, np.float32)
    monkeypatch.setattr(hidden_states, "hidden_states", lambda *_: large)
    path = tmp_path / "states.npz"
    for _ in range(2):
        np.testing.assert_array_equal(states_of("hf/none", TALKS, path, ["q1", "q2"]), large)


@pytest.mark.slow
def test_embedded_model_reproduces_the_measured_figures():
    # shared/facts.md, section 12: folds by question, as they were measured.
    run = ri.evaluate("almanac/base", limit=2280, temperature=0.0, variants="low", out="run")
    table = ri.confidence_scores(run, [*TRAINED, "likelihood"], group="none")
    found = {one.method: one for one in summarise_confidence(table, pl.DataFrame(run.outcomes))}
    measured = {"p-ik": 0.585, "topic": 0.57, "text-classifier": 0.59, "likelihood": 0.83, "likelihood-platt": 0.83}
    for method, area in measured.items():
        assert found[method].auroc.low < area < found[method].auroc.high, method
    assert found["likelihood"].ece == pytest.approx(0.074, abs=0.005)
    assert found["likelihood-platt"].ece < 0.047
