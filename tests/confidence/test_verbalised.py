"""Confidence that a model states: sloppy and hostile replies are read by the rules or not at all."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.plugins.confidence.method import Answer, Evidence
from refusal_index.plugins.confidence.model_scores import read_number, read_phrase, stated_confidence
from refusal_index.plugins.confidence.plan import METHODS
from refusal_index.protocol import StopReason
from tests.scores import Score, rows_of

ONE_STAGE = ("verbalised-number", "verbalised-words")
TWO_STAGES = ("verbalised-number-after", "verbalised-words-after")
LONG = 1_000_000


def replied(reply: str, *, wrong: bool | None = None, stop_reason: StopReason = StopReason.STOP) -> Answer:
    return Answer(reply, reply, wrong, stop_reason=stop_reason)


def scores(name: str, replies: dict[str, list[Answer]], answers: dict[str, Answer] | None = None) -> list[Score]:
    return rows_of(METHODS[name].scores(Evidence({}, answers or {}, probes={name: replies})))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("85", 0.85),
        ("85%", 0.85),
        ("85 %", 0.85),
        ("85\u00a0%", 0.85),
        ("85 percent", 0.85),
        ("85 per cent.", 0.85),
        ("85/100", 0.85),
        ("85 / 100", 0.85),
        ("85 out of 100", 0.85),
        ("85.5", 0.855),
        ("085", 0.85),
        ("\n 85.\n", 0.85),
        ("**85**", 0.85),
        ("`85%`", 0.85),
        ("[85]", 0.85),
        ("\u201c85\u201d", 0.85),
        ("0", 0.0),
        ("0.0", 0.0),
        ("0%", 0.0),
        ("1", 0.01),  # as it was asked for
        ("1%", 0.01),
        ("0.5%", 0.005),
        ("0.85/100", 0.0085),
        ("100", 1.0),
        ("100.0", 1.0),
        ("\uff18\uff15\uff05", 0.85),  # fullwidth
        ("\u0668\u0665\u066a", 0.85),  # Arabic
        ("\u096e\u096b", 0.85),  # Devanagari
    ],
)
def test_one_number_on_the_scale_is_read(text, number):
    assert read_number(text) == pytest.approx(number, abs=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "%",
        "/100",
        "0.85",  # a share, or less than one per cent
        "1.0",
        ".85",
        "850",
        "100.5",
        "1000",
        "101%",
        "-5",
        "\u22125",
        "+85",
        "~85",
        "<85",
        ">85",
        "85+",
        "85?",
        "85,5",
        "1,000",
        "8/10",
        "85/1000",
        "85/100/100",
        "85%%",
        "80-90",
        "80\u201390%",
        "between 80 and 90",
        "80 or 90",
        "80, 90",
        "85 (90)",
        "8 5",
        "about 85",
        "85 sure",
        "85% wrong",
        "below 85",
        "eighty-five",
        "one hundred",
        "very likely",
        "1e2",
        "0x55",
        "85\u200b",
        "\u2078\u2075",  # superscripts
        "\u00bd",
        "\u516b\u5341\u4e94",  # numerals that are no figures
        "LXXXV",
        "nan",
        "inf",
        "NUMBER",
        "85</confidence",
        "9" * LONG,
        "85" + " " * LONG + "x",
        "0." + "0" * LONG,
    ],
    ids=lambda text: text[:20],
)
def test_ambiguous_text_is_not_read_as_a_number(text):
    started = time.perf_counter()
    assert read_number(text) is None
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("almost no chance", 0.02),
        ("Very unlikely", 0.1),
        ("UNLIKELY", 0.25),
        ("about\n  even.", 0.5),
        ("**likely**", 0.75),
        ('"very likely"', 0.9),
        ("(almost certain)", 0.98),
    ],
)
def test_a_phrase_of_the_scale_is_read(text, value):
    assert read_phrase(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90",
        "certain",
        "not likely",
        "highly likely",
        "likely, very likely",
        "very-likely",
        "likely!",
        "even",
        "x" * LONG,
    ],
    ids=lambda text: text[:20],
)
def test_other_phrases_are_not_read(text):
    assert read_phrase(text) is None


@pytest.mark.parametrize(
    ("reply", "stated"),
    [
        ("<confidence>85</confidence>", "85"),
        ("<CONFIDENCE>85</Confidence>", "85"),
        ("I was 10 % sure in 1990 of 12. <confidence>85</confidence> So 7.", "85"),
        ("<confidence>10</confidence> No: <confidence>85</confidence>", "85"),
        ("<confidence>10 <confidence>85</confidence>", "85"),
        ("<confidence>85</confidence></confidence>", "85"),
        ("<confidence>85</confidence> <confidence>9", "85"),
        ("<think>a <confidence>10</confidence></think><confidence>85</confidence>", "85"),
        ("so <confidence>10</confidence></think><confidence>85</confidence>", "85"),
        ("<confidence></confidence>", ""),
        ("<confidence>85</confidence> <confidence></confidence>", ""),
        ("", None),
        ("85", None),
        ("85%", None),
        ("Confidence: 85", None),
        ("<answer>85</answer>", None),
        ("<confidence>85", None),
        ("85</confidence>", None),
        ("</confidence>85<confidence>", None),
        ("<confidence>85</answer>", None),
        ("<confidence>85<answer>x</answer></confidence>", None),
        ("<confidence/>85", None),
        ("<confidence value=85></confidence>", None),
        ("<think><confidence>85</confidence></think>", None),
        ("<think><confidence>85</confidence>", None),  # never closed
        ("<reasoning>x</reasoning>", None),
        ("<confidence>" * 50_000, None),
        ("<think>" * 50_000, None),
    ],
    ids=lambda text: str(text)[:40],
)
def test_last_complete_pair_of_tags_is_read(reply, stated):
    assert stated_confidence(replied(reply)) == stated


@pytest.mark.parametrize("reason", sorted({*StopReason} - {StopReason.STOP, StopReason.ANSWER}))
def test_truncated_or_filtered_reply_states_no_confidence(reason):
    assert stated_confidence(replied("<confidence>85</confidence>", stop_reason=reason)) is None


@given(st.text() | st.from_regex(r"(</?(answer|confidence|think)>|[0-9 .%/-]+){0,9}", fullmatch=True))
def test_any_reply_has_a_confidence_between_0_and_1_or_none(text):
    for name in (*ONE_STAGE, *TWO_STAGES):
        (score,) = scores(name, {"q": [replied(text)]}, {"q": replied("Lima", wrong=True)})
        assert score.confidence is None or 0 <= score.confidence <= 1
    for read in (read_number, read_phrase):
        assert read(text) is None or 0 <= read(text) <= 1


@pytest.mark.parametrize(("name", "reply"), [(ONE_STAGE[0], "90%"), (ONE_STAGE[1], "very likely")])
def test_one_stage_score_belongs_to_the_answer_in_that_reply(name, reply):
    replies = {
        "q2": [replied(f"<answer>Lima</answer><confidence>{reply}</confidence>", wrong=True)],
        "q1": [replied(f"<confidence>{reply}</confidence> <answer>Lima</answer>", wrong=False)],
        "q3": [replied(f"<answer>Lima</answer> {reply}", wrong=False)],
        "q4": [replied(f"Lima <confidence>{reply}</confidence>", wrong=True)],  # of what is not known
        "q5": [replied(f"<answer>Lima <confidence>{reply}</confidence></answer>", wrong=True)],
        "q6": [],
    }
    other = dict.fromkeys(replies, replied("Cusco", wrong=None))
    assert scores(name, replies, other) == [
        Score("q1", name, 0.9, False, of="probe"),
        Score("q2", name, 0.9, True, of="probe"),
        Score("q3", name, None, False, of="probe"),
        Score("q4", name, None, True, of="probe"),
        Score("q5", name, None, True, of="probe"),
    ]


@pytest.mark.parametrize(("name", "reply"), [(TWO_STAGES[0], "25"), (TWO_STAGES[1], "unlikely")])
def test_two_stage_score_belongs_to_the_forced_answer(name, reply):
    replies = {
        "q2": [replied(f"<confidence>{reply}</confidence>")],
        "q1": [replied(f"<confidence>{reply}</confidence>", wrong=True)],
        "q3": [replied("I am sure.")],
        "q4": [],
        "q5": [replied(f"<confidence>{reply}</confidence>")],  # its answer is no longer there
    }
    answers = {f"q{n}": replied("Lima", wrong=n == 2) for n in (1, 2, 3, 4, 6)}
    assert scores(name, replies, answers) == [
        Score("q1", name, 0.25, False),
        Score("q2", name, 0.25, True),
        Score("q3", name, None, False),
    ]


@pytest.mark.parametrize("name", [*ONE_STAGE, *TWO_STAGES])
def test_replies_without_stated_confidence_have_no_score(name):
    replies = {f"q{n}": [replied("<answer>UNANSWERED</answer>", wrong=True)] for n in range(7)}
    found = scores(name, replies, {one: stated[0] for one, stated in replies.items()})
    assert [one.confidence for one in found] == [None] * 7
    assert scores(name, {}) == []


@pytest.mark.parametrize("name", [*ONE_STAGE, *TWO_STAGES])
def test_phrases_and_numbers_are_not_interchangeable(name):
    stated = "likely" if "number" in name else "75"
    answer = replied(f"<answer>Lima</answer><confidence>{stated}</confidence>", wrong=False)
    assert [score.confidence for score in scores(name, {"q": [answer]}, {"q": answer})] == [None]
