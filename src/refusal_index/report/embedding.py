"""Data inside a page: as JSON that no text in it can end, packed where it is long, and cut where it is too long.

Packed data is gzip in base64, which every browser since 2023 unpacks by itself (``DecompressionStream``); short data
stays plain and needs nothing.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from refusal_index.report.browser import Cut, Questions, payload

PLAIN_UP_TO = 300_000
"""Bytes of JSON that are left as they are."""

ROOM = 12_000_000
"""Characters that the data may take: the page stays below 15 MB."""

RAW_ROOM = 60_000_000
"""Bytes of JSON that a browser reads without a pause worth mentioning."""

LADDER = (
    *(Cut(limit) for limit in (4000, 2000, 1000, 500, 200)),
    *(Cut(limit, all_draws=False) for limit in (500, 200)),
    Cut(0, all_draws=False),
)
"""What is tried in turn until the data fits."""

_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@dataclass(frozen=True)
class Embedded:
    """Data as it stands in the page."""

    text: Markup  # what the script element holds
    packed: bool  # whether it is gzip in base64
    cut: Cut  # what was kept of the replies
    n_cut: int  # how many texts were cut
    # questions, left_out: how many are on the page, a random sample where it has no room for others
    questions: int = 0
    left_out: int = 0


def embed_questions(found: Questions, room: int = ROOM) -> Embedded:
    """Embed as much of the questions' replies as there is room for; the last rung is taken whatever its size."""
    lengths, ratio = _lengths_of_replies(found), room / RAW_ROOM
    for cut in LADDER:
        # What a rung would take is known roughly before it is tried, and better after another was.
        if cut is not LADDER[-1] and _characters(lengths, cut) * ratio > room:
            continue
        embedded = _embed(payload(found, cut), cut)
        if len(embedded.text) <= room:
            break
        ratio = max(ratio, 0.9 * len(embedded.text) / max(_characters(lengths, cut), 1)) if cut.all_draws else ratio
    return replace(embedded, questions=found.height, left_out=found.left_out)


def _lengths_of_replies(found: Questions) -> list[tuple[int, int]]:
    """Return length and number of the replies, grouped by hundreds of characters."""
    counted: dict[int, int] = {}
    for name in ("first_reply", "forced_reply"):
        lengths = found.rows[name].drop_nulls().unique().str.len_chars() // 100 * 100
        for length, number in lengths.value_counts().iter_rows():
            counted[length] = counted.get(length, 0) + number
    return list(counted.items())


def _characters(lengths: list[tuple[int, int]], cut: Cut) -> int:
    """Return at least how many characters of replies a rung keeps."""
    return sum(min(length, cut.limit) * number for length, number in lengths) if cut.all_draws else 0


def _embed(content: dict[str, Any], cut: Cut) -> Embedded:
    raw = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    n_cut = len(content["cuts"])
    encoded = raw.encode()
    if len(encoded) <= PLAIN_UP_TO:
        return Embedded(safe_json(raw), packed=False, cut=cut, n_cut=n_cut)
    # The same data gives the same bytes: no time stamp.
    packed = base64.b64encode(gzip.compress(encoded, compresslevel=6, mtime=0)).decode()
    return Embedded(Markup(packed), packed=True, cut=cut, n_cut=n_cut)  # noqa: S704  letters, digits, + / = only


def safe_json(document: str) -> Markup:
    r"""Return JSON text that may stand in a script element, whatever its strings hold.

    >>> print(safe_json('["</script>"]'))
    ["\u003c/script\u003e"]
    """
    return Markup(document.translate(_ESCAPES))  # noqa: S704  nothing in it is left to be escaped
