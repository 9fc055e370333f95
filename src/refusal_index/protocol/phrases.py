"""The phrases of `phrases.toml`, compiled for each language, and the choice of a text's language."""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from importlib import resources

from refusal_index.data.text import folded

APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc`\u2032\u00b4", "'"))
MARKS = re.compile(r"[*#>\"“”„«»「」『』<\[\]{}_|\\\s]+|(?<!\w)'|'(?!\w)")
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+(?:'[^\W_]+)?")
ELIDED = re.compile(r"\b([cdjlmnst]|qu|un|all|dall|dell|nell|sull)'(?=\w)")
"""French and Italian words that have lost their vowel, as in "l'auteur" and "dell'autore"."""
SCRIPTS = {
    "Japanese": re.compile(r"[\u3040-\u30ff]"),
    "Chinese": re.compile(r"[\u3400-\u9fff]"),
    "Russian": re.compile(r"[\u0400-\u04ff]"),
}
"""Languages that are recognised by their script, in the order in which they are tried."""

STEM = 5
"""Number of letters by which words are compared, so that endings do not matter."""


def _pattern_of(name: str) -> cached_property[re.Pattern[str]]:
    """Return an attribute of `Phrases`: the pattern of its phrases of one kind."""

    def compiled(phrases: Phrases) -> re.Pattern[str]:
        return _pattern(_listed(phrases.entry.get(name, [])), is_spaced=phrases.is_spaced)

    return cached_property(compiled)


class Phrases:
    """The phrases of one language; `phrases.toml` says what each means. Patterns are compiled on first use.

    Parameters
    ----------
    language
        Its name.
    entry
        Its table in the file.
    """

    alone = _pattern_of("alone")
    """Matches a whole answer that refuses."""
    declines = _pattern_of("declines")
    """Matches a phrase that declines."""
    unsure = _pattern_of("unsure")
    """Matches a phrase of doubt, which is only a caveat if there is an answer."""
    fills = _pattern_of("fills")
    """Matches the beginning of a clause that adds no answer."""
    reports = _pattern_of("reports")
    """Matches the beginning of a sentence that only says what else is known."""
    guesses = _pattern_of("guesses")
    """Matches a phrase that introduces an answer."""
    but = _pattern_of("but")
    """Matches a word that begins a contrast."""
    concludes = _pattern_of("concludes")
    """Matches a word that begins a conclusion."""
    adds = _pattern_of("adds")
    """Matches a word that adds a clause."""
    asks = _pattern_of("asks")
    """Matches a word that begins a relative clause or a question."""
    negatives = _pattern_of("negatives")
    """Matches a whole clause that answers by a negative word, or by yes."""
    articles = _pattern_of("articles")
    """Matches an article, after which a capital letter begins no name."""

    def __init__(self, language: str, entry: Mapping[str, object]) -> None:
        self.language = language
        self.is_spaced = bool(entry.get("spaced", True))
        self.entry = entry
        self.common = self._words("common")
        self.generic = frozenset(word[:STEM] for word in self._words("generic"))
        self.limits = self._words("limits")

    def _words(self, name: str) -> frozenset[str]:
        return frozenset(plain(" ".join(_listed(self.entry.get(name, [])))).split())

    def stems(self, text: str) -> frozenset[str]:
        """Return the beginnings of the words of a plain text, without common and generic words."""
        separated = ELIDED.sub(r"\1 ", text)
        words = (word for word in WORD.findall(separated) if word not in self.common)
        return frozenset(word if word.isdigit() else word[:STEM] for word in words) - self.generic

    def n_words(self, text: str) -> int:
        """Return the number of words of a plain text; two characters are a word where words are not spaced."""
        return len(text.split()) if self.is_spaced else len(WORD.findall(text)) // 2

    def limited(self, text: str) -> bool:
        """Whether a plain text says that only something else is missing, as in "no further details"."""
        return not self.limits.isdisjoint(WORD.findall(text))


def plain(text: str) -> str:
    """Return `text` in lower case, without accents and marks, with one kind of apostrophe.

    >>> plain("**Je ne SAIS pas** «où»")
    'je ne sais pas ou'
    """
    return MARKS.sub(" ", _folded(html.unescape(text))).strip()


@cache
def languages() -> Mapping[str, Phrases]:
    """Return the phrases of each language.

    >>> len(languages()), bool(languages()["German"].alone.fullmatch("keine ahnung"))
    (12, True)
    """
    content = (resources.files("refusal_index.protocol") / "phrases.toml").read_text(encoding="utf-8")
    return {language: Phrases(language, entry) for language, entry in tomllib.loads(content).items()}


@lru_cache(maxsize=4096)  # a dataset has few questions compared with the replies to them
def _counted(text: str) -> Mapping[str, int]:
    """Count the common words of each language in a plain text."""
    words = ELIDED.sub(r"\1 ", text).split()
    stripped = [word.strip(".,;:!?()") for word in words]
    return {
        language: sum(word in phrases.common for word in stripped)
        for language, phrases in languages().items()
        if language not in SCRIPTS
    }


def languages_of(text: str, question: str) -> list[Phrases]:
    """Return the likely languages of a reply, the likeliest first; usually one.

    They are chosen by script or by common words. A reply without common words, such as "Ole Ruud", is taken to be in
    the language of the question.

    >>> [phrases.language for phrases in languages_of("Das weiß ich nicht.", "Wer war es?")]
    ['German']
    """
    letters = sum(character.isalpha() for character in text)
    for language, script in SCRIPTS.items():
        if letters and len(script.findall(text)) > letters / 3:
            return [languages()[language]]
    counts = _counted(plain(text))
    asked = _counted(plain(question))
    likely = _most(counts)
    if len(likely) == len(counts):  # no common word of any language
        likely = _most(asked)
    return [languages()[language] for language in sorted(likely, key=lambda language: -asked[language])]


def _most(counts: Mapping[str, int]) -> list[str]:
    """Return the languages with the highest count."""
    highest = max(counts.values())
    return [language for language, count in counts.items() if count == highest]


def _listed(value: object) -> Sequence[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value] if isinstance(value, list) else []


def _pattern(phrases: Iterable[str], *, is_spaced: bool) -> re.Pattern[str]:
    """Compile phrases to one pattern of whole words, which never matches if there are none."""
    gap = r"(?: [^ .,;:!?]+){0,9}?" if is_spaced else "[^.!?,\u3002\uff0c]{0,20}?"
    begin = r"(?<!\w)" if is_spaced else ""
    end = r"\b" if is_spaced else ""
    joined = "|".join(f"(?:{_one_line(phrase)})" for phrase in phrases)
    written = f"{begin}(?:{joined}){end}" if joined else r"(?!)"
    return re.compile(written.replace(" …", gap).replace("…", gap).replace("~", r"\w*"))


def _one_line(phrase: str) -> str:
    """Return a phrase without line breaks: they count as a space, except before an alternative."""
    without = re.sub(r"\n *(?=[|)])", "", _folded(phrase))
    return re.sub(r"\n *", " ", without)


def _folded(text: str) -> str:
    """Return `text` folded, but with its ellipses, which NFKD decomposes, and with one kind of apostrophe."""
    return folded(text.replace("…", "\0")).replace("\0", "…").translate(APOSTROPHES)
