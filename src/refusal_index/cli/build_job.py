"""What ``refusal-index build precise-wiki`` does once its options are read."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from refusal_index.cli.bad_input import OptionError
from refusal_index.cli.build_show import progress_bar, show_record
from refusal_index.datasets.precise_wiki_build import (
    BuildError,
    BuildPaths,
    Drawing,
    Lengths,
    Pages,
    build_prompts,
    build_record,
    draw_order,
    finished_record,
    freeze,
    read_pages,
    refuse_others,
    write_tried,
)
from refusal_index.engines.inspect.build import (
    BuildModels,
    BuildPlan,
    BuildStoppedError,
    build_questions,
    resolve_build_models,
)
from refusal_index.engines.inspect.task import Decoding
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.presentation import escape as harmless

BUILD_VERSION = 1
"""Raised whenever a change makes the same replies lead to other questions."""

LOOKED_AT = 200  # sections that an estimate is made from
CHARACTERS_A_TOKEN = 4  # of English; the estimate says "about"


@dataclass(frozen=True)
class BuildOptions:
    """The options of ``build precise-wiki``, as given."""

    pages: Path
    out: Path
    writer: str
    answerer: str
    questions: int
    seed: int
    difficulty: str | None
    revision: str | None
    shortest: int
    longest: int
    temperature: float
    answer_temperature: float
    top_p: float
    max_tokens: int
    max_connections: int | None
    max_retries: int
    attempt_timeout: int

    @property
    def lengths(self) -> Lengths:
        """How long sections and their pieces are."""
        return Lengths(self.shortest, self.longest)

    @property
    def plan(self) -> BuildPlan:
        """Who is asked, and how."""
        return BuildPlan(
            self.writer,
            self.answerer,
            Decoding(self.temperature, self.top_p, self.max_tokens),
            Decoding(self.answer_temperature, self.top_p, self.max_tokens),
            self.seed,
            self.max_connections,
            self.max_retries,
            self.attempt_timeout,
        )


def build(options: BuildOptions) -> bool:
    """Build what was asked, print what came of it, and return whether there are as many questions as wanted.

    Raises
    ------
    ValueError
        One of this package's own, if an option, the pages, a model or the place cannot be used.
    """
    pages = _pages(options)
    settings = settings_of(options, pages)
    paths = BuildPaths(options.out)
    record = finished_record(paths, settings)
    if record is None:
        folder = _folder(paths, settings)
        models = resolve_build_models(options.plan)  # a wrong name or a missing key is told before a folder is made
        with folder.lock():
            folder.create_or_resume(settings)
            record = _carried_out(options, pages, settings, paths, models)
    if record is not None:
        show_record(record, paths, options.questions)
    return record is not None and record["file"]["questions"] == options.questions


def estimate(options: BuildOptions) -> bool:
    """Print what a build would ask, at least, without asking it.

    Raises
    ------
    ValueError
        One of this package's own, if an option or the pages cannot be used.
    """
    pages, prompts = _pages(options), build_prompts()
    drawn = (
        one for order in draw_order(pages, options.seed, options.lengths).values() for one in islice(order, LOOKED_AT)
    )
    looked_at = list(islice(drawn, LOOKED_AT))
    characters = sum(len(prompts.for_question(one)) + len(prompts.for_answer(one, "")) for one in looked_at)
    tokens = characters / CHARACTERS_A_TOKEN / max(len(looked_at), 1)
    typer.echo(f"{len(pages.entries):,} pages{_levels(pages)}")
    typer.echo(
        f"{options.questions:,} questions take at least {2 * options.questions:,} requests and about "
        f"{options.questions * tokens:,.0f} tokens in; each section that is thrown out takes one or two requests more"
    )
    return True


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
    if options.shortest > options.longest:
        raise OptionError(
            f"--shortest: expected at most --longest, {options.longest}, got {options.shortest}; lower it, or raise "
            "--longest"
        )
    if options.out.suffix not in {".jsonl", ".ndjson"}:
        raise OptionError(f"--out: expected a file that ends in .jsonl, got {str(options.out)!r}; it holds JSON Lines")
    if not options.out.parent.is_dir():
        raise OptionError(f"--out: expected a folder that is there, got {options.out.parent}; make it first")
    pages = read_pages(options.pages, options.difficulty)
    orders = draw_order(pages, options.seed, options.lengths)
    if not any(True for order in orders.values() for _ in islice(order, 1)):
        raise BuildError(
            f"{options.pages}: expected a section of at least {options.shortest:,} characters, got none in "
            f"{len(pages.entries):,} pages; lower --shortest, or check that the column {pages.columns['text']!r} holds "
            "the text"
        )
    return pages


def _folder(paths: BuildPaths, settings: dict[str, Any]) -> RunFolder:
    folder = RunFolder(paths.folder)
    if folder.run_json.exists():
        refuse_others(paths.questions, folder.read_settings(), settings)
    return folder


def _carried_out(
    options: BuildOptions, pages: Pages, settings: dict[str, Any], paths: BuildPaths, models: BuildModels
) -> dict[str, Any] | None:
    """Ask, write and return the record; None where the build had to stop, which is told."""
    drawing = Drawing(draw_order(pages, options.seed, options.lengths), options.questions)
    prompts, cache = build_prompts(), RunFolder(paths.folder).cache
    try:
        with progress_bar(options.questions) as bar:
            usage = build_questions(options.plan, models, prompts, drawing, cache, bar)
        if not drawing.taken():
            raise BuildStoppedError(f"none of the {len(drawing.tried):,} sections yielded a question")
    except BuildStoppedError as error:
        typer.echo(f"error: {harmless(f'{error}; {paths.sections} shows each section')}", err=True)
        return None
    finally:
        write_tried(paths, drawing.tried)
    return freeze(paths, drawing.taken(), build_record(settings, drawing, usage, prompts, _about(options, pages)))


def _about(options: BuildOptions, pages: Pages) -> dict[str, Any]:
    names = ("refusal-index", "inspect-ai", "openai", "polars")
    return {
        "source": {"name": options.pages.name, "pages": len(pages.entries), "rows_left_out": dict(pages.left_out)},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in names}},
    }


def _levels(pages: Pages) -> str:
    levels = len({page.difficulty for page in pages.entries})
    return f" of {levels} levels of difficulty" if "difficulty" in pages.columns else ""
