"""A Ray cluster: an existing one, or one on this machine for the length of a run."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import ray
import ray.data

from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError, unknown
from refusal_index.redaction import redacted

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Nothing is told to Ray's makers, and what its processes say stays in the logs of its session."""

PATIENCE = 3.0  # seconds in which a cluster answers; Ray itself goes on trying for minutes
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS_FRAME = 4
"""The first words of a client of gRPC, which a cluster speaks, and the kind of frame that a server begins with."""

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
        _hush()
        yield
        return
    _connect(address or os.environ.get("RAY_ADDRESS") or LOCAL)
    _hush()
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    own: dict[str, Any] = {}
    if address == LOCAL:
        own = {"include_dashboard": False}
    elif address != AUTO:
        check_address(address)
    try:
        with _silence(), _own_handler():
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **own)
    except (Exception, SystemExit) as error:  # Ray ends the process where it does not come through
        raise _no_cluster(address, f"{type(error).__name__}: {error}") from error


@contextmanager
def _own_handler() -> Iterator[None]:
    """Let SIGTERM go on to mean what it did: Ray would have it end the process at once, with a status of its own."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what Ray's own library writes away from the terminal; what goes wrong is raised."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no such stream
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


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
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as connection:
            connection.settimeout(PATIENCE)
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


def _hush() -> None:
    """Keep Ray Data's own words off the terminal; they are in the logs of its session."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for name in ("ray.data", "ray"):
        for handler in logging.getLogger(name).handlers:
            if not isinstance(handler, logging.FileHandler) and type(handler).__name__ != "SessionFileHandler":
                handler.setLevel(logging.CRITICAL)


OF_VLLM = "vllm."


@dataclass(frozen=True)
class RayOptions:
    """How waves are cut into shards, and who works on them.

    Attributes
    ----------
    shard
        Requests of a shard: what a killed process or node repeats at most, for each worker.
    storage
        Where finished shards are kept until they are in the store: the URL of a folder, as ``s3://bucket/path``; None
        for the run's own folder.
    concurrency
        Workers; None for one a processor with embedded models, one a node with servers, and one with weights.
    vllm
        What vLLM's engine is given, by the names of its arguments.
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
        If there is none of a name, or its value is of another kind.

    Examples
    --------
    >>> read_options([("shard", "64"), ("vllm.tensor-parallel-size", "2")]).vllm
    {'tensor_parallel_size': 2}
    """
    own, of_vllm = dict[str, Any](), dict[str, Any]()
    known = [one.name for one in fields(RayOptions) if one.name != "vllm"]
    for name, value in given:
        if name.startswith(OF_VLLM):
            of_vllm[name.removeprefix(OF_VLLM).replace("-", "_")] = _plain(value)
        elif name not in known:
            raise unknown("engine_option", name, [*known, f"{OF_VLLM}NAME"])
        else:
            own[name] = value if name == "storage" else _count(name, value)
    return RayOptions(**own, vllm=of_vllm)


def _count(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise SettingError(f"{{engine_option}}: expected a whole number from 1 in {name}, got {value!r}")
    return int(value)


def _plain(value: str) -> Any:
    """Return what a value stands for: a number, true or false, anything that JSON holds, else the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value
