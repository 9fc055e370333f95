"""Runs to be compared: where their outcomes come from, what to call them, and which of their questions to compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.errors import OutcomeTableError, RunFolderError, shortened, suggestion
from refusal_index.data.folder import Asked, RunFolder, member_of_set, set_members
from refusal_index.data.outcome_table import read_outcomes, scores_of_outcomes
from refusal_index.data.rates import variant_groups
from refusal_index.data.run_json import refusal_setting
from refusal_index.data.sampling import OWN_COLUMNS, OutcomeMatrix, Sampling, outcome_matrix

NEARLY_ALL = 0.9
"""Share of the questions of the largest of several runs that all of them must have to be cut down to."""

SHOWN = 3
"""Most errors to tell when nothing can be read."""


@dataclass(frozen=True)
class ComparedRun:
    """One model on one dataset, from a run's folder or an outcome table."""

    label: str  # what to call it, unlike that of any other run
    source: Path  # the folder or file
    # model, dataset: what the set that the run lies in calls them, else what the table says; None where neither does
    model: str | None
    dataset: str | None
    variants: Mapping[str | None, pl.DataFrame]  # the outcomes by variant, in the order of the table
    # what the run was asked, from its folder; empty for a file
    settings: Mapping[str, Any] = field(default_factory=dict)
    # scores of how likely its answers are right, with the columns of `CONFIDENCE_SCHEMA`; None where there are none
    confidence: pl.DataFrame | None = None
    step: int | None = None  # of the training that its model is a checkpoint of; None where it is none, or not known
    # about, asked: how the run was made, and how much was asked under each variant, where whoever reads it looks
    about: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str | None, Asked] = field(default_factory=dict)

    @property
    def model_id(self) -> str | None:
        """The model as its outcomes have it, whatever a set calls it."""
        return self._in_table("model")

    @property
    def dataset_id(self) -> str | None:
        """The dataset as its outcomes have it, whatever a set calls it."""
        return self._in_table("dataset")

    @property
    def has_no_variants(self) -> bool:
        """Whether its outcomes name no variant."""
        return set(self.variants) == {None}

    def _in_table(self, column: str) -> str | None:
        outcomes = next(iter(self.variants.values()))
        return None if outcomes.is_empty() else outcomes[column][0]


@dataclass(frozen=True)
class FoundRuns:
    """The runs that could be read, and a sentence on each of the others."""

    runs: tuple[ComparedRun, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """Which questions a comparison rests on."""

    matrix: OutcomeMatrix  # one row a run
    # whether only questions that every run has a grade for are in it; else the runs have other questions and are
    # compared as they are
    paired: bool
    left_out: tuple[int, ...]  # graded questions of each run that are not in it


def read_runs(paths: Sequence[Path], sampling: Sampling = OWN_COLUMNS) -> tuple[ComparedRun, ...]:
    """Read every model and dataset in some folders and files.

    Raises RunFolderError if a folder is not a run's, or its outcomes are missing, and OutcomeTableError if a file
    cannot be used.

    - `paths`: runs' folders, folders of sets, which stand for all of their runs, and outcome tables. What is given
      twice, by itself or within its set, counts once.
    - `sampling`: which of their columns say how questions were sampled.
    """
    runs, errors = _read_all(paths, sampling)
    if errors:
        raise errors[0]
    return _labelled(runs)


def find_runs(paths: Sequence[Path], sampling: Sampling = OWN_COLUMNS) -> FoundRuns:
    """Read every run that can be read, and say why the others cannot.

    Raises RunFolderError or OutcomeTableError if a path does not exist, or no run can be read.

    - `paths`, `sampling`: as `read_runs` takes them.
    """
    runs, errors = _read_all(paths, sampling)
    if len(errors) > 1 and not runs:
        more = f"; and {len(errors) - SHOWN:,} more" if len(errors) > SHOWN else ""
        raise RunFolderError(f"none of {len(errors):,} runs can be read: {'; '.join(map(str, errors[:SHOWN]))}{more}")
    if errors and not runs:
        raise errors[0]
    return FoundRuns(_labelled(runs), tuple(str(error) for error in errors))


def compared_runs(source: Path, outcomes: pl.DataFrame, settings: Mapping[str, Any]) -> list[ComparedRun]:
    """Split an outcome table by model and dataset; the label of each is its model, else the name of the source.

    - `source`: the folder or file; of a run that lies in a set, model and dataset are called as the set does.
    - `outcomes`: the table.
    - `settings`: what the run was asked; empty for a file.
    """
    found: dict[tuple[str | None, str | None], dict[str | None, pl.DataFrame]] = {}
    for group in variant_groups(outcomes):
        found.setdefault((group.model, group.dataset), {})[group.variant] = group.outcomes
    runs = [
        ComparedRun(
            model or source.stem, source, model, dataset, variants, settings, _confidence(source, variants.values())
        )
        for (model, dataset), variants in found.items()
    ]
    member = member_of_set(source)
    if member is None or len(runs) != 1:
        return runs
    return [replace(runs[0], label=member.model, model=member.model, dataset=member.dataset, step=member.step)]


def _confidence(source: Path, variants: Iterable[pl.DataFrame]) -> pl.DataFrame | None:
    """Return the scores that lie in a run's folder, else those that its outcome table holds; None where neither has."""
    in_folder = RunFolder(source).read_confidence() if source.is_dir() else None
    scores = scores_of_outcomes(pl.concat(variants)) if in_folder is None else in_folder
    return scores if scores.height else None


def shared_variants(runs: Sequence[ComparedRun]) -> tuple[str | None, ...]:
    """Return the variants that every run has, in the order of the first run."""
    return tuple(variant for variant in runs[0].variants if all(variant in run.variants for run in runs))


def match(runs: Sequence[ComparedRun], variants: Sequence[str | None]) -> Match:
    """Match one variant of every run by question.

    Two runs that have a grade for half of the smaller one's questions or more in common are compared on those: each
    question with itself. So are more runs where nearly all questions are common to all of them. Others are compared on
    all that they have: whatever two of them share still counts as shared. Raises OutcomeTableError if the same question
    id stands for different questions.

    - `runs`, `variants`: the runs, and which variant of each.
    """
    matrix = outcome_matrix([run.variants[variant] for run, variant in zip(runs, variants, strict=True)])
    scored = matrix.scored.sum(axis=1)
    shared = int(matrix.shared.sum())
    enough = scored.min() / 2 if len(runs) == 2 else NEARLY_ALL * scored.max()
    if shared < enough or shared == 0:
        return Match(matrix, paired=False, left_out=(0,) * len(runs))
    return Match(matrix.of_questions(matrix.shared), paired=True, left_out=tuple((scored - shared).tolist()))


def differing_settings(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """Name the settings, other than the model, in which runs that were made by this tool differ.

    Runs on different questions of one dataset do not differ: only the questions that they share are compared.
    """
    known = [run.settings for run in runs if run.settings]
    keys = ("dataset", "grader", "prompts", "placement", "decoding", "comparability_version")
    return tuple(key for key in keys if len({_comparable(settings, key) for settings in known}) > 1)


def _comparable(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    if key == "dataset" and isinstance(value, Mapping):
        value = {name: value.get(name) for name in ("name", "sha256")}
    return json.dumps(value, sort_keys=True)


def check_same_refusals(runs: Sequence[ComparedRun]) -> None:
    """Raise OutcomeTableError if rules recognised refusals in different ways: what they count is not the same."""
    ways = [(run.label, refusal_setting(run.settings)) for run in runs if run.settings]
    by_rule = [(label, way) for label, way in ways if way is not None]
    if len({way for _, way in by_rule}) > 1:
        listed = "; ".join(f"{label}: {shortened(way)}" for label, way in by_rule)
        raise OutcomeTableError(
            f"expected runs whose refusals are recognised in one way, got several ({listed}); grade one again with "
            "'refusal-index regrade' and the --refusal of the other"
        )


def chosen_variant(runs: Sequence[ComparedRun], name: str) -> str:
    """Return a variant that every run has; raises OutcomeTableError if a run lacks it."""
    for run in runs:
        if name not in run.variants:
            known = [str(variant) for variant in run.variants]
            raise OutcomeTableError(
                f"{run.label} has no variant {name!r}; expected one of {', '.join(known)}{suggestion(name, known)}"
            )
    return name


def read_outcomes_of(path: Path, sampling: Sampling = OWN_COLUMNS) -> pl.DataFrame:
    """Read the outcome table of a run's folder, or a file.

    Raises RunFolderError if a folder is not a run's, or its outcomes are missing, and OutcomeTableError if a file
    cannot be used.
    """
    if not path.is_dir():
        return read_outcomes(path, sampling)
    folder = RunFolder(path)
    folder.read_settings()
    if not folder.outcomes.exists():
        raise RunFolderError(
            f"{path} holds no outcomes yet; finish the run, or rebuild them with 'refusal-index score {path}'"
        )
    return folder.read_outcomes(sampling=sampling)


def _read_all(
    paths: Sequence[Path], sampling: Sampling
) -> tuple[list[ComparedRun], list[OutcomeTableError | RunFolderError]]:
    """Read every run once, those of a set in its place, and collect the errors of those that cannot be read."""
    for path in paths:
        if not path.exists():
            raise OutcomeTableError(f"{path} cannot be read: there is no such file or folder; check the path")
    places: dict[Path, Path] = {}
    for path in paths:
        for place in [member.folder for member in set_members(path)] or [path]:
            places.setdefault(place.resolve(), place)
    runs: list[ComparedRun] = []
    errors: list[OutcomeTableError | RunFolderError] = []
    for path in places.values():
        try:
            if not path.exists():
                raise RunFolderError(f"{path} has not started yet; repeat the command that made its set")
            settings = RunFolder(path).read_settings() if path.is_dir() else {}
            runs += compared_runs(path, read_outcomes_of(path, sampling), settings)
        except (OutcomeTableError, RunFolderError) as error:
            errors.append(error)
    return runs, errors


def _labelled(runs: Sequence[ComparedRun]) -> tuple[ComparedRun, ...]:
    """Tell runs apart by what tells them apart: the model, else the dataset too, else the place."""
    ways: tuple[Callable[[ComparedRun], str], ...] = (
        lambda run: run.label,
        lambda run: f"{run.label}, {run.dataset}",
        lambda run: f"{run.label} ({run.source.name})",
        lambda run: f"{run.label} ({run.source})",
        lambda run: f"{run.label}, {run.dataset} ({run.source})",
    )
    for way in ways:
        labels = [way(run) for run in runs]
        if max(Counter(labels).values(), default=1) == 1:
            break
    return tuple(replace(run, label=label) for run, label in zip(runs, labels, strict=True))
