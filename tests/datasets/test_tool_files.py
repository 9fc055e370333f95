"""Result files of other tools, in small, as their current releases write them: recognised without options."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from refusal_index.data import Grade
from refusal_index.data.datasets import DatasetError
from refusal_index.data.first_pass import FirstPass, FirstPasses, forced_outcome, with_forced, with_rows_of_forced
from refusal_index.data.imports import ReadOptions
from refusal_index.findings.tallies import tallies
from refusal_index.protocol.grading import GraderError
from refusal_index.runs.reuse import import_file

C, I, R, U = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED  # noqa: E741 - short, for tables
NO_ANSWER = "<answer>UNANSWERED</answer>"


def read(path: Path, **options: Any) -> FirstPasses:
    return import_file(path, None, ReadOptions(**options)).read


def parts(read_: FirstPasses) -> list[tuple[str, str | None, str | None, Grade | None]]:
    return [(one.question.text, one.question.gold, one.reply, one.grade) for one in read_.passes]


EXPECTED = [("Who?", "Ann", "<answer>Ann</answer>", C), ("Where?", "Oslo", "Rome", I), ("When?", "1870", NO_ANSWER, R)]
ROWS = [(question, gold, reply, grade is C) for question, gold, reply, grade in EXPECTED]


def promptfoo_result(question: str, gold: str, reply: str | None, is_right: bool, number: int = 0) -> dict[str, Any]:
    return {
        "gradingResult": {"pass": is_right, "score": float(is_right)},
        "prompt": {"raw": f"Answer: {question}", "label": "Answer: {{question}}"},
        "promptIdx": number,
        "testIdx": 0,
        "provider": {"id": "openai:chat:m", "label": ""},
        "response": {"output": reply},
        "success": is_right,
        "failureReason": 0 if is_right else 1 if reply else 2,
        "testCase": {"vars": {"question": question}, "assert": [{"type": "icontains", "value": gold}]},
        "vars": {"question": question, "topic": "t"},
    }


def promptfoo_csv(path: Path, prompts: int) -> None:
    group = ["Status", "Score", "Named Scores", "Grader Reason", "Comment"]
    header = ["answer", "question"]
    for number in range(prompts):
        header += [f"[openai:chat:m] prompt {number}", *group]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(header)
        for question, gold, reply, is_right in ROWS:
            cells = [reply, "PASS" if is_right else "FAIL", "1.00", "", "", ""]
            rows.writerow([gold, question, *cells, *(["'=1+1", "FAIL", "0.00", "", "", ""] * (prompts - 1))])


def deepeval(records: list[dict[str, Any]], *, is_camel: bool) -> dict[str, Any]:
    if is_camel:
        metrics = [{"metric": "Contains", "scores": [1.0], "passes": 1}]
        return {"testRunData": {"testCases": records, "conversationalTestCases": [], "metricsScores": metrics}}
    return {"test_results": records, "confident_link": None}


def named(*names: str) -> list[dict[str, Any]]:
    """Return the rows with these names for the question, the gold answer, the reply and whether it is right."""
    return [dict(zip(names, row, strict=True)) for row in ROWS]


def write(tmp_path: Path, tool: str) -> Path:
    """Write the rows as a tool does."""
    records: Any = None
    name = "x.jsonl"
    if tool == "promptfoo json":
        name, results = "x.json", [promptfoo_result(*row) for row in ROWS]
        prompts = [{"raw": "Answer: {{question}}", "provider": "openai:chat:m"}]
        records = {"results": {"prompts": prompts, "results": results}, "config": {"providers": [{"id": "m"}]}}
    elif tool == "promptfoo jsonl":
        records = [promptfoo_result(*row) for row in ROWS]
    elif tool == "promptfoo csv":
        promptfoo_csv(tmp_path / "x.csv", 1)
        return tmp_path / "x.csv"
    elif tool.startswith("deepeval"):
        names = ("input", "expectedOutput", "actualOutput", "success") if "file" in tool else ()
        names = names or ("input", "expected_output", "actual_output", "success")
        cases = [{"name": "n", **dict(zip(names, row, strict=True)), "context": ["A.", "B."]} for row in ROWS]
        name, records = "x.json", deepeval(cases, is_camel="file" in tool)
    elif tool == "ragas":
        records = named("user_input", "reference", "response", "string_present")
    elif tool == "ragas old":
        records = named("question", "ground_truth", "answer", "answer_correctness")
    elif tool == "uqlm":
        others = {"sampled_responses": ["a"], "exact_match": 1.0}
        records = [{**row, **others} for row in named("prompt", "ground_truth", "response", "correct")]
    elif tool == "uqlm columns":
        names = ("prompts", "ground_truth", "responses", "correct")
        columns = map(list, zip(*ROWS, strict=True))
        name, records = "x.json", {"data": dict(zip(names, columns, strict=True))}
    text = "\n".join(map(json.dumps, records)) if isinstance(records, list) else json.dumps(records)
    (tmp_path / name).write_text(text)
    return tmp_path / name


TOOLS = (
    *("promptfoo json", "promptfoo jsonl", "promptfoo csv", "deepeval result", "deepeval file"),
    *("ragas", "ragas old", "uqlm", "uqlm columns"),
)


@pytest.mark.parametrize("tool", TOOLS)
def test_end_to_end_every_tool_gives_the_same_questions_replies_and_grades(tmp_path, tool):
    assert parts(read(write(tmp_path, tool))) == EXPECTED


def test_a_wrong_answer_with_the_tag_for_no_answer_is_a_refusal_and_counted_as_such(tmp_path):
    found = read(write(tmp_path, "ragas"))
    assert found.overruled == {"incorrect": 1}


def test_apostrophe_is_removed_only_before_a_formula_of_promptfoos_csv(tmp_path):
    cells = {"question": "Who?", "gold": "'=A", "[m] p": "the 'O'-ring", "Status": "PASS", "Score": "1"}
    rows = csv.writer(file := io.StringIO())
    rows.writerows([[*cells, "Grader Reason"], [*cells.values(), ""]])
    (tmp_path / "x.csv").write_text(file.getvalue())
    (one,) = read(tmp_path / "x.csv").passes
    assert (one.question.gold, one.reply) == ("=A", "the 'O'-ring")


def test_promptfoo_test_without_assertions_has_no_grade_in_json_and_csv(tmp_path):
    unchecked = {
        **promptfoo_result("Who?", "Ann", "Bob", True),
        "gradingResult": {"pass": True, "reason": "No assertions"},
    }
    (tmp_path / "x.jsonl").write_text(json.dumps(unchecked) + "\n" + json.dumps(promptfoo_result(*ROWS[0], 0)))
    assert [one.grade for one in read(tmp_path / "x.jsonl").passes] == [Grade.UNSCORED, C]
    header = "question,answer,[m] p,Status,Score,Named Scores,Grader Reason,Comment\n"
    (tmp_path / "x.csv").write_text(f"{header}Who?,Ann,Bob,PASS,1,,No assertions,\nWho is it?,Ann,Ann,PASS,1,,,\n")
    assert [one.grade for one in read(tmp_path / "x.csv").passes] == [Grade.UNSCORED, C]


def test_prompt_of_promptfoo_has_the_same_name_for_each_provider(tmp_path):
    header = ",".join(
        f"[{model}] {prompt},Status,Score,Named Scores,Grader Reason,Comment" for model in "mn" for prompt in "pq"
    )
    (tmp_path / "x.csv").write_text(
        f"question,answer,{header}\nWho?,Ann,{',Ann,PASS,1,,,' * 3},Ann,PASS,1,,,\n".replace(",,Ann,PASS", ",Ann,PASS")
    )
    assert [(one.model, one.variant) for one in read(tmp_path / "x.csv").passes] == [
        *(("m", "prompt 0"), ("m", "prompt 1"), ("n", "prompt 0"), ("n", "prompt 1"))
    ]


def test_more_than_ten_prompts_of_promptfoo_are_numbered_in_their_order(tmp_path):
    results = [
        {**promptfoo_result(*ROWS[0], number), "prompt": {"label": f"p{number % 6}"}, "provider": f"m{number // 6}"}
        for number in range(12)
    ]
    (tmp_path / "x.json").write_text(json.dumps({"results": {"results": results}}))
    variants = [one.variant for one in read(tmp_path / "x.json").passes]
    assert variants == [f"prompt {number}" for number in range(6)] * 2


def test_deepeval_test_with_a_failed_metric_or_none_has_no_grade(tmp_path):
    metrics = ([{"name": "A", "error": None}], [{"name": "A", "error": "no reply"}], None)
    cases = [
        {"input": f"{n}?", "expected_output": "Ann", "actual_output": "Bob", "success": False, "metrics_data": data}
        for n, data in enumerate(metrics)
    ]
    (tmp_path / "x.json").write_text(json.dumps(deepeval(cases, is_camel=False)))
    assert [one.grade for one in read(tmp_path / "x.json").passes] == [I, Grade.UNSCORED, Grade.UNSCORED]


def test_prompts_of_promptfoo_are_variants_and_a_failed_request_is_unscored(tmp_path):
    promptfoo_csv(tmp_path / "x.csv", 2)
    variants = {(one.variant, one.question.text): (one.reply, one.grade) for one in read(tmp_path / "x.csv").passes}
    assert len(variants) == 6
    assert variants["prompt 1", "Who?"] == ("=1+1", I), "without the apostrophe before a formula"
    results = [promptfoo_result("Who?", "Ann", "Ann", True), promptfoo_result("Where?", "Oslo", None, False, 1)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, results)))
    first, second = read(tmp_path / "x.jsonl").passes
    assert (first.variant, first.model, first.question.topic) == ("prompt 0", "openai:chat:m", "t")
    assert (second.grade, second.reason) == (U, "first_empty")


def test_repetitions_of_a_test_of_promptfoo_are_draws(tmp_path):
    results = [promptfoo_result("Who?", "Ann", reply, reply == "Ann") for reply in ("Ann", "Bob")]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, results)))
    assert [(one.draw, one.grade) for one in read(tmp_path / "x.jsonl").passes] == [(0, C), (1, I)]


def test_uqlm_scores_are_not_grades(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"prompt": "Who?", "response": "Ann", "sampled_responses": ["Ann"], "exact_match": 1.0}))
    with pytest.raises(DatasetError, match="without grades and gold answers"):
        read(path)


def test_one_of_several_metrics_is_named_by_the_user(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"user_input": "Who?", "response": "Ann", "string_present": 1.0, "exact_match": 0.0}))
    with pytest.raises(DatasetError, match="name the grades with columns="):
        read(path)
    assert [one.grade for one in read(path, columns={"correct": "string_present"}).passes] == [C]


def test_grades_of_the_file_are_kept_if_a_rule_grades_the_others(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("question,target,reply,grade\nWho?,Ann,Bob,A\nWhere?,Oslo,Rome,\n")
    assert graded(path, "exact") == [C, I]


def test_list_in_a_document_is_found_by_its_columns_or_named(tmp_path):
    path = tmp_path / "x.json"
    rows = [{"question": "Who?", "grade": "A"}]
    path.write_text(json.dumps({"run": {"models": [{"name": "m"}], "answers": rows}}))
    assert [one.grade for one in read(path).passes] == [C]
    path.write_text(json.dumps({"first": {"rows": rows}, "second": {"rows": rows}}))
    with pytest.raises(
        DatasetError, match=r"lists at 'first\.rows', 'second\.rows': choose one with rows=\"first\.rows\""
    ):
        read(path)
    assert [one.grade for one in read(path, rows="second.rows").passes] == [C]
    with pytest.raises(DatasetError, match=r"rows: .*expected the path of a list, .*, got 'third'"):
        read(path, rows="third")


def graded(path: Path, grader: str) -> list[Grade | None]:
    return [one.grade for one in read(path, grader=grader).passes]


def test_end_to_end_answers_without_a_grade_are_graded_by_a_rule(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("question,reference,response\nWho?,Ann,It is Ann.\nWhere?,Oslo,I don't know.\nWhen?,1870,1871\n")
    assert graded(path, "includes") == [C, R, I]
    assert graded(path, "exact") == [I, R, I]


def test_position_of_a_choice_is_no_gold_answer(tmp_path):
    """A position may count from 0 or from 1. With the letter of the same choice, the answers are graded."""
    path = tmp_path / "x.jsonl"
    row = {"question": "Where?", "choices": ["Oslo", "Rome"], "reply": "A"}
    path.write_text(json.dumps({**row, "answer": 0}) + "\n" + json.dumps({**row, "question": "When?", "reply": ""}))
    with pytest.raises(DatasetError, match="expected gold answers"):
        graded(path, "choice")
    path.write_text(json.dumps({**row, "answer": "A"}))
    assert graded(path, "choice") == [C]


def test_choice_does_not_grade_answers_without_choices(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("question,option_a,option_b,answer,reply\nWhere?,Oslo,Rome,A,A) Oslo\n")
    with pytest.raises(GraderError, match="expected choices in every question"):
        graded(path, "choice")


def test_end_to_end_rows_of_the_forced_pass_are_found_in_any_case(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,variant,question,grade\n1,normal,Who?,refused\n2,normal,Where?,A\n1,Forced,Who?,A\n")
    first, second = with_rows_of_forced(read(path).passes)
    assert (first.forced, second.forced) == (forced_outcome(C), None)


def test_sole_list_of_objects_in_a_document_is_no_column(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(
        json.dumps({"responses": [{"question": "Who?", "grade": "A"}, {"question": "When?", "grade": "C"}]})
    )
    assert [one.grade for one in read(path).passes] == [C, R]


def test_word_for_an_answer_without_a_grade_keeps_it_from_being_right_or_a_refusal(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("question,reference,response,verdict\nWho?,Ann,Ann,no\nWhere?,Oslo,I pass,yes\n")
    words = {"no": "answered", "yes": "refused"}
    found = read(path, words=words).passes
    assert [one.grade for one in found] == [None, R]
    (tally,) = tallies(found)
    assert (tally.refused, tally.correct, tally.gradable) == (1, 0, 1)
    assert [one.grade for one in read(path, words=words, grader="exact").passes] == [C, R]


SQUAD = [
    ("Oslo", ["Oslo", "the Oslo"], C),
    ("the oslo.", ["Oslo"], C),
    ("Rome", ["Oslo"], I),
    (" unanswerable", ["Oslo"], R),
    (" unanswerable", [], R),
    ("Rome", [], I),
    ("", [], R),
    ("", ["Oslo"], R),
]


def test_end_to_end_squad_2_of_lm_eval_is_graded_by_its_exact_match(tmp_path):
    """The gold answers and the answer are in the metrics, which are computed over all samples."""
    samples = []
    for number, (reply, gold, _) in enumerate(SQUAD):
        answers = {"text": gold, "answer_start": [0] * len(gold)}
        metric = [{"id": "i", "prediction_text": reply, "no_answer_probability": 0.5}, {"id": "i", "answers": answers}]
        doc = {"id": "i", "title": "t", "context": "c", "question": f"Q{number}?", "answers": answers}
        replies = {"resps": [[reply], [[-1.5, False]]], "filtered_resps": [reply, [-1.5, False]]}
        names = ("exact", "f1", "HasAns_exact", "NoAns_exact", "best_exact")
        target = gold[0] if gold else "unanswerable"
        samples.append(
            {"doc_id": number, "doc": doc, "target": target, "filter": "none", "metrics": [*names], **replies}
            | dict.fromkeys(names, metric)
        )
    path = tmp_path / "samples_squadv2_2026-01-02T03-04-05.678.jsonl"
    path.write_text("\n".join(map(json.dumps, samples)))
    found = read(path).passes
    assert [one.grade for one in found] == [grade for *_, grade in SQUAD]
    assert [one.question.gold for one in found] == ["Oslo", "Oslo", "Oslo", "Oslo", None, None, None, "Oslo"]
    assert [one.needs_forcing for one in found] == [False, False, False, True, False, False, False, True]


def test_forced_answers_under_other_ids_say_how_to_match_by_text(tmp_path):
    def rows(name: str, ids: str) -> tuple[FirstPass, ...]:
        path = tmp_path / name
        path.write_text(f"id,question,target,grade\n{ids}1,Who?,Ann,C\n{ids}2,Where?,Oslo,A\n")
        return read(path).passes

    with pytest.raises(DatasetError, match="1 have the same text; match by text with columns="):
        with_forced(rows("a.csv", "a"), rows("b.csv", "b"), "b.csv")


REAL = Path(__file__).parents[3] / "shared" / "data" / "tools"


@pytest.mark.parametrize("name", sorted(path.name for path in REAL.glob("[!P]*")) or ["none"])
def test_real_files_of_other_tools_are_read_without_options(name):
    if name == "none":
        pytest.skip("needs the result files of other tools in ../shared")
    found = read(REAL / name).passes
    assert len(found) in (40, 60)
    assert all(one.grade in (C, I, R) for one in found)
