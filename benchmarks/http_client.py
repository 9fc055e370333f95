"""Processor time of the client over HTTP: a whole run against the bare openai client on the same requests.

    python -m benchmarks.http_client --data simple_qa_test_set.csv

Starts ``refusal-index serve`` on loopback, asks it every question of SimpleQA through ``refusal-index run`` with one
variant and the exact grader, counts the requests at the server, then sends the very same conversations through the bare
openai client with its aiohttp transport. Both clients are processes of their own; what is compared is the user and
system time that the operating system booked for each, their start included in the run's and left out of the bare one's.
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
from importlib.metadata import version
from pathlib import Path

import polars as pl

from refusal_index.protocol import load_prompt_set

COMMAND = [sys.executable, "-c", "from refusal_index.cli import main; main()"]
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
def server(log: Path) -> Iterator[str]:
    """Run ``refusal-index serve`` and give its address."""
    with subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--log", str(log)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield next(found[0] for line in process.stdout if (found := re.search(r"http://\S+/v1", line)))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def answered(log: Path) -> int:
    """Count the generation requests that the server answered."""
    entries = (json.loads(line) for line in log.read_text().splitlines())
    return sum(entry["path"].endswith("/chat/completions") and entry["status"] == 200 for entry in entries)


def run(arguments: argparse.Namespace, url: str, out: Path) -> float:
    """Run the evaluation in a process of its own and return its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*COMMAND, "run", "--model", "openai-api/almanac/base", "--dataset", "simpleqa", "--data", arguments.data]
    command += ["--variants", "normal", "--grader", "exact", "--max-connections", str(arguments.connections)]
    command += ["--out", str(out)] + (["--limit", str(arguments.limit)] if arguments.limit else [])
    subprocess.run(command, env={**os.environ, "ALMANAC_BASE_URL": url, "ALMANAC_API_KEY": "none"}, check=True)
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


def main() -> None:
    """Print both processor times and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_client", description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="a local copy of the SimpleQA test set")
    parser.add_argument("--limit", type=int, help="only so many questions")
    parser.add_argument("--connections", type=int, default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "server.jsonl"
        with server(log) as url:
            ours = run(arguments, url, folder / "run")
            sent = answered(log)
            requests = same_requests(folder / "run")
            floor = bare(requests, url, arguments.connections, folder)
    assert sent == len(requests), (sent, len(requests))
    print(f"{platform.machine()}, Python {platform.python_version()}, inspect-ai {version('inspect-ai')}")
    print(f"{sent} requests, counted at the server")
    print(f"refusal-index run   {ours:7.1f} CPU s   {1000 * ours / sent:6.2f} a thousand")
    print(f"bare openai client  {floor:7.1f} CPU s   {1000 * floor / sent:6.2f} a thousand")
    print(f"ratio               {ours / floor:7.1f}")


if __name__ == "__main__":
    main()
