"""How a run was made: everything in its `run.json` that a reader may want to check or repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from refusal_index.report.runs import ReportRun
from refusal_index.version import __version__

_TITLES = {
    "model": "Model",
    "dataset": "Dataset",
    "grader": "Grader",
    "prompts": "Prompt set",
    "placement": "Instruction in",
    "decoding": "Decoding",
    "seed": "Seed",
    "comparability_version": "Comparability version",
    "versions": "Versions",
    "price": "Price",
}


@dataclass(frozen=True)
class Fact:
    """One line: a name and what it was, the parts of which have names of their own where there are several."""

    name: str
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Prompt:
    """A prompt variant with its text and the hash of that."""

    name: str
    text: str
    sha256: str


def facts(run: ReportRun) -> tuple[Fact, ...]:
    """List the settings, in the order of the file; where it is an outcome table, only where it lies."""
    known = {**run.run.settings, **{key: run.about[key] for key in ("versions", "price") if run.about.get(key)}}
    source = run.about.get("dataset")
    if isinstance(source, Mapping) and isinstance(known.get("dataset"), Mapping):
        known["dataset"] = {**known["dataset"], **source}
    named = [
        Fact(_TITLES.get(key, key.replace("_", " ").capitalize()), tuple(_parts(value))) for key, value in known.items()
    ]
    where = Fact("Made from", (("", str(run.run.source)),))
    level = f"{run.level} intervals, penalty {run.summary.penalty:g}"
    return (*named, where, Fact("This page", (("", f"refusal-index {__version__}, {level}"),)))


def prompts(run: ReportRun) -> tuple[Prompt, ...]:
    """List the prompts with their texts; none where they are not known."""
    texts = run.about.get("prompt_set")
    if not isinstance(texts, Mapping):
        return ()
    return tuple(
        Prompt(str(name), str(text), hashlib.sha256(str(text).encode()).hexdigest()) for name, text in texts.items()
    )


def _parts(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield str(key).replace("_", " "), _shown(part)
    else:
        yield "", _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_shown(part) for part in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value > 9999 else str(value)
