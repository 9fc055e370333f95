"""What the batch engine asks of a provider, whoever it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from refusal_index.models.accounts import Account
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches.formats import Format

METADATA = "refusal_index"
"""Under which name a provider keeps our key of a batch."""

LARGEST_LINE = 64 << 20  # bytes of one result
ONE_BY_ONE = ("google", "mistral", "grok")  # Inspect's names of providers whose batches have an API of their own

NO_WORD, LONGEST_STATUS = re.compile(r"[\W_]+"), 80
"""What is not shown of the words that providers have for how a batch stands."""


@dataclass(frozen=True)
class State:
    """How a batch stands.

    Attributes
    ----------
    id, status
        What the provider calls the batch, and how it says that it stands.
    ended
        Whether nothing more will come.
    total, done
        How many requests it holds, and how many have an answer or failed; 0 as long as that is not known.
    key
        Ours, where the provider keeps it.
    created
        When it was made, in seconds since 1970, by the provider's clock; None where that is not said.
    refusal, is_crowded
        Why none of it was asked, as the provider says, and whether that was for what else is in flight.
    files
        The provider's names of the files with results.
    answered
        How many requests have an answer, which the results hold then; 0 where that is not said.
    file
        The provider's name of the file with the requests; None where that is not said.
    is_guess
        Whether it may be another batch than the one that was looked for.
    """

    id: str
    status: str
    ended: bool
    total: int = 0
    done: int = 0
    key: str | None = None
    created: float | None = None
    refusal: str | None = None
    is_crowded: bool = False
    files: tuple[str, ...] = ()
    answered: int = 0
    file: str | None = None
    is_guess: bool = False


class Provider(Protocol):
    """Takes batches for one model, by the provider's own client.

    Attributes
    ----------
    account, style
        Where and with which key, and the format of its requests.
    keeps_keys
        Whether it keeps our key of a batch and shows it in its list.
    """

    account: Account
    style: Format
    keeps_keys: bool

    def open(self) -> AbstractAsyncContextManager[None]:
        """Make the client, and close it at the end."""

    async def upload(self, path: Path, key: str) -> str | None:
        """Hand over a file of requests, and return its name there; None where requests go with the batch itself."""

    async def submit(self, path: Path, file: str | None, key: str) -> State:
        """Have the requests of a file asked: this is what costs."""

    async def look(self, batch: str) -> State:
        """Tell how a batch stands."""

    def batches(self) -> AsyncIterator[State]:
        """List the account's batches."""

    def results(self, state: State) -> AsyncIterator[bytes]:
        """Give the results of a batch that ended, line by line."""

    async def cancel(self, batch: str) -> None:
        """Let a batch end early."""

    async def delete(self, file: str) -> None:
        """Delete a file of requests."""


def provider_of(name: str, timeout: float) -> Provider:
    """Return the client for a model's batches.

    Parameters
    ----------
    name
        Of the model.
    timeout
        Seconds that the server may take for any step of a request.

    Raises
    ------
    ModelError
        If its provider's batches are not supported, or its address, its key or its client is missing.
    """
    provider = name.partition("/")[0]
    if provider in ONE_BY_ONE:
        raise ModelError(
            f"model {name!r}: batches are supported for OpenAI, compatible servers and Anthropic only; leave out "
            "{engine} batch, and it is asked one request at a time"
        )
    module, made = ("anthropic", "AnthropicBatches") if provider == "anthropic" else ("openai", "OpenAIBatches")
    found: Provider = getattr(import_module(f"{__package__}.batch_{module}"), made)(name, timeout)
    return found


def place_of(account: Account) -> str:
    """Return the address of a provider without what must not be written down.

    Examples
    --------
    >>> place_of(Account("a/b", "a", "b", "http://me:hush@127.0.0.1:8000/v1?key=hush"))
    'http://127.0.0.1:8000/v1'
    """
    parts = urlsplit(account.base_url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    r"""Cut a file into its lines, at ``\n`` only: what else a text may hold as the end of a line stands in replies."""
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        if b"\n" in chunk:
            *whole, last = rest.split(b"\n")
            for line in whole:
                yield bytes(line)
            rest = bytearray(last)
        if len(rest) > LARGEST_LINE:
            raise ValueError(f"expected lines of at most {LARGEST_LINE:,} bytes")
    if rest:
        yield bytes(rest)


def told_states(states: Iterable[tuple[str, State]]) -> str:
    """Say how batches stand, from the provider and the state of each.

    Examples
    --------
    >>> told_states([("openai", State("b1", "in_progress", False, 1000, 20))])
    '1 batch at openai: 1 in progress; 20 of 1,000 done'
    """
    found: dict[str, list[State]] = {}
    for provider, state in states:
        found.setdefault(provider, []).append(state)
    return "; ".join(_told(provider, those) for provider, those in found.items())


def _told(provider: str, states: list[State]) -> str:
    times = Counter(NO_WORD.sub(" ", one.status)[:LONGEST_STATUS] for one in states)
    how = ", ".join(f"{count:,} {status}" for status, count in sorted(times.items()))
    done, total = sum(one.done for one in states), sum(one.total for one in states)
    counts = f"; {done:,} of {total:,} done" if total else ""
    return f"{len(states):,} batch{'es' if len(states) > 1 else ''} at {provider}: {how}{counts}"
