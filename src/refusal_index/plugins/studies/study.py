"""Studies: their interface, their registry, and the files they are written to.

A study consists of a tidy data frame, a figure that draws exactly this frame, and a caption. It is made by a function
of the same name, decorated with `study`; its texts are in ``captions.toml``. The frame is written as CSV, the table as
LaTeX, and the figure as SVG, PDF and PNG, without dates or random names, so that the same study gives the same bytes.
"""

from __future__ import annotations

import base64
import html
import io
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from refusal_index import entry_points
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.files import write_atomically
from refusal_index.data.published import paper_rows
from refusal_index.data.rates import Completeness, completeness, first_draws, further_draws, never_forced
from refusal_index.data.written_tables import csv_text
from refusal_index.errors import RefusalIndexError, escape
from refusal_index.findings.draws import has_two_prompts, joint_index
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies.latex import cell_text, latex_table
from refusal_index.plugins.studies.style import BLOCK, house_style, new_figure, write_above
from refusal_index.render.format import abridged
from refusal_index.render.sentences import fill

BIASED = " Missing questions are rarely a random sample, so every number here may be biased."


class NotPossibleError(RefusalIndexError, ValueError):
    """The runs do not meet the requirements of a study; the message says what it needs and what was found.

    - `brief`: a sentence that begins with "It needs". The function of a study passes only what follows its needs in
      that sentence, such as ``"; 2 of these have an index"``.
    - `notes`: sentences that say what was left out and why.
    """

    def __init__(self, brief: str = "", notes: Sequence[str] = ()) -> None:
        super().__init__(" ".join([brief, *notes]))
        self.brief = brief
        self.notes = tuple(notes)

    @property
    def short(self) -> str:
        """The first sentence, with the number of notes on what was left out."""
        notes = len(self.notes)
        return self.brief + (f" ({notes:,} note{'s' if notes > 1 else ''} on what was left out.)" if notes else "")


@dataclass(frozen=True)
class StudyOptions:
    """Options of a study."""

    analysis: Analysis = DEFAULT_ANALYSIS  # its seed is also that of simulations and resampling
    # a table of models (columns ``model``, ``family``, ``parameters_billion``) in addition to that of the paper
    models: Path | None = None
    without_paper: bool = False  # whether the rows that the paper prints are left out


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """A study. The study's function sets the first fields; `StudySpec.make` sets those from `caption` on."""

    frame: pl.DataFrame  # one row per observation, with fixed column names; exactly what `draw` draws
    # draws the frame into an empty figure, whose size it may set; None for a study without a figure
    draw: Callable[[Figure, pl.DataFrame], None] | None = None
    # converts the frame to the printed table, with few rows and formatted cells; None to print the frame itself
    printed: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    notes: Sequence[str] = ()  # sentences that say what was left out and why
    values: Mapping[str, Any] = field(default_factory=dict)  # for the template of the caption
    groups: Mapping[str, str] = field(default_factory=dict)  # heading above each column of the printed table
    caption: str = ""  # complete sentences: what is shown, of which data, with which intervals and conventions
    table_caption: str = ""  # the same of the LaTeX table; the caption if empty
    # name and title as in the registry, such as ``accuracy_refusal_plane`` and *Accuracy-refusal plane*
    name: str = ""
    title: str = ""
    # whether the run of each model in the frame is incomplete, and the sentence that says so
    # above the figure and in the caption
    incomplete: Mapping[str, bool] = field(default_factory=dict)
    warning: str = ""

    @property
    def marked(self) -> pl.DataFrame:
        """The frame to draw and print, with a dagger after the name of each incomplete run."""
        if not self.warning:
            return self.frame
        marks = {name: f"{name} {MARK}" for name, incomplete in self.incomplete.items() if incomplete}
        return self.frame.with_columns(pl.col(MODEL_COLUMNS & set(self.frame.columns)).replace(marks))

    def figure(self) -> Figure:
        """Draw the figure in the style of the package without changing Matplotlib's global state.

        Raises ValueError if the study has no figure.
        """
        if self.draw is None:
            raise ValueError(f"{self.name} is a table without a figure; use its frame")
        with house_style():
            figure = new_figure()
            self.draw(figure, self.marked)
            if self.warning:
                write_above(figure, self.warning)
        return figure

    def __repr__(self) -> str:
        return f"Study({self.name!r}, {self.frame.height} rows)"

    def _repr_html_(self) -> str:
        if self.draw is None:
            return f"{self.marked._repr_html_()}<p>{html.escape(self.caption)}</p>"
        picture = io.BytesIO()
        self.figure().savefig(picture, format="png", bbox_inches="tight")
        source = f"data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}"
        caption = html.escape(self.caption)
        return (
            f'<figure><img src="{source}" alt="{html.escape(self.title)}"><figcaption>{caption}</figcaption></figure>'
        )


TEXTS = (
    "model other_model dataset variant other_prompt prompt method metric predictor part name kind panel source "
    "family truth less more letters scores_of estimate_of cost grouped_by verdict status reason ceiling_reason "
    "noise_reason"
)
COUNTS = (
    "n unscored count questions tables models variants draws place run points points_all left_out both_answered "
    "same first_answers forced_answers two_pass_answers full_two_pass_answers sampling_answers own_replies generations "
    "requests own_requests input_tokens output_tokens unpriced_tokens training_examples n_folds groups states "
    "state_size"
)
FLAGS = "trained sparse drawn above_line"
"""Columns of strings, integers and Booleans; all others contain floats."""


def schema(columns: str, **exceptions: type[pl.DataType]) -> dict[str, type[pl.DataType]]:
    """Return the schema of a frame; a column has the same type in all studies, with few exceptions.

    - `columns`: the column names in order, separated by spaces.

    >>> schema("model draws", draws=pl.Float64)
    {'model': String, 'draws': Float64}
    """
    kinds = ((pl.String, TEXTS), (pl.Int64, COUNTS), (pl.Boolean, FLAGS))
    kinds_by_name = {name: kind for kind, names in kinds for name in names.split()} | exceptions
    return {name: kinds_by_name.get(name, pl.Float64) for name in columns.split()}


@dataclass(frozen=True)
class StudySpec:
    """A registered study: its name, title, requirements and function.

    A plugin registers one in the group ``refusal_index.studies``.
    """

    # name for the command line, and title
    name: str
    title: str
    needs: str  # the required runs, as the end of a sentence that begins with "It needs"
    function: Callable[[Sequence[RunResults], StudyOptions], Study]

    def make(self, runs: Sequence[RunResults], options: StudyOptions) -> Study:
        """Make the study; raises `NotPossibleError` if the runs do not meet its requirements."""
        # studies that use first passes alone also where the same model has a run of both passes
        if self.name not in ("auroc_correlation", "cost_table"):
            runs = without_first_passes(runs)
        analysis = options.analysis.with_recorded(run.about for run in runs)
        options = replace(options, analysis=analysis)
        try:
            result = self.function(runs, options)
        except NotPossibleError as error:
            raise NotPossibleError(f"It needs {self.needs}{error.brief}.", error.notes) from None
        level = f"{options.analysis.confidence_level * 100:g}%"
        values = {"level": level, "p": f"{options.analysis.payoffs.weighted_score_p:g}", **result.values}
        caption = result.caption or study_text(self.name, **values)
        table_caption = result.table_caption or result.caption or study_text(self.name, "table_caption", **values)
        notes = (*result.notes, *(_two_prompts_notes(runs, analysis) if self.name in OF_COMBINED else ()))
        return with_missing(
            replace(
                result, name=self.name, notes=notes, title=self.title, caption=caption, table_caption=table_caption
            ),
            runs,
        )


Questions = tuple[str, str | None]
"""What identifies a model and the questions that it was asked."""


def asked_of(run: RunResults) -> Questions:
    """Return what identifies the model of a run and its questions: what the run records, else their display names.

    Display names may differ: a configuration needs them to tell the two runs apart.
    """
    settings = run.settings
    model = run.model or run.label
    if "model" in settings:
        effort = (settings.get("decoding") or {}).get("reasoning_effort")
        model = json.dumps([settings["model"], settings.get("named_by_server"), settings.get("think"), effort])
    sha256 = (settings.get("dataset") or {}).get("sha256")
    return model, sha256 or run.dataset


def is_first_pass_alone(run: RunResults) -> bool:
    """Whether no answer of a run was forced because only its first pass was to be run."""
    return bool(run.settings.get("answered_only")) or all(
        never_forced(first_draws(rows)) for rows in run.tables.values()
    )


def without_first_passes(runs: Sequence[RunResults]) -> list[RunResults]:
    """Return the runs without first passes alone for which there is a run of both passes."""
    alone = [is_first_pass_alone(run) for run in runs]
    both = {asked_of(run) for run, is_alone in zip(runs, alone, strict=True) if not is_alone}
    return [run for run, is_alone in zip(runs, alone, strict=True) if not (is_alone and asked_of(run) in both)]


OF_COMBINED = (
    *("results_table", "accuracy_refusal_plane", "iso_refusal_index", "index_and_accuracy", "index_and_size"),
    *("hallucination_table", "thinking"),
)
"""Studies that show RI over all prompts with its interval for prompts like these."""


def _two_prompts_notes(runs: Sequence[RunResults], analysis: Analysis) -> Iterator[str]:
    """Yield a note on the runs whose interval of combined RI rests on two prompts that differ."""
    joint = ((run.label, joint_index(list(run.tables.values()), analysis)) for run in runs)
    names = [label for label, found in joint if found is not None and has_two_prompts(found[1])]
    if names:
        yield study_text("shared", "two_prompts", models=abridged(names))


def study(function: Callable[[Sequence[RunResults], StudyOptions], Study]) -> StudySpec:
    """Register a function as the study of its name; title, needs and caption are in ``captions.toml``."""
    texts = _texts()[function.__name__]
    return StudySpec(function.__name__, texts["title"], texts["needs"], function)


MARK = "\N{DAGGER}"
MODEL_COLUMNS = frozenset({"model", "other_model", "panel"})
"""The columns of a frame that may contain names of runs."""


def with_missing(study: Study, runs: Sequence[RunResults]) -> Study:
    """Add notes on runs with ungraded answers to a study, and mark those with too many as incomplete."""
    frame = study.frame
    notes = list(study.notes)
    gaps = []
    columns = MODEL_COLUMNS & set(frame.columns)
    incomplete = dict.fromkeys(paper_rows()["model"], False)
    for run in runs:
        rows = frame.filter(pl.col("dataset") == run.dataset) if run.dataset and "dataset" in frame.columns else frame
        names = {run.label, run.model or run.label, run.model_id or run.label}
        shown = names.intersection(*(pl.concat([rows[column] for column in columns]),) if columns else ())
        answered_only = bool(run.settings.get("answered_only"))
        counts = {
            str(variant): [
                completeness(part, answered_only=answered_only)
                for part in (first_draws(rows), further_draws(rows))
                if part.height
            ]
            for variant, rows in run.tables.items()
        }
        short = [variant for variant, parts in counts.items() if not all(part.is_enough for part in parts)]
        incomplete |= {name: bool(short) or incomplete.get(name, False) for name in shown}
        if shown and short:
            n_asked, unscored = _asked_and_unscored(part for variant in short for part in counts[variant])
            under = f" under {abridged(short)}" if len(short) < len(counts) else ""
            gaps.append(f"{unscored:,} of {n_asked:,} answers of {run.label}{under} ({100 * unscored / n_asked:.1f}%)")
        n_asked, unscored = _asked_and_unscored(part for parts in counts.values() for part in parts)
        if shown and unscored:
            notes.append(f"{run.label}: answers left out because they have no grade: {unscored:,} of {n_asked:,}.")
    warning = f"{MARK} Incomplete, as answers without a grade are left out: {abridged(gaps)}.{BIASED}" if gaps else ""
    return replace(
        study,
        caption=f"{study.caption} {warning}".rstrip(),
        table_caption=f"{study.table_caption} {warning}".rstrip(),
        notes=tuple(notes),
        incomplete=incomplete,
        warning=warning,
    )


def _asked_and_unscored(parts: Iterable[Completeness]) -> tuple[int, int]:
    counted = list(parts)
    return sum(part.asked for part in counted), sum(part.unscored for part in counted)


def study_text(study: str, code: str = "caption", /, **values: Any) -> str:
    """Render a text of a study from ``captions.toml``: its caption or a note."""
    return fill(_texts()[study][code], values)


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    text = (files("refusal_index.plugins.studies") / "captions.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


STUDY_NAMES = tuple(name for name in _texts() if name != "shared")
"""The studies of this package, in the order in which they are listed."""


@cache
def study_spec(name: str) -> StudySpec:
    """Return a study by name; raises KeyError if the name is unknown.

    >>> study_spec("results_table").title
    'Full results'
    """
    plugin = entry_points.find("studies", name)
    if plugin is None:
        raise KeyError(name)
    spec: StudySpec = entry_points.load(plugin)
    return spec


def study_names() -> tuple[str, ...]:
    """Return the names of all studies: those of this package, then those of other packages."""
    return tuple(dict.fromkeys((*STUDY_NAMES, *entry_points.installed("studies"))))


def study_specs() -> tuple[StudySpec, ...]:
    """Return all studies in order."""
    return tuple(map(study_spec, study_names()))


def each_study(runs: Sequence[RunResults], options: StudyOptions) -> Iterator[tuple[StudySpec, Study | ValueError]]:
    """Make every study, and yield each with its registration, or with the error of one that cannot be made.

    A `NotPossibleError` says what runs a study needs. Any other ValueError means that the study cannot use these
    outcomes, which should not prevent the other studies.
    """
    for spec in study_specs():
        try:
            made: Study | ValueError = spec.make(runs, options)
        except ValueError as error:
            made = error
        yield spec, made


FORMATS = ("csv", "tex", "svg", "pdf", "png")
"""All output formats, in the order in which they are written."""


class WritingError(RefusalIndexError, ValueError):
    """The files of a study cannot be written."""


def write_study(study: Study, folder: Path, formats: Sequence[str] = FORMATS) -> tuple[Path, ...]:
    """Write a study into a folder, which is created if necessary, and return the paths of its files.

    For a study without a figure, image formats are ignored. Raises WritingError if the folder or a file cannot be
    written.
    """
    tables = {"csv": study_csv, "tex": tex_text}
    contents = {kind: tables[kind](study).encode() for kind in formats if kind in tables}
    pictures = [kind for kind in formats if kind in _METADATA]
    if study.draw is not None and pictures:
        figure = study.figure()
        with house_style({"svg.hashsalt": study.name}):
            for kind in pictures:
                buffer = io.BytesIO()
                figure.savefig(buffer, format=kind, metadata=dict(_METADATA[kind]) | {"Title": study.title})
                contents[kind] = buffer.getvalue()
    paths = {kind: folder / f"{study.name}.{kind}" for kind in FORMATS if kind in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, path in paths.items():
            write_atomically(path, contents[kind])
    except OSError as error:
        raise WritingError(f"{folder} cannot be written ({error.strerror}); choose another place") from error
    return tuple(paths.values())


def study_csv(study: Study) -> str:
    """Return the frame as CSV that is safe in spreadsheets, with a column that marks rows of incomplete runs."""
    frame = study.frame
    incomplete = pl.lit(value=bool(study.warning))
    if "model" in frame.columns:  # a row without a run's name is computed from all of them
        incomplete = pl.col("model").replace_strict(study.incomplete, default=incomplete, return_dtype=pl.Boolean)
    if "other_model" in frame.columns:
        incomplete |= pl.col("other_model").replace_strict(study.incomplete, default=False, return_dtype=pl.Boolean)
    return csv_text(frame.with_columns(incomplete=incomplete))


def tex_text(study: Study) -> str:
    """Return the table as LaTeX."""
    table = study.marked if study.printed is None else study.printed(study.marked)
    return latex_table(table, f"{study.title}. {study.table_caption or study.caption}", study.name, study.groups)


def index_text(
    made: Sequence[tuple[Study, Sequence[Path]]],
    missing: Sequence[tuple[str, str, str]],
    runs: Sequence[RunResults],
    left_out: Sequence[str] = (),
) -> str:
    """Return the Markdown page of all studies in a folder, with figures, captions, notes, and missing studies.

    - `made`: each study and its files.
    - `missing`: name and title of each study that could not be made, and the reason.
    - `runs`: the runs that the studies show.
    - `left_out`: sentences that say why runs could not be read.
    """
    parts = ["# Studies", "", "| run | dataset | prompts |", "|---|---|---|"]
    for run in runs:
        variants = ", ".join(str(variant or "all") for variant in run.tables)
        parts.append("| " + " | ".join(markdown(text) for text in (run.label, run.dataset or "-", variants)) + " |")
    parts += ["", *(f"- Left out: {markdown(problem)}" for problem in left_out)] if left_out else []
    for study, paths in made:
        parts += ["", f"## {study.title}", ""]
        picture = next((path.name for kind in ("svg", "png") for path in paths if path.suffix == f".{kind}"), None)
        parts += [f"![{study.title}]({picture})", ""] if picture else []
        parts += [markdown(study.caption), "", *_markdown_table(study), ""]
        parts += [f"- {markdown(note)}" for note in few_notes(study)] + ([""] if study.notes else [])
        parts.append("Files: " + ", ".join(f"[{path.name}]({path.name})" for path in paths))
    if missing:
        parts += ["", "## Not made", ""]
        parts += [f"- **{title}** (`{name}`): {markdown(reason)}" for name, title, reason in missing]
    return "\n".join(parts) + "\n"


MAX_TABLE_ROWS = 40
"""Maximum number of rows of a table on the page of all studies."""


def _markdown_table(study: Study) -> Iterator[str]:
    """Yield the printed table in Markdown, with the heading of a block in a row of its own."""
    table = study.marked if study.printed is None else study.printed(study.marked)
    names = [name for name in table.columns if name != BLOCK]
    yield "| " + " | ".join(markdown(name.replace("_", " ")) for name in names) + " |"
    yield "|" + "---|" * len(names)
    has_blocks = BLOCK in table.columns and table[BLOCK].n_unique() > 1
    last = None
    for row in table.head(MAX_TABLE_ROWS).iter_rows(named=True):
        if has_blocks and row[BLOCK] != last:
            last = row[BLOCK]
            yield f"| *{markdown(str(last))}* |" + " |" * (len(names) - 1)
        yield "| " + " | ".join(markdown(cell_text(row[name])) for name in names) + " |"
    if table.height > MAX_TABLE_ROWS:
        yield f"\n{table.height - MAX_TABLE_ROWS:,} more rows are in the LaTeX and CSV files."


MAX_NOTES = 8


def few_notes(study: Study) -> tuple[str, ...]:
    """Return the first notes of a study, and a note that says how many more there are, if any."""
    more = len(study.notes) - MAX_NOTES
    rest = (f"And {more:,} more notes, which 'refusal-index study {study.name}' prints.",) if more > 0 else ()
    return (*study.notes[:MAX_NOTES], *rest)


def markdown(text: str) -> str:
    r"""Return untrusted text escaped for Markdown, on one line.

    >>> markdown("<b>a_b</b>\n| c")
    '&lt;b&gt;a\\_b&lt;/b&gt;\\\\n\\| c'
    """
    marked = _MARKUP.sub(r"\\\g<0>", escape(text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_MARKUP = re.compile(r"[\\`*_\[\]|#~$]|!(?=\[)")


_METADATA: Mapping[str, Mapping[str, Any]] = {
    "svg": {"Date": None, "Creator": "refusal-index"},
    "pdf": {"CreationDate": None, "Creator": "refusal-index", "Producer": None},
    "png": {"Software": None},
}
