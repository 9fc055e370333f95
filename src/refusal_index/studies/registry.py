"""All studies by name, in the order in which they are listed and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from refusal_index.outcomes.runs import ComparedRun
from refusal_index.studies.study import Study, StudyOptions

STUDY_NAMES = (
    "results_table",
    "accuracy_refusal_plane",
    "iso_refusal_index",
    "score_variability",
    "auroc_correlation",
    "ranking_stability",
    "ranking_with_ties",
    "index_and_accuracy",
    "index_and_size",
    "hallucination_table",
    "copula_comparison",
    "sample_size",
    "prompt_agreement",
    "reliability_and_roc",
    "cost_table",
    "attenuation",
    "grading_sensitivity",
    "operating_point",
)
"""Each is a module of this package with ``NAME``, ``TITLE``, ``NEEDS`` and ``make``."""


@dataclass(frozen=True)
class StudySpec:
    """What is known of a study before it is made."""

    # name, title: for the command line, and for people
    name: str
    title: str
    needs: str  # which runs it needs, as a sentence ends that begins with "It needs"
    # makes it; raises `NotPossibleError` where the runs do not allow it
    make: Callable[[Sequence[ComparedRun], StudyOptions], Study]


@cache
def study_spec(name: str) -> StudySpec:
    """Find a study by name.

    Raises KeyError if there is none of this name.

    Examples
    --------
    >>> study_spec("results_table").title
    'Full results'
    """
    if name not in STUDY_NAMES:
        raise KeyError(name)
    module = import_module(f"refusal_index.studies.{name}")
    return StudySpec(module.NAME, module.TITLE, module.NEEDS, module.make)


def study_specs() -> tuple[StudySpec, ...]:
    """Return all studies in order."""
    return tuple(study_spec(name) for name in STUDY_NAMES)


def each_study(runs: Sequence[ComparedRun], options: StudyOptions) -> Iterator[tuple[StudySpec, Study | ValueError]]:
    """Make every study that the runs allow, and give the error of each of the others.

    A `NotPossibleError` says what other runs it needs; any other is of a study that cannot take these outcomes, which
    should not cost the others.
    """
    for spec in study_specs():
        try:
            made: Study | ValueError = spec.make(runs, options)
        except ValueError as error:
            made = error
        yield spec, made
