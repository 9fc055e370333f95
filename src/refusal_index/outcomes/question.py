"""What is asked."""

from __future__ import annotations

import string
from dataclasses import dataclass

LETTERS = string.ascii_uppercase
"""What choices are called, in their order; so there are 26 of them at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answer, and whatever is shown along with it."""

    question_id: str  # stable over versions of the file that it comes from
    text: str  # the question as it is asked
    # The correct answer, without surrounding white space: one of the choices where there are such. None where no right
    # answer exists, as when the context does not tell: then every answer is wrong.
    gold: str | None
    aliases: tuple[str, ...] = ()  # other forms of the answer that the exact grader accepts
    # subject of the question, where known; in a mix of datasets, the name of the one it comes from
    topic: str | None = None
    context: str | None = None  # text that the answer is to be taken from; None for a question asked on its own
    # the answers to choose from, which are called A, B, C and so on; empty for an open question
    choices: tuple[str, ...] = ()
    # regular expression that right answers match from end to end, for the grader that goes by it
    pattern: str | None = None
