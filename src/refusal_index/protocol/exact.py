"""The offline grader: is the answer, written plainly, the gold answer?

For closed questions whose answers are names, words or numbers. It knows nothing of the world: "Holland" is wrong where
the gold answer is "the Netherlands" and no alias says otherwise.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal

from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.question import Question

NUMBER = re.compile(r"[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
ARTICLE = re.compile(r"\b(?:a|an|the)\b")
NOT_WORD = re.compile(r"[^\w\s]|_")
DECLINED = re.compile(
    r"\b(?:unanswered|unknown|not[_ ]attempted)\b"
    r"|\b(?:i|we) (?:do not|don t|can ?not|can t) (?:know|say|tell|answer|recall|remember|be sure|determine)\b"
    r"|\b(?:i am|i m) (?:not sure|unsure|unable|not certain)\b"
    r"|\bno (?:idea|answer)\b"
)


def exact_grade(question: Question, prediction: str) -> Grade:
    """Grade `prediction` by comparing normalised text.

    Correct is a prediction that equals the gold answer or an alias after normalisation: case, accents, punctuation,
    articles and white space are ignored, and numbers agree when they round to the gold answer's last significant
    figure. Otherwise a prediction that plainly declines is refused, and everything else is incorrect.

    Examples
    --------
    >>> louvre = Question("q", "How many rooms has the Louvre?", "403 rooms")
    >>> exact_grade(louvre, "403")
    <Grade.CORRECT: 'correct'>
    >>> exact_grade(louvre, "I don't know")
    <Grade.REFUSED: 'refused'>
    """
    if any(_same(accepted, prediction) for accepted in (question.gold, *question.aliases)):
        return Grade.CORRECT
    return Grade.REFUSED if DECLINED.search(normalise(prediction)) else Grade.INCORRECT


def normalise(text: str) -> str:
    """Return `text` without case, accents, punctuation, articles and needless white space.

    Examples
    --------
    >>> normalise("The  Élysée-Palace!")
    'elysee palace'
    """
    plain = unicodedata.normalize("NFKD", text.casefold())
    unaccented = "".join(character for character in plain if not unicodedata.combining(character))
    return " ".join(ARTICLE.sub(" ", NOT_WORD.sub(" ", unaccented)).split())


@dataclass(frozen=True)
class _Quantity:
    """A single number with the words around it."""

    value: Decimal
    words: str


def _same(gold: str, prediction: str) -> bool:
    gold_number, predicted_number = _quantity(gold), _quantity(prediction)
    if gold_number and predicted_number:
        return _same_quantity(gold_number, predicted_number)
    wanted = normalise(gold)
    if not wanted:  # an answer of signs only, such as "+" or "C#" less its letter
        return gold.strip() == prediction.strip()
    return wanted == normalise(prediction)


def _quantity(text: str) -> _Quantity | None:
    found = list(NUMBER.finditer(text))
    if len(found) != 1:
        return None
    number = found[0]
    before, after = text[: number.start()], text[number.end() :]
    if (before and before[-1].isalnum()) or (after and after[0].isalnum()):
        return None  # part of a word, such as B52 or 3rd
    value = Decimal(number[0].replace(",", "").replace("\u2212", "-"))
    return _Quantity(value, normalise(f"{before} {after}"))


def _same_quantity(gold: _Quantity, predicted: _Quantity) -> bool:
    """Agree when rounded to the gold number's last figure, with the same words around the number or none."""
    return predicted.words in {gold.words, ""} and abs(predicted.value - gold.value) <= _last_figure(gold.value) / 2


def _last_figure(value: Decimal) -> Decimal:
    """Return the unit of the last written figure: 0.01 for 3.14, 1 for 1854."""
    exponent = value.as_tuple().exponent
    return Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
