"""The folder of a run.

`replies` stores the replies, which were paid for. `outcomes`, `summary` and `report` are derived from them and can be
deleted and rebuilt. `run_json` records the settings: the same settings resume the run, others are refused.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
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
)
from refusal_index.data.run_json import (
    as_json,
    check_complete,
    check_types,
    refuse_other_settings,
)
from refusal_index.data.run_sets import runs_below
from refusal_index.data.tables import cannot_be_read
from refusal_index.errors import OutcomeTableError, RunFolderError, shortened

RUN_FORMAT = 1
"""Version of `run.json`; a folder with another one is refused."""

MAX_SETTINGS = 64 << 20
"""Maximum size of `run.json` in bytes."""

RUN_ID = "run_id"
"""Key in `about` of a run's unique id; runs with the same settings have different ids."""

CREATED = "created"
"""Key in `about` of the time when a run's folder was made, in ISO format."""


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
    before = _Entry("before.parquet")  # of a regraded run: the outcome table under the previous grader
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
            # they replace those of another run whose `about` was passed
            own = {RUN_ID: secrets.token_hex(8), CREATED: datetime.now(UTC).isoformat(timespec="seconds")}
            self._write_run_json({"settings": own_settings, "about": {**as_json(about or {}), **own}})
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
        write_atomically(self.summary, summary.encode())

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
        if runs := runs_below(self.path):
            return f"found a folder of {len(runs)} runs; name one, such as {runs[0]} ('refusal-index runs' lists them)"
        if self.path.exists():
            return "found no run.json in it; check the path, or name the files in it"
        return "found nothing there; check the path"

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


def recorded_in(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a run and `about` from its folder; both are empty for a file."""
    if not path.is_dir():
        return {}, {}
    folder = RunFolder(path)
    return folder.read_settings(), folder.read_about()


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
