"""Functions for the two lm-evaluation-harness tasks, and the import of the samples that it writes.

The tasks are defined in the YAML files beside this module.

In `refusal_index_first` a model may refuse, in `refusal_index_forced` it must answer. Both tasks use this package's
prompt sets, parsing and grading, so ``import`` can combine their samples. The harness does not record why a reply
ended, so a reply cut off at the token limit is treated like any other.

Samples are written with ``--log_samples``. A line is a JSON object for one question and one filter: `doc` is the row of
the dataset, `resps` the replies, `filtered_resps` the replies after the filter, and each metric is a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from refusal_index.data.datasets import DatasetError, load_dataset
from refusal_index.data.first_pass import FORCED, NOT_GRADED, NOT_KNOWN, FirstPass, FirstPassError
from refusal_index.data.imports import COLUMNS, RIGHT_OR_WRONG, WORDS, ReadOptions, SourceFile, grade_kind, with_paths
from refusal_index.data.outcome import Grade, Question
from refusal_index.data.tables import FLAG, Column, Row, Translations, resolve_columns
from refusal_index.errors import nearest, shortened
from refusal_index.protocol import load_prompt_set
from refusal_index.protocol.grading import GraderKind, grade_by_rule
from refusal_index.protocol.replies import read_reply

SPLIT = "test"
Doc = Mapping[str, Any]


def first_pass(
    *,
    dataset: str = "almanac",
    data: str | None = None,
    prompts: str = "default",
    variant: str = "normal",
    questions: int | None = None,
    seed: int = 0,
    **others: Any,
) -> dict[str, Any]:
    """Return the questions of the first pass as a dataset of the harness.

    Parameters
    ----------
    dataset, data
        The arguments of `refusal_index.data.datasets.load_dataset`.
    prompts, variant
        The prompt set and its variant.
    questions, seed
        Size of a random sample of the questions, and its seed; None for all questions.
    others
        Further keyword arguments of the harness, which are ignored.

    Raises
    ------
    DatasetError
        If a setting is misspelt or has an invalid value, or the questions cannot be read.
    PromptSetError
        If the prompt set or variant does not exist.
    """
    _check_misspelt(others)
    for name, value in {"dataset": dataset, "prompts": prompts, "variant": variant}.items():
        _check(name, value, "a name", isinstance(value, str))
    if questions is not None:
        _check("questions", questions, "a whole number above 0", _is_whole(questions) and questions > 0)
    _check("seed", seed, "a whole number", _is_whole(seed))
    wording = load_prompt_set(prompts)
    wording.variant(variant)  # raises an error for an unknown name before any request
    loaded = load_dataset(dataset, data=data, mix_seed=seed, limit=questions)
    source = {"dataset": loaded.name, "prompts": prompts, "variant": variant}
    from datasets import Dataset  # noqa: PLC0415 - a dependency of the harness only

    return {SPLIT: Dataset.from_list([_doc_of(question, source) for question in loaded.questions])}


def _check_misspelt(others: Mapping[str, Any]) -> None:
    """Raise DatasetError for an argument that resembles a setting, since a misspelt one would be ignored silently."""
    names = ("dataset", "data", "prompts", "variant", "questions", "seed")
    for name in others:
        suggestion = nearest(name, names, cutoff=0.8)
        if suggestion is not None:
            raise DatasetError(
                f"--metadata: expected one of {', '.join(names)}, got {name!r}; did you mean {suggestion!r}?"
            )


def _check(name: str, value: object, expected: str, is_met: bool) -> None:
    if not is_met:
        raise DatasetError(f"--metadata: {name}: expected {expected}, got {shortened(value)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def forced_pass(**settings: Any) -> dict[str, Any]:
    """Return the questions of the forced pass, which are those of `first_pass` whatever its variant."""
    return first_pass(**{**settings, "variant": FORCED})


def prompt(doc: Doc) -> str:
    """Return the prompt for a question."""
    question, source = _question_of(doc), doc[OURS]
    wording = load_prompt_set(source["prompts"])
    return "\n\n".join(wording.render(source["variant"], question.text, question.context, question.choices))


def target(doc: Doc) -> str:
    """Return the gold answer; an empty string if no right answer exists."""
    return doc["answer"] or ""


def graded(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """Parse and grade a reply as this package does; all flags are 0 if it cannot be graded.

    >>> doc = _doc_of(Question("q", "Who wrote Emma?", "Jane Austen"), {})
    >>> graded(doc, ["<answer>UNANSWERED</answer>"])
    {'is_correct': 0.0, 'is_incorrect': 0.0, 'is_not_attempted': 1.0}
    """
    reading = read_reply(results[0])
    if reading.unscored_reason is not None:
        grade = Grade.UNSCORED
    elif reading.refused:
        grade = Grade.REFUSED
    else:
        grade = grade_by_rule(GraderKind.EXACT, _question_of(doc), reading.answer)
    return {name: float(grade is flagged) for name, flagged in FLAGS.items()}


def _doc_of(question: Question, source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "question_id": question.question_id,
        "question": question.text,
        "answer": question.gold,
        "aliases": list(question.aliases),
        "topic": question.topic,
        "context": question.context,
        "choices": list(question.choices),
        OURS: dict(source),
    }


def _question_of(doc: Doc) -> Question:
    return Question(
        doc["question_id"],
        doc["question"],
        doc["answer"],
        tuple(doc["aliases"]),
        doc["topic"],
        doc["context"],
        tuple(doc["choices"]),
    )


FILE_NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d{2}-\d{2}T[\d.:-]+")
OURS = "refusal_index"
"""The key of `doc` that holds the dataset, prompt set and variant in samples of this package's own tasks."""

FLAGS = {"is_correct": Grade.CORRECT, "is_incorrect": Grade.INCORRECT, "is_not_attempted": Grade.REFUSED}
"""Metrics that together give the grade, as in SimpleQA's task."""

MARK = grade_kind(WORDS, RIGHT_OR_WRONG)
"""The values that a metric may have."""

NO_METRICS = frozenset(
    {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
    | {"doc_hash", "prompt_hash", "target_hash"}
)


def read_samples(file: SourceFile, options: ReadOptions) -> tuple[FirstPass, ...]:
    """Return the first passes in a file of samples.

    Parameters
    ----------
    file
        The file; the harness names it after the task, and its folder after the model.
    options
        `columns` maps roles to keys of `doc`; `scorer` is the metric that holds the grade, as ``METRIC`` or
        ``METRIC,FILTER``, and is needed only if there are several.

    Raises
    ------
    FirstPassError
        If the metric or the filter has to be chosen, or a sample is malformed.
    """
    columns = options.columns
    name, _, filter_name = (options.scorer or "").partition(",")
    records = _filtered(file, filter_name)
    metrics = _metrics(records[0])
    if not name and not set(FLAGS) <= set(metrics):
        if len(metrics) != 1:
            raise FirstPassError(
                f"{file.path}: expected one metric, got {', '.join(metrics) or 'none'}; choose with --scorer the one "
                "that says whether an answer is right"
            )
        name = metrics[0]
    task = FILE_NAME.fullmatch(file.stem)
    model = file.path.resolve().parent.name.replace("__", "/")  # the harness replaces a slash by two underscores
    passes = []
    for record in records:
        grade = _of_metric(record, name, options.words) if name else _of_flags(record)
        doc = _doc(record)
        source = doc.get(OURS)
        own_source: dict[str, Any] = source if isinstance(source, dict) else {}
        passes.append(
            FirstPass(
                question=_own_question(record, doc) if own_source and not columns else _question(record, doc, columns),
                model=model,
                dataset=_text(own_source.get("dataset")) or (task["task"] if task else None),
                variant=_text(own_source.get("variant")) or None,
                grade=grade or Grade.UNSCORED,
                reply=_reply(record),
                reason=None if grade else NOT_GRADED,
            )
        )
    return tuple(passes)


def _filtered(file: SourceFile, filter_name: str) -> list[Row]:
    """Return the samples of one filter; the file holds all samples for each filter."""
    filters = list(dict.fromkeys(str(record.cells.get("filter", "none")) for record in file.records))
    if not filter_name and len(filters) > 1:
        raise FirstPassError(
            f"{file.path}: the samples were filtered in {len(filters)} ways ({', '.join(filters)}); "
            f"choose one with --scorer METRIC,FILTER, for instance {_metrics(file.records[0])[0]},{filters[0]}"
        )
    chosen = [
        record for record in file.records if str(record.cells.get("filter", "none")) == (filter_name or filters[0])
    ]
    if not chosen:
        raise FirstPassError(f"{file.path}: expected samples of the filter {filter_name!r}, got {', '.join(filters)}")
    return chosen


def _metrics(record: Row) -> list[str]:
    named = record.cells.get("metrics")
    return list(named) if isinstance(named, list) and named else [key for key in record.cells if key not in NO_METRICS]


def _of_flags(record: Row) -> Grade | None:
    grades = [grade for name, grade in FLAGS.items() if Column((), FLAG).value(record, name, {})]
    if len(grades) > 1:
        raise record.wrong(f"expected one grade, got {' and '.join(grades)}")
    return grades[0] if grades else None


def _of_metric(record: Row, metric: str, words: Translations) -> Grade | None:
    if metric not in record.cells:
        raise record.wrong(f"expected a metric {metric!r}, got {', '.join(_metrics(record)) or 'none'}")
    grade: Grade | None = Column((), MARK).value(record, metric, words)
    return grade


def _question(record: Row, doc: Mapping[str, Any], columns: Mapping[str, str]) -> Question:
    doc = with_paths(doc, columns.values())
    names = resolve_columns(record.source, doc, columns, COLUMNS)
    question, answer, topic, context = (
        doc.get(names[role]) if role in names else None for role in ("question", "answer", "topic", "context")
    )
    target = record.cells.get("target")
    gold = _text(answer if target is None or "answer" in columns else target)
    question_id = _text(record.cells["doc_id"])
    return Question(question_id, _text(question), gold, topic=_text(topic) or None, context=_text(context) or None)


def _own_question(record: Row, doc: Mapping[str, Any]) -> Question:
    """Return the question of a sample of this package's own tasks; an empty gold answer means that none exists."""
    names = ("question_id", "question", "answer", "topic", "context")
    question_id, question, gold, topic, context = (_text(doc.get(name)) for name in names)
    if not question_id:
        raise record.wrong(f"expected a question_id in the 'doc' of a task of this package, got {shortened(doc)}")
    return Question(question_id, question, gold or None, topic=topic or None, context=context or None)


def _text(value: Any) -> str:
    """Return a cell as text; of a list of accepted answers, the first."""
    if isinstance(value, list):
        value = value[0] if value else None
    return NOT_KNOWN if value is None else str(value).strip()


def _doc(record: Row) -> dict[str, Any]:
    """Return the row of the dataset; some releases of the harness write it as a JSON string."""
    doc = record.cells.get("doc")
    if isinstance(doc, str):
        try:
            doc = json.loads(doc)
        except ValueError:
            return {}
    return doc if isinstance(doc, dict) else {}


def _reply(record: Row) -> str | None:
    """Return the reply before any filter; of several replies, the first."""
    reply = record.cells.get("resps") or record.cells.get("filtered_resps")
    while isinstance(reply, Sequence) and not isinstance(reply, str):
        reply = reply[0] if reply else None
    if isinstance(reply, int | float):
        raise record.wrong(
            f"expected the text of a reply, got {shortened(reply)}: the task compares the likelihoods of choices, and "
            "a model that generates no text cannot refuse"
        )
    return reply
