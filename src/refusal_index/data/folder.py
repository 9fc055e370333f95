"""The folder of a run: the only store, and the owner of everything that was paid for.

`replies` is what cost money. `outcomes`, `summary` and `report` are derived from it and can be deleted and rebuilt.
`run_json` says what was asked; the same settings resume the run, others are refused.

How much a run was asked, as its folder says it: the outcomes of one that was killed do not know what they lack.

`read_runs` and `find_runs` read several runs to be compared; `match` finds which of their questions to compare.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.errors import OutcomeTableError, RunFolderError, shortened, suggestion
from refusal_index.data.files import LOCK, TEMPORARY_SUFFIX, check_plain, held, make_folder, read_json, write_atomically
from refusal_index.data.outcome_table import (
    OWN_COLUMNS,
    Sampling,
    read_confidence,
    read_outcomes,
    scores_of_outcomes,
    write_outcomes,
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
from refusal_index.redaction import redacted

RUN_FORMAT = 1
"""Version of `run.json`; a folder with another one is refused."""

MOST_SETTINGS = 64 << 20
"""Most bytes of `run.json`."""

RUN_ID = "run_id"
"""Where `about` holds what tells a run from every other one, also from those of the same settings."""


class _Entry:
    """A file in the folder of a run, by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, owner: type[RunFolder]) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """A run's folder and the names of what lies in it.

    >>> RunFolder(Path("runs/example")).outcomes.name
    'outcomes.parquet'
    """

    path: Path  # the folder; `create_or_resume` makes it

    run_json = _Entry("run.json")  # what was asked
    replies = _Entry("replies.sqlite")  # the store of replies: all that was paid for
    outcomes = _Entry("outcomes.parquet")  # one row per question, variant and draw
    confidence = _Entry("confidence.parquet")  # scores of how likely answers are right, one row per question and method
    confidence_record = _Entry("confidence.json")  # what the scores of each method rest on, and what that took
    summary = _Entry("summary.json")  # every metric of every variant
    report = _Entry("report.html")  # the page to look at

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder while the block runs; it makes the folder where there is none.

        The operating system holds the lock, so that of a process that died is free at once. Raises RunFolderError if
        another process holds it, or the folder cannot be written to.
        """
        if not self.run_json.exists():
            self._refuse_foreign()
        return held(self.path)

    def create_or_resume(self, settings: Mapping[str, Any], *, about: Mapping[str, Any] | None = None) -> bool:
        """Make the folder for these settings, or find it made for the same ones.

        Call it inside `lock`. Raises RunFolderError if the folder was made with other settings (the message names
        them), holds other things, or cannot be read or written.

        - `settings`: everything that changes what a reply or a grade can be; a folder made with other settings is
          refused. Anything that JSON holds.
        - `about`: what is worth knowing but may differ when the run is resumed (versions, the date); it is written the
          first time only.
        - returned: True if the folder was made before and is resumed.
        """
        here = as_json(settings)
        resumed = self.run_json.exists()
        if resumed:
            refuse_other_settings(self.path, self.read_settings(), here)
        else:
            self._refuse_foreign()
            make_folder(self.path)
            own_id = {RUN_ID: secrets.token_hex(8)}  # never that of the run whose `about` was handed on
            self._write_run_json({"settings": here, "about": {**as_json(about or {}), **own_id}})
        return resumed

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        """Write other values of some settings, for a folder regraded by later rules; call it inside `lock`."""
        self._write_run_json({**self._read_run_json(), "settings": {**self.read_settings(), **as_json(changes)}})

    def change_about(self, changes: Mapping[str, Any]) -> None:
        """Write something else that is worth knowing of how the run was made; call it inside `lock`."""
        self._write_run_json({**self._read_run_json(), "about": {**self.read_about(), **as_json(changes)}})

    def read_settings(self) -> dict[str, Any]:
        """Read the settings that the folder was made with.

        Raises RunFolderError if there is no `run.json`, or it cannot be read, or it has another version.
        """
        return _section(self.run_json, self._read_run_json(), "settings")

    def read_complete_settings(self) -> dict[str, Any]:
        """Read the settings, with all that the results of a run are made from; it raises as `read_settings` does."""
        settings = self.read_settings()
        check_complete(self.run_json, settings)
        return settings

    def read_about(self) -> dict[str, Any]:
        """Read what was worth knowing when the folder was made; it raises as `read_settings` does."""
        return _section(self.run_json, self._read_run_json(), "about")

    def read_id(self) -> str:
        """Read what tells the run from every other one, wherever its folder lies.

        Raises RunFolderError if it is not there, and as `read_settings` does.
        """
        run_id = self.read_about().get(RUN_ID)
        if run_id is None:
            raise RunFolderError(f"{self.run_json}: about: expected {RUN_ID}, found none; restore the file")
        return str(run_id)

    def read_outcomes(self, path: Path | None = None, sampling: Sampling = OWN_COLUMNS) -> pl.DataFrame:
        """Read the outcome table, or another one in the folder; raises OutcomeTableError if it cannot be used."""
        path = path or self.outcomes
        try:
            return read_outcomes(_plain(path), sampling)
        except OutcomeTableError as error:
            if path != self.outcomes:
                raise
            raise OutcomeTableError(f"{error}; 'refusal-index score {self.path}' rebuilds it") from error

    def read_confidence(self) -> pl.DataFrame | None:
        """Read the scores of how likely answers are right; None where there are none.

        Raises ConfidenceError if they cannot be read.
        """
        return read_confidence(self.confidence) if self.confidence.exists() else None

    def read_summary(self) -> dict[str, Any] | None:
        """Read the summary as JSON holds it; None where there is none.

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

    def write_outcomes(self, table: pl.DataFrame) -> None:
        """Replace the outcome table."""
        write_outcomes(table, self.outcomes)

    def write_summary(self, summary: str) -> None:
        """Replace the summary by this JSON text."""
        write_atomically(self.summary, redacted(summary).encode())

    def _write_run_json(self, document: Mapping[str, Any]) -> None:
        content = json.dumps({"run_format": RUN_FORMAT, **document}, indent=2) + "\n"
        write_atomically(self.run_json, content.encode())

    def _read_run_json(self) -> dict[str, Any]:
        try:
            document = read_json(self.run_json, MOST_SETTINGS)
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

    def _instead(self) -> str:
        """Say what is there in place of a run's folder."""
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
        # a run that was killed before its `run.json` can have left its lock and a half-written file
        half_written = [name for name in names if name.startswith(".run.json.") and name.endswith(TEMPORARY_SUFFIX)]
        foreign = sorted({*names} - {LOCK, *half_written})
        if foreign:
            raise RunFolderError(
                f"{self.path} is not empty and no run made it (it holds {shortened(foreign[0])} but no run.json); "
                "choose another folder, or empty this one yourself"
            )


def run_around(place: Path) -> Path | None:
    """Return the folder of a run that a place is or lies in, also by a link; None where there is none.

    What is there is the run's own: nothing else may write into it.
    """
    whole = Path(os.path.realpath(place))
    return next((folder for folder in (whole, *whole.parents) if _is_run(folder)), None)


def _is_run(folder: Path) -> bool:
    """Whether a run made the `run.json` in a folder; one that cannot be read may have been damaged."""
    try:
        document = read_json(folder / "run.json", MOST_SETTINGS)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return os.path.lexists(folder / "run.json")
    return isinstance(document, dict) and "run_format" in document


def _section(path: Path, document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise RunFolderError(f"{path}: expected {key!r} to be an object, got {shortened(value)}; restore the file")
    check_types(path, key, value)
    return value


def _plain(path: Path) -> Path:
    try:
        return check_plain(path)
    except OSError as error:
        raise cannot_be_read(path, error, OutcomeTableError) from error


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


@dataclass(frozen=True)
class Asked:
    """How much was asked under a variant."""

    questions: int = 0
    further_draws: int = 0  # of questions that are drawn repeatedly, the first draw of each not counted


def asked_under(draws: Mapping[str, int], settings: Mapping[str, Any], about: Mapping[str, Any]) -> Asked:
    """Return how much a run was asked under one of its variants.

    - `draws`: how often each question was asked by now, by its id; empty where nobody knows.
    - `settings`, `about`: what the run's folder says: a run is of all questions of its dataset, unless it stopped.
    """
    stop, dataset = Stop.read(about), settings.get("dataset")
    planned = dataset.get("questions") if isinstance(dataset, Mapping) else None
    planned = planned if isinstance(planned, int) else 0
    known = planned if stop is None else stop.asked
    return Asked(max(known, len(draws)), sum(count - 1 for count in draws.values()))


def missing_share(outcomes: pl.DataFrame, asked: Asked) -> float:
    """Return the share of what was asked under a variant that has no grade.

    The larger one of two: of the questions by their first draws, and of the further draws, which the corrected index
    rests on as much.

    >>> row = {"model": "m", "dataset": "d", "variant": "v", "refused": False, "wrong": False, "unscored_reason": None}
    >>> drawn = ("a", 0), ("b", 0), ("a", 1)
    >>> table = pl.DataFrame([row | {"question_id": one, "draw": draw} for one, draw in drawn])
    >>> [missing_share(table, Asked(*asked)) for asked in ((2, 1), (4, 1), (2, 4))]
    [0.0, 0.5, 0.75]
    """
    first, further = completeness(first_draws(outcomes)), completeness(further_draws(outcomes))
    parts = (
        (first.scored, max(first.asked, asked.questions)),
        (further.scored, max(further.asked, asked.further_draws)),
    )
    return max(((number - scored) / number for scored, number in parts if number), default=0.0)


SET_VERSION = 2
"""Version of the set's summary."""

SUMMARY = "summary.json"
LONGEST_NAME = 255  # bytes, of most file systems
LAST_STEP = 10**12  # of a training; a larger number is a date or a hash


@dataclass(frozen=True)
class SetMember:
    """One run of a set."""

    folder: Path  # of the run; a run that has not begun has none yet
    # model, dataset: what the set calls them
    model: str
    dataset: str
    step: int | None = None  # of the training that the model is a checkpoint of; None where it is none, or not known


def set_members(path: Path) -> tuple[SetMember, ...]:
    """Return the runs of a set in its order; none where the folder is not one of a set, or its summary is broken.

    Raises RunFolderError for a set of another version.

    >>> set_members(Path("no/such/folder"))
    ()
    """
    document = set_document(path)
    check_set_version(path, document)
    runs = document.get("runs") if "set_version" in document else None
    members = [_member(path, run) for run in runs] if isinstance(runs, list) else []
    return tuple(member for member in members if member is not None)


def check_set_version(path: Path, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if the summary of a set in the folder `path` has another version."""
    version = document.get("set_version", SET_VERSION)
    if version != SET_VERSION:
        anew = "repeat 'refusal-index run --config', which writes it again without repeating a request"
        elsewhere = "use the release that wrote it, or watch into another folder"
        raise RunFolderError(
            f"{path / SUMMARY}: expected set_version {SET_VERSION}, got {shortened(version)}; "
            f"{anew if 'config' in document else elsewhere}"
        )


def member_of_set(path: Path) -> SetMember | None:
    """Find a run's folder in the set that it lies in; None where it lies in none, or the set has dropped it."""
    place = path.resolve()
    try:
        members = set_members(place.parent)
    except RunFolderError:
        return None
    return next((member for member in members if member.folder == place), None)


def set_document(path: Path) -> dict[str, Any]:
    """Read the summary in a folder, whatever it is of; nothing where there is none that can be read."""
    try:
        document = read_json(path / SUMMARY)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _member(path: Path, run: Any) -> SetMember | None:
    """Read one entry; a folder elsewhere is none of the set's."""
    match run:
        case {"folder": str(name), "model": str(model), "dataset": str(dataset)} if _is_name(name):
            step = run.get("step")
            known = isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= LAST_STEP
            return SetMember(path / name, model, dataset, step if known else None)
    return None


def _is_name(name: str) -> bool:
    """Whether it can name a folder directly in another one."""
    return bool(name) and name == Path(name).name != ".." and "\0" not in name and len(name.encode()) <= LONGEST_NAME


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

    Two runs are compared on the questions graded in both if these are at least half of the smaller run; more than two
    runs, if they share nearly all questions. Otherwise each run keeps all of its questions, and those that two runs
    share are still paired. Raises OutcomeTableError if one question id belongs to different questions.

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
