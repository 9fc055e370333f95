"""A server on the loopback interface that speaks the APIs of several providers, and records every request body."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.faults.plan import plain_verdict
from tests.served import ADDRESS, KEY_NAME

Json = dict[str, Any]
TEXT = "<answer>none</answer>"
QUESTIONS = 12
"""The number of questions in ``q.csv``."""
PATHS = {"TOGETHER": "/v1", "OPENAI": "/v1", "ANTHROPIC": "", "GOOGLE": ""}
"""Where each provider's API is served."""


def reply_to(body: str) -> str:
    """Return the reply: none of the right answers, and as a grader the right verdict on a plain case."""
    if "<gold_answer>" not in body:
        return TEXT
    return plain_verdict(body.replace("\\n", "\n")) or "B"


def chat(model: str, text: str) -> Json:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": usage}


def openai_response(model: str, text: str) -> Json:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": model,
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11, **details},
    }


def anthropic_message(model: str, text: str) -> Json:
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 2},
    }


def google_content(model: str, text: str) -> Json:
    candidate = {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [{"text": text}]}}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}


RESPONSES: dict[str, Callable[[str, str], Json]] = {
    "/chat/completions": chat,
    "/responses": openai_response,
    "/messages": anthropic_message,
    ":generateContent": google_content,
}


@dataclass
class ProviderServer:
    """The address of the server, the model that it names in its responses, and the bodies that it received."""

    url: str
    model: Callable[[int], str] = lambda _number: "served-model"
    bodies: list[Json] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[ProviderServer]:
    """Serve in threads inside the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            make = next(make for ending, make in RESPONSES.items() if self.path.partition("?")[0].endswith(ending))
            content = json.dumps(
                make(server.model(len(server.bodies)), reply_to(json.dumps(server.bodies[-1])))
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.daemon_threads = True
    server = ProviderServer(f"http://127.0.0.1:{http_server.server_address[1]}")
    thread = threading.Thread(target=http_server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        http_server.shutdown()
        thread.join(10)
        http_server.server_close()


@pytest.fixture
def provider_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderServer]:
    """Serve as every provider that has an address here, and write questions to ``q.csv`` in the working folder."""
    monkeypatch.chdir(tmp_path)
    rows = [f"What is {number} plus {number}?,{2 * number}\n" for number in range(QUESTIONS)]
    Path("q.csv").write_text("question,answer\n" + "".join(rows))
    with serving() as server:
        monkeypatch.setenv(ADDRESS, f"{server.url}/v1")
        monkeypatch.setenv(KEY_NAME, "none")
        for provider, path in PATHS.items():
            monkeypatch.setenv(f"{provider}_BASE_URL", server.url + path)
            monkeypatch.setenv(f"{provider}_API_KEY", "none")
        yield server
