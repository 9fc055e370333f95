"""A model function that returns, beside its reply, how likely it is right and whether it refuses."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.cli import app
from refusal_index.data.outcome_table import CONFIDENCE, SCHEMA
from refusal_index.findings.run_results import read_runs
from refusal_index.models.calls import as_reply
from refusal_index.runs.rebuild import rebuild
from refusal_index.runs.store import open_store
from tests.runs import models
from tests.runs.models import LOCAL, ROWS

FIRST, FORCED = 0.25, 0.75
SURE = {"0": 0.0, "1": 1.0, "2": None}
"""Confidence by the last digit of a number; None for a reply that is text alone."""


def sure(messages):
    """Return the reply of `models.answer`; its confidence is the pass's own, unless the number has another."""
    text, message = models.answer(messages), messages[-1]["content"]
    own = FORCED if "leaving the question open is not allowed" in message else FIRST
    confidence = SURE.get(str(models.number_in(message)), own)
    return text if confidence is None else {"text": text, "confidence": confidence}


def expected(refused: bool, number: int) -> float | None:
    return SURE.get(str(number), FORCED if refused else FIRST)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> ri.RunResults:
    out = tmp_path_factory.mktemp("confidence") / "run"
    return ri.evaluate(sure, ROWS, out=out, **LOCAL)


def test_confidence_of_the_answer_that_counts_is_stored_and_becomes_a_column_end_to_end(run):
    table = run.outcomes
    assert table.columns == [*SCHEMA, CONFIDENCE]
    assert {True, False} == set(table["refused"])
    for question_id, refused, confidence in table.select("question_id", "refused", CONFIDENCE).iter_rows():
        assert confidence == expected(refused, int(question_id[1:])), question_id
    with open_store(run.folder) as store:
        replies = list(store.replies())
    assert {reply.confidence for reply in replies} >= {FIRST, FORCED, 0.0, 1.0, None}
    assert rebuild(run.path).outcomes.equals(table)


def test_replies_without_confidence_have_no_column_and_the_same_outcomes(run, tmp_path):
    plain = ri.evaluate(models.answer, ROWS, out=tmp_path / "plain", **LOCAL)
    assert plain.outcomes.columns == list(SCHEMA)
    assert plain.outcomes.drop("model").equals(run.outcomes.drop("model", CONFIDENCE))


def test_each_draw_has_the_confidence_of_its_own_reply(tmp_path):
    given = iter(np.linspace(0, 1, 1000))

    def different(question, *, must_answer=False):
        return {"text": f"<answer>{question}</answer>", "confidence": next(given)}

    run = ri.evaluate(
        different, ROWS, model_name="different", out=tmp_path / "run", draws=3, max_connections=1, **LOCAL
    )
    with open_store(run.folder) as store:
        first = {
            (reply.question_id, reply.draw): reply.confidence
            for reply in store.replies()
            if reply.reply.pass_ == "first"
        }
    rows = run.outcomes.select("question_id", "draw", CONFIDENCE).iter_rows()
    assert {(question_id, draw): confidence for question_id, draw, confidence in rows} == first
    assert len(set(first.values())) == len(first) == 24


def test_confidence_command_and_report_use_it(run, tmp_path):
    (compared,) = read_runs([run.path])
    assert set(compared.confidence["method"]) == {"confidence"}
    assert compared.confidence[CONFIDENCE].to_list() == run.outcomes[CONFIDENCE].to_list()
    assert "confidence" in run.folder.report.read_text(encoding="utf-8")
    chosen = ri.threshold(run, "confidence", penalty=1)
    assert chosen.halves is not None


def test_added_scores_stand_beside_it(run):
    from refusal_index.plugins.confidence.scores import add_scores

    scores = run.outcomes.select("question_id", confidence=pl.lit(0.5))
    add_scores(run.path, scores, method="ours")
    (compared,) = read_runs([run.path])
    assert compared.confidence["method"].unique(maintain_order=True).to_list() == ["ours", "confidence"]


def test_forced_answer_to_an_imported_refusal_brings_its_confidence_end_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"q{n},What is {n} plus {n}?,{2 * n},{'refused' if n % 2 else 'correct'}" for n in range(3, 7)]
    Path("first.csv").write_text("\n".join(["question_id,question,answer,grade", *rows]))
    model = f"python:{__name__}:sure"
    ended = CliRunner().invoke(app, ["force", "first.csv", "--model", model, "--grader", "exact", "--out", "forced"])
    assert ended.exit_code == 0, ended.output
    table = pl.read_parquet("forced/outcomes.parquet")
    assert table.columns == [*SCHEMA, CONFIDENCE]
    assert dict(table.select("question_id", CONFIDENCE).iter_rows()) == {
        "q3": FORCED,
        "q4": None,
        "q5": FORCED,
        "q6": None,
    }


ACCEPTED = {
    "text": ("a", ("a", None, None)),
    "pair": (("a", 0.5), ("a", 0.5, None)),
    "pair without confidence": (("a", None), ("a", None, None)),
    "mapping without confidence": ({"text": "a"}, ("a", None, None)),
    "confidence None": ({"text": "a", "confidence": None, "refused": None}, ("a", None, None)),
    "whole number": ({"text": "a", "confidence": 1, "refused": False}, ("a", 1.0, False)),
    "NumPy": ({"text": "a", "confidence": np.float32(0.5), "refused": np.bool_(1)}, ("a", 0.5, True)),
    "refusal without text": ({"refused": True}, ("", None, True)),
    "ordered": (OrderedDict(confidence=0.5, text=""), ("", 0.5, None)),
    "read-only": (MappingProxyType({"text": "a", "confidence": 0.0}), ("a", 0.0, None)),
}


@pytest.mark.parametrize(("returned", "read"), ACCEPTED.values(), ids=ACCEPTED)
def test_text_and_mappings_of_text_and_confidence_are_read(returned, read):
    assert as_reply(returned) == read


REJECTED = {
    "not a number": ({"text": "a", "confidence": float("nan")}, "the confidence nan, expected a number from 0 to 1"),
    "infinite": ({"text": "a", "confidence": float("inf")}, "the confidence inf"),
    "per cent": ({"text": "a", "confidence": 90}, "the confidence 90"),
    "negative": ({"text": "a", "confidence": -0.1}, r"the confidence -0\.1"),
    "text": ({"text": "a", "confidence": "0.9"}, "the confidence '0.9'"),
    "flag": ({"text": "a", "confidence": True}, "the confidence True"),
    "array": ({"text": "a", "confidence": np.array([0.5])}, "the confidence "),
    "no text": ({"confidence": 0.5}, "returned None, expected the reply as text"),
    "number for a text": ({"text": 4, "confidence": 0.5}, "returned 4, expected the reply as text"),
    "misspelt": ({"text": "a", "confidance": 0.5}, "the key 'confidance', expected text, confidence, refused"),
    "confidence of a pair": (("a", 50), "the confidence 50"),
    "pair in another order": ((0.5, "a"), "returned 0.5, expected the reply as text"),
    "three": (("a", 0.5, True), "expected the reply as text"),
    "list": (["a", 0.5], "expected the reply as text"),
    "refused as text": ({"text": "a", "refused": "no"}, "returned 'no' as 'refused', expected True or False"),
    "answer without text": ({"refused": False}, "returned None, expected the reply as text"),
}


@pytest.mark.parametrize(("returned", "message"), REJECTED.values(), ids=REJECTED)
def test_anything_else_is_a_failed_request_that_says_why(returned, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        as_reply(returned)

    def often(messages):
        return returned if models.number_in(messages[-1]["content"]) == 3 else models.answer(messages)

    run = ri.evaluate(often, ROWS, model_name="often", out=tmp_path / "run", **LOCAL)
    assert [missing.question_id for missing in run.missing] == ["q3"]
    assert run.missing[0].error.startswith("python:often returned ")


DECLINES = "I don't know."
SAID = {
    "refuses": {"text": "Lima", "refused": True},
    "refuses without text": {"refused": True},
    "answers": {"text": DECLINES, "refused": False},
    "answers by its tag": {"text": "<answer>UNANSWERED</answer>", "refused": False},
    "answers rightly": {"text": "Lima", "refused": False},
    "says nothing": DECLINES,
}
READ = {
    "refuses": (True, False, "flag"),
    "refuses without text": (True, False, "flag"),
    "answers": (False, True, "flagged_answer"),
    "answers by its tag": (False, True, "flagged_answer"),
    "answers rightly": (False, False, "flagged_answer"),
    "says nothing": (True, False, "wording"),
}
ASKED = [{"question_id": name, "question": name, "answer": "Lima"} for name in SAID]


def marking(question, *, must_answer=False):
    return "Lima" if must_answer else SAID[question]


def rows_of(run):
    return {row[0]: row[1:] for row in run.outcomes.select("question_id", "refused", "wrong", "reading").iter_rows()}


def test_what_a_function_says_of_its_reply_is_its_reading_end_to_end(tmp_path):
    run = ri.evaluate(marking, ASKED, grader="exact", out=tmp_path / "run")
    assert run.variants == ("normal",)
    assert rows_of(run) == READ
    assert rows_of(rebuild(run.path)) == READ
    (note,) = [caveat for caveat in run.summary.variants[0].caveats if caveat.code == "flagged_replies"]
    assert note.values == {"refusals": 2, "answers": 3}
    assert run.document["variants"][0]["replies"]["refusals"] == {"flag": 2, "wording": 1}


def test_no_refusal_is_missed_where_the_function_says_that_there_is_none(tmp_path):
    def answers(question, *, must_answer=False):
        return {"text": "The documents that I have do not say it.", "refused": False}

    asked = [{"question": str(number), "answer": "Lima"} for number in range(20)]
    run = ri.evaluate(answers, asked, model_name="answers", grader="exact", out=tmp_path / "run")
    codes = {caveat.code for caveat in run.summary.variants[0].caveats}
    assert "flagged_replies" in codes
    assert not codes & {"no_refusals_found", "repeated_sentence", "unclear_replies"}


def test_a_function_that_refuses_again_when_forced_is_wrong(tmp_path):
    def refuses(question, *, must_answer=False):
        return {"text": "Lima", "refused": True}

    run = ri.evaluate(refuses, ASKED[:2], model_name="refuses", grader="exact", out=tmp_path / "run")
    assert set(run.outcomes["forced_grade"]) == {"refused"}
    assert set(run.outcomes["wrong"]) == {True}


def test_a_marked_answer_to_a_question_with_choices_is_the_choice_that_it_names(tmp_path):
    asked = [{"question": "Which?", "answer": "Lima", "choices": ["Lima", "I don't know"]}]

    def picks(question, *, must_answer=False):
        return {"text": "B", "refused": False}

    run = ri.evaluate(picks, asked, model_name="picks", grader="choice", out=tmp_path / "run")
    assert rows_of(run) == {run.outcomes["question_id"][0]: (False, True, "flagged_answer")}


async def pairs(question, *, must_answer=False):
    number = int(question)
    return ("Lima" if number < 90 or number % 2 else "Rome"), 1 - number / 200


def test_confidence_of_an_async_function_gives_a_threshold_for_a_largest_error_end_to_end(tmp_path):
    asked = [{"question": str(number), "answer": "Lima"} for number in range(120)]
    run = ri.evaluate(pairs, asked, grader="exact", out=tmp_path / "run")
    ended = CliRunner().invoke(app, ["confidence", str(run.path), "--max-error", ".3"])
    assert ended.exit_code == 0, ended.output
    assert "confidence" in ended.output


def test_scores_without_ids_are_matched_by_the_text_of_the_question_end_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ri.evaluate(marking, ASKED, grader="exact", out="run")
    scores = {name: i / 10 for i, name in enumerate(SAID, 1)}
    pl.DataFrame({"question": list(scores), "confidence": list(scores.values())}).write_csv("scores.csv")
    ended = CliRunner().invoke(app, ["confidence", "run", "--add", "scores.csv"])
    assert ended.exit_code == 0, ended.output
    (read,) = read_runs([run.path])
    assert dict(read.confidence.select("question_id", CONFIDENCE).iter_rows()) == scores


def test_functions_that_get_the_prompt_are_asked_under_every_prompt_others_under_one(tmp_path):
    some = {"question": "1", "answer": "Lima"}
    answers = {"grader": "exact", "model_name": "f"}

    def with_prompt(messages):
        return "Lima"

    assert len(ri.evaluate(with_prompt, [some], out=tmp_path / "four", **answers).variants) == 4
    assert ri.evaluate(marking_anything, [some], out=tmp_path / "one", grader="exact").variants == ("normal",)


def marking_anything(question, *, must_answer=False):
    return "Lima"


def refuses_unanswerable(question: str, *, must_answer: bool = False) -> dict[str, object]:
    """Refuse every third question; answer the others rightly and surely, except every fifth."""
    number = int(question.rsplit(maxsplit=1)[-1].rstrip("?"))
    is_known = number % 5 != 0
    reply = {"text": str(number if is_known else 0), "confidence": 0.9 if is_known else 0.3}
    return {**reply, "refused": number % 3 == 0 and not must_answer}


def test_end_to_end_a_threshold_counts_refused_unanswerable_questions_as_errors_of_answering_everything(tmp_path):
    rows = [
        {"question": f"What is {number}?", "answer": str(number) if number % 3 else None, "answerable": number % 3 != 0}
        for number in range(1, 91)
    ]
    run = ri.evaluate(refuses_unanswerable, pl.DataFrame(rows), grader="exact", out=tmp_path / "run")
    chosen = ri.threshold(run, penalty=1)
    other_half = run.outcomes.filter(pl.col("question_id").is_in(list(chosen.halves.second)))
    assert other_half["refused"].sum() not in (0, 30)
    (caveat,) = (one for one in chosen.statements if one.code == "unanswerable_left_out")
    # `wrong` is true for each of these questions, as for any other answer that is wrong
    assert caveat.values == {"questions": 30, "wrong": other_half["wrong"].sum(), "answered": other_half.height}
    assert chosen.points[-1].questions == other_half.height - other_half["refused"].sum()
