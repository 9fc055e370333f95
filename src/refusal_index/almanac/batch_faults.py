"""What batches may be made to suffer, so that a client can be tried against it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self


@dataclass(frozen=True)
class BatchFaults:
    """What goes wrong with batches, by plan; as it stands nothing does.

    Parameters
    ----------
    delay
        Seconds that every batch spends in each of its states.
    expire
        Share of a batch's requests that are not asked in time; they are its last ones.
    fail
        Share of the requests that fail with the status 429 or 500. Which these are depends on the `custom_id` and on
        how often it came before, so that a request which is sent again has a new chance.
    batches
        How many batches expire and fail: the first ones; all unless said.

    Examples
    --------
    >>> BatchFaults.parse("delay=1,expire=0.5,batches=2")
    BatchFaults(delay=1.0, expire=0.5, fail=0.0, batches=2)
    """

    delay: float = 0.0
    expire: float = 0.0
    fail: float = 0.0
    batches: int | None = None

    def __post_init__(self) -> None:
        for name, high in (("delay", 3600), ("expire", 1), ("fail", 1), ("batches", 10**9)):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= high:
                raise ValueError(f"expected {name} from 0 to {high}, got {value:g}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``name=value`` with commas between; raises ValueError if it says anything else."""
        given: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            kind = {one.name: int if one.name == "batches" else float for one in fields(cls)}.get(name.strip())
            if kind is None:
                known = ", ".join(one.name for one in fields(cls))
                raise ValueError(f"expected NAME=NUMBER with commas between, of {known}; got '{part}'")
            try:
                given[name.strip()] = kind(value)
            except ValueError as error:
                raise ValueError(f"expected a number as {name.strip()}, got '{value}'") from error
        return cls(**given)

    def of_batch(self, earlier: int) -> BatchFaults:
        """Return the faults of a batch that was made after so many others."""
        if self.batches is None or earlier < self.batches:
            return self
        return replace(self, expire=0.0, fail=0.0)

    def late(self, total: int) -> int:
        """Return how many of a batch's requests are not asked before it expires.

        >>> BatchFaults(expire=0.5).late(3), BatchFaults().late(3)
        (2, 0)
        """
        return math.ceil(self.expire * total)

    def status(self, custom_id: str, earlier: int) -> int | None:
        """Return the status with which a request fails that came so many times before; none if it does not fail."""
        digest = hashlib.sha256(f"{earlier}\n{custom_id}".encode(errors="surrogatepass")).digest()
        if int.from_bytes(digest[:4]) >= self.fail * 2**32:
            return None
        return 429 if digest[4] % 2 else 500


NO_FAULTS = BatchFaults()
"""Everything goes as it should."""
