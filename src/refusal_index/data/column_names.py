"""The usual names of columns in files of questions and of graded answers, by role."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "problem", "query", "prompt", "instruction", "user_input", "input", "prompts"),
    "answer": (
        *("gold", "target", "gold_answer", "gold_answers", "correct_answer", "reference_answer", "ground_truth"),
        *("expected_output", "expected_answer", "expected", "answer", "reference"),
    ),
    "aliases": ("aliases", "answer_aliases"),
    "choices": ("choices", "options"),
    "answerable": ("answerable", "is_answerable"),
    "unanswerable": ("unanswerable", "is_unanswerable", "is_impossible"),
    "question_id": ("question_id", "id", "qid", "uuid"),
    "topic": ("topic", "category", "subject"),
    "context": ("context", "passage", "contexts", "retrieved_contexts", "retrieval_context"),
    "pattern": ("pattern", "regex"),
    "model": ("model", "model_name"),
    "dataset": ("dataset",),
    "variant": ("variant", "condition"),
    "draw": ("draw",),
    "reply": (
        *("first_reply", "reply", "predicted_answer", "prediction", "response", "model_output", "model_answer"),
        *("model_response", "llm_response", "actual_output", "output", "completion", "responses", "answer"),
    ),
    "grade": ("first_grade", "grade", "grade_letter", "grade_str", "verdict"),
    "refused": (
        *("refused", "is_refused", "refusal", "is_refusal", "abstained", "is_abstained", "is_abstention"),
        *("declined", "is_declined", "not_attempted", "is_not_attempted"),
    ),
    "answered": ("answered", "is_answered", "attempted", "is_attempted"),
    "correct": ("correct", "is_correct", "success", "pass", "passed"),
    "incorrect": ("incorrect", "is_incorrect", "wrong", "is_wrong"),
    "forced_grade": ("forced_grade", "second_grade"),
    "forced_correct": ("forced_correct", "forced_is_correct", "correct_forced", "correct_when_forced"),
    "forced_incorrect": (
        *("forced_incorrect", "forced_is_incorrect", "incorrect_forced", "forced_wrong", "wrong_forced"),
    ),
    "forced_reply": ("forced_reply", "forced_answer"),
}
"""The usual names by role. A column has one role: ``answer`` is the reply if the gold answer has another column."""

OTHER_GRADES = (
    *("judge_label", "judge_pred", "judge_grade", "judge_verdict", "judge_result", "judge", "grader_label"),
    *("judgement", "judgment", "label", "result", "outcome", "evaluation", "correctness"),
)
"""Further usual names of a column of grades; such a column is read only if it holds nothing but words for grades."""

MARKS = ("string_present", "exact_match", "em", "accuracy", "acc", "answer_correctness", "answer_accuracy", "score")
"""Usual names of metrics; such a column is read as right or wrong only if it holds nothing but 1 and 0."""
