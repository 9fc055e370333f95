"""A run's record of how many of its replies came without the log probabilities that were requested.

It is kept under ``logprobs`` in ``run.json``, and adds up over the commands that asked the run's questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import LOGPROBS
from refusal_index.errors import RunFolderError
from refusal_index.protocol import Role, is_auxiliary
from refusal_index.runs.events import Event, Progress, Replied


@contextmanager
def counting_logprobs(folder: RunFolder, progress: Progress, *, is_on: bool) -> Iterator[Progress]:
    """Count the replies of a run's model inside the block, and those without log probabilities.

    - `folder`: the run's folder, which is locked.
    - `progress`: what to pass events on to.
    - `is_on`: whether log probabilities are requested; if not, nothing is counted.
    """
    if not is_on:
        yield progress
        return
    counts = {"replies": 0, "missing": 0}

    def counted(event: Event) -> None:
        completion = event.completion if isinstance(event, Replied) else None
        if completion and completion.reply.role is Role.MODEL and not is_auxiliary(completion.variant):
            counts["replies"] += 1
            counts["missing"] += completion.logprobs is None and not completion.filtered
        progress(event)

    try:
        yield counted
    finally:
        if counts["replies"]:
            _add(folder, counts)


def _add(folder: RunFolder, counts: dict[str, int]) -> None:
    with suppress(OSError, RunFolderError):  # a note is not worth the error of a run
        before = folder.read_about().get(LOGPROBS) or {}
        folder.change_about({LOGPROBS: {name: before.get(name, 0) + number for name, number in counts.items()}})
