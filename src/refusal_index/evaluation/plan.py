"""From settings to a plan: everything checked that can be, before a model is asked and before a folder is made."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from refusal_index.almanac import ALMANAC
from refusal_index.datasets import Dataset, load_dataset, sample
from refusal_index.engines.registry import check_engine
from refusal_index.engines.settings import DEFAULT_GRADER, Drawing, SettingError, Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.evaluation.checks import (
    UNSCORED,
    check_context,
    check_name,
    check_sending,
    check_trackers,
    chosen,
    function_sources,
    grader_of,
    placement_of,
)
from refusal_index.evaluation.reopened import about, identity
from refusal_index.outcomes.folder import RunFolder, default_run_name
from refusal_index.outcomes.outcome import Question
from refusal_index.outcomes.settings import Prices, as_json, refuse_other_settings
from refusal_index.protocol import (
    ASKED_AGAIN,
    Asked,
    Completion,
    Conversation,
    Procedure,
    Protocol,
    TwoPass,
    check_gradable,
    due,
    kept_unscored,
    load_prompt_set,
)

RUNS = Path("runs")
ALMANAC_LIMIT = 1000  # a first look in about a minute; a limit of 2280 asks all


@dataclass(frozen=True)
class Plan:
    """A run that only needs to be carried out.

    Attributes
    ----------
    settings, dataset
        What is asked: the settings with every default in place, and the questions that they name.
    graders
        The names of the models and functions that grade; none where a rule does.
    folder, identity, about
        Where the run lies or will, all that its replies depend on, and what else is worth knowing.
    procedures
        What is asked in each variant, in the order in which they are run.
    draws
        How often each question is drawn, by variant.
    objects
        Models and functions that are in memory, by the name that stands for them.
    title
        What to call model and dataset: a configuration may have names of its own for them.
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

    def __post_init__(self) -> None:
        check_engine(self.settings.sending.engine)

    @property
    def names(self) -> dict[Asked, str]:
        """Whom the run asks, the model first."""
        graders = dict(zip((Asked.GRADER, Asked.SECOND_GRADER), self.graders, strict=False))
        asks_model = any(procedure.asks_model for procedure in self.procedures.values())
        return {**({Asked.MODEL: self.settings.model} if asks_model else {}), **graders}

    @property
    def prices(self) -> Prices:
        """What its models cost."""
        return self.settings.accounts.prices

    @property
    def called(self) -> str:
        """What to call the run."""
        return " on ".join(self.title)

    def part(self, questions: Container[Question]) -> Plan:
        """Return the plan of asking only some of its questions."""
        draws = {
            variant: {one: count for one, count in asked.items() if one in questions}
            for variant, asked in self.draws.items()
        }
        return replace(self, draws=draws)

    def conversations(self, variant: str, store: ReplyStore) -> list[Conversation]:
        """Return the conversations of a variant: drawn as often as planned, and no less than they were before.

        Where the model is not asked, a question without a reply of it leaves nothing to do.
        """
        return list(self.each_conversation(variant, store))

    def each_conversation(self, variant: str, store: ReplyStore) -> Iterator[Conversation]:
        """Yield the conversations of a variant one by one, for whom there are too many to hold."""
        before, procedure = store.asked().get(variant, {}), self.procedures[variant]
        for question, draws in self.draws[variant].items():
            if procedure.asks_model or store.said(question.question_id, variant):
                yield Conversation(question, variant, procedure, max(draws, before.get(question.question_id, 1)))

    def by_question(self, variants: Iterable[str], store: ReplyStore) -> list[Conversation]:
        """Return the conversations of several variants, those about one question side by side."""
        found: dict[Question, list[Conversation]] = {}
        for variant in variants:
            for one in self.each_conversation(variant, store):
                found.setdefault(one.question, []).append(one)
        return [one for conversations in found.values() for one in conversations]

    def pending(self, store: ReplyStore) -> list[str]:
        """Return the variants in which something is still to be asked."""
        return [
            variant
            for variant in self.procedures
            if any(
                due(one, store.said(one.question.question_id, variant))
                for one in self.each_conversation(variant, store)
            )
        ]

    def asked_again(self, store: ReplyStore) -> list[Completion]:
        """Return the replies that are to be set aside, since something is to be asked again without them."""
        reasons = self.settings.sending.retry
        wanted = ASKED_AGAIN if UNSCORED in reasons else reasons
        found: dict[Completion, None] = {}
        for variant in self.procedures if wanted else ():
            for one in self.conversations(variant, store):
                said = store.said(one.question.question_id, variant)
                found |= dict.fromkeys(kept_unscored(one, said, wanted))
        return list(found)


def prepare(
    settings: Settings,
    *,
    out: Path | None = None,
    dataset: Dataset | None = None,
    objects: Mapping[str, object] | None = None,
    runs: Path = RUNS,
) -> Plan:
    """Check everything that can be checked before a model is named to its provider.

    Parameters
    ----------
    settings
        As given.
    out, runs
        The run's folder; without it, one below `runs` that is named after its settings.
    dataset
        The questions, where they were loaded before.
    objects
        Models and functions that are in memory, by the name that stands for them.

    Raises
    ------
    RefusalIndexError
        If a setting, the dataset or the name of a model cannot be used, or the folder is that of another run.
    """
    check_trackers(settings)
    prompts, objects = load_prompt_set(settings.prompting.prompts), objects or {}
    dataset = dataset or load_questions(settings)
    default = DEFAULT_GRADER if dataset.default_grader == "model" else dataset.default_grader
    kind, graders = grader_of(settings.grader or default)
    check_gradable(dataset.questions, kind)
    settings = replace(settings, drawing=_drawing(settings, len(dataset.questions)))
    if settings.drawing.repeat_questions is not None and settings.drawing.draws == 1:
        raise SettingError(
            "{repeat_questions}: expected {draws} of at least 2 beside it, got 1; how often to draw them?"
        )
    placement = placement_of(settings)
    check_sending(settings, asks_grader=bool(graders))
    settings = replace(
        settings, prompting=replace(settings.prompting, variants=chosen(settings.prompting.variants, prompts))
    )
    for name in (settings.model, *graders):
        check_name(name, objects, settings.sending.engine)
    made_of = identity(
        settings, dataset, prompts, graders or (str(kind),), function_sources(settings, graders, objects)
    )
    folder = RunFolder(out or runs / default_run_name(settings.model, dataset.name, made_of))
    if folder.run_json.exists():
        refuse_other_settings(folder.path, folder.read_settings(), as_json(made_of))
    check_context(settings.model, dataset.questions, prompts)  # last, since it counts all tokens
    draws = draws_of(settings, dataset)
    think = settings.prompting.think
    variants = settings.prompting.variants
    return Plan(
        settings=settings,
        dataset=dataset,
        graders=graders,
        folder=folder,
        identity=made_of,
        about=about(settings, dataset, prompts),
        procedures={name: TwoPass(kind, Protocol(prompts, name, kind, placement, think)) for name in variants},
        draws=dict.fromkeys(variants, draws),
        objects=objects,
        title=(settings.model, dataset.name),
    )


def load_questions(settings: Settings) -> Dataset:
    """Load the dataset that the settings name, and draw the sample of it that they ask for.

    Raises
    ------
    DatasetError
        If it cannot be used.
    """
    asked = settings.questions
    name = asked.dataset or ("own" if asked.data else ALMANAC)
    columns = dict(asked.column) or None
    limit = ALMANAC_LIMIT if asked.limit is None and name == ALMANAC else asked.limit
    return load_dataset(name, data=asked.data, columns=columns, mix_seed=settings.seed, limit=limit)


def _drawing(settings: Settings, n_questions: int) -> Drawing:
    """Return how often to draw which of the questions: once, unless the settings say otherwise."""
    given = settings.drawing
    if given.repeat_questions is not None and given.repeat_questions > n_questions:
        raise SettingError(
            f"{{repeat_questions}}: expected at most {n_questions:,}, as many as are asked, "
            f"got {given.repeat_questions:,}"
        )
    if given.draws is not None:
        return given
    if given.repeat_questions is not None:
        return replace(given, draws=2)
    return Drawing(1)


def draws_of(settings: Settings, dataset: Dataset) -> dict[Question, int]:
    """Return how often each question is drawn; samples of one seed nest, so that more draws keep those before."""
    drawing, questions = settings.drawing, dataset.questions
    if drawing.draws is None or drawing.draws == 1:
        return dict.fromkeys(questions, 1)
    repeated = len(questions) if drawing.repeat_questions is None else drawing.repeat_questions
    again = {question.question_id for question in sample(dataset, repeated, settings.seed).questions}
    return {question: drawing.draws if question.question_id in again else 1 for question in questions}
