"""``refusal-index build precise-wiki``: make a question set instead of downloading one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.shared_options import output, takes_settings


@takes_settings(
    "max_tokens",
    "engine",
    "max_connections",
    "max_retries",
    "attempt_timeout",
    "detach",
    "command",
    "ray_address",
    "engine_option",
    "base_url",
    "api_key_env",
    base_url="Base URL of an OpenAI-compatible server, as in http://127.0.0.1:8000/v1; --writer and --answerer are "
    "then the server's own names for the models.",
)
def precise_wiki(
    pages: Path,
    /,
    out: Annotated[Path, output()],
    writer: str = "openai/gpt-4o-mini",
    answerer: str | None = None,
    questions: Annotated[int, typer.Option(min=1)] = 2000,
    seed: int = 0,
    difficulty: str | None = None,
    revision: str | None = None,
    shortest: Annotated[int, typer.Option(min=1)] = 600,
    longest: Annotated[int, typer.Option(min=1)] = 2400,
    temperature: Annotated[float, typer.Option(min=0)] = 0.7,
    answer_temperature: Annotated[float, typer.Option(min=0)] = 0.3,
    top_p: Annotated[float, typer.Option(min=0, max=1)] = 0.9,
    dry_run: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Build a PreciseWikiQA set: short factual questions about sections of Wikipedia.

    One model writes a question about a section, another answers it from the section alone. Questions without an exact
    answer are dropped, and further sections are sampled until there are enough questions. Running the same command
    again resumes and never pays for a reply twice.

    Exit status: 0 done, 1 failed or too few questions, 2 bad input, 130 interrupted.

    - `pages` PAGES: Text of Wikipedia: the GoodWiki dump, or a .parquet, .jsonl or .csv file with the columns title,
      text and optionally section.
    - `out` FILE: File of questions to write, in JSON Lines; a record of how they were made is written beside it.
    - `writer`: Model that writes questions, as PROVIDER/NAME.
    - `answerer`: Model that answers them from the text. [default: the writer]
    - `questions`: Number of questions.
    - `seed`: Random seed of the sample of sections and of every request.
    - `difficulty` COLUMN: Column whose levels get equal shares of the questions. [default: difficulty or h_score_cat,
      if present]
    - `revision`: Revision of the source, in your own words; kept in the record.
    - `shortest`: Minimum length of a section, in characters.
    - `longest`: Maximum length of the text to show, in characters.
    - `temperature`: Sampling temperature of the writer.
    - `answer_temperature`: Sampling temperature of the answerer.
    - `top_p`: Top-p (nucleus) sampling of both.
    - `dry_run`: Send nothing; print the requests to expect.
    """
    from refusal_index.cli.runs import asking
    from refusal_index.models.settings import Decoding
    from refusal_index.plugins.wiki import build
    from refusal_index.plugins.wiki.questions import Lengths
    from refusal_index.runs.settings import Settings

    settings = Settings.from_values(**values)
    max_tokens = settings.decoding.max_tokens
    options = build.BuildOptions(
        pages=pages,
        out=out,
        writer=writer,
        answerer=answerer or writer,
        questions=questions,
        seed=seed,
        difficulty=difficulty,
        revision=revision,
        lengths=Lengths(shortest, longest),
        writing=Decoding(temperature, top_p, max_tokens),
        answering=Decoding(answer_temperature, top_p, max_tokens),
        sending=settings.sending,
        servers=settings.servers,
    )
    if dry_run:
        for line in build.estimate(options):
            console.say(line)
        return
    record = asking(build.build(options, console.terminal(stderr=True)))
    for line in build.build_lines(record, options.paths, questions):
        console.say(line)
    if record["file"]["questions"] != questions:
        raise typer.Exit(console.INCOMPLETE)
