"""Reasoning in a reply, which models write before their answer in many formats."""

from __future__ import annotations

import re

from refusal_index.data.text import SECONDS, compiled

NAMES = ("think", "thinking", "reasoning", "thought", "thoughts", "seed:think")
IN_ANY_CASE = (*((f"<{name}>", f"</{name}>") for name in NAMES), ("◁think▷", "◁/think▷"))
IN_ONE_CASE = (
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
REASONING = {mark: (pair, mark == pair[1]) for pair in (*IN_ANY_CASE, *IN_ONE_CASE) for mark in pair}
"""For each mark, the opening and the closing mark of its kind, and whether it is the closing one."""
REASONING_MARK = re.compile(
    f"(?i:{'|'.join(re.escape(mark) for pair in IN_ANY_CASE for mark in pair)})"
    f"|{'|'.join(re.escape(mark) for pair in IN_ONE_CASE for mark in pair)}"
)
# gpt-oss: each message has a channel; the text of the marks remains where special tokens were removed
CHANNEL = re.compile(
    r"<\|channel\|>\s*(?P<name>\w+)[^<]*+(?:<\|constrain\|>[^<]*+)?<\|message\|>|(?<=\S)assistant(?P<bare>final)"
)
CHANNEL_END = re.compile(r"<\|(?:end|return|call|start)\|>|(?<=\S)assistant(?:analysis|commentary|final)")
BARE_ANALYSIS = re.compile(r"\s*analysis[^\W\d_a-z]")


def without_reasoning(text: str, reasoning: str | None = None) -> str:
    r"""Return `text` without its reasoning blocks.

    A block that is never closed extends to the end; one without an opening mark, which some chat templates print
    themselves, starts at the beginning. Of a reply with the channels of gpt-oss, the last final message remains.

    Parameters
    ----------
    text
        A reply.
    reasoning
        A regular expression whose matches are removed, too; raises TimeoutError if it takes longer than a second.

    Examples
    --------
    >>> without_reasoning("The capital? Lima.</think> Lima")
    'Lima'
    >>> without_reasoning("[[Rome?]] Lima", r"\[\[.*?\]\]")
    'Lima'
    """
    if reasoning is not None:
        text = compiled(reasoning).sub("", text, timeout=SECONDS)
    return _without_blocks(_final_message(text)).strip()


def _final_message(text: str) -> str:
    """Return the last final message of a reply with channels; of any other reply, all of it."""
    messages = list(CHANNEL.finditer(text))
    final = [message for message in messages if "final" in (message["name"], message["bare"])]
    if final:
        start = final[-1].end()
        end = CHANNEL_END.search(text, start)
        return text[start : end.start()] if end else text[start:]
    if messages:
        return text[: messages[0].start()].removesuffix("<|start|>assistant")
    return "" if BARE_ANALYSIS.match(text) else text


def _without_blocks(text: str) -> str:
    """Remove reasoning blocks, in one pass over their marks."""
    kept: list[str] = []
    position = 0
    open_pair = None
    for mark in REASONING_MARK.finditer(text):
        pair, is_closing = REASONING.get(mark[0]) or REASONING[mark[0].lower()]
        if open_pair is None and is_closing:  # all so far was reasoning
            kept.clear()
            position = mark.end()
        elif open_pair is None:
            kept.append(text[position : mark.start()])
            open_pair = pair
        elif is_closing and pair == open_pair:
            open_pair = None
            position = mark.end()
    if open_pair is None:
        kept.append(text[position:])
    return "".join(kept)
