"""What the docstring of a command or of a class of settings says of each parameter: the help of its option.

A parameter has an entry of its own at the end of the docstring: ``- `size`: How many answers to draw.``, or with what
stands for a value in the help, ``- `data` FILE: A local file.``; further lines are indented.
"""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

ENTRY = re.compile(r"^- `(\w+)`(?: (\S+))?: (.*(?:\n +.*)*)\n?", re.MULTILINE)


class Described(NamedTuple):
    """What a docstring says of a parameter: its help, and what stands for a value in it."""

    text: str
    metavar: str | None


def described_parameters(documented: object) -> tuple[str, dict[str, Described]]:
    """Return the docstring of a function or class without its entries, and the entries by name.

    >>> def audit(size: int) -> None:
    ...     '''Draw answers.
    ...
    ...     - `size` N: How many
    ...       to draw.
    ...     '''
    >>> described_parameters(audit)
    ('Draw answers.', {'size': Described(text='How many to draw.', metavar='N')})
    """
    docstring = inspect.getdoc(documented) or ""
    entries = {
        name: Described(" ".join(text.split()), metavar or None) for name, metavar, text in ENTRY.findall(docstring)
    }
    return ENTRY.sub("", docstring).strip(), entries
