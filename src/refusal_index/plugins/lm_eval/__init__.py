"""Functions for the two lm-evaluation-harness tasks, which are defined in the YAML files beside this module.

In `refusal_index_first` a model may refuse, in `refusal_index_forced` it must answer. Both tasks use this package's
prompt sets, parsing and grading, so ``import`` can combine their samples. The harness does not record why a reply
ended, so a reply cut off at the token limit is treated like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refusal_index.data.datasets import DatasetError, load_dataset
from refusal_index.data.first_pass import FORCED
from refusal_index.data.outcome import Grade, Question
from refusal_index.errors import nearest, shortened
from refusal_index.protocol import load_prompt_set
from refusal_index.protocol.grading import GraderKind, grade_by_rule
from refusal_index.protocol.reading import read_reply

SPLIT = "test"

OURS = "refusal_index"
"""The key of `doc` that holds the dataset, prompt set and variant in samples of this package's own tasks."""

FLAGS = {"is_correct": Grade.CORRECT, "is_incorrect": Grade.INCORRECT, "is_not_attempted": Grade.REFUSED}
"""Metrics that together give the grade, as in SimpleQA's task."""

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
    """Return the questions of the first pass as a dataset of the harness.

    Parameters
    ----------
    dataset, data
        The arguments of `refusal_index.data.datasets.load_dataset`.
    prompts, variant
        The prompt set and its variant.
    questions, seed
        Size of a random sample of the questions, and its seed; None for all questions.
    others
        Further keyword arguments of the harness, which are ignored.

    Raises
    ------
    DatasetError
        If a setting is misspelt or has an invalid value, or the questions cannot be read.
    PromptSetError
        If the prompt set or variant does not exist.
    """
    _check_misspelt(others)
    for name, value in {"dataset": dataset, "prompts": prompts, "variant": variant}.items():
        _check(name, value, "a name", isinstance(value, str))
    if questions is not None:
        _check("questions", questions, "a whole number above 0", _is_whole(questions) and questions > 0)
    _check("seed", seed, "a whole number", _is_whole(seed))
    wording = load_prompt_set(prompts)
    wording.variant(variant)  # raises an error for an unknown name before any request
    loaded = load_dataset(dataset, data=data, mix_seed=seed, limit=questions)
    source = {"dataset": loaded.name, "prompts": prompts, "variant": variant}
    from datasets import Dataset  # noqa: PLC0415 - a dependency of the harness only

    return {SPLIT: Dataset.from_list([_doc_of(question, source) for question in loaded.questions])}


def _check_misspelt(others: Mapping[str, Any]) -> None:
    """Raise DatasetError for an argument that resembles a setting, since a misspelt one would be ignored silently."""
    names = ("dataset", "data", "prompts", "variant", "questions", "seed")
    for name in others:
        suggestion = nearest(name, names, cutoff=0.8)
        if suggestion is not None:
            raise DatasetError(
                f"--metadata: expected one of {', '.join(names)}, got {name!r}; did you mean {suggestion!r}?"
            )


def _check(name: str, value: object, expected: str, is_met: bool) -> None:
    if not is_met:
        raise DatasetError(f"--metadata: {name}: expected {expected}, got {shortened(value)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def forced_pass(**settings: Any) -> dict[str, Any]:
    """Return the questions of the forced pass, which are those of `first_pass` whatever its variant."""
    return first_pass(**{**settings, "variant": FORCED})


def prompt(doc: Doc) -> str:
    """Return the prompt for a question."""
    question = question_of(doc)
    source = doc[OURS]
    wording = load_prompt_set(source["prompts"])
    return "\n\n".join(wording.render(source["variant"], question.text, question.context, question.choices))


def target(doc: Doc) -> str:
    """Return the gold answer; an empty string if no right answer exists."""
    return doc["answer"] or ""


def graded(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """Parse and grade a reply as this package does; all flags are 0 if it cannot be graded.

    >>> doc = _doc_of(Question("q", "Who wrote Emma?", "Jane Austen"), {})
    >>> graded(doc, ["<answer>UNANSWERED</answer>"])
    {'is_correct': 0.0, 'is_incorrect': 0.0, 'is_not_attempted': 1.0}
    """
    question = question_of(doc)
    reading = read_reply(results[0], question.text, question.choices)
    if reading.unscored_reason is not None:
        grade = Grade.UNSCORED
    elif reading.refused:
        grade = Grade.REFUSED
    else:
        grade = grade_by_rule(GraderKind.EXACT, question, reading)
    return {name: float(grade is flagged) for name, flagged in FLAGS.items()}


def _doc_of(question: Question, source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "question_id": question.question_id,
        "question": question.text,
        "answer": question.gold,
        "aliases": list(question.aliases),
        "topic": question.topic,
        "context": question.context,
        "choices": list(question.choices),
        OURS: dict(source),
    }


def question_of(doc: Doc) -> Question:
    """Return the question in a row of these tasks."""
    return Question(
        doc["question_id"],
        doc["question"],
        doc["answer"],
        tuple(doc["aliases"]),
        doc["topic"],
        doc["context"],
        tuple(doc["choices"]),
    )
