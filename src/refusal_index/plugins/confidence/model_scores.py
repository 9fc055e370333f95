"""Scores that are the model's own: from repeated draws, log probabilities, its judgement, or what it states.

P(True): how probable the model thinks it that its own answer is true, asked as a choice of two.

Stated confidence: a number or a phrase. In one stage the model answers and says how sure it is in the same reply, and
the score is for the answer in that reply. In two stages it is asked about the forced answer. A prompt in words shows
the phrases alone; what each is read as moves the calibration error, but leaves the order of the answers. A reply is
read by rules: what they do not settle has no score, and is counted.

References
----------
.. [1] Lin, Hilton and Evans (2022). Teaching models to express their uncertainty in words. :arxiv:`2205.14334`
.. [2] Tian et al. (2023). Just ask for calibration: strategies for eliciting calibrated confidence scores from
   language models fine-tuned with human feedback. :arxiv:`2305.14975`; with one stage and two, numbers and phrases.
.. [3] Xiong et al. (2023). Can LLMs express their uncertainty? :arxiv:`2306.13063`
.. [4] Office of the Director of National Intelligence (2015). Intelligence Community Directive 203: Analytic
   standards; the ranges of probability that its phrases stand for.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import resources
from itertools import accumulate, pairwise

from refusal_index.data.outcome import Question
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need, Prompt, Score, score_each
from refusal_index.protocol import Pass, StopReason, TokenLogprob, answer_start, read_reply, same_answer
from refusal_index.protocol.grading import named_choices
from refusal_index.protocol.replies import DECORATION, without_reasoning

_SHIPPED = tomllib.loads((resources.files("refusal_index.plugins.confidence") / "data" / "prompts.toml").read_text())

PROMPTS: Mapping[str, Prompt] = {
    name: Prompt(**{**entry, "name": name, "template": entry["template"].strip()})
    for name, entry in _SHIPPED["prompts"].items()
}
"""What methods ask, by name."""

SCALE: Mapping[str, float] = _SHIPPED["scale"]
"""Phrases for a confidence in words, each with the probability that it is read as."""


def p_answering(evidence: Evidence) -> Iterable[Score]:
    """P(Answering): the share of the further draws of the first pass that answered, for each variant.

    References
    ----------
    Wei et al. (2024). Measuring short-form factuality in large language models. :arxiv:`2411.04368`
    """
    for variant, refusals in evidence.refusals.items():
        for question_id, refused in sorted(refusals.items()):
            if (answer := evidence.answers.get(question_id)) is not None:
                share = 1 - sum(refused) / len(refused)
                yield Score(question_id, "p-answering", share, answer.wrong, variant)


def self_consistency(evidence: Evidence) -> Iterable[Score]:
    """Share of the further forced answers that agree with the answer given.

    References
    ----------
    Wang et al. (2023). Self-consistency improves chain of thought reasoning in language models. :arxiv:`2203.11171`
    """

    def share(question_id: str, answer: Answer) -> float | None:
        drawn = _readable(evidence, question_id) if answer.text else []
        return sum(same_answer(answer.text, one.text) for one in drawn) / len(drawn) if drawn else None

    return score_each(_with_draws(evidence), "self-consistency", share)


def answer_entropy(evidence: Evidence) -> Iterable[Score]:
    """One minus the entropy of the answers' clusters over the most that so many draws can have.

    Answers that agree make a cluster; all draws count, the answer given among them.

    References
    ----------
    Farquhar et al. (2024). Detecting hallucinations in large language models using semantic entropy. Nature, 630.
    :doi:`10.1038/s41586-024-07421-0`; there with clusters by entailment.
    """

    def certainty(question_id: str, answer: Answer) -> float | None:
        drawn = [answer, *_readable(evidence, question_id)]
        if not answer.text or len(drawn) < 2:
            return None
        shares = [size / len(drawn) for size in cluster_sizes([one.text for one in drawn])]
        entropy = -sum(share * math.log(share) for share in shares)
        return 1 - min(entropy / math.log(len(drawn)), 1.0)  # beyond 1 by rounding alone

    return score_each(_with_draws(evidence), "answer-entropy", certainty)


def cluster_sizes(answers: Sequence[str]) -> list[int]:
    """Return how many answers agree with each that is unlike those before it.

    Examples
    --------
    >>> cluster_sizes(["Lima", "Cusco", "lima."])
    [2, 1]
    """
    found: dict[str, int] = {}
    for answer in answers:
        alike = next((one for one in found if same_answer(one, answer)), answer)
        found[alike] = found.get(alike, 0) + 1
    return list(found.values())


def _readable(evidence: Evidence, question_id: str) -> list[Answer]:
    """Return the further answers of a question; a reply that was cut or empty neither agrees nor differs."""
    return [one for one in evidence.further.get(question_id, ()) if one.text]


def _with_draws(evidence: Evidence) -> dict[str, Answer]:
    """Return the answers to questions that were drawn again: often only some of a run are."""
    return {one: answer for one, answer in evidence.answers.items() if evidence.further.get(one)}


Reduce = Callable[[Sequence[float]], float]


def likelihood(evidence: Evidence, name: str, reduce: Reduce) -> Iterable[Score]:
    """Yield the probability of each answer that came with log probabilities of its tokens.

    Parameters
    ----------
    evidence, name
        Whose answers, and the method.
    reduce
        From the tokens' log probabilities to one: their sum, for the probability of the answer as it stands; their
        mean, which does not count its length; or the least, its weakest point.
    """
    reported = {one: answer for one, answer in evidence.answers.items() if answer.logprobs is not None}

    def probability(_question_id: str, answer: Answer) -> float | None:
        tokens = answer_tokens(answer.text, answer.logprobs or ())
        # Providers round, some to a logarithm above 0.
        return min(math.exp(reduce([one.logprob for one in tokens])), 1.0) if tokens else None

    return score_each(reported, name, probability)


def answer_tokens(answer: str, tokens: Sequence[TokenLogprob]) -> Sequence[TokenLogprob]:
    """Return those of a reply's tokens that its answer lies in: what stands around it, such as tags, says nothing.

    Parameters
    ----------
    answer
        As it was read from the reply; where it is not found there, all tokens count.
    tokens
        Of the whole reply.

    Examples
    --------
    >>> said = [TokenLogprob(text, -1.0) for text in ("<answer>", "Li", "ma", "</answer>")]
    >>> [one.token for one in answer_tokens("Lima", said)]
    ['Li', 'ma']
    """
    start = answer_start("".join(one.token for one in tokens), answer)
    if start is None:
        return tokens
    ends = accumulate(len(one.token) for one in tokens)
    stop = start + len(answer)
    return [one for one, end in zip(tokens, ends, strict=True) if end > start and end - len(one.token) < stop]


P_TRUE = "p-true"
TRUE, FALSE = "true", "false"
JUDGEMENT = Question(P_TRUE, "", TRUE, choices=(TRUE, FALSE))
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
    replies = evidence.probes.get(P_TRUE, {})
    asked = {one: answer for one, answer in evidence.answers.items() if replies.get(one)}
    return score_each(asked, P_TRUE, lambda one, _: believed(replies[one]))


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
    return _mean(told) if len(told) >= LEAST_SHARE * len(replies) else None


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


Read = Callable[[str], float | None]

MARK = re.compile(r"<(/?)(answer|confidence)>", re.IGNORECASE)
NUMBER = re.compile(
    r"(?P<number>\d{1,3}(?:\.\d{1,9})?) ?(?P<unit>[%\uff05\u066a]|per ?cent|/ ?100|out of 100)?", re.IGNORECASE
)
PER_CENT = 100
AROUND = "*_`\"'\u201c\u201d\u2018\u2019()[] "
"""What may stand around a number or a phrase and says nothing."""


def verbalised(evidence: Evidence, name: str, prompt: Prompt, read: Read) -> Iterable[Score]:
    """Yield what the model said of each answer, in the order of the questions' ids; nothing where no reply came.

    Parameters
    ----------
    evidence, name
        Whose replies, and the method.
    prompt
        What was asked.
    read
        From what stands between the tags to a probability, or None.

    Examples
    --------
    >>> said = Answer("Lima", "<answer>Lima</answer> <confidence>85</confidence>", wrong=False)
    >>> asked = PROMPTS["verbalised-number"]
    >>> evidence = Evidence("model", {}, {}, probes={asked.name: {"q1": [said]}})
    >>> [(one.confidence, one.wrong, one.of) for one in verbalised(evidence, asked.name, asked, read_number)]
    [(0.85, False, 'probe')]
    """
    for question_id, replies in sorted(evidence.probes.get(prompt.name, {}).items()):
        scored = replies[0] if replies and prompt.is_graded else evidence.answers.get(question_id)
        if not replies or scored is None:
            continue
        stated = stated_confidence(replies[0], beside_answer=prompt.is_graded)
        confidence = None if stated is None else read(stated)
        of = Pass.PROBE if prompt.is_graded else Pass.FORCED
        yield Score(question_id, name, confidence, scored.wrong, of=str(of))


def stated_confidence(reply: Answer, *, beside_answer: bool = False) -> str | None:
    """Return what a reply says between its confidence tags, or None.

    The last complete pair counts, as the prompt asks for it at the end; tags inside a reasoning block do not. A pair is
    an opening and a closing tag of the same name with no tag of ours between them. What stands elsewhere never counts,
    be it a number: it may be the answer, or part of the question. Nor does a reply that the provider cut or filtered,
    even where it holds a tag, as nobody knows what would have followed.

    Parameters
    ----------
    reply
        The reply, word for word.
    beside_answer
        Whether it must hold an answer between tags, too: without them nobody knows what the confidence is of.

    Examples
    --------
    >>> stated_confidence(Answer("", "<think><confidence>10</confidence></think> <confidence>85%</confidence>", None))
    '85%'
    >>> stated_confidence(Answer("", "I am 85% sure.", None)) is None
    True
    """
    if reply.stop_reason is not StopReason.STOP:
        return None
    said = without_reasoning(reply.reply)
    marks = list(MARK.finditer(said))
    tagged = {
        left[2].lower(): said[left.end() : right.start()]  # of several the last
        for left, right in pairwise(marks)
        if not left[1] and right[1] and left[2].lower() == right[2].lower()
    }
    return None if beside_answer and "answer" not in tagged else tagged.get("confidence")


def read_number(text: str) -> float | None:
    """Read a probability from a number from 0 to 100.

    The number stands alone, but for emphasis, quotes or brackets around it, a full stop after it, and one of ``%``,
    ``percent``, ``per cent``, ``/100`` and ``out of 100``. It has one to three figures, of any script, and may have
    further ones after a decimal point. None is:

    - a range or several numbers, a number in words, and a number with words or signs beside it: "85 sure" and "85
      wrong", "over 85" and "-85" are not the same, and no list of what to pass over would be complete;
    - a number over 100, a decimal comma, another denominator as in "8/10";
    - a number above 0 and up to 1 that has a decimal point and no unit: 0.85 may be meant as a share or as less than
      one per cent. A plain "1" is one per cent, as it was asked for.

    Parameters
    ----------
    text
        What stands between the tags.

    Examples
    --------
    >>> [read_number(text) for text in ("85", "**85%**", "85/100", "0", "0.5 %")]
    [0.85, 0.85, 0.85, 0.0, 0.005]
    >>> [read_number(text) for text in ("0.85", "80-90", "850", "-5", "about 85", "eighty-five", "")]
    [None, None, None, None, None, None, None]
    """
    found = NUMBER.fullmatch(_bare(text))
    if found is None:
        return None
    value = float(found["number"])
    may_be_share = "." in found["number"] and 0 < value <= 1 and not found["unit"]
    return None if may_be_share or value > PER_CENT else value / PER_CENT


def read_phrase(text: str) -> float | None:
    """Read a probability from a phrase of the scale, whatever its case, emphasis, quotes and full stop.

    Any other phrase is None: what it is worth would be a guess.

    Parameters
    ----------
    text
        What stands between the tags.

    Examples
    --------
    >>> [read_phrase(text) for text in ("Very likely.", "unlikely", "quite likely", "likely or very likely", "90")]
    [0.9, 0.25, None, None, None]
    """
    return SCALE.get(_bare(text).casefold())


def _bare(text: str) -> str:
    """Return text with single blanks, without what stands around it and the full stop after it."""
    return " ".join(text.split()).strip(AROUND).removesuffix(".").strip(AROUND)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _likelihood(name: str, about: str, reduce: Reduce) -> Method:
    return Method(name, about, partial(likelihood, name=name, reduce=reduce), frozenset({Need.LOGPROBS}))


def _verbalised(name: str, about: str, read: Read) -> Method:
    score = partial(verbalised, name=name, prompt=PROMPTS[name], read=read)
    return Method(name, about, score, frozenset({Need.REQUESTS}), (PROMPTS[name],))


_FIRST, _FORCED = frozenset({Need.FIRST_DRAWS}), frozenset({Need.FORCED_DRAWS})
_JUDGED = "probability of 'true' when the model judges its own answer"
_NUMBER, _PHRASE = "number from 0 to 100 that the model gives", "one of seven phrases that the model gives"
_AGREE = "share of further forced answers that agree with the answer"

METHODS = (
    Method("p-answering", "share of draws of the first pass that answer", p_answering, _FIRST),
    Method("self-consistency", _AGREE, self_consistency, _FORCED),
    Method("answer-entropy", "how few different answers the draws give", answer_entropy, _FORCED),
    _likelihood("likelihood", "probability of the answer: the product over its tokens", math.fsum),
    _likelihood("likelihood-mean", "geometric mean of the probabilities of the answer's tokens", _mean),
    _likelihood("likelihood-min", "probability of the answer's least likely token", min),
    Method(P_TRUE, _JUDGED, p_true, frozenset({Need.REQUESTS}), (PROMPTS[P_TRUE],)),
    _verbalised("verbalised-number", f"{_NUMBER} along with an answer", read_number),
    _verbalised("verbalised-words", f"{_PHRASE} along with an answer", read_phrase),
    _verbalised("verbalised-number-after", f"{_NUMBER} its answer afterwards", read_number),
    _verbalised("verbalised-words-after", f"{_PHRASE} its answer afterwards", read_phrase),
)
