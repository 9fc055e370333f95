"""A server on loopback that publishes files, for tests of downloads."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Self


class LocalServer:
    """Answers one request after the other with the next of `bodies`, or an error status; `seen` are their paths."""

    def __init__(self, bodies: Iterable[bytes | int] = ()) -> None:
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
                self.send_response(200 if isinstance(body, bytes) else body)
                self.end_headers()
                if isinstance(body, bytes):
                    self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        return Handler
