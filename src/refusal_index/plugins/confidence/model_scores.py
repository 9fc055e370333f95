"""Scores from the model itself: repeated samples, log probabilities, its judgement, or stated confidence.

P(True) is the probability that the model assigns to its own answer being true, asked as a choice of two.

Stated confidence is a number or a phrase. In one-stage methods the model answers and states its confidence in the same
reply, and the score is for the answer in that reply. In two-stage methods it is asked about the forced answer. Prompts
for phrases do not show the probabilities that phrases stand for; these affect the calibration error, but not the
ranking of the answers. Replies are parsed by rules: a reply that they cannot parse has no score and is counted.

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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from itertools import pairwise
from statistics import fmean

import polars as pl

from refusal_index.data.outcome import Question
from refusal_index.data.reasoning import without_reasoning
from refusal_index.plugins.confidence.answer_probability import REDUCTIONS, Reduce, answer_probability, answer_tokens
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need, Prompt, score_each
from refusal_index.protocol import Pass, TokenLogprob, read_reply, same_answer
from refusal_index.protocol.choices import read_choice
from refusal_index.protocol.final_answer import DECORATION

_SHIPPED = tomllib.loads((resources.files("refusal_index.plugins.confidence") / "data" / "prompts.toml").read_text())

PROMPTS: Mapping[str, Prompt] = {
    name: Prompt(**{**entry, "name": name, "template": entry["template"].strip()})
    for name, entry in _SHIPPED["prompts"].items()
}
"""The methods' prompts by name."""

SCALE: Mapping[str, float] = _SHIPPED["scale"]
"""Probability for each phrase of stated confidence."""


def p_answering(evidence: Evidence) -> pl.DataFrame:
    """Return P(Answering): the share of the further draws of the first pass that answered, for each variant.

    References
    ----------
    Wei et al. (2024). Measuring short-form factuality in large language models. :arxiv:`2411.04368`
    """
    is_scored = pl.col("question_id").is_in(list(evidence.answers))
    further = evidence.outcomes.filter(is_scored, pl.col("draw") > 0).drop_nulls("refused")
    variants = pl.Enum(further["variant"].unique(maintain_order=True))
    shares = further.group_by("variant", "question_id").agg(confidence=1 - pl.col("refused").mean())
    return shares.sort(pl.col("variant").cast(variants), "question_id")


def self_consistency(evidence: Evidence) -> pl.DataFrame:
    """Return the share of the further forced answers that agree with the scored answer.

    References
    ----------
    Wang et al. (2023). Self-consistency improves chain of thought reasoning in language models. :arxiv:`2203.11171`
    """

    def share(question_id: str, answer: Answer) -> float | None:
        further = _readable(evidence, question_id) if answer.text else []
        return sum(same_answer(answer.text, other.text) for other in further) / len(further) if further else None

    return score_each(_with_draws(evidence), share)


def answer_entropy(evidence: Evidence) -> pl.DataFrame:
    """Return one minus the entropy of the answer clusters, relative to the maximum for this number of draws.

    Answers that agree form a cluster. All draws count, including the scored answer.

    References
    ----------
    Farquhar et al. (2024). Detecting hallucinations in large language models using semantic entropy. Nature, 630.
    :doi:`10.1038/s41586-024-07421-0`; there with clusters by entailment.
    """

    def certainty(question_id: str, answer: Answer) -> float | None:
        samples = [answer, *_readable(evidence, question_id)]
        if not answer.text or len(samples) < 2:
            return None
        shares = [size / len(samples) for size in cluster_sizes([sample.text for sample in samples])]
        entropy = -sum(share * math.log(share) for share in shares)
        return 1 - min(entropy / math.log(len(samples)), 1.0)  # may exceed 1 by rounding

    return score_each(_with_draws(evidence), certainty)


def cluster_sizes(answers: Sequence[str]) -> list[int]:
    """Return the sizes of the clusters of agreeing answers, in order of first appearance.

    Examples
    --------
    >>> cluster_sizes(["Lima", "Cusco", "lima."])
    [2, 1]
    """
    sizes: dict[str, int] = {}
    for answer in answers:
        alike = next((earlier for earlier in sizes if same_answer(earlier, answer)), answer)
        sizes[alike] = sizes.get(alike, 0) + 1
    return list(sizes.values())


def _readable(evidence: Evidence, question_id: str) -> list[Answer]:
    """Return the further answers of a question, without truncated or empty replies."""
    return [reply for reply in evidence.further.get(question_id, ()) if reply.text]


def _with_draws(evidence: Evidence) -> dict[str, Answer]:
    """Return the answers to questions with further draws, which often are only some of a run's questions."""
    return {
        question_id: answer for question_id, answer in evidence.answers.items() if evidence.further.get(question_id)
    }


def likelihood(evidence: Evidence, reduce: Reduce = REDUCTIONS["likelihood"]) -> pl.DataFrame:
    """Return the probability of each answer that has log probabilities of its tokens.

    Parameters
    ----------
    evidence
        The answers.
    reduce
        One of `REDUCTIONS`.
    """
    reported = {question_id: answer for question_id, answer in evidence.answers.items() if answer.logprobs is not None}
    return score_each(reported, lambda _, answer: answer_probability(answer.text, answer.logprobs or (), reduce))


P_TRUE = "p-true"
TRUE = "true"
FALSE = "false"
JUDGEMENT = Question(P_TRUE, "", TRUE, choices=(TRUE, FALSE))
LEAST_SHARE = 0.5
"""Minimum share of the probability, or of the replies, that must fall on the two choices together."""


def p_true(evidence: Evidence) -> pl.DataFrame:
    """Return P(True) of the forced answers that the model was asked to judge.

    P(True) is the probability of A ("true") divided by that of A or B ("false"). It is computed from the log
    probabilities of the token with the letter or, without log probabilities, from the share of A among the replies that
    choose A or B. In both cases at least half of the probability mass or of the replies must fall on the two letters;
    otherwise the model is not choosing between them, and there is no score.

    A always stands for "true", as in the paper. A bias towards a letter shifts the log odds of all answers alike, so it
    does not change their ranking and is removed by calibration. Asking in both orders would cost twice as much.

    References
    ----------
    Kadavath et al. (2022). Language models (mostly) know what they know. :arxiv:`2207.05221`

    Examples
    --------
    >>> replies = [Answer(text, text, None) for text in ("A", "A) true", "B", "A")]
    >>> evidence = Evidence({}, {"q1": Answer("Lima", "Lima", False)}, probes={"p-true": {"q1": replies}})
    >>> p_true(evidence)["confidence"].to_list()
    [0.75]
    """
    replies = evidence.probes.get(P_TRUE, {})
    probed = {question_id: answer for question_id, answer in evidence.answers.items() if replies.get(question_id)}
    return score_each(probed, lambda question_id, _: believed(replies[question_id]))


def believed(replies: Sequence[Answer]) -> float | None:
    """Return the mean probability of "true" over the replies, None if fewer than half of them make a choice.

    Parameters
    ----------
    replies
        At least one reply to the same question about the same answer.

    Examples
    --------
    >>> believed([Answer("A", "A", None), Answer("Hm.", "Hm.", None), Answer("Well", "Well", None)]) is None
    True
    """
    probabilities = [probability for probability in map(_probability_of_true, replies) if probability is not None]
    return fmean(probabilities) if len(probabilities) >= LEAST_SHARE * len(replies) else None


def _probability_of_true(reply: Answer) -> float | None:
    """Return one reply's probability of "true", which is 0 or 1 without log probabilities; None without a choice."""
    reading = read_reply(reply.reply, stop_reason=reply.stop_reason)
    text = "" if reading.refused else reading.answer
    choice = chosen(text)
    if choice is None:
        return None
    tokens = answer_tokens(text, reply.logprobs or ())
    if any(token.alternatives for token in tokens):
        return choice_probability(tokens)
    return float(choice == TRUE)


def chosen(text: str) -> str | None:
    r"""Return which of the two choices a reply makes, or None.

    The reply is parsed like that to any question with choices, by letter, word or both, but from its first line only,
    since an explanation may follow. A letter that is the first word of a sentence is not a choice.

    Examples
    --------
    >>> [chosen(text) for text in ("(A)", "false", "The answer is B.", "A\n\nLima it is.")]
    ['true', 'false', 'false', 'true']
    >>> [chosen(text) for text in ("A good answer", "A or B", "A) false", "C", "")]
    [None, None, None, None, None]
    """
    return read_choice(text.strip().partition("\n")[0], JUDGEMENT.choices).choice


def choice_probability(tokens: Sequence[TokenLogprob]) -> float | None:
    """Return P(A) / (P(A) + P(B)) at the first token that is either, None if both sum to less than one half there.

    All spellings count: with surrounding spaces or punctuation, in lower case, and the words "true" and "false". A
    spelling that is not among the reported tokens has probability 0.

    Parameters
    ----------
    tokens
        Tokens of the reply, with alternatives.

    Examples
    --------
    >>> place = TokenLogprob(" A", math.log(0.5), ((" A", math.log(0.5)), ("B", math.log(0.2)), ("(A", math.log(0.1))))
    >>> round(choice_probability([TokenLogprob("Answer:", 0.0), place]), 3)
    0.75
    """
    choice_token = next((token for token in tokens if _spelt(token.token)), None)
    if choice_token is None:
        return None
    probabilities = {TRUE: 0.0, FALSE: 0.0}
    for token, logprob in {choice_token.token: choice_token.logprob, **dict(choice_token.alternatives)}.items():
        if choice := _spelt(token):
            probabilities[choice] += math.exp(logprob)
    both = probabilities[TRUE] + probabilities[FALSE]
    return probabilities[TRUE] / both if both >= LEAST_SHARE else None


def _spelt(token: str) -> str | None:
    return {"a": TRUE, TRUE: TRUE, "b": FALSE, FALSE: FALSE}.get(token.strip(DECORATION).casefold())


Read = Callable[[str], float | None]

MARK = re.compile(r"<(/?)(answer|confidence)>", re.IGNORECASE)
NUMBER = re.compile(
    r"(?P<number>\d{1,3}(?:\.\d{1,9})?) ?(?P<unit>[%\uff05\u066a]|per ?cent|/ ?100|out of 100)?", re.IGNORECASE
)
PER_CENT = 100
AROUND = "*_`\"'\u201c\u201d\u2018\u2019()[] "
"""Characters around a number or a phrase that are ignored."""


def verbalised(evidence: Evidence, prompt: Prompt, parse: Read) -> pl.DataFrame:
    """Return the stated confidence in each answer, ordered by question id; no row for questions without a reply.

    Parameters
    ----------
    evidence
        The replies.
    prompt
        The prompt that was sent.
    parse
        Parses the text between the confidence tags to a probability, or None.

    Examples
    --------
    >>> reply = Answer("Lima", "<answer>Lima</answer> <confidence>85</confidence>", wrong=False)
    >>> prompt = PROMPTS["verbalised-number"]
    >>> evidence = Evidence({}, {}, probes={prompt.name: {"q1": [reply]}})
    >>> verbalised(evidence, prompt, read_number).rows()
    [('q1', 0.85, False, 'probe')]
    """
    probes = evidence.probes.get(prompt.name, {})
    answers = evidence.answers
    replies = {question_id: probe[0] for question_id, probe in probes.items() if probe}
    scored = replies if prompt.is_graded else {name: answers[name] for name in replies if name in answers}

    def confidence(question_id: str, _answer: Answer) -> float | None:
        stated = stated_confidence(replies[question_id], beside_answer=prompt.is_graded)
        return None if stated is None else parse(stated)

    pass_ = Pass.PROBE if prompt.is_graded else Pass.FORCED
    return score_each(scored, confidence).with_columns(pl.lit(str(pass_)).alias("pass"))


def stated_confidence(reply: Answer, *, beside_answer: bool = False) -> str | None:
    """Return the text between the confidence tags of a reply, or None.

    The last complete pair of tags counts, since the prompt asks for it at the end; tags in a reasoning block are
    ignored. A pair is an opening and a closing tag of the same name without another answer or confidence tag in
    between. Text outside the tags never counts, even if it is a number, which may be the answer or part of the
    question. A truncated or filtered reply has no confidence even if it contains tags, since another pair might have
    followed.

    Parameters
    ----------
    reply
        The reply.
    beside_answer
        Whether the reply must also contain an answer in tags, without which it is unclear what the confidence refers
        to.

    Examples
    --------
    >>> stated_confidence(Answer("", "<think><confidence>10</confidence></think> <confidence>85%</confidence>", None))
    '85%'
    >>> stated_confidence(Answer("", "I am 85% sure.", None)) is None
    True
    """
    if not reply.stop_reason.is_end_of_text:
        return None
    text = without_reasoning(reply.reply)
    marks = list(MARK.finditer(text))
    tagged = {
        left[2].lower(): text[left.end() : right.start()]  # the last pair of each name
        for left, right in pairwise(marks)
        if not left[1] and right[1] and left[2].lower() == right[2].lower()
    }
    return None if beside_answer and "answer" not in tagged else tagged.get("confidence")


def read_number(text: str) -> float | None:
    """Parse a number from 0 to 100 as a probability, None if the text is anything else.

    The number must stand alone, except for emphasis, quotes or brackets around it, a full stop after it, and one of
    ``%``, ``percent``, ``per cent``, ``/100`` and ``out of 100``. It has one to three digits, of any script, and may
    have decimals after a decimal point. None is returned for:

    - a range, several numbers, a number in words, and a number with words or signs beside it: "85 sure", "85 wrong",
      "over 85" and "-85" have different meanings, and no list of words to ignore would be complete;
    - a number over 100, a decimal comma, and other denominators as in "8/10";
    - a number above 0 and up to 1 with a decimal point and no unit: 0.85 may mean a share or less than one per cent. A
      plain "1" is one per cent, as the prompt asks for.

    Parameters
    ----------
    text
        The text between the confidence tags.

    Examples
    --------
    >>> [read_number(text) for text in ("85", "**85%**", "85/100", "0", "0.5 %")]
    [0.85, 0.85, 0.85, 0.0, 0.005]
    >>> [read_number(text) for text in ("0.85", "80-90", "850", "-5", "about 85", "eighty-five", "")]
    [None, None, None, None, None, None, None]
    """
    match = NUMBER.fullmatch(_bare(text))
    if match is None:
        return None
    value = float(match["number"])
    may_be_share = "." in match["number"] and 0 < value <= 1 and not match["unit"]
    return None if may_be_share or value > PER_CENT else value / PER_CENT


def read_phrase(text: str) -> float | None:
    """Parse a phrase of the scale as a probability, ignoring case, emphasis, quotes and a full stop.

    Any other phrase is None, since its probability would be a guess.

    Parameters
    ----------
    text
        The text between the confidence tags.

    Examples
    --------
    >>> [read_phrase(text) for text in ("Very likely.", "unlikely", "quite likely", "likely or very likely", "90")]
    [0.9, 0.25, None, None, None]
    """
    return SCALE.get(_bare(text).casefold())


def _bare(text: str) -> str:
    """Return the text with single spaces, without surrounding punctuation and a final full stop."""
    return " ".join(text.split()).strip(AROUND).removesuffix(".").strip(AROUND)


def _verbalised(name: str, about: str, parse: Read) -> Method:
    score = partial(verbalised, prompt=PROMPTS[name], parse=parse)
    return Method(name, about, score, frozenset({Need.REQUESTS}), (PROMPTS[name],))


_FIRST, _FORCED, _LOGPROBS = (frozenset({need}) for need in (Need.FIRST_DRAWS, Need.FORCED_DRAWS, Need.LOGPROBS))
_MIN = partial(likelihood, reduce=REDUCTIONS["likelihood-min"])
_NUMBER = "number from 0 to 100 that the model"
_PHRASE = "one of seven phrases that the model"

METHODS = (
    Method("p-answering", "share of the other first-pass samples that answer", p_answering, _FIRST),
    Method(
        "self-consistency", "share of the other forced answers that agree with the answer", self_consistency, _FORCED
    ),
    Method("answer-entropy", "how little the sampled answers vary", answer_entropy, _FORCED),
    Method("likelihood", "probability of the answer: the product over its tokens", likelihood, _LOGPROBS),
    Method(
        "likelihood-mean",
        "geometric mean of the probabilities of the answer's tokens",
        partial(likelihood, reduce=REDUCTIONS["likelihood-mean"]),
        _LOGPROBS,
    ),
    Method("likelihood-min", "probability of the answer's least likely token", _MIN, _LOGPROBS),
    Method(
        P_TRUE,
        "probability of 'true' when the model judges its own answer",
        p_true,
        frozenset({Need.REQUESTS}),
        (PROMPTS[P_TRUE],),
    ),
    _verbalised("verbalised-number", f"{_NUMBER} states with its answer", read_number),
    _verbalised("verbalised-words", f"{_PHRASE} states with its answer", read_phrase),
    _verbalised("verbalised-number-after", f"{_NUMBER} states after its answer", read_number),
    _verbalised("verbalised-words-after", f"{_PHRASE} states after its answer", read_phrase),
)
