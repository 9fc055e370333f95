"""Model functions for tests that answer the prompts of the verbalised methods and P(True)."""

from __future__ import annotations

import threading
from collections import Counter

from refusal_index.plugins.confidence.model_scores import PROMPTS, SCALE
from tests.runs.models import ASKED, number_in, reply_to

PHRASES = list(SCALE)

_lock = threading.Lock()
_judged = Counter[int]()


def prompt_of(message: str) -> str | None:
    """Return the name of the prompt that a message was made from, if it is one of confidence's."""
    ends = {name: prompt.template.rpartition("}")[2] for name, prompt in PROMPTS.items()}
    starts = {name: prompt.template.partition("{")[0] for name, prompt in PROMPTS.items()}
    found = [name for name in ends if message.startswith(starts[name]) and message.endswith(ends[name])]
    return found[0] if found else None


def stating(messages: list[dict[str, str]]) -> str:
    """Answer, and state a confidence that depends on the number n in the question; the test shows the results."""
    message = messages[-1]["content"]
    number, prompt = number_in(message), prompt_of(message)
    with _lock:
        ASKED[prompt or "run"] += 1
    own = f"<answer>{2 * number if number < 4 else 'none'}</answer>"
    if prompt == "verbalised-number":
        return f"{own}\n<confidence>{'no idea' if number == 5 else f'{90 - 10 * number}%'}</confidence>"
    if prompt == "verbalised-words":
        return f"{own}\n<confidence>{'so-so' if number == 5 else PHRASES[number % 7].capitalize()}</confidence>"
    if prompt == "verbalised-number-after":
        return f"It says {answer_in(message)}. <confidence>{'' if number == 5 else 10 * number}</confidence>"
    if prompt == "verbalised-words-after":
        return "" if number == 5 else f"<confidence>{PHRASES[number % 7]}</confidence>"
    return reply_to(message)


def judging(messages: list[dict[str, str]]) -> str:
    """Judge question n ten times: A in n of them, B otherwise; question 5 gets an unusable reply."""
    message = messages[-1]["content"]
    number = number_in(message)
    if prompt_of(message) != "p-true":
        return reply_to(message)
    with _lock:
        ASKED["p-true"] += 1
        place, _judged[number] = _judged[number] % 10, _judged[number] + 1
    if number == 5:
        return "That is hard to say."
    return "A" if place < number else "B) false"


def answer_in(message: str) -> str:
    return message.rpartition("The answer given: ")[2].partition("\n")[0]
