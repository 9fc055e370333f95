"""The root of everything that this package raises about what it was given.

``RefusalIndexError`` is the root. Errors about input (a file, an argument, a folder) are `ValueError` as well, those
about what came to pass while models were asked are `RuntimeError` as well. Each is defined in the room that raises it;
the documentation lists all of them.
"""

from __future__ import annotations


class RefusalIndexError(Exception):
    """An error that a user can fix: the message says what was expected, what was found and what to do."""
