r"""Where the final answer is in a reply: in its answer tag, its \boxed{} or after its label, or else all visible text.

The answer's text is part of the reply, word for word, without what encloses it: LaTeX, quotation marks, Markdown.
Full-width letters and LaTeX inside the answer are left to the comparison, so that Chinese and Japanese texts stay as
they are and the tokens of the answer can be found in the reply.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
import string
from dataclasses import dataclass
from itertools import pairwise

from refusal_index.data.reasoning import without_reasoning
from refusal_index.protocol.prompts import UNANSWERED

ANSWER_MARK = re.compile(r"<(/?)answer>", re.IGNORECASE)
DECORATION = string.punctuation + string.whitespace

MAX_ENCLOSED = 20_000
"""Number of characters up to which a text is searched for LaTeX, quotation marks and Markdown that enclose it."""
MAX_LAYERS = 10
BOX = re.compile(r"(?P<box>\\{1,2}(?:boxed|fbox)\s*+\{)|\\.|(?P<brace>[{}])", re.DOTALL)
COMMAND = re.compile(
    r"\\(?:boxed|fbox|mbox|emph|underline|operatorname|text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt))\s*+\{"
)
BRACE = re.compile(r"\\.|([{}])", re.DOTALL)
PAIRS = (
    ("$$", "$$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("```", "```"),
    ("**", "**"),
    *zip("$*_`\"'“„„”‘‚‚«»‹›「『《＂", "$*_`\"'”“””’‘’»«›‹」』》＂", strict=True),
)
"""What may enclose an answer: an opening and a closing mark."""

LABEL_WORDS = "|".join(
    (
        r"(?:(?:so|thus|therefore|hence),?\s++)?(?:(?:the|my)\s++)?(?:(?:final|correct|right|short|best|exact)\s++)*+"
        r"answer(?:\s++to\s++(?:the|this|your)\s++question)?(?:\s++is)?",
        r"(?:(?:die|meine)\s++)?(?:(?:endgültige|finale|richtige|korrekte|kurze)\s++)?antwort(?:\s++(?:lautet|ist))?",
        r"(?:(?:la|ma)\s++)?(?:bonne\s++)?réponse(?:\s++(?:finale|correcte|courte))?(?:\s++est)?",
        r"(?:(?:la|mi)\s++)?respuesta(?:\s++(?:final|correcta|breve|corta))?(?:\s++es)?",
        r"(?:la\s++)?(?:mia\s++)?risposta(?:\s++(?:finale|corretta|breve))?(?:\s++è)?",
        r"(?:a\s++)?(?:minha\s++)?resposta(?:\s++(?:final|correta|curta))?(?:\s++é)?",
        r"(?:(?:het|mijn)\s++)?(?:(?:definitieve|uiteindelijke|juiste|korte)\s++)?antwoord(?:\s++is)?",
        r"(?:(?:ostateczna|prawidłowa|poprawna|moja)\s++)?odpowiedź(?:\s++(?:końcowa|brzmi|to))?",
        r"(?:(?:konečná|finální|správná|moje)\s++)?odpověď(?:\s++(?:zní|je))?",
        r"(?:(?:окончательный|итоговый|правильный|краткий|мой)\s++)?ответ",
        r"(?:所以|因此)?(?:最终|最終|最后|最後|正确|正確|我)?的?答案(?:是|为|為)?",
        r"(?:最終的な|最終|正しい)?(?:答え|回答|解答)(?:は)?",
        r"(?:최종\s*+)?(?:정답|답변|답)은?",
    )
)
LABEL = re.compile(
    rf"[#>*_\s]*+(?:{LABEL_WORDS})(?P<colon>[\s*_]*+[:：](?:[*_]++(?=\s|\Z))?)?+(?P<rest>.*)", re.IGNORECASE | re.DOTALL
)

ALONE = re.compile(rf"{UNANSWERED}(?:\W*|\s*[(:.,;\n].*|\s+[-–—]\s.*)", re.IGNORECASE | re.DOTALL)
IN_CAPITALS = re.compile(rf"(?<![^\W_]){UNANSWERED}(?![^\W_])")


@dataclass(frozen=True)
class FinalAnswer:
    r"""The final answer in a reply.

    Attributes
    ----------
    text
        The answer without what encloses it; empty if there is nothing to be seen.
    marked
        Whether a complete answer tag, a ``\boxed{}`` or a label on the last line ("Answer: Lima") marks it. If not,
        it is all visible text.
    n_tags
        The number of complete answer tags outside the reasoning.
    well_formed
        Whether there is exactly one answer tag, complete and not empty.
    """

    text: str
    marked: bool
    n_tags: int
    well_formed: bool


def find_final_answer(text: str, reasoning: str | None = None) -> FinalAnswer:
    r"""Find the final answer in a reply.

    The last complete tag counts, and within it, or in a reply without one, the last ``\boxed{}``, or else a label on
    the last line. What encloses the whole answer is removed.

    Parameters
    ----------
    text
        The reply, word for word.
    reasoning
        A regular expression for reasoning, which is removed in addition to the known reasoning marks.

    Raises
    ------
    PatternError
        If `reasoning` is not a valid regular expression.
    TimeoutError
        If it takes longer than a second.

    Examples
    --------
    >>> find_final_answer(r"<think>Rome?</think> <answer>\boxed{\text{Lima}}</answer>")
    FinalAnswer(text='Lima', marked=True, n_tags=1, well_formed=True)
    >>> find_final_answer("It lies on the coast.\n**Answer:** Lima").text
    'Lima'
    """
    visible = without_reasoning(text, reasoning)
    n_marks = len(ANSWER_MARK.findall(visible))
    complete = tagged(visible)
    content = visible[slice(*complete[-1])] if complete else ANSWER_MARK.sub("", visible)
    marked = _boxed(content) or _labelled(unwrapped(content.strip()))
    answer = unwrapped((marked or content).strip())
    # an answer of white space, control and zero-width characters is empty
    if not any(character.isprintable() and not character.isspace() for character in answer):
        answer = ""
    return FinalAnswer(
        answer,
        marked=bool(complete or marked),
        n_tags=len(complete),
        well_formed=len(complete) == 1 and n_marks == 2 and bool(answer),
    )


def is_unanswered(text: str) -> bool:
    r"""Whether the content of an answer tag declines by the word UNANSWERED.

    It does if it contains the word in capitals, whatever else it says, because no prompt asks for the word with an
    answer: "UNANSWERED (not sure)" and "Lima or UNANSWERED" decline. In lower case, or in a text that is all in
    capitals, the word must be alone or at the start with punctuation behind it: "unanswered." and "Unanswered: not
    sure" decline, "The letter remained unanswered" and "Unanswered Prayers" do not.

    Examples
    --------
    >>> is_unanswered("UNANSWERED (not sure)"), is_unanswered(r"\text{UNANSWERED}"), is_unanswered("unanswered")
    (True, True, True)
    >>> is_unanswered("The letter remained unanswered"), is_unanswered("THE UNANSWERED QUESTION")
    (False, False)
    """
    if ALONE.fullmatch(unwrapped(text.strip()).lstrip(DECORATION)):
        return True
    rest = IN_CAPITALS.sub("", text)
    all_in_capitals = any(map(str.isupper, rest)) and not any(map(str.islower, rest))
    return rest != text and not all_in_capitals


def ends_unanswered(text: str) -> bool:
    r"""Whether the last line of a reply without an answer tag is the word UNANSWERED alone, after other lines.

    Examples
    --------
    >>> ends_unanswered("No document names her.\n\nUNANSWERED."), ends_unanswered("It stayed UNANSWERED")
    (True, False)
    """
    *others, last = text.strip().splitlines() or [""]
    return bool(others) and IN_CAPITALS.search(last) is not None and ALONE.fullmatch(last.strip()) is not None


def answer_start(text: str, answer: str) -> int | None:
    """Return where a reply's answer begins in it: its last occurrence in the last complete tag, or in all.

    Parameters
    ----------
    text, answer
        The reply, and its answer from `Reading.answer`. The result is None if that is empty or not found.

    Examples
    --------
    >>> answer_start("Lima? <answer>Lima</answer> Lima it is", "Lima")
    14
    """
    complete = tagged(text)
    start = text.rfind(answer, *(complete[-1] if complete else (0, len(text)))) if answer else -1
    return None if start < 0 else start


def tagged(text: str) -> list[tuple[int, int]]:
    """Return the start and end of the content of each complete answer tag."""
    marks = ANSWER_MARK.finditer(text)
    return [(left.end(), right.start()) for left, right in pairwise(marks) if not left[1] and right[1]]


def unwrapped(text: str) -> str:
    r"""Return `text` without what encloses all of it: LaTeX, one kind of quotation marks, Markdown.

    Examples
    --------
    >>> unwrapped(r"$\boxed{\frac{1}{2}}$."), unwrapped("„Lima“"), unwrapped("$5"), unwrapped('"A" or "B"')
    ('\\frac{1}{2}', 'Lima', '$5', '"A" or "B"')
    """
    for _ in range(MAX_LAYERS):
        inner = _inner(text) if len(text) <= MAX_ENCLOSED else None
        if inner is None:
            break
        text = inner
    return text


def _inner(text: str) -> str | None:
    """Return what one pair of marks encloses; None if none encloses all of a text but its last punctuation."""
    bare = text.rstrip(".,;:!。．").rstrip()
    if (command := COMMAND.match(bare)) and _closes_at_end(bare, command.end()):
        return bare[command.end() : -1].strip() or None
    for opening, closing in PAIRS:
        if bare.startswith(opening) and bare.endswith(closing):
            inner = bare[len(opening) : -len(closing)].strip()
            if inner and opening not in inner and closing not in inner:
                return inner
    return None


def _closes_at_end(text: str, start: int) -> bool:
    """Whether the brace before `start` is closed by the last character."""
    depth = 1
    for brace in BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[1], 0)
        if depth == 0:
            return brace.end() == len(text)
    return False


def _boxed(text: str) -> str | None:
    r"""Return the content of the last complete ``\boxed{}`` that is not inside another one; None without one."""
    open_braces: list[int | None] = []  # where a box begins; None for another brace
    content = None
    tail = text[-MAX_ENCLOSED:]
    for mark in BOX.finditer(tail):
        if mark["box"]:
            open_braces.append(mark.end())
        elif mark["brace"] == "{":
            open_braces.append(None)
        elif mark["brace"] and open_braces:
            start = open_braces.pop()
            if start is not None:
                content = tail[start : mark.start()].strip() or content
    return content


def _labelled(text: str) -> str | None:
    """Return what a label such as "Answer:" marks on the last line, or above it; None without a label."""
    before, _, last = text.rpartition("\n")
    line = unwrapped(last.strip())
    label = LABEL.match(line)
    if label:
        rest = label["rest"].strip()
        is_enclosed = unwrapped(rest) != rest
        if rest and (label["colon"] or is_enclosed):
            return rest.strip("* ") if rest.count("**") % 2 else rest
        return None
    above = LABEL.match(unwrapped(before.rstrip().rpartition("\n")[2].strip()))
    return line if above and not above["rest"].strip("*_ ") else None
