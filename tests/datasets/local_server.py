"""A server on loopback that publishes files, for tests of downloads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Self


@dataclass(frozen=True)
class Answer:
    """An unusual response: with its own headers, and held back until `until` is set."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    until: threading.Event | None = None


class LocalServer:
    """Answers one request after the other with the next of `bodies`, or an error status; `seen` are their paths."""

    def __init__(self, bodies: Iterable[bytes | int | Answer] = ()) -> None:
        self.bodies = list(bodies)
        self.seen: list[str] = []
        self._http = HTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.seen.append(self.path)
                body = served.bodies.pop(0)
                answer = (
                    body if isinstance(body, Answer) else Answer(body) if isinstance(body, int) else Answer(body=body)
                )
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if answer.until is not None:
                    answer.until.wait(60)
                self.wfile.write(answer.body)

            def log_message(self, *args: object) -> None:
                pass

        return Handler
