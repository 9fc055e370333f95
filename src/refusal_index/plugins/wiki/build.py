"""Building a PreciseWikiQA set: read pages, have models write questions, and save the set with a record of its making.

A build can be resumed at any moment. A finished set of questions is never overwritten.
"""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from refusal_index.data.errors import RunFolderError, shortened
from refusal_index.data.files import sha256_of, write_atomically
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import as_json, refuse_other_settings
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.summary import Usage
from refusal_index.models.settings import Decoding, Sending, SettingError
from refusal_index.plugins.wiki.builder import Builder, BuildStoppedError, Drawing, build_engines
from refusal_index.plugins.wiki.questions import (
    ANSWERER,
    WRITER,
    BuildPrompts,
    Candidate,
    Lengths,
    Pages,
    Tried,
    build_prompts,
    draw_order,
    read_pages,
)
from refusal_index.render.format import escape
from refusal_index.runs.engine import BATCH, Engine, RunFailedError, check_engines_own, check_sends, note_on
from refusal_index.runs.execute import outstanding
from refusal_index.runs.plan import versions
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

BUILD_FORMAT = 1


class BuildError(RefusalIndexError, ValueError):
    """A build that cannot be started or resumed; the message names the file and what to do."""


@dataclass(frozen=True)
class BuildPaths:
    """Where a build's results lie."""

    questions: Path  # the frozen file

    @property
    def record(self) -> Path:
        """How the file came about."""
        return self.questions.with_name(f"{self.questions.name}.build.json")

    @property
    def folder(self) -> Path:
        """Replies that were paid for; once the file is frozen it can be deleted."""
        return self.questions.with_name(f"{self.questions.name}.build")

    @property
    def sections(self) -> Path:
        """What became of each section that was tried."""
        return self.folder / "sections.jsonl"


def freeze(
    paths: BuildPaths,
    settings: Mapping[str, Any],
    drawing: Drawing,
    usage: Mapping[str, Usage],
    prompts: BuildPrompts,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the questions, then the record of the build, and return the record.

    In this order, so that a record only exists when the file is whole.

    - `settings`: everything that the questions depend on.
    - `drawing`: what was tried, and what came of it.
    - `usage`: requests and tokens by ``"writer"`` and ``"answerer"``.
    - `prompts`: the wording, which is kept in full.
    - `about`: what may differ when the same settings are used again: versions, names.
    """
    taken = drawing.taken()
    levels = Counter(one.candidate.difficulty for one in taken)
    content = _json_lines(map(_line, taken))
    record = {
        "build_format": BUILD_FORMAT,
        "file": {"name": paths.questions.name, "sha256": sha256_of(content), "questions": len(taken)},
        "settings": as_json(settings),
        "counts": {
            "sections_tried": len(drawing.tried),
            "questions": len(taken),
            "not_needed": drawing.not_needed,
            "rejected": dict(sorted(drawing.reasons().items(), key=lambda entry: (-entry[1], entry[0]))),
            "questions_by_difficulty": {level: count for level, count in levels.items() if level is not None},
        },
        "usage": {
            role: {name: getattr(one, name) for name in ("requests", "input_tokens", "output_tokens")}
            for role, one in usage.items()
        },
        "prompts": asdict(prompts),
        "about": as_json(about),
    }
    write_atomically(paths.questions, content)
    write_atomically(paths.record, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return record


def write_tried(paths: BuildPaths, tried: Sequence[Tried]) -> None:
    """Write what became of each section, rejected ones with their reason, for a person to read."""
    lines = (
        {**_line(one), "reason": one.reason and str(one.reason), **({"detail": one.detail} if one.detail else {})}
        for one in tried
    )
    write_atomically(paths.sections, _json_lines(lines))


def finished_record(paths: BuildPaths, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record of a finished build; None where it is still to be done.

    Raises BuildError if the file was made by something else, or with other settings, or has changed since.
    """
    if not paths.record.exists():
        if paths.questions.exists() and not (paths.folder / "run.json").exists():
            raise BuildError(f"{paths.questions} exists and was not made by a build; give another --out")
        return None
    try:
        record: dict[str, Any] = dict(json.loads(paths.record.read_bytes()))
        version, before, checksum = record["build_format"], dict(record["settings"]), record["file"]["sha256"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BuildError(
            f"{paths.record} is not a record of a build ({error!r}); remove it, or give another --out"
        ) from error
    if version != BUILD_FORMAT or not before or not checksum:
        raise BuildError(
            f"{paths.record}: expected build_format {BUILD_FORMAT}, got {shortened(version)}; "
            "use the release that wrote it, or give another --out"
        )
    refuse_others(paths.questions, before, settings)
    if not paths.questions.exists():
        return None
    found = sha256_of(paths.questions)
    if found != checksum:
        raise BuildError(
            f"{paths.questions} has changed since it was frozen: expected sha256 {checksum}, got {found}; delete it to "
            "have the same command write it again, or give another --out"
        )
    return record


def refuse_others(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `BuildError` naming the settings in which the build of `path` differs from what is asked here."""
    try:
        refuse_other_settings(path, there, as_json(here))
    except RunFolderError as error:
        raise BuildError(f"{str(error).removesuffix('choose another folder')}give another --out") from None


def _json_lines(lines: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()


def _line(one: Tried) -> dict[str, Any]:
    candidate = one.candidate
    known = {"difficulty": candidate.difficulty, "topic": candidate.topic, "revision": candidate.revision}
    return {
        "question_id": candidate.candidate_id,
        "question": one.question,
        "answer": one.answer,
        "title": candidate.title,
        "section": candidate.section,
        **{name: value for name, value in known.items() if value is not None},
    }


BUILD_VERSION = 1
"""Raised whenever a change makes the same replies lead to other questions."""

PACKAGES = ("refusal-index", "inspect-ai", "openai", "polars")
ESTIMATED_FROM = 200  # sections
CHARACTERS_A_TOKEN = 4  # of English; the estimate says "about"


@dataclass(frozen=True)
class BuildOptions:
    """What is built from which pages, and by which models.

    Attributes
    ----------
    pages, out
        Wikipedia's text, and the file of questions.
    writer, answerer
        The models that write questions and answer them.
    questions, seed, difficulty, revision
        How many, the seed of the draw and of each request, the column of levels, and a name for the source's revision.
    lengths
        How long sections and their pieces are.
    writing, answering, sending
        How the two models generate, and how requests are sent. Questions should vary; answers should not.
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

    @property
    def settings(self) -> dict[str, Settings]:
        """How each role is asked."""
        roles = {WRITER: (self.writer, self.writing), ANSWERER: (self.answerer, self.answering)}
        return {
            role: replace(Settings(model=model, seed=self.seed, sending=self.sending), decoding=decoding)
            for role, (model, decoding) in roles.items()
        }

    @property
    def paths(self) -> BuildPaths:
        """Where the file, its record and its folder are."""
        return BuildPaths(self.out)

    def drawing(self, pages: Pages) -> dict[str | None, Iterator[Candidate]]:
        """Return the sections in the order in which they are drawn, by difficulty."""
        return draw_order(pages, self.seed, self.lengths)


async def build(options: BuildOptions, console: Console) -> dict[str, Any]:
    """Build a set of questions, and return its record: counts, tokens and the file's hash.

    Raises
    ------
    RefusalIndexError
        If an option, the pages, a model or a path cannot be used, or the build had to stop: what was answered is kept.
    """
    pages = _read_pages(options)
    check_engines_own(options.sending)
    check_sends(options.sending)
    identity, paths = identity_of(options, pages), options.paths
    record = finished_record(paths, identity)
    if record is not None:
        return record
    folder = RunFolder(paths.folder)
    if folder.run_json.exists():
        refuse_others(paths.questions, folder.read_settings(), identity)
    engines = build_engines(options.settings)  # a wrong name or a missing key is reported before a folder is made
    with folder.lock():
        folder.create_or_resume(identity)
        with ReplyStore(folder.replies) as store:
            if options.sending.engine != BATCH:
                outstanding().refuse_in_flight(folder, store)
            return await _build(options, pages, identity, engines, store, console)


async def _build(
    options: BuildOptions,
    pages: Pages,
    identity: dict[str, Any],
    engines: Mapping[str, Engine],
    store: ReplyStore,
    console: Console,
) -> dict[str, Any]:
    paths, prompts, drawing = options.paths, build_prompts(), Drawing(options.drawing(pages), options.questions)
    try:
        with BuildBar(console, options.questions) as bar:
            if note := note_on(options.sending):
                bar.note(note)
            builder = Builder(options.settings, engines, prompts, store, bar, RunFolder(paths.folder))
            await builder.build(drawing)
        if not drawing.taken():
            raise BuildStoppedError(f"none of the {len(drawing.tried):,} sections yielded a question")
    except BuildStoppedError as error:
        raise RunFailedError(f"{error}; {paths.sections} shows each section") from error
    finally:
        write_tried(paths, drawing.tried)
    about = {
        "source": {"name": options.pages.name, "pages": len(pages.entries), "rows_left_out": dict(pages.left_out)},
        "versions": {"python": platform.python_version(), **versions(PACKAGES)},
    }
    return freeze(paths, identity, drawing, builder.usage, prompts, about)


def estimate(options: BuildOptions) -> Iterator[str]:
    """Yield what a build would ask, at least, without asking it: pages, requests, and about how many tokens.

    Raises
    ------
    RefusalIndexError
        If an option or the pages cannot be used.
    """
    pages, prompts, n = _read_pages(options), build_prompts(), options.questions
    drawn = (one for order in options.drawing(pages).values() for one in islice(order, ESTIMATED_FROM))
    sections = list(islice(drawn, ESTIMATED_FROM))
    characters = sum(len(prompts.for_question(one)) + len(prompts.for_answer(one, "")) for one in sections)
    tokens = n * (characters / CHARACTERS_A_TOKEN / max(len(sections), 1))
    levels = len({page.difficulty for page in pages.entries}) if "difficulty" in pages.columns else 0
    yield f"{len(pages.entries):,} pages{f' of {levels} levels of difficulty' if levels else ''}"
    yield (
        f"{n:,} questions take at least {2 * n:,} requests and about {tokens:,.0f} tokens in; each section that is "
        "thrown out takes one or two requests more"
    )


def identity_of(options: BuildOptions, pages: Pages) -> dict[str, Any]:
    """Return all that the questions depend on; a file and its folder belong to one such set."""
    return {
        "source": {"sha256": pages.sha256, "revision": options.revision, "columns": dict(pages.columns)},
        "writer": {"model": options.writer, "decoding": asdict(options.writing)},
        "answerer": {"model": options.answerer, "decoding": asdict(options.answering)},
        "prompts_sha256": build_prompts().hashes,
        "questions": options.questions,
        "seed": options.seed,
        "characters": asdict(options.lengths),
        "build_version": BUILD_VERSION,
    }


def _read_pages(options: BuildOptions) -> Pages:
    """Read the pages, and make sure that one of them has a section to ask about."""
    shortest, longest = options.lengths.shortest, options.lengths.longest
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
    if not any(True for order in options.drawing(pages).values() for _ in islice(order, 1)):
        raise SettingError(
            f"{options.pages}: expected a section of at least {shortest:,} characters, got none in "
            f"{len(pages.entries):,} pages; lower {{shortest}}, or check that the column {pages.columns['text']!r} "
            "holds the text"
        )
    return pages


def build_lines(record: Mapping[str, Any], paths: BuildPaths, wanted: int) -> Iterator[str]:
    """Yield what came of a build: questions, rejections by reason, tokens, and where it lies."""
    counts, file = record["counts"], record["file"]
    yield f"{file['questions']:,} questions out of {counts['sections_tried']:,} sections tried"
    rejected = {**counts["rejected"], **({"good, not needed": n} if (n := counts["not_needed"]) else {})}
    yield from (f"  {reason:<20} {count:>7,}" for reason, count in rejected.items())
    for role, used in record["usage"].items():
        tokens = f"{used['input_tokens']:,} tokens in, {used['output_tokens']:,} out"
        yield f"{role}: {used['requests']:,} requests, {tokens}"
    if file["questions"] < wanted:
        yield f"the pages ran out before {wanted:,} questions were made; add pages, or lower --shortest"
    yield f"{paths.questions}: saved, sha256 {file['sha256']}; {paths.record.name} says how"


class BuildBar:
    """A progress bar that counts questions, sections and tokens while the block runs."""

    def __init__(self, console: Console, wanted: int) -> None:
        columns = (
            TextColumn("questions"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            TextColumn("{task.fields[spent]}"),
            TextColumn("{task.fields[note]}", markup=False),
        )
        self._progress, self._wanted = Progress(*columns, console=console, refresh_per_second=4), wanted
        self._task = self._progress.add_task("", total=wanted, spent="", note="")
        self._good = self._tried = 0
        self._usage = Usage(0, 0, 0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        """Print a note above the progress bar."""
        self._progress.console.print(escape(text), markup=False, highlight=False, soft_wrap=True)

    def __call__(self, event: Usage | Tried | str) -> None:
        """Count the usage of a reply or a section that was tried, or show how requests in flight stand."""
        if isinstance(event, str):
            self._progress.update(self._task, note=escape(event))
            return
        if isinstance(event, Tried):
            self._tried += 1
            self._good += event.reason is None
        else:
            self._usage = Usage.total([self._usage, event])
        spent = f"{self._tried:,} sections, {self._usage.input_tokens:,} tokens in, {self._usage.output_tokens:,} out"
        self._progress.update(self._task, completed=min(self._good, self._wanted), spent=spent)
