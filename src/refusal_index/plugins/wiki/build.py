"""Build a PreciseWikiQA set: read pages, have models write questions, and save the questions with a record.

An interrupted build can always be resumed. A finished question file is never overwritten.
"""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from refusal_index.data.files import sha256_of, write_atomically
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import NAMED_BY_SERVER, UNPRICED, as_json, refuse_other_settings
from refusal_index.errors import RefusalIndexError, RunFolderError, shortened
from refusal_index.models.settings import Decoding, Sending, Servers, SettingError
from refusal_index.plugins.wiki.builder import Builder, BuildState, BuildStoppedError, build_engines
from refusal_index.plugins.wiki.questions import (
    ANSWERER,
    TAGS,
    WRITER,
    Candidate,
    Lengths,
    Pages,
    Tried,
    draw_order,
    prompt_for,
    read_pages,
    templates,
)
from refusal_index.protocol import Role
from refusal_index.runs.budget import UsageCounter
from refusal_index.runs.engine import Engine, RunFailedError
from refusal_index.runs.engines import check_engines_own, check_sends, note_on
from refusal_index.runs.events import Begun, Opened
from refusal_index.runs.identity import versions
from refusal_index.runs.outstanding import refuse_outstanding
from refusal_index.runs.progress import progress_bar
from refusal_index.runs.servers import check_servers
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

BUILD_FORMAT = 1


class BuildError(RefusalIndexError, ValueError):
    """A build that cannot be started or resumed; the message names the file and what to do."""


@dataclass(frozen=True)
class BuildPaths:
    """The paths of a build's files."""

    questions: Path  # the question file

    @property
    def record(self) -> Path:
        """The record of the build."""
        return self.questions.with_name(f"{self.questions.name}.build.json")

    @property
    def folder(self) -> Path:
        """The folder of the paid replies; can be deleted once the question file is written."""
        return self.questions.with_name(f"{self.questions.name}.build")

    @property
    def sections(self) -> Path:
        """The file that lists the result of each section tried."""
        return self.folder / "sections.jsonl"


def freeze(
    paths: BuildPaths,
    settings: Mapping[str, Any],
    state: BuildState,
    usage: Mapping[str, UsageCounter],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the questions, then the record of the build, and return the record.

    The record is written last, so it exists only if the question file is complete.

    - `settings`: everything on which the questions depend.
    - `state`: the sections tried and their results.
    - `usage`: requests and tokens by ``"writer"`` and ``"answerer"``.
    - `about`: information that may differ between builds with the same settings, such as versions.
    """
    taken = state.taken()
    levels = Counter(result.candidate.difficulty for result in taken)
    content = _json_lines(map(_line, taken))
    record = {
        "build_format": BUILD_FORMAT,
        "file": {"name": paths.questions.name, "sha256": sha256_of(content), "questions": len(taken)},
        "settings": as_json(settings),
        "counts": {
            "sections_tried": len(state.tried),
            "questions": len(taken),
            "not_needed": state.not_needed,
            "rejected": dict(sorted(state.reasons().items(), key=lambda entry: (-entry[1], entry[0]))),
            "questions_by_difficulty": {level: count for level, count in levels.items() if level is not None},
        },
        "usage": {
            role: dict(
                zip(("requests", "input_tokens", "output_tokens"), (counter.requests, *counter.tokens), strict=True)
            )
            for role, counter in usage.items()
        },
        "prompts": dict(templates()),
        "about": as_json(about),
    }
    write_atomically(paths.questions, content)
    write_atomically(paths.record, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return record


def write_tried(paths: BuildPaths, tried: Sequence[Tried]) -> None:
    """Write the result of each section tried, including the reasons for rejections, for people to read."""
    lines = (
        {
            **_line(result),
            "reason": result.reason and str(result.reason),
            **({"detail": result.detail} if result.detail else {}),
        }
        for result in tried
    )
    write_atomically(paths.sections, _json_lines(lines))


def finished_record(paths: BuildPaths, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record of a finished build; None if the build is not finished.

    Raises BuildError if the question file was not made by a build, has other settings or has changed since.
    """
    if not paths.record.exists():
        if paths.questions.exists() and not (paths.folder / "run.json").exists():
            raise BuildError(f"{paths.questions} exists and was not made by a build; give another --out")
        return None
    try:
        record: dict[str, Any] = dict(json.loads(paths.record.read_bytes()))
        version = record["build_format"]
        before = dict(record["settings"])
        checksum = record["file"]["sha256"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BuildError(
            f"{paths.record} is not a record of a build ({error!r}); remove it, or give another --out"
        ) from error
    if version != BUILD_FORMAT or not before or not checksum:
        raise BuildError(
            f"{paths.record}: expected build_format {BUILD_FORMAT}, got {shortened(version)}; "
            "use the release that wrote it, or give another --out"
        )
    check_same_settings(paths.questions, before, settings)
    if not paths.questions.exists():
        return None
    actual = sha256_of(paths.questions)
    if actual != checksum:
        raise BuildError(
            f"{paths.questions} has changed since it was written: expected sha256 {checksum}, got {actual}; delete it "
            "so that the same command writes it again, or give another --out"
        )
    return record


def check_same_settings(path: Path, before: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise BuildError if the build of `path` has other settings; the message names the differences."""
    try:
        refuse_other_settings(path, before, as_json(settings))
    except RunFolderError as error:
        raise BuildError(f"{str(error).removesuffix('choose another folder')}give another --out") from None


def _json_lines(lines: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()


def _line(result: Tried) -> dict[str, Any]:
    candidate = result.candidate
    optional = {"difficulty": candidate.difficulty, "topic": candidate.topic, "revision": candidate.revision}
    return {
        "question_id": candidate.candidate_id,
        "question": result.question,
        "answer": result.answer,
        "title": candidate.title,
        "section": candidate.section,
        **{name: value for name, value in optional.items() if value is not None},
    }


BUILD_VERSION = 1
"""Incremented when a change makes the same replies lead to different questions."""

PACKAGES = ("refusal-index", "inspect-ai", "openai", "polars")
ESTIMATED_FROM = 200  # sections
CHARACTERS_PER_TOKEN = 4  # roughly, in English


@dataclass(frozen=True)
class BuildOptions:
    """The options of a build.

    Attributes
    ----------
    pages, out
        The file with the text of Wikipedia, and the question file to write.
    writer, answerer
        The models that write and answer the questions.
    questions, seed, difficulty, revision
        The number of questions, the random seed, the column of difficulty levels, and a name for the source's revision.
    lengths
        The lengths of sections.
    writing, answering, sending, servers
        The decoding settings of the two models, how requests are sent, and the server of both. Questions should vary,
        answers should not.
    """

    pages: Path
    out: Path
    writer: str
    answerer: str
    questions: int = 2000
    seed: int = 0
    difficulty: str | None = None
    revision: str | None = None
    lengths: Lengths = field(default_factory=Lengths)
    writing: Decoding = field(default_factory=lambda: Decoding(0.7, 0.9))
    answering: Decoding = field(default_factory=lambda: Decoding(0.3, 0.9))
    sending: Sending = field(default_factory=Sending)
    servers: Servers = field(default_factory=Servers, repr=False)

    @property
    def settings(self) -> dict[str, Settings]:
        """The settings of each role."""
        roles = {WRITER: (self.writer, self.writing), ANSWERER: (self.answerer, self.answering)}
        return {
            role: Settings(model=model, seed=self.seed, servers=self.servers, sending=self.sending, decoding=decoding)
            for role, (model, decoding) in roles.items()
        }

    @property
    def paths(self) -> BuildPaths:
        """The paths of the build's files."""
        return BuildPaths(self.out)

    def candidates(self, pages: Pages) -> dict[str | None, Iterator[Candidate]]:
        """Return the sampled sections in order, by difficulty."""
        return draw_order(pages, self.seed, self.lengths)


async def build(options: BuildOptions, console: Console) -> dict[str, Any]:
    """Build a question set and return its record, with counts, tokens and the hash of the file.

    Raises
    ------
    RefusalIndexError
        If an option, the pages, a model or a path cannot be used, or the build had to stop; replies are kept.
    """
    pages = _read_pages(options)
    check_servers(options.settings[WRITER], {Role.MODEL: options.writer})
    check_engines_own(options.sending)
    check_sends(options.sending)
    identity = identity_of(options, pages)
    paths = options.paths
    record = finished_record(paths, identity)
    if record is not None:
        return record
    folder = RunFolder(paths.folder)
    if folder.run_json.exists():
        check_same_settings(paths.questions, folder.read_settings(), identity)
    engines = build_engines(options.settings)  # reports a wrong name or missing key before the folder is created
    with folder.lock():
        folder.create_or_resume(identity)
        with ReplyStore(folder.replies) as store:
            refuse_outstanding(folder, store, options.sending.engine)
            return await _build(options, pages, identity, engines, store, console)


async def _build(
    options: BuildOptions,
    pages: Pages,
    identity: dict[str, Any],
    engines: Mapping[str, Engine],
    store: ReplyStore,
    console: Console,
) -> dict[str, Any]:
    paths = options.paths
    state = BuildState(options.candidates(pages), options.questions)
    try:
        with progress_bar(console, options.questions, UNPRICED) as bar:
            bar(Opened(0, note_on(options.sending)))
            bar(Begun("questions"))
            builder = Builder(options.settings, engines, store, bar, RunFolder(paths.folder))
            await builder.build(state)
        if not state.taken():
            raise BuildStoppedError(f"none of the {len(state.tried):,} sections yielded a question")
    except BuildStoppedError as error:
        raise RunFailedError(f"{error}; {paths.sections} shows each section") from error
    finally:
        write_tried(paths, state.tried)
    about = {
        "source": {"name": options.pages.name, "pages": len(pages.entries), "rows_left_out": dict(pages.left_out)},
        "versions": {"python": platform.python_version(), **versions(PACKAGES)},
    }
    return freeze(paths, identity, state, builder.usage, about)


def estimate(options: BuildOptions) -> Iterator[str]:
    """Yield lines that estimate a build without sending requests: pages, minimum requests, approximate tokens.

    Raises
    ------
    RefusalIndexError
        If an option or the pages cannot be used.
    """
    pages = _read_pages(options)
    n = options.questions
    candidates = (
        candidate for order in options.candidates(pages).values() for candidate in islice(order, ESTIMATED_FROM)
    )
    sections = list(islice(candidates, ESTIMATED_FROM))
    characters = sum(len(prompt_for(role, section)) for section in sections for role in TAGS)
    tokens = n * (characters / CHARACTERS_PER_TOKEN / max(len(sections), 1))
    levels = len({page.difficulty for page in pages.entries}) if "difficulty" in pages.columns else 0
    yield f"{len(pages.entries):,} pages{f' with {levels} levels of difficulty' if levels else ''}"
    yield (
        f"{n:,} questions take at least {2 * n:,} requests and about {tokens:,.0f} input tokens; each rejected section "
        "takes one or two requests more"
    )


def identity_of(options: BuildOptions, pages: Pages) -> dict[str, Any]:
    """Return all settings on which the questions depend; they identify a build."""
    return {
        "source": {"sha256": pages.sha256, "revision": options.revision, "columns": dict(pages.columns)},
        **({NAMED_BY_SERVER: True} if options.servers.base_url is not None else {}),
        "writer": {"model": options.writer, "decoding": asdict(options.writing)},
        "answerer": {"model": options.answerer, "decoding": asdict(options.answering)},
        "prompts_sha256": {name: sha256_of(template.encode()) for name, template in templates().items()},
        "questions": options.questions,
        "seed": options.seed,
        "characters": asdict(options.lengths),
        "build_version": BUILD_VERSION,
    }


def _read_pages(options: BuildOptions) -> Pages:
    """Read the pages, and check that one of them has a section that is long enough."""
    shortest = options.lengths.shortest
    longest = options.lengths.longest
    if shortest > longest:
        raise SettingError(
            f"{{shortest}}: expected at most {{longest}}, {longest}, got {shortest}; lower it, or raise {{longest}}"
        )
    if options.out.suffix not in {".jsonl", ".ndjson"}:
        raise SettingError(
            f"{{out}}: expected a file that ends in .jsonl, got {str(options.out)!r}; it holds JSON Lines"
        )
    if not options.out.parent.is_dir():
        raise SettingError(f"{{out}}: expected an existing folder, got {options.out.parent}; create it first")
    pages = read_pages(options.pages, options.difficulty)
    if not any(True for order in options.candidates(pages).values() for _ in islice(order, 1)):
        raise SettingError(
            f"{options.pages}: expected a section of at least {shortest:,} characters, got none in "
            f"{len(pages.entries):,} pages; lower {{shortest}}, or check that the column {pages.columns['text']!r} "
            "holds the text"
        )
    return pages


def build_lines(record: Mapping[str, Any], paths: BuildPaths, n_wanted: int) -> Iterator[str]:
    """Yield lines that describe a finished build: questions, rejections by reason, tokens and the file."""
    counts = record["counts"]
    file = record["file"]
    yield f"{file['questions']:,} questions from {counts['sections_tried']:,} sections"
    rejected = {**counts["rejected"], **({"good, not needed": n} if (n := counts["not_needed"]) else {})}
    yield from (f"  {reason:<20} {count:>7,}" for reason, count in rejected.items())
    for role, used in record["usage"].items():
        tokens = f"{used['input_tokens']:,} tokens in, {used['output_tokens']:,} out"
        yield f"{role}: {used['requests']:,} requests, {tokens}"
    if file["questions"] < n_wanted:
        yield f"the pages ran out before {n_wanted:,} questions were made; add pages, or lower --shortest"
    yield f"{paths.questions}: saved, sha256 {file['sha256']}; {paths.record.name} records the build"
