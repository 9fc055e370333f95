"""A Hub on loopback for the Hub's own client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.datasets.local_hub import LocalHub


@pytest.fixture
def local_hub(tmp_path, monkeypatch) -> Iterator[LocalHub]:
    """A Hub without datasets, and empty caches."""
    client = pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    with LocalHub({}) as local:
        template = f"{local.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", local.url)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield local
        client.close_session()
