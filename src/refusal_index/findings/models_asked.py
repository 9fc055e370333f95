"""Caveats of a whole run: which models answered, by the names in their responses, and what they were not sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from refusal_index.data.run_json import ANSWERED_BY, EXAMPLES_ASKED, LOGPROBS, SENT, addresses_in
from refusal_index.findings.metrics import Statement
from refusal_index.findings.worked_examples import example_statements

GRADERS = ("grader", "second_grader")
"""The roles of graders; that of the model under evaluation is ``"model"``."""

SNAPSHOT = re.compile(r"[-@:](\d{3,8}|\d{4}-\d\d-\d\d|\d\d-\d\d(-\d{4})?|v\d+(\.\d+)?|latest|preview(-[\d-]+)?)")
"""What a provider adds to a model's name to tell its versions apart, such as a date."""


def run_caveats(settings: Mapping[str, Any], about: Mapping[str, Any]) -> tuple[Statement, ...]:
    """Return what to say about how the models of a run answered, from its folder.

    - `settings`, `about`: from the run's folder; empty for a file.
    """
    return (
        *_imported(settings),
        *_changes(settings, about),
        *several_addresses(addresses_in(about)),
        *_not_sent(settings, about),
        *without_logprobs(about),
        *_examples(settings, about),
    )


def _examples(settings: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[Statement]:
    """State which questions the prompts answer in a worked example."""
    dataset = settings.get("dataset")
    questions = dataset.get("questions") if isinstance(dataset, Mapping) else None
    if isinstance(questions, int):
        yield from example_statements(about.get(EXAMPLES_ASKED) or (), questions)


def _imported(settings: Mapping[str, Any]) -> Iterator[Statement]:
    """State of a forced pass after an imported first pass whether the models may differ, and what that log lacks."""
    first_pass = settings.get("first_pass")
    if not isinstance(first_pass, Mapping):
        return
    yield from two_models(first_pass.get("model"), str(settings.get("model")))
    if "incomplete" in first_pass:
        yield incomplete_log(first_pass["incomplete"])


def incomplete_log(incomplete: Mapping[str, Any]) -> Statement:
    """Return the caveat about an incomplete log; the values are the fields of `Incomplete`."""
    return Statement("incomplete_log", "serious", incomplete)


def two_models(first: str | None, forced: str) -> Iterator[Statement]:
    """State that the two passes may be from different models, if they are not named alike."""
    if first is None or not is_same_model(first, forced):
        yield Statement("two_models", "serious", {"first": first, "forced": forced})


def is_same_model(first: str, other: str) -> bool:
    """Whether two names refer to one model: the shorter is a suffix of the longer, part by part.

    >>> is_same_model("almanac/base", "base"), is_same_model("gpt-4o", "openai/gpt-4o-mini")
    (True, False)
    """
    parts, others = (name.casefold().split("/") for name in (first, other))
    length = min(len(parts), len(others))
    return parts[-length:] == others[-length:]


def _changes(settings: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[Statement]:
    """State for each role whose responses named several models how many replies each gave."""
    for role, counts in (about.get(ANSWERED_BY) or {}).items():
        asked = _asked(settings, role)
        names = distinct_models(asked, counts)
        if len(names) > 1:
            replies = sorted(((name, counts[name]) for name in names), key=lambda pair: -pair[1])
            yield Statement("model_changed", "serious", {"role": role, "asked": asked, "replies": replies})


def several_addresses(asked_at: Mapping[str, Sequence[str]]) -> tuple[Statement, ...]:
    """State for each role that was asked at several addresses which these are.

    >>> several_addresses({"model": ["http://a/v1", "http://b/v1"], "grader": ["http://a/v1"]})[0].values["role"]
    'model'
    """
    return tuple(
        Statement("several_addresses", "note", {"role": role, "addresses": addresses})
        for role, addresses in asked_at.items()
        if len(addresses) > 1
    )


def _not_sent(settings: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[Statement]:
    """State which decoding settings of the run the evaluated model was not sent, in some requests or in all."""
    sent = (about.get(SENT) or {}).get("model")
    decoding = settings.get("decoding")
    if not isinstance(sent, Mapping) or not isinstance(decoding, Mapping):
        return
    wanted = [name for name in ("temperature", "top_p", "max_tokens") if decoding.get(name) is not None]
    left_out = [name for name in wanted if name in sent and _lacks(sent[name])]
    if left_out:
        yield Statement("not_sent", "note", {"model": settings.get("model"), "settings": left_out})


def without_logprobs(about: Mapping[str, Any]) -> Iterator[Statement]:
    """State how many replies came without the log probabilities that were requested."""
    counts = about.get(LOGPROBS) or {}
    if counts.get("missing"):
        yield Statement("without_logprobs", "note", counts)


def _lacks(value: Any) -> bool:
    return value is None or (isinstance(value, list) and None in value)


def _asked(settings: Mapping[str, Any], role: str) -> str:
    """Return the name of the model that was asked in a role; empty if it is not recorded."""
    grader = settings.get("grader") or {}
    graders = dict(zip(GRADERS, (grader.get("name"), grader.get("second")), strict=True))
    names = {"model": settings.get("model"), **graders}
    return str(names.get(role) or "")


def distinct_models(asked: str, names: Iterable[str]) -> list[str]:
    """Return the names that stand for different models.

    Names that differ only in case or in a provider's prefix are one. So are the name that was asked for and the only
    version that it was resolved to.

    - `asked`: the model's name in the run.
    - `names`: the names in the responses.

    >>> distinct_models("openai/gpt-x", ["gpt-x", "gpt-x-2026-06-01"]), distinct_models("a/b", ["b", "A/B"])
    (['gpt-x-2026-06-01'], ['b'])
    >>> distinct_models("openai/gpt-x", ["gpt-x-0601", "gpt-x-0711"])
    ['gpt-x-0601', 'gpt-x-0711']
    """
    by_key: dict[str, str] = {}
    for name in names:
        by_key.setdefault(key_of_model(name), name)
    alias = key_of_model(asked)
    versions = [key for key in by_key if key != alias]
    if len(versions) == 1 and versions[0].startswith(alias) and SNAPSHOT.fullmatch(versions[0], len(alias)):
        by_key.pop(alias, None)
    return list(by_key.values())


def key_of_model(name: str) -> str:
    """Return a model's name in lower case, without the names of providers before it."""
    return name.lower().rstrip("/").rpartition("/")[2]
