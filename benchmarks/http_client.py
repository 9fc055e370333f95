"""Processor time and throughput of a client over HTTP: a whole run against the bare client on the same requests.

    python -m benchmarks.http_client --data simple_qa_test_set.csv
    python -m benchmarks.http_client --data simple_qa_test_set.csv --latency 0.05 --connections 200
    python -m benchmarks.http_client --data simple_qa_test_set.csv --client inspect --embedded

Asks a server on loopback every question of SimpleQA through ``refusal-index run`` with one variant and the exact
grader, counts the requests at the server, then sends the very same conversations through the bare openai client with
its aiohttp transport. The server answers at once, or after a while, or is ``refusal-index serve`` with the embedded
model. All three are processes of their own. What is compared is the user and system time that the operating system
booked for each client, start and results included in the run's and left out of the bare one's, and the requests a
second that the server saw between the first and the last of each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.protocol import load_prompt_set

COMMAND = [sys.executable, "-c", "from refusal_index.cli import main; main()"]
MODELS = {"openai": "openai-api/almanac/base", "inspect": "together/base"}
"""A model by the client that asks it; Inspect's provider `together` speaks the same API as the other."""

BARE_CLIENT = """
import asyncio, json, sys, time
from openai import AsyncOpenAI, DefaultAioHttpClient
requests = [json.loads(line) for line in open(sys.argv[1])]
async def main():
    gate = asyncio.Semaphore(int(sys.argv[3]))
    async with AsyncOpenAI(api_key="none", base_url=sys.argv[2], http_client=DefaultAioHttpClient()) as client:
        async def one(request):
            async with gate:
                return (await client.chat.completions.create(model="base", **request)).choices[0].message.content
        await asyncio.gather(*(one(request) for request in requests))
started = time.process_time()
asyncio.run(main())
print(time.process_time() - started)
"""


@contextmanager
def server(command: list[str], log: Path) -> Iterator[str]:
    """Run a server and give its address."""
    with subprocess.Popen([*command, "--log", str(log)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(found[0] for line in process.stdout if (found := re.search(r"http://\S+/v1", line)))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def server_command(arguments: argparse.Namespace) -> list[str]:
    """Return what starts the server that is asked for."""
    if arguments.embedded:
        return [*COMMAND, "serve", "--port", "0"]
    return [sys.executable, "-m", "benchmarks.loopback", "--latency", str(arguments.latency)]


def account(url: str) -> dict[str, str]:
    """Return the variables by which each client finds a server."""
    keys = {f"{name}_API_KEY": "none" for name in ("ALMANAC", "TOGETHER")}
    return {**keys, "ALMANAC_BASE_URL": url, "TOGETHER_BASE_URL": url}


def answered(log: Path) -> list[dict[str, Any]]:
    """Return the generation requests that the server answered so far."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [entry for entry in entries if entry["path"].endswith("/chat/completions") and entry["status"] == 200]


def throughput(entries: list[dict[str, Any]]) -> float | None:
    """Return the requests a second between the first and the last; None where the server does not say when."""
    times = sorted(entry["at"] for entry in entries if "at" in entry)
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else None


def run(arguments: argparse.Namespace, url: str, out: Path) -> float:
    """Run the evaluation in a process of its own and return its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*COMMAND, "run", "--model", MODELS[arguments.client], "--dataset", "simpleqa", "--data", arguments.data]
    command += ["--variants", "normal", "--grader", "exact", "--max-connections", str(arguments.connections)]
    command += ["--out", str(out)]
    command += ["--limit", str(arguments.limit)] if arguments.limit else []
    subprocess.run(command, env={**os.environ, **account(url)}, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def same_requests(out: Path) -> list[dict[str, object]]:
    """Return what the run in `out` sent: a first pass for every question, a forced one for every refused one."""
    prompts = load_prompt_set("default")
    outcomes = pl.read_parquet(out / "outcomes.parquet").select("question", "forced_reply").rows()
    asked = [(variant, text) for text, forced in outcomes for variant in ["normal"] + ["forced"] * (forced is not None)]
    settings = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096}
    return [
        {
            "messages": [{"role": "user", "content": "\n\n".join(prompts.render(variant, text))}],
            "seed": number,
            **settings,
        }
        for number, (variant, text) in enumerate(asked)
    ]


def bare(requests: list[dict[str, object]], url: str, connections: int, folder: Path) -> float:
    """Send `requests` through the bare client in a process of its own and return its processor time in seconds."""
    path = folder / "requests.jsonl"
    path.write_text("\n".join(json.dumps(request) for request in requests))
    command = [sys.executable, "-c", BARE_CLIENT, str(path), url, str(connections)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@dataclass(frozen=True)
class Client:
    """What a client took: requests, processor time, and requests a second where the server says when they came."""

    requests: int
    seconds: float
    rate: float | None


@dataclass(frozen=True)
class Round:
    """Both clients, one after the other."""

    ours: Client
    bare_client: Client


def measured(arguments: argparse.Namespace) -> Round:
    """Run the evaluation, then send the same requests through the bare client."""
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "server.jsonl"
        with server(server_command(arguments), log) as url:
            ours = run(arguments, url, folder / "run")
            sent = answered(log)
            requests = same_requests(folder / "run")
            floor = bare(requests, url, arguments.connections, folder)
            sent_bare = answered(log)[len(sent) :]
    assert len(sent) == len(requests) == len(sent_bare), (len(sent), len(requests), len(sent_bare))
    return Round(Client(len(sent), ours, throughput(sent)), Client(len(sent), floor, throughput(sent_bare)))


def best(clients: list[Client]) -> Client:
    """Return the least time and the highest rate: whatever else runs on the machine adds to the one, never takes."""
    rates = [one.rate for one in clients if one.rate is not None]
    return Client(clients[0].requests, min(one.seconds for one in clients), max(rates, default=None))


def main() -> None:
    """Print both processor times and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_client", description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="a local copy of the SimpleQA test set")
    parser.add_argument("--limit", type=int, help="only so many questions")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--client", default="openai", choices=list(MODELS))
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer of the server")
    parser.add_argument("--embedded", action="store_true", help="ask the embedded model, by refusal-index serve")
    parser.add_argument("--rounds", type=int, default=1, help="measure so often, and print the best of each")
    arguments = parser.parse_args()
    arguments.rounds or parser.error("--rounds: expected at least 1")
    rounds = [measured(arguments) for _ in range(arguments.rounds)]
    print(f"{platform.machine()}, Python {platform.python_version()}, openai {version('openai')}")
    print(f"{rounds[0].ours.requests} requests, counted at the server, {arguments.connections} at a time")
    ours, bare_client = (best([getattr(one, name) for one in rounds]) for name in ("ours", "bare_client"))
    for name, client in (f"refusal-index run, {arguments.client}", ours), ("bare openai client", bare_client):
        said = f"{client.seconds:7.1f} CPU s   {1000 * client.seconds / client.requests:6.2f} a thousand"
        print(f"{name:27s}{said}{'' if client.rate is None else f'   {client.rate:6.0f} requests a second'}")
    print(f"{'ratio of processor time':27s}{ours.seconds / bare_client.seconds:7.2f}")
    if ours.rate and bare_client.rate:
        print(f"{'ratio of throughput':27s}{ours.rate / bare_client.rate:7.2f}")


if __name__ == "__main__":
    main()
