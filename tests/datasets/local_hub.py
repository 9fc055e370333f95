"""A Hugging Face Hub on loopback, with datasets that may be gated, for tests with the Hub's own client."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

TOKEN = "hf_" + "a1B2" * 8


@dataclass
class HubDataset:
    """A dataset: its files at its newest commit, its card, and further revisions of the same files."""

    files: Mapping[str, bytes]
    card: Mapping[str, Any] = field(default_factory=lambda: {"license": "mit"})
    commit: str = "a" * 40
    revisions: tuple[str, ...] = ("main",)
    is_gated: bool = False  # whether files need TOKEN
    sizes: Mapping[str, int] = field(default_factory=dict)  # sizes that are declared instead of the real ones

    def etag_of(self, path: str) -> str:
        content = self.files[path]
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 - as Git


class LocalHub:
    """Serves `datasets` by name; `seen` are the requests, and `tokens` their tokens."""

    def __init__(self, datasets: Mapping[str, HubDataset]) -> None:
        self.datasets = dict(datasets)
        self.seen: list[str] = []
        self.tokens: list[str | None] = []
        self.failing: int | None = None  # status of every response
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
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

    def respond(self, path: str, token: str | None) -> tuple[int, dict[str, str], bytes]:  # noqa: PLR0911
        if self.failing is not None:
            return self.failing, {}, b""
        if token not in (None, TOKEN):
            return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b""
        is_file = path.startswith("/datasets/")
        parts = path.removeprefix("/api").removeprefix("/datasets/").split("/")
        dataset = self.datasets.get("/".join(parts[:2]))
        if dataset is None:
            return 401 if token is None else 404, {"X-Error-Code": "RepoNotFound"}, b""
        revision = parts[3] if len(parts) > 3 else "main"
        if revision not in (*dataset.revisions, dataset.commit):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        if not is_file:
            sizes = {name: dataset.sizes.get(name, len(content)) for name, content in dataset.files.items()}
            siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
            info = {"id": "/".join(parts[:2]), "sha": dataset.commit, "cardData": dataset.card, "siblings": siblings}
            return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()
        if dataset.is_gated and token is None:
            return 401, {"X-Error-Code": "GatedRepo"}, b""
        name = "/".join(parts[4:])
        headers = {"X-Repo-Commit": dataset.commit, "ETag": f'"{dataset.etag_of(name)}"'}
        return 200, headers, dataset.files[name]

    @staticmethod
    def gated_error() -> None:
        """Raise the error of the Hub's client for a gated dataset."""
        from httpx2 import Request, Response
        from huggingface_hub.errors import GatedRepoError

        raise GatedRepoError("Cannot access", response=Response(403, request=Request("GET", "http://127.0.0.1:9")))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path)
                authorization = self.headers.get("Authorization")
                token = None if authorization is None else authorization.removeprefix("Bearer ")
                served.seen.append(f"{self.command} {path}")
                served.tokens.append(token)
                status, headers, body = served.respond(path, token)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 - the name of the base class

            def log_message(self, *args: object) -> None:
                pass

        return Handler
