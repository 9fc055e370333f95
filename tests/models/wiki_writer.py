"""Synthetic Wikipedia pages, and a scripted writer of questions that misbehaves as planned.

Every section names one town, one thing in it and one year. What the writer does with a section depends on the number
of its town: most get a plain question and answer, each of the others a fault that a build must detect.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from aiohttp import web

from refusal_index.plugins.almanac.chat_api import ModelPool
from refusal_index.plugins.almanac.llama import GenerationResult

THINGS = ("lighthouse", "aqueduct", "observatory", "tannery")
FILLER = "It stands a short walk from the market and has been repaired more than once since then. "
FACT = re.compile(r"The (\w+) of (Town \d+) was finished in (\d{4})")
TAKEN_FROM_ALL = 20
CUT = "[length]"
"""Marks a reply that the scripted server truncates."""

FAULTS = {
    0: "unanswerable",
    1: "vague",
    2: "leak",
    3: "duplicate",
    4: "question_unreadable",
    5: "nothing_to_ask",
    6: "answer_too_long",
    7: "points_at_text",
    8: "cut_short",
    9: "not_in_text",
}
"""The fault of a section, by the number of its town modulo 20; all others give a question."""


def page(number: int, sections: int = 2) -> dict[str, object]:
    """Return a page with the columns of GoodWiki and a level of difficulty."""
    town = f"Town {number}"
    parts = [f"{town} is a town of the north. {FILLER * 8}"]
    parts += [
        f"# Sights\n\n## {thing.title()}\n\nThe {thing} of {town} was finished in {1500 + number + index}. {FILLER * 8}"
        for index, thing in enumerate(THINGS[:sections])
    ]
    return {
        "pageid": 1000 + number,
        "title": town,
        "revid": 5000 + number,
        "description": None,
        "categories": [f"Towns of region {number % 3}", "Towns"],
        "markdown": "\n\n".join(parts) + "\n\n# References\n\n" + "A book. " * 100,
        "difficulty": number % 4,
    }


def write_pages(path: Path, count: int, sections: int = 2) -> Path:
    """Write pages as JSON Lines."""
    path.write_text("".join(json.dumps(page(number, sections)) + "\n" for number in range(count)))
    return path


def is_question(message: str) -> bool:
    return "You write quiz questions" in message


def fault_of(number: int) -> str | None:
    return FAULTS.get(number % TAKEN_FROM_ALL)


def writer(message: str) -> str:
    """Write a question or answer one from the text that the message shows, with the fault of its town."""
    fact = FACT.search(message)
    if fact is None:  # the lead of a page
        return "<question>NONE</question>"
    thing, town, year = fact.groups()
    fault = fault_of(int(town.split()[1]))
    return _question(thing, town, year, fault) if is_question(message) else _answer(year, fault)


def _question(thing: str, town: str, year: str, fault: str | None) -> str:
    return {
        "leak": f"<question>What was finished in {year} in {town}, in the year {year}?</question>",
        "duplicate": "<question>In what year was the lighthouse finished?</question>",
        "question_unreadable": "Certainly! Here is a question.",
        "nothing_to_ask": "<question>NONE</question>",
        "points_at_text": "<question>According to the text, when was it finished?</question>",
        "cut_short": "<question>In what ye[length]",
    }.get(fault or "", f"Let me see.\n<question>In what year was the {thing} of {town} finished?</question>")


def _answer(year: str, fault: str | None) -> str:
    return {
        "unanswerable": "<answer>UNANSWERABLE</answer>",
        "vague": "<answer>Several years</answer>",
        "answer_too_long": f"<answer>It was finished at long last in the year of {year} or so</answer>",
        "not_in_text": "<answer>Nineteen-oh-two</answer>",
    }.get(fault or "", f"<answer>{year}</answer>")


def error_500() -> web.Response:
    return web.json_response({"error": {"message": "no", "type": "t", "code": None}}, status=500)


def reply(messages: list[dict[str, str]]) -> str:
    """Reply as a model function."""
    return writer(messages[-1]["content"]).removesuffix(CUT)


class WriterPool(ModelPool):
    """The writer as the models of a server."""

    def __init__(self, *names: str) -> None:
        super().__init__(names, Path)

    def runtime(self, model: str) -> Any:
        """Return the writer, whatever it is called."""
        self.name(model)
        return self

    async def complete(self, messages: list[Any], **_settings: object) -> list[GenerationResult]:
        """Reply to a conversation as the scripted server does."""
        text = writer(messages[-1].content)
        return [GenerationResult(text.removesuffix(CUT), "length" if text.endswith(CUT) else "stop", 100, 5)]
