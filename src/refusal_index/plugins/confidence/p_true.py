"""P(True): how probable the model holds it that its own answer is true, asked as a choice of two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from refusal_index.data.confidence import Score
from refusal_index.data.outcome import Question
from refusal_index.plugins.confidence.likelihood import answer_tokens
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need, score_each
from refusal_index.plugins.confidence.prompts import shipped
from refusal_index.protocol import TokenLogprob, read_reply
from refusal_index.protocol.graders import named_choices
from refusal_index.protocol.replies import DECORATION

NAME = "p-true"
TRUE, FALSE = "true", "false"
JUDGEMENT = Question(NAME, "", TRUE, choices=(TRUE, FALSE))
SPELLINGS = {"a": TRUE, TRUE: TRUE, "b": FALSE, FALSE: FALSE}
LEAST_SHARE = 0.5
"""Of the probability, or of the replies, that must lie on the two choices together."""


def p_true(evidence: Evidence) -> Iterable[Score]:
    """Yield P(True) of the forced answers that the model was asked to judge, by its replies.

    The probability of A ("true") over that of A and B ("false") together: by the log probabilities of the token that
    holds the letter or, where none come, by the share of A among the replies that are one of the two. Either way the
    two must hold at least half of what there is, of the probability in that place or of the replies; else the model is
    not choosing between them, and there is no score.

    A always stands for "true", as in the paper: a leaning towards a letter shifts the log odds of all answers alike, so
    it leaves their order, and calibration on other answers takes it away. Asking in both orders costs twice as much.

    References
    ----------
    Kadavath et al. (2022). Language models (mostly) know what they know. :arxiv:`2207.05221`

    Examples
    --------
    >>> said = [Answer(text, text, None) for text in ("A", "A) true", "B", "A")]
    >>> evidence = Evidence("model", {}, {"q1": Answer("Lima", "Lima", False)}, probes={"p-true": {"q1": said}})
    >>> [one.confidence for one in p_true(evidence)]
    [0.75]
    """
    replies = evidence.probes.get(NAME, {})
    asked = {one: answer for one, answer in evidence.answers.items() if replies.get(one)}
    return score_each(replace(evidence, answers=asked), NAME, lambda one, _: believed(replies[one]))


def believed(replies: Sequence[Answer]) -> float | None:
    """Return the mean of what replies tell, where at least half of them tell anything.

    Parameters
    ----------
    replies
        To the same question about the same answer, at least one.

    Examples
    --------
    >>> believed([Answer("A", "A", None), Answer("Hm.", "Hm.", None), Answer("Well", "Well", None)]) is None
    True
    """
    told = [one for one in map(_told, replies) if one is not None]
    return math.fsum(told) / len(told) if len(told) >= LEAST_SHARE * len(replies) else None


def _told(reply: Answer) -> float | None:
    """Return the probability of "true" by one reply, 0 or 1 where it has no log probabilities; None for no choice."""
    said = read_reply(reply.reply, reply.stop_reason).answer
    choice = chosen(said)
    if choice is None:
        return None
    tokens = answer_tokens(said, reply.logprobs or ())
    if any(one.alternatives for one in tokens):
        return choice_probability(tokens)
    return float(choice == TRUE)


def chosen(text: str) -> str | None:
    r"""Return which of the two a reply chooses, or None.

    It is read as a reply to any question with choices is, by letter, word or both, from its first line: some explain
    themselves in the next. A letter that begins a sentence is none.

    Examples
    --------
    >>> [chosen(text) for text in ("(A)", "false", "The answer is B.", "A\n\nLima it is.")]
    ['true', 'false', 'false', 'true']
    >>> [chosen(text) for text in ("A good answer", "A or B", "A) false", "C", "")]
    [None, None, None, None, None]
    """
    named = named_choices(JUDGEMENT, text.strip().partition("\n")[0])
    return next(iter(named)) if len(named) == 1 else None


def choice_probability(tokens: Sequence[TokenLogprob]) -> float | None:
    """Return P(A) / (P(A) + P(B)) in the first place that holds either, or None where they hold less than half there.

    All spellings count: with blanks or punctuation around, in lower case, and the words "true" and "false". One that is
    not among the tokens reported counts as impossible.

    Parameters
    ----------
    tokens
        Of the reply, with alternatives.

    Examples
    --------
    >>> place = TokenLogprob(" A", math.log(0.5), ((" A", math.log(0.5)), ("B", math.log(0.2)), ("(A", math.log(0.1))))
    >>> round(choice_probability([TokenLogprob("Answer:", 0.0), place]), 3)
    0.75
    """
    place = next((one for one in tokens if _spelt(one.token)), None)
    if place is None:
        return None
    held = {TRUE: 0.0, FALSE: 0.0}
    for token, logprob in {place.token: place.logprob, **dict(place.alternatives)}.items():
        if choice := _spelt(token):
            held[choice] += math.exp(logprob)
    both = held[TRUE] + held[FALSE]
    return held[TRUE] / both if both >= LEAST_SHARE else None


def _spelt(token: str) -> str | None:
    return SPELLINGS.get(token.strip(DECORATION).casefold())


P_TRUE = Method(
    NAME,
    "probability of 'true' when the model judges its own answer",
    p_true,
    frozenset({Need.REQUESTS}),
    (shipped().prompts[NAME],),
)
METHODS = (P_TRUE,)
