"""Results of other tools: rows of graded answers, and samples of lm-evaluation-harness."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data import Grade
from refusal_index.data.datasets import DatasetError
from refusal_index.data.first_pass import FirstPass, check_order, to_outcomes, with_rows_of_forced
from refusal_index.data.imports import ReadOptions, detected_format, read_first_passes
from refusal_index.data.source_files import SourceFile
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.imported import reading_statements
from refusal_index.findings.tallies import tallies
from refusal_index.runs.reuse import import_file

# --- Rows of graded answers

C, I, R, U = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED  # noqa: E741


def read(path: Path, **options: object) -> tuple[FirstPass, ...]:
    return import_file(path, None, ReadOptions(**options)).passes


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str, name: str = "gpt-4.1.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def grades(path: Path, **options: object) -> list[Grade | None]:
    return [one.grade for one in read(path, **options)]


SIMPLEQA = "problem,target,predicted_answer,grade\nWho?,I,me,A\nWhat?,It,that,B\nWhen?,Now,no idea,C\n"


def test_paper_rows_are_read_under_their_usual_names(written):
    first, second, third = read(written(SIMPLEQA))
    assert (first.grade, second.grade, third.grade) == (C, I, R)
    assert (third.question.text, third.question.gold, third.reply) == ("When?", "Now", "no idea")
    assert {one.model for one in (first, second, third)} == {"gpt-4.1"}, "the file's name if no column gives the model"
    assert third.needs_forcing
    assert not second.needs_forcing


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        *((word, C) for word in ("A", "a", "CORRECT", "Correct", "1", "1.0", "true")),
        *((word, I) for word in ("B", "INCORRECT", "incorrect", "0", "0.0", "False")),
        *((word, R) for word in ("C", "NOT_ATTEMPTED", "Not attempted", "not-attempted", "refused")),
        *((word, U) for word in ("", "unscored")),
    ],
)
def test_common_grade_words_are_recognised(written, cell, expected):
    assert grades(written(f"question,target,grade\nWho?,I,{cell}\n")) == [expected]


def test_row_without_a_grade_is_unscored_with_a_reason(written):
    (one,) = read(written("question,target,grade\nWho?,I,\n"))
    assert one.outcome().refused is None
    assert one.outcome().unscored_reason == "first_not_graded"


def test_flags_determine_the_grade_and_all_false_is_ungraded(written):
    text = "question,target,is_correct,is_incorrect,is_not_attempted\n"
    rows = "a,1,True,False,False\nb,1,False,True,False\nc,1,False,False,True\nd,1,False,False,False\n"
    found = read(written(text + rows))
    assert [one.grade for one in found] == [C, I, R, None]
    assert found[3].outcome().refused is False, "it was not a refusal, and it is unknown whether it is right"
    assert found[3].outcome().wrong is None


def test_refusal_flag_is_combined_with_a_right_or_wrong_grade(written):
    text = "question,target,grade,abstained\na,1,0,true\nb,1,0,false\nc,1,1,false\n"
    assert grades(written(text)) == [R, I, C]


def test_unanswerable_question_makes_answers_wrong_and_needs_no_forcing(written):
    text = (
        "question,gold_answers,is_answerable,abstained\na,[],False,True\nb,[],False,False\nc,\"['x', 'y']\",True,True\n"
    )
    refused, answered, answerable = read(written(text))
    assert (refused.grade, answered.grade, answerable.grade) == (R, I, R)
    assert (refused.outcome().refused, refused.outcome().wrong) == (True, True)
    assert not refused.needs_forcing
    assert answerable.needs_forcing
    assert (answerable.question.gold, answerable.question.aliases) == ("x", ("y",))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_other_formats_give_the_same_graded_rows(written, tmp_path, suffix):
    rows = pl.read_csv(written(SIMPLEQA)).to_dicts()
    path = tmp_path / f"gpt-4.1{suffix}"
    if suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    elif suffix == ".json":
        path.write_text(json.dumps({"metrics": {"f1": 0.5}, "results": rows}))
    else:
        pl.DataFrame(rows).write_parquet(path)
    assert read(path) == read(written(SIMPLEQA))


def test_same_question_with_another_context_gets_another_id(written):
    one, other = read(written("question,target,context,grade\nWho?,I,It was I.,C\nWho?,I,I did it.,C\n"))
    assert (one.question.text, one.question.context) == ("Who?", "It was I.")
    assert one.question.question_id != other.question.question_id


@pytest.mark.parametrize(
    ("rows", "repeated"),
    [("Who?,I,C,m\nWho?,I,I,m\nWho?,I,C,m", 2), ("Who?,I,C,m\nWho?,I,I,n", 0), ("Who?,I,C,m\nWho?,You,I,m", 0)],
    ids=["one model", "two models", "two answers"],
)
def test_rows_with_the_question_of_another_row_of_a_model_are_counted(written, rows, repeated):
    path = written(f"question,target,grade,model\n{rows}\n")
    assert import_file(path, None, ReadOptions()).read.repeated == repeated


def test_ids_do_not_depend_on_order_even_for_repeated_questions(written):
    head = "problem,target,predicted_answer,grade\n"
    rows = ["Who?,I,x,A", "Who?,you,x,B", "What?,It,x,C"]
    one = read(written(head + "\n".join(rows)))
    other = read(written(head + "\n".join(reversed(rows))))
    assert {p.question.question_id: p.question.gold for p in one} == {
        p.question.question_id: p.question.gold for p in other
    }
    assert len({p.question.question_id for p in one}) == 3


def test_several_models_in_one_file_share_question_ids(written):
    found = read(written("model,question,target,grade\nm1,Who?,I,A\nm2,Who?,I,C\n"))
    assert [one.model for one in found] == ["m1", "m2"]
    assert len({one.question.question_id for one in found}) == 1


def test_refusal_pattern_applies_whatever_the_grade(written):
    text = "question,target,response,grade\na,1,I cannot say,0\nb,1,I cannot say but 1,1\nc,1,2,0\nd,1,I CANNOT SAY,\n"
    assert grades(written(text), refusal="+cannot say") == [R, R, I, R]


BAD = {
    "unknown grade": (SIMPLEQA + "Why?,Because,so,D\n", {}, ["line 5", "'grade'", "'D'", "A, B, C", "NOT_ATTEMPTED"]),
    "Inspect's letter": (SIMPLEQA + "Why?,Because,so,I\n", {}, ["line 5", "'I'"]),
    "no grade": ("problem,x\nWho?,I\n", {}, ["column 'grade'", "'problem', 'x'", 'columns={"grade": ']),
    "questions": ("problem,target\nWho?,I\n", {}, ["questions without replies", "refusal-index run --data "]),
    "ungraded": ("problem,target,reply\nWho?,I,me\n", {}, ["replies without", 'grader="exact"', "name it"]),
    "no gold": ("problem,reply\nWho?,I\n", {}, ["without grades and gold answers", "'problem', 'reply'"]),
    "misspelt column": (SIMPLEQA, {"columns": {"grade": "grad"}}, ["'grad'", "'grade'"]),
    "unknown role": (SIMPLEQA, {"columns": {"grades": "grade"}}, ["--column", "'grades'", "'grade'"]),
    "flag": ("question,target,abstained\nWho?,I,perhaps\n", {}, ["line 2", "'abstained'", "'perhaps'"]),
    "contradiction": (
        "question,target,grade,refused\nWho?,I,C,false\n",
        {},
        ["line 2", "'grade'", "'refused'", "correct the row"],
    ),
    "empty id": ("id,question,target,grade\n,Who?,I,A\n", {}, ["line 2", "'id'"]),
    "draw": ("draw,question,target,grade\nx,Who?,I,A\n", {}, ["line 2", "'draw'", "'x'"]),
    "nothing": ("problem,grade\n", {}, ["gpt-4.1.csv"]),
    "pattern": (SIMPLEQA, {"refusal": "+("}, ["refusal", "missing"]),
    "bare pattern": (SIMPLEQA, {"refusal": "cannot"}, ["refusal", "'+cannot'"]),
    "slow pattern": (
        f"question,target,response,grade\na,1,{'a' * 40},0\n",
        {"refusal": "+(a|aa)+$b"},
        ["refusal: ", "takes more than", "nested repetitions"],
    ),
    "scorer": (SIMPLEQA, {"scorer": "match"}, ["scorer: ", "graded"]),
}


@pytest.mark.parametrize("case", BAD)
def test_unusable_graded_file_is_reported_in_one_line(written, case, monkeypatch):
    for module in ("data.imports", "protocol.refusals"):
        monkeypatch.setattr(f"refusal_index.{module}.SECONDS", 0.05)
    text, options, expected = BAD[case]
    with pytest.raises(RefusalIndexError) as caught:
        read(written(text), **options)
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in expected), message


def test_bad_grade_in_a_json_document_is_named_by_its_item(written):
    path = written(json.dumps([{"question": "Who?", "grade": "A"}, {"question": "What?", "grade": "E"}]), "x.json")
    with pytest.raises(DatasetError, match=r"x\.json, item 2, column 'grade': expected a grade"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": [{"grade": "A"}], "b": [{"grade": "A"}]}', r"lists at 'a', 'b': choose one with rows=\"a\""),
        ('{"a": 1}', "no list of objects"),
        ("[1]", "item 1"),
        ('[{"grade": "A"', "cut off"),
    ],
)
def test_json_document_without_exactly_one_answer_list_is_rejected(written, text, message):
    with pytest.raises(DatasetError, match=message):
        read(written(text, "x.json"))


def test_broken_graded_parquet_file_is_rejected(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(DatasetError, match=r"x\.parquet cannot be read as Parquet"):
        read(path)


# --- Samples of lm-evaluation-harness


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
def written_samples(tmp_path: Path):
    def write(*samples: dict[str, object]) -> Path:
        folder = tmp_path / "meta-llama__Llama-3.1-8B"
        folder.mkdir(exist_ok=True)
        path = folder / "samples_triviaqa_2026-01-02T03-04-05.678.jsonl"
        path.write_text("\n".join(json.dumps(one) for one in samples))
        return path

    return write


def read_samples(path: Path, **options: object) -> tuple[FirstPass, ...]:
    imported = import_file(path, None, ReadOptions(**options))
    assert imported.kind == "lm-eval"
    return imported.passes


def test_binary_metric_is_the_grade_and_path_gives_model_and_dataset(written_samples):
    right, wrong = read_samples(written_samples(sample(1), sample(2, exact_match=0.0)))
    assert (right.grade, wrong.grade) == (C, I)
    assert (right.model, right.dataset) == ("meta-llama/Llama-3.1-8B", "triviaqa")
    assert (right.question.question_id, right.question.text, right.question.gold) == ("1", "What is 1?", "1")
    assert right.reply == "It is 1.", "the reply, not the filtered reply"


def test_a_question_about_a_passage_keeps_the_passage(written_samples):
    """Without it, the forced pass would ask a different question."""
    (one,) = read_samples(written_samples(sample(1, doc={"question": "Who?", "context": "Ann came.", "topic": None})))
    assert (one.question.text, one.question.context) == ("Who?", "Ann came.")


def test_refusal_pattern_selects_refusals_among_answers(written_samples):
    path = written_samples(sample(1, resps=[["I don't know."]], exact_match=0.0), sample(2, exact_match=0.0))
    assert [one.grade for one in read_samples(path, refusal="+don't know")] == [R, I]


def test_lm_eval_flags_determine_the_grade(written_samples):
    names = ("is_correct", "is_incorrect", "is_not_attempted")
    flags = [dict(zip(names, values, strict=True)) for values in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0))]
    path = written_samples(*(sample(n, metrics=[*names, "score"], score=0.0, **one) for n, one in enumerate(flags)))
    assert [one.grade for one in read_samples(path)] == [C, I, R, U]


def test_old_lm_eval_file_without_a_metrics_list_is_read(written_samples):
    old = {key: value for key, value in sample(1).items() if key not in ("metrics", "filter")}
    assert [one.grade for one in read_samples(written_samples(old))] == [C]


def test_one_filter_of_several_is_chosen(written_samples):
    strict = [sample(n, filter="strict", exact_match=0.0) for n in range(2)]
    path = written_samples(*strict, *(sample(n, filter="flexible") for n in range(2)))
    assert [one.grade for one in read_samples(path, scorer="exact_match,flexible")] == [C, C]
    read = import_file(path, None, ReadOptions()).read
    assert [one.grade for one in read.passes] == [I, I], "by default the first filter"
    assert read.other_scorers == ("exact_match,flexible",)
    with pytest.raises(DatasetError, match="expected samples of the filter 'loose'"):
        read_samples(path, scorer="exact_match,loose")


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"metrics": ["bleu", "f1"], "bleu": 1, "f1": 1}, {}, r"expected one metric, got bleu, f1.*scorer=\"bleu\""),
        ({"exact_match": 0.5}, {}, r"line 2, column 'exact_match': expected a grade out of .*got 0\.5"),
        ({}, {"scorer": "bleu"}, r"line 1: expected a metric 'bleu', got exact_match"),
        ({"resps": [[-1.5]]}, {}, "expected the text of a reply"),
    ],
)
def test_unusable_lm_eval_samples_are_named(written_samples, changes, options, message):
    path = (
        written_samples(sample(1, **changes))
        if "metrics" in changes
        else written_samples(sample(1), sample(2, **changes))
    )
    with pytest.raises(DatasetError, match=message):
        read_samples(path, **options)


def test_missing_lm_eval_grade_is_unscored(written_samples):
    (one,) = read_samples(written_samples(sample(1, exact_match=None)))
    assert (one.grade, one.reason) == (U, "first_not_graded")


def test_question_may_be_under_another_document_key(written_samples):
    (one,) = read_samples(
        written_samples(sample(1, doc={"ask": "Why?", "gold": "so"})), columns={"question": "ask", "answer": "gold"}
    )
    assert (one.question.text, one.question.gold) == ("Why?", "so")


OURS = {"dataset": "almanac", "prompts": "default", "variant": "high"}
FLAGGED = {"metrics": ["is_correct", "is_incorrect", "is_not_attempted"], "is_correct": 0, "is_incorrect": 0}


def own(n: int, *, variant: str = "high", **flag: int) -> dict[str, object]:
    doc = {"question_id": f"id-{n}", "question": "Who?", "answer": "Ann", "topic": "people", "context": None}
    flags = {**FLAGGED, "is_not_attempted": 0, **flag}
    return sample(n, doc={**doc, "refusal_index": {**OURS, "variant": variant}}, target="Ann", **flags)


def test_package_task_samples_give_question_dataset_and_variant(written_samples):
    (one,) = read_samples(written_samples(own(7, is_not_attempted=1)))
    assert (one.question.question_id, one.question.topic) == ("id-7", "people")
    assert (one.dataset, one.variant, one.grade) == ("almanac", "high", R)


def test_unanswerable_package_task_needs_no_forcing(written_samples):
    doc = {**own(1)["doc"], "answer": None}
    (one,) = read_samples(written_samples({**own(1, is_not_attempted=1), "doc": doc, "target": ""}))
    assert (one.question.gold, one.needs_forcing) == (None, False)


def test_package_task_keeps_aliases_and_choices(written_samples):
    doc = {**own(1)["doc"], "aliases": ["Anna", "A. Lee"], "choices": ["Ann", "Bob"]}
    (one,) = read_samples(written_samples({**own(1, is_not_attempted=1), "doc": doc}))
    assert (one.question.gold, one.question.aliases, one.question.choices) == (
        "Ann",
        ("Anna", "A. Lee"),
        ("Ann", "Bob"),
    )


TRIVIA = {"value": "Ann", "aliases": ["Anna"]}


@pytest.mark.parametrize(
    ("changes", "gold", "aliases"),
    [
        ({"target": ["Ann", "Anna"]}, "Ann", ("Anna",)),
        ({"target": "['Ann', 'Anna']"}, "Ann", ("Anna",)),
        ({"target": "Ann", "doc": {"question": "Who?", "answer": ["Anna", "Ann"]}}, "Ann", ("Anna",)),
        ({"target": "Ann", "doc": {"question": "Who?", "answer": TRIVIA}}, "Ann", ("Anna",)),
        ({"target": "Ann", "doc": {"question": "Who?", "answer": ["B"]}}, "Ann", ()),
    ],
)
def test_further_targets_of_other_tasks_are_aliases(written_samples, changes, gold, aliases):
    (one,) = read_samples(written_samples(sample(1, **changes)))
    assert (one.question.gold, one.question.aliases) == (gold, aliases)


@pytest.mark.parametrize("nothing", [None, [], [[]], [[None]]])
def test_theory_a_sample_without_a_reply_has_no_grade_whatever_its_metric(written_samples, nothing):
    (one,) = read_samples(written_samples(sample(1, resps=nothing, filtered_resps=nothing)))
    assert (one.grade, one.reply, one.unused_grades) == (U, None, 1)


def test_empty_reply_of_a_sample_is_unscored(written_samples):
    read = read_samples(written_samples(sample(1, resps=[[" "]]), sample(2, resps=[["\u200b"]], exact_match=0.0)))
    assert [(one.grade, one.reason) for one in read] == [(U, "first_empty")] * 2


LIKELIHOODS = [[["-2.5", "False"]], [["-1.0", "True"]], [["-3.0", "False"]]]


@pytest.mark.parametrize("resps", [LIKELIHOODS, [[[-2.5, False]], [[-1.0, True]], [[-3.0, False]]]])
@pytest.mark.parametrize(
    ("doc", "target"),
    [
        ({"question": "Q?", "choices": ["x", "y", "z"]}, 2),
        ({"question": "Q?", "choices": ["x", "y", "z"]}, "2"),
        ({"question": "Q?", "choices": {"text": ["x", "y", "z"], "label": ["A", "B", "C"]}}, "C"),
        ({"question": "Q?", "mc1_targets": {"choices": ["x", "y", "z"], "labels": [0, 0, 1]}}, 2),
        ({"question": "Q?"}, " z"),
    ],
)
def test_compared_likelihoods_give_the_likeliest_option_and_the_text_of_the_right_one(
    written_samples, resps, doc, target
):
    """From the definition of such tasks: the likeliest of the given answers is chosen."""
    requests = {f"gen_args_{n}": {"arg_0": "Q?", "arg_1": f" {text}"} for n, text in enumerate("xyz")}
    path = written_samples(sample(1, resps=resps, filtered_resps=[], doc=doc, target=target, arguments=requests))
    imported = import_file(path, None, ReadOptions()).read
    (one,) = imported.passes
    assert (one.reply, one.question.gold, one.question.choices) == ("y", "z", ("x", "y", "z"))
    assert imported.compared_likelihoods


def test_compared_likelihoods_without_options_give_no_reply_and_no_index(written_samples):
    path = written_samples(sample(1, resps=LIKELIHOODS, target=0, doc={"question": "Q?"}, arguments=[]))
    (one,) = read_samples(path)
    assert (one.grade, one.reply, one.question.gold, one.question.choices) == (C, None, "", ())


@pytest.mark.parametrize(("resps", "samples"), [([["no", "yes"]], 1), ([["no"]], 0), ([["a"], ["b"]], 0)])
def test_several_replies_to_one_request_are_counted(written_samples, resps, samples):
    """A task with ``repeats`` has several; its metric may be that of another reply than the first, which is read."""
    imported = import_file(written_samples(sample(1, resps=resps)), None, ReadOptions()).read
    assert imported.several_replies == samples
    assert imported.passes[0].reply == resps[0][0]
    codes = [statement.code for statement in reading_statements(imported)]
    assert codes.count("several_replies") == samples


def test_metrics_that_are_not_used_are_named(written_samples):
    path = written_samples(sample(1, metrics=["exact_match", "f1"], f1=0.3))
    assert import_file(path, None, ReadOptions(scorer="exact_match")).read.other_scorers == ("f1",)


def test_keys_of_the_row_that_are_not_used_are_named(written_samples):
    doc = {"question": "Who?", "answer": "Ann", "choices": ["Ann", "Bob"], "source": "w"}
    path = written_samples(sample(1, doc=doc))
    assert import_file(path, None, ReadOptions()).read.not_used == ("choices", "source")
    own_path = written_samples(own(1, is_correct=1))
    assert import_file(own_path, None, ReadOptions()).read.not_used == ()


def test_public_samples_of_truthfulqa_have_texts_and_no_likelihoods():
    folder = DATA.parent / "cases" / "reading" / "org__small"
    if not folder.is_dir():
        pytest.skip("needs the cases in ../shared")
    (path,) = folder.iterdir()
    passes = import_file(path, None, ReadOptions()).passes
    assert {(one.reply, one.question.gold) for one in passes} == {("a", "a")}


def test_package_task_without_ids_is_named_with_its_line(written_samples):
    doc = {key: value for key, value in own(1)["doc"].items() if key != "question_id"}
    with pytest.raises(DatasetError, match=r"line 1: expected a question_id in the 'doc' of a task of this package"):
        read_samples(written_samples({**own(1, is_correct=1), "doc": doc}))


def test_forced_pass_rows_are_joined_to_first_pass_rows(written_samples):
    first = read_samples(
        written_samples(own(1, is_not_attempted=1), own(2, is_incorrect=1), own(3, is_not_attempted=1))
    )
    forced = read_samples(written_samples(*(own(n, variant="forced", is_correct=1) for n in (1, 2, 3))))
    outcomes = [one.outcome() for one in with_rows_of_forced([*first, *forced])]
    assert [(outcome.refused, outcome.wrong, outcome.forced_grade) for outcome in outcomes] == [
        (True, False, C),
        (False, True, C),
        (True, False, C),
    ]
    assert with_rows_of_forced(first) == first
    with pytest.raises(DatasetError, match=r"expected the first pass, .* got 3 rows of the forced pass alone"):
        with_rows_of_forced(forced)


def test_files_in_the_wrong_order_raise_and_show_the_right_order(written_samples):
    """Earlier, a table of the variant `forced` was written, with misleading advice about refusals."""
    first = read_samples(written_samples(own(1, is_not_attempted=1), own(2, is_incorrect=1)))
    forced = read_samples(
        written_samples(own(1, variant="forced", is_correct=1), own(2, variant="forced", is_incorrect=1))
    )
    with pytest.raises(DatasetError) as caught:
        check_order(forced, Path("b.jsonl"), Path("a.jsonl"))
    assert str(caught.value) == (
        "b.jsonl: expected the first pass, in which a model may refuse, got 2 rows of the forced pass; the first pass "
        "comes first: import a.jsonl --forced b.jsonl"
    )
    check_order(first, Path("a.jsonl"), Path("b.jsonl"))


# --- Real data

DATA = Path(__file__).parents[3] / "shared" / "data"
MODELS = (
    "claude-3-5-haiku-20241022",
    "claude-3-5-sonnet-20240620",
    "claude-3-5-sonnet-20241022",
    "gpt-4o-2024-11-20",
    "gpt-4o-mini-2024-07-18",
)


def real(name: str) -> Path:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"the real {name} is not at hand")
    return path


def read_czech(path: Path) -> tuple[FirstPass, ...]:
    file = SourceFile.read(path)
    assert detected_format(file) == "graded"
    return read_first_passes(file, "graded", ReadOptions(dataset="czech_simpleqa")).passes


@pytest.mark.slow
def test_tallies_of_21630_czech_answers_match_plain_counts():
    everything: list[FirstPass] = []
    for model in MODELS:
        path = real(f"czech_simpleqa/{model}.csv.gz")
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        plain = Counter(row["grade"] for row in rows)
        passes = read_czech(path)
        (tally,) = tallies(passes)
        assert tally.model == model
        assert (tally.correct, tally.incorrect, tally.refused) == (plain["A"], plain["B"], plain["C"])
        assert (tally.unscored, tally.to_force) == (0, plain["C"])
        assert [one.reply for one in passes] == [row["predicted_answer"] for row in rows]
        everything += passes
    table = to_outcomes(everything)
    assert len(table) == 21_630
    assert table["question_id"].n_unique() == 4326, "every model was asked the same questions"


@pytest.mark.parametrize("condition", ["explicit", "implicit"])
def test_abstentions_on_squad_are_refusals_and_answers_are_not_graded(condition):
    path = real(f"squad2_refusal/{condition}_n500.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    summary = json.loads(real("squad2_refusal/summary_n500.json").read_text())[condition]
    (tally,) = tallies(read_czech(path))
    assert tally.refused == sum(row["abstained"] for row in rows)
    assert tally.unscored == round(summary["answer_attempt_rate"] * 500), "the answerable that were answered"
    assert tally.incorrect == round(summary["hallucination_rate"] * 500), "the unanswerable that were answered"
    assert tally.to_force == sum(row["abstained"] and row["is_answerable"] for row in rows)
    assert tally.metrics == ()
    assert tally.variant == condition
