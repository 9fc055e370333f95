"""Waves in shards on a Ray cluster: finished shards are kept, and not asked again."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data

from refusal_index.data.folder import RunFolder
from refusal_index.models.accounts import Account, account_of
from refusal_index.models.failures import RESUMES, Failure, FailureKind, describe_error
from refusal_index.models.providers import provider_of
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches.engine import LARGEST_WAVE
from refusal_index.plugins.batches.formats import LONGEST_REPLY, Result
from refusal_index.plugins.batches.ray_actors import FINISHED, result_line
from refusal_index.plugins.batches.ray_cluster import RayOptions, cluster, read_options
from refusal_index.plugins.batches.ray_pipeline import Place, desk_here, embedded, over_http, shards_of
from refusal_index.plugins.batches.ray_shards import Shards, failure_line, own_name, read_shard
from refusal_index.plugins.batches.spool import Leftovers, left_first
from refusal_index.plugins.batches.wave import Pending
from refusal_index.protocol import Role
from refusal_index.runs.engine import Assignment, RunFailedError, Underway
from refusal_index.runs.settings import Settings

VLLM = "vllm"
ERROR = "__inference_error__"
"""The column in which vLLM's stage says why it could not answer; empty where it did."""

SAMPLED = ("temperature", "top_p", "seed", "max_tokens")
"""What a body says of how to generate, by names that vLLM has as well."""


def check_settings(name: str, settings: Settings) -> None:
    """Raise ModelError where a run wants of a model what Ray's stage for vLLM does not hand on."""
    for setting, wanted in (
        ("logprobs", settings.sending.logprobs),
        ("reasoning_effort", settings.decoding.reasoning_effort is not None),
    ):
        if wanted:
            raise ModelError(
                f"model {name!r}: Ray's stage for vLLM carries no {{{setting}}}; choose {{engine}} command, or a "
                "server and {engine} direct"
            )


def check_gpus(names: Iterable[str]) -> None:
    """Raise ModelError if weights are to run on a cluster without a GPU, where they would wait for one for ever."""
    for name in names:
        if name.partition("/")[0] == VLLM and not ray.cluster_resources().get("GPU"):
            raise ModelError(
                f"model {name!r}: expected a GPU on a node of the cluster, found none; start such nodes first, or "
                "choose {engine} direct and a server"
            )


def config_of(model: str, options: RayOptions) -> Any:
    """Return what Ray needs to know of a model and its engine.

    Parameters
    ----------
    model
        As vLLM knows it, or the folder of its weights on every node.
    options
        Workers, the size of a shard, and what vLLM's engine is given.
    """
    from ray.data.llm import vLLMEngineProcessorConfig  # noqa: PLC0415 - takes seconds, and only this needs it

    return vLLMEngineProcessorConfig(
        model_source=model,
        engine_kwargs=dict(options.vllm),
        concurrency=options.concurrency or 1,
        batch_size=options.shard,
        should_continue_on_error=True,  # else a prompt that is too long ends the wave
        log_engine_metrics=False,
    )


def on_gpus(tables: list[pa.Table], name: str, place: Place, options: RayOptions) -> ray.data.Dataset:
    """Return the data set in which vLLM answers; each batch of results is kept as it comes.

    Raises
    ------
    ModelError
        If what runs vLLM is not installed, or an argument of its engine cannot be used.
    """
    config = processor = None
    try:
        from ray.data.llm import build_processor  # noqa: PLC0415

        config = config_of(name.partition("/")[2], options)
        longest = options.vllm.get("max_model_len")
        processor = build_processor(config, preprocess=asked, postprocess=Answered(longest))
    except ImportError as error:
        raise ModelError(
            f"model {name!r}: expected what Ray's stage for vLLM needs, here and on every node ({error}); pip install "
            "'ray[llm]'"
        ) from error
    except ValueError as error:
        raise ModelError(f"model {name!r}: {{engine_option}}: {error}") from error
    answered: ray.data.Dataset = processor(ray.data.from_arrow(tables))
    return answered.map_batches(Keep(name, place), batch_size=None, batch_format="pyarrow")


def asked(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what vLLM's stages need of a request.

    Examples
    --------
    >>> asked({"body": '{"messages": [], "seed": 7}'})["sampling_params"]
    {'seed': 7, 'max_tokens': 4096}
    """
    body = json.loads(row["body"])
    sampling = {name: body[name] for name in SAMPLED if name in body}
    sampling.setdefault("max_tokens", LONGEST_REPLY)  # vLLM's own is 16
    return {"messages": body["messages"], "sampling_params": sampling}


class Answered:
    """Puts what vLLM generated into the line of a result.

    Parameters
    ----------
    longest
        Tokens of prompt and reply together; None where the model's own length is not known here.
    """

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the id and the line."""
        read, written = int(row["num_input_tokens"]), int(row["num_generated_tokens"])
        most = json.loads(row["body"]).get("max_tokens", LONGEST_REPLY)
        # the stage does not say why a reply ended
        is_cut = written >= most or (self._longest is not None and read + written >= self._longest)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": str(row["generated_text"])},
            "finish_reason": "length" if is_cut else "stop",
        }
        usage = {"prompt_tokens": read, "completion_tokens": written}
        line = result_line(row["custom_id"], 200, {"choices": [choice], "usage": usage})
        return {"custom_id": row["custom_id"], "line": line}


class Keep:
    """Keeps a batch of results as a shard of its own.

    Parameters
    ----------
    name, place
        Of the model, and where shards are kept.
    """

    def __init__(self, name: str, place: Place) -> None:
        self._name, self._place = name, place

    def __call__(self, table: pa.Table) -> pa.Table:
        """Write the lines of a batch and hand them on."""
        lines = "".join(f"{self._line(row)}\n" for row in table.to_pylist())
        title = hashlib.sha256(lines.encode()).hexdigest()[:24]
        shards = Shards(self._place.url)
        here = shards.is_remote or shards.has_mark(self._place.mark)
        if here and lines:
            shards.write(title, lines)
        row = {"shard": title, "lines": lines, "is_kept": here, "sent": table.num_rows, "ended": None}
        return pa.Table.from_pylist([row], schema=FINISHED)

    def _line(self, row: Mapping[str, Any]) -> str:
        if row.get(ERROR):
            return failure_line(row["custom_id"], Failure(str(row[ERROR])[:300], self._name, FailureKind.REQUEST))
        return str(row["line"])


FOLDER = Path("waves") / "shards"
TOGETHER = 2.0  # seconds within which finished shards are entered together
LAST_WORDS = 10.0  # seconds for what is in flight when the command is interrupted

DISK_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))

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

    def __init__(self, settings: Settings, names: Mapping[Role, str]) -> None:
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

    def in_flight(self) -> frozenset[str]:
        """Return the ids of requests whose results lie in shards."""
        return self._left.ids

    def execute(
        self, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, Result], None]:
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
            full = next((one for one in DISK_FULL if one in str(error)), None)  # Ray wraps what an actor raised
            reason = f"Ray: {describe_error(error)}" if full is None else f"{full} where shards are written: make room"
            raise RunFailedError(f"{name}: {reason}; {RESUMES}") from error
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
        """Let what is in flight come back and be kept, and nothing else be sent."""
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
    provider, model = provider_of(name)
    if provider is not None and provider.is_embedded:
        provider.check(model)
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
