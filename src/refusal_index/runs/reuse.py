"""Runs that reuse replies: the forced pass of an imported first pass, and the replies of a run regraded.

A forced pass asks only the questions that the imported first pass refused; both passes are scored together. Regrading
sends requests to graders only, and writes to a new folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

from refusal_index import entry_points
from refusal_index.data.datasets import ALMANAC, Dataset, GraderName, load_dataset
from refusal_index.data.files import replacing
from refusal_index.data.first_pass import (
    BEYOND,
    FirstPass,
    FirstPassError,
    filled_in,
    of_one_model,
    questions_to_force,
    to_outcomes,
    with_forced,
)
from refusal_index.data.folder import RunFolder
from refusal_index.data.imports import FORMATS, ReadOptions, SourceFile, detected_format, has_ids, read_first_passes
from refusal_index.data.outcome import Question
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.data.run_json import default_run_name
from refusal_index.data.tables import present_columns
from refusal_index.errors import suggestion
from refusal_index.models.functions import is_function_name
from refusal_index.models.requests import to_metadata
from refusal_index.models.settings import SettingError
from refusal_index.protocol import (
    FORCED,
    Completion,
    Conversation,
    ForcedPass,
    GraderKind,
    Pass,
    Placement,
    Protocol,
    Regrading,
    Role,
    check_gradable,
    load_prompt_set,
    used_completions,
)
from refusal_index.protocol.replies import TAG, WORDING, Detector, read_reply
from refusal_index.runs.plan import (
    RUNS,
    Plan,
    checked,
    comparability_version,
    describe_run,
    function_sources,
    grader_for,
    grader_identity,
    grader_of,
    identity,
    open_store,
    refusal_detector,
)
from refusal_index.runs.results import (
    STILL_TO_COME,
    Asking,
    UnfinishedError,
    derive_into,
    each_conversation,
    first_pass_table,
    mixture,
    procedure_of,
)
from refusal_index.runs.settings import Settings
from refusal_index.runs.writing import BEFORE


def prepare_force(
    file: Path,
    settings: Settings,
    *,
    name: str | None = None,
    kind: str | None = None,
    options: ReadOptions | None = None,
    out: Path | None = None,
) -> Plan:
    """Plan and check the forced pass for the questions that an imported first pass refused.

    Executing the plan writes the results of both passes to its folder.

    Parameters
    ----------
    file, kind, options
        A file that `import` can read, its format if not detected from its content, and how to read it.
    settings
        The model and how it is asked; a dataset fills in questions and gold answers that the file lacks.
    name
        The model in the file whose first pass is used, if there are several.
    out
        The folder; by default one below `runs`, named after the settings.

    Raises
    ------
    RefusalIndexError
        If a setting, the file, a model's name or the folder cannot be used.
    """
    options = options or ReadOptions({}, None, None)
    imported = import_file(file, kind, options)
    chosen = of_one_model(imported.passes, str(file), name)
    # A new forced pass replaces theirs.
    passes = tuple(replace(first_pass, forced=None, set_aside=None) for first_pass in chosen)
    questions_asked = settings.questions
    named = questions_asked.dataset or ("own" if questions_asked.data else None)
    named_dataset = None if named is None else load_dataset(named, data=questions_asked.data, mix_seed=settings.seed)
    if named_dataset is not None:
        passes = filled_in(
            passes, named_dataset, by_id=has_ids(imported.file, imported.kind, options), source=str(file)
        )
    if named_dataset is None and settings.grader in (GraderKind.CHOICE, GraderKind.REGEX):
        raise SettingError(
            f"{{grader}}: expected exact or a model, got {settings.grader}; imported files hold no choices or patterns:"
            " name the dataset that does ({dataset})"
        )
    prompts, placement = load_prompt_set(settings.prompting.prompts), Placement(settings.prompting.placement)
    dataset_name = passes[0].dataset or imported.file.stem
    default: GraderName = "exact" if dataset_name == ALMANAC else "model"
    dataset = Dataset(
        name=dataset_name,
        questions=questions_to_force(passes, str(imported.file.path)),
        sha256=imported.file.sha256,
        source=f"refused questions of {imported.file.path.name}",
        default_grader=default if named_dataset is None else named_dataset.default_grader,
        licence="that of the file",
    )
    grader, graders = grader_for(settings, dataset)
    detector = refusal_detector(settings.refusal)
    made_of = {
        **identity(settings, dataset, prompts, graders or (str(grader),), function_sources(settings, graders, {})),
        "first_pass": _first_pass(imported, passes, named_dataset),
    }
    folder = RunFolder(out or RUNS / default_run_name(settings.model, f"{dataset.name}-{FORCED}", made_of))
    facts = describe_run(settings, dataset, prompts)
    plan = Plan(
        replace(settings, prompting=replace(settings.prompting, variants=(FORCED,))),
        dataset,
        graders,
        folder,
        made_of,
        {**facts, "prompt_set": {FORCED: facts["prompt_set"][FORCED]}},
        {FORCED: ForcedPass(grader, Protocol(prompts, next(iter(prompts.variants)), grader, placement), detector)},
        {FORCED: dict.fromkeys(dataset.questions, 1)},
        title=(settings.model, dataset.name),
        begin=lambda: write_outcomes(to_outcomes(passes), first_pass_table(folder)),
        caveats=mixture(passes[0].model, settings.model),
    )
    return checked(plan)


def _first_pass(imported: Imported, passes: Sequence[FirstPass], named_dataset: Dataset | None) -> dict[str, Any]:
    """Return the identity of the first pass: its grades are kept, so the file and how it is read count."""
    document = json.dumps(
        [{name: value for name, value in asdict(first_pass).items() if name not in BEYOND} for first_pass in passes]
    )
    return {
        "source": imported.file.path.name,
        "sha256": imported.file.sha256,
        "format": imported.kind,
        "model": passes[0].model,
        "grader": "as imported",
        "answers": len(passes),
        "answers_sha256": hashlib.sha256(document.encode()).hexdigest(),
        **({"filled_in_from": {"name": named_dataset.name, "sha256": named_dataset.sha256}} if named_dataset else {}),
    }


class Importer(Interface):
    """Reads a file format; plugins register importers in the group ``refusal_index.importers``."""

    def __call__(self, file: SourceFile, options: ReadOptions, /) -> tuple[FirstPass, ...]:
        """Return the first passes in a file; raises FirstPassError if it cannot be read."""


@dataclass(frozen=True)
class Imported:
    """A file, its format, and its first passes."""

    file: SourceFile
    kind: str
    passes: tuple[FirstPass, ...]


def joined(passes: Sequence[FirstPass], forced: Path, kind: str | None, options: ReadOptions) -> tuple[FirstPass, ...]:
    """Return first passes joined with the forced answers of another file, read with the same options.

    Named columns apply to this file if it has them. Raises the errors of `import_file` and `with_forced`.
    """
    file = SourceFile.read(forced)
    if not file.is_inspect_log:
        present = present_columns(file.with_paths(options.columns.values()))
        options = replace(options, columns={role: name for role, name in options.columns.items() if name in present})
    # the first file names the model
    forced_passes = import_file(forced, kind, replace(options, name=None, dataset=None)).passes
    # Files name a model differently.
    if all(len({first_pass.model for first_pass in group}) == 1 for group in (passes, forced_passes)):
        forced_passes = tuple(replace(first_pass, model=passes[0].model) for first_pass in forced_passes)
    return with_forced(passes, forced_passes, str(forced))


def import_file(path: Path, kind: str | None, options: ReadOptions) -> Imported:
    """Read a file of first passes.

    Parameters
    ----------
    path
        The file.
    kind
        One of `FORMATS` or a plugin's format; None to detect it from the content.
    options
        How to read it.

    Raises
    ------
    ValueError
        An error of this package if the file cannot be used; the message names the line.
    """
    if refusal := options.refusal:
        detector = refusal_detector(refusal)
        if refusal in (WORDING, TAG) or is_function_name(refusal):  # a pattern is searched in the whole reply
            detector = partial(_refuses, detector)
        options = replace(options, detector=detector)
    file = SourceFile.read(path)
    format_ = kind or detected_format(file)
    if format_ in FORMATS:
        return Imported(file, format_, read_first_passes(file, format_, options))
    plugin = entry_points.find("importers", format_)
    if plugin is None:
        names = list(dict.fromkeys((*FORMATS, *entry_points.installed("importers"))))
        guess = suggestion(format_, names)
        raise FirstPassError(f"--format: expected one of {', '.join(names)}, got {format_!r}{guess}")
    importer: Importer = entry_points.load(plugin)
    return Imported(file, format_, options.applied(importer(file, options)))


def _refuses(detector: Detector | None, reply: str, question: Question) -> bool:
    """Whether a reply refuses, by its tag or, with a detector, by its wording."""
    reading = read_reply(reply)
    return reading.refused or (detector is not None and detector(reading.answer, question))


NOT_ANSWERED = "not answered in the run that is regraded: "


def prepare_regrade(run: Path, settings: Settings, *, out: Path | None = None) -> Plan:
    """Plan to regrade a run's replies, and check that the grader can grade its questions.

    Executing the plan writes the results to a new folder.

    Parameters
    ----------
    run
        The folder of a finished run of both passes.
    settings
        The grader, and how to ask it.
    out
        The new folder; by default one below `runs`, named after the settings.

    Raises
    ------
    RefusalIndexError
        If the run, the grader or the folder cannot be used.
    """
    source = RunFolder(run)
    before = source.read_complete_settings()
    if "first_pass" in before:
        raise SettingError(
            f"regrade: expected the folder of a run of both passes, got {run}, which holds a forced pass alone; run "
            "'refusal-index force' with this grader into another folder"
        )
    detector = refusal_detector(settings.refusal)  # before reading the run, which may name the same function
    with open_store(source, made=False) as store:
        replied = [
            _complete_replies(*asked)
            for asked in each_conversation(store, before["prompts"]["variants"], procedure_of(before))
        ]
    if not replied:
        raise UnfinishedError(f"{source.path}: nothing was asked yet; run the same command again to resume")
    settings = replace(settings, model=before["model"], seed=before["seed"])
    kind, graders = grader_of(str(settings.grader))
    questions_by_variant: dict[str, dict[Question, int]] = {}
    for conversation, _, _ in replied:
        questions_by_variant.setdefault(conversation.variant, {})[conversation.question] = conversation.draws
    questions = {conversation.question.question_id: conversation.question for conversation, _, _ in replied}
    check_gradable(questions.values(), kind)
    made_of = {
        **before,
        "grader": grader_identity(graders or (str(kind),), questions.values(), settings.refusal),
        "comparability_version": comparability_version((graders or (str(kind),))[0]),
        "regraded_from": {"grader": before["grader"], "replies_sha256": _hash(replied)},
    }
    name, sha256 = before["dataset"]["name"], before["dataset"]["sha256"]
    dataset = Dataset(name, tuple(questions.values()), sha256, f"the run in {run}", "exact", "that of the run")
    folder = RunFolder(out or RUNS / default_run_name(settings.model, f"{name}-regraded", made_of))

    def begin() -> None:
        """Copy the replies, and the outcome table under the previous grader."""
        if not (folder.path / BEFORE).exists():
            with open_store(source, made=False) as store, replacing(folder.path / BEFORE) as new:
                derive_into(new, source, store)
        with open_store(folder) as store:
            for asked, replies, error in replied:
                store.put(replies)
                if error is not None:
                    store.record_failure(asked.variant, asked.question.question_id, f"{NOT_ANSWERED}{error}")

    plan = Plan(
        settings,
        dataset,
        graders,
        folder,
        made_of,
        _about(source, settings, run),
        dict.fromkeys(questions_by_variant, Regrading(kind, detector=detector)),
        questions_by_variant,
        title=(settings.model, name),
        begin=begin,
    )
    return checked(plan)


def _complete_replies(conversation: Conversation, completions: list[Completion], error: str | None) -> Asking:
    """Return the model's replies to a question in its complete draws, at least one, and the error if it has none.

    Other draws stay missing. A question that was answered but whose grader failed is regraded as well.
    """
    n_complete = _draws_replied(conversation, completions)
    own_replies = [completion for completion in _own(conversation, completions) if completion.draw < n_complete]
    if any(completion.reply.pass_ is Pass.FIRST for completion in own_replies):
        return conversation, own_replies, None
    return conversation, [], error or STILL_TO_COME


def _draws_replied(conversation: Conversation, completions: Iterable[Completion]) -> int:
    """Return the number of complete draws, counted from the first; at least one."""
    present = {
        (completion.reply.pass_, completion.draw) for completion in completions if completion.reply.role is Role.MODEL
    }
    is_forced = conversation.draws > 1 and conversation.question.gold is not None
    needed = (Pass.FIRST, Pass.FORCED) if is_forced else (Pass.FIRST,)
    draws = range(conversation.draws)
    lacking = (draw for draw in draws if any((pass_, draw) not in present for pass_ in needed))
    return max(next(lacking, conversation.draws), 1)


def _own(conversation: Conversation, completions: Iterable[Completion]) -> Iterator[Completion]:
    """Yield the model's replies behind an outcome, first pass before forced pass."""
    own_replies = [
        completion for completion in used_completions(conversation, completions) if completion.reply.role is Role.MODEL
    ]
    for completion in sorted(own_replies, key=lambda item: (item.reply.pass_ is Pass.FORCED, item.draw)):
        # of its own variant: a forced answer of another variant does not count
        yield replace(completion, variant=conversation.variant, input_tokens=0, output_tokens=0, requests=0)


def _hash(replied: Iterable[Asking]) -> str:
    """Return the SHA-256 of everything that is to be graded."""
    digest = hashlib.sha256()
    for conversation, replies, error in replied:
        entry = [conversation.variant, conversation.question.question_id, to_metadata(replies), error]
        digest.update(json.dumps(entry).encode())
    return digest.hexdigest()


def _about(source: RunFolder, settings: Settings, run: Path) -> dict[str, Any]:
    """Return the facts recorded about the run, and its folder; prices are left out, since the graders differ."""
    accounts = settings.accounts
    grader_price = accounts.grader_price and vars(accounts.grader_price)
    prices = {"price": None, "grader_price": grader_price, "batch_rate": accounts.batch_rate}
    regraded = {"from": str(run), "version": entry_points.package_version()}
    return {**source.read_about(), **prices, "regraded": regraded}
