"""Runs as exporters read them: the numbers of ``summary.json`` by name, and the outcome tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.errors import RunFolderError, shortened
from refusal_index.data.files import read_plain
from refusal_index.data.folder import ComparedRun, RunFolder, read_runs, set_members
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.summary import INCOMPLETE, summarise
from refusal_index.redaction import redacted_in
from refusal_index.render.sections import with_sections
from refusal_index.render.summary import POOLED, SUMMARY_VERSION, UNNAMED, finite_number, summary_document
from refusal_index.stats import Estimate
from refusal_index.stats.baseline import Payoffs

JOINT = ("refusal_index", "corrected_refusal_index")
"""The joint estimates of a model over its variants that are metrics."""


class ExportError(RefusalIndexError, ValueError):
    """An argument of an export that cannot be used as given; the message does not name it."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(f"{argument}: {message}")
        self.argument, self.message = argument, message


class TrackerError(RefusalIndexError, RuntimeError):
    """A tracker that did not accept a run; the run's results are unchanged."""


@dataclass(frozen=True)
class VariantResults:
    """The results of one variant of a run, or of all variants jointly."""

    name: str
    n: int | None  # scored questions; None for a joint estimate
    metrics: tuple[Estimate, ...]
    # asked, missing: questions, and those of them that are not scored; of a joint estimate over all its variants
    asked: int = 0
    missing: int = 0
    # no more of them, nor of their further draws, are missing than is tolerated, under any of its variants
    is_complete: bool = True
    # further_asked, further_missing: draws of questions after the first, and those of them that are not scored
    further_asked: int = 0
    further_missing: int = 0

    @property
    def is_joint(self) -> bool:
        """Whether it is joint over all variants; a variant of that name is not."""
        return self.n is None

    def status_of(self, metric: Estimate) -> str:
        """Return the status of a metric, which is "incomplete" for a number that is not sound."""
        return metric.status if self.is_complete or metric.estimate is None else INCOMPLETE

    @property
    def lacks(self) -> str | None:
        """What is missing, in a few words; None where it is complete."""
        parts = (self.missing, self.asked, "questions"), (self.further_missing, self.further_asked, "further draws")
        missing = " and ".join(f"{missing:,} of {asked:,} {what}" for missing, asked, what in parts if missing)
        return None if self.is_complete else f"{missing} not scored"


@dataclass(frozen=True)
class ExportedRun:
    """One model on one dataset, with its results."""

    source: Path  # the folder or file
    model: str | None
    dataset: str | None
    document: Mapping[str, Any]  # its summary as JSON holds it, without keys
    variants: tuple[VariantResults, ...]  # its metrics by variant, then the joint ones
    settings: Mapping[str, Any] = field(default_factory=dict)  # of its folder; empty for a file
    about: Mapping[str, Any] = field(default_factory=dict)
    table: pl.DataFrame | None = None  # its outcomes; None where they lie in its folder

    @property
    def folder(self) -> RunFolder | None:
        """The run's folder; None for a file."""
        return RunFolder(self.source) if self.source.is_dir() else None

    @cached_property
    def outcomes(self) -> pl.DataFrame:
        """One row a question, variant and draw."""
        return RunFolder(self.source).read_outcomes() if self.table is None else self.table

    @property
    def title(self) -> str:
        """A title, on one line."""
        name = self.model or self.source.stem
        return " ".join((f"{name} on {self.dataset}" if self.dataset else name).split())

    @property
    def key(self) -> str:
        """Distinguishes it from every other run, and stays the same: exporting again replaces what was there.

        The key of a folder is in `run.json`, and so does not change when it is moved or continued; the key of a table
        depends on its content.
        """
        if self.folder is not None:
            return key_of(self.folder)
        return _hash(self.model, self.dataset, read_plain(self.source))

    @property
    def lacks(self) -> str | None:
        """Which variants lack too many of their questions, on one line; None where none does."""
        lacking = (
            f"{variant.name}, {variant.lacks}" for variant in self.variants if variant.lacks and not variant.is_joint
        )
        return " ".join("; ".join(lacking).split()) or None

    @property
    def level(self) -> float:
        """The confidence level of every interval."""
        return float(self.document["confidence_level"])


def key_of(folder: RunFolder) -> str:
    """Return what distinguishes a run's folder from every other; raises RunFolderError where it is no run's."""
    return _hash(folder.read_id())


def _hash(*parts: object) -> str:
    whole = b"\0".join(part if isinstance(part, bytes) else str(part).encode(errors="replace") for part in parts)
    return hashlib.sha256(whole).hexdigest()[:16]


def read_exported(paths: Sequence[Path]) -> tuple[ExportedRun, ...]:
    """Read every model and dataset in some folders, sets and outcome tables.

    A folder's results are those of its `summary.json`, as they are; those of a table are computed. Raises
    RunFolderError if a folder is not a run's or has no results yet, and OutcomeTableError if a file cannot be used.
    """
    exported: list[ExportedRun] = []
    for path in paths:
        for place in [member.folder for member in set_members(path)] or [path]:
            exported += [read_folder(place)] if place.is_dir() else map(_from_table, read_runs([place]))
    return tuple(exported)


def read_folder(path: Path) -> ExportedRun:
    """Read the results in a run's folder; it raises as `read_exported` does."""
    folder = RunFolder(path)
    settings, about, document = folder.read_settings(), folder.read_about(), folder.read_summary()
    if document is None:
        raise RunFolderError(
            f"{path} holds no results yet; finish the run, or rebuild them with 'refusal-index score {path}'"
        )
    _check(folder, document)
    return _run(path, document, settings=redacted_in(settings), about=redacted_in(about))


def _run(source: Path, document: Mapping[str, Any], **more: Any) -> ExportedRun:
    """Return a run of one model on one dataset, which a summary holds one of."""
    document = redacted_in(dict(document))
    first: Mapping[str, Any] = next(iter(document["variants"]), {})
    return ExportedRun(source, first.get("model"), first.get("dataset"), document, variants_of(document), **more)


def _from_table(run: ComparedRun) -> ExportedRun:
    outcomes = pl.concat(run.variants.values())
    summary = with_sections(summarise(outcomes), outcomes, run.source)
    return _run(run.source, summary_document(summary), table=outcomes)


def _check(folder: RunFolder, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if a summary that lies in a folder, which a stranger may have made, is none."""
    anew = f"'refusal-index score {folder.path}' rebuilds it"
    version = document.get("summary_version")
    if version != SUMMARY_VERSION:
        raise RunFolderError(
            f"{folder.summary}: expected summary_version {SUMMARY_VERSION}, got {shortened(version)}; {anew}"
        )
    try:
        level = document["confidence_level"]
        if isinstance(level, bool) or not isinstance(level, float) or not 0 < level < 1:
            raise ValueError(f"confidence_level is {shortened(level)}")
        variants_of(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFolderError(
            f"{folder.summary}: expected the metrics of each variant, got something else ({shortened(error)}); {anew}"
        ) from error


def variants_of(document: Mapping[str, Any]) -> tuple[VariantResults, ...]:
    """Return the metrics of a summary; raises ValueError and the like where it is none."""
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
    """Return the fields of `VariantResults` after the metrics, for some variants together.

    A variant without further draws does not say what is missing of these.
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
    """Return the payoffs of a summary; None where the document does not state them."""
    weights = document.get("truthfulness_weights")
    payoffs = [document.get("penalty"), *(weights if isinstance(weights, list | tuple) else ())]
    match [finite_number(payoff) for payoff in payoffs]:
        case [float(penalty), float(right), float(refused), float(wrong)]:
            return Payoffs(penalty, (right, refused, wrong))
    return None
