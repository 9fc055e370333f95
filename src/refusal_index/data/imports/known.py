"""Any file of first passes: its format, what it holds, and what it lacks, filled in from a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from refusal_index.data.datasets.dataset import Dataset
from refusal_index.data.errors import suggestion
from refusal_index.data.imports.first_pass import NOT_KNOWN, FirstPass, FirstPassError, from_outcomes
from refusal_index.data.imports.graded import COLUMNS, read_graded
from refusal_index.data.imports.source import SourceFile
from refusal_index.data.outcome import Grade, Question
from refusal_index.data.outcome_table import REQUIRED, read_outcomes
from refusal_index.data.tables import Translations
from refusal_index.data.text import SECONDS, PatternError, compiled

INSPECT, LM_EVAL, GRADED, OUTCOMES = "inspect", "lm-eval", "graded", "outcomes"
FORMATS = (GRADED, OUTCOMES)
"""What is read here; other formats are read by plugins."""

Detector = Callable[[str, Question], bool]
"""Tells whether a reply to a question is a refusal."""


@dataclass(frozen=True)
class ReadOptions:
    """How files are read."""

    columns: Mapping[str, str] = field(default_factory=dict)  # column by role
    scorer: str | None = None  # the score of an Inspect log, or the metric of lm-eval's samples, that is the grade
    # regular expression: a reply in which it is found is a refusal, unless it was graded as correct
    refusal: str | None = None
    # name, dataset: of the model and the questions, in place of what the files say
    name: str | None = None
    dataset: str | None = None
    words: Translations = field(default_factory=dict)  # what words of grades and flags are to be read as
    # in the place of `refusal`: whether a reply to a question is a refusal
    detector: Detector | None = None

    def applied(self, passes: Iterable[FirstPass]) -> tuple[FirstPass, ...]:
        """Return the first passes under these names, with the refusals that their replies show.

        Raises FirstPassError if `refusal` is not a regular expression, or takes too long on a reply.
        """
        detector = self.detector or (_pattern_detector(self.refusal) if self.refusal else None)
        return tuple(self._applied(first, detector) for first in passes)

    def _applied(self, first: FirstPass, detector: Detector | None) -> FirstPass:
        named = replace(first, model=self.name or first.model, dataset=self.dataset or first.dataset)
        if detector is None or first.grade is Grade.CORRECT or first.reply is None:
            return named
        return replace(named, grade=Grade.REFUSED, reason=None) if detector(first.reply, first.question) else named


def detected_format(file: SourceFile) -> str:
    """Tell what a file is by its content; raises DatasetError if the file holds nothing, or is malformed."""
    if file.is_inspect_log:
        return INSPECT
    columns = file.records[0].cells
    if "doc_id" in columns and "filtered_resps" in columns:
        return LM_EVAL
    return OUTCOMES if all(column in columns for column in REQUIRED) else GRADED


def read_first_passes(file: SourceFile, kind: str, options: ReadOptions) -> tuple[FirstPass, ...]:
    """Read graded answers or an outcome table.

    Raises DatasetError or OutcomeTableError if it cannot be used as it is, or an option has no effect on its kind; the
    message names the line, or the option.

    - `file`: the file.
    - `kind`: one of `FORMATS`.
    - `options`: how it is read.
    """
    if options.scorer:
        raise FirstPassError(
            f"--scorer: {file.path} was read as {kind!r}, which has no scorers; leave it out, or name the column of "
            "grades with --column grade=NAME"
        )
    if kind == GRADED:
        return options.applied(read_graded(file, options.columns, options.words))
    for option, given in (("--column", options.columns), ("--map", options.words)):
        if given:
            raise FirstPassError(
                f"{option}: {file.path} is an outcome table, whose columns and words are fixed; leave it out"
            )
    return options.applied(from_outcomes(read_outcomes(file.path)))


def _pattern_detector(refusal: str) -> Detector:
    try:
        pattern = compiled(refusal)
    except PatternError as error:
        raise FirstPassError(f"--refusal: expected a regular expression, got {refusal!r} ({error})") from error

    def refuses(reply: str, question: Question) -> bool:
        try:
            return pattern.search(reply, timeout=SECONDS) is not None
        except TimeoutError as error:
            raise FirstPassError(
                f"--refusal: {refusal!r} takes more than {SECONDS:g} second on the reply to question "
                f"{question.question_id!r}; choose a pattern without nested repetitions"
            ) from error

    return refuses


def of_one_model(passes: Sequence[FirstPass], source: str, name: str | None) -> tuple[FirstPass, ...]:
    """Return the first passes of one model on one dataset.

    Raises FirstPassError if the file holds no such model, or several and none was named, or several datasets.

    - `passes`: all that the file holds.
    - `source`: the file, for messages.
    - `name`: the model's name in the file; None where it holds but one.
    """
    models = list(dict.fromkeys(each.model or "(not named)" for each in passes))
    if name is None and len(models) > 1:
        raise FirstPassError(f"{source} holds {len(models)} models; choose one with --name: {', '.join(models)}")
    if name is not None and name not in models:
        raise FirstPassError(
            f"{source}: expected --name to be one of {', '.join(models)}, got {name!r}{suggestion(name, models)}"
        )
    name = name or models[0]
    found = tuple(each for each in passes if (each.model or "(not named)") == name)
    datasets = list(dict.fromkeys(each.dataset or "(not named)" for each in found))
    if len(datasets) > 1:
        raise FirstPassError(
            f"{source} holds {name} on {len(datasets)} datasets ({', '.join(datasets)}); keep the rows of one in a "
            "file of its own"
        )
    return found


def questions_to_force(passes: Iterable[FirstPass], source: str) -> tuple[Question, ...]:
    """Return every refused question once a draw, by the id that `FirstPass.forced_id` gives it.

    Raises FirstPassError if nothing was refused, the file lacks what it takes to ask and to grade, or two prompt
    variants have different questions under one id.
    """
    every = [each for each in passes if each.grade is Grade.REFUSED]
    refused = [each for each in every if each.needs_forcing]
    if every and not refused:
        raise FirstPassError(
            f"{source}: expected refused questions that have a right answer, got {len(every):,} without one: a forced "
            "answer would be wrong whatever it is; 'refusal-index import' and 'score' take the file as it is"
        )
    if not refused:
        raise FirstPassError(
            f"{source}: expected refused questions, got none; if its grades know right and wrong only, say with "
            "--refusal REGEX how a refusal is worded"
        )
    for role, field_ in (("question", "text"), ("answer", "gold")):
        lacking = [each for each in refused if getattr(each.question, field_) == NOT_KNOWN]
        if lacking:
            raise FirstPassError(
                f"{source}: expected the {role} of every refused question, got {len(lacking):,} of {len(refused):,} "
                f"without one (first: question_id {lacking[0].question.question_id!r}); add a column for it, or name "
                f"the column that holds it with --column {role}=NAME"
            )
    questions: dict[str, Question] = {}
    for each in refused:
        question = replace(each.question, question_id=each.forced_id)
        if questions.setdefault(each.forced_id, question).text != question.text:
            raise FirstPassError(
                f"{source}: expected one question of the id {each.question.question_id!r}, got two with different "
                "texts; give each an id of its own"
            )
    return tuple(questions.values())


def filled_in(passes: Sequence[FirstPass], dataset: Dataset, *, by_id: bool, source: str) -> tuple[FirstPass, ...]:
    """Return first passes with the questions, gold answers and name of a dataset in place of those that they lack.

    A question is found by its id, as long as the text that the file has for it holds the dataset's, or else by its
    text. The text and the gold answer that the file has stay as they are; context, choices and pattern come with the
    question. Raises FirstPassError if a refused question lacks something and is not in the dataset.

    - `passes`, `source`: the first passes, and their file, for messages.
    - `dataset`: its questions.
    - `by_id`: whether ids of the file can be those of the dataset, as `has_ids` tells.
    """
    ids = {question.question_id: question for question in dataset.questions} if by_id else {}
    often = Counter(_normal(question.text) for question in dataset.questions)
    texts = {text: each for each in dataset.questions if often[text := _normal(each.text)] == 1}
    filled = []
    for each in passes:
        asked = _normal(each.question.text)
        same = ids.get(each.question.question_id)
        is_same = same is not None and (not asked or _normal(same.text) in asked)
        question = _filled_in(each.question, same if is_same else texts.get(asked))
        filled.append(replace(each, question=question, dataset=each.dataset or dataset.name))
    refused = [each for each in filled if each.needs_forcing]
    lacking = [each for each in refused if NOT_KNOWN in (each.question.text, each.question.gold)]
    if lacking:
        raise FirstPassError(
            f"{source}: expected every refused question in the dataset {dataset.name!r}, by its id or its text, got "
            f"{len(lacking):,} of {len(refused):,} that are not there (first: question_id "
            f"{lacking[0].question.question_id!r}); choose the dataset that was asked (--dataset, --data), or name the "
            "columns that hold them with --column question_id=NAME or question=NAME"
        )
    return tuple(filled)


def has_ids(file: SourceFile, kind: str, read: ReadOptions) -> bool:
    """Tell whether ids can be a dataset's: lm-eval counts its documents, and graded rows without ids are numbered."""
    if kind != GRADED:
        return kind != LM_EVAL
    return "question_id" in file.resolved(read.columns, COLUMNS)[1]


def _normal(text: str) -> str:
    return " ".join(text.split()).casefold()


def _filled_in(question: Question, known: Question | None) -> Question:
    """Return a question of a file with what it lacks from the same question of a dataset."""
    if known is None:
        return question
    asked = question.text if question.text != NOT_KNOWN else known.text
    answered = known if question.gold == NOT_KNOWN else question
    # A text that is longer than the question may be a whole prompt, with the context and the choices in it.
    prompt = _normal(asked)
    return replace(
        known,
        question_id=question.question_id,
        text=asked,
        gold=answered.gold,
        aliases=answered.aliases,
        topic=question.topic or known.topic,
        context=None if known.context and _normal(known.context) in prompt else known.context,
        choices=() if all(_normal(choice) in prompt for choice in known.choices) else known.choices,
    )
