"""The executor for Ray clusters: a round is split into shards, and finished shards survive if the command is killed."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
import signal
import socket
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

from refusal_index.data.files import working_folder
from refusal_index.data.folder import RunFolder
from refusal_index.models.accounts import Account, account_for
from refusal_index.models.chat_api import chat_body
from refusal_index.models.failures import RESUMES, Failure, FailureKind, describe_error
from refusal_index.models.openai_client import CONCURRENCY
from refusal_index.models.requests import ModelError, ModelRequest, provider_of
from refusal_index.models.sent import Sent, sent_in
from refusal_index.models.settings import SettingError, unknown
from refusal_index.plugins.batches.engine import FOLDER, FileExecutor
from refusal_index.plugins.batches.formats import MAX_REPLY_TOKENS, RequestResult
from refusal_index.plugins.batches.ray_nodes import (
    Coordinator,
    EmbeddedWorker,
    HttpWorker,
    Shards,
    ShardWorker,
    failure_line,
    finished,
    read_shard,
    result_line,
    storage_name,
)
from refusal_index.plugins.batches.rounds import Pending
from refusal_index.protocol import Role
from refusal_index.redaction import redacted_error
from refusal_index.runs.engine import Assignment, RunFailedError
from refusal_index.runs.events import Underway
from refusal_index.runs.settings import Settings


@dataclass(frozen=True)
class RayOptions:
    """The options of the Ray engine.

    Attributes
    ----------
    shard
        Number of requests per shard, the most that each worker has to repeat after its process or node was killed.
    storage
        The URL of a folder that holds finished shards until they are in the store, such as ``s3://bucket/path``; None
        for the run's own folder.
    concurrency
        Number of workers; None for one per CPU (embedded models), one per node (servers) or one (vLLM).
    vllm
        Arguments of vLLM's engine, by name.
    """

    shard: int = 256
    storage: str | None = None
    concurrency: int | None = None
    vllm: Mapping[str, Any] = field(default_factory=dict)


def read_options(pairs: Iterable[tuple[str, str]]) -> RayOptions:
    """Parse engine options, given as pairs of name and value.

    Raises
    ------
    SettingError
        If an option is unknown or has an invalid value.

    Examples
    --------
    >>> read_options([("shard", "64"), ("vllm.tensor-parallel-size", "2")]).vllm
    {'tensor_parallel_size': 2}
    """
    values = dict[str, Any]()
    vllm = dict[str, Any]()
    names = [field_.name for field_ in fields(RayOptions) if field_.name != "vllm"]
    for name, value in pairs:
        if name.startswith(VLLM_PREFIX):
            try:
                parsed = json.loads(value)
            except ValueError:  # plain text
                parsed = value
            vllm[name.removeprefix(VLLM_PREFIX).replace("-", "_")] = parsed
        elif name not in names:
            raise unknown("engine_option", name, [*names, f"{VLLM_PREFIX}NAME"])
        elif name == "storage":
            values[name] = value
        elif value.isascii() and value.isdigit() and int(value) > 0:
            values[name] = int(value)
        else:
            raise SettingError(f"{{engine_option}} {name}: expected a whole number from 1, got {value!r}")
    return RayOptions(**values, vllm=vllm)


QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Environment variables that turn off Ray's usage statistics and keep its output in the session's logs."""

CONNECT_TIMEOUT = 3.0  # seconds; Ray itself tries for minutes
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The first bytes that a gRPC client sends."""

SETTINGS_FRAME = 4
"""The type of the first frame of a gRPC server, such as a cluster."""

LOCAL = "local"


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Connect to a cluster for the duration of the block; an existing connection is used and left open.

    Parameters
    ----------
    address
        ``HOST:PORT``, or ``auto`` for the cluster that this machine belongs to; None for the value of ``RAY_ADDRESS``,
        or a new cluster on this machine if that is not set.

    Raises
    ------
    ModelError
        If there is no cluster at the address, or its versions differ from those installed here.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if ray.is_initialized():
        _quieten_data()
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    if address not in (LOCAL, "auto"):
        check_address(address)
    options = {"include_dashboard": False} if address == LOCAL else {}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with _quiet_stderr():
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except (Exception, SystemExit) as error:  # Ray exits if it cannot connect
        raise _no_cluster(address, f"{type(error).__name__}: {error}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray's handler exits at once, with another status
    _quieten_data()
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Discard what Ray's C++ library writes to standard error; errors are raised as exceptions."""
    try:
        saved = os.dup(2)
    except OSError:  # standard error is closed
        yield
        return
    try:
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def check_address(address: str) -> None:
    """Raise ModelError unless a gRPC server, which may be a cluster, answers at an address within seconds.

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
            f"{redacted_error(address)[:100]!r}; Ray Data does not work through Ray's client (ray://): run on a node "
            "of the cluster"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT) as connection:
            connection.settimeout(CONNECT_TIMEOUT)
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                connection.sendall(HELLO)
                frame = connection.recv(9)
                if len(frame) < 4 or frame[3] != SETTINGS_FRAME:
                    raise OSError("another kind of server answers there")
    except OSError as error:
        raise _no_cluster(address, error.strerror or str(error)) from error


def _no_cluster(address: str, reason: str) -> ModelError:
    return ModelError(
        f"{{ray_address}}: no Ray cluster at {redacted_error(address)[:100]} ({redacted_error(reason).strip()[:200]}); "
        "start one with 'ray start --head', or leave out the address to use this machine alone"
    )


def _quieten_data() -> None:
    """Keep Ray Data's messages off the terminal; they remain in the session's logs."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for name in ("ray.data", "ray"):
        for handler in logging.getLogger(name).handlers:
            if not isinstance(handler, logging.FileHandler) and type(handler).__name__ != "SessionFileHandler":
                handler.setLevel(logging.CRITICAL)


VLLM_PREFIX = "vllm."
ERROR = "__inference_error__"
"""The column that holds the error of vLLM's stage; empty on success."""


def check_gpus(names: Iterable[str]) -> None:
    """Raise ModelError if a vLLM model is to run on a cluster without a GPU, where Ray would wait for one for ever."""
    for name in names:
        if _is_vllm(name) and not ray.cluster_resources().get("GPU"):
            raise ModelError(
                f"model {name!r}: expected a GPU on a node of the cluster, found none; start such nodes first, or "
                "choose {engine} direct and a server"
            )


def config_of(model: str, options: RayOptions) -> Any:
    """Return the configuration of Ray's vLLM stage.

    Parameters
    ----------
    model
        vLLM's name for the model, or the folder of its weights on every node.
    options
        The options of the Ray engine.
    """
    from ray.data.llm import vLLMEngineProcessorConfig  # noqa: PLC0415 - takes seconds to import

    return vLLMEngineProcessorConfig(
        model_source=model,
        engine_kwargs=dict(options.vllm),
        concurrency=options.concurrency or 1,
        batch_size=options.shard,
        should_continue_on_error=True,  # otherwise a prompt that is too long ends the round
        log_engine_metrics=False,
    )


def through_vllm(tables: list[pa.Table], name: str, shards: Shards, options: RayOptions) -> ray.data.Dataset:
    """Return a data set that runs requests through vLLM and writes each batch of results as a shard.

    Raises
    ------
    ModelError
        If Ray's vLLM stage is not installed, or an argument of vLLM's engine is invalid.
    """
    try:
        from ray.data.llm import build_processor  # noqa: PLC0415

        config = config_of(name.partition("/")[2], options)
        max_length = options.vllm.get("max_model_len")
        processor = build_processor(config, preprocess=to_vllm, postprocess=lambda row: from_vllm(row, max_length))
    except ImportError as error:
        raise ModelError(
            f"model {name!r}: Ray's stage for vLLM is not installed ({error}); on this machine and on every node, pip "
            "install 'ray[llm]'"
        ) from error
    except ValueError as error:
        raise ModelError(f"model {name!r}: {{engine_option}}: {error}") from error
    dataset: ray.data.Dataset = processor(ray.data.from_arrow(tables))
    return dataset.map_batches(
        write_shard,
        fn_kwargs={"model": name, "location": shards.place, "mark": shards.mark},
        batch_size=None,
        batch_format="pyarrow",
    )


def to_vllm(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a request to the input of Ray's vLLM stage.

    Examples
    --------
    >>> to_vllm({"body": '{"messages": [], "seed": 7}'})["sampling_params"]
    {'seed': 7, 'max_tokens': 4096}
    """
    body = json.loads(row["body"])
    # sampling parameters that have the same names in a chat body and in vLLM
    sampling = {name: body[name] for name in ("temperature", "top_p", "seed", "max_tokens") if name in body}
    sampling.setdefault("max_tokens", MAX_REPLY_TOKENS)  # vLLM's default is 16
    return {"messages": body["messages"], "sampling_params": sampling}


def from_vllm(row: Mapping[str, Any], max_length: int | None = None) -> dict[str, Any]:
    """Convert the output of Ray's vLLM stage for a request to its id and result line.

    Parameters
    ----------
    row
        The output.
    max_length
        Maximum number of tokens of prompt and reply together; None if not set in the options.
    """
    prompt_tokens = int(row["num_input_tokens"])
    completion_tokens = int(row["num_generated_tokens"])
    max_tokens = json.loads(row["body"]).get("max_tokens", MAX_REPLY_TOKENS)
    # the stage does not say why a reply ended
    is_cut = completion_tokens >= max_tokens or (
        max_length is not None and prompt_tokens + completion_tokens >= max_length
    )
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": str(row["generated_text"])},
        "finish_reason": "length" if is_cut else "stop",
    }
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    line = result_line(row["custom_id"], 200, {"choices": [choice], "usage": usage})
    return {"custom_id": row["custom_id"], "line": line}


def write_shard(table: pa.Table, model: str, location: str, mark: str | None) -> pa.Table:
    """Write a batch of the vLLM stage's results as a shard, and return its row.

    Parameters
    ----------
    table, model
        The results, and the name of the model.
    location, mark
        The arguments of `Shards`.
    """

    def line(row: Row) -> str:
        if row.get(ERROR):
            return failure_line(row["custom_id"], Failure(str(row[ERROR])[:300], model, FailureKind.REQUEST))
        return str(row["line"])

    lines = "".join(f"{line(row)}\n" for row in table.to_pylist())
    name = hashlib.sha256(lines.encode()).hexdigest()[:24]
    return finished(Shards(location, mark), name, lines, table.num_rows)


CPUS_PER_ACTOR = 0.5
"""CPUs that Ray reserves for an actor: if half of the nodes are lost, the rest still have room for all actors."""

LAST_WAIT = 10.0  # seconds to wait for requests in flight when the command is interrupted
DISK_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))

Row = Mapping[str, Any]


def shards_of(requests: Sequence[Pending], size: int, model: str, provider: str) -> Iterator[pa.Table]:
    """Split requests into tables of `size` rows, each with a shard name that is a hash of its requests."""
    for start in range(0, len(requests), size):
        group = requests[start : start + size]
        name = hashlib.sha256("\n".join(request.custom_id for request in group).encode()).hexdigest()[:24]
        yield pa.Table.from_pylist(
            [
                {
                    "shard": name,
                    "custom_id": request.custom_id,
                    "role": str(request.ask.request.role),
                    "about": request.ask.conversation.question.question_id,
                    "body": json.dumps(chat_body(request.ask, model, provider)),
                }
                for request in group
            ]
        )


def start_coordinator() -> Any:
    """Start a `Coordinator` on the node of this process, so that it lives as long as this process."""
    strategy = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=strategy)(Coordinator).remote()


def through_actors(
    tables: list[pa.Table], actor: type[ShardWorker], arguments: Mapping[str, Any], workers: int
) -> ray.data.Dataset:
    """Return a data set that sends shards through a pool of actors, each constructed with `arguments`."""
    # one shard at a time per actor balances the load, and little is lost with an actor
    pool = ray.data.ActorPoolStrategy(size=min(workers, len(tables)), max_tasks_in_flight_per_actor=1)
    return ray.data.from_arrow(tables).map_batches(
        actor,
        fn_constructor_kwargs=dict(arguments),
        batch_size=None,
        batch_format="pyarrow",
        compute=pool,
        num_cpus=CPUS_PER_ACTOR,
    )


class RayExecutor(FileExecutor):
    """Sends requests from the nodes of a Ray cluster.

    Parameters
    ----------
    settings, names
        The settings of the run, and the model names by role.

    Raises
    ------
    ModelError
        If a model cannot be used.
    SettingError
        If an option is unknown or has an invalid value.
    """

    def __init__(self, settings: Settings, names: Mapping[Role, str]) -> None:
        super().__init__(settings, names)
        self._options = read_options(settings.sending.own_options)
        accounts = {name: _account(role, name, settings) for role, name in names.items()}
        self._accounts = {name: account for name, account in accounts.items() if account is not None}
        # Ray's stage for vLLM returns one reply only
        self.gives_choices = not any(_is_vllm(name) for name in names.values() if name not in self._accounts)
        self._stream: RowStream | None = None

    @asynccontextmanager
    async def open(self, folder: RunFolder | None) -> AsyncIterator[None]:
        """Connect to the cluster, and load the shards that an earlier command left."""
        with working_folder() as temporary:
            own_folder = (folder.path if folder else temporary) / FOLDER
            storage = self._options.storage
            # runs that share a storage have separate folders
            location = (
                str((own_folder / "shards").absolute())
                if storage is None
                else f"{storage.rstrip('/')}/{storage_name(own_folder)}"
            )
            self._shards = Shards(location)
            self._shards.make()
            self._load(self._shards.read())
            try:
                with cluster(self._settings.sending.ray_address):
                    check_gpus(self._names.values())
                    self._coordinator = start_coordinator()
                    self._stream = None
                    try:
                        yield
                    finally:
                        await self._finish_in_flight()
            finally:
                self._shards.close()

    def _remove(self, file: str) -> None:
        self._shards.remove(file)

    def sent(self, request: ModelRequest, name: str) -> Sent:
        """Return the decoding settings in the body of a request."""
        provider, model = self._asked_as(name)
        return sent_in(chat_body(request, model, provider))

    async def _answers(
        self, name: str, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, RequestResult], None]:
        dataset, n_shards = self._dataset(name, requests)
        self._stream = RowStream(dataset)
        n_finished = 0
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
        """Stop sending, and wait for the results of requests in flight."""
        if self._stream is not None and self._stream.thread.is_alive():
            self._coordinator.end.remote("it was interrupted")
            await asyncio.to_thread(self._stream.thread.join, LAST_WAIT)

    async def _stop(self, assignment: Assignment) -> None:
        """Stop the actors once the run has ended."""
        await assignment.breaker.opened()
        self._coordinator.end.remote(assignment.breaker.reason or "")

    def _dataset(self, name: str, requests: Sequence[Pending]) -> tuple[ray.data.Dataset, int]:
        """Return the data set of results, and its number of shards."""
        account = self._accounts.get(name)
        options = self._options
        sending = self._settings.sending
        provider, model = self._asked_as(name)
        tables = list(shards_of(requests, options.shard, model, provider))
        arguments = {
            "name": name,
            "coordinator": self._coordinator,
            "location": self._shards.place,
            "mark": self._shards.mark,
        }
        if account is not None:
            ray.get(self._coordinator.add_account.remote(account))
            workers = min(options.concurrency or len(ray.nodes()), len(tables))
            arguments["concurrency"] = max((sending.max_connections or CONCURRENCY) // workers, 1)
            arguments |= {"max_retries": sending.max_retries, "attempt_timeout": sending.attempt_timeout}
            dataset = through_actors(tables, HttpWorker, arguments, workers)
        elif _is_vllm(name):
            dataset = through_vllm(tables, name, self._shards, options)
        else:
            workers = options.concurrency or int(ray.cluster_resources().get("CPU", 1))
            dataset = through_actors(tables, EmbeddedWorker, arguments, workers)
        return dataset, len(tables)


def _is_vllm(name: str) -> bool:
    return name.partition("/")[0] == "vllm"


def _account(role: Role, name: str, settings: Settings) -> Account | None:
    """Return the account of a model; None for a model that runs on the nodes themselves."""
    if settings.servers.of_role(role).base_url is not None:
        return account_for(role, name, settings)
    if _is_vllm(name):
        is_given = {
            "logprobs": settings.sending.logprobs,
            "reasoning_effort": settings.decoding.reasoning_effort is not None,
        }
        for setting in (setting for setting, has_value in is_given.items() if has_value):
            raise ModelError(
                f"model {name!r}: Ray's stage for vLLM does not support {{{setting}}}; choose {{engine}} command, or a "
                "server and {engine} direct"
            )
        return None
    provider, model = provider_of(name)
    if provider is not None and provider.is_embedded:
        provider.check(model)
        return None
    return account_for(role, name, settings)


class RowStream:
    """The rows of a data set as they arrive, read in a thread because Ray Data has no asynchronous iterator."""

    def __init__(self, dataset: ray.data.Dataset) -> None:
        self._loop = asyncio.get_running_loop()
        self._rows = asyncio.Queue[Row | Exception | None]()
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
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._rows.put_nowait, item)

    async def rows(self) -> AsyncIterator[Row]:
        """Yield the rows; an exception raised while reading is raised here."""
        while (item := await self._rows.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
