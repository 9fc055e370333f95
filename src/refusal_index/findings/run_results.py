"""Runs with their results, read from folders and outcome tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from refusal_index.data.analysis import DEFAULT_ANALYSIS, DEFAULT_CONFIDENCE_LEVEL, Analysis, AnalysisError
from refusal_index.data.asked import Asked
from refusal_index.data.files import read_json, read_plain
from refusal_index.data.folder import RunFolder, read_outcomes_of, recorded_in
from refusal_index.data.outcome import NOT_FINISHED, REQUEST_FAILED
from refusal_index.data.outcome_table import OPTIONAL, all_scores, read_outcomes
from refusal_index.data.rates import variant_groups
from refusal_index.data.run_json import Stop, is_deterministic
from refusal_index.data.run_sets import member_of_set, runs_below
from refusal_index.errors import (
    NotWrittenError,
    OutcomeTableError,
    RefusalIndexError,
    RunFolderError,
    checked_path,
    shortened,
    suggestion,
)
from refusal_index.findings.conclusions import goal
from refusal_index.findings.draws import corrected_indices
from refusal_index.findings.labels import GradeChanges, grade_changes
from refusal_index.findings.metric_table import metrics_of
from refusal_index.findings.metrics import Printable, Statement, rendering
from refusal_index.findings.models_asked import run_caveats
from refusal_index.findings.reply_checks import ReplyChecks
from refusal_index.findings.sections import with_sections
from refusal_index.findings.summary import Summary, Usage, VariantSummary, by_topic, is_complete, summarise, usage_of
from refusal_index.stats import CorrectedRefusalIndexResult, RefusalIndexResult, refusal_index

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Missing:
    """An unfinished question, and why."""

    variant: str
    question_id: str
    error: str


@dataclass(frozen=True, eq=False, repr=False)
class RunResults(Printable):
    """A run with its results, or the outcomes of one model on one dataset from a table.

    Attributes
    ----------
    label
        Its name, unique among runs that were read together.
    source
        The folder of the run, or the file of the table.
    model, dataset
        Their names in the run's set, else in the outcome table; None if in neither.
    table
        The outcome table; None for that in the folder, which is read when needed.
    settings, about
        The run's settings, and what else its folder records; empty for a table.
    scores
        Its confidence scores, if they were read already.
    step
        The training step, if its model is a checkpoint; None otherwise or if unknown.
    asked
        How much was asked under each variant; empty if that was not read.
    analysis
        How its results are computed.
    computed
        The summary, if it was computed already; None for one that is computed when needed.
    missing
        Questions that failed or are unfinished, if known.
    disagreements
        Number of replies on which two graders disagree.
    changes
        What regrading changed; None for a run that was graded once.
    written
        The summary as written in its folder, if it was read.
    ended
        Why the command that asked its questions ended early as planned; None if it did not.
    outdated
        Methods of confidence whose scores rested on grades or draws that have changed, and were removed.
    """

    label: str
    source: Path
    model: str | None
    dataset: str | None
    table: pl.LazyFrame | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    scores: pl.DataFrame | None = None
    step: int | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str | None, Asked] = field(default_factory=dict)
    analysis: Analysis = DEFAULT_ANALYSIS
    computed: Summary | None = None
    missing: tuple[Missing, ...] = ()
    disagreements: int = 0
    changes: GradeChanges | None = None
    written: Mapping[str, Any] | None = None
    ended: str | None = None
    outdated: tuple[str, ...] = ()

    @classmethod
    def of_tables(
        cls,
        label: str,
        source: Path,
        model: str | None,
        dataset: str | None,
        tables: Mapping[str | None, pl.DataFrame],
        settings: Mapping[str, Any] | None = None,
        confidence: pl.DataFrame | None = None,
        **others: Any,
    ) -> RunResults:
        """Return the results of one model on one dataset from its outcome tables by variant."""
        run = cls(label, source, model, dataset, _joined(tables), settings or {}, confidence, **others)
        run.__dict__["tables"] = tables  # fills the cached property
        return run

    def with_tables(self, tables: Mapping[str | None, pl.DataFrame]) -> RunResults:
        """Return the run with other outcomes, by variant."""
        run = replace(self, table=_joined(tables), computed=None, written=None, missing=(), changes=None)
        run.__dict__["tables"] = tables
        return run

    @cached_property
    def rows(self) -> pl.LazyFrame:
        """The outcome table, one row per question, variant and draw; a large one stays in its file."""
        return self.folder.read_outcomes().lazy() if self.table is None else self.table

    @cached_property
    def outcomes(self) -> pl.DataFrame:
        """The outcome table in memory, one row per question, variant and draw."""
        return self.rows.collect()

    @cached_property
    def tables(self) -> Mapping[str | None, pl.DataFrame]:
        """The outcome tables of its variants, in the order of the table."""
        return {group.variant: group.outcomes for group in variant_groups(self.outcomes)}

    @cached_property
    def summary(self) -> Summary:
        """Every metric of every variant, with intervals and caveats."""
        if self.computed is not None:
            return self.computed
        summary = summarise(
            self.outcomes,
            self.analysis.with_recorded([self.about]),
            usage=recorded_usage(self),
            replies=_recorded(self, "replies", ReplyChecks.read),
            is_deterministic=self.is_deterministic,
            answered_only=bool(self.settings.get("answered_only")),
            run_caveats=run_caveats(self.settings, self.about),
        )
        return with_sections(summary, self.outcomes, self.source)

    def by_topic(self) -> Summary:
        """Return a summary in which each topic is a dataset of its own.

        Raises
        ------
        OutcomeTableError
            If no question has a topic.
        """
        return by_topic(self.outcomes, self.analysis.with_recorded([self.about]))

    @property
    def confidence(self) -> pl.DataFrame | None:
        """Its confidence scores, with the columns of `CONFIDENCE_SCHEMA`; None if there are none."""
        return scores_of(self.source, self.rows) if self.scores is None else self.scores

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The summary as in `summary.json`, a JSON-serialisable dictionary."""
        return rendering().run_document(self) if self.written is None else self.written

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """A row for each variant and metric, then the joint ones, with the columns of `METRICS_SCHEMA`.

        Raises RunFolderError if the summary in the run's folder is damaged.
        """
        try:
            return metrics_of(self.document)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, pl.exceptions.PolarsError) as error:
            why = shortened(str(error).partition("\n")[0], 160)
            raise RunFolderError(
                f"{self.folder.summary}: expected the metrics of each variant, got something else ({why}); "
                f"'refusal-index score {self.source}' rebuilds it"
            ) from error

    @property
    def lacks(self) -> str | None:
        """The incomplete variants and what each is missing, on one line; None if all are complete."""
        lacking = self.metrics.filter(pl.col("n").is_not_null()).select("variant", "lacks").drop_nulls("lacks")
        return " ".join("; ".join(map(", ".join, lacking.unique(maintain_order=True).iter_rows())).split()) or None

    @property
    def title(self) -> str:
        """Its model and dataset, on one line."""
        name = self.model or self.source.stem
        return " ".join((f"{name} on {self.dataset}" if self.dataset else name).split())

    @property
    def key(self) -> str:
        """Stable identifier, so that exporting it again replaces the earlier export.

        The key of a folder is derived from the run's ID in `run.json` and does not change when the folder is moved or
        the run continued; the key of a table is derived from its content.
        """
        if self.is_in_folder:
            return key_of(self.folder)
        return _hash(self.model, self.dataset, read_plain(self.source))

    @property
    def path(self) -> Path:
        """The run's folder, or the file of the table."""
        return self.source

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return RunFolder(self.source)

    @property
    def is_in_folder(self) -> bool:
        """Whether it was read from a run's folder, not from a table."""
        return self.source.is_dir()

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of its variants; "all" for one without a name."""
        return tuple(variant.name for variant in self.summary.variants)

    @property
    def model_id(self) -> str | None:
        """The model's name in the outcome table, which may differ from its name in a set."""
        return self._in_table("model")

    @property
    def dataset_id(self) -> str | None:
        """The dataset's name in the outcome table, which may differ from its name in a set."""
        return self._in_table("dataset")

    @property
    def is_deterministic(self) -> bool:
        """Whether its model was sent temperature 0 in all requests."""
        return is_deterministic(self.settings, self.about)

    @property
    def has_no_variants(self) -> bool:
        """Whether its outcome table names no variant."""
        return set(self.tables) == {None}

    @property
    def is_complete(self) -> bool:
        """Whether every variant has at least 98% of its questions and of their further draws."""
        return is_complete(self.summary)

    @property
    def stopped(self) -> Stop | None:
        """Where it stopped before all was asked, since that was enough; None if it did not."""
        return Stop.read(self.about)

    @property
    def goal(self) -> Statement | None:
        """Whether its interval is as narrow as was asked for; None if nothing was, or it stopped for that."""
        return goal(self.about, self.summary)

    @property
    def unmet_goal(self) -> str | None:
        """That its interval is wider than `half_width`, in words; None if it is not."""
        return self._goal_in_words("unmet_goal")

    @property
    def met_goal(self) -> str | None:
        """That its interval is within `half_width`, though it did not stop early, in words; None if it is not."""
        return self._goal_in_words("met_goal")

    def refusal_index(self, variant: str | None = None) -> RefusalIndexResult:
        """Return RI of one variant, estimated from one response per question, with intervals by method.

        Parameters
        ----------
        variant
            Its name; optional if there is only one variant.

        Raises
        ------
        OutcomeTableError
            If the run has no such variant.
        """
        return refusal_index(self._variant(variant).table)

    def corrected_refusal_index(self, variant: str | None = None) -> CorrectedRefusalIndexResult:
        """Return RI corrected for sampling noise, from repeated samples; takes the arguments of `refusal_index`.

        It is undefined, with status ``"no_repeated_questions"``, if no question was sampled more than once. At
        temperature 0 it equals RI, unless repeated samples differ.

        Raises
        ------
        OutcomeTableError
            If the run has no such variant.
        """
        name = self._variant(variant).variant
        rows = self.rows.filter(pl.col("variant").eq_missing(name)).collect()
        return corrected_indices([rows], [self.is_deterministic])[0]

    def to_pandas(self) -> pd.DataFrame:
        """Return the outcome table as a pandas DataFrame; needs pandas."""
        import pandas as pd  # noqa: PLC0415 - a package that only this needs

        return pd.DataFrame(self.outcomes.to_dict(as_series=False))

    def report(self, path: str | Path | None = None) -> Path:
        """Write a self-contained HTML report of the run, and return its path.

        Parameters
        ----------
        path
            Where to write it; by default `report.html` in the run's folder.

        Raises
        ------
        NotWrittenError
            If it cannot be written there.
        RunFolderError
            If no path is given and the run's folder is gone, or the run is a table.
        """
        if path is None and not self.is_in_folder:
            raise RunFolderError(f"{self.source} is not the folder of a run; name a file for the report")
        target = self.folder.report if path is None else checked_path(path, "path")
        run = self
        if self.is_in_folder:  # scores may have been added since the run was opened
            run = replace(self, scores=None, computed=with_sections(self.summary, self.rows, self.source))
        try:
            rendering().write_report([run], target)
        except OSError as error:
            raise NotWrittenError(target, error) from error
        return target

    def __repr__(self) -> str:
        try:
            return f"RunResults({str(self.source)!r}, RI {rendering().estimate_text(self.summary.index)})"
        except RefusalIndexError:  # its folder is gone, or is damaged
            return f"RunResults({str(self.source)!r})"

    def _goal_in_words(self, code: str) -> str | None:
        if self.goal is None or self.goal.code != code:
            return None
        return rendering().sentence(self.goal)

    def _variant(self, variant: str | None) -> VariantSummary:
        if variant is None and len(self.variants) == 1:
            variant = self.variants[0]
        if variant not in self.variants:
            guess = suggestion(variant or "", self.variants)
            raise OutcomeTableError(f"variant: expected one of {', '.join(self.variants)}, got {variant!r}{guess}")
        return self.summary.variants[self.variants.index(variant)]

    def _in_table(self, column: str) -> str | None:
        names = self.rows.select(column).head(1).collect()
        value: str | None = None if names.is_empty() else names.item()
        return value


def _joined(tables: Mapping[str | None, pl.DataFrame]) -> pl.LazyFrame:
    return pl.concat(tables.values()).lazy() if tables else pl.LazyFrame()


def key_of(folder: RunFolder) -> str:
    """Return the key of a run's folder; raises RunFolderError if it is not the folder of a run."""
    return _hash(folder.read_id())


def _hash(*parts: object) -> str:
    content = b"\0".join(part if isinstance(part, bytes) else str(part).encode(errors="replace") for part in parts)
    return hashlib.sha256(content).hexdigest()[:16]


SHOWN = 3
"""Maximum number of errors to show if no run can be read."""


@dataclass(frozen=True)
class FoundRuns:
    """The runs that could be read, and the errors of the others."""

    runs: tuple[RunResults, ...]
    left_out: tuple[str, ...]


def read_runs(sources: Sequence[Path | RunResults], analysis: Analysis = DEFAULT_ANALYSIS) -> tuple[RunResults, ...]:
    """Read every model and dataset in folders and files.

    Raises RunFolderError if a folder is not a run's, or its outcomes are missing, and OutcomeTableError if a file
    cannot be used.

    - `sources`: folders of runs, folders of sets and other folders (meaning all runs in them), outcome tables, and runs
      in memory; duplicates are read once.
    - `analysis`: how to compute their results.
    """
    runs, errors = _read_all(sources, analysis)
    if errors:
        raise errors[0]
    return _labelled(runs)


def find_runs(paths: Sequence[Path], analysis: Analysis = DEFAULT_ANALYSIS) -> FoundRuns:
    """Read every run that can be read, and collect the errors of the others.

    Raises RunFolderError or OutcomeTableError if a path does not exist, or no run can be read.

    - `paths`, `analysis`: as for `read_runs`.
    """
    runs, errors = _read_all(paths, analysis)
    if len(errors) > 1 and not runs:
        more = f"; and {len(errors) - SHOWN:,} more" if len(errors) > SHOWN else ""
        raise RunFolderError(f"none of {len(errors):,} runs can be read: {'; '.join(map(str, errors[:SHOWN]))}{more}")
    if errors and not runs:
        raise errors[0]
    return FoundRuns(_labelled(runs), tuple(str(error) for error in errors))


def open_run(path: str | Path) -> RunResults:
    """Open the folder of a run with results; nothing in it is changed.

    Raises
    ------
    RunFolderError
        If it is not a single run's folder, or has no results yet.
    """
    folder = RunFolder(checked_path(path, "path"))
    folder.read_settings()
    runs = read_runs([folder.path])
    if len(runs) != 1:
        raise RunFolderError(f"{path}: expected the folder of one run, got {len(runs)} runs")
    document = folder.read_summary()
    return _changed(
        runs[0],
        written=document,
        analysis=analysis_of(document or {}) or DEFAULT_ANALYSIS,
        missing=tuple(_unfinished(runs[0].outcomes)),
        disagreements=_count((document or {}).get("disagreements")),
        changes=_changes(runs[0]),
    )


def analysis_of(document: Mapping[str, Any]) -> Analysis | None:
    """Return how a summary was computed; None if it does not say so, or in a form that is not valid."""
    try:
        right, refused, wrong = map(_number, document["truthfulness_weights"])
        return Analysis(
            float(document.get("confidence_level", DEFAULT_CONFIDENCE_LEVEL)),
            _number(document["weighted_score_p"]),
            (right, refused, wrong),
        )
    except (AnalysisError, KeyError, TypeError, ValueError, OverflowError):
        return None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {value!r}")
    return float(value)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _unfinished(outcomes: pl.DataFrame) -> Iterator[Missing]:
    """Yield the questions that failed or are unfinished; of the errors, the table has only the kind."""
    reasons = outcomes.filter(pl.col("unscored_reason").is_in([NOT_FINISHED, REQUEST_FAILED]))
    rows = reasons.select("variant", "question_id", "unscored_reason").unique(
        ["variant", "question_id"], keep="first", maintain_order=True
    )
    for variant, question_id, reason in rows.iter_rows():
        yield Missing(str(variant), question_id, reason)


def _changes(run: RunResults) -> GradeChanges | None:
    """Return what regrading changed; None for a run that was graded once, or whose table from before is gone."""
    if "regraded_from" not in run.settings or not run.folder.before.exists():
        return None
    try:
        return grade_changes(run.folder.read_outcomes(run.folder.before), run.outcomes)
    except OutcomeTableError:
        return None


def runs_of_table(
    source: Path,
    outcomes: pl.DataFrame,
    settings: Mapping[str, Any],
    about: Mapping[str, Any] | None = None,
    analysis: Analysis = DEFAULT_ANALYSIS,
) -> list[RunResults]:
    """Split an outcome table by model and dataset; labels are the models, else the name of the source.

    - `source`: the folder or file; for a run in a set, model and dataset get their names in the set.
    - `outcomes`: the table.
    - `settings`, `about`: from the run's folder; empty for a file.
    - `analysis`: how to compute the results.
    """
    by_run: dict[tuple[str | None, str | None], dict[str | None, pl.DataFrame]] = {}
    for group in variant_groups(outcomes):
        by_run.setdefault((group.model, group.dataset), {})[group.variant] = group.outcomes
    runs = [
        RunResults.of_tables(
            model or source.stem,
            source,
            model,
            dataset,
            tables,
            settings,
            scores_of(source, pl.concat(tables.values()).lazy()),
            about=about or {},
            analysis=analysis,
        )
        for (model, dataset), tables in by_run.items()
    ]
    if len(runs) != 1:
        return runs
    return [_changed(runs[0], **names_in_set(source))]


def names_in_set(source: Path) -> dict[str, Any]:
    """Return the label, model, dataset and step of a run's folder in its set, by name; none if it is not in a set."""
    member = member_of_set(source)
    if member is None:
        return {}
    return {"label": member.model, "model": member.model, "dataset": member.dataset, "step": member.step}


def scores_of(source: Path, outcomes: pl.LazyFrame) -> pl.DataFrame | None:
    """Return the confidence scores in a run's folder and in its outcome table; None if there are none."""
    in_folder = RunFolder(source).read_confidence() if source.is_dir() else None
    if not set(OPTIONAL) & set(outcomes.collect_schema()):
        return in_folder
    scores = all_scores(in_folder, outcomes.collect())
    return scores if scores.height else None


def _changed(run: RunResults, **changes: Any) -> RunResults:
    """Return a run with other names or provenance, whose outcomes stay split."""
    tables = run.tables
    changed = replace(run, **changes)
    changed.__dict__["tables"] = tables
    return changed


def _read_all(
    sources: Sequence[Path | RunResults], analysis: Analysis
) -> tuple[list[RunResults], list[OutcomeTableError | RunFolderError]]:
    """Read every run once, with sets replaced by their runs, and collect the errors of unreadable ones."""
    paths = [source for source in sources if isinstance(source, Path)]
    for path in paths:
        if not path.exists():
            raise OutcomeTableError(f"{path} cannot be read: there is no such file or folder; check the path")
    by_target: dict[object, Path | RunResults] = {}
    for source in sources:
        if isinstance(source, RunResults):
            by_target.setdefault(id(source), source)
            continue
        for folder in runs_below(source) or [source]:
            by_target.setdefault(folder.resolve(), folder)
    runs: list[RunResults] = []
    errors: list[OutcomeTableError | RunFolderError] = []
    for target in by_target.values():
        try:
            if isinstance(target, RunResults):
                outcomes = read_outcomes(target.outcomes, analysis.sampling)
                runs += runs_of_table(target.source, outcomes, target.settings, target.about, analysis)
                continue
            if not target.exists():
                raise RunFolderError(f"{target} has not started yet; repeat the command that made its set")
            settings, about = recorded_in(target)
            runs += runs_of_table(target, read_outcomes_of(target, analysis.sampling), settings, about, analysis)
        except (OutcomeTableError, RunFolderError) as error:
            errors.append(error)
    return runs, errors


def _labelled(runs: Sequence[RunResults]) -> tuple[RunResults, ...]:
    """Give runs unique labels: the model; if that is not enough, also the dataset, or the folder or file."""
    named = [run.label if run.dataset is None else f"{run.label}, {run.dataset}" for run in runs]
    candidates = (
        [run.label for run in runs],
        named,
        [f"{run.label} ({run.source.name})" for run in runs],
        [f"{run.label} ({run.source})" for run in runs],
        [f"{name} ({run.source})" for name, run in zip(named, runs, strict=True)],
    )
    labels = next((labels for labels in candidates if len(set(labels)) == len(labels)), candidates[-1])
    return tuple(_changed(run, label=label) for run, label in zip(runs, labels, strict=True))


Value = TypeVar("Value")


def recorded_usage(run: RunResults) -> dict[str | None, Usage]:
    """Read the usage of each variant from the summary in a run's folder; empty if it is not known."""
    return _recorded(run, "usage", usage_of)


def _recorded(run: RunResults, key: str, convert: Callable[[Any], Value]) -> dict[str | None, Value]:
    """Read something about each variant from the summary in a run's folder; empty if it is not known."""
    try:
        document = run.written
        if document is None:
            document = read_json(RunFolder(run.source).summary) if run.source.is_dir() else {"variants": []}
        variants = document["variants"]
        matching = [
            variant for variant in variants if (variant["model"], variant["dataset"]) == (run.model_id, run.dataset_id)
        ]
        return {variant["variant"]: convert(variant[key]) for variant in matching if variant.get(key)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
