"""How the verdict of a grading model is read from its reply."""

from __future__ import annotations

import re
from functools import lru_cache

from refusal_index.data.outcome import Grade, Question
from refusal_index.data.reasoning import without_reasoning
from refusal_index.protocol.final_answer import find_final_answer

VERDICTS = {"A": Grade.CORRECT, "B": Grade.INCORRECT, "C": Grade.REFUSED}
WORDS = {"CORRECT": "A", "INCORRECT": "B", "NOT ATTEMPTED": "C"}
LABEL = (
    r"(?:(?:so|therefore|thus|hence),?\s++)?(?:(?:the|my)\s++)?(?:final\s++)?"
    r"(?:grade|verdict|rating|judge?ment|evaluation|assessment|classification|decision|answer)(?:\s++is)?[\s*_]*+[:=\-]?"
)
OPEN = r"[\s*_\"'`(\[<{]*+"
CLOSE = r"[\s*_\"'`)\]>}.,;!]*+"
WORD = r"INCORRECT|CORRECT|NOT[_ -]ATTEMPTED"
LINE = re.compile(  # nothing but a verdict: "A", "**(A)**", "Grade: A", "A: CORRECT", "Correct (A)"
    rf"(?P<label>{OPEN}(?:{LABEL}))?{OPEN}(?P<first>[ABC]|{WORD})"
    rf"(?:{CLOSE}[:=\-\u2013\u2014]?{OPEN}(?P<second>[ABC]|{WORD}))?{CLOSE}",
    re.IGNORECASE,
)
OPENING = re.compile(  # a letter, and why
    rf"{OPEN}(?P<letter>[ABC])[*_\"'`)\]]*+(?:\s*(?:[:,;\n\u2013\u2014]|-\s)|\s+\(|\s+(?:as|because|for|since)(?!\w)"
    r"|\s+is (?:my|the) (?:final )?(?:grade|verdict)(?!\w)"
    r"|\.\s+(?:the|this|it|both|there|although|while|because|since|prediction|predicted|gold|explanation|reason)(?i:(?!\w)))",
    re.IGNORECASE,
)
CONCLUSION = re.compile(
    r"(?:(?<!\w)(?:so|therefore|thus|hence),?\s|(?<!\w)(?P<colon>\w++):\s)\s*[*_\"'(\[]*+(?P<letter>[ABC])[*_\"')\].!]*+\Z"
)
QUOTING = re.compile(r"answer|answers|answered|gold|prediction|predicted|says|said|option|choice", re.IGNORECASE)
IN_SENTENCE = re.compile(
    rf"(?<!\w)(?i:grade|verdict)(?:\s+is)?[\s*_]*:?{OPEN}(?P<verdict>[ABC]|{WORD})(?=[*_\"')\]]*+\s*(?:[.,;!\n]|\Z|because|since|as|for))"
)
LONE_LETTER = re.compile(r"\b[ABC]\b(?!(?<=A) +(?!(?:as|because|for|is|since)\b)[a-z])")


def read_verdict(question: Question, text: str) -> Grade | None:
    """Return the grade in a grader's reply; None if there is none that is possible for the question.

    Examples
    --------
    >>> read_verdict(Question("q", "Who was it?", None), "A") is None
    True
    """
    grade = parse_grade(text)
    return None if question.gold is None and grade is Grade.CORRECT else grade


@lru_cache(maxsize=16)  # most verdicts are one letter
def parse_grade(text: str) -> Grade | None:
    """Return the grade in a grader's reply; None if it contains none, or more than one.

    A verdict is a letter or a word in an answer tag, on a line of its own or after a label such as "Grade:", or a
    letter with which the reply begins or, after "so", ends. A sentence that only contains such a letter or word is not
    read. Reasoning blocks are ignored.

    Examples
    --------
    >>> parse_grade("B")
    <Grade.INCORRECT: 'incorrect'>
    >>> parse_grade("The grade is: **A**")
    <Grade.CORRECT: 'correct'>
    >>> parse_grade("A or B") is None, parse_grade("Correct. The prediction names vitamin C.") is None
    (True, True)
    """
    visible = without_reasoning(text)
    final = find_final_answer(visible)
    read = final.text if final.n_tags or r"\boxed" in visible else visible
    named = _on_lines(read) or _in_sentences(read)
    return VERDICTS.get(next(iter(named))) if len(named) == 1 else None


def _on_lines(text: str) -> set[str]:
    """Return the letters of the lines that are a verdict, or of those with a label; "?" for a contradiction."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    labelled: set[str] = set()
    alone: set[str] = set()
    for line in lines:
        if (found := LINE.fullmatch(line.strip())) and (len(lines) == 1 or not found["first"].islower()):
            letters = {_letter(verdict) for verdict in (found["first"], found["second"]) if verdict}
            (labelled if found["label"] else alone).add(letters.pop() if len(letters) == 1 else "?")
    return labelled or alone


def _in_sentences(text: str) -> set[str]:
    """Return the letters that sentences give as their verdict."""
    if labelled := {_letter(found["verdict"]) for found in IN_SENTENCE.finditer(text)}:
        return labelled
    letters = set(LONE_LETTER.findall(text))
    opening = OPENING.match(text)
    conclusion = CONCLUSION.search(text)
    is_concluded = conclusion and not QUOTING.fullmatch(conclusion["colon"] or "")
    return letters if is_concluded or (opening and opening["letter"].isupper()) else set()


def _letter(verdict: str) -> str:
    plain = verdict.upper().replace("_", " ").replace("-", " ")
    return WORDS.get(plain, plain)
