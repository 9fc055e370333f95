"""Rounds on a Ray cluster, in shards: finished shards are kept, and not asked again."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from refusal_index.data.folder import RunFolder
from refusal_index.models.chat_api import chat_body
from refusal_index.models.failures import RESUMES, Failure, FailureKind, describe_error
from refusal_index.models.openai_client import CONCURRENCY
from refusal_index.models.requests import Account, ModelError, account_of, provider_of
from refusal_index.models.settings import SettingError, unknown
from refusal_index.plugins.batches.engine import FOLDER, FileExecutor
from refusal_index.plugins.batches.formats import MAX_REPLY_TOKENS, Result
from refusal_index.plugins.batches.ray_nodes import (
    Asker,
    Desk,
    EmbeddedAsker,
    HttpAsker,
    Shards,
    failure_line,
    finished,
    own_name,
    read_shard,
    result_line,
)
from refusal_index.plugins.batches.rounds import Pending
from refusal_index.protocol import Role
from refusal_index.redaction import redacted
from refusal_index.runs.engine import Assignment, RunFailedError, Underway
from refusal_index.runs.settings import Settings


@dataclass(frozen=True)
class RayOptions:
    """How a round is cut into shards, and the workers.

    Attributes
    ----------
    shard
        Requests of a shard: what a killed process or node repeats at most, for each worker.
    storage
        The URL of a folder for finished shards until they are in the store, as ``s3://bucket/path``; None for the run's
        own folder.
    concurrency
        Workers; None for one a processor with embedded models, one a node with servers, and one with weights.
    vllm
        Arguments of vLLM's engine, by name.
    """

    shard: int = 256
    storage: str | None = None
    concurrency: int | None = None
    vllm: Mapping[str, Any] = field(default_factory=dict)


def read_options(given: Iterable[tuple[str, str]]) -> RayOptions:
    """Read options from their names and values.

    Raises
    ------
    SettingError
        If there is no such option, or its value is of another kind.

    Examples
    --------
    >>> read_options([("shard", "64"), ("vllm.tensor-parallel-size", "2")]).vllm
    {'tensor_parallel_size': 2}
    """
    own, of_vllm = dict[str, Any](), dict[str, Any]()
    known = [one.name for one in fields(RayOptions) if one.name != "vllm"]
    for name, value in given:
        if name.startswith(VLLM_PREFIX):
            try:
                parsed = json.loads(value)
            except ValueError:  # plain text
                parsed = value
            of_vllm[name.removeprefix(VLLM_PREFIX).replace("-", "_")] = parsed
        elif name not in known:
            raise unknown("engine_option", name, [*known, f"{VLLM_PREFIX}NAME"])
        elif name == "storage":
            own[name] = value
        elif value.isascii() and value.isdigit() and int(value) > 0:
            own[name] = int(value)
        else:
            raise SettingError(f"{{engine_option}}: expected a whole number from 1 in {name}, got {value!r}")
    return RayOptions(**own, vllm=of_vllm)


QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Ray sends no usage statistics, and the output of its processes stays in the logs of its session."""

CONNECT_TIMEOUT = 3.0  # seconds; Ray itself tries for minutes
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS_FRAME = 4
"""The first bytes of a gRPC client, and the kind of frame with which a gRPC server, such as a cluster, begins."""

LOCAL, AUTO = "local", "auto"


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Be connected to a cluster inside the block; where this process is connected already, it stays as it is.

    Parameters
    ----------
    address
        ``HOST:PORT``, or ``auto`` for the one that this machine belongs to; None for that of the environment, and where
        there is none for one on this machine.

    Raises
    ------
    ModelError
        If there is none at the address, or it is not like this installation.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if ray.is_initialized():
        _quieten_data()
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    if address not in (LOCAL, AUTO):
        check_address(address)
    own = {"include_dashboard": False} if address == LOCAL else {}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with _quiet_stderr():
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **own)
    except (Exception, SystemExit) as error:  # Ray ends the process where it cannot connect
        raise _no_cluster(address, f"{type(error).__name__}: {error}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray's own would end the process at once, with another status
    _quieten_data()
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Keep what Ray's own library writes away from the terminal; errors are raised."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no such stream
        yield
        return
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def check_address(address: str) -> None:
    """Raise ModelError unless what may be a cluster answers at an address, within seconds.

    Examples
    --------
    >>> check_address("ray://head:10001")
    Traceback (most recent call last):
    refusal_index.models.requests.ModelError: ray_address: expected HOST:PORT of a cluster, ...
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise ModelError(
            "{ray_address}: expected HOST:PORT of a cluster, as 'ray start' shows it, or auto, got "
            f"{redacted(address)[:100]!r}; Ray's client (ray://) cannot carry data: run on a node of the cluster"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT) as connection:
            connection.settimeout(CONNECT_TIMEOUT)
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                connection.sendall(HELLO)
                frame = connection.recv(9)
                if len(frame) < 4 or frame[3] != SETTINGS_FRAME:
                    raise OSError("something else answers there")
    except OSError as error:
        raise _no_cluster(address, error.strerror or str(error)) from error


def _no_cluster(address: str, reason: str) -> ModelError:
    return ModelError(
        f"{{ray_address}}: no Ray cluster at {redacted(address)[:100]} ({redacted(reason).strip()[:200]}); start one "
        "by 'ray start --head', or leave the address out for this machine alone"
    )


def _quieten_data() -> None:
    """Keep Ray Data's messages off the terminal; they are in the logs of its session."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for name in ("ray.data", "ray"):
        for handler in logging.getLogger(name).handlers:
            if not isinstance(handler, logging.FileHandler) and type(handler).__name__ != "SessionFileHandler":
                handler.setLevel(logging.CRITICAL)


VLLM, VLLM_PREFIX = "vllm", "vllm."
ERROR = "__inference_error__"
"""The column with the error of vLLM's stage; empty where it answered."""

SAMPLED = ("temperature", "top_p", "seed", "max_tokens")
"""The sampling parameters of a body, which have the same names in vLLM."""


def check_gpus(names: Iterable[str]) -> None:
    """Raise ModelError if weights are to run on a cluster without a GPU, where they would wait for one for ever."""
    for name in names:
        if _is_vllm(name) and not ray.cluster_resources().get("GPU"):
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
        should_continue_on_error=True,  # else a prompt that is too long ends the round
        log_engine_metrics=False,
    )


def on_gpus(tables: list[pa.Table], name: str, shards: Shards, options: RayOptions) -> ray.data.Dataset:
    """Return the data set in which vLLM answers; each batch of results is kept as it comes.

    Raises
    ------
    ModelError
        If what runs vLLM is not installed, or an argument of its engine cannot be used.
    """
    try:
        from ray.data.llm import build_processor  # noqa: PLC0415

        config = config_of(name.partition("/")[2], options)
        longest = options.vllm.get("max_model_len")
        processor = build_processor(config, preprocess=to_vllm, postprocess=FromVllm(longest))
    except ImportError as error:
        raise ModelError(
            f"model {name!r}: expected what Ray's stage for vLLM needs, here and on every node ({error}); pip install "
            "'ray[llm]'"
        ) from error
    except ValueError as error:
        raise ModelError(f"model {name!r}: {{engine_option}}: {error}") from error
    dataset: ray.data.Dataset = processor(ray.data.from_arrow(tables))
    return dataset.map_batches(Keep(name, shards.place, shards.mark), batch_size=None, batch_format="pyarrow")


def to_vllm(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what vLLM's stages need of a request.

    Examples
    --------
    >>> to_vllm({"body": '{"messages": [], "seed": 7}'})["sampling_params"]
    {'seed': 7, 'max_tokens': 4096}
    """
    body = json.loads(row["body"])
    sampling = {name: body[name] for name in SAMPLED if name in body}
    sampling.setdefault("max_tokens", MAX_REPLY_TOKENS)  # vLLM's own is 16
    return {"messages": body["messages"], "sampling_params": sampling}


class FromVllm:
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
        most = json.loads(row["body"]).get("max_tokens", MAX_REPLY_TOKENS)
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
    name
        The model's.
    place, mark
        Where shards are kept, and the driver's mark there.
    """

    def __init__(self, name: str, place: str, mark: str | None) -> None:
        self._name, self._place, self._mark = name, place, mark

    def __call__(self, table: pa.Table) -> pa.Table:
        """Write the lines of a batch, and return them."""
        lines = "".join(f"{self._line(row)}\n" for row in table.to_pylist())
        name = hashlib.sha256(lines.encode()).hexdigest()[:24]
        return finished(Shards(self._place, self._mark), name, lines, table.num_rows)

    def _line(self, row: Mapping[str, Any]) -> str:
        if row.get(ERROR):
            return failure_line(row["custom_id"], Failure(str(row[ERROR])[:300], self._name, FailureKind.REQUEST))
        return str(row["line"])


SHARE = 0.5
"""Of a processor that Ray books for an actor: where half of the nodes are lost, those left have room for all."""

LAST_WAIT = 10.0  # seconds for what is in flight when the command is interrupted
DISK_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))

Row = Mapping[str, Any]


def shards_of(requests: Sequence[Pending], size: int, model: str, provider: str) -> Iterator[pa.Table]:
    """Yield requests as tables of so many rows, each named after its content."""
    for start in range(0, len(requests), size):
        group = requests[start : start + size]
        name = hashlib.sha256("\n".join(one.custom_id for one in group).encode()).hexdigest()[:24]
        yield pa.Table.from_pylist(
            [
                {
                    "shard": name,
                    "custom_id": one.custom_id,
                    "role": str(one.ask.request.role),
                    "about": one.ask.conversation.question.question_id,
                    "body": json.dumps(chat_body(one.ask, model, provider)),
                }
                for one in group
            ]
        )


def new_desk() -> Any:
    """Return a new desk on the node of this process: it lives as long as that does."""
    node = ray.get_runtime_context().get_node_id()
    beside = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=beside)(Desk).remote()


def answered(
    tables: list[pa.Table], actor: type[Asker], arguments: Mapping[str, Any], workers: int
) -> ray.data.Dataset:
    """Return the data set in which so many actors answer shards, each made with the arguments."""
    # one shard at a time for each: a quicker one gets more of them, and a lost one loses few
    pool = ray.data.ActorPoolStrategy(size=min(workers, len(tables)), max_tasks_in_flight_per_actor=1)
    return ray.data.from_arrow(tables).map_batches(
        actor,
        fn_constructor_kwargs=dict(arguments),
        batch_size=None,
        batch_format="pyarrow",
        compute=pool,
        num_cpus=SHARE,
    )


class RayExecutor(FileExecutor):
    """Has requests answered by the nodes of a cluster.

    Parameters
    ----------
    settings, names
        The run's, and the models by role.

    Raises
    ------
    ModelError
        If a model cannot be asked.
    SettingError
        If there is no such option.
    """

    def __init__(self, settings: Settings, names: Mapping[Role, str]) -> None:
        super().__init__(names)
        self._settings = settings
        self._options = read_options(settings.sending.own_options)
        self._accounts = {name: account for name in names.values() if (account := _account(name, settings)) is not None}
        # Ray's stage for vLLM returns one reply only
        self.gives_choices = not any(map(_is_vllm, names.values()))
        self._stream: RowStream | None = None

    @asynccontextmanager
    async def open(self, folder: RunFolder | None) -> AsyncIterator[None]:
        """Connect to the cluster, and find the shards that an earlier command left."""
        with tempfile.TemporaryDirectory(prefix="refusal-index-") as temporary:
            own, storage = (folder.path if folder else Path(temporary)) / FOLDER, self._options.storage
            # those of several runs in one storage lie apart
            place = str((own / "shards").absolute()) if storage is None else f"{storage.rstrip('/')}/{own_name(own)}"
            self._shards = Shards(place)
            self._shards.make()
            self._load(self._shards.read())
            try:
                with cluster(self._settings.sending.ray_address):
                    check_gpus(self._names.values())
                    self._desk, self._stream = new_desk(), None
                    try:
                        yield
                    finally:
                        await self._finish_in_flight()
            finally:
                self._shards.close()

    def _remove(self, file: str) -> None:
        self._shards.remove(file)

    async def _answers(
        self, name: str, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, Result], None]:
        dataset, n_shards = self._dataset(name, requests)
        self._stream, n_finished = RowStream(dataset), 0
        stopping = asyncio.create_task(self._stop(assignment))
        try:
            async for row in self._stream.rows():
                n_finished += 1
                if not row["is_kept"]:
                    self._shards.write(row["shard"], row["lines"])
                yield read_shard(row["lines"].split("\n"), name)
                self._shards.remove(row["shard"])  # it is in the store by now
                assignment.budget.sent(max(row["sent"] - row["lines"].count("\n"), 0))
                if row["ended"] is not None:
                    assignment.breaker.open(row["ended"])
                assignment.progress(Underway(f"{n_finished:,} of {n_shards:,} shards are complete"))
        except Exception as error:
            full = next((text for text in DISK_FULL if text in str(error)), None)  # Ray wraps what an actor raised
            reason = f"Ray: {describe_error(error)}" if full is None else f"{full} where shards are written: free space"
            raise RunFailedError(f"{name}: {reason}; {RESUMES}") from error
        finally:
            stopping.cancel()

    async def _finish_in_flight(self) -> None:
        """Let what is in flight come back and be kept, and nothing else be sent."""
        if self._stream is not None and self._stream.thread.is_alive():
            self._desk.end.remote("it was interrupted")
            await asyncio.to_thread(self._stream.thread.join, LAST_WAIT)

    async def _stop(self, assignment: Assignment) -> None:
        """Stop the actors once the run has ended."""
        await assignment.breaker.opened()
        self._desk.end.remote(assignment.breaker.reason or "")

    def _dataset(self, name: str, requests: Sequence[Pending]) -> tuple[ray.data.Dataset, int]:
        """Return the data set of the results, and the number of its shards."""
        account, options, sending = self._accounts.get(name), self._options, self._settings.sending
        provider, _, model = name.partition("/")
        if account is not None:
            provider, model = account.provider, account.model
        tables = list(shards_of(requests, options.shard, model, provider))
        arguments = {"name": name, "desk": self._desk, "place": self._shards.place, "mark": self._shards.mark}
        if account is not None:
            ray.get(self._desk.hold.remote(account))
            workers = min(options.concurrency or len(ray.nodes()), len(tables))
            arguments["concurrency"] = max((sending.max_connections or CONCURRENCY) // workers, 1)
            arguments |= {"max_retries": sending.max_retries, "attempt_timeout": sending.attempt_timeout}
            dataset = answered(tables, HttpAsker, arguments, workers)
        elif _is_vllm(name):
            dataset = on_gpus(tables, name, self._shards, options)
        else:
            workers = options.concurrency or int(ray.cluster_resources().get("CPU", 1))
            dataset = answered(tables, EmbeddedAsker, arguments, workers)
        return dataset, len(tables)


def _is_vllm(name: str) -> bool:
    return name.partition("/")[0] == VLLM


def _account(name: str, settings: Settings) -> Account | None:
    """Return the account of a model; None for one that the nodes hold themselves."""
    if _is_vllm(name):
        is_given = {
            "logprobs": settings.sending.logprobs,
            "reasoning_effort": settings.decoding.reasoning_effort is not None,
        }
        for setting in (setting for setting, given in is_given.items() if given):
            raise ModelError(
                f"model {name!r}: Ray's stage for vLLM carries no {{{setting}}}; choose {{engine}} command, or a "
                "server and {engine} direct"
            )
        return None
    provider, model = provider_of(name)
    if provider is not None and provider.is_embedded:
        provider.check(model)
        return None
    return account_of(name)


class RowStream:
    """The rows of a data set as they come, read in a thread, since Ray Data has no asynchronous iterator."""

    def __init__(self, dataset: ray.data.Dataset) -> None:
        self._loop, self._rows = asyncio.get_running_loop(), asyncio.Queue[Row | Exception | None]()
        self.thread = threading.Thread(target=self._read, args=(dataset,), daemon=True, name="ray-shards")
        self.thread.start()

    def _read(self, dataset: ray.data.Dataset) -> None:
        end: Exception | None = None
        try:
            for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                for row in table.to_pylist():
                    self._put(row)
        except Exception as error:
            end = error
        self._put(end)

    def _put(self, item: Row | Exception | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._rows.put_nowait, item)

    async def rows(self) -> AsyncIterator[Row]:
        """Yield the rows; raises what reading them raised."""
        while (item := await self._rows.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
