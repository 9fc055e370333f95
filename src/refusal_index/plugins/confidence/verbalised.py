"""Scores that the model states: a number or a phrase, with its answer or after it.

In one stage the model answers and says how sure it is in the same reply, and the score is for the answer in that reply.
In two stages it is asked about the forced answer. Whoever asks in words shows the phrases alone; what each is read as
(`refusal_index.plugins.confidence.prompts`) moves the calibration error, but leaves the order of the answers.

A reply is read by rules and never guessed at: what they do not settle has no score, and is counted.

References
----------
.. [1] Lin, Hilton and Evans (2022). Teaching models to express their uncertainty in words. :arxiv:`2205.14334`
.. [2] Tian et al. (2023). Just ask for calibration: strategies for eliciting calibrated confidence scores from
   language models fine-tuned with human feedback. :arxiv:`2305.14975`; with one stage and two, numbers and phrases.
.. [3] Xiong et al. (2023). Can LLMs express their uncertainty? :arxiv:`2306.13063`
.. [4] Office of the Director of National Intelligence (2015). Intelligence Community Directive 203: Analytic
   standards; the ranges of probability that its phrases stand for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise

from refusal_index.data.confidence import Score
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need, Prompt
from refusal_index.plugins.confidence.prompts import shipped
from refusal_index.protocol import Pass, StopReason
from refusal_index.protocol.replies import without_reasoning

Read = Callable[[str], float | None]

MARK = re.compile(r"<(/?)(answer|confidence)>", re.IGNORECASE)
NUMBER = re.compile(
    r"(?P<number>\d{1,3}(?:\.\d{1,9})?) ?(?P<unit>[%\uff05\u066a]|per ?cent|/ ?100|out of 100)?", re.IGNORECASE
)
PER_CENT = 100
AROUND = "*_`\"'\u201c\u201d\u2018\u2019()[] "
"""What may stand around a number or a phrase and says nothing."""


def verbalised(evidence: Evidence, name: str, prompt: Prompt, read: Read) -> Iterable[Score]:
    """Yield what the model said of each answer, in the order of the questions' ids; nothing where no reply came.

    Parameters
    ----------
    evidence, name
        Whose replies, and the method.
    prompt
        What was asked.
    read
        From what stands between the tags to a probability, or None.

    Examples
    --------
    >>> said = Answer("Lima", "<answer>Lima</answer> <confidence>85</confidence>", wrong=False)
    >>> asked = shipped().prompts["verbalised-number"]
    >>> evidence = Evidence("model", {}, {}, probes={asked.name: {"q1": [said]}})
    >>> [(one.confidence, one.wrong, one.of) for one in verbalised(evidence, asked.name, asked, read_number)]
    [(0.85, False, 'probe')]
    """
    for question_id, replies in sorted(evidence.probes.get(prompt.name, {}).items()):
        scored = replies[0] if replies and prompt.is_graded else evidence.answers.get(question_id)
        if not replies or scored is None:
            continue
        stated = stated_confidence(replies[0], beside_answer=prompt.is_graded)
        confidence = None if stated is None else read(stated)
        of = Pass.PROBE if prompt.is_graded else Pass.FORCED
        yield Score(question_id, name, confidence, scored.wrong, of=str(of))


def stated_confidence(reply: Answer, *, beside_answer: bool = False) -> str | None:
    """Return what a reply says between its confidence tags, or None.

    The last complete pair counts, as the prompt asks for it at the end; tags inside a reasoning block do not. A pair is
    an opening and a closing tag of the same name with no tag of ours between them. What stands elsewhere never counts,
    be it a number: it may be the answer, or part of the question. Nor does a reply that the provider cut or filtered,
    even where it holds a tag, as nobody knows what would have followed.

    Parameters
    ----------
    reply
        The reply, word for word.
    beside_answer
        Whether it must hold an answer between tags, too: without them nobody knows what the confidence is of.

    Examples
    --------
    >>> stated_confidence(Answer("", "<think><confidence>10</confidence></think> <confidence>85%</confidence>", None))
    '85%'
    >>> stated_confidence(Answer("", "I am 85% sure.", None)) is None
    True
    """
    if reply.stop_reason is not StopReason.STOP:
        return None
    said = without_reasoning(reply.reply)
    marks = list(MARK.finditer(said))
    tagged = {
        left[2].lower(): said[left.end() : right.start()]  # of several the last
        for left, right in pairwise(marks)
        if not left[1] and right[1] and left[2].lower() == right[2].lower()
    }
    return None if beside_answer and "answer" not in tagged else tagged.get("confidence")


def read_number(text: str) -> float | None:
    """Read a probability from a number from 0 to 100.

    The number stands alone, but for emphasis, quotes or brackets around it, a full stop after it, and one of ``%``,
    ``percent``, ``per cent``, ``/100`` and ``out of 100``. It has one to three figures, of any script, and may have
    further ones after a decimal point. None is:

    - a range or several numbers, a number in words, and a number with words or signs beside it: "85 sure" and "85
      wrong", "over 85" and "-85" are not the same, and no list of what to pass over would be complete;
    - a number over 100, a decimal comma, another denominator as in "8/10";
    - a number above 0 and up to 1 that has a decimal point and no unit: 0.85 may be meant as a share or as less than
      one per cent. A plain "1" is one per cent, as it was asked for.

    Parameters
    ----------
    text
        What stands between the tags.

    Examples
    --------
    >>> [read_number(text) for text in ("85", "**85%**", "85/100", "0", "0.5 %")]
    [0.85, 0.85, 0.85, 0.0, 0.005]
    >>> [read_number(text) for text in ("0.85", "80-90", "850", "-5", "about 85", "eighty-five", "")]
    [None, None, None, None, None, None, None]
    """
    found = NUMBER.fullmatch(_bare(text))
    if found is None:
        return None
    value = float(found["number"])
    may_be_share = "." in found["number"] and 0 < value <= 1 and not found["unit"]
    return None if may_be_share or value > PER_CENT else value / PER_CENT


def read_phrase(text: str) -> float | None:
    """Read a probability from a phrase of the scale, whatever its case, emphasis, quotes and full stop.

    Any other phrase is None: what it is worth would be a guess.

    Parameters
    ----------
    text
        What stands between the tags.

    Examples
    --------
    >>> [read_phrase(text) for text in ("Very likely.", "unlikely", "quite likely", "likely or very likely", "90")]
    [0.9, 0.25, None, None, None]
    """
    return shipped().scale.get(_bare(text).casefold())


def _bare(text: str) -> str:
    """Return text with single blanks, without what stands around it and the full stop after it."""
    return " ".join(text.split()).strip(AROUND).removesuffix(".").strip(AROUND)


def _method(name: str, about: str, read: Read) -> Method:
    prompt = shipped().prompts[name]
    score = partial(verbalised, name=name, prompt=prompt, read=read)
    return Method(name, about, score, frozenset({Need.REQUESTS}), (prompt,))


METHODS = (
    _method("verbalised-number", "number from 0 to 100 that the model gives along with an answer", read_number),
    _method("verbalised-words", "one of seven phrases that the model gives along with an answer", read_phrase),
    _method("verbalised-number-after", "number from 0 to 100 that the model gives its answer afterwards", read_number),
    _method("verbalised-words-after", "one of seven phrases that the model gives its answer afterwards", read_phrase),
)
