"""Building a PreciseWikiQA set: pages are read, models asked, and questions frozen; resumable at any moment."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from refusal_index.data.folder import RunFolder
from refusal_index.models.settings import Decoding, Sending, SettingError
from refusal_index.plugins.wiki.candidates import Lengths, draw_order
from refusal_index.plugins.wiki.drawing import Drawing
from refusal_index.plugins.wiki.engine import Builder, BuildPlan, BuildStoppedError, Watcher, build_engines
from refusal_index.plugins.wiki.frozen import (
    BuildPaths,
    build_record,
    finished_record,
    freeze,
    refuse_others,
    write_tried,
)
from refusal_index.plugins.wiki.pages import Pages, read_pages
from refusal_index.plugins.wiki.verdicts import build_prompts
from refusal_index.runs.engine import BATCH, Engine, RunFailedError, check_engines_own, check_sends
from refusal_index.runs.execute import outstanding
from refusal_index.runs.plan import versions
from refusal_index.runs.store import ReplyStore

BUILD_VERSION = 1
"""Raised whenever a change makes the same replies lead to other questions."""

PACKAGES = ("refusal-index", "inspect-ai", "openai", "polars")
LOOKED_AT = 200  # sections that an estimate is made from
CHARACTERS_A_TOKEN = 4  # of English; the estimate says "about"


@dataclass(frozen=True)
class BuildOptions:
    """What is built, of what, by whom.

    Attributes
    ----------
    pages, out
        Wikipedia's text, and the file of questions.
    writer, answerer
        The models that write questions and answer them.
    questions, seed, difficulty, revision
        How many, drawn how; the column of levels, and a name for the source's revision.
    lengths
        How long sections and their pieces are.
    writing, answering, sending
        How the two models generate, and who carries requests, and how.
    """

    pages: Path
    out: Path
    writer: str
    answerer: str
    questions: int = 2000
    seed: int = 0
    difficulty: str | None = None
    revision: str | None = None
    lengths: Lengths = field(default_factory=lambda: Lengths(600, 2400))
    writing: Decoding = field(default_factory=lambda: Decoding(0.7, 0.9))
    answering: Decoding = field(default_factory=lambda: Decoding(0.3, 0.9))
    sending: Sending = field(default_factory=Sending)

    @property
    def plan(self) -> BuildPlan:
        """Who is asked, and how."""
        return BuildPlan(self.writer, self.answerer, self.writing, self.answering, self.seed, self.sending)

    @property
    def paths(self) -> BuildPaths:
        """Where the file, its record and its folder lie."""
        return BuildPaths(self.out)


Watching = Callable[[int], AbstractContextManager[Watcher]]
"""Gives what is told how a build of so many questions goes on."""


async def build(options: BuildOptions, watching: Watching) -> dict[str, Any]:
    """Build a set of questions, and return its record: counts, tokens and the file's hash.

    Raises
    ------
    RefusalIndexError
        If an option, the pages, a model or the place cannot be used, or the build had to stop: what was answered is
        kept.
    """
    pages = _pages(options)
    check_engines_own(options.sending)
    check_sends(options.sending)
    settings, paths = settings_of(options, pages), options.paths
    record = finished_record(paths, settings)
    if record is not None:
        return record
    folder = _folder(paths, settings)
    engines = build_engines(options.plan)  # a wrong name or a missing key is told before a folder is made
    with folder.lock():
        folder.create_or_resume(settings)
        if options.sending.engine != BATCH:
            with ReplyStore(folder.replies) as store:
                outstanding().refuse_in_flight(folder, store)
        return await _carried_out(options, pages, settings, engines, watching)


@dataclass(frozen=True)
class BuildEstimate:
    """What a build would ask, at least: pages and their levels of difficulty, requests, and about how many tokens."""

    pages: int
    levels: int
    requests: int
    tokens: float


def estimate(options: BuildOptions) -> BuildEstimate:
    """Say what a build would ask, at least, without asking it.

    Raises
    ------
    RefusalIndexError
        If an option or the pages cannot be used.
    """
    pages, prompts = _pages(options), build_prompts()
    drawn = (
        one for order in draw_order(pages, options.seed, options.lengths).values() for one in islice(order, LOOKED_AT)
    )
    looked_at = list(islice(drawn, LOOKED_AT))
    characters = sum(len(prompts.for_question(one)) + len(prompts.for_answer(one, "")) for one in looked_at)
    tokens = characters / CHARACTERS_A_TOKEN / max(len(looked_at), 1)
    levels = len({page.difficulty for page in pages.entries}) if "difficulty" in pages.columns else 0
    return BuildEstimate(len(pages.entries), levels, 2 * options.questions, options.questions * tokens)


def settings_of(options: BuildOptions, pages: Pages) -> dict[str, Any]:
    """Return all that the questions depend on; a file and its folder belong to one such set."""
    return {
        "source": {"sha256": pages.sha256, "revision": options.revision, "columns": dict(pages.columns)},
        "writer": {"model": options.writer, "decoding": asdict(options.plan.writing)},
        "answerer": {"model": options.answerer, "decoding": asdict(options.plan.answering)},
        "prompts_sha256": build_prompts().hashes,
        "questions": options.questions,
        "seed": options.seed,
        "characters": asdict(options.lengths),
        "build_version": BUILD_VERSION,
    }


def _pages(options: BuildOptions) -> Pages:
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
        raise SettingError(f"{{out}}: expected a folder that is there, got {options.out.parent}; make it first")
    pages = read_pages(options.pages, options.difficulty)
    orders = draw_order(pages, options.seed, options.lengths)
    if not any(True for order in orders.values() for _ in islice(order, 1)):
        raise SettingError(
            f"{options.pages}: expected a section of at least {shortest:,} characters, got none in "
            f"{len(pages.entries):,} pages; lower {{shortest}}, or check that the column {pages.columns['text']!r} "
            "holds the text"
        )
    return pages


def _folder(paths: BuildPaths, settings: dict[str, Any]) -> RunFolder:
    folder = RunFolder(paths.folder)
    if folder.run_json.exists():
        refuse_others(paths.questions, folder.read_settings(), settings)
    return folder


async def _carried_out(
    options: BuildOptions, pages: Pages, settings: dict[str, Any], engines: Mapping[str, Engine], watching: Watching
) -> dict[str, Any]:
    paths, prompts, folder = options.paths, build_prompts(), RunFolder(options.paths.folder)
    drawing = Drawing(draw_order(pages, options.seed, options.lengths), options.questions)
    try:
        with watching(options.questions) as watcher, ReplyStore(folder.replies) as store:
            builder = Builder(options.plan, engines, prompts, store, watcher, folder)
            await builder.build(drawing)
        if not drawing.taken():
            raise BuildStoppedError(f"none of the {len(drawing.tried):,} sections yielded a question")
    except BuildStoppedError as error:
        raise RunFailedError(f"{error}; {paths.sections} shows each section") from error
    finally:
        write_tried(paths, drawing.tried)
    record = build_record(settings, drawing, builder.usage, prompts, _about(options, pages))
    return freeze(paths, drawing.taken(), record)


def _about(options: BuildOptions, pages: Pages) -> dict[str, Any]:
    return {
        "source": {"name": options.pages.name, "pages": len(pages.entries), "rows_left_out": dict(pages.left_out)},
        "versions": {"python": platform.python_version(), **versions(PACKAGES)},
    }
