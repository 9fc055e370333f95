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
from refusal_index.data.datasets import Dataset, GraderName, load_dataset, usual_grader
from refusal_index.data.files import replacing
from refusal_index.data.first_pass import (
    NOT_IDENTIFYING,
    FirstPass,
    FirstPassError,
    FirstPasses,
    filled_in,
    of_one_model,
    questions_to_force,
    to_outcomes,
)
from refusal_index.data.folder import RunFolder
from refusal_index.data.graded import GRADE_SOURCES
from refusal_index.data.imports import FORMATS, ReadOptions, detected_format, has_ids, read_first_passes
from refusal_index.data.outcome import Grade, Question
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.data.run_json import (
    ASKED_AT,
    EXAMPLES_ASKED,
    GRADER_PROMPT,
    addresses_in,
    default_run_name,
    refusal_setting,
)
from refusal_index.data.source_files import SourceFile
from refusal_index.data.tables import present_columns
from refusal_index.errors import suggestion
from refusal_index.findings.imported import empty_replies, reading_statements
from refusal_index.findings.metrics import Statement
from refusal_index.findings.models_asked import is_same_model, two_models
from refusal_index.findings.worked_examples import example_statements
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
    grade_by_rule,
    load_prompt_set,
    used_completions,
)
from refusal_index.protocol.reading import PATTERN_TIMEOUT, read_reply
from refusal_index.protocol.refusals import LEFT_TO_GRADER, RefusalRule
from refusal_index.runs.file_grading import check_gold_answers, is_gradable, with_grades
from refusal_index.runs.gold_answers import without_declining_gold
from refusal_index.runs.graders import (
    grader_for,
    grader_of,
    grader_prompt_of,
    refusal_models,
    refusals_of,
    resolved_refusal,
)
from refusal_index.runs.identity import describe_run, described_graders, function_sources, grader_identity, identity
from refusal_index.runs.plan import RUNS, Plan, checked
from refusal_index.runs.results import (
    STILL_TO_COME,
    StoredConversation,
    UnfinishedError,
    derive_into,
    each_conversation,
    first_pass_table,
    procedure_of,
)
from refusal_index.runs.settings import COMPARABILITY_VERSION, Settings
from refusal_index.runs.store import open_store


def prepare_force(
    file: Path,
    settings: Settings,
    *,
    name: str | None = None,
    kind: str | None = None,
    options: ReadOptions | None = None,
    out: Path | None = None,
    same_model: bool = False,
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
    same_model
        Whether the model is that of the first pass, under another name.

    Raises
    ------
    RefusalIndexError
        If a setting, the file, a model's name or the folder cannot be used.
    """
    options = options or ReadOptions({}, None, None)
    imported = import_first(file, kind, options)
    chosen = of_one_model(imported.passes, str(file), name)
    # A new forced pass replaces theirs.
    passes = tuple(replace(first_pass, forced=None, set_aside=None) for first_pass in chosen)
    if same_model:
        passes = tuple(replace(first_pass, model=settings.model) for first_pass in passes)
    questions_asked = settings.questions
    named = questions_asked.dataset or ("own" if questions_asked.data else None)
    named_dataset = None if named is None else load_dataset(named, data=questions_asked.data, mix_seed=settings.seed)
    if named_dataset is not None:
        passes = filled_in(
            passes, named_dataset, by_id=has_ids(imported.file, imported.kind, options), source=str(file)
        )
    passes = tuple(replace(first_pass, question=without_declining_gold(first_pass.question)) for first_pass in passes)
    questions = questions_to_force(passes, str(imported.file.path))
    has_choices = all(question.choices for question in questions)
    if named_dataset is None:
        _check_grader(settings.grader, has_choices=has_choices)
        _check_contexts_and_choices(RunFolder(file.parent), file)
    prompts = load_prompt_set(settings.prompting.prompts)
    placement = Placement(settings.prompting.placement)
    dataset_name = passes[0].dataset or imported.file.stem
    is_exact = usual_grader(dataset_name) == "exact"
    default: GraderName = "exact" if is_exact else "choice" if has_choices else "model"
    dataset = Dataset(
        name=dataset_name,
        questions=questions,
        sha256=imported.file.sha256,
        source=f"refused questions of {imported.file.path.name}",
        default_grader=default if named_dataset is None else named_dataset.default_grader,
        licence="that of the file",
    )
    grader, graders = grader_for(settings, dataset)
    grader_prompt = grader_prompt_of(settings.grader_prompt, graders)
    settings = replace(settings, refusal=resolved_refusal(settings.refusal, graders))
    refusals = refusals_of(settings)
    sources = function_sources(settings, graders, {})
    run_identity = {
        **identity(settings, dataset, prompts, graders or (str(grader),), grader_prompt, sources),
        "first_pass": _first_pass(imported, passes, named_dataset),
    }
    folder = RunFolder(out or RUNS / default_run_name(settings.model, f"{dataset.name}-{FORCED}", run_identity))
    protocol = Protocol(prompts, next(iter(prompts.variants)), grader, placement, refusals=refusals)
    facts = {**describe_run(settings, dataset, prompts), **described_graders(graders, grader_prompt)}
    plan = Plan(
        replace(settings, prompting=replace(settings.prompting, variants=(FORCED,))),
        dataset,
        (*graders, *refusal_models(settings.refusal)),
        folder,
        run_identity,
        {**facts, "prompt_set": {FORCED: facts["prompt_set"][FORCED]}},
        {FORCED: ForcedPass(grader, protocol, refusals, grader_prompt)},
        {FORCED: dict.fromkeys(dataset.questions, 1)},
        title=(settings.model, dataset.name),
        begin=lambda: write_outcomes(to_outcomes(passes), first_pass_table(folder)),
        caveats=(
            *two_models(passes[0].model, settings.model),
            *_caveats(imported.read, passes),
            *example_statements(facts.get(EXAMPLES_ASKED, ()), len(dataset.questions)),
        ),
    )
    return checked(plan)


def _check_contexts_and_choices(run: RunFolder, file: Path) -> None:
    """Raise SettingError for the outcome table of a run whose questions had contexts or choices, which it lacks."""
    if file != run.outcomes or not run.replies.exists():
        return
    with open_store(run, made=False) as store:
        lacks = any(question.context or question.choices for question in store.questions().values())
    if lacks:
        raise SettingError(
            f"{file}: the run asked its questions with contexts or choices, which its outcome table does not hold: "
            "name the run's questions ({data} or {dataset})"
        )


def _check_grader(grader: str | None, *, has_choices: bool) -> None:
    """Raise SettingError for a grader that needs what an imported file lacks."""
    if grader == GraderKind.REGEX or (grader == GraderKind.CHOICE and not has_choices):
        lacking = "choices of every question" if grader == GraderKind.CHOICE else "patterns"
        raise SettingError(
            f"{{grader}}: expected exact, includes or a model, got {grader}; the file does not hold the {lacking}: "
            "name the dataset that does ({dataset})"
        )


def _caveats(read: FirstPasses, passes: Sequence[FirstPass]) -> Iterator[Statement]:
    """Yield what to say about the file before the forced pass; nothing in it is lost for want of a column."""
    yield from (statement for statement in reading_statements(read) if statement.code != "not_in_table")
    unused_grades = sum(first_pass.unused_grades for first_pass in passes if first_pass.grade is Grade.UNSCORED)
    if unused_grades:
        yield empty_replies(unused_grades)


def _first_pass(imported: Imported, passes: Sequence[FirstPass], named_dataset: Dataset | None) -> dict[str, Any]:
    """Return the identity of the first pass: its grades are kept, so the file and how it is read count."""
    document = json.dumps(
        [
            {name: value for name, value in asdict(first_pass).items() if name not in NOT_IDENTIFYING}
            for first_pass in passes
        ]
    )
    return {
        "source": imported.file.path.name,
        "sha256": imported.file.sha256,
        "format": imported.kind,
        "model": passes[0].model,
        "grader": "as imported",
        "answers": len(passes),
        "answers_sha256": hashlib.sha256(document.encode()).hexdigest(),
        **({"incomplete": asdict(imported.read.incomplete)} if imported.read.incomplete else {}),
        **({"filled_in_from": {"name": named_dataset.name, "sha256": named_dataset.sha256}} if named_dataset else {}),
    }


class Importer(Interface):
    """Reads a file format; plugins register importers in the group ``refusal_index.importers``."""

    def __call__(self, file: SourceFile, options: ReadOptions, /) -> FirstPasses:
        """Return the first passes in a file, and what was not used; raises FirstPassError if it cannot be read."""


@dataclass(frozen=True)
class Imported:
    """A file, its format, and what was read from it."""

    file: SourceFile
    kind: str
    read: FirstPasses

    @property
    def passes(self) -> tuple[FirstPass, ...]:
        """Its first passes."""
        return self.read.passes


def import_forced(first: FirstPasses, path: Path, kind: str | None, options: ReadOptions) -> FirstPasses:
    """Read the file of the forced answers to first passes, with the same options.

    Named columns apply to this file if it has them. Raises the errors of `import_file`, and FirstPassError if the files
    name different models.
    """
    passes = first.passes
    file = SourceFile.read(path, options.encoding, options.rows)
    if not file.is_inspect_log:
        present = present_columns(file.with_paths(options.columns.values()))
        options = replace(options, columns={role: name for role, name in options.columns.items() if name in present})
    is_named = options.name is not None
    # the first file names the model
    read = import_file(path, kind, replace(options, name=None, dataset=None)).read
    # Files name a model differently.
    if all(len({first_pass.model for first_pass in group}) == 1 for group in (passes, read.passes)):
        names = passes[0].model or "", read.passes[0].model or ""
        are_named = all("model" in found.columns or not found.columns for found in (first, read))
        if are_named and not is_named and not is_same_model(*names):
            raise (
                FirstPassError(
                    f"expected the forced answers of {names[0]}, got those of {names[1]}: RI would mix two models, the "
                    "refusals of one and the errors of the other; if both mean one, name it"
                )
                .about("forced")
                .with_remedy("name", names[0])
            )
        renamed = tuple(replace(first_pass, model=passes[0].model) for first_pass in read.passes)
        read = replace(read, passes=renamed)
    return read


def import_first(path: Path, kind: str | None, options: ReadOptions) -> Imported:
    """Read a file of first passes as `import_file` does; raise FirstPassError if `refusal` has no replies to read."""
    imported = import_file(path, kind, options)
    if options.refusal is not None and not imported.read.has_replies:
        message = f"expected replies in {path}, got none; name their column, or a flag for refusals as refused=NAME,"
        raise FirstPassError(message).about("refusal").with_remedy("column", "reply=NAME")
    return imported


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
        rule = refusals_of(Settings.from_values(refusal=resolved_refusal(refusal, ())))
        if rule.asks_model:
            raise SettingError(
                f"{{refusal}}: expected 'wording', 'tag', +REGEX, @FILE or a function, got {refusal!r}; an import asks "
                "no model"
            )
        options = replace(options, detector=partial(_refuses, rule))
    file = SourceFile.read(path, options.encoding, options.rows)
    format_ = kind or detected_format(file, options.columns)
    read = _read(file, format_, options)
    if options.grader is not None and read.columns and not set(GRADE_SOURCES) & read.columns.keys():
        read = replace(read, columns={**read.columns, "grade": options.grader})
    if options.grader in RULES_OF_IMPORTS:
        read = replace(read, passes=graded_by_rule(read.passes, options.grader))
    elif options.grader is not None:
        passes = tuple(with_grades(first_pass, options.grades) for first_pass in read.passes)
        read = replace(read, passes=passes)
    return Imported(file, format_, read if options.detector is not None else _with_tagged_refusals(read))


def _with_tagged_refusals(read: FirstPasses) -> FirstPasses:
    """Return first passes whose tool only says right or wrong, with replies in this package's tag read as refusals."""
    is_said = any(first_pass.grade in (Grade.REFUSED, None) for first_pass in read.passes)
    return read if is_said or read.is_fixed else ReadOptions(detector=partial(_refuses, LEFT_TO_GRADER)).applied(read)


def _read(file: SourceFile, format_: str, options: ReadOptions) -> FirstPasses:
    """Read a file with the reader of its format."""
    if format_ in FORMATS:
        return read_first_passes(file, format_, options)
    plugin = entry_points.find("importers", format_)
    if plugin is None:
        names = list(dict.fromkeys((*FORMATS, *entry_points.installed("importers"))))
        guess = suggestion(format_, names)
        raise FirstPassError(f"expected one of {', '.join(names)}, got {format_!r}{guess}").about("format")
    importer: Importer = entry_points.load(plugin)
    return options.applied(importer(file, options))


RULES_OF_IMPORTS = ("exact", "includes", "choice")
"""Graders of answers without a grade, which ask no model."""


def graded_by_rule(passes: Sequence[FirstPass], grader: str) -> tuple[FirstPass, ...]:
    """Return first passes in which a rule has graded the answers without a grade.

    A reply that declines is a refusal, unless the file says that it is an answer. Raises FirstPassError if no question
    has a gold answer.

    - `grader`: one of `RULES_OF_IMPORTS`.
    """
    check_gold_answers(passes)
    check_gradable((first_pass.question for first_pass in passes if is_gradable(first_pass)), GraderKind(grader))
    return tuple(_graded_by_rule(first_pass, GraderKind(grader)) for first_pass in passes)


def _graded_by_rule(first_pass: FirstPass, kind: GraderKind) -> FirstPass:
    question = first_pass.question
    if not is_gradable(first_pass):
        return first_pass
    reading = read_reply(first_pass.reply or "", question.text, question.choices)
    if reading.refused and first_pass.grade is Grade.UNSCORED:
        return replace(first_pass, grade=Grade.REFUSED, reason=None)
    if reading.unscored_reason is not None:
        return replace(first_pass, grade=Grade.UNSCORED, reason=f"first_{reading.unscored_reason}")
    return replace(first_pass, grade=grade_by_rule(kind, question, reading), reason=None)


def _refuses(rule: RefusalRule, reply: str, question: Question) -> bool:
    """Whether a reply refuses; raises TimeoutError if the search for a regular expression takes too long."""
    reading = read_reply(reply, question.text, question.choices, refusals=rule)
    if reading.unscored_reason == PATTERN_TIMEOUT:
        raise TimeoutError
    return reading.refused


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
    kind, graders = grader_of(str(settings.grader), at_server=settings.servers.grader_base_url is not None)
    grader_prompt = grader_prompt_of(settings.grader_prompt, graders)
    reasoning = settings.reasoning if settings.reasoning is not None else (before["grader"] or {}).get("reasoning")
    settings = replace(settings, refusal=resolved_refusal(settings.refusal, graders), reasoning=reasoning)
    refusals = refusals_of(settings)
    detector = refusals.function if settings.refusal == refusal_setting(before) else None
    with open_store(source, made=False) as store:
        replied = [
            _answerable(_complete_replies(*asked))
            for asked in each_conversation(store, before["prompts"]["variants"], procedure_of(before, detector))
        ]
    if not replied:
        raise UnfinishedError(f"{source.path}: nothing was asked yet; run the same command again to resume")
    settings = replace(settings, model=before["model"], seed=before["seed"])
    questions_by_variant: dict[str, dict[Question, int]] = {}
    for conversation, _, _ in replied:
        questions_by_variant.setdefault(conversation.variant, {})[conversation.question] = conversation.draws
    questions = {conversation.question.question_id: conversation.question for conversation, _, _ in replied}
    check_gradable(questions.values(), kind)
    run_identity = {
        **before,
        "grader": grader_identity(graders or (str(kind),), grader_prompt, questions.values(), settings),
        "comparability_version": COMPARABILITY_VERSION,
        "regraded_from": {"grader": before["grader"], "replies_sha256": _hash(replied)},
    }
    name = before["dataset"]["name"]
    sha256 = before["dataset"]["sha256"]
    dataset = Dataset(name, tuple(questions.values()), sha256, f"the run in {run}", "exact", "that of the run")
    folder = RunFolder(out or RUNS / default_run_name(settings.model, f"{name}-regraded", run_identity))

    def begin() -> None:
        """Copy the replies, and the outcome table under the previous grader."""
        if not (folder.before).exists():
            with open_store(source, made=False) as store, replacing(folder.before) as new:
                derive_into(new, source, store, detector=detector)
        with open_store(folder) as store:
            for asked, replies, error in replied:
                store.put(replies)
                if error is not None:
                    store.record_failure(asked.variant, asked.question.question_id, f"{NOT_ANSWERED}{error}")

    answered_only = bool(before.get("answered_only"))
    regrading = Regrading(kind, refusals=refusals, grader_prompt=grader_prompt, answered_only=answered_only)
    plan = Plan(
        settings,
        dataset,
        (*graders, *refusal_models(settings.refusal)),
        folder,
        run_identity,
        {**_about(source, settings, run), **described_graders(graders, grader_prompt)},
        dict.fromkeys(questions_by_variant, regrading),
        questions_by_variant,
        title=(settings.model, name),
        begin=begin,
    )
    return checked(plan)


def _answerable(stored: StoredConversation) -> StoredConversation:
    """Return a question with its replies, without a gold answer that declines."""
    conversation, replies, error = stored
    question = without_declining_gold(conversation.question)
    return replace(conversation, question=question), replies, error


def _complete_replies(
    conversation: Conversation, completions: list[Completion], error: str | None
) -> StoredConversation:
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
    asks_forced = Pass.FORCED in conversation.procedure.passes
    is_forced = asks_forced and conversation.draws > 1 and conversation.question.gold is not None
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


def _hash(replied: Iterable[StoredConversation]) -> str:
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
    about = {name: fact for name, fact in source.read_about().items() if name != GRADER_PROMPT}
    asked_at = {role: addresses for role, addresses in addresses_in(about).items() if role == Role.MODEL}
    return {**about, **prices, **({ASKED_AT: asked_at} if ASKED_AT in about else {}), "regraded": regraded}
