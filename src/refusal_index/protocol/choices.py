"""Which choice an answer names: by its letter, by its text, or by both.

What is uncertain names no choice: several choices, a letter that may be a word ("A cat", "I think") or an initial
("C. elegans"), and a choice in a clause with a negation.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from refusal_index.data.outcome import LETTERS
from refusal_index.protocol.comparison import YES_OR_NO, includes, normalise, plain, same
from refusal_index.protocol.final_answer import DECORATION, LABEL_WORDS, unwrapped
from refusal_index.protocol.negations import NEGATION
from refusal_index.protocol.quantities import units_in

MAX_LENGTH = 1000
"""Number of characters up to which an answer is searched for a choice in a sentence."""
MIN_LETTERS = 3
"""Number of letters from which the text of a choice is searched in a sentence."""
LEAD_WORDS = (
    rf"{LABEL_WORDS}|(?:it\s++is|it['’]s)(?=\s)|(?:the\s++)?(?:(?:correct|right|best)\s++)?(?:option|choice|letter)(?:\s++is)?"
    "|选项|選項|選択肢|(?<![不别別])(?:我)?(?:选择?|選擇?)(?=[A-Za-z(（\\s])"
)
LEAD = rf"(?i:{LEAD_WORDS})[\s*_]*+[:：]?[\s*_]*+"
WORD_GOES_ON = r"(?![^\W\u3040-\u9fff]|['’]\w)"
LETTER = rf"[(\[{{\"'*“‘_$]*+(?P<letter>[A-Z]|[a-z](?=[)\].:*]|\s*\Z)){WORD_GOES_ON}"
LABELLED = re.compile(
    rf"[(\[*_\s]*+(?:{LEAD}){{0,2}}{LETTER}(?P<end>\$?[)\].:,;}}*\"'”’_=\s]*+(?:[-\u2013\u2014]+(?=\s))?)(?P<rest>.*)",
    re.DOTALL,
)
LEADS = re.compile(rf"(?<![^\W_\u3040-\u9fff]){LEAD}(?={LETTER})")
LAST_LETTER = re.compile(
    r"(?:[,;:\u2013\u2014]|(?<![^\W_])(?i:perhaps|maybe|probably|likely|choose|pick|select|say|guess|think|be|is))"
    rf"\s+(?={LETTER}[)\]\"'*.!]*\Z)"
)
EXPLANATION = re.compile(
    r"\(|(?:because|since|as|weil|da|denn|car|parce|porque|perch[eé]|i (?:think|believe|guess)"
    r"|is (?:the )?(?:correct|right|best))(?![^\W_])|因为|因為",
    re.IGNORECASE,
)
REJECTION = re.compile(  # "B, not A", "B rather than A"
    r"(?:and |und |et |y |e )?(?:not|rather than|instead of|nicht|statt|anstatt|pas|no|non|ne)\s+[(\[]?[A-Z][)\]]?"
    r"(?:\s*(?:,|or|nor|oder|ou|o)\s*[(\[]?[A-Z][)\]]?)*[\s.!*]*\Z"
)
COPULA = re.compile(r"\A(?:です|だ|である|でしょう|だと思います|と思います|입니다|이다)(?=\W|\Z)")
CONTRAST = re.compile(
    r"[,;.\s](?:but|however|yet|aber|mais|pero|mas|ma),?\s+(?:(?:now|i think|actually|in fact|on reflection),?\s+)*\Z",
    re.IGNORECASE,
)
LISTED_LINE = re.compile(r"(?m)^[^\w\n]*(?P<letter>[A-Za-z])[*_\s]*[)\].:][*_]*[^\S\n]*\S.*$")
LISTED = re.compile(r"(?<!\w)(?P<letter>[A-Z])[)\].:](?=\s)")
ALTERNATIVE = re.compile(r"\W*(?:or|and|oder|und|ou|et|o|y|e|и|или|和|或)(?![^\W_])", re.IGNORECASE)
LONE_LETTER = re.compile(rf"(?<![\w'’])[A-Z]{WORD_GOES_ON}(?!(?<=[AI]) [a-z])")
CLAUSE_END = re.compile(
    r"[,.;:!?\n]+(?!\d)|(?<!\w)(?:but|although|though|aber|obwohl|mais|pero|mas)(?!\w)", re.IGNORECASE
)
DENIAL = re.compile(
    f"{NEGATION.pattern}|no|cannot|cant|dont|doesnt|didnt|couldnt|wouldnt|unlikely|wrong|incorrect|false|falsch|faux"
)


@dataclass(frozen=True)
class ChoiceReading:
    """The choice that an answer names.

    Attributes
    ----------
    choice
        The text of the choice; None if the answer names none, several, or is uncertain.
    is_contradiction
        Whether its letter and its text name different choices.
    """

    choice: str | None
    is_contradiction: bool = False


def read_choice(answer: str, choices: Sequence[str]) -> ChoiceReading:
    """Return the single choice that an answer names by letter, by text, compared as in `same`, or by both.

    In a sentence, the letter must follow words such as "the answer is" or be the last word, and the text must be that
    of the only choice that the sentence includes without negating it.

    Parameters
    ----------
    answer
        The answer, from `FinalAnswer.text`.
    choices
        The texts of the choices, in the order of their letters.

    Examples
    --------
    >>> gases = ("Oxygen", "Carbon dioxide", "Nitrogen")
    >>> [read_choice(text, gases).choice for text in ("(b)", "B, carbon dioxide (CO2)", "It is nitrogen, not oxygen.")]
    ['Carbon dioxide', 'Carbon dioxide', 'Nitrogen']
    >>> read_choice("A or B", gases), read_choice("A) Nitrogen", gases).is_contradiction
    (ChoiceReading(choice=None, is_contradiction=False), True)
    """
    text = unwrapped(plain(_from_json(answer)).strip())
    around = _around_list(text, choices)
    if around is None:
        return _read(text, choices) or ChoiceReading(None)
    before, after = around
    return (after and _read(after, choices)) or (before and _read(before, choices)) or ChoiceReading(None)


def _from_json(answer: str) -> str:
    """Return the answer in a JSON object such as {"answer": "B"}; other texts as they are."""
    start = answer.find("{")
    if start < 0 or len(answer) > MAX_LENGTH or answer[:start].strip("`\n ").lower() not in {"", "json"}:
        return answer
    try:
        document = json.loads(answer[start:].rstrip("`\n "))
    except (ValueError, RecursionError):
        return answer
    found = [document[key] for key in ("answer", "final_answer", "choice", "option", "letter") if key in document]
    return found[0] if len(found) == 1 and isinstance(found[0], str) else answer


def _around_list(text: str, choices: Sequence[str]) -> tuple[str, str] | None:
    """Return what stands before and after a list of the options, from A on; None if the text does not list them.

    A list has two options or more on lines of their own, or all of them on one line.
    """
    for pattern, least in ((LISTED_LINE, 2), (LISTED, len(choices))):
        items: list[re.Match[str]] = []
        for item in pattern.finditer(text):
            if LETTERS.find(item["letter"].upper()) == len(items) < len(choices):
                items.append(item)
        if len(items) >= max(least, 2):
            return text[: items[0].start()].strip(), text[items[-1].end() :].partition("\n")[2].strip()
    return None


def _read(text: str, choices: Sequence[str]) -> ChoiceReading | None:
    """Read a text that lists no options; None if it names no choice."""
    last = unwrapped(text.rpartition("\n")[2].strip())
    reading = _by_label(text, choices) or (_by_label(last, choices) if last != text else None)
    if reading is None and len(text) <= MAX_LENGTH:
        reading = _by_letter_in_sentence(last, choices) or _by_text_in_sentence(text, choices)
    return reading


def _by_label(text: str, choices: Sequence[str]) -> ChoiceReading | None:
    """Read a text that is a choice or begins with a letter; None if it is neither."""
    equal = _equal(text, choices)
    label = LABELLED.match(text)
    if label is None:
        return _decided(None, equal) if equal else None
    rest = (
        COPULA.sub("", label["rest"].strip(), count=1) if COPULA.match(label["rest"].strip()) else label["rest"].strip()
    )
    index = LETTERS.index(label["letter"].upper())
    lettered = choices[index] if index < len(choices) else None
    if not rest.strip(DECORATION + "。"):
        return _decided(lettered, equal)
    if label["end"].strip() or "\n" in label["end"]:
        named = _equal(rest, choices) or _at_start(rest, choices)
        other = LABELLED.match(rest)
        if named:
            return _decided(lettered, named)
        if other and not other["rest"].strip(DECORATION):  # a list of letters
            return ChoiceReading(None)
    if equal:  # such as "C. elegans"
        return _decided(None, equal)
    is_explained = "\n" in label["end"] or EXPLANATION.match(label["rest"]) or REJECTION.match(label["rest"])
    return ChoiceReading(lettered) if lettered and is_explained else None


def _decided(lettered: str | None, named: set[str]) -> ChoiceReading:
    """Return what a letter and a text name together, either of which may be missing."""
    if lettered is None or lettered in named:
        return ChoiceReading(next(iter(named)) if len(named) == 1 else None)
    return ChoiceReading(None, is_contradiction=True) if named else ChoiceReading(lettered)


def _equal(text: str, choices: Sequence[str]) -> set[str]:
    """Return the choices that are the same as a text, or those in the same words and with the same units."""
    equal = {choice for choice in choices if same(choice, text)}
    in_words = {choice for choice in equal if normalise(choice) == normalise(text)}
    return _with_units_of(text, in_words) or in_words or equal


def _with_units_of(text: str, choices: Iterable[str]) -> set[str]:
    """Return the choices with exactly the units of a text, or none as the text."""
    return {choice for choice in choices if units_in(plain(choice)) == units_in(text)}


def _at_start(text: str, choices: Sequence[str]) -> set[str]:
    """Return the longest choice that a text begins with, and others if it goes on with "or" and such."""
    words = normalise(text) + " "
    at_start = [choice for choice in choices if normalise(choice) and words.startswith(f"{normalise(choice)} ")]
    if not at_start:
        return set()
    longest = max(at_start, key=lambda choice: len(normalise(choice)))
    rest = words[len(normalise(longest)) :]
    return {longest, *(_mentioned(rest, choices) if ALTERNATIVE.match(rest) else ())}


def _by_letter_in_sentence(line: str, choices: Sequence[str]) -> ChoiceReading | None:
    """Read a line with one letter, after words such as "the answer is" or as its last word; None if it has none."""
    leads = list(LEADS.finditer(line))
    last = LAST_LETTER.search(line)
    if leads:
        start = leads[-1].start()
    elif last and _mentioned(line, choices) <= set(_lettered(line[last.end() :], choices)):
        start = last.end()
    else:
        return None
    clause = CLAUSE_END.split(line[:start])[-1]
    reading = _by_label(line[start:], choices)
    is_contrast = len(leads) == 1 and CONTRAST.search(line[:start])  # "My first thought was A, but the answer is B."
    others = line[start:] if is_contrast else line
    if reading is None or _denies(clause) or not set(_lettered(others, choices)) <= {reading.choice}:
        return None
    return reading


def _by_text_in_sentence(text: str, choices: Sequence[str]) -> ChoiceReading | None:
    """Read a text that includes one choice, in a clause without negation, and no letter of another; None otherwise."""
    mentioned = _mentioned(text, choices)
    if len(mentioned) != 1:
        return None
    choice = next(iter(mentioned))
    others = [lettered for lettered in _lettered(text, choices, besides=choice) if lettered != choice]
    clauses = [clause for clause in CLAUSE_END.split(text) if includes(choice, clause)] or [text]
    is_denied = any(_denies(clause, besides=choice) for clause in clauses)
    return None if others or is_denied else ChoiceReading(choice)


def _lettered(text: str, choices: Sequence[str], besides: str = "") -> list[str]:
    """Return the choices whose letters stand alone in a text, without the letters in the text of a choice."""
    letters = set(LONE_LETTER.findall(text)) - set(LONE_LETTER.findall(besides))
    return [choice for letter, choice in zip(LETTERS, choices, strict=False) if letter in letters]


def _denies(clause: str, besides: str = "") -> bool:
    """Whether a clause contains a negation, besides one in the text of a choice."""
    words = set(normalise(clause).split()) - set(normalise(besides).split())
    return any(map(DENIAL.fullmatch, words))


def _mentioned(text: str, choices: Sequence[str]) -> set[str]:
    """Return the choices that a text includes, without those that are only part of a longer one."""
    mentioned = [choice for choice in choices if _is_searched(choice) and includes(choice, text)]
    if len(mentioned) < 2:
        return set(mentioned)
    words = f" {normalise(text)} "
    kept = set()
    for sought, alike in groupby(sorted(mentioned, key=_by_length), key=normalise):
        if f" {sought} " in words:
            equal = set(alike)
            kept |= _with_units_of(text, equal) or equal
            words = words.replace(f" {sought} ", " | ")
    return kept or set(mentioned)


def _by_length(choice: str) -> tuple[int, str]:
    words = normalise(choice)
    return -len(words), words


def _is_searched(choice: str) -> bool:
    words = normalise(choice)
    return len(words) >= MIN_LETTERS or words.isdigit() or bool(YES_OR_NO.fullmatch(words)) or not words.isascii()
