"""What the wording of an answer says: an answer, a refusal, or both.

An answer is divided into clauses. A clause *declines* ("I don't know"), is *unsure* ("I'm not certain"), *guesses*
("perhaps 1912"), *fills* (courtesies, advice, sources) or has *content*. Words of the question and generic words such
as "date" are not content. An answer that declines and has no content besides is a refusal. One that puts a candidate
forward is an answer, with or without a caveat. One that declines and also has content is compared: what comes first,
whether it is specific (a number, a name, or a few words), and whether the answer declines what the question asks or
something else. If neither clearly wins, it is unclear.

Only the answer and the question's text are read. The language is chosen first; the phrases of twelve languages are in
`phrases.toml`. `docs/graders.md` shows how well this works on replies of real models.
"""

# ruff: noqa: RUF001
# Punctuation of Chinese, Japanese and typography, as replies contain it.
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import pairwise

from refusal_index.protocol.phrases import WORD, Phrases, languages, languages_of, plain

MAX_LENGTH = 2000
"""Number of characters of an answer that are read."""
FEW_WORDS = 4
"""Most words of a clause that is a candidate by itself, whatever its words are."""
SHORT_STEM = 4
"""Number of letters by which a word that declines is compared with the question."""
BRIEF = 6
"""Most words of a last clause that is a candidate after a refusal."""

SENTENCE_END = re.compile(
    r"(?<=[^\W\d_]{2}[.!?])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bSt\.)(?<!\bProf\.)[\"”')*]*\s+|(?<=\d[.!?])[\"”')*]*\s+(?=[^\W\d])|(?<=[)\]\"”][.!?])\s+"
    r"|(?<=[.!?])[\"”')*]*\s+(?P<next>[^\W\d_]+(?:['’][^\W\d_]+)?)|(?<=[。！？])|(?<=；)|\s*\n\s*"
)
"""Ends of sentences; after an initial or an abbreviation only if a common word follows, as `_sentences` checks."""
CLAUSE_END = re.compile(r"(?:[,;:]|\s[-–—])\s+|\s*(?:\.{2,}|…)\s*|\s*[()（）—，、：]\s*")
QUOTED = re.compile(r"[\"“„«「『][^\"”“»」』]{4,}[\"”“»」』]")
WORDS = re.compile(r"[^\W\d_]+")
OUTER = " .!?,;:-–—。、！？"
SEPARATORS = " \t\r\n,;:-–—(（，；："
ANY_LANGUAGE = re.compile(
    r"(?:^|\b(?:is|je) |[: ])(?:unknown|unanswered|unanswerable|idk|n/a|not available)(?: answer)?$"
)
"""Placeholders that models write in any language."""


class Says(StrEnum):
    """What an answer says by its wording."""

    ANSWER = "answer"
    REFUSAL = "refusal"
    UNCLEAR = "unclear"


class ClauseKind(StrEnum):
    """What a clause does."""

    DECLINES = "declines"
    UNSURE = "unsure"
    GUESSES = "guesses"
    FILLS = "fills"
    CONTENT = "content"


CANDIDATE = frozenset({ClauseKind.CONTENT, ClauseKind.GUESSES})


@dataclass(frozen=True)
class Wording:
    """What the wording of an answer says, and its candidate: the answer without a caveat that can be separated."""

    says: Says
    candidate: str


@dataclass(frozen=True)
class Clause:
    """A clause of an answer.

    Attributes
    ----------
    kind
        What it does.
    raw, text
        As written, and plain.
    start, end
        Its position in the answer.
    sentence
        The number of its sentence, from 0.
    contrasts, concludes
        Whether it begins with a word such as "but", or "therefore".
    words
        The stems of its content words.
    """

    kind: ClauseKind
    raw: str
    text: str
    start: int
    end: int
    sentence: int
    contrasts: bool
    concludes: bool
    words: frozenset[str]


@lru_cache(maxsize=4096)  # many answers are equal, and a reply is read again for each request that may follow it
def read_wording(answer: str, question: str = "") -> Wording:
    """Read an answer by its wording.

    Parameters
    ----------
    answer
        The text of the answer.
    question
        The text of the question; empty if unknown.

    Examples
    --------
    >>> read_wording("I'm sorry, but the passage does not say when she was born.").says
    <Says.REFUSAL: 'refusal'>
    >>> read_wording("Ole Ruud, but I'm not certain.")
    Wording(says=<Says.ANSWER: 'answer'>, candidate='Ole Ruud')
    >>> read_wording("I don't know who told you that, but it was Paris").says
    <Says.ANSWER: 'answer'>
    """
    bare = plain(answer[:MAX_LENGTH]).strip(OUTER)
    if any(phrases.alone.fullmatch(bare) for phrases in languages().values()):
        return Wording(Says.REFUSAL, "")
    readings = (_read(answer[:MAX_LENGTH], question, phrases) for phrases in languages_of(answer, question))
    first = next(readings)
    if first.says is Says.ANSWER:
        first = next((reading for reading in readings if reading.says is not Says.ANSWER), first)
    if len(answer) > MAX_LENGTH and first.says is not Says.REFUSAL:
        return replace(first, candidate=answer)  # the candidate was sought in the beginning alone
    return first


def _read(answer: str, question: str, phrases: Phrases) -> Wording:
    clauses = list(_clauses(answer, phrases))
    asked = plain(question)
    evidence = AnswerClauses(clauses, phrases.stems(asked), phrases, asked)
    says = _compared(evidence)
    return Wording(says, "" if says is Says.REFUSAL else _candidate(answer, evidence))


@dataclass(frozen=True)
class AnswerClauses:
    """The clauses of an answer, and what they say about the question.

    Attributes
    ----------
    clauses
        All clauses, in order.
    asked
        The stems of the question's words.
    phrases
        The phrases of the answer's language.
    question
        The question, plain.
    """

    clauses: Sequence[Clause]
    asked: frozenset[str]
    phrases: Phrases
    question: str

    @cached_property
    def is_yes_or_no(self) -> bool:
        """Whether the question can be answered by yes or no."""
        return self.question.endswith("?") and self.phrases.asks.search(self.question) is None

    @cached_property
    def declining(self) -> list[int]:
        """The clauses that decline."""
        return [
            index
            for index, clause in enumerate(self.clauses)
            if clause.kind is ClauseKind.DECLINES and not self._repeats_question(clause)
        ]

    def _repeats_question(self, clause: Clause) -> bool:
        """Whether a clause declines only by a word of the question, as "Breakfast is not included." answers it.

        Unless the question can be answered by yes or no, the word must be one such as "unknown".
        """
        declines = self.phrases.declines.search(clause.text)
        words = declines[0].split() if declines else []
        if not words or not (self.is_yes_or_no or words[-1].startswith("un")):
            return False
        return any(word[:SHORT_STEM] == words[-1][:SHORT_STEM] for word in WORD.findall(self.question))

    @cached_property
    def n_declining_sentences(self) -> int:
        """The number of sentences that decline."""
        return len({self.clauses[index].sentence for index in self.declining})

    @cached_property
    def content(self) -> list[int]:
        """The clauses that may be an answer: those that say something that the question does not, and guesses."""
        return [
            index
            for index, clause in enumerate(self.clauses)
            if clause.kind is ClauseKind.GUESSES
            or (clause.kind is ClauseKind.CONTENT and clause.words - self.asked)
            or (clause.kind is ClauseKind.FILLS and self._is_hedged(index))
        ]

    @cached_property
    def specific(self) -> frozenset[int]:
        """The clauses with content that name something: a number, a name, or a few words."""
        return frozenset(index for index in self.content if self._is_specific(self.clauses[index]))

    def _is_specific(self, clause: Clause) -> bool:
        new = clause.words - self.asked
        if not self.phrases.is_spaced and not _has_number(new):
            return len(new) > 1 and self.phrases.n_words(clause.text) <= BRIEF
        if QUOTED.search(clause.raw) or len(WORDS.findall(clause.raw)) <= FEW_WORDS:
            return bool(new)
        return self._names(clause)

    def _names(self, clause: Clause) -> bool:
        """Whether a clause has a number, or a word in upper case, that the question does not have."""
        return _has_number(clause.words - self.asked) or any(
            word[0].isupper() and self.phrases.stems(plain(word)) - self.asked
            for before, word in pairwise(WORDS.findall(clause.raw))
            if not (before[0].islower() and self.phrases.articles.fullmatch(before))
        )

    def _is_hedged(self, index: int) -> bool:
        """Whether a clause names something of which the next is unsure: "Currently Ann Lee, but I'm not certain"."""
        if index + 1 == len(self.clauses) or not self._names(self.clauses[index]):
            return False
        following = self.clauses[index + 1]
        is_unsure = following.kind is ClauseKind.UNSURE or self.phrases.alone.fullmatch(following.text)
        return bool(is_unsure) and following.contrasts and following.sentence == self.clauses[index].sentence

    @cached_property
    def declined(self) -> frozenset[str]:
        """The words of the question that clauses decline."""
        words = frozenset[str]().union(*(self.clauses[index].words for index in self.declining))
        return words & self.asked

    @cached_property
    def declines_something_else(self) -> bool:
        """Whether a clause declines only what else might be said, as in "no further details"."""
        return any(self.phrases.limited(self.clauses[index].text) for index in self.declining)

    def declines_what_is_left(self, content: Sequence[int]) -> bool:
        """Whether clauses decline words of the question that the content does not take up."""
        return bool(self.declined.difference(*(self.clauses[index].words for index in content)))

    @cached_property
    def concludes_by_declining(self) -> bool:
        """Whether the last sentence concludes that there is no answer."""
        sentence = self.clauses[-1].sentence
        first = next(index for index, clause in enumerate(self.clauses) if clause.sentence == sentence)
        return self.clauses[first].concludes and any(index >= first for index in self.declining)

    @cached_property
    def begins_with_negative(self) -> bool:
        """Whether the answer begins with "none", "nobody", "no" or "yes" by itself."""
        first = self.clauses[0]
        if first.kind is ClauseKind.DECLINES or not self.phrases.negatives.fullmatch(first.text):
            return False
        if self.is_yes_or_no:
            return True
        return not (len(self.clauses) > 1 and re.match(r"(sorry )?i\b", self.clauses[1].text))


def _has_number(words: frozenset[str]) -> bool:
    return any(character.isdigit() for word in words for character in word)


def _compared(evidence: AnswerClauses) -> Says:
    """Return what an answer says, by comparing the clauses that decline with those that have content."""
    if not evidence.clauses:
        return Says.ANSWER
    if evidence.begins_with_negative:
        return Says.ANSWER
    if not evidence.declining:
        return _unsure(evidence)
    first = evidence.declining[0]
    sentence = evidence.clauses[first].sentence
    before = [index for index in evidence.content if index < first]
    if any(evidence.clauses[index].sentence != sentence for index in before):
        return _with_sentence_before(evidence, before)
    if before and not _is_subject(evidence, before[0], first):
        says = _with_clause_before(evidence, before, first)
        if says is not None:
            return says
    return _opening(evidence, first)


def _unsure(evidence: AnswerClauses) -> Says:
    """Return what an answer says that does not decline: if it opens by being unsure, it must name something."""
    unsure = [index for index, clause in enumerate(evidence.clauses) if clause.kind is ClauseKind.UNSURE]
    if not unsure:
        return Says.ANSWER
    opens = not any(index < unsure[0] for index in evidence.content)
    is_answer = bool(evidence.specific) if opens else bool(evidence.content)
    return Says.ANSWER if is_answer else Says.REFUSAL


def _with_sentence_before(evidence: AnswerClauses, before: Sequence[int]) -> Says:
    """Return what an answer says whose first sentences have content before it declines."""
    if evidence.concludes_by_declining:
        return Says.REFUSAL
    is_confirmed = evidence.n_declining_sentences > 1
    declines_rest = evidence.declines_what_is_left(before) and not evidence.declines_something_else
    if not evidence.specific.isdisjoint(before):
        return Says.UNCLEAR if is_confirmed or declines_rest else Says.ANSWER
    if any(evidence.clauses[index].kind is ClauseKind.GUESSES for index in evidence.content):
        return Says.UNCLEAR
    return Says.REFUSAL if is_confirmed or declines_rest else Says.UNCLEAR


def _is_subject(evidence: AnswerClauses, index: int, first: int) -> bool:
    """Whether a clause is the subject of the one that declines: a relative clause stands between them."""
    between = evidence.clauses[index + 1 : first]
    return any(clause.kind is ClauseKind.FILLS and evidence.phrases.asks.match(clause.text) for clause in between)


def _with_clause_before(evidence: AnswerClauses, before: Sequence[int], first: int) -> Says | None:
    """Return what an answer says that has content in the clause before it declines; None if that is the subject."""
    is_specific = not evidence.specific.isdisjoint(before)
    declining = evidence.clauses[first]
    if declining.contrasts or evidence.phrases.adds.match(declining.text):
        if not is_specific:
            return Says.REFUSAL
        return Says.UNCLEAR if evidence.declined else Says.ANSWER
    if not is_specific or evidence.declined:
        return None
    is_short = before[0] == 0 and evidence.phrases.n_words(evidence.clauses[0].text) <= FEW_WORDS
    return Says.ANSWER if is_short and evidence.n_declining_sentences == 1 else Says.UNCLEAR


def _opening(evidence: AnswerClauses, first: int) -> Says:
    """Return what an answer says that opens by declining."""
    after = [index for index in evidence.content if index > first]
    if not after:
        return Says.REFUSAL
    clauses = evidence.clauses
    is_confirmed = evidence.n_declining_sentences > 1
    last = len(clauses) - 1
    if not is_confirmed and last in evidence.specific and evidence.phrases.n_words(clauses[last].text) <= BRIEF:
        is_clear = not evidence.declined or evidence.declines_something_else
        return Says.ANSWER if is_clear else Says.UNCLEAR
    following = clauses[after[0]]
    is_near = following.sentence == clauses[first].sentence or after[0] == first + 1
    if is_near and (following.contrasts or following.kind is ClauseKind.GUESSES):
        is_specific = after[0] in evidence.specific
        is_guess = following.kind is ClauseKind.GUESSES and following.sentence == clauses[first].sentence
        if not is_confirmed and (is_specific or is_guess):
            return Says.ANSWER
        if is_specific or (following.contrasts and not is_confirmed and evidence.declines_something_else):
            return Says.UNCLEAR
    if is_confirmed or evidence.specific.isdisjoint(after):
        return Says.REFUSAL
    guesses = {index for index in after if clauses[index].kind is ClauseKind.GUESSES}
    is_unclear = evidence.declines_something_else or not guesses.isdisjoint(evidence.specific)
    return Says.UNCLEAR if is_unclear else Says.REFUSAL


def _candidate(answer: str, evidence: AnswerClauses) -> str:
    """Return the answer without its caveats if its content is in one piece; otherwise return all of it."""
    clauses = evidence.clauses
    caveats = {ClauseKind.DECLINES, ClauseKind.UNSURE}
    content = [index for index, clause in enumerate(clauses) if clause.kind in CANDIDATE]
    has_caveat = any(clause.kind in caveats for clause in clauses)
    if not content or not has_caveat or content != list(range(content[0], content[-1] + 1)):
        return answer
    start = _after_lead_in(answer, clauses[content[0]], evidence.phrases)
    candidate = answer[start : clauses[content[-1]].end].strip(SEPARATORS)
    return candidate or answer


def _after_lead_in(answer: str, clause: Clause, phrases: Phrases) -> int:
    """Return where the candidate begins in a clause: after "but", and after "I think" where it guesses."""
    lead_ins = [phrases.but] * clause.contrasts + [phrases.guesses] * (clause.kind is ClauseKind.GUESSES)
    start = clause.start
    for lead_in in lead_ins:
        rest = _lower(answer[start : clause.end])
        bare = rest.lstrip(SEPARATORS)
        match = lead_in.match(bare)
        if match is not None:
            start += len(rest) - len(bare) + match.end()
    return start


def _clauses(answer: str, phrases: Phrases) -> Iterator[Clause]:
    """Yield the clauses of an answer."""
    contrasts = False
    concludes = False
    reporting = -1  # the sentence that only says what else is known
    for sentence, start, end in _sentences(answer, phrases):
        for _, left, right in _parts(answer[start:end], CLAUSE_END):
            for begin, stop in _at_contrast(answer[start + left : start + right], phrases):
                clause = _clause(answer, start + left + begin, start + left + stop, sentence, phrases)
                if clause is None:
                    continue
                if phrases.reports.match(clause.text) and clause.kind in CANDIDATE | {ClauseKind.FILLS}:
                    reporting = sentence
                if reporting == sentence and clause.kind in CANDIDATE:
                    clause = replace(clause, kind=ClauseKind.FILLS)
                yield replace(clause, contrasts=clause.contrasts or contrasts, concludes=clause.concludes or concludes)
                contrasts = phrases.but.fullmatch(clause.text) is not None
                concludes = phrases.concludes.fullmatch(clause.text) is not None


def _sentences(text: str, phrases: Phrases) -> Iterator[tuple[int, int, int]]:
    """Yield the number, start and end of each sentence."""
    ends = []
    for match in SENTENCE_END.finditer(text):
        following = match["next"]
        if following is None:
            ends.append((match.start(), match.end()))
        elif following[0].isupper() and _begins_a_sentence(following, phrases):
            ends.append((match.start(), match.start("next")))
    return _between(text, ends)


def _begins_a_sentence(word: str, phrases: Phrases) -> bool:
    """Whether a word is a common one or a pronoun with a verb, as in "I'm", and so no part of a name."""
    text = plain(word)
    return text in phrases.common or text.partition("'")[0] in phrases.common


def _parts(text: str, end: re.Pattern[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the number, start and end of each part of a text that is not blank."""
    return _between(text, [(match.start(), match.end()) for match in end.finditer(text)])


def _between(text: str, ends: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield the number, start and end of what is between the ends of a text's parts, unless it is blank."""
    position = 0
    number = 0
    for start, stop in [*ends, (len(text), len(text))]:
        if text[position:start].strip():
            yield number, position, start
            number += 1
        position = stop


def _at_contrast(text: str, phrases: Phrases) -> list[tuple[int, int]]:
    """Divide a clause before a word such as "but"."""
    match = phrases.but.search(_lower(text), 1) if phrases.is_spaced else None
    if match is None or not text[: match.start()].strip():
        return [(0, len(text))]
    return [(0, match.start()), (match.start(), len(text))]


def _lower(text: str) -> str:
    """Return a text in lower case if that does not change its length."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text


def _clause(answer: str, start: int, end: int, sentence: int, phrases: Phrases) -> Clause | None:
    raw = answer[start:end]
    text = plain(raw).strip(OUTER)
    if not text:
        return None
    contrast = phrases.but.match(text)
    body = text[contrast.end() :].strip(OUTER) if contrast else text
    conclusion = phrases.concludes.match(body)
    return Clause(
        kind=_kind(body[conclusion.end() :].strip(OUTER) if conclusion else body, phrases),
        raw=raw,
        text=body or text,
        start=start,
        end=end,
        sentence=sentence,
        contrasts=contrast is not None and bool(body),
        concludes=conclusion is not None,
        words=phrases.stems(body),
    )


def _kind(text: str, phrases: Phrases) -> ClauseKind:
    """Return what a clause does, from its text without conjunctions."""
    if not text:
        return ClauseKind.FILLS
    if phrases.alone.fullmatch(text) or ANY_LANGUAGE.search(text):
        return ClauseKind.DECLINES
    declines = phrases.declines.search(text)
    guesses = phrases.guesses.search(text)
    if guesses and not (declines and declines.start() < guesses.start()):
        return ClauseKind.GUESSES
    if declines:
        return ClauseKind.DECLINES
    if phrases.unsure.search(text):
        return ClauseKind.UNSURE
    return ClauseKind.FILLS if phrases.fills.match(text) else ClauseKind.CONTENT
