"""Results that show themselves where they are printed. `render` registers how: findings contain no prose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from textwrap import shorten
from typing import Any, ClassVar


class Shown:
    """A result that shows itself: as text where it is printed, as tables in a notebook."""

    # set by `render.blocks.shows`: the paragraphs and tables of a result, and these as text and as HTML
    _blocks: ClassVar[Callable[[Any], Iterator[Any]]]
    _text: ClassVar[Callable[[Any], str]] = object.__repr__
    _html: ClassVar[Callable[[Any], str | None]] = lambda _: None

    def blocks(self) -> Iterator[Any]:
        """Yield its paragraphs and tables."""
        return type(self)._blocks(self)

    def __str__(self) -> str:
        return type(self)._text(self)

    def __repr__(self) -> str:
        first_line = shorten(str(self).splitlines()[0], 100, placeholder="...")
        return f"<{type(self).__name__}: {first_line}>"

    def _repr_html_(self) -> str | None:
        return type(self)._html(self)
