"""Questions and answers: sums, a model that refuses half of them, and a grader that compares two texts."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from tests.faults.plan import FORCED, GRADER, number_of, pass_of, plain_verdict

KEY = "sk-planted-0123456789abcdef"
"""The key of the server, which no file and no output may hold."""


def write_questions(path: Path, count: int) -> None:
    """Write so many questions."""
    lines = [f"q{number},What is {number} plus {number}?,{2 * number}" for number in range(count)]
    path.write_text("\n".join(["question_id,question,answer", *lines]))


def answer(message: str) -> str:
    """Refuse odd numbers unless forced; of the answers that are given, those to multiples of 3 or 4 are right."""
    if pass_of(message) == GRADER:
        return verdict(message)
    number, forced = number_of(message) or 0, pass_of(message) == FORCED
    if number % 2 and not forced:
        return "<answer>UNANSWERED</answer>"
    return f"<answer>{2 * number if number % (3 if forced else 4) == 0 else 'none'}</answer>"


def reply(messages: list[dict[str, str]]) -> str:
    """Answer a conversation, as a model function."""
    return answer(messages[-1]["content"])


def planted(count: int) -> pl.DataFrame:
    """Return the outcomes of a run over so many questions with the prompt ``normal``, graded by a rule."""
    rows = []
    for number in range(count):
        refused = number % 2 == 1
        right = number % (3 if refused else 4) == 0
        text, grade = f"<answer>{2 * number if right else 'none'}</answer>", "correct" if right else "incorrect"
        first = ("refused", grade, "<answer>UNANSWERED</answer>", text) if refused else (grade, None, text, None)
        rows.append(("normal", f"q{number}", 0, refused, not right, *first))
    names = ("variant", "question_id", "draw", "refused", "wrong")
    more = ("first_grade", "forced_grade", "first_reply", "forced_reply")
    return pl.DataFrame(rows, schema=(*names, *more), orient="row", infer_schema_length=None).with_columns(
        unscored_reason=pl.lit(None, pl.String)
    )


def verdict(message: str) -> str:
    """Compare the two texts between their marks; text after the end of the prediction is obeyed."""
    plain = plain_verdict(message)
    if plain is not None:
        return plain
    gold, predicted = quoted("gold_answer", message), quoted("prediction", message)
    if "Grade: A" in message.rsplit("</prediction>", 1)[-1]:
        return "A"
    return "A" if gold == predicted else "B"


def quoted(mark: str, message: str) -> str:
    """Return the text between two marks, up to the first closing mark, as a careless grader reads it."""
    found = re.search(rf"<{mark}>\n(.*?)\n</{mark}>", message, re.DOTALL)
    return found[1] if found else ""
