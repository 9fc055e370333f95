"""Datasets of the Hugging Face Hub by name, ``hf:ORG/NAME[/CONFIG][:SPLIT][@REVISION]``, with the Hub's own client.

Files are downloaded at the commit that the Hub returns, into the client's cache. What the repository contains at a
commit is kept in this package's cache, so that a dataset that was read once can be read again without the Hub.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from refusal_index.data import tables
from refusal_index.data.datasets.dataset import Dataset, DatasetError, QuestionReader
from refusal_index.data.datasets.downloads import cache_directory
from refusal_index.data.datasets.hub_files import DATA_SUFFIXES, DEFAULT, default_split, files_of
from refusal_index.data.documents import rows_of_document
from refusal_index.data.files import read_json, sha256_of, write_atomically
from refusal_index.errors import listed, shortened, suggestion
from refusal_index.redaction import redacted

PREFIX = "hf:"
"""Beginning of the name of a dataset on the Hub."""

NAME = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)"
    r"(?:/(?P<config>[\w. -]+))?(?::(?P<split>[\w. -]+))?(?:@(?P<revision>[\w./-]+))?",
    re.ASCII,
)
COMMIT = re.compile(r"[0-9a-f]{40}")
DATASETS = "https://huggingface.co/datasets/"
"""Beginning of the addresses of files of datasets."""

LARGEST = 2**30
"""Maximum size in bytes of the files of a split."""

TIMEOUT = 10.0
"""Timeout in seconds for the description of a dataset."""


@dataclass(frozen=True)
class Repository:
    """What a dataset's repository contains at a commit."""

    commit: str
    sizes: Mapping[str, int]  # size in bytes by path, 0 if unknown
    licence: str
    configs: Any  # configurations as the card declares them, of any form


def load_from_hub(name: str, columns: Mapping[str, str] | None = None) -> Dataset:
    """Read the questions of a dataset on the Hub, and check every row.

    Raises DatasetError, which says what to do, if the name is malformed, the dataset, revision, configuration or split
    does not exist, access is denied, the Hub cannot be reached, or the questions cannot be used as they are.

    - `name`: its name on the command line.
    - `columns`: column by role, as for a user's own file.
    """
    match = NAME.fullmatch(name)
    if match is None:
        expected = "expected hf:ORG/NAME, hf:ORG/NAME:SPLIT or hf:ORG/NAME/CONFIG:SPLIT, perhaps followed by @REVISION"
        raise DatasetError(f"dataset: {expected}, got {name!r}")
    repo = match["repo"]
    with _plain_errors(name, repo, match["revision"]):
        repository = _repository(repo, match["revision"])
        config, split, paths = _chosen(name, match, repository)
        size = sum(repository.sizes[path] for path in paths)
        if size > LARGEST:
            raise DatasetError(
                f"{name}: expected at most {LARGEST:,} bytes in a split, got {size:,} in {len(paths)} files; choose "
                "another split, or save some of its questions yourself and give them as data (--data FILE)"
            )
        files = {path: _file(repo, path, repository.commit) for path in paths}
    called = f"{PREFIX}{repo}{'' if config == DEFAULT else f'/{config}'}:{split}"
    kind = "memory" if any(".json" in path for path in paths) else "parquet"  # rows of JSON can have different columns
    source = tables.Source(called, kind, "question", DatasetError)

    def rows(problems: tables.Problems) -> Iterator[tables.Row]:
        every = chain.from_iterable(_rows(f"{called}, {path}", file, problems) for path, file in files.items())
        for number, row in enumerate(every, start=1):
            yield tables.Row(source, number, row.cells)

    digests = [sha256_of(file) for file in files.values()]
    sha256 = digests[0] if len(digests) == 1 else sha256_of("".join(digests).encode())
    dataset = QuestionReader(source, rows, columns or {}).dataset(
        called, f"{called} at commit {repository.commit}", lambda _questions: sha256
    )
    counted = "1 file" if len(files) == 1 else f"{len(files)} files"
    note = f"commit {repository.commit[:12]}, {counted}, licence {repository.licence}"
    return replace(dataset, licence=repository.licence, notes=(note, *dataset.notes))


def pinned_file(address: str) -> bytes:
    """Return the content of a file of the Hub by its address at a commit, ``https://.../resolve/COMMIT/PATH``.

    Raises the errors of `load_from_hub`.
    """
    repo, _, pinned = address.removeprefix(DATASETS).partition("/resolve/")
    commit, _, path = pinned.partition("/")
    with _plain_errors(address, repo, commit):
        return _file(repo, path, commit).read_bytes()


def _repository(repo: str, revision: str | None) -> Repository:
    """Return what a repository contains: as it was read before if the commit is given, or the Hub cannot be reached."""
    from huggingface_hub import HfApi, constants, errors  # noqa: PLC0415 - an optional dependency

    key = sha256_of(json.dumps([constants.ENDPOINT, repo, revision]).encode())[:16]
    path = cache_directory() / "hub" / f"{key}.json"
    known: Repository | None = None
    with suppress(OSError, ValueError, TypeError):
        known = Repository(**read_json(path))
    if known is not None and revision is not None and COMMIT.fullmatch(revision):
        return known
    try:
        info = HfApi().dataset_info(repo, revision=revision, timeout=TIMEOUT, files_metadata=True)
    except (errors.HTTPError, ConnectionError) as error:
        response = getattr(error, "response", None)
        if known is None or (response is not None and response.status_code < 500):
            raise
        return known
    card = info.card_data.to_dict() if info.card_data is not None else {}
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    licence = card.get("license") or "not stated"
    named = ", ".join(map(str, licence)) if isinstance(licence, list) else str(licence)
    found = Repository(str(info.sha), sizes, " ".join(named.split())[:60], card.get("configs"))
    with suppress(OSError, TypeError):  # without a writable cache the Hub is asked again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(found)).encode())
    return found


def _chosen(name: str, match: re.Match[str], repository: Repository) -> tuple[str, str, list[str]]:
    """Return the configuration and the split that a name stands for, and their files."""
    by_config = files_of(repository.sizes, repository.configs)
    if not by_config:
        raise DatasetError(
            f"{name}: expected files that end in {', '.join(DATA_SUFFIXES[:6])}, got {listed(repository.sizes, 4)}; "
            f"scripts are not run: try hf:{match['repo']}@refs/convert/parquet, the Hub's own conversion, or save the "
            "questions yourself and give them as data (--data FILE)"
        )
    only = next(iter(by_config)) if len(by_config) == 1 else DEFAULT
    config = match["config"] or only
    if config not in by_config:
        raise _not_among(name, "configuration", match["config"], by_config, "hf:ORG/NAME/CONFIG")
    by_split = by_config[config]
    split = match["split"] or default_split(by_split)
    if split not in by_split:
        raise _not_among(name, "split", match["split"], by_split, "hf:ORG/NAME:SPLIT")
    return config, split, by_split[split]


def _not_among(name: str, kind: str, given: str | None, names: Iterable[str], form: str) -> DatasetError:
    known = sorted(names)
    advice = suggestion(given or "", known) or f"; name one, as in {form}"
    return DatasetError(
        f"{name}: expected a {kind} out of {listed(known)}, got {'none' if given is None else repr(given)}{advice}"
    )


def _file(repo: str, path: str, commit: str) -> Path:
    """Return a file from the client's cache; it is downloaded if it is missing there."""
    from huggingface_hub import HfApi, errors  # noqa: PLC0415 - an optional dependency

    download = partial(HfApi().hf_hub_download, repo, path, repo_type="dataset", revision=commit)
    with suppress(errors.LocalEntryNotFoundError):
        return Path(download(local_files_only=True))
    HfApi().dataset_info(repo, revision=commit, timeout=TIMEOUT)  # fails at once; a download is tried for half a minute
    return Path(download())


def _rows(name: str, file: Path, problems: tables.Problems) -> Iterator[tables.Row]:
    if name.endswith(".json"):
        source = tables.Source(name, "json", "question", DatasetError)
        yield from rows_of_document(source, file.read_bytes())
        return
    kind = tables.file_format(name, DatasetError, tables.READABLE)
    with tables.opened(file, DatasetError) as content:
        yield from tables.iter_rows(tables.Source(name, kind, "question", DatasetError), content, problems)


@contextmanager
def _plain_errors(name: str, repo: str, revision: str | None) -> Iterator[None]:
    """Raise the errors of the Hub's client as DatasetError, without the client's own text, which is several lines."""
    from huggingface_hub import constants, errors  # noqa: PLC0415 - an optional dependency

    try:
        yield
    except DatasetError:
        raise
    except errors.GatedRepoError as error:
        raise DatasetError(
            f"{name}: access is gated; accept its terms at {redacted(constants.ENDPOINT)}/datasets/{repo} and set "
            "HF_TOKEN to a token of that account"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise DatasetError(
            f"{name}: there is no revision {revision!r}; give a branch, a tag or a commit after @, or leave it out for "
            "the newest commit"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise DatasetError(
            f"{name}: there is no dataset {repo!r} on the Hub, or it is private; check the name, or set HF_TOKEN to a "
            "token that may read it"
        ) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        advice = "check HF_TOKEN" if status in {401, 403} else "try again later"
        raise DatasetError(f"{name}: the Hub answered with status {status}; {advice}") from error
    except (errors.HTTPError, OSError, ValueError) as error:
        why = shortened(" ".join(redacted(str(error)).split()) or type(error).__name__, 100)
        raise DatasetError(
            f"{name}: it cannot be downloaded ({why}); check the network and HF_ENDPOINT, or save its questions "
            "elsewhere and give them as data (--data FILE)"
        ) from error
