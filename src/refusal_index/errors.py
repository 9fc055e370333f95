"""The base class of this package's errors.

Errors about input (a file, an argument, a folder) are `ValueError` as well; errors while models are asked are
`RuntimeError` as well. Each is defined in the package that raises it; the documentation lists all of them.
"""

from __future__ import annotations


class RefusalIndexError(Exception):
    """An error that a user can fix: the message says what was expected, what was found and what to do."""
