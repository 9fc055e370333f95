"""Evidence that a download is whole and what was expected, or an error that says why, and that nothing else is kept."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from refusal_index.data import datasets
from refusal_index.data.datasets import DatasetError, fetched
from tests.datasets.local_server import Answer, LocalServer

CONTENT = b"question,answer\nWho?,Ann\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("sha256", [SHA256, None])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(body=CONTENT[:9], headers={"Content-Length": str(len(CONTENT))}), "cut short: 9 of 25 bytes"),
        (Answer(body=b"", headers={"Content-Length": "25"}), "cut short: 0 of 25 bytes"),
        (Answer(302, {"Location": "ftp://127.0.0.1/other"}), "redirects to ftp://127.0.0.1/other, which is not http"),
        (Answer(302, {"Location": "/x.csv"}), "infinite loop"),
        (503, "503"),
        (404, "404"),
    ],
    ids=["cut short", "nothing", "another protocol", "a circle", "unavailable", "not there"],
)
def test_what_does_not_come_whole_is_an_error_and_is_not_kept(tmp_path, answer, said, sha256):
    """Without a checksum a download that was cut short was kept and taken for the dataset."""
    with (
        LocalServer([answer] * 12) as served,
        pytest.raises(
            DatasetError, match=rf"x\.csv cannot be downloaded \(.*{said}.*; try again, or download it yourself"
        ),
    ):
        fetched(f"{served.url}/x.csv", sha256)
    assert kept(tmp_path) == []


def test_other_content_than_expected_is_an_error_with_both_checksums_and_is_not_kept(tmp_path):
    with (
        LocalServer([b"other"]) as served,
        pytest.raises(DatasetError, match=f"expected content with sha256 {SHA256}, got"),
    ):
        fetched(f"{served.url}/x.csv", SHA256)
    assert kept(tmp_path) == []


def test_an_address_that_moved_is_followed(tmp_path):
    with LocalServer([Answer(302, {"Location": "/moved.csv"}), CONTENT]) as served:
        assert fetched(f"{served.url}/x.csv", SHA256) == CONTENT
        assert fetched(f"{served.url}/x.csv", SHA256) == CONTENT
        assert served.seen == ["/x.csv", "/moved.csv"]
    assert kept(tmp_path) == ["x.csv"]


def test_a_server_that_stalls_is_given_up(tmp_path):
    done = threading.Event()
    with LocalServer([Answer(body=CONTENT, until=done)]) as served:
        with pytest.raises(DatasetError, match=r"cannot be downloaded \(timed out\)"):
            fetched(f"{served.url}/x.csv", SHA256, timeout=0.2)
        done.set()
    assert kept(tmp_path) == []


@pytest.mark.parametrize(("limit", "said"), [("LARGEST", "larger than 10 bytes"), ("LONGEST", "incomplete after")])
def test_what_never_ends_is_given_up(tmp_path, monkeypatch, limit, said):
    """More than the largest dataset was cut there and, without a checksum, kept."""
    monkeypatch.setattr(datasets, limit, 10 if limit == "LARGEST" else -1.0)
    with LocalServer([CONTENT]) as served, pytest.raises(DatasetError, match=said):
        fetched(f"{served.url}/x.csv")
    assert kept(tmp_path) == []
