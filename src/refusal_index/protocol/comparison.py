"""Comparison of an answer with an accepted one: normalised text, and numbers with their units.

The comparison is meant for closed questions whose answers are names, words or numbers. It has no world knowledge:
"Holland" is wrong if the gold answer is "the Netherlands" and no alias matches. `same` compares whole answers;
`includes` also finds the accepted answer in a sentence.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from refusal_index.data.text import folded
from refusal_index.protocol.dates import ANY_MONTH, with_plain_dates
from refusal_index.protocol.negations import takes_back
from refusal_index.protocol.quantities import (
    Quantity,
    agree,
    numbers_in,
    unit_after,
    unit_before,
    units_in,
    with_plain_measures,
    without_units,
)

FOLDED = (
    str.maketrans(  # letters that Unicode does not decompose, signs with a name, and apostrophes, which are removed
        {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "\u0131": "i"}
        | {"\u2212": "-", "\u2044": "/", "&": " and "}
        | dict.fromkeys("'`\u2019\u02bc")
    )
)
FULL_WIDTH = str.maketrans(
    {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {0x3000: " ", 0xFFE0: "¢", 0xFFE1: "£", 0xFFE5: "¥"}
)
SIGNS = "<>≤≥≪≫±∓√∛∜∞∈⊂⊃⊆⊇∪∩∧∨∀∃∝≡∑∏∫∂∇÷↑↓♠♦♣"
"""Symbols that carry meaning: two texts with different ones are not the same."""
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
PLAIN = (  # other ways to write a symbol, and its plain form
    (re.compile(r"[≠≢]|!=|=/="), "<>"),  # NFKD divides these
    (re.compile(r"∉"), "<>∈"),
    (re.compile(r"\u2a7d|\u2266|<=(?![=>])|=<"), "≤"),
    (re.compile(r"\u2a7e|\u2267|(?<![=<])>="), "≥"),
    (re.compile(r"(?<![-=])<?[-=]+>|<[-=]+(?!\d)"), "→"),
    (re.compile(r"<sup>(?P<power>[^<>]*)</sup>"), r"^\g<power>"),
    (re.compile(r"</?(?:b|i|u|em|strong|sub|sup|br|p|span|code|answer)(?:\s[^<>]*)?/?>|<\|\w*\|>", re.IGNORECASE), ""),
    (re.compile(r"<\s*/?(?P<inside>[^\W\d_][^<>\d\n]*)>"), r" \g<inside> "),
    (re.compile(r"(?m)^>+(?=\s+[^\s\d])"), ""),  # a quotation in Markdown
    (re.compile(r"\+/?[-\u2212](?=\s?\d)"), "±"),
    (re.compile(r"(?i)\bsqrt\s?\((?P<inside>[^()]*)\)"), r"√\g<inside>"),
    (re.compile(r"(?<=[\d)])\*\*(?=-?\d)"), "^"),
    (re.compile(r"\^[{(](?P<power>[^{}()]*)[})]"), r"^\g<power>"),
    (re.compile(r"(?<=[^\W\d_])\^(?=\d)"), ""),  # m^2 is written m2, as m² is
    (re.compile(r"×"), " x "),
    (re.compile(r"(?<!\w)(?P<minus>[-\u2212])(?P<unit>[$€£¥])(?=\s?\d)"), r"\g<unit>\g<minus>"),
)
POWER = re.compile(r"(?<=\d)[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
LATEX = (  # LaTeX inside an answer, and its plain form
    (re.compile(r"\\sqrt\s*+\{([^{}]*+)\}"), r"√\1"),
    *(
        (re.compile(rf"\\(?:{names})(?![A-Za-z])\s?"), sign)
        for names, sign in {
            "leq?|leqslant": "≤",
            "geq?|geqslant": "≥",
            "neq?": "<>",
            "lt": "<",
            "gt": ">",
            "pm": "±",
            "mp": "∓",
            "times": " x ",
            "infty": "∞",
        }.items()
    ),
    (re.compile(r"\\[dt]?frac\s*+\{([^{}]*+)\}\s*+\{([^{}]*+)\}"), r"\1/\2"),
    (re.compile(r"(?:\^\s*+)?\{?\\circ\b\}?"), "°"),
    (re.compile(r"\\(?:boxed|fbox|mbox|emph|text[a-z]*+|math[a-z]*+|operatorname)(?=\s*+\{)"), ""),
    (re.compile(r"\\[,;:! ]|\\q?quad\b"), " "),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\([%$&#_{}])"), r"\1"),
)
LETTER = r"[^\W\d_]"
INITIALS = re.compile(rf"(?<!\w){LETTER}(?:\. ?{LETTER}(?=\.)|\.{LETTER}(?!\w))+")  # J.R.R., J. K., U.S
TOKEN = re.compile(  # a fraction or decimal number, or a word with the trailing sign of C#, C++, B♭ or O-, or a symbol
    r"(?<![\w./,])\d+[./]\d+(?![./,]?\w)|[^\W_]+(?:[#♯♭]|\++(?![^\W_])|-(?!\w))?"
    r"|(?<=[\w)] )\+(?= [\w(])|(?<=[\w)])\+(?=[\w(])"
    rf"|(?<!\d )(?<!\w)[-\u2012\u2013](?=\.?\d|[√∞])|\^[-+]?|[{SIGNS}]"
)
MARK = re.compile(r"[,;:()、]|(?<=\s)[-\u2013\u2014]+(?=\s)|(?<=[^\W\d_]{2})[.!]|[。]|\n|\?")
MARKED = re.compile(rf"(?:{TOKEN.pattern})|(?P<mark>{MARK.pattern})")
PUNCTUATION = frozenset(",.?")
MARKS = {"?": "?"} | dict.fromkeys(".!。\n", ".")
ARTICLES = frozenset({"a", "an", "the"})
SIGN = frozenset(f"{SIGNS}^+")
MAX_INITIALS = 4
"""Number of letters up to which an accepted answer in capitals, such as US, must be in capitals in the answer."""
YES_OR_NO = re.compile("yes|no|true|false|ja|nein|oui|non|si|sim|nao|ano|ne|tak|nie|да|нет")
CHINESE_OR_JAPANESE = r"\u3040-\u30ff\u3400-\u9fff"
CHARACTER = re.compile(f"([{CHINESE_OR_JAPANESE}])")
LETTER_OF_WORD = rf"[^\W\d_{CHINESE_OR_JAPANESE}]"
PART_BEFORE = re.compile(rf"(?:{LETTER_OF_WORD}-?|\d[.,:/]|[#§/])\Z")
PART_AFTER = re.compile(rf"{LETTER_OF_WORD}|[.,:/]?\d|-{LETTER_OF_WORD}|/")
LABEL_BEFORE = re.compile(rf"(?:(?<!\w)(?:{ANY_MONTH}|no|nr|v|version)\.?\s*|\d\s?[-\u2013]\s?|月)\Z")
LABEL_AFTER = re.compile(rf"\.\s*[^\W\d_]|\s*(?:of )?(?:{ANY_MONTH})(?!\w)|\s?[月日号號]|\s?[-\u2013]\s?\d")
PART_OF_WORD = re.compile(r"[^\W_][-\u2013]?\Z")
COMMA_OF_DATE = re.compile(r"(?<=[^\W_]) , (?=\d{4}(?!\S))")
NEAR = 20
"""Number of characters next to a number that are searched for units and dates."""
NEAR_WORDS = 60
"""Number of characters next to an answer that are searched for words that take it back."""
MAX_NUMBERS = 1000
"""Number of numbers in an answer that are compared with an accepted one."""


@lru_cache(maxsize=8)  # a reply is compared with every accepted answer
def normalise(text: str) -> str:
    """Return `text` without case, accents, punctuation, articles and extra white space.

    An article is kept where it may be a name: at the end ("vitamin A"), and "a" and "an" anywhere but at the start.

    Examples
    --------
    >>> normalise("The  Élysée-Palace!"), normalise("J. R. R. Tolkien")
    ('elysee palace', 'jrr tolkien')
    """
    return " ".join(_without_articles(_words(plain(text))))


def _without_articles(tokens: list[str]) -> Iterator[str]:
    """Yield words, and the punctuation between them, without articles that are no names."""
    words = [position for position, word in enumerate(tokens) if word not in PUNCTUATION]
    for position, word in enumerate(tokens):
        left_out = ARTICLES if [position] == words[:1] else {"the"}
        if word not in left_out or [position] == words[-1:]:
            yield word


def _words(text: str) -> list[str]:
    return TOKEN.findall(INITIALS.sub(_joined, folded(text).translate(FOLDED)))


def _joined(initials: re.Match[str]) -> str:
    return initials[0].replace(".", "").replace(" ", "")


@lru_cache(maxsize=8)
def plain(text: str) -> str:
    """Return `text` with LaTeX, full-width characters, symbols and measures in plain form."""
    text = text.translate(FULL_WIDTH)
    for pattern, replacement in LATEX if "\\" in text or "{," in text else ():
        text = pattern.sub(replacement, text)
    text = POWER.sub(lambda power: f"^{power[0].translate(SUPERSCRIPTS)}", text)
    for pattern, replacement in PLAIN:
        text = pattern.sub(replacement, text)
    return with_plain_measures(text)


@lru_cache(maxsize=8)
def _signs(text: str) -> list[str]:
    """Return the symbols of a plain text that carry meaning, in order."""
    return [word for word in _words(text) if word[0] in SIGN]


@dataclass(frozen=True)
class _Amount:
    """The only number of a text, and the rest of the text."""

    number: Quantity
    units: frozenset[str] | None
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The words around the number."""
        return self.before + self.after

    def may_have(self, units: frozenset[str] | None) -> bool:
        """Whether an answer with these units may be the same; "403 rooms" have no sign, but a bare 403 may have one."""
        is_bare = self.units is None and not self.words
        return units is None or is_bare or not units.isdisjoint(self.units or ())


def same(gold: str, prediction: str) -> bool:
    """Whether a prediction equals an accepted answer, compared as in `exact_grade`.

    Signs, codes and words for currencies, per cent and degrees must agree where both sides have one.

    Examples
    --------
    >>> same("the Élysée", "Elysee"), same("3.14", "3.1"), same("60%", "60"), same("5%", "$5")
    (True, False, True, False)
    """
    gold = plain(gold)
    prediction = plain(prediction)
    accepted = _amount(gold)
    predicted = _amount(prediction)
    if _signs(gold) != _signs(prediction):
        return False
    if accepted and predicted:
        return (
            predicted.words in {accepted.words, ()}
            and accepted.number.is_close(predicted.number)
            and accepted.may_have(predicted.units)
        )
    text = normalise(gold)
    if not text:  # an answer without letters and digits, such as "+"
        return gold.strip() == prediction.strip()
    return text == normalise(prediction) and agree(units_in(gold), units_in(prediction))


@lru_cache(maxsize=8)
def _amount(text: str) -> _Amount | None:
    numbers = list(islice(numbers_in(text), 2))
    if len(numbers) != 1:
        return None
    number = numbers[0]
    before = text[: number.start]
    after = text[number.end :]
    if PART_OF_WORD.search(before) or (after and after[0].isalnum() and unit_after(after[:NEAR]) is None):
        return None  # as in B52, COVID-19 and 3rd
    return _Amount(number, units_in(f"{before} {after}"), _content(before), _content(after))


def _content(text: str) -> tuple[str, ...]:
    """Return the words of a text, without articles and units."""
    return tuple(word for word in _words(without_units(text)) if word not in ARTICLES)


def includes(accepted: str, answer: str, question: str = "") -> bool:
    """Whether an answer contains an accepted one as whole words, compared as in `same`.

    Numbers are compared as numbers, with units that do not contradict each other, and dates in any order and in one
    of eleven languages. Where a bare occurrence says little, more is needed: a number below 100 without decimals must
    be the only one in the answer apart from larger ones, dates, ordinals and versions; a single letter must be all of
    the answer; yes, no, true and false must begin or end it; initials such as US must be in capitals.

    An occurrence does not count if nearby words take it back, in twelve languages: "not Lima", "Lima is wrong",
    "Lima? No, Cuzco.", "at least 5" for 5, "before 1911" for 1911. Nor does one that only repeats a phrase of the
    question: one whose neighbour, of four letters or more, is its neighbour in the question too. Other contradictions
    are not recognised ("Lima or Cuzco"), nor are inflected words, or the accepted answer in a longer name ("Richard
    Charles" includes "Charles").

    Parameters
    ----------
    accepted
        The gold answer or an alias.
    answer
        The answer to grade.
    question
        The text of the question; empty if unknown.

    Examples
    --------
    >>> includes("Lima", "The capital of Peru is Lima."), includes("Lima", "It is Cuzco, not Lima.")
    (True, False)
    >>> includes("1990", "on 2 August 1990"), includes("2", "on 2 August 1990"), includes("2", "He had 2 sons.")
    (True, False, True)
    """
    if same(accepted, answer):
        return True
    accepted, answer = plain(accepted), _outside_question(plain(accepted), plain(answer), plain(question))
    words = _searchable(accepted)
    if len(words) < 2 and not words.isdigit():
        return False
    amount = _amount(accepted)
    if amount and not amount.words:
        return _includes_number(amount, answer)
    if _includes_words(words, _marked(answer)):
        return not (accepted.isupper() and len(words) <= MAX_INITIALS) or _includes_initials(words, answer)
    return (
        amount is not None and not amount.before and not _is_short(amount.number) and _includes_number(amount, answer)
    )


LIKE_ASCII = {0x130: "i", 0x131: "i", 0x17F: "s", 0x212A: "k"}
"""Letters that match a letter of ASCII where case is ignored: I with and i without a dot, long s, the Kelvin sign."""


def _outside_question(accepted: str, answer: str, question: str) -> str:
    """Return an answer without the phrases of the question that contain an accepted answer and the word next to it."""
    if accepted.isascii() and accepted.lower() not in question.translate(LIKE_ASCII).lower():
        return answer  # fast, and usual: patterns are compiled anew for each answer
    sought = rf"(?<!\w){re.escape(accepted)}(?!\w)"
    after = re.findall(rf"(?i){sought}\W+({LETTER}{{4,}})", question)
    before = re.findall(rf"(?i)(?<!\w)({LETTER}{{4,}})\W+{sought}", question)
    for word in set(after):
        answer = re.sub(rf"(?i){sought}(?=\W+{word}(?!\w))", "…", answer)
    for word in set(before):
        answer = re.sub(rf"(?i)(?<!\w){word}\W+{sought}", f"{word} …", answer)
    return answer


@lru_cache(maxsize=8)
def _searchable(text: str) -> str:
    """Return normalised text with plain dates, and with spaces between Chinese and Japanese characters."""
    return with_plain_dates(" ".join(CHARACTER.sub(r" \1 ", normalise(text)).split()))


@lru_cache(maxsize=8)
def _marked(text: str) -> str:
    """Return searchable text with "," "." and "?" for the punctuation between words."""
    found = MARKED.finditer(INITIALS.sub(_joined, folded(text).translate(FOLDED)))
    tokens = [MARKS.get(one[0][0], ",") if one["mark"] else one[0] for one in found]
    spaced = " ".join(CHARACTER.sub(r" \1 ", " ".join(_without_articles(tokens))).split())
    return with_plain_dates(COMMA_OF_DATE.sub(" ", spaced))


def _includes_words(words: str, answer: str) -> bool:
    """Whether whole words occur in an answer and no nearby words take them back."""
    text = f" {answer} "
    if any(word not in text for word in words.split()):
        return False
    first = len(text) - len(text.lstrip(" ,.?"))
    last = len(text.rstrip(" ,.?"))
    sought = re.compile(r"(?<!\S)" + r"(?: [,.?])* ".join(map(re.escape, words.split())) + r"(?!\S)")
    for found in sought.finditer(text):
        start, end = found.span()
        is_at_edge = start <= first or end >= last
        is_negated = takes_back(
            text[max(0, start - NEAR_WORDS) : start], text[end : end + NEAR_WORDS], is_number=words[0].isdigit()
        )
        if not is_negated and (is_at_edge or not YES_OR_NO.fullmatch(words)):
            return True
    return False


def _includes_initials(words: str, answer: str) -> bool:
    return re.search(rf"(?<![^\W_]){re.escape(words)}(?![^\W_])", INITIALS.sub(_joined, answer).swapcase()) is not None


def _includes_number(amount: _Amount, answer: str) -> bool:
    """Whether a number occurs in an answer; a short one must be the only short number there."""
    is_short = _is_short(amount.number)
    found = False
    for number in islice(numbers_in(answer), MAX_NUMBERS):
        is_close = amount.number.is_close(number)
        if not is_close and not (is_short and _is_short(number)):
            continue
        before = answer[max(0, number.start - NEAR) : number.start]
        after = answer[number.end : number.end + NEAR]
        if _is_part(before, after) or (is_short and _is_labelled(before, after)):
            continue
        if not is_close:
            return False  # two short numbers
        units = unit_after(after) or unit_before(before)
        around = (
            answer[max(0, number.start - NEAR_WORDS) : number.start],
            answer[number.end : number.end + NEAR_WORDS],
        )
        is_negated = takes_back(
            f" {_marked(around[0])} ", f" {_marked(around[1])} ", is_number=True, is_long_number=not is_short
        )
        found = found or (amount.may_have(units) and not is_negated)
        if found and not is_short:
            break
    return found


def _is_short(number: Quantity) -> bool:
    """Whether a number is too short for its occurrence to mean much."""
    return number.value.copy_abs() < 100 and number.last_figure >= 1


def _is_part(before: str, after: str) -> bool:
    """Whether a number is part of a word, a fraction, a time or a version."""
    return bool(PART_BEFORE.search(before) or (PART_AFTER.match(after) and unit_after(after) is None))


def _is_labelled(before: str, after: str) -> bool:
    """Whether a number is part of a date or a range, an ordinal number, or the number of a thing."""
    return bool(LABEL_BEFORE.search(folded(before)) or LABEL_AFTER.match(folded(after)))
