"""The second pass on somebody else's first pass: only what that refused is asked, and both are scored together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

from refusal_index import entry_points
from refusal_index.data.datasets import ALMANAC, Dataset, load_dataset
from refusal_index.data.errors import suggestion
from refusal_index.data.first_pass import (
    BEYOND,
    FirstPass,
    FirstPassError,
    filled_in,
    of_one_model,
    questions_to_force,
    to_outcomes,
    with_forced,
    without_forced,
)
from refusal_index.data.folder import RunFolder
from refusal_index.data.imports import FORMATS, ReadOptions, SourceFile, detected_format, has_ids, read_first_passes
from refusal_index.data.outcome import Question
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.data.run_json import default_run_name
from refusal_index.data.tables import present_columns
from refusal_index.models.functions import is_function_name
from refusal_index.models.settings import SettingError
from refusal_index.protocol import (
    FORCED,
    ForcedPass,
    GraderKind,
    Protocol,
    check_gradable,
    load_prompt_set,
)
from refusal_index.protocol.refusals import TAG, WORDING, Detector
from refusal_index.protocol.replies import read_reply
from refusal_index.runs.plan import (
    RUNS,
    Plan,
    about,
    checked,
    function_sources,
    grader_of,
    identity,
    placement_of,
    refusal_detector,
)
from refusal_index.runs.results import first_pass_table, mixture
from refusal_index.runs.settings import DEFAULT_GRADER, Settings


def prepare_force(
    file: Path,
    settings: Settings,
    *,
    name: str | None = None,
    kind: str | None = None,
    read: ReadOptions | None = None,
    out: Path | None = None,
) -> Plan:
    """Plan the forced pass of the questions that a first pass refused, and check what can be checked before.

    Executing the plan writes the results of both passes into its folder.

    Parameters
    ----------
    file, kind, read
        A file that `import` reads, what kind it is unless its content tells, and how it is read.
    settings
        The model, and how it is asked; a dataset fills in what the file lacks of questions and gold answers.
    name
        The model in the file whose first pass it is, where there are several.
    out
        The folder; without it, one below `runs` that is named after its settings.

    Raises
    ------
    RefusalIndexError
        If a setting, the file, a model's name or the folder cannot be used.
    """
    read = read or ReadOptions({}, None, None)
    imported = import_file(file, kind, read)
    passes = tuple(map(without_forced, of_one_model(imported.passes, str(file), name)))
    known = _known_questions(settings)
    if known is not None:
        passes = filled_in(passes, known, by_id=has_ids(imported.file, imported.kind, read), source=str(file))
    prompts, placement = load_prompt_set(settings.prompting.prompts), placement_of(settings)
    grader, graders = grader_of(settings.grader or _default_grader(passes[0].dataset or imported.file.stem, known))
    if grader in {GraderKind.CHOICE, GraderKind.REGEX} and known is None:
        raise SettingError(
            f"{{grader}}: expected exact or a model, got {grader}; imported files hold no choices or patterns: name "
            "the dataset that does ({dataset})"
        )
    dataset = _refused(imported, passes, grader)
    check_gradable(dataset.questions, grader)
    detector = refusal_detector(settings.refusal)
    made_of = {
        **identity(settings, dataset, prompts, graders or (str(grader),), function_sources(settings, graders, {})),
        "first_pass": _first_pass(imported, passes, known),
    }
    folder = RunFolder(out or RUNS / default_run_name(settings.model, f"{dataset.name}-{FORCED}", made_of))
    known_about = about(settings, dataset, prompts)
    plan = Plan(
        replace(settings, prompting=replace(settings.prompting, variants=(FORCED,))),
        dataset,
        graders,
        folder,
        made_of,
        {**known_about, "prompt_set": {FORCED: known_about["prompt_set"][FORCED]}},
        {FORCED: ForcedPass(grader, Protocol(prompts, next(iter(prompts.variants)), grader, placement), detector)},
        {FORCED: dict.fromkeys(dataset.questions, 1)},
        title=(settings.model, dataset.name),
        begin=lambda: write_outcomes(to_outcomes(passes), first_pass_table(folder)),
        cautions=mixture(passes[0].model, settings.model),
    )
    return checked(plan)


def _known_questions(settings: Settings) -> Dataset | None:
    """Return the dataset whose questions fill in those that the file lacks, if one is named."""
    asked = settings.questions
    name = asked.dataset or ("own" if asked.data else None)
    return None if name is None else load_dataset(name, data=asked.data, mix_seed=settings.seed)


def _refused(imported: Imported, passes: Sequence[FirstPass], grader: GraderKind) -> Dataset:
    return Dataset(
        name=passes[0].dataset or imported.file.stem,
        questions=questions_to_force(passes, str(imported.file.path)),
        sha256=imported.file.sha256,
        source=f"refused questions of {imported.file.path.name}",
        default_grader="model" if grader.models else "exact",
        licence="that of the file",
    )


def _default_grader(dataset: str, known: Dataset | None) -> str:
    if known is None:
        return str(GraderKind.EXACT) if dataset == ALMANAC else DEFAULT_GRADER
    return DEFAULT_GRADER if known.default_grader == "model" else known.default_grader


def _first_pass(imported: Imported, passes: Sequence[FirstPass], known: Dataset | None) -> dict[str, Any]:
    """Return what the first pass is: taken as it was graded, so that its file and all that was read of it count."""
    read = json.dumps([{name: value for name, value in asdict(one).items() if name not in BEYOND} for one in passes])
    return {
        "source": imported.file.path.name,
        "sha256": imported.file.sha256,
        "format": imported.kind,
        "model": passes[0].model,
        "grader": "as imported",
        "answers": len(passes),
        "answers_sha256": hashlib.sha256(read.encode()).hexdigest(),
        **({"filled_in_from": {"name": known.name, "sha256": known.sha256}} if known else {}),
    }


class Importer(Interface):
    """Reads a format; a plugin registers one in the group ``refusal_index.importers``."""

    def __call__(self, file: SourceFile, options: ReadOptions, /) -> tuple[FirstPass, ...]:
        """Return the first passes in a file; raises FirstPassError if it cannot be read."""


@dataclass(frozen=True)
class Imported:
    """A file, what kind it is, and the first passes in it."""

    file: SourceFile
    kind: str
    passes: tuple[FirstPass, ...]


def joined(passes: Sequence[FirstPass], forced: Path, kind: str | None, options: ReadOptions) -> tuple[FirstPass, ...]:
    """Return first passes with the forced answers that another file holds, in rows that are read alike.

    A column that was named counts for this file where it is there. Raises what `import_file` and `with_forced` do.
    """
    file = SourceFile.read(forced)
    if not file.is_inspect_log:
        present = present_columns(file.with_paths(options.columns.values()))
        options = replace(options, columns={role: name for role, name in options.columns.items() if name in present})
    # whose answers they are, the first file says
    found = import_file(forced, kind, replace(options, name=None, dataset=None)).passes
    return with_forced(passes, _under_their_names(passes, found), str(forced))


def _under_their_names(passes: Sequence[FirstPass], found: Sequence[FirstPass]) -> tuple[FirstPass, ...]:
    """Name forced answers of one model like the only model of the first passes: two files have two names."""
    models, others = ({one.model for one in each} for each in (passes, found))
    if len(models) == len(others) == 1:
        return tuple(replace(one, model=passes[0].model) for one in found)
    return tuple(found)


def import_file(path: Path, kind: str | None, options: ReadOptions) -> Imported:
    """Read a file of first passes.

    Parameters
    ----------
    path
        The file.
    kind
        One of `FORMATS`, or a plugin's; None to tell it by the content.
    options
        How it is read.

    Raises
    ------
    ValueError
        One of this package's own, if it cannot be used; the message names the line.
    """
    refusal = options.refusal or ""
    if refusal in (WORDING, TAG) or is_function_name(refusal):
        options = replace(options, refusal=None, detector=partial(_refuses, refusal_detector(refusal)))
    file = SourceFile.read(path)
    found = kind or detected_format(file)
    if found in FORMATS:
        return Imported(file, found, read_first_passes(file, found, options))
    plugin = entry_points.find("importers", found)
    if plugin is None:
        known = list(dict.fromkeys((*FORMATS, *entry_points.installed("importers"))))
        guess = suggestion(found, known)
        raise FirstPassError(f"--format: expected one of {', '.join(known)}, got {found!r}{guess}")
    read: Importer = entry_points.load(plugin)
    return Imported(file, found, options.applied(read(file, options)))


def _refuses(detector: Detector | None, reply: str, question: Question) -> bool:
    """Whether a reply refuses by its tag or, with a detector, by its wording."""
    reading = read_reply(reply)
    return reading.refused or (detector is not None and detector(reading.answer, question))
