"""Both passes as two tasks of lm-evaluation-harness: what its task files beside this module call.

In `refusal_index_first` a model may refuse, in `refusal_index_forced` it may not. Both ask in the words of this
package's prompt sets and have the answers read and graded by its own rules, so that ``import`` can put the samples of
both together. The harness keeps no reason why a model stopped writing: a reply cut at the token limit is read like any
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refusal_index.data.datasets import DatasetError, load_dataset
from refusal_index.data.errors import nearest, shortened
from refusal_index.data.first_pass import FORCED
from refusal_index.data.outcome import Grade, Question
from refusal_index.plugins.lm_eval.samples import FLAGS, OURS
from refusal_index.protocol import load_prompt_set
from refusal_index.protocol.grading import GraderKind, grade_by_rule
from refusal_index.protocol.replies import read_reply

SPLIT = "test"
Doc = Mapping[str, Any]


def first_pass(
    *,
    dataset: str = "almanac",
    data: str | None = None,
    prompts: str = "default",
    variant: str = "normal",
    questions: int | None = None,
    seed: int = 0,
    **others: Any,
) -> dict[str, Any]:
    """Return the questions of the first pass, as the harness takes a dataset.

    Parameters
    ----------
    dataset, data
        As `refusal_index.data.datasets.load_dataset` takes them.
    prompts, variant
        The words that they are asked in.
    questions, seed
        How many to draw, and how; None for all of them.
    others
        What the harness hands over besides: its own settings.

    Raises
    ------
    DatasetError
        If one of the others is nearly a setting of these, one of these is of another kind, or the questions cannot be
        read.
    PromptSetError
        If there is no such set or variant.
    """
    _refuse_slips(others)
    for name, value in {"dataset": dataset, "prompts": prompts, "variant": variant}.items():
        _check(name, value, "a name", isinstance(value, str))
    if questions is not None:
        _check("questions", questions, "a whole number above 0", _is_whole(questions) and questions > 0)
    _check("seed", seed, "a whole number", _is_whole(seed))
    wording = load_prompt_set(prompts)
    wording.variant(variant)  # an unknown name is an error before anything is asked
    loaded = load_dataset(dataset, data=data, mix_seed=seed, limit=questions)
    about = {"dataset": loaded.name, "prompts": prompts, "variant": variant}
    from datasets import Dataset  # noqa: PLC0415 - the harness brings it along

    return {SPLIT: Dataset.from_list([_doc(question, about) for question in loaded.questions])}


def _refuse_slips(others: Mapping[str, Any]) -> None:
    """Raise for what is nearly a setting: a misspelt one would be left out without a word."""
    known = ("dataset", "data", "prompts", "variant", "questions", "seed")
    for name in others:
        meant = nearest(name, known, cutoff=0.8)
        if meant is not None:
            raise DatasetError(f"--metadata: expected one of {', '.join(known)}, got {name!r}; did you mean {meant!r}?")


def _check(name: str, value: object, expected: str, is_met: bool) -> None:
    if not is_met:
        raise DatasetError(f"--metadata: {name}: expected {expected}, got {shortened(value)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def forced_pass(**given: Any) -> dict[str, Any]:
    """Return the same questions for the forced pass, whatever variant the first is asked in."""
    return first_pass(**{**given, "variant": FORCED})


def prompt(doc: Doc) -> str:
    """Return what a question is asked with."""
    question, about = _question(doc), doc[OURS]
    wording = load_prompt_set(about["prompts"])
    return "\n\n".join(wording.render(about["variant"], question.text, question.context, question.choices))


def target(doc: Doc) -> str:
    """Return the gold answer; nothing where no right answer exists."""
    return doc["answer"] or ""


def graded(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """Read and grade a reply by the rules of this package; no flag is 1 where it cannot be graded.

    >>> doc = _doc(Question("q", "Who wrote Emma?", "Jane Austen"), {})
    >>> graded(doc, ["<answer>UNANSWERED</answer>"])
    {'is_correct': 0.0, 'is_incorrect': 0.0, 'is_not_attempted': 1.0}
    """
    reading = read_reply(results[0])
    if reading.unscored_reason is not None:
        grade = Grade.UNSCORED
    elif reading.refused:
        grade = Grade.REFUSED
    else:
        grade = grade_by_rule(GraderKind.EXACT, _question(doc), reading.answer)
    return {name: float(grade is flagged) for name, flagged in FLAGS.items()}


def _doc(question: Question, about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "question_id": question.question_id,
        "question": question.text,
        "answer": question.gold,
        "aliases": list(question.aliases),
        "topic": question.topic,
        "context": question.context,
        "choices": list(question.choices),
        OURS: dict(about),
    }


def _question(doc: Doc) -> Question:
    return Question(
        doc["question_id"],
        doc["question"],
        doc["answer"],
        tuple(doc["aliases"]),
        doc["topic"],
        doc["context"],
        tuple(doc["choices"]),
    )
