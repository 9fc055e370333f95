"""From settings to a plan: everything that can be checked is, before a request is sent or a folder is made."""

from __future__ import annotations

import platform
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from refusal_index import entry_points
from refusal_index.data.datasets import ALMANAC, Dataset, load_dataset, sample
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Question
from refusal_index.data.run_json import Prices, as_json, default_run_name, refuse_other_settings
from refusal_index.data.text import PatternError
from refusal_index.errors import shortened
from refusal_index.findings.metrics import Statement
from refusal_index.models.functions import (
    PREFIX,
    FunctionError,
    check_model_function,
    is_function_name,
    load_function,
    source_sha256,
)
from refusal_index.models.requests import COMPATIBLE, OPENAI, other_models, provider_of
from refusal_index.models.settings import SettingError, unknown
from refusal_index.protocol import (
    ASKED_AGAIN,
    Completion,
    Conversation,
    FirstPassOnly,
    GraderKind,
    Message,
    Placement,
    Procedure,
    PromptSet,
    Protocol,
    Role,
    TwoPass,
    check_gradable,
    check_lengths,
    completions_to_retire,
    grader_prompt_hash,
    load_prompt_set,
    next_requests,
    no_gold_prompt_hash,
    prompt_set_names,
)
from refusal_index.protocol.grading import RULES
from refusal_index.protocol.replies import FUNCTIONS, Detector, detector_of
from refusal_index.runs.engine import DIRECT, check_engine, check_engines_own, check_limits
from refusal_index.runs.settings import COMPARABILITY_VERSION, DEFAULT_GRADER, Repeats, Settings
from refusal_index.runs.store import ReplyStore, StoreError


def settings_before(before: Mapping[str, Any], settings: Settings) -> Settings:
    """Return settings with the model, seed, decoding and prompting of a run's folder; nothing else in it is used."""
    decoding = {name: value for name, value in before.get("decoding", {}).items() if name in vars(settings.decoding)}
    settings = settings.changed(model=before["model"], seed=before["seed"], **decoding)
    return settings.changed(placement=before.get("placement") or "user", think=before.get("think") or "")


def grader_before(before: Mapping[str, Any]) -> tuple[GraderKind, tuple[str, ...]]:
    """Return the grader recorded in a folder's settings: a rule, or models by name."""
    named = before.get("grader") or {"name": str(GraderKind.EXACT)}
    return grader_of(",".join(named[key] for key in ("name", "second") if named.get(key)))


def prompts_before(before: Mapping[str, Any], name_given: str | None, path: Path) -> PromptSet:
    """Return the prompt set that a run used.

    Raises
    ------
    SettingError
        If the prompt set came from a file that is not given, or the given one differs.
    """
    name = before["prompts"]["name"]
    if name_given is None and name not in prompt_set_names():
        raise SettingError(
            f"{{prompts}}: expected the file of the prompt set {name!r}, with which {path} was made, got nothing; it "
            "is not part of the package, so name the file"
        )
    chosen = load_prompt_set(name_given or name)
    if chosen.hash != before["prompts"].get("sha256"):
        raise SettingError(
            f"{{prompts}}: expected the prompt set that {path} was asked with, got another, {chosen.name!r}; "
            "name the original file"
        )
    return chosen


def open_store(folder: RunFolder, *, made: bool = True) -> ReplyStore:
    """Open the store of a folder; raise StoreError if the replies behind its outcome table are missing.

    Parameters
    ----------
    folder
        The run's folder.
    made
        Whether to create the file if it does not exist; otherwise an empty store in memory is returned.
    """
    if folder.outcomes.exists() and not (folder.replies.exists() and folder.replies.stat().st_size):
        raise StoreError(
            f"{folder.replies}: expected the replies from which {folder.outcomes.name} was made, found none; restore "
            "the file, or evaluate into another folder"
        )
    second = folder.path / "confidence" / folder.replies.name
    if second.exists():
        raise StoreError(
            f"{second}: expected the replies of confidence in {folder.replies}, got a separate store; run "
            "into another folder"
        )
    return ReplyStore(folder.replies if made or folder.replies.exists() else None)


PACKAGES = ("refusal-index", "inspect-ai", "openai", "numpy", "scipy", "polars")


def identity(
    settings: Settings, dataset: Dataset, prompts: PromptSet, graders: tuple[str, ...], sources: Mapping[str, str]
) -> dict[str, Any]:
    """Return everything that a reply or a grade depends on; a folder belongs to exactly one identity.

    Parameters
    ----------
    settings, dataset, prompts
        The settings, the questions and the prompts.
    graders
        The rule, or the one or two models that grade.
    sources
        Hashes of the source code of functions, by name.
    """
    return {
        "model": settings.model,
        "dataset": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "questions": len(dataset.questions),
            "questions_sha256": dataset.questions_sha256,
        },
        "grader": grader_identity(graders, dataset.questions, settings.refusal),
        "prompts": {
            "name": prompts.name,
            "sha256": prompts.hash,
            "variants": list(prompts.variants),
            **({"targets": prompts.targets} if prompts.targets else {}),
        },
        "placement": settings.prompting.placement,
        "think": settings.prompting.think or None,
        "decoding": asdict(settings.decoding),
        "seed": settings.seed,
        "comparability_version": comparability_version(graders[0]),
        **({"answered_only": True} if settings.repeats.answered_only else {}),
        **({"functions": dict(sources)} if sources else {}),
    }


def comparability_version(grader: str | None) -> int:
    """Return the comparability version of a run with this grader.

    Runs graded by `regex` are one version ahead of all others: earlier releases used the syntax of `re`.
    """
    return COMPARABILITY_VERSION + (grader == GraderKind.REGEX)


def grader_identity(graders: tuple[str, ...], questions: Iterable[Question], refusal: str) -> dict[str, Any]:
    """Return the grader, with the hashes of its prompts for a model and the refusal detector for a rule."""
    uses_models = any("/" in name for name in graders)
    return {
        "name": graders[0],
        "second": graders[1] if len(graders) > 1 else None,
        "prompt_sha256": grader_prompt_hash() if uses_models else None,
        "no_gold_prompt_sha256": no_gold_prompt_hash(questions) if uses_models else None,
        **({"refusal": refusal} if graders[0] in RULES else {}),
    }


def describe_run(settings: Settings, dataset: Dataset, prompts: PromptSet) -> dict[str, Any]:
    """Return facts about how a run was made that may differ when it is resumed."""
    return {
        "versions": {"python": platform.python_version(), **versions(PACKAGES)},
        **settings.accounts.prices.to_document(),
        "penalty": settings.accounts.penalty,
        "truthfulness_weights": list(settings.accounts.truthfulness_weights),
        "dataset": {"source": dataset.source, "licence": dataset.licence},
        "prompt_set": {name: "\n\n".join(prompts.render(name, "{question}")) for name in (*prompts.variants, "forced")},
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed packages among these."""
    installed = {}
    for name in packages:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


RUNS = Path("runs")
ALMANAC_LIMIT = 1000  # takes about a minute; a limit of 2280 asks all


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
    def prices(self) -> Prices:
        """The prices of its models."""
        return self.settings.accounts.prices

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
        before, procedure = store.draws().get(variant, {}), self.procedures[variant]
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


def checked(plan: Plan, *, imports: bool = True) -> Plan:
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
    settings, model = plan.settings, plan.names.get(Role.MODEL, "")
    check_engines_own(settings.sending)
    check_limits(settings)
    reasons = UNSCORED, *ASKED_AGAIN
    for reason in sorted({*settings.sending.retry}.difference(reasons)):
        raise unknown("retry", reason, reasons)
    if settings.limits.max_cost is not None:
        for name, is_asked in (("price", bool(model)), ("grader_price", bool(plan.graders))):
            if is_asked and settings.value(name) is None:
                raise SettingError(f"{{max_cost}}: requires {{{name}}}, to compute the cost; add it")
    for name in plan.names.values():
        if imports or not is_function_name(name):
            check_name(name, plan.objects, settings.sending.engine)
    function: Any = plan.objects.get(model)
    if function is None and imports and is_function_name(model):
        function = load_function(model)
    if callable(function):
        check_model_function(function, model, plan.procedures)
    if plan.folder.run_json.exists():
        refuse_other_settings(plan.folder.path, plan.folder.read_settings(), as_json(plan.identity))
    return plan


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
    prompts, dataset = load_prompt_set(settings.prompting.prompts), dataset or load_questions(settings)
    kind, graders = grader_for(settings, dataset)
    detector = refusal_detector(settings.refusal, objects, imports=imports)
    repeats, draws = sampling_of(settings, dataset)
    variants, placement = chosen(settings.prompting.variants, prompts), Placement(settings.prompting.placement)
    settings = replace(settings, repeats=repeats, prompting=replace(settings.prompting, variants=variants))
    sources = function_sources(settings, graders, objects or {}) if imports else {}
    made_of = identity(settings, dataset, prompts, graders or (str(kind),), sources)
    think = settings.prompting.think
    passes = FirstPassOnly if settings.repeats.answered_only else TwoPass
    plan = Plan(
        settings,
        dataset,
        graders,
        RunFolder(out or runs / default_run_name(settings.model, dataset.name, made_of)),
        made_of,
        describe_run(settings, dataset, prompts),
        {name: passes(kind, Protocol(prompts, name, kind, placement, think), detector) for name in variants},
        dict.fromkeys(variants, draws),
        objects or {},
        (settings.model, dataset.name),
    )
    checked(plan, imports=imports)
    provider, model = provider_of(settings.model)
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
    name = options.dataset or ("own" if options.data else ALMANAC)
    columns = dict(options.column) or None
    limit = ALMANAC_LIMIT if options.limit is None and name == ALMANAC else options.limit
    return load_dataset(name, data=options.data, columns=columns, mix_seed=settings.seed, limit=limit)


def sampling_of(settings: Settings, dataset: Dataset) -> tuple[Repeats, dict[Question, int]]:
    """Return how often questions are sampled, with every default filled in, and the number of draws of each question.

    Samples with the same seed are nested.

    Raises
    ------
    SettingError
        If fewer questions are asked than should be repeated, or one draw of each repeated question is wanted.
    """
    sampling, questions = settings.repeats, dataset.questions
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


def grader_for(settings: Settings, dataset: Dataset) -> tuple[GraderKind, tuple[str, ...]]:
    """Return the grader that the settings name, or else the dataset's, and check that it can grade the questions.

    Raises
    ------
    RefusalIndexError
        If it is not a known grader, or cannot grade a question.
    """
    default = DEFAULT_GRADER if dataset.default_grader == "model" else dataset.default_grader
    kind, graders = grader_of(settings.grader or default)
    check_gradable(dataset.questions, kind)
    return kind, graders


def grader_of(text: str) -> tuple[GraderKind, tuple[str, ...]]:
    """Parse a grader: a rule, a model or a function, or two models that must agree.

    Raises
    ------
    SettingError
        If it is not a known grader.

    Examples
    --------
    >>> grader_of("exact"), grader_of("openai/gpt-4.1")
    ((<GraderKind.EXACT: 'exact'>, ()), (<GraderKind.MODEL: 'model'>, ('openai/gpt-4.1',)))
    """
    if text in RULES:
        return GraderKind(text), ()
    models = tuple(name.strip() for name in text.split(","))
    if len(models) > 2 or len(set(models)) < len(models):
        raise SettingError(f"{{grader}}: expected a rule, a model or two different models as in A,B, got {text!r}")
    return (GraderKind.MODEL if len(models) == 1 else GraderKind.AGREE), tuple(map(_grader_name, models))


def _grader_name(name: str) -> str:
    """Return the name of a model or a function; a grader registered in ``refusal_index.graders`` is a function."""
    if "/" in name or is_function_name(name):
        return name
    plugin = entry_points.find("graders", name)
    if plugin is None:
        raise unknown("grader", name, [*map(str, RULES), *entry_points.installed("graders"), DEFAULT_GRADER])
    return f"{PREFIX}{plugin.value}"


def refusal_detector(
    name: str, objects: Mapping[str, object] | None = None, *, imports: bool = True
) -> Detector | None:
    """Return the refusal detector for rule-based grading.

    Parameters
    ----------
    name
        The value of the setting `refusal`.
    objects
        Functions in memory, by name.
    imports
        Whether to import a function given by name.

    Raises
    ------
    SettingError
        If it is not a valid regular expression.
    ModelError
        If the function cannot be found.
    """
    if is_function_name(name):
        function: Any = (objects or {}).get(name)
        if function is None and not imports:
            return None
        FUNCTIONS[name] = partial(_call_detector, name, function or load_function(name, "refusal"))
    try:
        return detector_of(name)
    except PatternError as error:
        raise SettingError(
            f"{{refusal}}: expected 'wording', 'tag', a regular expression or a function as python:MODULE:FUNCTION, "
            f"got {name!r} ({error})"
        ) from error


def _call_detector(name: str, function: Callable[[str], object], reply: str) -> bool:
    try:
        return bool(function(reply))
    except Exception as error:
        raise FunctionError(
            name,
            f"raised {type(error).__name__} ({error}) for the reply {shortened(reply)}; correct it, then grade the "
            "stored replies with 'refusal-index regrade' and the option --refusal, or choose another folder",
        ) from error


def chosen(requested: Sequence[str], prompts: PromptSet) -> tuple[str, ...]:
    """Return the named variants of a prompt set, in its order; a plus sign adds paraphrases.

    Raises
    ------
    SettingError
        If a name is unknown.
    """
    all_names = list(prompts.variants)
    if tuple(requested) == ("all",):
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


def check_code(names: Mapping[Role, str], objects: Container[str], source: Path) -> None:
    """Raise if a folder names a Python function that the user did not name as well.

    Names read from a folder are checked here before an engine imports the functions, which would run code.

    Parameters
    ----------
    names
        The models that the folder asked, by role.
    objects
        The names that the user gave, and those of objects in memory.
    source
        The folder.

    Raises
    ------
    SettingError
        The message says which option to add.

    Examples
    --------
    >>> check_code({Role.MODEL: "python:theirs:answer"}, {"python:theirs:answer"}, Path("run"))
    """
    for role_asked, name in names.items():
        if is_function_name(name) and name not in objects:
            role = "model" if role_asked is Role.MODEL else "grader"
            same = (
                other_name for other, other_name in names.items() if (other is Role.MODEL) == (role_asked is Role.MODEL)
            )
            raise SettingError(
                f"{{{role}}}: expected {','.join(same)!r}, got nothing; {source} names this function, and a "
                f"function named by a folder runs only if you name it too: read its code, then add it with {{{role}}}"
            )


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
    elif rest and (provider == COMPATIBLE or (provider == OPENAI and engine != DIRECT)):
        return
    elif (plugin := provider_of(name)[0]) is not None:
        plugin.check(rest)
    else:
        other_models().check_name(name)


def function_sources(settings: Settings, graders: Sequence[str], objects: Mapping[str, object]) -> dict[str, str]:
    """Return the source hashes of functions by name: an edited function counts as another model."""
    sources = {}
    for name in (settings.model, *graders, settings.refusal):
        function: Callable[..., Any] | None = objects.get(name)  # type: ignore[assignment]
        if function is None and is_function_name(name):
            function = load_function(name)
        source = source_sha256(function) if callable(function) else None
        if source is not None:
            sources[name] = source
    return sources
