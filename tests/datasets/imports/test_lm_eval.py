"""Samples of lm-evaluation-harness: which metric is the grade, and what the file's place says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refusal_index.data import Grade
from refusal_index.data.datasets import DatasetError
from refusal_index.data.first_pass import FirstPass, check_order, with_rows_of_forced
from refusal_index.data.imports import ReadOptions
from refusal_index.runs.reuse import import_file

C, I, R, U = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED  # noqa: E741


def sample(doc_id: int, **changes: object) -> dict[str, object]:
    return {
        "doc_id": doc_id,
        "doc": {"question": f"What is {doc_id}?", "answer": ["ignored"]},
        "target": str(doc_id),
        "arguments": {"gen_args_0": {"arg_0": "Question: ...", "arg_1": {"until": []}}},
        "resps": [[f"It is {doc_id}."]],
        "filtered_resps": [str(doc_id)],
        "filter": "none",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
        "doc_hash": "d",
        "prompt_hash": "p",
        "target_hash": "t",
        **changes,
    }


@pytest.fixture
def written(tmp_path: Path):
    def write(*samples: dict[str, object]) -> Path:
        folder = tmp_path / "meta-llama__Llama-3.1-8B"
        folder.mkdir(exist_ok=True)
        path = folder / "samples_triviaqa_2026-01-02T03-04-05.678.jsonl"
        path.write_text("\n".join(json.dumps(one) for one in samples))
        return path

    return write


def read(path: Path, **options: object) -> tuple[FirstPass, ...]:
    imported = import_file(path, None, ReadOptions(**options))
    assert imported.kind == "lm-eval"
    return imported.passes


def test_a_metric_of_right_and_wrong_and_what_the_place_says(written):
    right, wrong = read(written(sample(1), sample(2, exact_match=0.0)))
    assert (right.grade, wrong.grade) == (C, I)
    assert (right.model, right.dataset) == ("meta-llama/Llama-3.1-8B", "triviaqa")
    assert (right.question.question_id, right.question.text, right.question.gold) == ("1", "What is 1?", "1")
    assert right.reply == "It is 1.", "what was said, not what a filter left of it"


def test_a_question_about_a_passage_keeps_the_passage(written):
    """A forced pass without it asked another question."""
    (one,) = read(written(sample(1, doc={"question": "Who?", "context": "Ann came.", "topic": None})))
    assert (one.question.text, one.question.context) == ("Who?", "Ann came.")


def test_a_pattern_says_which_wrong_answers_are_refusals(written):
    path = written(sample(1, resps=[["I don't know."]], exact_match=0.0), sample(2, exact_match=0.0))
    assert [one.grade for one in read(path, refusal="don't know")] == [R, I]


def test_flags_say_the_grade_together(written):
    names = ("is_correct", "is_incorrect", "is_not_attempted")
    flags = [dict(zip(names, values, strict=True)) for values in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0))]
    path = written(*(sample(n, metrics=[*names, "score"], score=0.0, **one) for n, one in enumerate(flags)))
    assert [one.grade for one in read(path)] == [C, I, R, U]


def test_an_old_file_without_a_list_of_metrics(written):
    old = {key: value for key, value in sample(1).items() if key not in ("metrics", "filter")}
    assert [one.grade for one in read(written(old))] == [C]


def test_one_filter_of_several_is_chosen(written):
    strict = [sample(n, filter="strict", exact_match=0.0) for n in range(2)]
    path = written(*strict, *(sample(n, filter="flexible") for n in range(2)))
    assert [one.grade for one in read(path, scorer="exact_match,flexible")] == [C, C]
    with pytest.raises(DatasetError, match=r"strict, flexible.*--scorer METRIC,FILTER.*exact_match,strict"):
        read(path)
    with pytest.raises(DatasetError, match="expected samples of the filter 'loose'"):
        read(path, scorer="exact_match,loose")


@pytest.mark.parametrize(
    ("changes", "options", "told"),
    [
        ({"metrics": ["em", "f1"], "em": 1, "f1": 1}, {}, r"expected one metric, got em, f1.*--scorer"),
        ({"exact_match": 0.5}, {}, r"line 2, column 'exact_match': expected a grade out of .*got 0\.5"),
        ({}, {"scorer": "bleu"}, r"line 1: expected a metric 'bleu', got exact_match"),
        ({"resps": [[[-1.5, False]]]}, {}, "compares the likelihoods"),
    ],
)
def test_samples_that_cannot_be_used_are_named(written, changes, options, told):
    path = written(sample(1, **changes)) if "metrics" in changes else written(sample(1), sample(2, **changes))
    with pytest.raises(DatasetError, match=told):
        read(path, **options)


def test_a_grade_that_is_missing_is_unscored(written):
    (one,) = read(written(sample(1, exact_match=None)))
    assert (one.grade, one.reason) == (U, "first_not_graded")


def test_the_question_under_another_key_of_the_document(written):
    (one,) = read(written(sample(1, doc={"ask": "Why?", "gold": "so"})), columns={"question": "ask", "answer": "gold"})
    assert (one.question.text, one.question.gold) == ("Why?", "so")


OURS = {"dataset": "almanac", "prompts": "default", "variant": "high"}
FLAGGED = {"metrics": ["is_correct", "is_incorrect", "is_not_attempted"], "is_correct": 0, "is_incorrect": 0}


def own(n: int, *, variant: str = "high", **flag: int) -> dict[str, object]:
    doc = {"question_id": f"id-{n}", "question": "Who?", "answer": "Ann", "topic": "people", "context": None}
    flags = {**FLAGGED, "is_not_attempted": 0, **flag}
    return sample(n, doc={**doc, "refusal_index": {**OURS, "variant": variant}}, target="Ann", **flags)


def test_samples_of_the_packages_own_tasks_say_what_was_asked(written):
    (one,) = read(written(own(7, is_not_attempted=1)))
    assert (one.question.question_id, one.question.topic) == ("id-7", "people")
    assert (one.dataset, one.variant, one.grade) == ("almanac", "high", R)


def test_a_task_of_the_package_without_a_right_answer_needs_no_forcing(written):
    doc = {**own(1)["doc"], "answer": None}
    (one,) = read(written({**own(1, is_not_attempted=1), "doc": doc, "target": ""}))
    assert (one.question.gold, one.needs_forcing) == (None, False)


def test_a_task_of_the_package_without_ids_is_named_with_its_line(written):
    doc = {key: value for key, value in own(1)["doc"].items() if key != "question_id"}
    with pytest.raises(DatasetError, match=r"line 1: expected a question_id in the 'doc' of a task of this package"):
        read(written({**own(1, is_correct=1), "doc": doc}))


def test_rows_of_the_forced_pass_are_joined_to_those_of_the_first(written):
    first = read(written(own(1, is_not_attempted=1), own(2, is_incorrect=1), own(3, is_not_attempted=1)))
    forced = read(written(*(own(n, variant="forced", is_correct=1) for n in (1, 2, 3))))
    outcomes = [one.outcome() for one in with_rows_of_forced([*first, *forced])]
    assert [(one.refused, one.wrong, one.forced_grade) for one in outcomes] == [
        (True, False, C),
        (False, True, C),
        (True, False, C),
    ]
    assert with_rows_of_forced(first) == first
    with pytest.raises(DatasetError, match=r"expected the first pass, .* got 3 rows of the forced pass alone"):
        with_rows_of_forced(forced)


def test_files_the_wrong_way_round_are_told_with_the_right_order(written):
    """A table of the variant `forced` was written, with the advice that grades may not know refusals."""
    first = read(written(own(1, is_not_attempted=1), own(2, is_incorrect=1)))
    forced = read(written(own(1, variant="forced", is_correct=1), own(2, variant="forced", is_incorrect=1)))
    with pytest.raises(DatasetError) as caught:
        check_order(forced, Path("b.jsonl"), Path("a.jsonl"))
    assert str(caught.value) == (
        "b.jsonl: expected the first pass, in which a model may refuse, got 2 rows of the forced pass; the first pass "
        "comes first: import a.jsonl --forced b.jsonl"
    )
    check_order(first, Path("a.jsonl"), Path("b.jsonl"))
