"""A loopback server with OpenAI's chat API that answers at once or after a delay, to measure the cost of clients.

    python -m benchmarks.loopback --latency 0.05 --log requests.jsonl

It refuses a fixed third of the questions unless forced to answer, and logs when each request was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
import zlib
from pathlib import Path

from aiohttp import web

FORCED = b"leaving the question open is not allowed"


def body_of(text: str) -> bytes:
    """Return the body of a response."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 300, "completion_tokens": 8, "total_tokens": 308}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": "base"}
    return json.dumps({**head, "choices": [choice], "usage": usage}).encode()


REFUSAL, ANSWER = body_of("<answer>UNANSWERED</answer>"), body_of("<answer>Lima</answer>")


def reply_to(body: bytes) -> bytes:
    """Refuse or answer a request, depending on its text."""
    text = json.loads(body)["messages"][-1]["content"].encode()
    return REFUSAL if FORCED not in text and zlib.crc32(text) % 3 == 0 else ANSWER


async def serve(latency: float, log: Path) -> None:
    """Serve until the process ends."""
    with log.open("a", buffering=1) as entries:

        async def chat(request: web.Request) -> web.Response:
            reply = reply_to(await request.read())
            if latency:
                await asyncio.sleep(latency)
            entries.write(json.dumps({"path": request.path, "status": 200, "at": time.monotonic()}) + "\n")
            return web.Response(body=reply, content_type="application/json")

        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loopback", description=__doc__.split("\n")[0])
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--log", type=Path, required=True, help="log file of the answered requests")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(arguments.latency, arguments.log))


if __name__ == "__main__":
    main()
