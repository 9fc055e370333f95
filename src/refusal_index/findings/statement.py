"""What a result says, as a code and values; `render.sentences` has the words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["conclusion", "scope", "note", "grave"]
"""A conclusion; what a result applies to; something worth knowing; a reason to doubt the result."""


@dataclass(frozen=True)
class Statement:
    """One thing to say about a result."""

    code: str  # stays the same over releases
    severity: Severity = "note"
    values: Mapping[str, Any] = field(default_factory=dict)  # all that its sentence needs: raw numbers and names
