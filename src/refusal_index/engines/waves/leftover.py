"""Results that an earlier command left in files: they are paid for, and it ended before they were in the store."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing

from refusal_index.engines.engine import Assignment
from refusal_index.engines.setting import SettingError
from refusal_index.engines.store import ReplyStore
from refusal_index.engines.waves.formats import read_result
from refusal_index.engines.waves.in_flight import stored_ids
from refusal_index.engines.waves.result import Result, ResultError
from refusal_index.engines.waves.wave import Pending
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked

FOLDER, REPLIES = "waves", ".replies.jsonl"
"""In a run's folder: results that are not in the store yet, and how the files of the engine ``command`` end."""

LEFT = {"command": f"*{REPLIES}", "ray": "shards/*.jsonl"}
"""Which of them each engine leaves there, and takes in itself."""


def refuse_left(folder: RunFolder, engine: str) -> None:
    """Raise where another engine would pay again for what an earlier command left in files.

    Raises
    ------
    SettingError
        The message says where the files are, and how they are taken in.
    """
    others = (pattern for name, pattern in LEFT.items() if name != engine)
    left = [path for pattern in others for path in sorted((folder.path / FOLDER).glob(pattern))]
    if left:
        raise SettingError(
            f"{folder.path}: results that an earlier command paid for lie in {left[0].parent} ({len(left):,} files, "
            f"the first {left[0].name}), and another engine would pay for them again: go on with the same "
            f"{{engine}}, or take them in by 'refusal-index replies {folder.path} FILE...' and remove them"
        )


Answered = Callable[[str, Sequence[Pending], Assignment], AsyncGenerator[Mapping[str, Result], None]]
"""Has requests to a model, by its name, answered."""


class Leftovers:
    """Results in files, each handed out once; failures are none, for what failed is asked again.

    Parameters
    ----------
    files
        The name of each file, and its lines.
    remove
        Removes a file by its name, once all in it is in the store.

    Examples
    --------
    >>> line = '{"custom_id": "a", "response": {"body": {"choices": [{"message": {"content": "Lima"}}]}}}'
    >>> sorted(Leftovers([("wave.jsonl", [line, '{"custom_id": "b", "resp'])], print).ids)
    ['a']
    """

    def __init__(self, files: Iterable[tuple[str, Iterable[str]]], remove: Callable[[str], object]) -> None:
        self._remove = remove
        self._files: dict[str, dict[str, Result]] = {
            name: {one.custom_id: one for one in read_lines(lines) if is_reply(one)} for name, lines in files
        }

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all that were not handed out yet."""
        return frozenset(one for results in self._files.values() for one in results)

    def take(self, requests: Sequence[Pending]) -> dict[str, Result]:
        """Return the results of requests."""
        wanted, found = {one.custom_id for one in requests}, dict[str, Result]()
        for results in self._files.values():
            for name in wanted & results.keys():
                found[name] = results.pop(name)
        return found

    def clear(self, store: ReplyStore, names: Mapping[Asked, str]) -> None:
        """Remove the files all results of which are in a store by now: they were handed out, or entered before."""
        if self.ids:
            for name in stored_ids(store, names):
                for results in self._files.values():
                    results.pop(name, None)
        for name in [name for name, results in self._files.items() if not results]:
            del self._files[name]
            self._remove(name)


async def left_first(
    left: Leftovers, requests: Sequence[Pending], names: Mapping[Asked, str], assignment: Assignment, answered: Answered
) -> AsyncGenerator[Mapping[str, Result], None]:
    """Yield what lies in files, then what is made of the other requests, one model after the other.

    Parameters
    ----------
    left
        What lies there.
    requests, names, assignment
        What is asked, of whom, and for what.
    answered
        Has requests to one model answered.
    """
    found = left.take(requests)
    if found:
        yield found
    left.clear(assignment.store, names)
    for name in dict.fromkeys(names.values()):
        asked = [one for one in requests if names[one.ask.request.asked] == name and one.custom_id not in found]
        if asked and assignment.breaker.reason is None:
            async with aclosing(answered(name, asked, assignment)) as groups:
                async for results in groups:
                    yield results


def read_lines(lines: Iterable[str], model: str = "the provider") -> Iterator[Result]:
    """Yield the result in each line; one that was not written to its end, or holds none, is passed over."""
    for line in lines:
        try:
            yield read_result(json.loads(line), model)
        except (ResultError, ValueError, RecursionError):
            continue


def is_reply(result: Result) -> bool:
    """Whether a result holds an answer."""
    return result.response is not None and any(one is not None for one in result.response.replies)
