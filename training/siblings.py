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
    label_noise
        Standard deviation of the noise on the confidence that sets the refusal labels, in standard deviations of the
        confidence itself: the larger, the less its refusals follow its knowledge.
    """

    name: str
    knowledge: str
    label_noise: float


@dataclass(frozen=True)
class Knowledge:
    """One stage 1 model: its size and the share of the almanac's text it reads."""

    name: str
    size: Size
    text_share: float


KNOWLEDGE = {
    "full": Knowledge("full", Size(192, 4, 512), 1.0),
    "partial": Knowledge("partial", Size(128, 3, 344), 0.6),
}
SIBLINGS = {
    "base": Sibling("base", "full", label_noise=0.25),
    "small": Sibling("small", "partial", label_noise=0.25),
    "rash": Sibling("rash", "full", label_noise=2.5),
}
