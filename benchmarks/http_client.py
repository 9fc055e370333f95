"""CPU time per request over HTTP: complete runs with each client, compared with bare clients on the same requests.

    python -m benchmarks.http_client --data simple_qa_test_set.csv
    python -m benchmarks.http_client --data simple_qa_test_set.csv --rounds 3
    python -m benchmarks.http_client --data simple_qa_test_set.csv --latency 0.05 --connections 200

``refusal-index run`` sends every question of SimpleQA to a server on loopback, with one variant and the exact grader,
once with OpenAI's client (``--base-url``) and once with an Inspect provider (``together/...``, which has the same
API). The same requests are then sent by the bare openai client with its aiohttp transport and by Inspect's bare
``generate``. Each client and the server run in their own process. The server counts the requests; it answers at once
or after a delay, or is ``refusal-index serve`` with an embedded model.

The CPU time (user and system) of a run includes start-up, storing and results; that of a bare client excludes its
imports. Each figure is the best of the rounds, and ratios are relative to the bare openai client.
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
MODELS = {"openai": "base", "inspect": "together/base"}
"""The model's name for each client; Inspect's provider `together` has the same API."""

BARE_OPENAI = """
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

BARE_INSPECT = """
import asyncio, json, sys, time
from inspect_ai.model import ChatMessageUser, GenerateConfig, get_model
requests = [json.loads(line) for line in open(sys.argv[1])]
async def main():
    gate = asyncio.Semaphore(int(sys.argv[3]))
    async with get_model("together/base", base_url=sys.argv[2], api_key="none") as model:
        async def one(request):
            messages = [ChatMessageUser(content=one["content"]) for one in request.pop("messages")]
            config = GenerateConfig(**request, max_retries=0, max_connections=int(sys.argv[3]))
            async with gate:
                return (await model.generate(messages, config=config)).completion
        await asyncio.gather(*(one(request) for request in requests))
started = time.process_time()
asyncio.run(main())
print(time.process_time() - started)
"""

BARE = {"openai": BARE_OPENAI, "inspect": BARE_INSPECT}


@contextmanager
def server(command: list[str], log: Path) -> Iterator[str]:
    """Run a server for the duration of the block, and yield its base URL."""
    with subprocess.Popen([*command, "--log", str(log)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(url[0] for line in process.stdout if (url := re.search(r"http://\S+/v1", line)))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def server_command(arguments: argparse.Namespace) -> list[str]:
    """Return the command that starts the chosen server."""
    if arguments.embedded:
        return [*COMMAND, "serve", "--port", "0"]
    return [sys.executable, "-m", "benchmarks.loopback", "--latency", str(arguments.latency)]


def account(url: str) -> dict[str, str]:
    """Return the environment variables from which Inspect reads the server's address and key."""
    return {"TOGETHER_API_KEY": "none", "TOGETHER_BASE_URL": url}


def answered(log: Path) -> list[dict[str, Any]]:
    """Return the log entries of the chat requests that the server has answered."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [entry for entry in entries if entry["path"].endswith("/chat/completions") and entry["status"] == 200]


def throughput(entries: list[dict[str, Any]]) -> float | None:
    """Return the requests per second between the first and the last; None if the log has no times."""
    times = sorted(entry["at"] for entry in entries if "at" in entry)
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else None


def run(client: str, arguments: argparse.Namespace, url: str, out: Path) -> float:
    """Run the evaluation in its own process, and return its CPU time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*COMMAND, "run", "--model", MODELS[client], "--dataset", "simpleqa", "--data", arguments.data]
    command += ["--variants", "normal", "--grader", "exact", "--max-connections", str(arguments.connections)]
    command += ["--out", str(out), *(("--base-url", url) if client == "openai" else ())]
    command += ["--limit", str(arguments.limit)] if arguments.limit else []
    subprocess.run(command, env={**os.environ, **account(url)}, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def same_requests(out: Path) -> list[dict[str, object]]:
    """Return the requests of the run in `out`: a first pass for each question, and a forced pass if it was refused."""
    prompts = load_prompt_set("default")
    outcomes = pl.read_parquet(out / "outcomes.parquet").select("question", "forced_reply").rows()
    sent = [(variant, text) for text, forced in outcomes for variant in ["normal"] + ["forced"] * (forced is not None)]
    settings = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096}
    return [
        {
            "messages": [{"role": "user", "content": "\n\n".join(prompts.render(variant, text))}],
            "seed": number,
            **settings,
        }
        for number, (variant, text) in enumerate(sent)
    ]


def bare(client: str, requests: Path, url: str, connections: int) -> float:
    """Send requests with a bare client in its own process, and return its CPU time in seconds."""
    command = [sys.executable, "-c", BARE[client], str(requests), url, str(connections)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1])


@dataclass(frozen=True)
class Measured:
    """The measurements of a client: number of requests, CPU seconds, and requests per second if the log has times."""

    requests: int
    seconds: float
    rate: float | None


def measure(arguments: argparse.Namespace) -> dict[str, Measured]:
    """Run the evaluation with each client, and send the same requests with each bare client."""
    measurements: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "server.jsonl"
        path = folder / "requests.jsonl"
        with server(server_command(arguments), log) as url:

            def record(label: str, seconds: float) -> None:
                """Record the time of a client, and the requests that the server answered meanwhile."""
                answers = answered(log)[sum(measurement.requests for measurement in measurements.values()) :]
                measurements[label] = Measured(len(answers), seconds, throughput(answers))

            for client in arguments.client or MODELS:
                record(f"refusal-index run, {client}", run(client, arguments, url, folder / client))
                path.write_text("\n".join(map(json.dumps, same_requests(folder / client))))
            for client in ["openai", *(one for one in arguments.client or MODELS if one != "openai")]:
                record(f"bare {client}", bare(client, path, url, arguments.connections))
    assert len({measurement.requests for measurement in measurements.values()}) == 1, measurements
    return measurements


def best(clients: list[Measured]) -> Measured:
    """Return the shortest time and the highest rate, since other work on the machine can only slow a client down."""
    rates = [client.rate for client in clients if client.rate is not None]
    return Measured(clients[0].requests, min(client.seconds for client in clients), max(rates, default=None))


def main() -> None:
    """Print the CPU time of each client, and its ratio to the bare openai client."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_client", description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="a local copy of the SimpleQA test set")
    parser.add_argument("--limit", type=int, help="number of questions")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--client", action="append", choices=list(MODELS), help="only this client")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that the server waits before each answer")
    parser.add_argument("--embedded", action="store_true", help="use the embedded model behind refusal-index serve")
    parser.add_argument("--rounds", type=int, default=1, help="number of measurements, of which the best is printed")
    arguments = parser.parse_args()
    arguments.rounds > 0 or parser.error("--rounds: expected at least 1")
    rounds = [measure(arguments) for _ in range(arguments.rounds)]
    packages = ", ".join(f"{name} {version(name)}" for name in ("openai", "inspect-ai"))
    print(f"{platform.machine()}, Python {platform.python_version()}, {packages}")
    fastest = {name: best([one[name] for one in rounds]) for name in rounds[0]}
    floor = fastest["bare openai"]
    print(f"{floor.requests:,} requests by each client, counted at the server, {arguments.connections} at a time")
    print(f"{'':27s}{'CPU s':>8s}{'ms per request':>16s}{'ratio':>8s}{'requests per second':>21s}")
    for name, one in fastest.items():
        each, ratio = 1000 * one.seconds / one.requests, one.seconds / floor.seconds
        rate = "" if one.rate is None else f"{one.rate:21.0f}"
        print(f"{name:27s}{one.seconds:8.1f}{each:16.2f}{ratio:8.2f}{rate}")


if __name__ == "__main__":
    main()
