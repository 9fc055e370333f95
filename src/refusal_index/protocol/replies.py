"""Reading a reply: its answer, whether it refuses, its log probabilities, and the length of its prompt.

Refusals are recognised by their wording in twelve languages. A reply refuses if it consists only of words such as
"unknown", or if it begins or ends with a sentence that declines and gives no answer besides. It does not refuse if it
contains the gold answer, if it guesses ("I am not sure, perhaps 400"), or if a clause answers after all ("I don't know
who told you that, but it was Paris").

A rule-based grader uses this unless it is given `tag`, a regular expression or a function. The phrases are listed in
`refusals.toml`. `docs/graders.md` reports precision and recall on replies of real models, in Czech and English.
"""

from __future__ import annotations

import json
import math
import re
import string
import sys
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache, partial
from importlib import resources
from itertools import pairwise
from typing import Any, NoReturn, TypeGuard

from refusal_index.data.outcome import Question
from refusal_index.data.text import SECONDS, PatternError, compiled, sound_text
from refusal_index.errors import RefusalIndexError, shortened
from refusal_index.protocol.prompts import FORCED, UNANSWERED, PromptSet

ANSWER_MARK = re.compile(r"<(/?)answer>", re.IGNORECASE)
DECORATION = string.punctuation + string.whitespace
REASONING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
UNOPENED_REASONING = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)

REPLY_REASONS = TRUNCATED, FILTERED, TOOL_CALL, EMPTY = "truncated", "content_filter", "tool_call", "empty"
"""Reasons why a reply cannot be graded."""


class StopReason(StrEnum):
    """Why a model stopped writing."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    TOOL_CALL = "tool_calls"


@dataclass(frozen=True)
class Reading:
    """The content of a reply.

    Attributes
    ----------
    answer
        The text inside the last complete answer tag or, without one, the whole reply without its reasoning and stray
        marks; empty if there is an `unscored_reason`.
    refused
        Whether the last complete answer tag contains UNANSWERED, ignoring case and surrounding punctuation.
    well_formed
        Whether there is exactly one answer tag, complete and not empty.
    unscored_reason
        One of `REPLY_REASONS`; None if the reply can be graded.
    """

    answer: str
    refused: bool
    well_formed: bool
    unscored_reason: str | None = None


@lru_cache(maxsize=16)  # a reply is read again for each request that may follow it, and for its outcome
def read_reply(text: str, stop_reason: StopReason = StopReason.STOP) -> Reading:
    """Read a model's reply: its answer, or its refusal.

    The last complete tag counts, because the prompt asks for the answer at the end; tags inside a reasoning block do
    not. A tag is an opening mark and a closing mark with no other between them. A reply that was cut off at the token
    limit is unscored even if it contains a tag, because its continuation is unknown.

    Parameters
    ----------
    text
        The reply, word for word.
    stop_reason
        Why the model stopped writing.

    Examples
    --------
    >>> read_reply("<think>Rome? No.</think> It is <answer>Paris</answer>").answer
    'Paris'
    >>> read_reply("<answer>UNANSWERED</answer>").refused
    True
    >>> read_reply("<answer>Par", StopReason.LENGTH).unscored_reason
    'truncated'
    """
    if stop_reason is StopReason.LENGTH:
        return _unscored(TRUNCATED)
    if stop_reason is StopReason.CONTENT_FILTER:
        return _unscored(FILTERED)
    if stop_reason is StopReason.TOOL_CALL:
        return _unscored(TOOL_CALL)
    visible = without_reasoning(text)
    marks, tagged = len(ANSWER_MARK.findall(visible)), _tagged(visible)
    answer = (visible[slice(*tagged[-1])] if tagged else ANSWER_MARK.sub("", visible)).strip()
    # White space, control and zero-width characters are not to be seen.
    if not any(character.isprintable() and not character.isspace() for character in answer):
        return _unscored(EMPTY)
    refused = bool(tagged) and answer.strip(DECORATION).upper() == UNANSWERED
    return Reading(answer, refused, well_formed=len(tagged) == 1 and marks == 2)


def answer_start(text: str, answer: str) -> int | None:
    """Return where a reply's answer begins in it: in the last complete tag, else at its first occurrence.

    Parameters
    ----------
    text, answer
        The reply, and its answer from `Reading.answer`. The result is None if that is empty or not found.

    Examples
    --------
    >>> answer_start("Lima? <answer>Lima</answer> Lima it is", "Lima")
    14
    """
    tagged = _tagged(text)
    start = text.find(answer, *(tagged[-1] if tagged else (0, len(text)))) if answer else -1
    return None if start < 0 else start


def _tagged(text: str) -> list[tuple[int, int]]:
    """Return the start and end of the content of each complete answer tag."""
    marks = ANSWER_MARK.finditer(text)
    return [(left.end(), right.start()) for left, right in pairwise(marks) if not left[1] and right[1]]


def without_reasoning(text: str) -> str:
    """Return `text` without its reasoning blocks.

    A block that is never closed extends to the end; one without an opening mark, which some chat templates print
    themselves, starts at the beginning.

    Examples
    --------
    >>> without_reasoning("The capital? Lima.</think> Lima")
    'Lima'
    """
    return UNOPENED_REASONING.sub("", REASONING.sub("", text)).strip()


def folded(text: str) -> str:
    """Return `text` in lower case, without accents and invisible characters such as soft hyphens.

    Examples
    --------
    >>> folded("Élysée")
    'elysee'
    """
    plain = unicodedata.normalize("NFKD", text).casefold()
    if plain.isascii():
        return plain
    silent = (sign for sign in set(plain) if unicodedata.combining(sign) or unicodedata.category(sign) == "Cf")
    return plain.translate(dict.fromkeys(map(ord, silent)))


def _unscored(reason: str) -> Reading:
    return Reading("", refused=False, well_formed=False, unscored_reason=reason)


DIGITS = 6
IMPOSSIBLE = -9999.0
"""What OpenAI and vLLM report for a token of probability zero, because JSON has no minus infinity."""


@dataclass(frozen=True)
class TokenLogprob:
    """A token of a reply, and its log probability.

    Attributes
    ----------
    token
        Its text; a token that is only part of a character has no text of its own.
    logprob
        Natural logarithm of its probability at this position.
    alternatives
        The most likely tokens at this position with theirs, most likely first; empty if not requested.
    """

    token: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()


def write_logprobs(tokens: Iterable[TokenLogprob]) -> str:
    """Return tokens as JSON: ``token``, ``logprob`` to six decimals and, if there are any, ``top_logprobs``.

    Raises
    ------
    ValueError
        If a log probability is not a number.

    Examples
    --------
    >>> write_logprobs([TokenLogprob("Lima", -1.6094379)])
    '[{"token":"Lima","logprob":-1.609438}]'
    """
    entries = []
    for token in tokens:
        alternatives = [_scored(*pair) for pair in token.alternatives]
        entries.append(_scored(token.token, token.logprob) | ({"top_logprobs": alternatives} if alternatives else {}))
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def read_logprobs(text: str | None) -> tuple[TokenLogprob, ...] | None:
    """Return the tokens of a reply; None if there is no record of them.

    Parameters
    ----------
    text
        The JSON of `write_logprobs`, or of a provider in OpenAI's format; further keys are ignored.

    Raises
    ------
    ValueError
        If it has another format.

    Examples
    --------
    >>> read_logprobs('[{"token": "Lima", "logprob": -0.25}]')
    (TokenLogprob(token='Lima', logprob=-0.25, alternatives=()),)
    >>> read_logprobs(None) is None
    True
    """
    if text is None:
        return None
    try:
        entries = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"logprobs: expected JSON, got {shortened(text)} ({error})") from error
    tokens = []
    for entry in _listed(entries, "logprobs"):
        alternatives = _listed(entry.get("top_logprobs") or [], "logprobs, top_logprobs")
        tokens.append(TokenLogprob(*_pair(entry), tuple(map(_pair, alternatives))))
    return tuple(tokens)


def _scored(token: str, logprob: float) -> dict[str, Any]:
    rounded = IMPOSSIBLE if logprob == -math.inf else round(logprob, DIGITS) + 0.0  # + 0.0 turns -0.0 into 0.0
    return {"token": sound_text(token), "logprob": rounded}


def _pair(entry: Mapping[str, Any]) -> tuple[str, float]:
    token, logprob = entry.get("token"), entry.get("logprob")
    if not isinstance(token, str) or not _is_number(logprob):
        raise ValueError(f"logprobs: expected 'token' as text and 'logprob' as a number, got {shortened(entry)}")
    return token, float(logprob)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _listed(entries: Any, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise ValueError(f"{name}: expected a list of tokens, got {shortened(entries)}")
    return entries


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


CHARACTERS_PER_TOKEN = 4  # approximately, of English text; other languages and digits take more tokens
SHOWN = 5


class PromptLengthError(RefusalIndexError, ValueError):
    """Prompts that exceed the model's context; the message names the questions."""


def whole_prompt(question: Question, prompts: PromptSet, variant: str) -> str:
    """Return the whole prompt of a question under a variant."""
    return "\n\n".join(prompts.render(variant, question.text, question.context, question.choices))


def about_tokens(text: str) -> int:
    """Estimate the number of tokens of a text from its length.

    Examples
    --------
    >>> about_tokens("Who wrote Emma?")
    4
    """
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def longest_prompt(question: Question, prompts: PromptSet, count: Callable[[str], int] = len) -> int:
    """Return the length of a question's longest prompt, over all variants and the forced pass.

    Parameters
    ----------
    question, prompts
        The question or questions, and the prompt set.
    count
        Measures a text; by default in characters.
    """
    return max(count(whole_prompt(question, prompts, variant)) for variant in (*prompts.variants, FORCED))


def longest_in_characters(prompts: PromptSet) -> Callable[[Question], int]:
    """Return a function that computes `longest_prompt` in characters, without building the prompts.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> prompts, question = load_prompt_set("default"), Question("q1", "Who wrote Emma?", "Jane Austen")
    >>> longest_in_characters(prompts)(question) == longest_prompt(question, prompts)
    True
    """
    before = max(map(len, prompts.preambles.values())) + len("\n\n")
    return lambda question: before + len(prompts.render_question(question.text, question.context, question.choices))


def check_lengths(
    questions: Iterable[Question], prompts: PromptSet, max_tokens: int, count: Callable[[str], int] = about_tokens
) -> None:
    """Raise if a question's prompt is longer than `max_tokens` tokens.

    Parameters
    ----------
    questions, prompts
        The question or questions, and the prompt set.
    max_tokens
        The model's context length less the length of its reply.
    count
        Counts the tokens of a text; by default an estimate.

    Raises
    ------
    PromptLengthError
        If a prompt is longer.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> check_lengths([Question("q1", "Who wrote Emma?", "Jane Austen")], load_prompt_set("default"), max_tokens=1000)
    """
    lengths = {question.question_id: longest_prompt(question, prompts, count) for question in questions}
    long = [question_id for question_id, tokens in lengths.items() if tokens > max_tokens]
    if long:
        more = f" and {len(long) - SHOWN:,} more" if len(long) > SHOWN else ""
        raise PromptLengthError(
            f"questions: expected prompts of at most {max_tokens:,} tokens, got longer ones of "
            f"{', '.join(long[:SHOWN])}{more}, the longest with {max(lengths.values()):,}; "
            "shorten their contexts, or leave them out"
        )


MAX_LENGTH = 2000
"""Number of characters of a reply that are searched."""
MAX_OPENING = 4
"""Number of opening sentences that may contain the refusal, if those before it only announce it."""
MAX_BARE_ANSWER = 3
"""Maximum number of words that count as an answer after a refusal, as in "I am not sure. Paris?"."""

FIELDS = ("alone", "declines", "announces", "concludes", "hedges", "guesses", "but", "explains")
APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc`", "'"))
MARKS = re.compile(r"[*#>\"“”„«»「」『』<\[\](){}_|\\\s]+|(?<!\w)'|'(?!\w)")
SENTENCE_END = re.compile(r"(?<=[^\W\d_]{2}[.!?]) |(?<=\d{4}[.!?]) |(?<=。)|(?<=[!?])(?=[\u3040-\u9fff])")
ADDED = re.compile(r" ?[,;-] ")
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
OUTER = DECORATION + "。、"

WORDING, TAG = "wording", "tag"
"""How rules recognise refusals: by tag and wording, or by the tag alone."""

Detector = Callable[[str, Question], bool]
"""Returns whether an answer that a rule grades as incorrect declines to answer."""

Patterns = Mapping[str, re.Pattern[str]]


@cache
def languages() -> Mapping[str, Patterns]:
    """Return the patterns of each language: one for each field of `refusals.toml`, made of all its phrases.

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
    """Return `text` folded, but with its ellipses, which NFKD decomposes, and with one kind of apostrophe."""
    return folded(text.replace("…", "\0")).replace("\0", "…").translate(APOSTROPHES)


def refuses(reply: str, question: Question | None = None) -> bool:
    """Whether a reply declines to answer, by its wording.

    Parameters
    ----------
    reply
        The answer, from `Reading.answer`.
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


@lru_cache(maxsize=1024)  # a reply is graded repeatedly, and many replies are equal
def _declining(reply: str) -> tuple[str, str | None]:
    """Return the plain text of a reply, and the phrase by which it declines in any language, None if it does not."""
    text = MARKS.sub(" ", _folded(reply)).strip()
    sentences = [bare for sentence in SENTENCE_END.split(text) if (bare := sentence.strip(OUTER))]
    phrases = (_declining_phrase(sentences, patterns) for patterns in languages().values())
    return text, next((phrase for phrase in phrases if phrase is not None), None)


def _declining_phrase(sentences: Sequence[str], patterns: Patterns) -> str | None:
    """Return the phrase by which a reply declines in one language; None if it does not, or if it answers anyway."""
    opening = True
    for index, sentence in enumerate(sentences):
        if opening or (index + 1 == len(sentences) and patterns["concludes"].match(sentence)):
            announced = patterns["announces"].match(sentence)
            bare = sentence.rpartition(", ")[2] if announced else sentence
            if declined := patterns["alone"].fullmatch(bare) or patterns["declines"].search(sentence):
                later = sentences[index + 1 :]
                return None if _answers(sentence, declined, later, patterns) else declined[0]
            opening = index + 1 < MAX_OPENING and announced is not None
    return None


def _answers(sentence: str, declined: re.Match[str], later: Sequence[str], patterns: Patterns) -> bool:
    """Whether a reply answers despite its refusal: by a guess, or by a clause or a few words that give no reason."""
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
    words, not_answers = _words(text), _words(question.text) + _words(declined)
    accepted = () if question.gold is None else (question.gold, *question.aliases)
    return any(answer in words and answer not in not_answers for answer in map(_words, accepted) if answer.strip())


def _words(text: str) -> str:
    return f" {' '.join(WORD.findall(_folded(text)))} "


FUNCTIONS: dict[str, Callable[[str], bool]] = {}
"""Functions that recognise refusals, registered in this process by name: a name in a folder does not run one."""


def detector_of(refusal: str) -> Detector | None:
    """Return the function that recognises refusals without a tag; None if only the tag counts.

    Parameters
    ----------
    refusal
        ``"wording"``, ``"tag"``, the name of one of `FUNCTIONS`, or a regular expression to search for.

    Raises
    ------
    PatternError
        If it is not a regular expression, or a function that was not registered in this process.

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
            f"refusals are recognised by the function {refusal}, which only runs if you name it: repeat the command "
            "that made the run, with the option --refusal"
        )
    compiled(refusal)
    return partial(_by_pattern, refusal)


def _by_function(function: Callable[[str], bool], reply: str, _question: Question) -> bool:
    return bool(function(reply))


def _by_pattern(pattern: str, reply: str, _question: Question) -> bool:
    """Search with a time limit; raises TimeoutError."""
    return compiled(pattern).search(reply, timeout=SECONDS) is not None
