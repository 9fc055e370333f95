"""A run's record of how many of its replies came without the log probabilities that were requested.

It is kept under ``logprobs`` in ``run.json``, and adds up over the commands that asked the run's questions.
"""

from __future__ import annotations

from contextlib import suppress

from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import LOGPROBS
from refusal_index.errors import RunFolderError
from refusal_index.protocol import Completion, Role, is_auxiliary


class LogprobsCounter:
    """Counts the replies of a run's model, and those without log probabilities, while it requests them."""

    def __init__(self) -> None:
        self._replies = 0
        self._missing = 0

    def add(self, completion: Completion) -> None:
        """Count a reply, except of a grader, and one that a plugin asked for its own use."""
        if completion.reply.role is Role.MODEL and not is_auxiliary(completion.variant):
            self._replies += 1
            self._missing += completion.logprobs is None and not completion.filtered

    def record(self, folder: RunFolder) -> None:
        """Add the counts to those in the folder, which is locked."""
        if not self._replies:
            return
        counts = {"replies": self._replies, "missing": self._missing}
        with suppress(OSError, RunFolderError):  # a note is not worth the error of a run
            before = folder.read_about().get(LOGPROBS) or {}
            folder.change_about({LOGPROBS: {name: before.get(name, 0) + number for name, number in counts.items()}})
