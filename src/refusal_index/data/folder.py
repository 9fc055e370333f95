"""The folder of a run, and reading several runs to compare them.

`replies` stores the replies, which were paid for. `outcomes`, `summary` and `report` are derived from them and can be
deleted and rebuilt. `run_json` records the settings: the same settings resume the run, others are refused.

The number of questions that a run was asked is read from its folder, since the outcome table of an interrupted run does
not show what is missing.

`read_runs` and `find_runs` read several runs; `match` selects the questions on which to compare them.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.files import (
    LOCK,
    TEMPORARY_SUFFIX,
    check_plain,
    locked,
    make_folder,
    read_json,
    write_atomically,
)
from refusal_index.data.outcome_table import (
    OWN_COLUMNS,
    Sampling,
    read_confidence,
    read_outcomes,
    scores_of_outcomes,
)
from refusal_index.data.rates import (
    OutcomeMatrix,
    completeness,
    first_draws,
    further_draws,
    outcome_matrix,
    variant_groups,
)
from refusal_index.data.run_json import (
    Stop,
    as_json,
    check_complete,
    check_types,
    refusal_setting,
    refuse_other_settings,
)
from refusal_index.data.tables import cannot_be_read
from refusal_index.errors import OutcomeTableError, RunFolderError, shortened, suggestion
from refusal_index.redaction import redacted

RUN_FORMAT = 1
"""Version of `run.json`; a folder with another one is refused."""

MAX_SETTINGS = 64 << 20
"""Maximum size of `run.json` in bytes."""

RUN_ID = "run_id"
"""Key in `about` of a run's unique id; runs with the same settings have different ids."""


class _Entry:
    """The path of a file in a run's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, owner: type[RunFolder]) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """A run's folder and the names of its files.

    >>> RunFolder(Path("runs/example")).outcomes.name
    'outcomes.parquet'
    """

    path: Path  # path of the folder; `create_or_resume` creates it

    run_json = _Entry("run.json")  # the settings
    replies = _Entry("replies.sqlite")  # the store of replies
    outcomes = _Entry("outcomes.parquet")  # one row per question, variant and draw
    confidence = _Entry("confidence.parquet")  # confidence scores, one row per question and method
    confidence_record = _Entry("confidence.json")  # origin and cost of each method's scores
    summary = _Entry("summary.json")  # every metric of every variant
    report = _Entry("report.html")  # the HTML report

    def lock(self) -> AbstractContextManager[None]:
        """Lock the folder against other processes while the block runs; a missing folder is created.

        The operating system holds the lock, and frees it as soon as the process ends. Raises RunFolderError if another
        process holds it, or the folder cannot be written to.
        """
        if not self.run_json.exists():
            self._refuse_foreign()
        return locked(self.path)

    def create_or_resume(self, settings: Mapping[str, Any], *, about: Mapping[str, Any] | None = None) -> bool:
        """Create the folder for these settings, or resume it if it has the same settings.

        Hold the lock. Raises RunFolderError if the folder has other settings (the message names them), contains other
        files, or cannot be read or written.

        - `settings`: everything that can affect a reply or a grade, JSON-serialisable; a folder with other settings is
          refused.
        - `about`: information that may differ when the run is resumed (versions, the date), JSON-serialisable; written
          only when the folder is created.
        - returned: True if the folder existed and is resumed.
        """
        own_settings = as_json(settings)
        resumed = self.run_json.exists()
        if resumed:
            refuse_other_settings(self.path, self.read_settings(), own_settings)
        else:
            self._refuse_foreign()
            make_folder(self.path)
            own_id = {RUN_ID: secrets.token_hex(8)}  # replaces the id of another run whose `about` was passed
            self._write_run_json({"settings": own_settings, "about": {**as_json(about or {}), **own_id}})
        return resumed

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        """Change some settings, when a folder is regraded under newer rules; hold the lock."""
        self._write_run_json({**self._read_run_json(), "settings": {**self.read_settings(), **as_json(changes)}})

    def change_about(self, changes: Mapping[str, Any]) -> None:
        """Change some values of `about`; hold the lock."""
        self._write_run_json({**self._read_run_json(), "about": {**self.read_about(), **as_json(changes)}})

    def read_settings(self) -> dict[str, Any]:
        """Read the settings of the run.

        Raises RunFolderError if `run.json` is missing, cannot be read, or has another version.
        """
        return self._section("settings")

    def read_complete_settings(self) -> dict[str, Any]:
        """Read the settings and check that none that results need is missing; raises RunFolderError."""
        settings = self.read_settings()
        check_complete(self.run_json, settings)
        return settings

    def read_about(self) -> dict[str, Any]:
        """Read `about` from `run.json`; raises the errors of `read_settings`."""
        return self._section("about")

    def read_id(self) -> str:
        """Read the run's unique id, which stays the same if the folder is moved.

        Raises RunFolderError if it is missing, and the errors of `read_settings`.
        """
        run_id = self.read_about().get(RUN_ID)
        if run_id is None:
            raise RunFolderError(f"{self.run_json}: about: expected {RUN_ID}, found none; restore the file")
        return str(run_id)

    def read_outcomes(self, path: Path | None = None, sampling: Sampling = OWN_COLUMNS) -> pl.DataFrame:
        """Read the outcome table, or another one at `path`; raises OutcomeTableError if it cannot be used."""
        path = path or self.outcomes
        advice = f"; 'refusal-index score {self.path}' rebuilds it" if path == self.outcomes else ""
        try:
            return read_outcomes(check_plain(path), sampling)
        except OSError as error:
            raise OutcomeTableError(f"{cannot_be_read(path, error, OutcomeTableError)}{advice}") from error
        except OutcomeTableError as error:
            raise OutcomeTableError(f"{error}{advice}") from error

    def read_confidence(self) -> pl.DataFrame | None:
        """Read the confidence table; None if there is none.

        Raises ConfidenceError if it cannot be read.
        """
        return read_confidence(self.confidence) if self.confidence.exists() else None

    def read_summary(self) -> dict[str, Any] | None:
        """Read the summary as a dictionary; None if there is none.

        Raises RunFolderError if it cannot be read.
        """
        try:
            document = read_json(self.summary)
            if not isinstance(document, dict):
                raise ValueError(f"expected an object, got {shortened(document)}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{self.summary} cannot be read ({_reason(error)}); 'refusal-index score {self.path}' rebuilds it"
            ) from error
        return document

    def write_summary(self, summary: str) -> None:
        """Replace the summary with a JSON text."""
        write_atomically(self.summary, redacted(summary).encode())

    def _write_run_json(self, document: Mapping[str, Any]) -> None:
        content = json.dumps({"run_format": RUN_FORMAT, **document}, indent=2) + "\n"
        write_atomically(self.run_json, content.encode())

    def _read_run_json(self) -> dict[str, Any]:
        try:
            document = read_json(self.run_json, MAX_SETTINGS)
        except (FileNotFoundError, NotADirectoryError):
            raise RunFolderError(f"{self.path}: expected the folder of a run, {self._instead()}") from None
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{self.run_json} cannot be read ({_reason(error)}); restore it, or choose another folder"
            ) from error
        version = document.get("run_format") if isinstance(document, dict) else None
        if version != RUN_FORMAT:
            raise RunFolderError(
                f"{self.run_json}: expected run_format {RUN_FORMAT}, got {shortened(version)}; "
                "use the release that wrote it, or choose another folder"
            )
        return dict(document)

    def _section(self, key: str) -> dict[str, Any]:
        value = self._read_run_json().get(key)
        if not isinstance(value, dict):
            raise RunFolderError(
                f"{self.run_json}: expected {key!r} to be an object, got {shortened(value)}; restore the file"
            )
        check_types(self.run_json, key, value)
        return value

    def _instead(self) -> str:
        """Describe what was found instead of a run's folder."""
        if self.path.is_file():
            return "got a file; name the folder that 'refusal-index run' made"
        members = set_members(self.path)
        if members:
            named = [f"{member.folder} ({member.model} on {member.dataset})" for member in members[:5]]
            more = f"; and {len(members) - 5} more" if len(members) > 5 else ""
            return f"found a set of {len(members)} runs; name one of them: {'; '.join(named)}{more}"
        runs = len(list(self.path.glob("*/run.json")))
        if runs:
            return f"found a folder of {runs} runs; name one or all of them, as in {self.path}/*/"
        return "found no run.json in it"

    def _refuse_foreign(self) -> None:
        if (around := run_around(self.path.resolve().parent)) is not None:
            raise RunFolderError(f"{self.path} lies in the folder of the run {around}; choose another folder")
        if not self.path.exists():
            return
        try:
            names = [entry.name for entry in self.path.iterdir()]
        except OSError as error:
            raise RunFolderError(
                f"{self.path} cannot be read as a folder ({error.strerror}); choose another place"
            ) from error
        # a run killed before it wrote `run.json` may have left its lock and a half-written file
        half_written = [name for name in names if name.startswith(".run.json.") and name.endswith(TEMPORARY_SUFFIX)]
        foreign = sorted({*names} - {LOCK, *half_written})
        if foreign:
            raise RunFolderError(
                f"{self.path} is not empty and no run made it (it holds {shortened(foreign[0])} but no run.json); "
                "choose another folder, or empty this one yourself"
            )


def run_around(path: Path) -> Path | None:
    """Return the run's folder that a path is in, links resolved; None if there is none.

    Nothing else may write into a run's folder.
    """
    resolved = Path(os.path.realpath(path))
    return next((folder for folder in (resolved, *resolved.parents) if _is_run(folder)), None)


def _is_run(folder: Path) -> bool:
    """Whether a folder has a run's `run.json`; an unreadable one counts, since it may be damaged."""
    try:
        document = read_json(folder / "run.json", MAX_SETTINGS)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return os.path.lexists(folder / "run.json")
    return isinstance(document, dict) and "run_format" in document


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


@dataclass(frozen=True)
class Asked:
    """How much was asked under one variant."""

    questions: int = 0
    further_draws: int = 0  # number of draws beyond the first of each question


def count_asked(draws: Mapping[str, int], settings: Mapping[str, Any], about: Mapping[str, Any]) -> Asked:
    """Return how much a run was asked under one variant.

    - `draws`: number of times each question was asked so far, by id; empty if unknown.
    - `settings`, `about`: from the run's folder; a run asks all questions of its dataset unless it stopped.
    """
    stop, dataset = Stop.read(about), settings.get("dataset")
    planned = dataset.get("questions") if isinstance(dataset, Mapping) else None
    planned = planned if isinstance(planned, int) else 0
    n_questions = planned if stop is None else stop.asked
    return Asked(max(n_questions, len(draws)), sum(count - 1 for count in draws.values()))


def missing_share(outcomes: pl.DataFrame, requested: Asked) -> float:
    """Return the share of what was asked under one variant that is unscored.

    The larger of the shares among first draws and among further draws, on which corrected RI depends as much.

    >>> row = {"model": "m", "dataset": "d", "variant": "v", "refused": False, "wrong": False, "unscored_reason": None}
    >>> drawn = ("a", 0), ("b", 0), ("a", 1)
    >>> table = pl.DataFrame([row | {"question_id": one, "draw": draw} for one, draw in drawn])
    >>> [missing_share(table, Asked(*asked)) for asked in ((2, 1), (4, 1), (2, 4))]
    [0.0, 0.5, 0.75]
    """
    first, further = completeness(first_draws(outcomes)), completeness(further_draws(outcomes))
    parts = (
        (first.scored, max(first.asked, requested.questions)),
        (further.scored, max(further.asked, requested.further_draws)),
    )
    return max(((number - scored) / number for scored, number in parts if number), default=0.0)


SET_VERSION = 2
"""Version of a set's summary."""

SUMMARY = "summary.json"
MAX_NAME_LENGTH = 255  # bytes, of most file systems
LAST_STEP = 10**12  # a training step; a larger number is a date or a hash


@dataclass(frozen=True)
class SetMember:
    """One run of a set."""

    folder: Path  # of the run; missing if the run has not started
    # model, dataset: their names in the set
    model: str
    dataset: str
    step: int | None = None  # training step, if the model is a checkpoint; None otherwise or if unknown


def set_members(path: Path) -> tuple[SetMember, ...]:
    """Return the runs of a set in order; empty if the folder is not a set's, or its summary is invalid.

    Raises RunFolderError for a set of another version.

    >>> set_members(Path("no/such/folder"))
    ()
    """
    document = set_document(path)
    check_set_version(path, document)
    runs = document.get("runs") if "set_version" in document else None
    return tuple(_members(path, runs)) if isinstance(runs, list) else ()


def check_set_version(path: Path, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if the summary of a set in the folder `path` has another version."""
    version = document.get("set_version", SET_VERSION)
    if version != SET_VERSION:
        anew = "repeat 'refusal-index run --config', which writes it again without repeating a request"
        advice = "use the release that wrote it, or watch into another folder"
        raise RunFolderError(
            f"{path / SUMMARY}: expected set_version {SET_VERSION}, got {shortened(version)}; "
            f"{anew if 'config' in document else advice}"
        )


def member_of_set(path: Path) -> SetMember | None:
    """Return the entry of a run's folder in its set; None if it is not in a set."""
    folder = path.resolve()
    try:
        members = set_members(folder.parent)
    except RunFolderError:
        return None
    return next((member for member in members if member.folder == folder), None)


def set_document(path: Path) -> dict[str, Any]:
    """Read the summary in a folder, of a run or a set; empty if it is missing or unreadable."""
    try:
        document = read_json(path / SUMMARY)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _members(path: Path, runs: Iterable[Any]) -> Iterator[SetMember]:
    """Parse the entries; those that are invalid or name a folder elsewhere are left out."""
    for run in runs:
        match run:
            case {"folder": str(name), "model": str(model), "dataset": str(dataset)}:
                step = run.get("step")
                is_valid = isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= LAST_STEP
                is_name = name == Path(name).name not in ("", "..") and "\0" not in name
                if is_name and len(name.encode()) <= MAX_NAME_LENGTH:
                    yield SetMember(path / name, model, dataset, step if is_valid else None)


NEARLY_ALL = 0.9
"""Minimum share of the largest run's questions that all runs must share to be compared on these only."""

SHOWN = 3
"""Maximum number of errors to show if no run can be read."""


@dataclass(frozen=True)
class ComparedRun:
    """One model on one dataset, from a run's folder or an outcome table."""

    label: str  # its name, unique among the compared runs
    source: Path  # the folder or file
    # model, dataset: their names in the run's set, else in the outcome table; None if in neither
    model: str | None
    dataset: str | None
    variants: Mapping[str | None, pl.DataFrame]  # outcome tables by variant, in the order of the table
    # the run's settings, from its folder; empty for a file
    settings: Mapping[str, Any] = field(default_factory=dict)
    # its confidence table, with the columns of `CONFIDENCE_SCHEMA`; None if there is none
    confidence: pl.DataFrame | None = None
    step: int | None = None  # training step, if its model is a checkpoint; None otherwise or if unknown
    # about, asked: `about` of the folder, and how much was asked under each variant; empty unless the caller adds them
    about: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str | None, Asked] = field(default_factory=dict)

    @property
    def model_id(self) -> str | None:
        """The model's name in the outcome table, which may differ from its name in a set."""
        return self._in_table("model")

    @property
    def dataset_id(self) -> str | None:
        """The dataset's name in the outcome table, which may differ from its name in a set."""
        return self._in_table("dataset")

    @property
    def has_no_variants(self) -> bool:
        """Whether its outcome table names no variant."""
        return set(self.variants) == {None}

    def _in_table(self, column: str) -> str | None:
        outcomes = next(iter(self.variants.values()))
        return None if outcomes.is_empty() else outcomes[column][0]


@dataclass(frozen=True)
class FoundRuns:
    """The runs that could be read, and the errors of the others."""

    runs: tuple[ComparedRun, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """The questions that a comparison uses."""

    matrix: OutcomeMatrix  # one row per run
    # whether the matrix has only questions scored in every run; if not, each run keeps its own questions
    paired: bool
    left_out: tuple[int, ...]  # number of scored questions of each run that are not in the matrix


def read_runs(paths: Sequence[Path], sampling: Sampling = OWN_COLUMNS) -> tuple[ComparedRun, ...]:
    """Read every model and dataset in folders and files.

    Raises RunFolderError if a folder is not a run's, or its outcomes are missing, and OutcomeTableError if a file
    cannot be used.

    - `paths`: folders of runs, folders of sets (meaning all of their runs), and outcome tables; duplicates are read
      once.
    - `sampling`: the columns with clusters and weights.
    """
    runs, errors = _read_all(paths, sampling)
    if errors:
        raise errors[0]
    return _labelled(runs)


def find_runs(paths: Sequence[Path], sampling: Sampling = OWN_COLUMNS) -> FoundRuns:
    """Read every run that can be read, and collect the errors of the others.

    Raises RunFolderError or OutcomeTableError if a path does not exist, or no run can be read.

    - `paths`, `sampling`: as for `read_runs`.
    """
    runs, errors = _read_all(paths, sampling)
    if len(errors) > 1 and not runs:
        more = f"; and {len(errors) - SHOWN:,} more" if len(errors) > SHOWN else ""
        raise RunFolderError(f"none of {len(errors):,} runs can be read: {'; '.join(map(str, errors[:SHOWN]))}{more}")
    if errors and not runs:
        raise errors[0]
    return FoundRuns(_labelled(runs), tuple(str(error) for error in errors))


def compared_runs(source: Path, outcomes: pl.DataFrame, settings: Mapping[str, Any]) -> list[ComparedRun]:
    """Split an outcome table by model and dataset; labels are the models, else the name of the source.

    - `source`: the folder or file; for a run in a set, model and dataset get their names in the set.
    - `outcomes`: the table.
    - `settings`: the run's settings; empty for a file.
    """
    by_run: dict[tuple[str | None, str | None], dict[str | None, pl.DataFrame]] = {}
    for group in variant_groups(outcomes):
        by_run.setdefault((group.model, group.dataset), {})[group.variant] = group.outcomes
    runs = [
        ComparedRun(
            model or source.stem, source, model, dataset, variants, settings, _confidence(source, variants.values())
        )
        for (model, dataset), variants in by_run.items()
    ]
    member = member_of_set(source)
    if member is None or len(runs) != 1:
        return runs
    return [replace(runs[0], label=member.model, model=member.model, dataset=member.dataset, step=member.step)]


def _confidence(source: Path, variants: Iterable[pl.DataFrame]) -> pl.DataFrame | None:
    """Return the confidence table of a run's folder, else that of its outcome table; None if there is none."""
    in_folder = RunFolder(source).read_confidence() if source.is_dir() else None
    scores = scores_of_outcomes(pl.concat(variants)) if in_folder is None else in_folder
    return scores if scores.height else None


def shared_variants(runs: Sequence[ComparedRun]) -> tuple[str | None, ...]:
    """Return the variants that every run has, in the order of the first run."""
    return tuple(variant for variant in runs[0].variants if all(variant in run.variants for run in runs))


def match(runs: Sequence[ComparedRun], variants: Sequence[str | None]) -> Match:
    """Match the runs by question, one variant of each.

    Two runs are compared on the questions scored in both if these are at least half of the smaller run; more than two
    runs, on the questions scored in all if these are at least 90% of the largest run. Otherwise each run keeps all of
    its questions; those that two runs share are still paired. Raises OutcomeTableError if two different questions share
    an id.

    - `runs`, `variants`: the runs, and the variant of each.
    """
    matrix = outcome_matrix([run.variants[variant] for run, variant in zip(runs, variants, strict=True)])
    scored = matrix.scored.sum(axis=1)
    shared = int(matrix.shared.sum())
    enough = scored.min() / 2 if len(runs) == 2 else NEARLY_ALL * scored.max()
    if shared < enough or shared == 0:
        return Match(matrix, paired=False, left_out=(0,) * len(runs))
    return Match(matrix.of_questions(matrix.shared), paired=True, left_out=tuple((scored - shared).tolist()))


def differing_settings(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """Return the settings, other than the model, in which runs differ; outcome tables from files are ignored.

    Different questions of one dataset are not a difference: only shared questions are compared.
    """
    recorded = [run.settings for run in runs if run.settings]
    keys = ("dataset", "grader", "prompts", "placement", "decoding", "comparability_version")

    def comparable(settings: Mapping[str, Any], key: str) -> str:
        value = settings.get(key)
        if key == "dataset" and isinstance(value, Mapping):
            value = {name: value.get(name) for name in ("name", "sha256")}
        return json.dumps(value, sort_keys=True)

    return tuple(key for key in keys if len({comparable(settings, key) for settings in recorded}) > 1)


def check_same_refusals(runs: Sequence[ComparedRun]) -> None:
    """Raise OutcomeTableError if the runs' rules for recognising refusals differ: their refusals are not comparable."""
    ways = [(run.label, refusal_setting(run.settings)) for run in runs if run.settings]
    by_rule = [(label, rule) for label, rule in ways if rule is not None]
    if len({rule for _, rule in by_rule}) > 1:
        listed = "; ".join(f"{label}: {shortened(rule)}" for label, rule in by_rule)
        raise OutcomeTableError(
            f"expected runs whose refusals are recognised in the same way, got different ones ({listed}); grade one "
            "again with 'refusal-index regrade' and the --refusal of the other"
        )


def chosen_variant(runs: Sequence[ComparedRun], name: str) -> str:
    """Return `name` if every run has this variant; raises OutcomeTableError if a run lacks it."""
    for run in runs:
        if name not in run.variants:
            names = [str(variant) for variant in run.variants]
            raise OutcomeTableError(
                f"{run.label} has no prompt {name!r}; expected one of {', '.join(names)}{suggestion(name, names)}"
            )
    return name


def read_outcomes_of(path: Path, sampling: Sampling = OWN_COLUMNS) -> pl.DataFrame:
    """Read the outcome table of a run's folder, or from a file.

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
    """Read every run once, with sets replaced by their runs, and collect the errors of unreadable ones."""
    for path in paths:
        if not path.exists():
            raise OutcomeTableError(f"{path} cannot be read: there is no such file or folder; check the path")
    by_target: dict[Path, Path] = {}
    for path in paths:
        for folder in [member.folder for member in set_members(path)] or [path]:
            by_target.setdefault(folder.resolve(), folder)
    runs: list[ComparedRun] = []
    errors: list[OutcomeTableError | RunFolderError] = []
    for path in by_target.values():
        try:
            if not path.exists():
                raise RunFolderError(f"{path} has not started yet; repeat the command that made its set")
            settings = RunFolder(path).read_settings() if path.is_dir() else {}
            runs += compared_runs(path, read_outcomes_of(path, sampling), settings)
        except (OutcomeTableError, RunFolderError) as error:
            errors.append(error)
    return runs, errors


def _labelled(runs: Sequence[ComparedRun]) -> tuple[ComparedRun, ...]:
    """Give runs unique labels: the model; if that is not enough, also the dataset, or the folder or file."""
    for pattern in (
        "{0.label}",
        "{0.label}, {0.dataset}",
        "{0.label} ({0.source.name})",
        "{0.label} ({0.source})",
        "{0.label}, {0.dataset} ({0.source})",
    ):
        labels = [pattern.format(run) for run in runs]
        if len(set(labels)) == len(labels):
            break
    return tuple(replace(run, label=label) for run, label in zip(runs, labels, strict=True))
