"""A mix of datasets, with as many questions of each.

FaithEval's unanswerable and inconsistent questions have no right answer, so that the error rate is 1 and the index
undefined. The paper mixes them with as many of PreciseWikiQA. Part of the index of such a mix is telling the sources
apart, which is no knowledge of one's own: so each question carries its source, and the index within each source is to
be reported beside that of the mix.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from refusal_index.datasets.dataset import Dataset, DatasetError, sample
from refusal_index.outcomes.question import Question

SIGN = "+"
"""Joins the names of the parts."""


def mix(datasets: Sequence[Dataset], seed: int) -> Dataset:
    """Draw as many questions from each dataset as the smallest one has, taking turns.

    Raises DatasetError if there are fewer than two datasets, or two of the same name.

    - `datasets`: two or more, of different names.
    - `seed`: of the draw; the questions of a dataset are drawn as `sample` draws them.
    - returned: its questions have their dataset's name as `topic` and before their id.

    Examples
    --------
    >>> few = Dataset("few", (Question("1", "Who?", "Ann"),), "", "made up", "exact", "none")
    >>> many = Dataset("many", tuple(Question(str(n), f"{n}?", str(n)) for n in range(9)), "", "", "exact", "none")
    >>> mixed = mix([few, many], seed=0)
    >>> mixed.name, [question.topic for question in mixed.questions]
    ('few+many', ['few', 'many'])
    """
    names = tuple(dataset.name for dataset in datasets)
    if len(set(names)) < max(2, len(names)):
        raise DatasetError(f"mix: expected two or more datasets of different names, got {', '.join(names) or 'none'}")
    size = min(len(dataset.questions) for dataset in datasets)
    drawn = [[_of(dataset.name, one) for one in sample(dataset, size, seed).questions] for dataset in datasets]
    graders = {dataset.default_grader for dataset in datasets}
    return Dataset(
        name=SIGN.join(names),
        questions=tuple(question for turn in zip(*drawn, strict=True) for question in turn),
        sha256=hashlib.sha256("".join(dataset.sha256 for dataset in datasets).encode()).hexdigest(),
        source="; ".join(f"{dataset.name}: {dataset.source}" for dataset in datasets),
        default_grader=graders.pop() if len(graders) == 1 else "model",
        licence="; ".join(f"{dataset.name}: {dataset.licence}" for dataset in datasets),
        parts=names,
    )


def _of(name: str, question: Question) -> Question:
    return replace(question, question_id=f"{name}/{question.question_id}", topic=name)
