"""Scores from repeated draws: how often the model answers, agrees with its answer, and how few things it says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from refusal_index.data.confidence import Score
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need, score_each
from refusal_index.protocol import same_answer


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
                yield Score(question_id, P_ANSWERING.name, share, answer.wrong, variant)


def self_consistency(evidence: Evidence) -> Iterable[Score]:
    """Share of the further forced answers that agree with the answer given.

    References
    ----------
    Wang et al. (2023). Self-consistency improves chain of thought reasoning in language models. :arxiv:`2203.11171`
    """

    def share(question_id: str, answer: Answer) -> float | None:
        drawn = _readable(evidence, question_id) if answer.text else []
        return sum(same_answer(answer.text, one.text) for one in drawn) / len(drawn) if drawn else None

    return score_each(_with_draws(evidence), SELF_CONSISTENCY.name, share)


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
        share = _entropy(cluster_sizes([one.text for one in drawn])) / math.log(len(drawn))
        return 1 - min(share, 1.0)  # beyond 1 by rounding alone

    return score_each(_with_draws(evidence), ANSWER_ENTROPY.name, certainty)


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


def _entropy(sizes: Sequence[int]) -> float:
    total = sum(sizes)
    return -sum(size / total * math.log(size / total) for size in sizes)


def _readable(evidence: Evidence, question_id: str) -> list[Answer]:
    """Return the further answers of a question; a reply that was cut or empty neither agrees nor differs."""
    return [one for one in evidence.further.get(question_id, ()) if one.text]


def _with_draws(evidence: Evidence) -> Evidence:
    """Leave the questions that were drawn once: of a run, often only some are repeated."""
    drawn = {one: answer for one, answer in evidence.answers.items() if evidence.further.get(one)}
    return replace(evidence, answers=drawn)


P_ANSWERING = Method(
    "p-answering", "share of draws of the first pass that answer", p_answering, frozenset({Need.FIRST_DRAWS})
)
SELF_CONSISTENCY = Method(
    "self-consistency",
    "share of further forced answers that agree with the answer",
    self_consistency,
    frozenset({Need.FORCED_DRAWS}),
)
ANSWER_ENTROPY = Method(
    "answer-entropy",
    "how few different answers the draws give",
    answer_entropy,
    frozenset({Need.FORCED_DRAWS}),
)
METHODS = (P_ANSWERING, SELF_CONSISTENCY, ANSWER_ENTROPY)
