"""A run that was to ask no more than it needs: what it was told to wait for, and where it stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

STOPPED = "stopped"
"""Where `run.json` and `summary.json` say it."""

UNTIL = "until"
"""Where `run.json` says what a run was told to wait for."""

GATE_LOOKS = "gate_looks"
"""Where `run.json` says how a gate judges a run while it is asked."""

DEFAULT_LOOKS, MOST_LOOKS = 5, 100
"""How often a run looks whether it may stop; settings have them from here, since `stats` would load SciPy."""


@dataclass(frozen=True)
class _Noted:
    """What the folder of a run notes under a key of its own."""

    key: ClassVar[str]

    @classmethod
    def read(cls, about: Mapping[str, Any]) -> Self | None:
        """Take it from what a run's folder says of how it was made; None where it does not say so."""
        return cls(**about[cls.key]) if about.get(cls.key) else None

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON holds it."""
        return asdict(self)


@dataclass(frozen=True)
class Until(_Noted):
    """What ends a run before all of its questions are asked.

    Raises ValueError unless the half-width is a number above 0 and below 1.

    >>> print(Until.parse("half-width=.05"))
    half-width=0.05
    """

    key = UNTIL
    half_width: float  # of the interval of its Refusal Index: the run stops once it is no more

    def __post_init__(self) -> None:
        if not (math.isfinite(self.half_width) and 0 < self.half_width < 1):
            raise ValueError(f"expected a half-width above 0 and below 1, got {self.half_width!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read it as a command line has it; raises ValueError for anything else."""
        name, _, value = text.partition("=")
        if name.strip().replace("_", "-") != "half-width":
            raise ValueError(f"expected half-width=NUMBER, got {text!r}")
        return cls(float(value))

    def __str__(self) -> str:
        return f"half-width={self.half_width:g}"


@dataclass(frozen=True)
class GateLooks(_Noted):
    """How a gate judges a run while it is asked: a test at each look, so that no later one has all of alpha."""

    key = GATE_LOOKS
    # of, looks: how many questions there are, and after how many portions of them it looks
    of: int
    looks: int

    def __str__(self) -> str:
        return f"{self.looks} look{'' if self.looks == 1 else 's'}"


@dataclass(frozen=True)
class Stop(_Noted):
    """Where a run stopped, all that it had asked until then being complete."""

    key = STOPPED
    # asked, of: questions, and how many there would have been
    asked: int
    of: int
    # look, looks: after which of how many planned looks
    look: int
    looks: int
    why: str

    @property
    def sentence(self) -> str:
        """Say it.

        >>> Stop(400, 2000, 1, 5, "its interval is narrow enough").sentence
        'Asked 400 of 2,000 questions: stopped as planned at look 1 of 5, since its interval is narrow enough.'
        """
        counted = f"Asked {self.asked:,} of {self.of:,} questions"
        return f"{counted}: stopped as planned at look {self.look} of {self.looks}, since {self.why}."
