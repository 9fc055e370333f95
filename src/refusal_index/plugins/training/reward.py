"""A reward for training a model to refuse what it would probably get wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refusal_index.data.outcome import Grade
from refusal_index.errors import RefusalIndexError, shortened
from refusal_index.replies import Grader, Refusal, grade_reply


class RewardError(RefusalIndexError, ValueError):
    """A target, a reply or a column that no reward can be computed from."""


def abstention_reward(
    target: float = 0.75,
    *,
    gold: str = "answer",
    grader: Grader = "exact",
    refusal: Refusal = "wording",
    reasoning: str | None = None,
) -> Callable[..., list[float]]:
    """Return a reward function under which answering pays off from a given confidence.

    A right answer is rewarded with 1, a refusal with 0 and a wrong answer with -t / (1 - t), where t is the target. The
    expected reward of an answer that is right with probability p is above 0 exactly if p is above t. A reply that
    cannot be graded, such as an empty one, is rewarded as a wrong answer, so that it never pays off.

    Parameters
    ----------
    target : float, default: 0.75
        The confidence from which answering pays off, from 0 to below 1. With 0, refusals and wrong answers are equal.
    gold : str, default: "answer"
        The column of the right answers. None or an empty text marks a question without an answer: every answer to it
        is wrong.
    grader, refusal, reasoning
        As for `grade_reply`.

    Returns
    -------
    callable
        A function ``reward(completions, **columns)`` with the signature of TRL, which returns one reward, a float of
        -t / (1 - t), 0 or 1, for each completion: a text, or a list of messages, of which the last is the reply. It
        also uses the columns ``question``, ``aliases`` and ``choices``, if there are any. If TRL passes ``log_metric``
        and ``log_extra``, it logs the share of each grade, as ``abstention/refused`` and so on, and the grades.

    Raises
    ------
    RewardError
        If `target` is outside its range; from the returned function, if the column of the right answers is missing or
        has another length, or a completion is neither a text nor a list of messages.
    ReplyError, GraderError
        From the returned function, as `grade_reply`.

    References
    ----------
    .. [1] A. T. Kalai, O. Nachum, S. S. Vempala, E. Zhang, "Why Language Models Hallucinate", 2025,
       doi:10.48550/arXiv.2509.04664: penalty t / (1 - t) for a stated confidence target t.

    Examples
    --------
    >>> import refusal_index as ri
    >>> reward = ri.abstention_reward(target=0.75)
    >>> reward(["Lima", "I don't know.", "Quito"], answer=["Lima", "Lima", "Lima"])
    [1.0, 0.0, -3.0]
    """
    if isinstance(target, bool) or not isinstance(target, (int, float)) or not 0 <= target < 1:
        raise RewardError(f"target: expected a confidence from 0 to below 1, got {target!r}")
    loss = 0 - target / (1 - target)  # 0.0 for a target of 0, not -0.0
    rewards = {Grade.CORRECT: 1.0, Grade.REFUSED: 0.0, Grade.INCORRECT: loss, Grade.UNSCORED: loss}

    def reward(
        completions: Sequence[Any],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[str]], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        if isinstance(completions, str):
            raise RewardError(f"completions: expected a list of replies, got {shortened(completions)}")
        right_answers = _column(columns, gold, len(completions))
        present = [name for name in ("question", "aliases", "choices") if columns.get(name) is not None]
        given = {name: _column(columns, name, len(completions)) for name in present}
        grades = []
        for row, completion in enumerate(completions):
            details = {name: values[row] for name, values in given.items() if values[row]}
            grades.append(
                grade_reply(
                    _text(completion),
                    None if right_answers[row] == "" else right_answers[row],
                    grader=grader,
                    refusal=refusal,
                    reasoning=reasoning,
                    **details,
                )
            )
        if log_extra is not None:
            log_extra("grade", [grade.value for grade in grades])
        if log_metric is not None and grades:
            counts = Counter(grades)
            for grade in Grade:
                log_metric(f"abstention/{grade.value}", counts[grade] / len(grades))
        return [rewards[grade] for grade in grades]

    reward.__name__ = f"abstention_reward_{target:g}"  # TRL logs rewards under this name
    return reward


def _column(columns: Mapping[str, Any], name: str, length: int) -> Sequence[Any]:
    if columns.get(name) is None:
        texts = [key for key, values in columns.items() if isinstance(values, list)]
        found = f"found {', '.join(texts)}" if texts else "found none"
        raise RewardError(
            f"expected the right answers in a column '{name}' of the training data, {found}; name another column with "
            f"abstention_reward(gold=...)"
        )
    column: Sequence[Any] = columns[name]
    if isinstance(column, str) or len(column) != length:
        raise RewardError(
            f"{name}: expected a list with a value for each of {length} completions, found {shortened(column)}"
        )
    return column


def _text(completion: Any) -> str:
    """Return a reply's text; a list of messages ends with the reply, whose content may be a list of parts."""
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, list) or not all(isinstance(message, Mapping) for message in completion):
        raise RewardError(f"completions: expected texts or lists of messages, got {shortened(completion)}")
    content = completion[-1].get("content") if completion else ""
    if isinstance(content, list):
        return "".join([part.get("text") or "" for part in content if isinstance(part, Mapping)])
    return content or ""
