"""Logs of other Inspect tasks: real logs, written by Inspect, with typical scores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from inspect_ai import Epochs, Task, eval_async
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from refusal_index.data import Grade
from refusal_index.data.datasets import DatasetError
from refusal_index.data.first_pass import FirstPassError, Incomplete
from refusal_index.data.imports import ReadOptions, detected_format
from refusal_index.data.source_files import SourceFile
from refusal_index.findings.imported import reading_statements
from refusal_index.plugins.inspect import foreign_log
from refusal_index.plugins.inspect.foreign_log import read_foreign_log
from refusal_index.runs.reuse import import_file

C, I, R, U = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED  # noqa: E741


@solver
def scripted_solver() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        reply = state.metadata["reply"]
        if reply == "boom":
            raise RuntimeError("the provider fell over")
        state.output = ModelOutput.from_content("m", reply, stop_reason=state.metadata["stop_reason"])
        return state

    return solve


@scorer(metrics=[])
def judge() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score | None:
        value = state.metadata["score"]
        return None if value is None else Score(value=value, metadata=state.metadata["judged"])

    return score


@scorer(metrics=[])
def second_judge() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value="I")

    return score


def sample(number: int, value: object, reply: str = "said", stop: str = "stop", **judged: object) -> Sample:
    known = {"score": value, "reply": reply, "stop_reason": stop, "judged": judged or None}
    return Sample(id=f"q{number}", input=f"What is {number}?", target=[str(number), f"no. {number}"], metadata=known)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that lets Inspect evaluate samples and write their log."""
    monkeypatch.setenv("INSPECT_DISPLAY", "none")

    def write(*samples: Sample, scorers: tuple[Scorer, ...] = (), epochs: int = 1) -> Path:
        task = Task(
            dataset=MemoryDataset(list(samples), name="facts"),
            solver=scripted_solver(),
            scorer=[judge(), *scorers],
            epochs=Epochs(epochs, "mode"),
            name="quiz",
        )
        (written,) = asyncio.run(
            eval_async(task, model="none/none", log_dir=str(tmp_path), fail_on_error=False, score_display=False)
        )
        return Path(written.location)

    return write


def grades(path: Path, scorer: str | None = None) -> list[Grade | None]:
    return [one.grade for one in read_foreign_log(path, scorer).passes]


def test_inspect_letter_grades_give_a_complete_first_pass(log):
    path = log(sample(1, "C"), sample(2, "I"), sample(3, "N"))
    assert detected_format(SourceFile.read(path)) == "inspect"
    first, second, third = read_foreign_log(path).passes
    assert (first.grade, second.grade, third.grade) == (C, I, R)
    assert (first.model, first.dataset) == ("none/none", "facts")
    assert (third.question.text, third.question.gold, third.question.aliases) == ("What is 3?", "3", ("no. 3",))
    assert third.reply == "said"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("A", "B", "C"), [C, I, R]),
        (("CORRECT", "INCORRECT", "NOT_ATTEMPTED"), [C, I, R]),
        ((1, 0.0, True), [C, I, C]),
        (
            ({"correct": 1, "incorrect": 0, "not_attempted": 0}, {"correct": 0, "incorrect": 0, "not_attempted": 1}),
            [C, R],
        ),
    ],
)
def test_score_values_are_read_as_grades(log, values, expected):
    assert grades(log(*(sample(number, value) for number, value in enumerate(values)))) == expected


def test_grade_in_the_metadata_overrides_the_score_value(log):
    path = log(
        sample(1, "I", grade="NOT_ATTEMPTED"), sample(2, "I", grade="INCORRECT"), sample(3, "C", grade="CORRECT")
    )
    assert grades(path) == [R, I, C]


def test_truncated_failed_and_missing_scores_are_unscored(log):
    path = log(
        sample(1, "N", stop="max_tokens"),
        sample(2, "N", stop="content_filter"),
        sample(3, "C", reply="boom"),
        sample(4, None),
        sample(5, "C", stop="max_tokens"),
        sample(6, "N"),
    )
    found = read_foreign_log(path).passes
    assert [one.grade for one in found] == [U, U, U, U, C, R]
    reasons = ["first_truncated", "first_content_filter", "request_failed", "first_not_graded"]
    assert [one.outcome().unscored_reason for one in found[:4]] == reasons


def test_epochs_are_draws(log):
    found = read_foreign_log(log(sample(1, "N"), epochs=2)).passes
    assert [(one.question.question_id, one.draw) for one in found] == [("q1", 0), ("q1", 1)]


def test_one_scorer_of_several_is_chosen(log):
    path = log(sample(1, "N"), scorers=(second_judge(),))
    assert grades(path, "second_judge") == [I]
    with pytest.raises(FirstPassError, match="judge, second_judge; choose one with scorer="):
        read_foreign_log(path)
    with pytest.raises(FirstPassError, match="expected scores of 'jugde', got judge, second_judge"):
        read_foreign_log(path, "jugde")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("P", r"sample 'q2', score 'judge': expected a grade out of .*got 'P'"),
        (0.5, r"sample 'q2'.*got 0\.5"),
        ({"f1": 0.3}, "expected a grade, or the parts correct, incorrect and not_attempted, got f1"),
        ({"correct": 1, "incorrect": 1}, "expected one grade, got correct and incorrect"),
    ],
)
def test_score_that_is_not_a_grade_raises(log, value, message):
    with pytest.raises(FirstPassError, match=message):
        read_foreign_log(log(sample(1, "C"), sample(2, value)))


def test_json_logs_are_read(log, tmp_path):
    path = log(sample(1, "C"), sample(2, "N"))
    other = tmp_path / "log.json"
    write_eval_log(read_eval_log(str(path)), str(other))
    assert detected_format(SourceFile.read(other)) == "inspect"
    assert read_foreign_log(other) == read_foreign_log(path)


def test_end_to_end_choices_of_a_log_are_those_of_the_question_and_the_target_is_their_letter(log):
    one = sample(1, "C").model_copy(update={"choices": ["Rome", "Oslo"], "target": "B"})
    several = sample(2, "I").model_copy(update={"choices": ["Rome", "Oslo", "Bern"], "target": ["A", "C"]})
    first, second = read_foreign_log(log(one, several)).passes
    assert (first.question.gold, first.question.choices) == ("Oslo", ("Rome", "Oslo"))
    assert (second.question.gold, second.question.choices) == ("A, C", ())
    assert (first.grade, second.grade) == (C, I)


@scorer(metrics=[])
def abstention_bench_scorer() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=state.metadata["score"])

    return score


def abstention(number: int, value: str, label: bool, answers: list[str] | None) -> Sample:
    """Return a sample as AbstentionBench writes it: the target is the label, and the score whether it abstains."""
    one = sample(number, value, "Oslo")
    metadata = {**one.metadata, "abstention_label": label, "ref_answer": answers}
    return one.model_copy(update={"target": str(label), "metadata": metadata})


def test_end_to_end_abstention_bench_says_who_refused_and_no_answer_is_graded(log):
    path = log(
        abstention(1, "Yes", False, ["Oslo", "Christiania"]),
        abstention(2, "No", False, ["Bern"]),
        abstention(3, "No", True, None),
        abstention(4, "Yes", True, None),
        scorers=(abstention_bench_scorer(),),
    )
    read = read_foreign_log(path, "abstention_bench_scorer").passes
    assert [first.grade for first in read] == [R, None, None, R]
    assert [first.question.gold for first in read] == ["Oslo", "Bern", None, None]
    assert read[0].question.aliases == ("Christiania",)
    graded = import_file(path, None, ReadOptions(scorer="abstention_bench_scorer", grader="exact")).passes
    assert [first.grade for first in graded] == [R, I, I, R]


def test_gold_answer_of_a_log_may_be_anywhere_in_its_samples(log):
    one = sample(1, "C")
    one.metadata["sources"] = [{"gold": "Oslo"}]
    (first,) = import_file(log(one), None, ReadOptions({"answer": "metadata.sources.0.gold"})).passes
    assert first.question.gold == "Oslo"
    with pytest.raises(DatasetError, match=r"expected a column 'metadata\.gold'"):
        import_file(log(one), None, ReadOptions({"answer": "metadata.gold"}))


def test_truncated_log_raises(log):
    path = log(sample(1, "C"))
    path.write_bytes(path.read_bytes()[:500])
    assert detected_format(SourceFile.read(path)) == "inspect"
    with pytest.raises(FirstPassError, match="not a readable Inspect log"):
        read_foreign_log(path)


@pytest.mark.parametrize(("limit", "value"), [("MAX_ENTRY", 100), ("MAX_LOG", 1000)])
def test_log_that_decompresses_too_far_raises(log, monkeypatch, limit, value):
    path = log(sample(1, "C"))
    monkeypatch.setattr(foreign_log, limit, value)
    with pytest.raises(FirstPassError, match=rf"{path.name}: not a readable Inspect log .*expected at most .*in all"):
        read_foreign_log(path)


# --- Logs that lack something


def test_empty_replies_are_unscored_whatever_their_score(log):
    """From the rule for all imports: an empty reply shows neither a refusal nor an answer."""
    path = log(
        *(sample(n, value, reply=" \u200b") for n, value in enumerate(["C", "I", "N", None])),
        sample(4, "N", reply="", stop="max_tokens"),
        sample(5, "N", reply="no idea"),
    )
    read = read_foreign_log(path)
    reasons = [one.outcome().unscored_reason for one in read.passes]
    assert [one.grade for one in read.passes] == [U, U, U, U, U, R]
    assert reasons[:5] == ["first_empty"] * 4 + ["first_truncated"]
    assert [one.unused_grades for one in read.passes] == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("status", ["error", "cancelled", "started"])
def test_log_that_ended_early_is_read_with_its_status(log, tmp_path, status):
    whole = read_eval_log(str(log(sample(1, "C"), sample(2, "N"), sample(3, "I"))))
    whole.status = status
    whole.samples = (whole.samples or [])[:2]
    other = tmp_path / "early.json"
    write_eval_log(whole, str(other))
    read = read_foreign_log(other)
    assert [one.grade for one in read.passes] == [C, R]
    assert read.incomplete == Incomplete(samples=2, expected=3, status=status)
    (statement,) = reading_statements(read)[:1]
    assert (statement.code, statement.severity) == ("incomplete_log", "serious")


def test_log_with_fewer_samples_than_its_dataset_is_incomplete_and_a_whole_one_is_not(log, tmp_path):
    path = log(sample(1, "C"), sample(2, "N"), epochs=2)
    assert read_foreign_log(path).incomplete is None, "two samples of two, each twice"
    part = read_eval_log(str(path))
    part.samples = [one for one in part.samples or [] if one.id == "q1"]
    other = tmp_path / "part.json"
    write_eval_log(part, str(other))
    assert read_foreign_log(other).incomplete == Incomplete(samples=1, expected=2, status="success")


def test_scorers_that_are_not_used_are_named(log):
    read = read_foreign_log(log(sample(1, "N"), scorers=(second_judge(),)), "judge")
    assert read.other_scorers == ("second_judge",)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"correct": 0}, I),
        ({"correct": 0, "answered": 0}, R),
        ({"Correct": 1, "attempted": 1}, C),
        ({"correct": 0, "incorrect": 0, "abstained": 1}, R),
        ({"correct": 0, "incorrect": 0}, U),
        ({"correct": None}, U),
    ],
)
def test_parts_of_a_score_are_read_as_flags(log, value, expected):
    assert grades(log(sample(1, value))) == [expected]


def test_every_unknown_score_is_named(log):
    path = log(sample(1, "P"), sample(2, "C"), sample(3, "Q"))
    with pytest.raises(FirstPassError, match="sample 'q1', score 'judge'") as caught:
        read_foreign_log(path)
    assert caught.value.remedy == ("map", ("P=GRADE", "Q=GRADE"))
    assert [one.grade for one in read_foreign_log(path, None, {"p": "correct", "q": "refused"}).passes] == [C, C, R]
