"""Functions of any kind as models and graders."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import linecache
import sys
from functools import partial
from pathlib import Path

import pytest

import refusal_index as ri
from refusal_index.data.datasets.dataset import DatasetError, questions_from
from refusal_index.data.outcome import Question
from refusal_index.errors import RunFolderError
from refusal_index.models.failures import QUESTIONS_IN_A_ROW
from refusal_index.models.functions import AnsweringFunction, GradingFunction, load_function, plain_request
from refusal_index.models.requests import ModelError, model_request
from refusal_index.protocol import (
    Conversation,
    GraderKind,
    Pass,
    PendingRequest,
    Protocol,
    Role,
    Step,
    TwoPass,
    load_prompt_set,
)
from refusal_index.runs import api
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.execute import execute
from refusal_index.runs.reuse import prepare_regrade
from refusal_index.runs.settings import SETTINGS, Settings
from refusal_index.runs.store import open_store
from tests.runs import models
from tests.runs.models import ASKED, LOCAL, ROWS, TABLE, cells

MANY = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(60)]


@pytest.mark.parametrize(
    "model", [models.answer, models.answer_async, models.awaited, "python:tests.runs.models:answer"]
)
def test_sync_and_async_functions_are_models(model):
    run = ri.evaluate(model, ROWS, **LOCAL)
    assert cells(run) == TABLE
    assert run.outcomes["model"].unique().to_list()[0].startswith("python:tests.runs.models:")
    assert len(ASKED) == ASKED.total() == 8 + 4


@pytest.mark.parametrize(
    "model", [models.Pipeline(), models.AsyncPipeline(), lambda messages: models.answer([*messages])]
)
def test_unnamed_callable_is_a_model_under_its_given_name(model):
    run = ri.evaluate(model, ROWS, model_name="pipeline", **LOCAL)
    assert cells(run) == TABLE
    assert run.outcomes["model"].unique().to_list() == ["python:pipeline"]
    assert "pipeline" in run.path.name


def test_callables_that_cannot_be_imported_need_a_name():
    def inside(messages: object) -> str:
        return ""

    for one in (lambda _: "", inside, models.Pipeline(), models.Pipeline().__call__):
        with pytest.raises(ModelError, match=r"model: expected a function that is defined at the top.*model_name"):
            ri.evaluate(one, ROWS, **LOCAL)
    with pytest.raises(ModelError, match=r"grader: expected a function .*grader_name"):
        ri.evaluate(models.answer, ROWS, **LOCAL | {"grader": lambda *_: True})
    with pytest.raises(ModelError, match="model: expected a name, a model of Inspect's or a function, got int"):
        ri.evaluate(3, ROWS, **LOCAL)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("python:", "expected python:MODULE:FUNCTION"),
        ("python:tests.runs.models", "expected python:MODULE:FUNCTION"),
        ("python:no.such.module:answer", r"no\.such\.module cannot be imported \(ModuleNotFoundError"),
        ("python:tests.runs.models:answr", "expected a function, found None in tests.runs.models"),
        ("python:tests.runs.models:ROWS", "expected a function, found"),
    ],
)
def test_name_that_resolves_to_no_function_raises(name, message):
    with pytest.raises(ModelError, match=message):
        load_function(name)
    with pytest.raises(ModelError, match=message):
        ri.evaluate(name, ROWS, **LOCAL)


def named(question, context=None, *, must_answer=False, choices=None):
    return f"{question}|{context}|{must_answer}|{choices}"


def everything(**known):
    return "|".join(f"{name}={known[name]}" for name in ("question", "context", "must_answer", "choices"))


async def awaited_question(question, must_answer):
    return f"{question}|{must_answer}"


class Rag:
    def __call__(self, question, *, must_answer, k=3):
        return f"{question}|{must_answer}|{k}"


@pytest.mark.parametrize(
    ("function", "first", "forced"),
    [
        (named, "Who?|Ann came.|False|None", "Who?|Ann came.|True|None"),
        (
            everything,
            "question=Who?|context=Ann came.|must_answer=False|choices=None",
            "question=Who?|context=Ann came.|must_answer=True|choices=None",
        ),
        (awaited_question, "Who?|False", "Who?|True"),
        (Rag(), "Who?|False|3", "Who?|True|3"),
        (partial(named, must_answer=True), "Who?|Ann came.|True|None", "Who?|Ann came.|True|None"),
        (lambda messages: f"{len(messages)}{messages[-1]['role']}", "1user", "1user"),
        (lambda text, messages: f"{text}{len(messages)}", "Who?1", "Who?1"),
        (str.upper, "WHO?", "WHO?"),
    ],
)
def test_a_function_gets_the_arguments_that_it_declares(function, first, forced):
    question = Question("q", "Who?", "Ann", context="Ann came.")
    procedure = TwoPass(Protocol(load_prompt_set("default"), "low", GraderKind.EXACT))
    conversation = Conversation(question, "low", procedure, 1)
    seen = []
    for pass_ in (Pass.FIRST, Pass.FORCED):
        pending = PendingRequest(Step(pass_, Role.MODEL), 0, 1)
        ask = model_request(Settings(), conversation, pending)
        seen += [asyncio.run(AnsweringFunction(function, "f")(ask)).replies[0][0]]
    assert seen == [first, forced]


@pytest.mark.parametrize(
    ("function", "variants", "lacks"),
    [
        (lambda question: "Lima", "low", "'must_answer'"),
        (lambda question, must_answer: "Lima", "low,high", "'messages'"),
        (str.upper, "low", "'must_answer'"),
    ],
)
def test_function_without_a_needed_parameter_raises_before_any_request(function, variants, lacks):
    with pytest.raises(ModelError, match=f"expected a parameter {lacks}"):
        ri.evaluate(function, ROWS, model_name="f", **LOCAL | {"variants": variants})


@pytest.mark.parametrize("function", [lambda question, k, must_answer: "", lambda context, question, must_answer: ""])
def test_function_with_other_required_parameters_raises_before_any_request(function):
    with pytest.raises(ModelError, match="give every other parameter a default"):
        ri.evaluate(function, ROWS, model_name="f", **LOCAL)


def test_column_hint_quotes_names_with_spaces():
    rows = [{"question": "Who?", "the answer": "Ann"}]
    with pytest.raises(ri.RefusalIndexError, match=r'columns=\{"answer": "the answer"\}$'):
        ri.evaluate(models.answer, rows, **LOCAL)


def test_prompts_without_a_forced_pass_are_left_out_of_pooling():
    run = ri.evaluate(models.answer, ROWS, **LOCAL | {"answered_only": True, "variants": "low,high"})
    assert set(run.summary.pooled[0].left_out.values()) == {"forced_not_asked"}


def test_refusals_in_three_languages_are_counted():
    refusals = ("I don't know.", "Je ne sais pas.", "Das weiß ich nicht.")

    def rag(question, *, must_answer=False):
        number = models.number_in(question)
        return str(2 * number) if must_answer or number % 2 else refusals[number // 2 % 3]

    run = ri.evaluate(rag, ROWS, model_name="rag", **LOCAL)
    assert run.summary.variants[0].metric("refusal_rate").estimate == 0.5
    assert run.summary.variants[0].metric("over_refusal").estimate == 0.5


def test_function_that_raises_for_every_question_raises():
    def broken(question, *, must_answer=False):
        raise ValueError("no index")

    with pytest.raises(RunFailedError, match=r"question failed: .*raised ValueError: no index; fix the function"):
        ri.evaluate(broken, ROWS[:2], model_name="broken", **LOCAL)


def test_function_whose_confidences_are_all_percentages_raises():
    def percent(question, *, must_answer=False):
        return "4", 90 + models.number_in(question)

    with pytest.raises(RunFailedError, match=r"every question failed: .*returned the confidence 9\d"):
        ri.evaluate(percent, ROWS[:2], model_name="percent", **LOCAL)


@pytest.mark.parametrize(("name", "guess"), [("RI", "refusal_index"), ("f_scor", "f_score")])
def test_unknown_metric_error_suggests_the_nearest(name, guess):
    run = ri.evaluate(models.answer, ROWS, **LOCAL)
    with pytest.raises(ri.RefusalIndexError, match=f"got '{name}'; did you mean '{guess}'"):
        run.summary.variants[0].metric(name)


def test_a_function_inside_a_class_is_found_by_its_path():
    assert load_function("python:tests.runs.models:Pipeline.__call__")(None, [{"content": "What is 4 plus 4?"}])


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (models.broken, "python:tests.runs.models:broken raised RuntimeError: the pipeline fell over"),
        (models.silent, "python:tests.runs.models:silent returned None, expected the reply as text"),
    ],
)
def test_function_that_always_fails_ends_the_run_early(model, text):
    with pytest.raises(RunFailedError) as caught:
        ri.evaluate(model, MANY, **LOCAL | {"max_connections": 1})
    message = str(caught.value)
    assert f"failed for {QUESTIONS_IN_A_ROW} questions in a row" in message
    assert text in message
    assert "fix the function" in message
    assert "\n" not in message
    if model is models.broken:
        assert ASKED["broken"] <= QUESTIONS_IN_A_ROW + 1


def test_occasional_function_failures_leave_questions_unscored():
    def often(messages: list[dict[str, str]]) -> str:
        if models.number_in(messages[-1]["content"]) % 3:
            raise KeyError("not now")
        return models.answer(messages)

    run = ri.evaluate(often, MANY, model_name="often", **LOCAL | {"max_connections": 1})
    assert len(run.missing) == 40
    assert {one.error for one in run.missing} == {"python:often raised KeyError: 'not now'"}
    assert run.outcomes["unscored_reason"].to_list()[:3] == [None, "request_failed", "request_failed"]
    assert run.outcomes["refused"].null_count() == 40


def edited(folder: Path, body: str) -> str:
    (folder / "own_model.py").write_text(f"def answer(messages):\n    return {body!r}\n")
    sys.modules.pop("own_model", None)
    importlib.invalidate_caches()
    linecache.clearcache()
    return "python:own_model:answer"


def test_an_edited_function_is_another_model(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = edited(tmp_path, "<answer>4</answer>")
    first, kept = ri.evaluate(name, ROWS, **LOCAL), ri.evaluate(name, ROWS, out="kept", **LOCAL)
    edited(tmp_path, "<answer>6 or so</answer>")
    other = ri.evaluate(name, ROWS, **LOCAL)
    assert other.path != first.path
    with pytest.raises(RunFolderError, match=r"kept was run with different settings .*own_model"):
        ri.evaluate(name, ROWS, out="kept", **LOCAL)
    edited(tmp_path, "<answer>4</answer>")
    assert ri.evaluate(name, ROWS, out="kept", **LOCAL).outcomes.equals(kept.outcomes)
    monkeypatch.delitem(sys.modules, "own_model", raising=False)


@pytest.mark.parametrize("grader", [models.judge, models.judge_async, "python:tests.runs.models:judge"])
def test_grader_can_be_a_function(grader):
    run = ri.evaluate(models.answer, ROWS, **LOCAL | {"grader": grader})
    assert cells(run) == TABLE
    assert run.document["grader"]["name"].startswith("python:tests.runs.models:judge")
    assert run.document["grader"]["prompt_sha256"] is None, "no model is asked"
    assert run.summary.variants[0].usage.requests == 12 + 4 + 4, "only replies that the tag does not decide are graded"


def test_function_grader_may_return_a_refusal():
    run = ri.evaluate(models.answer, ROWS, **LOCAL | {"grader": models.judge_in_words})
    assert run.outcomes["refused"].to_list() == [False, True, True, True, False, True, True, True]
    assert run.outcomes.filter(question_id="q5")["forced_grade"].to_list() == ["refused"]


def test_disagreements_of_two_function_graders_are_listed():
    names = "python:tests.runs.models:judge,python:tests.runs.models:judge_in_words"
    run = ri.evaluate(models.answer, ROWS, **LOCAL | {"grader": names})
    assert run.disagreements == 2 + 3
    assert set(run.outcomes["unscored_reason"].to_list()) == {None, "first_graders_disagree", "forced_graders_disagree"}


def test_invalid_verdict_ends_the_run_and_is_named():
    with pytest.raises(RunFailedError, match=r"judge_nonsense returned 'splendid', expected True, False or one of"):
        ri.evaluate(models.answer, MANY[:60:2], **LOCAL | {"grader": models.judge_nonsense})


@pytest.mark.parametrize(
    ("expected", "letter"),
    [(True, "A"), (False, "B"), ("correct", "A"), ("incorrect", "B"), ("refused", "C")],
)
def test_valid_return_values_of_a_grading_function(expected, letter):
    grading = GradingFunction(lambda *_: expected, "own")
    assert asyncio.run(grading(plain_request(Role.GRADER))).replies[0][0] == letter


@pytest.mark.parametrize("verdict", [True, "correct"])
def test_function_that_calls_a_plainly_wrong_answer_right_ends_the_run_before_it_begins(verdict):
    ASKED.clear()
    with pytest.raises(ModelError, match=r"'Berlin' to .* with the gold answer 'Paris', got 'correct'"):
        ri.evaluate(models.answer, ROWS, **LOCAL | {"grader": lambda *_: verdict, "grader_name": "own"})
    assert not ASKED


def test_function_that_needs_its_own_questions_is_not_rejected():
    golds = {row["question"]: row["answer"] for row in ROWS}

    def by_question(asked, text):
        return golds[asked.text] == text

    run = ri.evaluate(models.answer, ROWS, **LOCAL | {"grader": by_question, "grader_name": "own"})
    assert run.outcomes.equals(ri.evaluate(models.answer, ROWS, **LOCAL | {"grader": models.judge}).outcomes)


def test_stored_answers_and_grades_are_never_requested_again():
    settings = LOCAL | {"grader": models.judge}
    first = ri.evaluate(models.answer, ROWS, **settings)
    ASKED.clear()
    again = ri.evaluate(models.answer, ROWS, **settings)
    assert not ASKED
    assert again.outcomes.equals(first.outcomes)
    assert again.summary == first.summary
    more = ri.evaluate(models.answer, ROWS, **settings | {"variants": "low,high"})
    assert ASKED.total() - ASKED["judge"] == len(ROWS), "another variant shares the forced answers"
    assert more.path == first.path
    with open_store(more.folder) as store:
        assert not store.failures()


def test_function_that_raises_stop_iteration_is_named():
    with pytest.raises(RunFailedError, match="exhausted raised StopIteration"):
        ri.evaluate(models.exhausted, ROWS[:2], **LOCAL | {"max_retries": 0})


def test_lost_replies_raise_before_any_request():
    run = ri.evaluate(models.answer, ROWS, **LOCAL)
    run.folder.replies.unlink()
    with pytest.raises(ri.RefusalIndexError, match=r"expected the replies from which outcomes\.parquet was made"):
        ri.evaluate(models.answer, ROWS, **LOCAL)


def test_comparing_a_run_with_itself_or_ranking_one_run_raises():
    run = ri.evaluate(models.answer, ROWS, **LOCAL)
    with pytest.raises(ri.RefusalIndexError, match="expected two runs"):
        ri.compare(run, run)
    with pytest.raises(ri.RefusalIndexError, match="expected two runs or more, got 1"):
        ri.rank(run)


def test_answers_left_by_a_failed_grader_can_be_regraded():
    def broken(_question, _text):
        raise ValueError("down")

    run = ri.evaluate(models.answer, ROWS, grader_name="broken", **LOCAL | {"grader": broken, "max_retries": 0})
    assert set(run.outcomes["unscored_reason"]) == {"request_failed"}
    prepared = prepare_regrade(run.path, Settings.from_values(grader="exact"))
    again = asyncio.run(execute(prepared))
    assert not again.missing
    assert again.outcomes["first_grade"].null_count() == 0


def test_typed_keyword_arguments_match_the_settings():
    of_evaluate = {"model", "dataset", "grader"}
    assert set(api.SettingArguments.__annotations__) == set(SETTINGS) - of_evaluate
    optional = {name for name, kind in api.SettingArguments.__annotations__.items() if "None" in str(kind)}
    assert optional == {name for name, setting in SETTINGS.items() if setting.optional} - of_evaluate
    assert set(inspect.signature(ri.evaluate).parameters) >= set(api.EvaluateArguments.__annotations__) - set(SETTINGS)


def test_results_have_a_short_repr_and_a_full_str():
    runs = [ri.evaluate(models.answer, ROWS, **LOCAL | {"out": f"runs/{name}"}) for name in "ab"]
    pair = ri.compare(*runs)
    for found in (*runs, runs[0].summary, runs[0].refusal_index(), pair, ri.gate(*runs), questions_from(ROWS)):
        assert "\n" not in repr(found)
        assert len(repr(found)) < 150
    assert len(str(runs[0]).splitlines()) > 5
    assert len(str(pair).splitlines()) > 5
    assert dir(ri) == sorted(ri.__all__)


@pytest.mark.parametrize("as_file", [False, True])
def test_missing_column_error_suggests_the_python_argument(as_file, tmp_path):
    place = tmp_path / "questions.csv"
    place.write_text("frage,answer\nWer?,Ann\n")
    with pytest.raises(DatasetError, match=r'with columns=\{"question": "NAME"\}'):
        ri.evaluate(models.answer, place if as_file else [{"frage": "Wer?", "answer": "Ann"}], **LOCAL)


def test_a_progress_bar_is_plain_text_in_a_notebook(monkeypatch, capsys):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    ri.evaluate(models.answer, ROWS, progress=True, **LOCAL)
    assert "8/8" in capsys.readouterr().err


def test_answered_only_gives_rates_but_no_ri():
    asked = []

    def rag(question):
        number = models.number_in(question)
        asked.append(number)
        return str(2 * number) if number % 2 else "I don't know."

    for _ in range(2):
        run = ri.evaluate(rag, ROWS, model_name="rag", answered_only=True, **LOCAL)
    assert len(asked) == len(ROWS)
    assert run.is_complete
    assert run.document["complete"]
    assert run.summary.variants[0].caveats == ()
    metric = run.summary.variants[0].metric
    assert metric("refusal_rate").estimate == 0.5
    assert metric("correct_given_attempted").estimate == 1
    index = metric("refusal_index")
    assert (index.estimate, index.status, index.reason) == (None, "undefined", "forced_not_asked")
    assert run.document["variants"][0]["metrics"]["refusal_index"]["reason"] == "forced_not_asked"
    assert "undefined" in str(run)
    assert run.refusal_index().estimate is None
    assert set(run.outcomes.filter(refused=True)["unscored_reason"]) == {"forced_not_asked"}
    estimate = ri.dry_run(rag, ROWS, model_name="rag", answered_only=True, **LOCAL | {"out": "runs/other"})
    assert estimate.requests.expected == len(ROWS)
