"""Sentences about results: a Jinja2 template for each code of a statement, in ``en.toml``.

Values are not escaped; the code that prints or embeds a sentence does that.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from refusal_index.data.analysis import Analysis
from refusal_index.findings.metrics import METRICS, Statement
from refusal_index.render import format as formats

if TYPE_CHECKING:
    from jinja2 import Environment, Template

Audience = Literal["text", "page", "title"]
"""Plain text; the report, whose numbers are typeset; a title in the report."""

_NUMBERS = ("number", "signed", "interval", "interval_of", "span", "estimate", "pvalue", "p_text", "percent", "share")
_WORDS = ("count", "dollars", "duration", "listed", "counted", "title", "reason_text", "fitted")


def sentence(statement: Statement, audience: Audience = "text") -> str:
    """Return the sentence of a statement; the report uses the plain-text sentence unless it has its own."""
    sections = sentences()
    section = audience if audience != "page" or statement.code in sections["page"] else "text"
    return fill(sections[section][statement.code], statement.values, typeset=audience != "text")


def caveat_line(statement: Statement, place: str = "") -> str:
    """Return the sentence of a statement, marked as a caveat if it is serious, with its place among others."""
    text = sentence(statement)
    if statement.severity != "serious":
        return text
    return f"Caveat{place}{', ' if statement.values.get('first') and statement.code == 'same_for' else ': '}{text}"


def description(metric: str, analysis: Analysis, *, typeset: bool = True) -> str:
    """Return the description of a metric for the given payoffs of scores, typeset for a page."""
    payoffs = analysis.payoffs
    right, refused, wrong = payoffs.truthfulness
    values = {"weighted_score_p": payoffs.weighted_score_p, "right": right, "refused": refused, "wrong": wrong}
    return fill(sentences()["metric"][metric], values, typeset=typeset)


def selected(result: Any, *codes: str, audience: Audience = "text") -> Iterator[str]:
    """Yield the sentences of a result's statements with the given codes, in order."""
    return (sentence(statement, audience) for statement in result.statements if statement.code in codes)


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield each line after an empty one."""
    for line in lines:
        yield from ("", line)


def phrase(code: str, section: str) -> str:
    """Return the phrase for a code used inside sentences; a code without one is formatted as a reason."""
    return sentences()[section].get(code) or formats.reason_text(code)


def fill(template: str, values: Mapping[str, Any], *, typeset: bool = False) -> str:
    """Fill in a template, whose filters are the functions of `render.format`, `phrase` and `sentence`."""
    return _compiled(template, typeset).render(values)


_PACKAGES = ["refusal_index.render"]


def add_sentences(package: str) -> None:
    """Add the templates in ``en.toml`` of a plugin's package to those of the core."""
    if package not in _PACKAGES:
        _PACKAGES.append(package)
        sentences.cache_clear()


@cache
def sentences() -> Mapping[str, Mapping[str, str]]:
    """Return all templates, by section and code."""
    by_section: dict[str, dict[str, str]] = {}
    for package in _PACKAGES:
        text = resources.files(package).joinpath("en.toml").read_text(encoding="utf-8")
        for section, templates in tomllib.loads(text).items():
            by_section.setdefault(section, {}).update(templates)
    return by_section


@cache
def _compiled(template: str, typeset: bool) -> Template:
    return _environment(typeset).from_string(template)


@cache
def _environment(typeset: bool) -> Environment:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - many runs show no sentence

    environment = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - escaped where it is shown
    environment.filters |= filters(typeset=typeset)
    return environment


def filters(*, typeset: bool) -> dict[str, Callable[..., str]]:
    """Return the filters of a template by name."""
    functions = {name: getattr(formats, name) for name in (*_NUMBERS, *_WORDS)}
    if typeset:
        functions |= {name: typesetting(functions[name]) for name in _NUMBERS}
    audience: Audience = "page" if typeset else "text"
    shown = {"sentence": partial(sentence, audience=audience), "titled": partial(sentence, audience="title")}
    named = {
        "column": lambda name: METRICS[name].column,
        "guarded": lambda name: sentences()["guarded"].get(name, METRICS[name].column),
    }
    return {**functions, **shown, **named, "phrase": phrase, "quoted": repr}


def typesetting(function: Callable[..., str]) -> Callable[..., str]:
    """Return a formatting function whose results are typeset."""
    return lambda *args: formats.typeset(function(*args))
