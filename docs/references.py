"""References of docstrings as the reference shows them: a list, with links for DOIs, instead of reStructuredText."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ITEM = re.compile(r"^[ ]*\.\. \[(\d+)\][ ]*", re.MULTILINE)
_MENTION = re.compile(r"\[(\d+)\]_")
_ROLE = re.compile(r":(doi|arxiv):`([^`]+)`")


class References(Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_kwargs: Any) -> None:
        """Turn the marks of reStructuredText into those of Markdown."""
        if obj.docstring is not None:
            obj.docstring.value = in_markdown(obj.docstring.value)


def in_markdown(text: str) -> str:
    r"""Return a docstring with its references as a list.

    >>> in_markdown("See [1]_.\n\n.. [1] Me. :arxiv:`1.2`, :doi:`10/x`")
    'See [1].\n\n- [1] Me. arxiv:1.2, doi:10/x'
    """
    listed = _ITEM.sub(r"- [\1] ", text)
    return _ROLE.sub(r"\1:\2", _MENTION.sub(r"[\1]", listed))
