"""What a run was asked: compared with what is asked now, and turned into a name."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from refusal_index.outcomes.errors import RunFolderError, shortened
from refusal_index.redaction import redacted_in


def default_run_name(model: str, dataset: str, settings: Mapping[str, Any]) -> str:
    """Name a run after its settings, so that the same command finds its folder again.

    - `model`, `dataset`: what the readable part says.
    - `settings`: everything that must agree; the short hash at the end is made of all three.
    - returned: of lower-case letters, digits, dot, dash and underscore only.

    >>> default_run_name("openai/gpt-4.1", "simpleqa", {"seed": 1})
    'openai-gpt-4.1-simpleqa-07c7588c'
    """
    canonical = json.dumps([model, dataset, as_json(settings)], sort_keys=True).encode()
    return f"{_safe(model)}-{_safe(dataset)}-{hashlib.sha256(canonical).hexdigest()[:8]}"


def _safe(name: str, longest: int = 60) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:longest] or "unnamed"


def as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give the settings as they will be read back: tuples are lists, names are text, and no key is in them."""
    return dict(redacted_in(json.loads(json.dumps(dict(settings), allow_nan=False))))


def refuse_other_settings(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `RunFolderError` naming the settings in which the run in `path` differs from what is asked here."""
    before, now = dict(_flat(there)), dict(_flat(here))
    absent = object()
    differing = [key for key in sorted(before.keys() | now.keys()) if before.get(key, absent) != now.get(key, absent)]
    if differing:
        shown = "; ".join(f"{key}: there {_shown(before, key)}, here {_shown(now, key)}" for key in differing[:5])
        more = f"; and {len(differing) - 5} more" if len(differing) > 5 else ""
        raise RunFolderError(
            f"{path} holds a run with other settings ({shown}{more}); "
            "repeat them to resume it, or run into another folder"
        )


def is_deterministic(settings: Mapping[str, Any]) -> bool:
    """Whether a model was asked at temperature 0, where it has no sampling noise.

    >>> is_deterministic({"decoding": {"temperature": 0.0}}), is_deterministic({})
    (True, False)
    """
    decoding = settings.get("decoding")
    return isinstance(decoding, Mapping) and decoding.get("temperature") == 0


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Name each setting inside others by its path, for instance ``generation.temperature``."""
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return shortened(settings[key], 40) if key in settings else "nothing"
