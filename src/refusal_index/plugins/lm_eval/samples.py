"""Import of the samples that lm-evaluation-harness writes with ``--log_samples``.

A line is a JSON object for one question and one filter: `doc` is the row of the dataset, `resps` the replies,
`filtered_resps` the replies after the filter, and each metric is a key. A task that compares the likelihoods of given
answers has a response for each of them in `resps`, and no reply.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from refusal_index.data.first_pass import (
    FIRST_EMPTY,
    NOT_KNOWN,
    FirstPass,
    FirstPassError,
    FirstPasses,
)
from refusal_index.data.grade_flags import grade_of_flags
from refusal_index.data.grade_words import Translations, read_grades
from refusal_index.data.graded import COLUMNS, answers
from refusal_index.data.imports import ReadOptions
from refusal_index.data.nested import with_paths
from refusal_index.data.outcome import LETTERS, NOT_GRADED, Grade, Question
from refusal_index.data.source_files import SourceFile
from refusal_index.data.tables import Row, resolve_columns
from refusal_index.data.text import is_blank
from refusal_index.errors import shortened
from refusal_index.plugins.lm_eval import FLAGS, OURS, question_of

FILE_NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d{2}-\d{2}T[\d.:-]+")

NO_METRICS = frozenset(
    {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
    | {"doc_hash", "prompt_hash", "target_hash"}
)

OPTIONS = ("choices", "options", "endings", "mc1_targets.choices", "choices.text", "options.text")
"""Usual paths in `doc` to the texts of the answers whose likelihoods are compared."""


def read_samples(file: SourceFile, options: ReadOptions) -> FirstPasses:
    """Return the first passes in a file of samples.

    Parameters
    ----------
    file
        The file; the harness names it after the task, and its folder after the model.
    options
        `columns` maps roles to keys of `doc`; `scorer` is the metric that holds the grade, as ``METRIC`` or
        ``METRIC,FILTER``. By default, it is the only metric or the first of `USUAL_METRICS`, and the first filter.

    Raises
    ------
    FirstPassError
        If the metric or the filter has to be chosen, or a sample is malformed.
    """
    name, _, filter_name = (options.scorer or "").partition(",")
    filters = list(dict.fromkeys(str(record.cells.get("filter", "none")) for record in file.records))
    records = _filtered(file, filter_name or filters[0], filters)
    metrics = _metrics(records[0])
    if not name and not set(FLAGS) <= set(metrics):
        name = _usual_metric(file, metrics)
    if _squad(records[0]) is not None:
        grades: list[Grade | None] = [_of_squad(record) for record in records]
    else:
        grades = _of_metric(records, name, options.words) if name else [_of_flags(record) for record in records]
    task = FILE_NAME.fullmatch(file.stem)
    task_name = task["task"] if task else None
    model = file.path.resolve().parent.name.replace("__", "/")  # the harness replaces a slash by two underscores
    passes = tuple(
        _first_pass(record, grade, options.columns, model, task_name)
        for record, grade in zip(records, grades, strict=True)
    )
    used = {name} if name else set(FLAGS)
    other_filters = [f"{name},{other}" for other in filters if other != (filter_name or filters[0])]
    return FirstPasses(
        passes,
        not_used=_not_used(records[0], options.columns),
        other_scorers=(*(metric for metric in metrics if metric not in used), *other_filters),
        compared_likelihoods=any(_likelihoods(record) is not None for record in records),
        several_replies=sum(_has_several_replies(record) for record in records),
    )


def _first_pass(
    record: Row, grade: Grade | None, columns: Mapping[str, str], model: str, task: str | None
) -> FirstPass:
    """Return the first pass of a sample.

    - `columns`: keys of `doc` by role.
    - `task`: name of the task, which stands for the dataset.
    """
    doc = _doc(record)
    source = doc.get(OURS)
    own_source: dict[str, Any] = source if isinstance(source, dict) else {}
    likelihoods = _likelihoods(record)
    if own_source and not columns:
        question = _own_question(record, doc)
    else:
        question = _question(record, doc, columns, likelihoods)
    first_pass = FirstPass(
        question=question,
        model=model,
        dataset=_text(own_source.get("dataset")) or task,
        variant=_text(own_source.get("variant")) or None,
        grade=grade or Grade.UNSCORED,
        reply=_reply(record) if likelihoods is None else _likeliest(question, likelihoods),
        reason=NOT_GRADED if grade in (None, Grade.UNSCORED) else None,
    )
    # In SQuAD 2, an empty answer means that the question has none: it is a refusal.
    is_refusal = grade is Grade.REFUSED and _squad(record) is not None
    is_empty = likelihoods is None and is_blank(first_pass.reply) and not is_refusal
    return first_pass.without_reply(FIRST_EMPTY) if is_empty else first_pass


ROLES = ("question", "answer", "topic", "context")
"""Roles that are read from the row of the dataset."""


def _not_used(record: Row, columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of the row of the dataset that are not used; of this package's own tasks, all are."""
    doc = _doc(record)
    if OURS in doc and not columns:
        return ()
    names = resolve_columns(record.source, with_paths(doc, columns.values()), columns, COLUMNS)
    used = {names[role].partition(".")[0] for role in ROLES if role in names}
    if _likelihoods(record) is not None:
        used.update(path.partition(".")[0] for path in OPTIONS)
    return tuple(name for name in doc if name not in used)


USUAL_METRICS = ("exact_match", "em", "acc", "exact")
"""Metrics that say whether an answer is right, in order of preference."""


def _usual_metric(file: SourceFile, metrics: Sequence[str]) -> str:
    """Return the only metric, or the first usual one; raises FirstPassError if there is neither."""
    usual = [name for name in USUAL_METRICS if name in metrics]
    if len(metrics) == 1 or usual:
        return usual[0] if usual else metrics[0]
    got = ", ".join(metrics) or "none"
    message = f"{file.path}: expected one metric, got {got}; choose the one that marks right answers"
    raise FirstPassError(message).with_remedy("scorer", metrics[0] if metrics else "METRIC")


def _squad(record: Row) -> tuple[str, list[str]] | None:
    """Return the answer and the gold answers of a sample of SQuAD 2, whose metrics hold them; None for other tasks."""
    metric = record.cells.get("exact")
    if not isinstance(metric, list) or len(metric) != 2 or not all(isinstance(part, dict) for part in metric):
        return None
    prediction, reference = metric
    gold = reference.get("answers")
    texts = gold.get("text") if isinstance(gold, dict) else None
    return str(prediction.get("prediction_text") or ""), [str(text) for text in texts or ()]


def _of_squad(record: Row) -> Grade | None:
    """Return the grade of a sample of SQuAD 2 by exact match; no answer, or the one for no answer, is a refusal."""
    prediction, gold = _squad(record) or ("", [])
    if is_blank(prediction) or _plain(prediction) == UNANSWERABLE:
        return Grade.REFUSED
    return Grade.CORRECT if _plain(prediction) in map(_plain, gold) else Grade.INCORRECT


UNANSWERABLE = "unanswerable"
"""What the task of SQuAD 2 asks for where the text holds no answer."""


def _plain(answer: str) -> str:
    """Return an answer as the metric of SQuAD compares it: in lower case, without punctuation and articles."""
    letters = "".join(letter for letter in answer.casefold() if letter not in string.punctuation)
    return " ".join(word for word in letters.split() if word not in ("a", "an", "the"))


def _filtered(file: SourceFile, filter_name: str, filters: Sequence[str]) -> list[Row]:
    """Return the samples of one filter; the file holds all samples for each filter."""
    chosen = [record for record in file.records if str(record.cells.get("filter", "none")) == filter_name]
    if not chosen:
        raise FirstPassError(f"{file.path}: expected samples of the filter {filter_name!r}, got {', '.join(filters)}")
    return chosen


def _metrics(record: Row) -> list[str]:
    named = record.cells.get("metrics")
    return list(named) if isinstance(named, list) and named else [key for key in record.cells if key not in NO_METRICS]


def _of_flags(record: Row) -> Grade | None:
    try:
        return grade_of_flags({name: record.cells.get(name) for name in FLAGS})
    except ValueError as error:
        raise record.wrong(str(error)) from None


def _of_metric(records: Sequence[Row], metric: str, words: Translations) -> list[Grade | None]:
    for record in records:
        if metric not in record.cells:
            raise record.wrong(f"expected a metric {metric!r}, got {', '.join(_metrics(record)) or 'none'}")
    cells = [record.cells[metric] for record in records]
    return read_grades(cells, words, lambda index, message: records[index].wrong(message, metric), of_scorer=True)


def _question(
    record: Row, doc: Mapping[str, Any], columns: Mapping[str, str], likelihoods: Sequence[float] | None
) -> Question:
    doc = with_paths(doc, columns.values())
    names = resolve_columns(record.source, doc, columns, COLUMNS)
    question, answer, topic, context = (doc.get(names[role]) if role in names else None for role in ROLES)
    target = record.cells.get("target")
    options = () if likelihoods is None else _options(record, doc, len(likelihoods))
    squad = _squad(record)
    if squad is not None:
        accepted = list(dict.fromkeys(squad[1]))
        gold, aliases = (accepted[0], accepted[1:]) if accepted else (None, [])
    elif target is None or "answer" in columns:
        gold, *aliases = _accepted(answer) or [NOT_KNOWN]
    elif likelihoods is None:
        gold, *aliases = _accepted(target) or [NOT_KNOWN]
        in_row = _accepted(answer)
        aliases = aliases or ([other for other in in_row if other != gold] if gold in in_row else [])
    else:
        gold = _option(target, options)
        aliases = []
    return Question(
        _text(record.cells["doc_id"]),
        _text(question),
        gold,
        tuple(aliases),
        _text(topic) or None,
        _text(context) or None,
        options if gold in options else (),
    )


def _accepted(cell: Any) -> list[str]:
    """Return the accepted answers in a cell, also those of TriviaQA, which are an object."""
    if isinstance(cell, Mapping):
        aliases = cell.get("aliases")
        return answers([cell.get("value"), *(aliases if isinstance(aliases, list) else ())])
    return answers(cell)


def _own_question(record: Row, doc: Mapping[str, Any]) -> Question:
    """Return the question of a sample of this package's own tasks; an empty gold answer means that none exists."""
    question_id = _text(doc.get("question_id"))
    if not question_id:
        raise record.wrong(f"expected a question_id in the 'doc' of a task of this package, got {shortened(doc)}")
    texts = {name: _text(doc.get(name)) for name in ("answer", "topic", "context")}
    lists = {name: [_text(text) for text in doc.get(name) or ()] for name in ("aliases", "choices")}
    known = {name: text or None for name, text in texts.items()}
    return question_of({"question_id": question_id, "question": _text(doc.get("question")), **known, **lists})


def _likelihoods(record: Row) -> list[float] | None:
    """Return the log likelihood of each given answer; None if the model wrote a reply.

    The response to each is a pair of the log likelihood and whether greedy decoding gives this answer, as numbers and
    truth values or, in newer releases, as their texts.
    """
    responses = record.cells.get("resps") or record.cells.get("filtered_resps")
    if not isinstance(responses, list) or not responses:
        return None
    values = []
    for response in responses:
        pair = response[0] if isinstance(response, list) and len(response) == 1 else response
        if not isinstance(pair, list) or len(pair) != 2 or str(pair[1]).casefold() not in ("true", "false"):
            return None
        try:
            values.append(float(pair[0]))
        except (TypeError, ValueError):
            return None
    return values


def _options(record: Row, doc: Mapping[str, Any], size: int) -> tuple[str, ...]:
    """Return the texts of the given answers; empty if they are not known.

    They are in the row of the dataset or, failing that, what the harness appended to the prompt.
    """
    in_row = with_paths(doc, OPTIONS)
    for path in OPTIONS:
        texts = in_row.get(path)
        if isinstance(texts, list) and len(texts) == size and all(isinstance(text, str) for text in texts):
            return _each_once(texts)
    requests = record.cells.get("arguments")
    entries = list(requests.values()) if isinstance(requests, dict) else requests
    if not isinstance(entries, list) or len(entries) != size:
        return ()
    appended = [_appended(entry) for entry in entries]
    return _each_once(appended)


def _appended(entry: Any) -> str:
    """Return the answer in a request, which is a pair of prompt and answer."""
    if isinstance(entry, dict):
        return _text(entry.get("arg_1"))
    return _text(entry[1]) if isinstance(entry, list) and len(entry) > 1 else ""


def _each_once(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts without surrounding white space; nothing if two are the same or one is empty."""
    plain = tuple(text.strip() for text in texts)
    return plain if len(set(plain)) == len(plain) and all(plain) and len(plain) <= len(LETTERS) else ()


def _option(target: Any, options: Sequence[str]) -> str:
    """Return the text of the right answer, given its text, its index from 0 or its letter."""
    text = _text(target)
    if text in options:
        return text
    if not options:
        return NOT_KNOWN if text.isdecimal() or len(text) == 1 else text
    index = int(text) if text.isdecimal() else LETTERS.find(text.upper()) if len(text) == 1 else -1
    return options[index] if 0 <= index < len(options) else NOT_KNOWN


def _likeliest(question: Question, likelihoods: Sequence[float]) -> str | None:
    """Return the text of the likeliest answer; None if the texts are not known."""
    if not question.choices:
        return None
    return question.choices[max(range(len(likelihoods)), key=likelihoods.__getitem__)]


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


def _has_several_replies(record: Row) -> bool:
    """Whether a sample of a task with ``repeats`` holds several replies to its only request."""
    responses = record.cells.get("resps")
    of_request = responses[0] if isinstance(responses, list) and len(responses) == 1 else None
    return isinstance(of_request, list) and len(of_request) > 1 and all(isinstance(one, str) for one in of_request)


def _reply(record: Row) -> str | None:
    """Return the reply before any filter; of several replies, the first."""
    reply = record.cells.get("resps") or record.cells.get("filtered_resps")
    while isinstance(reply, Sequence) and not isinstance(reply, str):
        reply = reply[0] if reply else None
    if isinstance(reply, int | float):
        raise record.wrong(f"expected the text of a reply, got {shortened(reply)}; is this a task that generates text?")
    return reply
