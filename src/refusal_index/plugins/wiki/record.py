"""The result of a build: a file of questions that is not written again, and a record of how it was made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from refusal_index.data.errors import RunFolderError, shortened
from refusal_index.data.files import sha256_of, write_atomically
from refusal_index.data.run_json import as_json, refuse_other_settings
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.summary import Usage
from refusal_index.plugins.wiki.builder import Drawing
from refusal_index.plugins.wiki.questions import BuildPrompts, Tried

BUILD_FORMAT = 1


class BuildError(RefusalIndexError, ValueError):
    """A build that cannot be begun or resumed as asked; the message names the file and what to do."""


@dataclass(frozen=True)
class BuildPaths:
    """Where a build's results lie."""

    questions: Path  # the frozen file

    @property
    def record(self) -> Path:
        """How the file came about."""
        return self.questions.with_name(f"{self.questions.name}.build.json")

    @property
    def folder(self) -> Path:
        """Replies that were paid for; once the file is frozen it can be deleted."""
        return self.questions.with_name(f"{self.questions.name}.build")

    @property
    def sections(self) -> Path:
        """What became of each section that was tried."""
        return self.folder / "sections.jsonl"


def freeze(
    paths: BuildPaths,
    settings: Mapping[str, Any],
    drawing: Drawing,
    usage: Mapping[str, Usage],
    prompts: BuildPrompts,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the questions, then the record of the build, and return the record.

    In this order, so that a record only exists when the file is whole.

    - `settings`: everything that the questions depend on.
    - `drawing`: what was tried, and what came of it.
    - `usage`: requests and tokens by ``"writer"`` and ``"answerer"``.
    - `prompts`: the wording, which is kept in full.
    - `about`: what may differ when the same settings are used again: versions, names.
    """
    taken = drawing.taken()
    levels = Counter(one.candidate.difficulty for one in taken)
    content = _json_lines(map(_line, taken))
    record = {
        "build_format": BUILD_FORMAT,
        "file": {"name": paths.questions.name, "sha256": sha256_of(content), "questions": len(taken)},
        "settings": as_json(settings),
        "counts": {
            "sections_tried": len(drawing.tried),
            "questions": len(taken),
            "not_needed": drawing.not_needed,
            "rejected": dict(sorted(drawing.reasons().items(), key=lambda entry: (-entry[1], entry[0]))),
            "questions_by_difficulty": {level: count for level, count in levels.items() if level is not None},
        },
        "usage": {
            role: {name: getattr(one, name) for name in ("requests", "input_tokens", "output_tokens")}
            for role, one in usage.items()
        },
        "prompts": asdict(prompts),
        "about": as_json(about),
    }
    write_atomically(paths.questions, content)
    write_atomically(paths.record, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return record


def write_tried(paths: BuildPaths, tried: Sequence[Tried]) -> None:
    """Write what became of each section, rejected ones with their reason, for a person to read."""
    lines = (
        {**_line(one), "reason": one.reason and str(one.reason), **({"detail": one.detail} if one.detail else {})}
        for one in tried
    )
    write_atomically(paths.sections, _json_lines(lines))


def finished_record(paths: BuildPaths, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record of a finished build; None where it is still to be done.

    Raises BuildError if the file was made by something else, or with other settings, or has changed since.
    """
    if not paths.record.exists():
        if paths.questions.exists() and not (paths.folder / "run.json").exists():
            raise BuildError(f"{paths.questions} exists and was not made by a build; give another --out")
        return None
    try:
        record: dict[str, Any] = dict(json.loads(paths.record.read_bytes()))
        version, before, checksum = record["build_format"], dict(record["settings"]), record["file"]["sha256"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BuildError(
            f"{paths.record} is not a record of a build ({error!r}); remove it, or give another --out"
        ) from error
    if version != BUILD_FORMAT or not before or not checksum:
        raise BuildError(
            f"{paths.record}: expected build_format {BUILD_FORMAT}, got {shortened(version)}; "
            "use the release that wrote it, or give another --out"
        )
    refuse_others(paths.questions, before, settings)
    if not paths.questions.exists():
        return None
    found = sha256_of(paths.questions)
    if found != checksum:
        raise BuildError(
            f"{paths.questions} has changed since it was frozen: expected sha256 {checksum}, got {found}; delete it to "
            "have the same command write it again, or give another --out"
        )
    return record


def refuse_others(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `BuildError` naming the settings in which the build of `path` differs from what is asked here."""
    try:
        refuse_other_settings(path, there, as_json(here))
    except RunFolderError as error:
        raise BuildError(f"{str(error).removesuffix('choose another folder')}give another --out") from None


def _json_lines(lines: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()


def _line(one: Tried) -> dict[str, Any]:
    candidate = one.candidate
    known = {"difficulty": candidate.difficulty, "topic": candidate.topic, "revision": candidate.revision}
    return {
        "question_id": candidate.candidate_id,
        "question": one.question,
        "answer": one.answer,
        "title": candidate.title,
        "section": candidate.section,
        **{name: value for name, value in known.items() if value is not None},
    }
