"""Make the gallery: run the embedded models, make every study of the runs, and write the page and its pictures.

``.venv/bin/python docs/make_gallery.py`` takes about ten minutes the first time and one minute after that, because it
resumes the runs in `build/gallery`. ``docs/make_gallery.py report`` only takes the screenshot of the report
(`docs/assets/report.png`), in three minutes. Pictures and page are committed.
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
from refusal_index.findings.run_results import read_runs
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
COMMANDS = (
    "refusal-index run --model almanac/$m --draws 2 --out $m",
    "refusal-index run --model almanac/$m --limit 100 --draws 50 --temperature 1 --out $m-drawn",
    "refusal-index run --model almanac/$m --data books.csv --grader exact --limit 400 --variants normal --out $m-books",
    "refusal-index run --model almanac/$m --limit 400 --prompts confidence-targets --out $m-targets",
)
"""The runs of each model `$m`."""

SCORED = (
    "refusal-index run --model almanac/base --limit 400 --draws 10 --logprobs --out base-scored",
    "refusal-index confidence base-scored --method p-answering,self-consistency,answer-entropy,likelihood,"
    "likelihood-platt,p-ik,text-classifier",
)
"""A run of one model with confidence scores, as in the paper."""

WITH_DRAWS = (*MODELS, *(f"{model}-drawn" for model in MODELS))
MADE_OF = {
    "auroc_correlation": WITH_DRAWS,
    **dict.fromkeys(("calibrator_comparison", "calibrator_cost", "score_or_refusal"), ("base-scored",)),
    "response_to_penalty": tuple(f"{model}-targets" for model in MODELS),
    "hallucination_table": (*MODELS, *(f"{model}-books" for model in MODELS)),
}
"""Runs for the studies that need many samples, scores or a second dataset; the other studies use the main runs."""

SCALE = 0.9
"""Scale of a picture in pixels; the page shows it at about half of that size, for screens with a high resolution."""

COLOURS = 224

NOT_SHOWN = (
    "answers left out because they have no grade",
    "comes from another run of the same model",
    "ratios to it are left out",
    "which the paper compares, is missing for",
)
"""Parts of notes that the page, its captions or its commands say already."""

MOST_NOTES = {"index_and_accuracy": 0, "index_and_size": 0, "response_to_penalty": 0}
"""Studies that have a note for each line or model: how many of them are shown."""

HEAD = """\
---
hide: [navigation]
---
<!-- Written by docs/make_gallery.py: change that file and run it. -->
# Gallery

Every study, made from runs of the three embedded models, which are tiny and know only an invented
world: the results say nothing about large models.

`refusal-index study NAME RUN...` makes one study, as CSV, LaTeX, SVG, PDF and PNG; `refusal-index study --all RUN...`
makes every study that the runs allow, and says what the others need. Each study prints further notes. The runs:

<!-- not run: takes ten minutes; docs/make_gallery.py runs it -->
```bash
{commands}
```

`books.csv` has the almanac's questions about books, as a second dataset. All studies use
[RI as the paper reports it](reading.md#ri-and-corrected-ri). At most 1 in 1,000 answers has no grade and is left out.
"""


def main() -> None:
    """Make the runs, the pictures and the page; with the argument ``report``, only the screenshot of the report."""
    RUNS.mkdir(parents=True, exist_ok=True)
    photograph_report()
    if sys.argv[1:] == ["report"]:
        return
    make_runs()
    shutil.rmtree(PICTURES, ignore_errors=True)
    parts = [head()]
    for spec in study_specs():
        names = MADE_OF.get(spec.name, MODELS)
        try:
            study = spec.make(read_runs([RUNS / name for name in names]), StudyOptions())
            parts.append(section(study, f"refusal-index study {spec.name} {' '.join(names)}"))
        except NotPossibleError:
            needs = f"Not possible with these runs. It needs {markdown(spec.needs)}."
            parts.append(f"## {spec.title} {{#{spec.name}}}\n\n{needs}\n")
        print(spec.name, flush=True)
    PAGE.write_text("\n".join(parts))


def make_runs() -> None:
    """Run every command for every model; earlier replies are reused."""
    (RUNS / "books.csv").write_text(book_questions())
    command_line = Path(sys.executable).with_name("refusal-index")
    for command in commands():
        subprocess.run([command_line, *command.split()[1:]], cwd=RUNS, check=True)


def commands() -> tuple[str, ...]:
    """Return the commands that make the runs."""
    return (*(command.replace("$m", model) for command in COMMANDS for model in MODELS), *SCORED)


def book_questions() -> str:
    """Return the almanac's questions about books as a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("question_id", "question", "answer", "topic"))
    for question in load_dataset("almanac").questions:
        if question.topic and question.topic.endswith("book"):
            writer.writerow((question.question_id, question.text, question.gold, question.topic))
    return text.getvalue()


def head() -> str:
    """Return the introduction of the page."""
    loop = [f"for m in {' '.join(MODELS)}; do", *(f"  {command}" for command in COMMANDS), "done"]
    return HEAD.format(commands="\n".join([*loop, *SCORED]))


def section(study: Study, command: str) -> str:
    """Write the picture of a study, and return its part of the page, with some of its notes."""
    parts = [f"## {study.title} {{#{study.name}}}", ""]
    picture = draw(study)
    if picture is not None:
        with Image.open(picture) as image:
            width = round(image.width / 1.75)
        parts += [f"![Figure]({picture.relative_to(DOCS)}){{ width={width} }}", ""]
    parts += [markdown(study.caption), ""]
    notes = [note for note in study.notes if not any(part in note for part in NOT_SHOWN)]
    notes = notes[: MOST_NOTES.get(study.name)]
    parts += [*(f"- {markdown(note)}" for note in notes), ""] if notes else []
    return "\n".join([*parts, f"`{command}`", ""])


def photograph_report() -> None:
    """Take a screenshot of the first screen of the report of ``refusal-index run``."""
    page = RUNS / "report" / "report.html"
    command_line = Path(sys.executable).with_name("refusal-index")
    subprocess.run([command_line, "run", "--out", page.parent], check=True)
    settings = ("--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,770")
    browser = ("chromium", *settings, f"--screenshot={REPORT}", page.as_uri())
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
