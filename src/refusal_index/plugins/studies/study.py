"""What a study is, the registry of studies, and the files of a study.

A study is a tidy frame, a figure that draws exactly this frame, and a caption that says what it shows. Captions are
in ``captions.toml``. `with_missing` marks runs that lack grades. The paper's 16 rows [1]_ are context for runs on
SimpleQA, rounded to two digits as they are printed. Two of them are inconsistent: the interval of Gemma-3-12B misses
its own Refusal Index, and the weighted scores are those of a penalty of 1, while the text names 0.2. A study is
written as CSV of its frame, LaTeX of its table, and SVG, PDF and PNG of its figure, without dates or random names, so
that the same study gives the same bytes.

References
----------
.. [1] Pan, W., Xu, J., Chen, Q., et al. Can LLMs Refuse Questions They Do Not Know? Measuring Knowledge-Aware Refusal
   in Factual Tasks. Table "Results on SimpleQA with 95% CI".
"""

from __future__ import annotations

import base64
import html
import io
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import polars as pl
from matplotlib.figure import Figure

from refusal_index import entry_points
from refusal_index.data.files import write_atomically
from refusal_index.data.rates import Completeness, completeness
from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import first_draws, further_draws
from refusal_index.data.table_files import csv_text
from refusal_index.errors import RefusalIndexError
from refusal_index.plugins.studies.style import house_style, new_figure, write_above
from refusal_index.render.blocks import escape
from refusal_index.render.format import UNDEFINED, abridged, count, number, with_interval
from refusal_index.render.sentences import fill

BIASED = " What is missing is rarely a fair sample, and every number here may be biased."


class NotPossibleError(RefusalIndexError, ValueError):
    """Runs that lack what a study needs; the message says what it needs and what was found.

    - `brief`: what it needs, as a sentence.
    - `notes`: what was left out and why, a sentence each.
    """

    def __init__(self, brief: str, notes: Sequence[str] = ()) -> None:
        super().__init__(" ".join([brief, *notes]))
        self.brief, self.notes = brief, tuple(notes)

    @property
    def short(self) -> str:
        """The first sentence, with how many notes say what was left out."""
        notes = len(self.notes)
        return self.brief + (f" ({notes:,} note{'s' if notes > 1 else ''} on what was left out.)" if notes else "")


@dataclass(frozen=True)
class StudyOptions:
    """How to make a study."""

    # penalty, confidence_level: of the weighted score, and of every interval
    penalty: float = 1.0
    confidence_level: float = 0.95
    seed: int = 0  # of everything that is simulated or resampled
    # a table of models (columns ``model``, ``family``, ``parameters``) beside that of the paper; None for no other
    models: Path | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """A finished study."""

    # name, title: as in the registry, ``accuracy_refusal_plane`` and *Accuracy-refusal plane*
    name: str
    title: str
    caption: str  # what is shown, of which data, with which intervals, in which convention: complete sentences
    frame: pl.DataFrame  # one row an observation, with fixed column names: exactly what `draw` draws
    # draws the frame into an empty figure, whose size it may set; None for a study that is a table only
    draw: Callable[[Figure, pl.DataFrame], None] | None
    notes: tuple[str, ...] = ()  # what was left out and why, a sentence each
    # makes of the frame the table for print: few rows, formatted cells; None to print the frame as it is
    printed: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)  # by column of the printed table the heading above it
    # incomplete, warning: by name of a model in the frame whether its run is incomplete, and the sentence that says so
    # above the figure and in the caption; `with_missing` sets them
    incomplete: Mapping[str, bool] = field(default_factory=dict)
    warning: str = ""

    @property
    def marked(self) -> pl.DataFrame:
        """The frame that is drawn and printed: a dagger follows the name of each incomplete run."""
        if not self.warning:
            return self.frame
        marks = {name: f"{name} {MARK}" for name, incomplete in self.incomplete.items() if incomplete}
        return self.frame.with_columns(pl.col(MODEL_COLUMNS & set(self.frame.columns)).replace(marks))

    def figure(self) -> Figure:
        """Draw the figure in the style of the package, without touching Matplotlib's global state.

        Raises ValueError if the study is a table only.
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


MARK = "\N{DAGGER}"
MODEL_COLUMNS = frozenset({"model", "other_model", "panel"})
"""The columns of a frame that may name runs."""


def with_missing(study: Study, runs: Sequence[ComparedRun]) -> Study:
    """Say in a study which of the runs it shows lack grades, and mark those that lack too many."""
    frame, notes, told = study.frame, list(study.notes), []
    columns = MODEL_COLUMNS & set(frame.columns)
    incomplete = dict.fromkeys(paper_rows()["model"], False)
    for run in runs:
        here = frame.filter(pl.col("dataset") == run.dataset) if run.dataset and "dataset" in frame.columns else frame
        names = {run.label, run.model or run.label, run.model_id or run.label}
        shown = names.intersection(*(pl.concat([here[column] for column in columns]),) if columns else ())
        counts = {
            str(variant): [completeness(part) for part in (first_draws(rows), further_draws(rows)) if part.height]
            for variant, rows in run.variants.items()
        }
        short = [variant for variant, parts in counts.items() if not all(part.is_enough for part in parts)]
        incomplete |= {name: bool(short) or incomplete.get(name, False) for name in shown}
        if shown and short:
            asked, unscored = _asked_and_unscored(part for variant in short for part in counts[variant])
            under = f" under {abridged(short)}" if len(short) < len(counts) else ""
            told.append(f"{unscored:,} of {asked:,} answers of {run.label}{under} ({100 * unscored / asked:.1f} %)")
        asked, unscored = _asked_and_unscored(part for parts in counts.values() for part in parts)
        if shown and unscored:
            said = "answers have no grade and are in none of the numbers"
            notes.append(f"{run.label}: {unscored:,} of {asked:,} {said}.")
    warning = f"{MARK} Incomplete, as answers without a grade are left out: {abridged(told)}.{BIASED}" if told else ""
    caption = f"{study.caption} {warning}".rstrip()
    return replace(study, caption=caption, notes=tuple(notes), incomplete=incomplete, warning=warning)


def _asked_and_unscored(parts: Iterable[Completeness]) -> tuple[int, int]:
    counted = list(parts)
    return sum(part.asked for part in counted), sum(part.unscored for part in counted)


def described(name: str) -> tuple[str, str, str]:
    """Return name, title and needs of a study of this package, from ``captions.toml``."""
    texts = _texts()[name]
    return name, texts["title"], texts["needs"]


def study_text(study: str, code: str = "caption", /, **values: Any) -> str:
    """Fill in a text of a study from ``captions.toml``: its caption, or a note."""
    return fill(_texts()[study][code], values)


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    text = (files("refusal_index.plugins.studies") / "captions.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


STUDY_NAMES = (
    "results_table",
    "accuracy_refusal_plane",
    "iso_refusal_index",
    "score_variability",
    "auroc_correlation",
    "ranking_stability",
    "ranking_with_ties",
    "index_and_accuracy",
    "index_and_size",
    "index_predictors",
    "thinking",
    "hallucination_table",
    "copula_comparison",
    "sample_size",
    "prompt_agreement",
    "calibrator_comparison",
    "calibrator_cost",
    "score_or_refusal",
    "cost_table",
    "attenuation",
    "grading_sensitivity",
    "operating_point",
    "response_to_penalty",
)
"""The studies of this package, in the order in which they are listed."""


class StudyModule(Protocol):
    """A module that makes one study; a plugin registers it in the group ``refusal_index.studies``.

    - `NAME`, `TITLE`: for the command line, and for people.
    - `NEEDS`: which runs it needs, as a sentence ends that begins with "It needs".
    """

    NAME: str
    TITLE: str
    NEEDS: str

    def make(self, runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
        """Make the study; raises `NotPossibleError` where the runs do not allow it."""


@dataclass(frozen=True)
class StudySpec:
    """What is known of a study before it is made."""

    # name, title: for the command line, and for people
    name: str
    title: str
    needs: str  # which runs it needs, as a sentence ends that begins with "It needs"
    # makes it; raises `NotPossibleError` where the runs do not allow it
    make: Callable[[Sequence[ComparedRun], StudyOptions], Study]


@cache
def study_spec(name: str) -> StudySpec:
    """Find a study by name.

    Raises KeyError if there is none of this name.

    >>> study_spec("results_table").title
    'Full results'
    """
    plugin = entry_points.find("studies", name)
    if plugin is None:
        raise KeyError(name)
    module: StudyModule = entry_points.load(plugin)

    def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
        return with_missing(module.make(runs, options), runs)

    return StudySpec(module.NAME, module.TITLE, module.NEEDS, make)


def study_names() -> tuple[str, ...]:
    """Name all studies: those of this package, then those of other distributions."""
    return tuple(dict.fromkeys((*STUDY_NAMES, *entry_points.installed("studies"))))


def study_specs() -> tuple[StudySpec, ...]:
    """Return all studies in order."""
    return tuple(map(study_spec, study_names()))


def each_study(runs: Sequence[ComparedRun], options: StudyOptions) -> Iterator[tuple[StudySpec, Study | ValueError]]:
    """Make every study that the runs allow, and give the error of each of the others.

    A `NotPossibleError` says what other runs it needs; any other is of a study that cannot take these outcomes, which
    should not cost the others.
    """
    for spec in study_specs():
        try:
            made: Study | ValueError = spec.make(runs, options)
        except ValueError as error:
            made = error
        yield spec, made


Cell = Callable[[Mapping[str, Any]], Any]


def counts(name: str) -> Cell:
    """Return what formats the count in a column."""
    return lambda row: count(row[name])


def printed_table(frame: pl.DataFrame, columns: Mapping[str, str | Cell]) -> pl.DataFrame:
    """Return a table for print.

    - `frame`: one row a row of the table.
    - `columns`: by heading the column to show as it is, with a dash where it is null, or what makes the cell of a row.
    """

    def shown(name: str) -> Cell:
        return lambda row: UNDEFINED if row[name] is None else row[name]

    cells = {heading: shown(cell) if isinstance(cell, str) else cell for heading, cell in columns.items()}
    rows = [{heading: cell(row) for heading, cell in cells.items()} for row in frame.iter_rows(named=True)]
    return pl.DataFrame(rows, infer_schema_length=None)


def fixed(name: str, digits: int = 3) -> Cell:
    """Return what formats the number in a column."""
    return lambda row: number(row[name], digits)


def ranged(name: str, digits: int = 3) -> Cell:
    """Return what formats a number with its interval, or why it is undefined.

    - `name`: its column; the ends are in ``NAME_low`` and ``NAME_high``, those of `estimate` in ``low`` and ``high``.
    """
    ends = ("low", "high") if name == "estimate" else (f"{name}_low", f"{name}_high")
    return lambda row: with_interval(row[name], row[ends[0]], row[ends[1]], row.get("reason"), digits)


def labelled(labels: Mapping[str, str], name: str) -> Cell:
    """Return what replaces the code in a column by its label."""
    return lambda row: labels[row[name]]


def widened(frame: pl.DataFrame, index: list[str], on: str, cell: str) -> pl.DataFrame:
    """Spread a column's values into columns, in the order in which they appear; a dash where there is no cell."""
    names = frame[on].unique(maintain_order=True).to_list()
    wide = frame.pivot(on, index=index, values=cell, maintain_order=True)
    return wide.select(*index, *names).with_columns(pl.col(name).fill_null(UNDEFINED) for name in names)


PAPER = "paper"
"""In a frame's column `source`, of the paper's rows; those of one's own runs have ``run``."""
RUN = "run"
SIMPLEQA = "simpleqa"
PAPER_PENALTY = 1.0
"""Of the paper's printed weighted scores."""

KNOWN_FAMILIES = ("claude", "gemini", "gemma", "qwen", "mistral", "llama", "gpt", "deepseek", "glm", "phi", "almanac")
_COLUMNS = {"model": pl.String, "family": pl.String, "parameters_billion": pl.Float64}
_ACTIVE = "active_parameters_billion"


class ModelTableError(RefusalIndexError, ValueError):
    """A table of models that a study cannot use."""


@cache
def paper_rows() -> pl.DataFrame:
    """Return the 16 rows of the paper's results table.

    - returned: columns ``model``, ``family``, ``parameters_billion``, ``active_parameters_billion`` (null where not
      public), ``think`` and, for each metric, ``NAME``, ``NAME_low`` and ``NAME_high``.

    >>> paper_rows().select("model", "refusal_index").row(1)
    ('Qwen2.5-72B', 0.49)
    """
    return pl.read_csv((files("refusal_index.plugins.studies") / "data" / "paper_rows.csv").read_bytes())


def paper_context(runs: Sequence[ComparedRun]) -> pl.DataFrame:
    """Return the paper's rows where all runs are on SimpleQA, and none of them otherwise."""
    on_simpleqa = bool(runs) and all(run.dataset_id == SIMPLEQA for run in runs)
    return paper_rows() if on_simpleqa else paper_rows().clear()


def known_models(options: StudyOptions) -> pl.DataFrame:
    """Return what is known of models: the reader's own table first, then the paper's and the embedded ones.

    Raises ModelTableError if the reader's table cannot be read or lacks a column.
    """
    embedded = pl.read_csv((files("refusal_index.plugins.studies") / "data" / "models.csv").read_bytes())
    columns = [*_COLUMNS, _ACTIVE]
    own = [_read_models(options.models)] if options.models else []
    return pl.concat([table.select(columns) for table in (*own, embedded, paper_rows())], how="vertical_relaxed")


def find_model(model: str | None, known: pl.DataFrame) -> dict[str, object] | None:
    """Find a model by its name, or by what follows the provider's: ``openai/gpt-4.1`` is also ``GPT-4.1``."""
    if model is None:
        return None
    wanted = {model.casefold(), model.rpartition("/")[2].casefold()}
    return next((row for row in known.iter_rows(named=True) if str(row["model"]).casefold() in wanted), None)


def name_in_tables(run: ComparedRun, known: pl.DataFrame) -> str | None:
    """Return the name by which the tables may know a run's model: that of its set where they do, else its own."""
    return run.model if find_model(run.model, known) else run.model_id


def family_of(model: str | None, known: pl.DataFrame) -> str:
    """Tell a model's family: from the tables, else from a known name within its own, else from its provider.

    >>> [family_of(model, paper_rows()) for model in ("together/meta-llama-9", "acme/one", None)]
    ['Llama', 'acme', 'unknown']
    """
    row = find_model(model, known)
    if row is not None and row["family"]:
        return str(row["family"])
    if not model:
        return "unknown"
    spelt = {str(family).casefold(): str(family) for family in paper_rows()["family"]}
    within = next((name for name in KNOWN_FAMILIES if name in model.casefold()), None)
    return spelt.get(within, within) if within else model.partition("/")[0]


def _read_models(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_csv(io.BytesIO(path.read_bytes()))
        missing = [name for name in _COLUMNS if name not in table.columns]
        if not missing:
            active = pl.col(_ACTIVE) if _ACTIVE in table.columns else pl.col("parameters_billion").alias(_ACTIVE)
            return table.select(*(pl.col(name).cast(kind) for name, kind in _COLUMNS.items()), active.cast(pl.Float64))
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ModelTableError(
            f"{path}: expected a CSV table of models, which could not be read ({reason}); give a file with the "
            f"columns {', '.join(_COLUMNS)}, numbers in the last"
        ) from error
    raise ModelTableError(
        f"{path}: expected the columns {', '.join(_COLUMNS)}, got {', '.join(table.columns)}; add {missing[0]!r}"
    )


LONGEST = 60
"""Rows; of a longer frame the rest is left to the CSV file, which is said in a comment."""

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\N{DAGGER}": r"\textdagger{}",
    '"': r"\textquotedbl{}",
}
_LIGATURES = re.compile(r"([-'`,?!])(?=[-'`,])")
"""Two characters that LaTeX would print as one: dashes, quotation marks, Spanish marks."""
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


def escaped(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    >>> escaped("50% of \\input{x}")
    '50\\% of \\textbackslash{}input\\{x\\}'
    """
    return _LIGATURES.sub(r"\1{}", "".join(_ESCAPES.get(character, character) for character in escape(text)))


def latex_table(table: pl.DataFrame, caption: str, label: str, groups: Mapping[str, str] | None = None) -> str:
    r"""Write a table with its caption; it needs the packages booktabs, graphicx and textcomp, and fonts in T1.

    - `groups`: by column the heading above it; columns side by side share one.
    """
    shown = table.head(LONGEST)
    right = [kind.is_numeric() or name not in _text_columns(shown) for name, kind in shown.schema.items()]
    lines = [
        "% Needs \\usepackage{booktabs,graphicx,textcomp} and \\usepackage[T1]{fontenc}.",
        "\\begin{table}[t]",
        "\\centering\\small",
        f"\\caption{{{escaped(caption)}}}",
        f"\\label{{tab:{label.replace('_', '-')}}}",
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{{''.join('r' if it else 'l' for it in right)}}}",
        "\\toprule",
        *_group_lines(shown.columns, groups or {}),
        _line([f"\\textbf{{{escaped(name.replace('_', ' '))}}}" for name in shown.columns]),
        "\\midrule",
        *(_line([_MINUS.sub("$-$", escaped(_cell(value))) for value in row]) for row in shown.iter_rows()),
        "\\bottomrule",
        "\\end{tabular}}",
        "\\end{table}",
    ]
    if table.height > LONGEST:
        lines.append(f"% {table.height - LONGEST:,} further rows are in {label}.csv.")
    return "\n".join(lines) + "\n"


def _group_lines(columns: Sequence[str], groups: Mapping[str, str]) -> Iterator[str]:
    """Write the headings of groups of columns, each with a rule below; nothing where there are none."""
    if not any(name in groups for name in columns):
        return
    cells, rules, place = [], [], 1
    for heading, members in groupby(columns, key=lambda name: groups.get(name, "")):
        width = len(list(members))
        cells.append(
            f"\\multicolumn{{{width}}}{{c}}{{\\textbf{{{escaped(heading)}}}}}" if heading else " & " * (width - 1)
        )
        rules += [f"\\cmidrule(lr){{{place}-{place + width - 1}}}"] if heading else []
        place += width
    yield _line(cells)
    yield " ".join(rules)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _text_columns(table: pl.DataFrame) -> set[str]:
    """Name the columns that hold words rather than numbers."""
    texts = [name for name, kind in table.schema.items() if kind == pl.String]
    return {name for name in texts if not table[name].drop_nulls().str.contains(r"^[-+]?\d|^-$").all()}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return number(value) if isinstance(value, float) else str(value)


FORMATS = ("csv", "tex", "svg", "pdf", "png")
"""All that can be written, in the order in which they are."""


class WritingError(RefusalIndexError, ValueError):
    """Files of a study that cannot be written."""


def write_study(study: Study, folder: Path, formats: Sequence[str] = FORMATS) -> tuple[Path, ...]:
    """Write a study into a folder, which is made where there is none, and return what was written.

    A study that is a table only has no pictures, whatever formats are asked for. Raises WritingError if the folder or a
    file cannot be written.
    """
    contents: dict[str, bytes] = {kind: _TABLES[kind](study) for kind in formats if kind in _TABLES}
    pictures = [kind for kind in formats if kind in _METADATA]
    if study.draw is not None and pictures:
        contents |= _pictures(study, pictures)
    paths = {kind: folder / f"{study.name}.{kind}" for kind in FORMATS if kind in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, path in paths.items():
            write_atomically(path, contents[kind])
    except OSError as error:
        raise WritingError(f"{folder} cannot be written ({error.strerror}); choose another place") from error
    return tuple(paths.values())


def study_csv(study: Study) -> str:
    """Return the frame as harmless CSV, with a column that says whether a run behind a row is incomplete."""
    frame = study.frame
    incomplete = pl.lit(value=bool(study.warning))
    if "model" in frame.columns:  # a row of no run's name is made of all of them
        incomplete = pl.col("model").replace_strict(study.incomplete, default=incomplete, return_dtype=pl.Boolean)
    if "other_model" in frame.columns:
        incomplete |= pl.col("other_model").replace_strict(study.incomplete, default=False, return_dtype=pl.Boolean)
    return csv_text(frame.with_columns(incomplete=incomplete))


def tex_text(study: Study) -> str:
    """Return the table as LaTeX."""
    table = study.marked if study.printed is None else study.printed(study.marked)
    return latex_table(table, f"{study.title}. {study.caption}", study.name, study.groups)


def index_text(
    made: Sequence[tuple[Study, Sequence[Path]]],
    missing: Sequence[tuple[str, str, str]],
    runs: Sequence[ComparedRun],
    left_out: Sequence[str] = (),
) -> str:
    """Return the page that shows all studies of a folder: pictures, captions, notes, and what is missing.

    - `made`: each study with its files.
    - `missing`: name, title and the reason of each that could not be made.
    - `runs`: what they were made of.
    - `left_out`: why runs could not be read, a sentence each.
    """
    parts = ["# Studies", "", "| run | dataset | prompt variants |", "|---|---|---|"]
    for run in runs:
        variants = ", ".join(str(variant or "all") for variant in run.variants)
        parts.append("| " + " | ".join(markdown(text) for text in (run.label, run.dataset or "-", variants)) + " |")
    parts += ["", *(f"- Left out: {markdown(problem)}" for problem in left_out)] if left_out else []
    for study, paths in made:
        parts += ["", f"## {study.title}", ""]
        picture = next((path.name for kind in ("svg", "png") for path in paths if path.suffix == f".{kind}"), None)
        parts += [f"![{study.title}]({picture})", ""] if picture else []
        parts += [markdown(study.caption), ""]
        parts += [f"- {markdown(note)}" for note in few_notes(study)] + ([""] if study.notes else [])
        parts.append("Files: " + ", ".join(f"[{path.name}]({path.name})" for path in paths))
    if missing:
        parts += ["", "## Not made", ""]
        parts += [f"- **{title}** (`{name}`): {markdown(reason)}" for name, title, reason in missing]
    return "\n".join(parts) + "\n"


MOST_NOTES = 8


def few_notes(study: Study) -> tuple[str, ...]:
    """Return the notes of a study, the first of many with how many more there are."""
    more = len(study.notes) - MOST_NOTES
    said = (f"And {more:,} more notes, which 'refusal-index study {study.name}' prints.",) if more > 0 else ()
    return (*study.notes[:MOST_NOTES], *said)


def markdown(text: str) -> str:
    r"""Return the text of others as Markdown shows it: as text, on one line.

    >>> markdown("<b>a_b</b>\n| c")
    '&lt;b&gt;a\\_b&lt;/b&gt;\\\\n\\| c'
    """
    marked = _MARKUP.sub(r"\\\g<0>", escape(text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_MARKUP = re.compile(r"[\\`*_\[\]|#~$]|!(?=\[)")


def _pictures(study: Study, kinds: Sequence[str]) -> dict[str, bytes]:
    figure, contents = study.figure(), {}
    with house_style({"svg.hashsalt": study.name}):
        for kind in kinds:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=dict(_METADATA[kind]) | {"Title": study.title})
            contents[kind] = buffer.getvalue()
    return contents


_METADATA: Mapping[str, Mapping[str, Any]] = {
    "svg": {"Date": None, "Creator": "refusal-index"},
    "pdf": {"CreationDate": None, "Creator": "refusal-index", "Producer": None},
    "png": {"Software": None},
}
_TABLES: Mapping[str, Callable[[Study], bytes]] = {
    "csv": lambda study: study_csv(study).encode(),
    "tex": lambda study: tex_text(study).encode(),
}
