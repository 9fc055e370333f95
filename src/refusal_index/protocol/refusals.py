"""Refusals by their wording: whether a reply declines to answer, in twelve languages.

A reply refuses if it is nothing but words such as "unknown", or if it opens or concludes with a sentence that declines
and gives no answer beside it. It does not refuse if it contains the gold answer, if it guesses ("I am not sure, perhaps
400"), or if a clause answers after all ("I don't know who told you that, but it was Paris").

A rule-based grader uses this unless it is given `tag`, a regular expression or a function. The phrases are data, in
`refusals.toml`. `docs/graders.md` reports precision and recall on replies of real models, which exist for Czech and
English.
"""

from __future__ import annotations

import re
import string
import tomllib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from importlib import resources

from refusal_index.data.outcome import Question
from refusal_index.data.text import SECONDS, PatternError, compiled

MAX_LENGTH = 2000
"""Characters of a reply that are searched."""
MAX_OPENING = 4
"""Sentences among which the refusal must be, where those before it only announce it."""
MAX_BARE_ANSWER = 3
"""Words that are an answer by themselves where they follow a refusal, as in "I am not sure. Paris?"."""

FIELDS = ("alone", "declines", "announces", "concludes", "hedges", "guesses", "but", "explains")
APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc`", "'"))
DECORATION = re.compile(r"[*#>\"“”„«»「」『』<\[\](){}_|\\\s]+|(?<!\w)'|'(?!\w)")
SENTENCE_END = re.compile(r"(?<=[^\W\d_]{2}[.!?]) |(?<=\d{4}[.!?]) |(?<=。)|(?<=[!?])(?=[\u3040-\u9fff])")
ADDED = re.compile(r" ?[,;-] ")
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
OUTER = string.punctuation + string.whitespace + "。、"

WORDING, TAG = "wording", "tag"
"""How refusals are recognised by a rule: by their tag and wording, or by their tag alone."""

Detector = Callable[[str, Question], bool]
"""Tells whether an answer that a rule takes for wrong declines to answer."""

Patterns = Mapping[str, re.Pattern[str]]


@cache
def languages() -> Mapping[str, Patterns]:
    """Return the patterns of each language: its phrases in each field of `refusals.toml` as one.

    Examples
    --------
    >>> len(languages()), bool(languages()["German"]["alone"].fullmatch("keine ahnung"))
    (12, True)
    """
    content = (resources.files("refusal_index.protocol") / "refusals.toml").read_text(encoding="utf-8")
    return {name: _compiled(phrases) for name, phrases in tomllib.loads(content).items()}


def _compiled(phrases: Mapping[str, Sequence[str]]) -> Patterns:
    gap, edge = (r"(?: [^ .!?]+){0,6}?", r"\b") if phrases.get("spaced", True) else (r"[^.!?。]{0,20}?", "")
    patterns = {}
    for name in FIELDS:
        lines = (re.sub(r"\n *", "", _folded(phrase)) for phrase in phrases[name])
        joined = "|".join(f"(?:{line})" for line in lines)
        patterns[name] = re.compile(
            f"{edge}(?:{joined}){edge}".replace(" …", gap).replace("…", gap).replace("~", r"\w*")
        )
    return patterns


def _folded(text: str) -> str:
    """Return `text` in lower case, without accents and invisible characters, with one kind of apostrophe."""
    folded = unicodedata.normalize("NFKD", text.replace("…", "\0")).casefold().replace("\0", "…").translate(APOSTROPHES)
    return "".join(sign for sign in folded if not (unicodedata.combining(sign) or unicodedata.category(sign) == "Cf"))


def refuses(reply: str, question: Question | None = None) -> bool:
    """Whether a reply declines to answer, by its wording.

    Parameters
    ----------
    reply
        The answer, as `Reading.answer` holds it.
    question
        A reply that contains its gold answer or an alias does not refuse, unless the question contains it too.

    Examples
    --------
    >>> refuses("I'm sorry, but the passage does not say when she was born."), refuses("Nevím.")
    (True, True)
    >>> refuses("I am not sure, perhaps 1912"), refuses("I don't know who told you that, but it was Paris")
    (False, False)
    >>> refuses("I cannot say more than Paris", Question("q", "Where?", "Paris"))
    False
    """
    text, declined = _declining(reply[:MAX_LENGTH])
    return declined is not None and not (question and _contains_gold(text, declined, question))


@lru_cache(maxsize=1024)  # a reply is graded each time its question is looked at, and many replies are equal
def _declining(reply: str) -> tuple[str, str | None]:
    """Return the plain text of a reply, and the phrase with which it declines in any language, if it does."""
    text = DECORATION.sub(" ", _folded(reply)).strip()
    sentences = [bare for sentence in SENTENCE_END.split(text) if (bare := sentence.strip(OUTER))]
    phrases = (_declining_phrase(sentences, patterns) for patterns in languages().values())
    return text, next((phrase for phrase in phrases if phrase is not None), None)


def _declining_phrase(sentences: Sequence[str], patterns: Patterns) -> str | None:
    """Return the phrase with which a reply declines in one language, None where it does not or answers all the same."""
    opening = True
    for place, sentence in enumerate(sentences):
        concluding = place + 1 == len(sentences) and patterns["concludes"].match(sentence)
        if opening or concluding:
            _, _, bare = sentence.rpartition(", ") if patterns["announces"].match(sentence) else ("", "", sentence)
            if declined := patterns["alone"].fullmatch(bare) or patterns["declines"].search(sentence):
                later = sentences[place + 1 :]
                return None if _answers(sentence, declined, later, patterns) else declined[0]
        opening = opening and place + 1 < MAX_OPENING and patterns["announces"].match(sentence) is not None
    return None


def _answers(sentence: str, declined: re.Match[str], later: Sequence[str], patterns: Patterns) -> bool:
    """Whether a reply answers in spite of its refusal: by a guess, or by a clause or a few words without a reason."""
    before, after = sentence[: declined.start()], sentence[declined.end() :]
    if any(map(patterns["hedges"].search, (before, after))) or any(map(patterns["guesses"].search, (after, *later))):
        return True
    contrast, added = patterns["but"].search(after), ADDED.match(after)
    clauses = [after[contrast.end() :]] if contrast else []
    few = [after[added.end() :] if added else "", " ".join(later)]
    clauses += [words for words in few if 0 < len(words.split()) <= MAX_BARE_ANSWER]
    fillers = ("explains", "declines", "announces", "alone")
    return not all(any(patterns[filler].search(clause) for filler in fillers) for clause in clauses)


def _contains_gold(text: str, declined: str, question: Question) -> bool:
    """Whether a text contains an accepted answer that neither the question nor the declining phrase contains."""
    said, not_answers = _words(text), _words(question.text) + _words(declined)
    accepted = () if question.gold is None else (question.gold, *question.aliases)
    return any(wanted in said and wanted not in not_answers for wanted in map(_words, accepted) if wanted.strip())


def _words(text: str) -> str:
    return f" {' '.join(WORD.findall(_folded(text)))} "


FUNCTIONS: dict[str, Callable[[str], bool]] = {}
"""Functions that recognise refusals in this process, by name: a folder that names one does not have it run."""


def detector_of(refusal: str) -> Detector | None:
    """Return what recognises refusals beside the tag; None for nothing.

    Parameters
    ----------
    refusal
        ``"wording"``, ``"tag"``, the name of one of `FUNCTIONS`, or a regular expression that is found in refusals.

    Raises
    ------
    PatternError
        If it is no regular expression, or a function that was not given in this process.

    Examples
    --------
    >>> detector_of("no comment")("No comment!", Question("q", "Who?", "Ann"))
    True
    >>> detector_of("tag") is None
    True
    """
    if refusal == TAG:
        return None
    if refusal == WORDING:
        return refuses
    if refusal in FUNCTIONS:
        return partial(_by_function, FUNCTIONS[refusal])
    if refusal.startswith("python:"):
        raise PatternError(
            f"refusals are recognised by the function {refusal}, which is run only if you name it: repeat the command "
            "that made the run, with the option --refusal"
        )
    compiled(refusal)
    return partial(_by_pattern, refusal)


def _by_function(function: Callable[[str], bool], reply: str, _question: Question) -> bool:
    return bool(function(reply))


def _by_pattern(pattern: str, reply: str, _question: Question) -> bool:
    """Search with a time limit; raises TimeoutError."""
    return compiled(pattern).search(reply, timeout=SECONDS) is not None
