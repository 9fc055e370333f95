"""The offline grader, which compares plain text with the gold answer.

For closed questions whose answers are names, words or numbers. It knows nothing of the world: "Holland" is wrong where
the gold answer is "the Netherlands" and no alias says otherwise, and so is a right answer in the middle of a sentence.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from itertools import islice

from refusal_index.outcomes.outcome import Grade, Question

FOLDED = str.maketrans(  # letters that Unicode does not take apart, the minus sign, and apostrophes, which go
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "\u0131": "i", "\u2212": "-"}
    | dict.fromkeys("'`\u2019\u02bc")
)
WORD = re.compile(r"[^\W_]+(?:[#♯♭]|\++|-(?!\w))?")  # with the sign that ends C#, C++, B♭ or O-
NUMBER = re.compile(
    r"(?P<figures>[-+\u2212]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<!\.)\.\d+))"
    r"(?:\s+(?P<scale>hundred|thousand|million|billion|trillion)\b)?",
    re.IGNORECASE,
)
POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
UNLIMITED = Context(traps=[])  # a reply may hold a number beyond any range
ARTICLES = frozenset({"a", "an", "the"})
DECLINE = re.compile(
    r"\b(?:un(?:answered|answerable|available|known|sure|certain|able)"
    r"|not (?:attempted|available|certain|enough|known|sure)"
    r"|(?:do not|dont|cannot|can not|cant|could not|couldnt) (?:know|say|tell|answer|recall|remember|determine|have|be)"
    r"|does not (?:contain|give|mention|provide|say|specify|state)"
    r"|no (?:idea|answer|clue)"
    r"|n a)\b"
)
FILLER = re.compile(
    r"\b(?:a|afraid|am|an|and|answer|any|apologi[sz]e|are|at|be|but|certain|certainty|confidently|context|correct"
    r"|determined?|enough|for|give|have|i|im|in|information|is|it|its|just|me|moment|of|or|passage|provide|question"
    r"|really|reliable|say|sorry|sufficient|sure|tell|text|that|the|there|this|to|unfortunately|was|we|with)\b"
)


def exact_grade(question: Question, prediction: str) -> Grade:
    """Grade `prediction` by comparing normalised text.

    Correct is a prediction that equals the gold answer or an alias after normalisation: case, accents, punctuation,
    articles and white space are ignored, and numbers agree to less than half of the gold answer's last written figure,
    with the same words around them or none. Otherwise a prediction that does nothing but decline is refused,
    and everything else is incorrect: whoever hedges and then names an answer has attempted it. Where there is no gold
    answer, nothing is correct.

    Parameters
    ----------
    question
        The question with its gold answer and aliases.
    prediction
        The answer to grade, as `Reading.answer` holds it.

    Examples
    --------
    >>> louvre = Question("q", "How many rooms has the Louvre?", "403 rooms")
    >>> exact_grade(louvre, "403")
    <Grade.CORRECT: 'correct'>
    >>> exact_grade(louvre, "Sorry, I don't know.")
    <Grade.REFUSED: 'refused'>
    >>> exact_grade(louvre, "I don't know, perhaps 400")
    <Grade.INCORRECT: 'incorrect'>
    """
    accepted = () if question.gold is None else (question.gold, *question.aliases)
    if any(same(answer, prediction) for answer in accepted):
        return Grade.CORRECT
    return Grade.REFUSED if declines(prediction) else Grade.INCORRECT


@lru_cache(maxsize=8)  # a reply is compared with every accepted answer
def normalise(text: str) -> str:
    """Return `text` without case, accents, punctuation, articles and needless white space.

    An article stays where it may be a name: at the end ("vitamin A"), and "a" and "an" anywhere but at the start.

    Examples
    --------
    >>> normalise("The  Élysée-Palace!")
    'elysee palace'
    """
    words = _words(text)
    return " ".join(
        word
        for place, word in enumerate(words, start=1)
        if place == len(words) or word not in ARTICLES or (place > 1 and word != "the")
    )


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKD", text).casefold().translate(FOLDED)
    return WORD.findall(folded.translate({ord(character): None for character in set(folded) if _is_silent(character)}))


def _is_silent(character: str) -> bool:
    """Whether it is an accent, or a sign that is not seen such as a soft hyphen."""
    return unicodedata.combining(character) > 0 or unicodedata.category(character) == "Cf"


def declines(prediction: str) -> bool:
    """Whether a prediction declines to answer and says nothing else.

    Examples
    --------
    >>> declines("Sorry, I cannot answer that."), declines("I don't know, perhaps 400")
    (True, False)
    """
    rest, declines = DECLINE.subn(" ", normalise(prediction))
    return declines > 0 and not FILLER.sub("", rest).strip()


@dataclass(frozen=True)
class _Quantity:
    """A single number with the words around it."""

    value: Decimal
    words: tuple[str, ...]


def same(gold: str, prediction: str) -> bool:
    """Whether a prediction equals an accepted answer, as `exact_grade` compares them.

    Examples
    --------
    >>> same("the Élysée", "Elysee"), same("3.14", "3.1")
    (True, False)
    """
    gold_number, predicted_number = _quantity(gold), _quantity(prediction)
    if gold_number and predicted_number:
        return _same_quantity(gold_number, predicted_number)
    wanted = normalise(gold)
    if not wanted:  # an answer of signs only, such as "+"
        return gold.strip() == prediction.strip()
    return wanted == normalise(prediction)


@lru_cache(maxsize=8)
def _quantity(text: str) -> _Quantity | None:
    found = list(islice(NUMBER.finditer(text), 2))
    if len(found) != 1:
        return None
    number = found[0]
    before, after = text[: number.start()], text[number.end() :]
    if (before and before[-1].isalnum()) or (after and after[0].isalnum()):
        return None  # part of a word, such as B52 or 3rd
    figures = Decimal(number["figures"].replace(",", "").replace("\u2212", "-"))
    value = figures.scaleb(POWERS[number["scale"].lower()], UNLIMITED) if number["scale"] else figures
    return _Quantity(value, tuple(word for word in _words(f"{before} {after}") if word not in ARTICLES))


def _same_quantity(gold: _Quantity, predicted: _Quantity) -> bool:
    """Agree to less than half of the gold number's last figure, with the same words around the number or none."""
    distance = abs(UNLIMITED.subtract(predicted.value, gold.value))
    return predicted.words in {gold.words, ()} and distance < _last_figure(gold.value) / 2


def _last_figure(value: Decimal) -> Decimal:
    """Return the unit of the last written figure: 0.01 for 3.14, 1 for 1854, a hundred thousand for 1.5 million."""
    exponent = value.as_tuple().exponent
    return Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
