"""The options of the batch engine: what `engine_option` may say to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from refusal_index.engines.setting import SettingError, unknown
from refusal_index.engines.settings import Settings

KNOWN = ("poll", "requests", "forget")
LONGEST_POLL = 3600.0


@dataclass(frozen=True)
class Options:
    """How batches are made and looked at.

    Attributes
    ----------
    poll
        Seconds from the first look at a batch to the second; later ones are up to six times as far apart.
    requests
        Most requests of a batch; a provider may take fewer.
    forget
        Batches that are given up, by our key or the provider's name: their requests are sent, and paid for, again.
    """

    poll: float = 10.0
    requests: int = 50_000
    forget: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Read the options that settings give.

        Raises
        ------
        SettingError
            If there is no such option, or its value cannot be one.

        Examples
        --------
        >>> Options.of(Settings.of(engine="batch", engine_option="poll=2")).poll
        2.0
        """
        given = settings.sending.engine_option
        for name, _ in given:
            if name not in KNOWN:
                raise unknown("engine_option", name, KNOWN)
        values = dict(given)
        return cls(
            _number("poll", values.get("poll", "10"), LONGEST_POLL),
            int(_number("requests", values.get("requests", "50000"), 50_000)),
            settings.sending.forget,
        )


def _number(name: str, text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    least = 1 if name == "requests" else 0.001
    if not (least <= value <= most) or (name == "requests" and value != int(value)):
        raise SettingError(f"{{engine_option}} {name}: expected a number from {least} to {most:,.0f}, got {text!r}")
    return value
