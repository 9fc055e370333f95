"""Runs as exporters see them: the metrics in ``summary.json`` and the outcome tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from refusal_index.data.files import read_plain
from refusal_index.data.folder import ComparedRun, RunFolder, read_runs, set_members
from refusal_index.errors import RefusalIndexError, RunFolderError, shortened
from refusal_index.findings.summary import INCOMPLETE, summarise
from refusal_index.redaction import redacted_in
from refusal_index.render.sections import with_sections
from refusal_index.render.summary import POOLED, SUMMARY_VERSION, UNNAMED, finite_number, summary_document
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


METRICS_SCHEMA: Mapping[str, pl.DataType] = MappingProxyType(
    {
        "model": pl.String(),
        "dataset": pl.String(),
        "variant": pl.String(),
        "metric": pl.String(),
        "estimate": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "status": pl.Enum(["ok", "boundary", "undefined", "not_identified", INCOMPLETE]),
        "reason": pl.String(),
        "method": pl.Enum(["wilson", "score", "profile"]),
        "n": pl.Int64(),
        "asked": pl.Int64(),
        "missing": pl.Int64(),
        "further_asked": pl.Int64(),
        "further_missing": pl.Int64(),
        "lacks": pl.String(),
    }
)
"""The columns of `ExportedRun.metrics`.

`n` is the number of scored questions, null for an estimate that is joint over all variants. `asked` and `missing` are
the number of questions and how many of them are unscored, `further_asked` and `further_missing` those of draws after
the first; all are summed over the variants if joint. `lacks` is a short description of what is missing, null if the
variant is complete. A metric that has a value has the status "incomplete" if its variant is.
"""


@dataclass(frozen=True)
class ExportedRun:
    """One model on one dataset, with its results."""

    source: Path  # the run's folder, or an outcome table
    model: str | None
    dataset: str | None
    document: Mapping[str, Any]  # the summary as in `summary.json`, API keys redacted
    metrics: pl.DataFrame  # a row for each variant and metric, then the joint ones; see `METRICS_SCHEMA`
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
        lacking = self.metrics.filter(pl.col("n").is_not_null()).select("variant", "lacks").drop_nulls("lacks")
        return " ".join("; ".join(map(", ".join, lacking.unique(maintain_order=True).iter_rows())).split()) or None

    @property
    def level(self) -> float:
        """Confidence level of all intervals."""
        return float(self.document["confidence_level"])


def key_of(folder: RunFolder) -> str:
    """Return the key of a run's folder; raises RunFolderError if it is not the folder of a run."""
    return _hash(folder.read_id())


def _hash(*parts: object) -> str:
    content = b"\0".join(part if isinstance(part, bytes) else str(part).encode(errors="replace") for part in parts)
    return hashlib.sha256(content).hexdigest()[:16]


def read_exported(paths: Sequence[Path]) -> tuple[ExportedRun, ...]:
    """Read the runs in the given run folders, set folders and outcome tables: one for each model and dataset.

    The results of a folder are read from its `summary.json`; those of a table are computed. Raises RunFolderError if a
    folder is not that of a run or has no results yet, and OutcomeTableError if a table cannot be used.
    """
    exported: list[ExportedRun] = []
    for path in paths:
        for folder in [member.folder for member in set_members(path)] or [path]:
            exported += [read_folder(folder)] if folder.is_dir() else map(_from_table, read_runs([folder]))
    return tuple(exported)


def read_folder(path: Path) -> ExportedRun:
    """Read the results in a run's folder; raises the same errors as `read_exported`."""
    folder = RunFolder(path)
    settings, about, document = folder.read_settings(), folder.read_about(), folder.read_summary()
    if document is None:
        raise RunFolderError(
            f"{path} has no results yet; finish the run, or rebuild them with 'refusal-index score {path}'"
        )
    advice = f"'refusal-index score {folder.path}' rebuilds it"
    version = document.get("summary_version")
    if version != SUMMARY_VERSION:
        raise RunFolderError(
            f"{folder.summary}: expected summary_version {SUMMARY_VERSION}, got {shortened(version)}; {advice}"
        )
    try:  # the folder may be untrusted
        level = document["confidence_level"]
        if isinstance(level, bool) or not isinstance(level, float) or not 0 < level < 1:
            raise ValueError(f"confidence_level is {shortened(level)}")
        return _run(path, document, settings=redacted_in(settings), about=redacted_in(about))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, pl.exceptions.PolarsError) as error:
        why = shortened(str(error).partition("\n")[0], 160)
        raise RunFolderError(
            f"{folder.summary}: expected the metrics of each variant, got something else ({why}); {advice}"
        ) from error


def _run(source: Path, document: Mapping[str, Any], **more: Any) -> ExportedRun:
    """Return the exported run of a summary, which describes one model on one dataset."""
    document = redacted_in(dict(document))
    first: Mapping[str, Any] = next(iter(document["variants"]), {})
    return ExportedRun(source, first.get("model"), first.get("dataset"), document, metrics_of(document), **more)


def _from_table(run: ComparedRun) -> ExportedRun:
    outcomes = pl.concat(run.variants.values())
    summary = with_sections(summarise(outcomes), outcomes, run.source)
    return _run(run.source, summary_document(summary), table=outcomes)


def metrics_of(document: Mapping[str, Any]) -> pl.DataFrame:
    """Return the metrics of each variant in a summary, then the joint ones, with the columns of `METRICS_SCHEMA`.

    Raises KeyError, TypeError, ValueError, AttributeError, OverflowError or PolarsError if the document is not a valid
    summary.
    """
    variants = document["variants"]
    groups = [
        (variant, variant["variant"] or UNNAMED, variant["n"], variant["metrics"], [variant]) for variant in variants
    ]
    for pooled in document["pooled"]:
        joint = {name: pooled[name] for name in JOINT if pooled[name] is not None}
        members = [variant for variant in variants if variant["variant"] in pooled["variants"]]
        groups.append((pooled, POOLED, None, joint, members))
    rows = []
    for group, variant, n, metrics, members in groups:
        is_complete = all(member["status"] != INCOMPLETE for member in members)
        n_asked, missing = _totals(member["completeness"] for member in members)
        further_asked, further_missing = _totals(member["further_draws"] for member in members)
        parts = (missing, n_asked, "questions"), (further_missing, further_asked, "repeated samples")
        unscored = " and ".join(f"{missing:,} of {n_asked:,} {label}" for missing, n_asked, label in parts if missing)
        lacks = None if is_complete else f"{unscored} not scored"
        counts = (*_numbers(n), n_asked, missing, further_asked, further_missing, lacks)
        for metric, value in metrics.items():
            status = value["status"] if is_complete or value["estimate"] is None else INCOMPLETE
            ends = _numbers(value["estimate"], value["low"], value["high"])
            shown = (*ends, status, value["reason"], value.get("method"))
            rows.append((group["model"], group["dataset"], variant, metric, *shown, *counts))
    columns = zip(*rows, strict=True) if rows else [()] * len(METRICS_SCHEMA)
    return pl.DataFrame(dict(zip(METRICS_SCHEMA, columns, strict=True)), schema=dict(METRICS_SCHEMA))


def _totals(parts: Iterable[Mapping[str, Any] | None]) -> tuple[int, int]:
    """Return the sums of the asked and of the unscored rows; None, for a variant without further draws, adds none."""
    pairs = [_numbers(part["asked"], part["unscored"]) for part in parts if part]
    return sum(n_asked for n_asked, _ in pairs), sum(unscored for _, unscored in pairs)


def _numbers(*values: Any) -> tuple[Any, ...]:
    """Return values for Polars to check, or raise TypeError for a Boolean, which Polars reads as a number."""
    for value in values:
        if isinstance(value, bool):
            raise TypeError(f"{value} is not a number")
    return values


def payoffs_of(document: Mapping[str, Any]) -> Payoffs | None:
    """Return the payoffs stated in a summary, None if they are missing or not numbers."""
    weights = document.get("truthfulness_weights")
    payoffs = [document.get("penalty"), *(weights if isinstance(weights, list | tuple) else ())]
    match [finite_number(payoff) for payoff in payoffs]:
        case [float(penalty), float(right), float(refused), float(wrong)]:
            return Payoffs(penalty, (right, refused, wrong))
    return None
