"""Waves in shards on a cluster: what is finished is kept at once, and what is kept is not asked again."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import ray.data

from refusal_index.almanac import ALMANAC
from refusal_index.almanac.models import model_names
from refusal_index.engines.accounts import Account, account_of
from refusal_index.engines.engine import Assignment, RunFailedError, Underway
from refusal_index.engines.failures import RESUMES, told
from refusal_index.engines.settings import Settings, unknown
from refusal_index.engines.waves.engine import LARGEST_WAVE
from refusal_index.engines.waves.formats import Result
from refusal_index.engines.waves.ray_cluster import cluster, read_options
from refusal_index.engines.waves.ray_pipeline import Place, desk_here, embedded, over_http, shards_of
from refusal_index.engines.waves.ray_shards import Shards, own_name, read_shard
from refusal_index.engines.waves.ray_vllm import VLLM, check_gpus, check_settings, on_gpus
from refusal_index.engines.waves.spool import Leftovers, left_first
from refusal_index.engines.waves.wave import Pending
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked

FOLDER = Path("waves") / "shards"
TOGETHER = 2.0  # seconds within which finished shards are entered together
LAST_WORDS = 10.0  # seconds for what is on its way when the command is interrupted

Row = Mapping[str, Any]


class RayExecutor:
    """Has waves answered by the nodes of a cluster.

    Parameters
    ----------
    settings, names
        Those of the run, and who is asked.

    Raises
    ------
    ModelError
        If a model cannot be asked.
    SettingError
        If an option is none.
    """

    largest_wave: int | None = LARGEST_WAVE

    def __init__(self, settings: Settings, names: Mapping[Asked, str]) -> None:
        self._settings, self._names = settings, names
        self._options = read_options(settings.sending.own_options)
        self._accounts = {name: account for name in names.values() if (account := _account(name, settings)) is not None}
        # Ray's stage for vLLM hands on one reply only
        self.gives_choices = not any(_provider(name) == VLLM for name in names.values())
        self._left = Leftovers([], len)
        self._stream: _Stream | None = None

    @asynccontextmanager
    async def open(self, folder: RunFolder | None) -> AsyncIterator[None]:
        """Connect to the cluster, and find the shards that an earlier command left."""
        with tempfile.TemporaryDirectory(prefix="refusal-index-") as temporary:
            self._shards = Shards(self._url(folder.path if folder else Path(temporary)))
            self._place = Place(self._shards.place, self._shards.make())
            self._left = Leftovers(self._shards.read(), self._shards.remove)
            try:
                with cluster(self._settings.sending.ray_address):
                    check_gpus(self._names.values())
                    self._desk, self._stream = desk_here(), None
                    try:
                        yield
                    finally:
                        await self._wind_up()
            finally:
                self._shards.close()

    def _url(self, run: Path) -> str:
        """Return where shards are kept: those of several runs in one storage lie apart."""
        if self._options.storage is None:
            return str((run / FOLDER).absolute())
        return f"{self._options.storage.rstrip('/')}/{own_name(run / FOLDER.parent)}"

    def on_their_way(self) -> frozenset[str]:
        """Return the ids of requests whose results lie in shards."""
        return self._left.ids

    def carry(self, requests: Sequence[Pending], assignment: Assignment) -> AsyncGenerator[Mapping[str, Result], None]:
        """Yield what lies in shards, then what the cluster makes of the others.

        Raises
        ------
        RunFailedError
            If the cluster fails, and not only a part of it.
        """
        return left_first(self._left, requests, self._names, assignment, self._answered)

    async def _answered(
        self, name: str, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, Result], None]:
        dataset, shards = self._dataset(name, requests)
        stream, finished = _Stream(dataset), 0
        self._stream = stream
        stopping = asyncio.create_task(self._stop(assignment))
        try:
            async for rows in stream.groups():
                finished += len(rows)
                for row in rows:
                    if not row["is_kept"]:
                        self._shards.write(row["shard"], row["lines"])
                yield {key: one for row in rows for key, one in read_shard(row["lines"].split("\n"), name).items()}
                self._account_for(rows, assignment)
                assignment.progress(Underway(f"{finished:,} of {shards:,} shards have come back"))
        except Exception as error:
            raise RunFailedError(f"{name}: Ray: {told(error)}; {RESUMES}") from error
        finally:
            stopping.cancel()

    def _account_for(self, rows: Sequence[Row], assignment: Assignment) -> None:
        """Remove shards that are in the store by now, count what they took, and end where an actor had to end."""
        for row in rows:
            self._shards.remove(row["shard"])
            assignment.budget.sent(max(row["sent"] - row["lines"].count("\n"), 0))
            if row["ended"] is not None:
                assignment.breaker.open(row["ended"])

    async def _wind_up(self) -> None:
        """Let what is on its way come back and be kept, and nothing else be sent."""
        if self._stream is not None and not self._stream.is_over:
            self._desk.end.remote("it was interrupted")
            await asyncio.to_thread(self._stream.join, LAST_WORDS)

    async def _stop(self, assignment: Assignment) -> None:
        """Tell the actors once the run has ended."""
        await assignment.breaker.opened()
        self._desk.end.remote(assignment.breaker.reason or "")

    def _dataset(self, name: str, requests: Sequence[Pending]) -> tuple[ray.data.Dataset, int]:
        """Return the data set of what will be answered, and the number of its shards."""
        provider, model = _provider(name), name.partition("/")[2]
        account = self._accounts.get(name)
        if account is not None:
            provider, model = account.provider, account.model
        tables = list(shards_of(requests, self._options.shard, model, provider))
        if account is not None:
            made = over_http(tables, account, self._desk, self._place, self._options, self._settings)
        elif provider == VLLM:
            made = on_gpus(tables, name, self._place, self._options)
        else:
            made = embedded(tables, name, self._desk, self._place, self._options)
        return made, len(tables)


def _provider(name: str) -> str:
    return name.partition("/")[0]


def _account(name: str, settings: Settings) -> Account | None:
    """Return where a model is asked; None for one that the nodes hold themselves."""
    if _provider(name) == VLLM:
        check_settings(name, settings)
        return None
    if _provider(name) == ALMANAC:
        known = [f"{ALMANAC}/{one}" for one in model_names()]
        if name not in known:
            raise unknown("model", name, known)
        return None
    return account_of(name)


class _Stream:
    """The rows of a data set as they come, read in a thread: Ray knows no event loop."""

    def __init__(self, dataset: ray.data.Dataset) -> None:
        self._loop, self._rows = asyncio.get_running_loop(), asyncio.Queue[Row | Exception | None]()
        self.is_over = False
        self._thread = threading.Thread(target=self._read, args=(dataset,), daemon=True, name="ray-shards")
        self._thread.start()
        self.join = self._thread.join

    def _read(self, dataset: ray.data.Dataset) -> None:
        end: Exception | None = None
        try:
            for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                for row in table.to_pylist():
                    self._tell(row)
        except Exception as error:
            end = error
        self._tell(end)

    def _tell(self, one: Row | Exception | None) -> None:
        with suppress(RuntimeError):  # the loop is gone, and with it whoever waits
            self._loop.call_soon_threadsafe(self._rows.put_nowait, one)

    async def groups(self) -> AsyncIterator[list[Row]]:
        """Yield rows, all those together that come within a short while; raises what reading them does."""
        while not self.is_over:
            rows, end = await self._group()
            if rows:
                yield rows
            if isinstance(end, Exception):
                raise end

    async def _group(self) -> tuple[list[Row], Exception | None]:
        rows: list[Row] = []
        one = await self._rows.get()
        with suppress(TimeoutError):
            async with asyncio.timeout(TOGETHER):
                while one is not None and not isinstance(one, Exception):
                    rows.append(one)
                    one = await self._rows.get()
                self.is_over = True
                return rows, one
        return rows, None
