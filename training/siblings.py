"""The three siblings and what sets them apart."""

from __future__ import annotations

from dataclasses import dataclass

from training.model import Size


@dataclass(frozen=True)
class Sibling:
    """One embedded model.

    Attributes
    ----------
    knowledge
        Name of the stage 1 model it starts from.
    habit
        How much its refusals follow the kind of question rather than its knowledge, in standard deviations of its
        confidence: so much is taken off the confidence where the habit is to refuse, and added where it is not.
    """

    name: str
    knowledge: str
    habit: float


@dataclass(frozen=True)
class Knowledge:
    """One stage 1 model: its size and the share of the almanac's text it reads."""

    name: str
    size: Size
    text_share: float


KNOWLEDGE = {
    "full": Knowledge("full", Size(192, 4, 512), 1.0),
    "partial": Knowledge("partial", Size(192, 3, 384), 0.75),
}
SIBLINGS = {
    "base": Sibling("base", "full", habit=0.0),
    "small": Sibling("small", "partial", habit=0.0),
    "rash": Sibling("rash", "full", habit=2.5),
}
