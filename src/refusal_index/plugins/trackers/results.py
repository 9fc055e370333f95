"""Runs as exporters see them: the metrics in ``summary.json`` and the outcome tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.files import read_plain
from refusal_index.data.folder import ComparedRun, RunFolder, read_runs, set_members
from refusal_index.errors import RefusalIndexError, RunFolderError, shortened
from refusal_index.findings.summary import INCOMPLETE, summarise
from refusal_index.redaction import redacted_in
from refusal_index.render.sections import with_sections
from refusal_index.render.summary import POOLED, SUMMARY_VERSION, UNNAMED, finite_number, summary_document
from refusal_index.stats import Estimate
from refusal_index.stats.baseline import Payoffs

JOINT = ("refusal_index", "corrected_refusal_index")
"""The metrics that are also estimated jointly over all variants of a model."""


class ExportError(RefusalIndexError, ValueError):
    """An invalid argument of an export; `message` does not name the argument."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(f"{argument}: {message}")
        self.argument, self.message = argument, message


class TrackerError(RefusalIndexError, RuntimeError):
    """A tracker did not accept a run; the run's results are unchanged."""


@dataclass(frozen=True)
class VariantResults:
    """The results of one variant of a run, or of all variants jointly."""

    name: str
    n: int | None  # scored questions; None for a joint estimate
    metrics: tuple[Estimate, ...]
    # asked, missing: number of questions and how many of them are unscored, summed over the variants if joint
    asked: int = 0
    missing: int = 0
    # whether missing questions and further draws are within the tolerance under every variant
    is_complete: bool = True
    # further_asked, further_missing: number of draws after the first and how many of them are unscored
    further_asked: int = 0
    further_missing: int = 0

    @property
    def is_joint(self) -> bool:
        """Whether the results are joint over all variants; a variant may have the same name as these."""
        return self.n is None

    def status_of(self, metric: Estimate) -> str:
        """Return the status of a metric: "incomplete" if it has a value and the variant is incomplete."""
        return metric.status if self.is_complete or metric.estimate is None else INCOMPLETE

    @property
    def lacks(self) -> str | None:
        """Short description of what is missing; None if the variant is complete."""
        parts = (self.missing, self.asked, "questions"), (self.further_missing, self.further_asked, "further draws")
        missing = " and ".join(f"{missing:,} of {asked:,} {what}" for missing, asked, what in parts if missing)
        return None if self.is_complete else f"{missing} not scored"


@dataclass(frozen=True)
class ExportedRun:
    """One model on one dataset, with its results."""

    source: Path  # the run's folder, or an outcome table
    model: str | None
    dataset: str | None
    document: Mapping[str, Any]  # the summary as in `summary.json`, API keys redacted
    variants: tuple[VariantResults, ...]  # one for each variant, then the joint ones
    settings: Mapping[str, Any] = field(default_factory=dict)  # from the run's folder; empty for a table
    about: Mapping[str, Any] = field(default_factory=dict)
    table: pl.DataFrame | None = None  # the outcomes; None if they are in the run's folder

    @property
    def folder(self) -> RunFolder | None:
        """The run's folder; None for an outcome table."""
        return RunFolder(self.source) if self.source.is_dir() else None

    @cached_property
    def outcomes(self) -> pl.DataFrame:
        """The outcome table: one row for each question, variant and draw."""
        return RunFolder(self.source).read_outcomes() if self.table is None else self.table

    @property
    def title(self) -> str:
        """Title of the run, on one line."""
        name = self.model or self.source.stem
        return " ".join((f"{name} on {self.dataset}" if self.dataset else name).split())

    @property
    def key(self) -> str:
        """Stable identifier of the run, so that exporting it again replaces the earlier export.

        The key of a folder is derived from the run's ID in `run.json` and does not change when the folder is moved or
        the run continued; the key of a table is derived from its content.
        """
        if self.folder is not None:
            return key_of(self.folder)
        return _hash(self.model, self.dataset, read_plain(self.source))

    @property
    def lacks(self) -> str | None:
        """The incomplete variants and what each is missing, on one line; None if all are complete."""
        lacking = (
            f"{variant.name}, {variant.lacks}" for variant in self.variants if variant.lacks and not variant.is_joint
        )
        return " ".join("; ".join(lacking).split()) or None

    @property
    def level(self) -> float:
        """Confidence level of all intervals."""
        return float(self.document["confidence_level"])


def key_of(folder: RunFolder) -> str:
    """Return the key of a run's folder; raises RunFolderError if it is not the folder of a run."""
    return _hash(folder.read_id())


def _hash(*parts: object) -> str:
    whole = b"\0".join(part if isinstance(part, bytes) else str(part).encode(errors="replace") for part in parts)
    return hashlib.sha256(whole).hexdigest()[:16]


def read_exported(paths: Sequence[Path]) -> tuple[ExportedRun, ...]:
    """Read the runs in the given run folders, set folders and outcome tables: one for each model and dataset.

    The results of a folder are read from its `summary.json`; those of a table are computed. Raises RunFolderError if a
    folder is not that of a run or has no results yet, and OutcomeTableError if a table cannot be used.
    """
    exported: list[ExportedRun] = []
    for path in paths:
        for place in [member.folder for member in set_members(path)] or [path]:
            exported += [read_folder(place)] if place.is_dir() else map(_from_table, read_runs([place]))
    return tuple(exported)


def read_folder(path: Path) -> ExportedRun:
    """Read the results in a run's folder; raises the same errors as `read_exported`."""
    folder = RunFolder(path)
    settings, about, document = folder.read_settings(), folder.read_about(), folder.read_summary()
    if document is None:
        raise RunFolderError(
            f"{path} has no results yet; finish the run, or rebuild them with 'refusal-index score {path}'"
        )
    _check(folder, document)
    return _run(path, document, settings=redacted_in(settings), about=redacted_in(about))


def _run(source: Path, document: Mapping[str, Any], **more: Any) -> ExportedRun:
    """Return the exported run of a summary, which describes one model on one dataset."""
    document = redacted_in(dict(document))
    first: Mapping[str, Any] = next(iter(document["variants"]), {})
    return ExportedRun(source, first.get("model"), first.get("dataset"), document, variants_of(document), **more)


def _from_table(run: ComparedRun) -> ExportedRun:
    outcomes = pl.concat(run.variants.values())
    summary = with_sections(summarise(outcomes), outcomes, run.source)
    return _run(run.source, summary_document(summary), table=outcomes)


def _check(folder: RunFolder, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if the summary read from a folder, which may be untrusted, is not valid."""
    advice = f"'refusal-index score {folder.path}' rebuilds it"
    version = document.get("summary_version")
    if version != SUMMARY_VERSION:
        raise RunFolderError(
            f"{folder.summary}: expected summary_version {SUMMARY_VERSION}, got {shortened(version)}; {advice}"
        )
    try:
        level = document["confidence_level"]
        if isinstance(level, bool) or not isinstance(level, float) or not 0 < level < 1:
            raise ValueError(f"confidence_level is {shortened(level)}")
        variants_of(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFolderError(
            f"{folder.summary}: expected the metrics of each variant, got something else ({shortened(error)}); {advice}"
        ) from error


def variants_of(document: Mapping[str, Any]) -> tuple[VariantResults, ...]:
    """Return the results of each variant in a summary, then the joint ones.

    Raises KeyError, TypeError, ValueError or AttributeError if the document is not a valid summary.
    """
    variants = document["variants"]
    results = [
        VariantResults(
            _text(variant["variant"]) or UNNAMED,
            _count(variant["n"]),
            tuple(_estimate(name, value) for name, value in variant["metrics"].items()),
            *_completeness([variant]),
        )
        for variant in variants
    ]
    for pooled in document["pooled"]:
        metrics = tuple(_estimate(name, pooled[name]) for name in JOINT if pooled[name] is not None)
        members = [variant for variant in variants if variant["variant"] in pooled["variants"]]
        results.append(VariantResults(POOLED, None, metrics, *_completeness(members)))
    for variant in variants:
        _text(variant["model"]), _text(variant["dataset"])
    return tuple(results)


def _completeness(variants: Sequence[Mapping[str, Any]]) -> tuple[int, int, bool, int, int]:
    """Return the fields of `VariantResults` after `metrics`, for the given variants together.

    Variants without further draws do not count towards the fields of further draws.
    """
    further = [variant["further_draws"] for variant in variants if variant["further_draws"]]
    is_complete = all(variant["status"] != INCOMPLETE for variant in variants)
    return *_total([variant["completeness"] for variant in variants]), is_complete, *_total(further)


def _total(parts: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    return sum(_count(part["asked"]) for part in parts), sum(_count(part["unscored"]) for part in parts)


def _estimate(name: str, value: Mapping[str, Any]) -> Estimate:
    estimate, low, high = (_number(value[end]) for end in ("estimate", "low", "high"))
    status, method = value["status"], value.get("method")
    if status not in ("ok", "boundary", "undefined", "not_identified"):
        raise ValueError(f"status is {shortened(status)}")
    if method not in (None, "wilson", "score", "profile"):
        raise ValueError(f"method is {shortened(method)}")
    return Estimate(estimate, low, high, status=status, reason=_text(value["reason"]), name=name, method=method)


def _number(value: object) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"{shortened(value)} is not a number")
    return None if value is None else float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{shortened(value)} is not a count")
    return value


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{shortened(value)} is not text")
    return value


def payoffs_of(document: Mapping[str, Any]) -> Payoffs | None:
    """Return the payoffs stated in a summary, None if they are missing or not numbers."""
    weights = document.get("truthfulness_weights")
    payoffs = [document.get("penalty"), *(weights if isinstance(weights, list | tuple) else ())]
    match [finite_number(payoff) for payoff in payoffs]:
        case [float(penalty), float(right), float(refused), float(wrong)]:
            return Payoffs(penalty, (right, refused, wrong))
    return None
