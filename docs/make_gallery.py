"""Make the gallery: run the embedded models, make every study of the runs, and write the page and its pictures.

``.venv/bin/python docs/make_gallery.py`` takes about ten minutes the first time and one minute after that, since the
runs in `build/gallery` are resumed and ask nothing twice. Pictures and page are committed.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from refusal_index.data.datasets import load_dataset
from refusal_index.data.runs import read_runs
from refusal_index.plugins.studies.study import (
    NotPossibleError,
    Study,
    StudyOptions,
    markdown,
    study_specs,
    write_study,
)

DOCS = Path(__file__).parent
RUNS = DOCS.parent / "build" / "gallery"
PAGE, PICTURES = DOCS / "gallery.md", DOCS / "gallery"
REPORT = DOCS / "assets" / "report.png"

MODELS = ("base", "small", "rash")
MAIN = "refusal-index run --model almanac/{model} --draws 2 --out {model}"
DRAWN = "refusal-index run --model almanac/{model} --limit 100 --draws 50 --temperature 1 --out {model}-drawn"
BOOKS = (
    "refusal-index run --model almanac/{model} --data books.csv --grader exact --limit 400 --variants normal "
    "--out {model}-books"
)
TARGETS = "refusal-index run --model almanac/{model} --limit 400 --prompts confidence-targets --out {model}-targets"
COMMANDS = (MAIN, DRAWN, BOOKS, TARGETS)
SCORED = (
    "refusal-index run --model almanac/base --limit 400 --draws 10 --logprobs --out base-scored",
    "refusal-index confidence base-scored --method p-answering,self-consistency,answer-entropy,likelihood,"
    "likelihood-platt,p-ik,text-classifier",
)
"""Of one model, as in the paper: with scores of how likely its answers are right."""

WITH_DRAWS = (*MODELS, *(f"{model}-drawn" for model in MODELS))
MADE_OF = {
    "attenuation": ("base-drawn",),
    "auroc_correlation": WITH_DRAWS,
    **dict.fromkeys(("calibrator_comparison", "calibrator_cost", "score_or_refusal"), ("base-scored",)),
    "response_to_penalty": tuple(f"{model}-targets" for model in MODELS),
    "hallucination_table": (*MODELS, *(f"{model}-books" for model in MODELS)),
}
"""Runs of the studies that need many draws, scores or a second dataset; the others are made of the main runs."""

SCALE = 0.9
"""Pixels kept of a picture for print; the page shows it at half of that size, since many screens have two for one."""

COLOURS = 224

HEAD = """\
---
hide: [navigation]
---
<!-- Written by docs/make_gallery.py: change that file and run it. -->
# Gallery

Every study in the package, made from real runs of the three embedded models. These models are tiny and know only an
invented world, so the results say nothing about large models. Each caption explains how to read its figure.

`refusal-index study NAME RUN...` makes one, as CSV, LaTeX, SVG, PDF and PNG; `refusal-index study --all RUN...`
makes every study that the runs allow, and lists the runs that the others need. These commands made the runs here:

<!-- not run: takes ten minutes; docs/make_gallery.py runs it -->
```bash
{commands}
```

where `books.csv` holds the almanac's questions about books, for a second dataset. RI is
[the paper's](reading.md#ri-and-corrected-ri) in every study.
"""


def main() -> None:
    """Make the runs, the pictures and the page."""
    make_runs()
    shutil.rmtree(PICTURES, ignore_errors=True)
    parts = [head()]
    for spec in study_specs():
        names = MADE_OF.get(spec.name, MODELS)
        try:
            study = spec.make(read_runs([RUNS / name for name in names]), StudyOptions())
            parts.append(section(study, f"refusal-index study {spec.name} {' '.join(names)}"))
        except NotPossibleError:
            parts.append(f"## {spec.title} {{#{spec.name}}}\n\nNot of these runs. It needs {markdown(spec.needs)}.\n")
        print(spec.name, flush=True)
    PAGE.write_text("\n".join(parts))
    photograph_report()


def make_runs() -> None:
    """Run every command for every model; what was answered before is not asked again."""
    RUNS.mkdir(parents=True, exist_ok=True)
    (RUNS / "books.csv").write_text(book_questions())
    command_line = Path(sys.executable).with_name("refusal-index")
    for command in commands():
        subprocess.run([command_line, *command.split()[1:]], cwd=RUNS, check=True)


def commands() -> tuple[str, ...]:
    """Return what makes the runs, as one would type it."""
    return (*(command.format(model=model) for command in COMMANDS for model in MODELS), *SCORED)


def book_questions() -> str:
    """Return the almanac's questions about books as a file of one's own."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("question_id", "question", "answer", "topic"))
    for question in load_dataset("almanac").questions:
        if question.topic and question.topic.endswith("book"):
            writer.writerow((question.question_id, question.text, question.gold, question.topic))
    return text.getvalue()


def head() -> str:
    """Return what stands above the studies."""
    return HEAD.format(commands="\n".join(commands()))


def section(study: Study, command: str) -> str:
    """Write the picture of a study, and return its part of the page."""
    parts = [f"## {study.title} {{#{study.name}}}", ""]
    picture = draw(study)
    if picture is not None:
        with Image.open(picture) as image:
            width = round(image.width / 1.75)
        alternative = f"{study.title}: what it shows is in the text below"
        parts += [f"![{alternative}]({picture.relative_to(DOCS)}){{ width={width} }}", ""]
    parts += [markdown(study.caption), ""]
    parts += [*(f"- {markdown(note)}" for note in study.notes), ""] if study.notes else []
    return "\n".join([*parts, "<!-- not run: its runs are those above -->", "```bash", command, "```", ""])


def photograph_report() -> None:
    """Take a picture of the first screen of the tutorial's report."""
    page = RUNS / "tutorial" / "report.html"
    command_line = Path(sys.executable).with_name("refusal-index")
    subprocess.run([command_line, "run", "--limit", "250", "--out", page.parent], check=True)
    settings = ("--headless", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=1.2")
    browser = ("chromium", *settings, "--window-size=1250,800", f"--screenshot={REPORT}", page.as_uri())
    subprocess.run(browser, check=True, capture_output=True)
    with_few_colours(REPORT)


def draw(study: Study) -> Path | None:
    """Write a study's picture with few colours and no more pixels than the page needs."""
    written: Sequence[Path] = write_study(study, PICTURES, ("png",))
    if not written:
        return None
    with_few_colours(written[0], SCALE)
    return written[0]


def with_few_colours(path: Path, scale: float = 1) -> None:
    """Make a picture smaller, in pixels and in bytes."""
    with Image.open(path) as image:
        size = (round(image.width * scale), round(image.height * scale))
        small = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    small.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
