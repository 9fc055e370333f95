"""From settings to a plan: everything that can be checked is, before a request is sent or a folder is made."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from refusal_index import entry_points
from refusal_index.data.datasets import DEFAULT_DATASET, Dataset, default_limit, load_dataset, sample
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Question
from refusal_index.data.run_json import (
    EXAMPLES_ASKED,
    SENT,
    Prices,
    as_json,
    default_run_name,
    is_deterministic,
    refuse_other_settings,
)
from refusal_index.findings.metrics import Statement
from refusal_index.findings.worked_examples import example_statements
from refusal_index.models.accounts import plugin_of
from refusal_index.models.functions import (
    check_model_function,
    is_function_name,
    load_function,
    takes_messages,
)
from refusal_index.models.requests import OPENAI, other_models, provider_of
from refusal_index.models.settings import SettingError, unknown
from refusal_index.protocol import (
    ASKED_AGAIN,
    Completion,
    Conversation,
    FirstPassOnly,
    Message,
    Placement,
    Procedure,
    PromptSet,
    Protocol,
    Role,
    TwoPass,
    check_lengths,
    completions_to_retire,
    load_prompt_set,
    next_requests,
)
from refusal_index.protocol.refusals import (
    Detector,
)
from refusal_index.runs.engines import DIRECT, check_engine, check_engines_own, check_limits, check_wire_settings
from refusal_index.runs.gold_answers import with_answerable
from refusal_index.runs.graders import grader_for, grader_prompt_of, refusal_models, refusals_of, resolved_refusal
from refusal_index.runs.identity import describe_run, described_graders, function_sources, identity
from refusal_index.runs.model_args import check_model_args, other_model_args
from refusal_index.runs.sent import sends_as_set
from refusal_index.runs.servers import check_servers, other_addresses
from refusal_index.runs.settings import Repeats, Settings
from refusal_index.runs.store import ReplyStore
from refusal_index.runs.stored_questions import stored_questions

RUNS = Path("runs")

ALL = ("all",)
"""The setting `variants` for every prompt of a set."""

DEFAULT_VARIANT = "normal"
"""The name under which a function is asked that does not get the prompt, if the set has it."""


@dataclass(frozen=True)
class Plan:
    """A checked run that is ready to execute.

    Attributes
    ----------
    settings, dataset
        The settings with every default filled in, and the questions that they name.
    graders
        The names of the models and functions that grade; none where a rule does.
    folder, identity, about
        Its folder, everything that its replies depend on, and other facts to record.
    procedures
        The procedure of each variant, in the order in which they run.
    draws
        The number of draws of each question, by variant.
    objects
        Models and functions in memory, by name.
    title
        Display names of the model and the dataset, which a configuration may set.
    begin
        Called once the folder exists and is locked, before any request: it writes the files that the run builds on.
    caveats
        Caveats to show before the run.
    """

    settings: Settings
    dataset: Dataset
    graders: tuple[str, ...]
    folder: RunFolder
    identity: Mapping[str, Any]
    about: Mapping[str, Any]
    procedures: Mapping[str, Procedure]
    draws: Mapping[str, Mapping[Question, int]]
    objects: Mapping[str, object] = field(default_factory=dict)
    title: tuple[str, str] = ("", "")
    begin: Callable[[], None] | None = None
    caveats: tuple[Statement, ...] = ()

    def __post_init__(self) -> None:
        check_engine(self.settings.sending.engine)

    @property
    def names(self) -> dict[Role, str]:
        """The models that the run asks by role, the evaluated model first."""
        graders = dict(zip((Role.GRADER, Role.SECOND_GRADER), self.graders, strict=False))
        asks_model = any(procedure.asks_model for procedure in self.procedures.values())
        return {**({Role.MODEL: self.settings.model} if asks_model else {}), **graders}

    @property
    def detector(self) -> Detector | None:
        """The function by which refusals are recognised, if they are by one."""
        return next((procedure.rule.function for procedure in self.procedures.values()), None)

    @property
    def prices(self) -> Prices:
        """The prices of its models."""
        return self.settings.accounts.prices

    @property
    def is_deterministic(self) -> bool:
        """Whether its model was sent temperature 0 so far, or will be, as far as that is known before a request."""
        before = self.folder.read_about() if self.folder.run_json.exists() else {}
        if (before.get(SENT) or {}).get(Role.MODEL):
            return is_deterministic(self.identity, before)
        return self.settings.decoding.temperature == 0 and sends_as_set(self.settings.model, self.settings.servers)

    @property
    def called(self) -> str:
        """The display name of the run."""
        return " on ".join(self.title)

    def part(self, questions: Container[Question]) -> Plan:
        """Return the plan restricted to some of its questions."""
        draws = {
            variant: {question: count for question, count in draws.items() if question in questions}
            for variant, draws in self.draws.items()
        }
        return replace(self, draws=draws)

    def conversations(self, variant: str, store: ReplyStore) -> Iterator[Conversation]:
        """Yield the conversations of a variant, with as many draws as planned and no fewer than stored.

        If the procedure does not ask the model, questions without a stored reply are left out.
        """
        before = store.draws().get(variant, {})
        procedure = self.procedures[variant]
        for question, draws in self.draws[variant].items():
            if procedure.asks_model or store.completions(question.question_id, variant):
                yield Conversation(question, variant, procedure, max(draws, before.get(question.question_id, 1)))

    def by_question(self, variants: Iterable[str], store: ReplyStore) -> list[Conversation]:
        """Return the conversations of several variants, grouped by question."""
        by_question: dict[Question, list[Conversation]] = {}
        for variant in variants:
            for conversation in self.conversations(variant, store):
                by_question.setdefault(conversation.question, []).append(conversation)
        return [conversation for conversations in by_question.values() for conversation in conversations]

    def pending(self, store: ReplyStore) -> list[str]:
        """Return the variants with pending requests."""
        return [
            variant
            for variant in self.procedures
            if any(
                next_requests(conversation, store.completions(conversation.question.question_id, variant))
                for conversation in self.conversations(variant, store)
            )
        ]

    def replies_to_retire(self, store: ReplyStore) -> list[Completion]:
        """Return the replies to set aside because their requests are to be sent again."""
        reasons = self.settings.sending.retry
        retired_reasons = ASKED_AGAIN if UNSCORED in reasons else reasons
        retired: dict[Completion, None] = {}
        for variant in self.procedures if retired_reasons else ():
            for conversation in self.conversations(variant, store):
                completions = store.completions(conversation.question.question_id, variant)
                retired |= dict.fromkeys(completions_to_retire(conversation, completions, retired_reasons))
        return list(retired)


AnyPlan = TypeVar("AnyPlan", bound=Plan)


def checked(plan: AnyPlan, *, imports: bool = True) -> AnyPlan:
    """Check the settings, models and folder of a plan, and return it.

    Parameters
    ----------
    plan
        The plan of a run, with any procedures.
    imports
        As for `prepare`.

    Raises
    ------
    RefusalIndexError
        If a setting or a model's name cannot be used, a cost limit lacks a price, or the folder belongs to another run.
    """
    settings = plan.settings
    model = plan.names.get(Role.MODEL, "")
    check_engines_own(settings.sending)
    check_limits(settings)
    check_servers(settings, plan.names, plan.objects)
    check_wire_settings(model, settings)
    check_model_args(model, plan.objects, settings)
    reasons = UNSCORED, *ASKED_AGAIN
    for reason in sorted({*settings.sending.retry}.difference(reasons)):
        raise unknown("retry", reason, reasons)
    if settings.limits.max_cost is not None:
        for name, is_asked in (("price", bool(model)), ("grader_price", bool(plan.graders))):
            if is_asked and settings.value(name) is None:
                raise SettingError(f"{{max_cost}}: requires {{{name}}}, to compute the cost; add it")
    for role, name in plan.names.items():
        if settings.servers.of_role(role).base_url is None and (imports or not is_function_name(name)):
            check_name(name, plan.objects, settings.sending.engine)
    function = _model_function(model, plan.objects, imports=imports)
    if function is not None:
        check_model_function(function, model, plan.procedures)
    if plan.folder.run_json.exists():
        refuse_other_settings(plan.folder.path, plan.folder.read_settings(), as_json(plan.identity))
    return replace(plan, caveats=(*plan.caveats, *_notes_on_folder(plan)))


def _model_function(model: str, objects: Mapping[str, object], *, imports: bool) -> Callable[..., Any] | None:
    """Return the function that is the model; None if it is none, or is not imported."""
    function: Any = objects.get(model)
    if function is None and imports and is_function_name(model):
        function = load_function(model)
    return function if callable(function) else None


def in_folder(plan: AnyPlan, folder: RunFolder) -> AnyPlan:
    """Return a checked plan with another folder, and the notes on resuming the run in that one."""
    moved = replace(plan, folder=folder)
    notes = _notes_on_folder(plan)
    kept = (caveat for caveat in plan.caveats if caveat not in notes)
    return replace(moved, caveats=(*kept, *_notes_on_folder(moved)))


def _notes_on_folder(plan: Plan) -> tuple[Statement, ...]:
    """Return what differs from how the run in the folder of a plan was made, but is no reason against resuming it."""
    addresses = other_addresses(plan.folder, plan.settings, plan.names)
    arguments = other_model_args(plan.folder, plan.settings) if Role.MODEL in plan.names else ()
    return (*addresses, *arguments)


def prepare(
    settings: Settings,
    *,
    out: Path | None = None,
    dataset: Dataset | None = None,
    objects: Mapping[str, object] | None = None,
    runs: Path = RUNS,
    imports: bool = True,
) -> Plan:
    """Plan a run of both passes, and check everything that can be checked before a request is sent.

    Parameters
    ----------
    settings
        The settings as given.
    out, runs
        The run's folder; by default one below `runs`, named after the settings.
    dataset
        The questions, if already loaded.
    objects
        Models and functions in memory, by name.
    imports
        Whether to import functions; if not, they are not checked and their earlier replies are not found.

    Raises
    ------
    RefusalIndexError
        If a setting, the dataset or a model's name cannot be used, or the folder belongs to another run.
    """
    if settings.log_to:
        entry_points.hook("trackers").check_trackers(settings.log_to)
    prompts = load_prompt_set(settings.prompting.prompts)
    if dataset is None and out is not None:
        dataset = stored_questions(RunFolder(out), settings)
    dataset = with_answerable(dataset or load_questions(settings))
    kind, graders = grader_for(settings, dataset)
    grader_prompt = grader_prompt_of(settings.grader_prompt, graders)
    settings = replace(settings, refusal=resolved_refusal(settings.refusal, graders))
    refusals = refusals_of(settings, objects, imports=imports)
    repeats, draws = sampling_of(settings, dataset)
    variants = chosen(settings.prompting.variants, prompts)
    function = _model_function(settings.model, objects or {}, imports=imports)
    if settings.prompting.variants == ALL and function is not None and not takes_messages(function):
        variants = (DEFAULT_VARIANT if DEFAULT_VARIANT in variants else variants[0],)
    placement = Placement(settings.prompting.placement)
    settings = replace(settings, repeats=repeats, prompting=replace(settings.prompting, variants=variants))
    sources = function_sources(settings, graders, objects or {}) if imports else {}
    run_identity = identity(settings, dataset, prompts, graders or (str(kind),), grader_prompt, sources)
    about = {**describe_run(settings, dataset, prompts), **described_graders(graders, grader_prompt)}
    graders = (*graders, *refusal_models(settings.refusal))
    think = settings.prompting.think
    passes = FirstPassOnly if settings.repeats.answered_only else TwoPass
    plan = Plan(
        settings,
        dataset,
        graders,
        RunFolder(out or runs / default_run_name(settings.model, dataset.name, run_identity)),
        run_identity,
        about,
        {
            name: passes(kind, Protocol(prompts, name, kind, placement, think, refusals), refusals, grader_prompt)
            for name in variants
        },
        dict.fromkeys(variants, draws),
        objects or {},
        (settings.model, dataset.name),
        caveats=tuple(example_statements(about.get(EXAMPLES_ASKED, ()), len(dataset.questions))),
    )
    plan = checked(plan, imports=imports)
    provider, model = plugin_of(settings.servers, Role.MODEL, settings.model)
    context = None if provider is None else provider.context_length(model)
    if provider is not None and context is not None:  # last, because it counts all tokens
        check_lengths(
            dataset.questions, prompts, context, lambda text: provider.count_tokens(model, [Message("user", text)])
        )
    return plan


def load_questions(settings: Settings) -> Dataset:
    """Load the dataset named in the settings, and sample from it if they set a limit.

    Raises
    ------
    DatasetError
        If it cannot be used.
    """
    options = settings.questions
    name = options.dataset or ("own" if options.data else DEFAULT_DATASET)
    columns = dict(options.column) or None
    limit = default_limit(name) if options.limit is None else options.limit
    return load_dataset(
        name, data=options.data, columns=columns, mix_seed=settings.seed, limit=limit, encoding=options.encoding
    )


def sampling_of(settings: Settings, dataset: Dataset) -> tuple[Repeats, dict[Question, int]]:
    """Return how often questions are sampled, with every default filled in, and the number of draws of each question.

    Samples with the same seed are nested.

    Raises
    ------
    SettingError
        If fewer questions are asked than should be repeated, or one draw of each repeated question is wanted.
    """
    sampling = settings.repeats
    questions = dataset.questions
    if sampling.repeat_questions is not None and sampling.repeat_questions > len(questions):
        raise SettingError(
            f"{{repeat_questions}}: expected at most {len(questions):,}, as many as are asked, "
            f"got {sampling.repeat_questions:,}"
        )
    if sampling.repeat_questions is not None and sampling.draws == 1:
        raise SettingError(
            "{repeat_questions}: requires {draws} of at least 2, got 1; add the number of samples per question"
        )
    draws = sampling.draws or (1 if sampling.repeat_questions is None else 2)
    repeated = sample(dataset, sampling.repeat_questions or len(questions), settings.seed) if draws > 1 else dataset
    repeated_ids = {question.question_id for question in repeated.questions}
    return replace(sampling, draws=draws), {
        question: draws if question.question_id in repeated_ids else 1 for question in questions
    }


UNSCORED = "unscored"
"""Stands for every reason to ask again."""

PARAPHRASES = "+"  # suffix of a variant's name


def chosen(requested: Sequence[str], prompts: PromptSet) -> tuple[str, ...]:
    """Return the named variants of a prompt set, in its order; a plus sign adds paraphrases.

    Raises
    ------
    SettingError
        If a name is unknown.
    """
    all_names = list(prompts.variants)
    if tuple(requested) == ALL:
        return tuple(all_names)
    names: set[str] = set()
    for part in requested:
        if (name := part.removesuffix(PARAPHRASES)) not in prompts.variants:
            raise unknown("variants", name, all_names)
        names.update((part,) if part in prompts.variants else prompts.family(name))
    if not names:
        raise SettingError(
            f"{{variants}}: expected 'all' or some of {', '.join(all_names)}, got {','.join(requested)!r}"
        )
    return tuple(name for name in all_names if name in names)


def check_name(name: str, objects: Mapping[str, object], engine: str = DIRECT) -> None:
    """Raise if a provider, function or plugin's model does not exist; needs no API key.

    Parameters
    ----------
    name, objects
        The model's name, and the objects in memory by name.
    engine
        The engine. Only the direct engine needs Inspect, for the names of its providers.

    Raises
    ------
    ModelError
        The message suggests the nearest name.
    """
    provider, _, rest = name.partition("/")
    if name in objects:
        return
    if is_function_name(name):
        load_function(name)
    elif rest and provider == OPENAI and engine != DIRECT:
        return
    elif (plugin := provider_of(name)[0]) is not None:
        plugin.check(rest)
    else:
        other_models().check_name(name)
