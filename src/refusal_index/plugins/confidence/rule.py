"""Answer or refuse by a saved rule: a method, its calibration and a threshold.

A rule is used where a model is deployed, so this module imports neither NumPy, SciPy nor Polars.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from refusal_index.errors import RefusalIndexError, shortened
from refusal_index.plugins.confidence.answer_probability import (
    CALIBRATIONS,
    REDUCTIONS,
    Calibration,
    answer_probability,
)
from refusal_index.protocol import TokenLogprob, read_logprobs, read_reply, write_logprobs
from refusal_index.protocol.refusals import WORDING, RefusalRule
from refusal_index.runs.settings import COMPARABILITY_VERSION

RULE_VERSION = 1
"""Version of the JSON document."""


class RuleError(RefusalIndexError, ValueError):
    """A saved rule for refusing that cannot be loaded, or log probabilities that it cannot use."""


@dataclass(frozen=True)
class Decision:
    """What a rule decides about a reply.

    Attributes
    ----------
    answered
        Whether to give the reply; otherwise refuse.
    confidence
        The reply's score; None if it has none, so that it is refused.
    answer
        The answer read from the reply; empty if the reply cannot be read. A refusal in words is scored like an answer,
        as in the run, where it counts as wrong.
    """

    answered: bool
    confidence: float | None
    answer: str


@dataclass(frozen=True)
class SavedRule:
    """Refuse a reply whose score is below a threshold.

    Attributes
    ----------
    method, model
        The confidence method, and the model whose replies it scores.
    threshold
        Replies with a score below it are refused.
    calibration
        The fitted function of a method that calibrates the likelihood; None for others.
    reading
        How replies are read.
    provenance
        The run from which the threshold was chosen, the forced prompt, the criterion and the results on the other half
        of the questions.
    """

    method: str
    model: str
    threshold: float
    calibration: Calibration | None = None
    reading: RefusalRule = WORDING
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def decide(self, reply: str, logprobs: Iterable[Any], question: str = "", choices: Sequence[str] = ()) -> Decision:
        """Return whether to give a reply to the forced prompt.

        Parameters
        ----------
        reply
            The whole reply, word for word. One that was cut off has no answer, so refuse it without asking the rule.
        logprobs
            The tokens of the reply with their log probabilities: pairs, or dictionaries or objects with ``token`` and
            ``logprob``, as in OpenAI's ``choices[0].logprobs.content``.
        question, choices
            The text of the question and its choices, if there are any; as in the run, they help to read the reply.

        Raises
        ------
        RuleError
            If `logprobs` is none of these.

        Examples
        --------
        >>> rule = SavedRule("likelihood", "my-model", threshold=0.5)
        >>> rule.decide("Lima", [("Lima", -0.1)]).answered, rule.decide("Quito", [("Quito", -1.6)]).answered
        (True, False)
        """
        answer = read_reply(reply, question, tuple(choices), refusals=self.reading).answer
        score = answer_probability(answer, _tokens(logprobs), REDUCTIONS[self.method])
        if score is not None and self.calibration is not None:
            score = self.calibration(score)
        return Decision(score is not None and score >= self.threshold, score, answer)


def load_rule(path: str | PathLike[str], *, model: str | None = None, method: str | None = None) -> SavedRule:
    """Load a rule that ``refusal-index confidence RUN --save FILE`` has written.

    Parameters
    ----------
    path
        The file.
    model, method
        The model and the method that the rule must be for; None for any.

    Returns
    -------
    SavedRule
        With ``decide``, which answers or refuses.

    Raises
    ------
    RuleError
        If the file cannot be read, or is for another model, method or version.
    """
    try:
        return _rule(json.loads(Path(path).read_text("utf-8")), model, method)
    except (AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error  # of a file that cannot be read
        raise RuleError(f"{path}: {reason}; write a rule with 'refusal-index confidence RUN --save FILE'") from error


def _rule(document: Mapping[str, Any], model: str | None, method: str | None) -> SavedRule:
    """Return the rule of a document; raises one of the errors that `load_rule` catches if it is not as expected."""
    required: dict[str, list[Any]] = {
        "rule_version": [RULE_VERSION],
        "comparability_version": [COMPARABILITY_VERSION],
        "method": [name for name in REDUCTIONS if method in (None, name)],
        "model": [document.get("model") if model is None else model],
    }
    for name, allowed in required.items():
        if document.get(name) not in allowed:
            value = shortened(document.get(name))
            raise ValueError(f"{name}: expected {' or '.join(map(str, allowed))}, got {value}")
    method = document["method"]
    threshold = document["threshold"]
    calibration = None
    if method in CALIBRATIONS:
        fitted = document["calibration"].items()
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in fitted}
        calibration = CALIBRATIONS[method](**values)
    if not 0 <= threshold <= 1 or not (calibration is None or 0 <= calibration(threshold) <= 1):
        raise ValueError(f"threshold {shortened(threshold)} is no probability, or its calibration gives none")
    reading = RefusalRule(**document["reading"])
    return SavedRule(method, document["model"], threshold, calibration, reading, document["provenance"])


def _tokens(logprobs: Iterable[Any]) -> Sequence[TokenLogprob]:
    """Return log probabilities with the digits that a run stores, so that decisions are those of the run."""
    try:
        return read_logprobs(write_logprobs(map(_token, logprobs))) or ()
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RuleError(
            f"logprobs: expected the tokens of the reply with their log probabilities, got {shortened(logprobs)} "
            f"({error}); ask the model for them"
        ) from error


def _token(entry: Any) -> TokenLogprob:
    if isinstance(entry, Mapping):
        return TokenLogprob(entry["token"], entry["logprob"])
    return TokenLogprob(*entry) if isinstance(entry, tuple | list) else TokenLogprob(entry.token, entry.logprob)
