"""The final answer in a reply: answer tags, LaTeX, labels, quotation marks, reasoning."""

# ruff: noqa: RUF001
from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal_index.data.text import PatternError
from refusal_index.protocol.final_answer import (
    PAIRS,
    answer_start,
    find_final_answer,
    is_unanswered,
    unwrapped,
    without_reasoning,
)

HARMONY = "<|channel|>analysis<|message|>Is it Graz?<|end|><|start|>assistant<|channel|>final<|message|>"

MARKED = {
    "a box": (r"So we get \boxed{42}.", "42"),
    "the last box": (r"\boxed{1} is wrong, so \boxed{2}", "2"),
    "a box in display mathematics": ("Hence\n$$\\boxed{\\text{Graz}}$$", "Graz"),
    "a box with nested braces": (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    "a box with escaped braces": (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    "a box in a box": (r"\boxed{\boxed{B}}", "B"),
    "a box with a doubled backslash": (r"\\boxed{Graz}", "Graz"),
    "a framed box": (r"\fbox{Graz}", "Graz"),
    "a box before one that is not closed": (r"\boxed{Graz} or \boxed{Wien", "Graz"),
    "a box in a tag": (r"<answer>It is $\boxed{\mathrm{B}}$</answer>", "B"),
    "LaTeX in a tag": (r"<answer>\(\textbf{Graz}\)</answer>", "Graz"),
    "quotation marks in a tag": ("<answer>“Graz”.</answer>", "Graz"),
    "a label in a tag": ("<answer>Final answer: Graz</answer>", "Graz"),
    "a bold label": ("Graz is in Styria.\n**Answer:** Graz", "Graz"),
    "a label and answer in bold": ("Graz is in Styria.\n**Answer: Graz**", "Graz"),
    "a label and answer, each in bold": ("**Final Answer:** **Graz**", "Graz"),
    "a label without space": ("**Answer:**Graz", "Graz"),
    "a bold label before its colon": ("**Final answer**: Graz", "Graz"),
    "a sentence with a colon": ("The correct answer is: Graz.", "Graz."),
    "a sentence with the answer in bold": ("So the answer is **Graz**.", "Graz"),
    "a heading": ("It is in Styria.\n\n## Final Answer\n\nGraz", "Graz"),
    "a label above the answer": ("It is in Styria.\nAnswer:\nGraz", "Graz"),
    "German": ("Das ist in der Steiermark.\nAntwort: Graz", "Graz"),
    "German, a sentence": ("Die richtige Antwort lautet: „Graz“", "Graz"),
    "French": ("Réponse finale : Graz", "Graz"),
    "Spanish": ("La respuesta correcta es: Graz", "Graz"),
    "Italian": ("La risposta è: Graz", "Graz"),
    "Portuguese": ("Resposta: Graz", "Graz"),
    "Dutch": ("Het antwoord is: Graz", "Graz"),
    "Polish": ("Odpowiedź: Graz", "Graz"),
    "Czech": ("Správná odpověď je: Graz", "Graz"),
    "Russian": ("Ответ: Грац", "Грац"),
    "Chinese": ("最终答案：「格拉茨」", "格拉茨"),
    "Japanese": ("最終的な答えは：グラーツ", "グラーツ"),
    "Korean": ("정답: 그라츠", "그라츠"),
}

UNMARKED = {
    "a sentence": "It is Graz.",
    "a sentence about the answer": "The answer is not in the passage.",
    "a label in the middle": "My answer: none yet.\nI shall think.",
    "a label without content": "Question: where?\nAnswer:",
    "an amount": "$5",
    "two amounts": "$5 or $6",
    "a path": r"C:\text\new",
    "two quotations": "“Graz” or “Wien”",
    "two bold words": "**Graz** or **Wien**",
    "a Python name": "__init__",
    "a set": "{1, 2}",
    "a command and more": r"\text{Graz} or \text{Wien}",
    "full-width characters": "Ｂ：ＧＲＡＺ１",
    "a box that is not closed": r"\boxed{Graz",
    "answers": "Answers: many",
}


@pytest.mark.parametrize(("reply", "answer"), MARKED.values(), ids=MARKED)
def test_marked_answer_is_found_in_many_forms(reply, answer):
    found = find_final_answer(reply)
    assert (found.text, found.marked) == (answer, True)


@pytest.mark.parametrize("reply", UNMARKED.values(), ids=UNMARKED)
def test_reply_without_a_mark_is_the_answer_word_for_word(reply):
    found = find_final_answer(reply)
    assert (found.text, found.marked, found.n_tags, found.well_formed) == (reply, False, 0, False)


@pytest.mark.parametrize(
    ("reply", "n_tags", "well_formed"),
    [
        ("<answer>Graz</answer>", 1, True),
        ("<answer>Graz</answer><answer>Wien</answer>", 2, False),
        ("<answer>Graz</answer></answer>", 1, False),
        ("<answer>\u200b</answer>", 1, False),
        ("<answer>Graz", 0, False),
        ("<thought><answer>Wien</answer></thought><answer>Graz</answer>", 1, True),
    ],
)
def test_tags_are_counted_outside_the_reasoning(reply, n_tags, well_formed):
    found = find_final_answer(reply)
    assert (found.n_tags, found.well_formed) == (n_tags, well_formed)


@pytest.mark.parametrize(
    "reply",
    [
        "[THINK]Is it Wien?[/THINK]Graz",
        "<thought>Is it Wien?</thought>Graz",
        "<seed:think>Is it Wien?</seed:think>Graz",
        "◁think▷Is it Wien?◁/think▷Graz",
        "<|begin_of_thought|>Is it Wien?<|end_of_thought|>Graz",
        "<|START_THINKING|>Is it Wien?<|END_THINKING|>Graz",
        "Is it Wien?[/THINK]Graz",
        "Is it Wien?</seed:think>Graz",
        "Graz<thought>Or is it Wien?",
        f"{HARMONY}Graz",
        f"{HARMONY}Graz<|return|>",
        f"<|start|>assistant{HARMONY}Graz<|end|>",
        f"{HARMONY}Wien<|end|><|start|>assistant{HARMONY}Graz",
        "<|channel|>commentary to=functions.x <|constrain|>json<|message|>{}<|call|>" + HARMONY + "Graz",
        "Is it Wien?<|end|><|start|>assistant<|channel|>final<|message|>Graz",
        "analysisIs it Wien?assistantfinalGraz",
        "analysisIs it Wien?assistantcommentaryNo.assistantfinalGraz",
    ],
)
def test_reasoning_in_the_formats_of_several_models_is_removed(reply):
    assert without_reasoning(reply) == "Graz"


@pytest.mark.parametrize(
    "reply",
    ["<|channel|>analysis<|message|>Is it Graz?", "<|start|>assistant<|channel|>analysis<|message|>G", "analysisIs it"],
)
def test_reply_with_an_analysis_only_has_no_answer(reply):
    assert find_final_answer(reply).text == ""


@pytest.mark.parametrize("reply", ["analysis of variance", "I [think] it is Graz", "The assistant finalised it."])
def test_words_that_resemble_reasoning_marks_are_kept(reply):
    assert without_reasoning(reply) == reply


def test_own_pattern_removes_reasoning_and_has_a_time_limit():
    assert find_final_answer("((<answer>Wien</answer>)) <answer>Graz</answer>", r"\(\(.*?\)\)").n_tags == 1
    assert find_final_answer("<think>Wien</think>NOTE Linz END Graz", "note.*?end").text == "Graz"
    with pytest.raises(PatternError):
        find_final_answer("Graz", "(")
    with pytest.raises(TimeoutError):
        find_final_answer("a" * 40 + "b", "(a|aa)+$")


@pytest.mark.parametrize(
    "content",
    [
        "UNANSWERED",
        "unanswered.",
        "**Unanswered**",
        r"\text{UNANSWERED}",
        "$\\mathbf{UNANSWERED}$",
        "UNANSWERED (unsure)",
        "UNANSWERED because no source says so",
        "UNANSWERED – no source",
        "Unanswered: no source",
        "unanswered\nno source",
        "UNANSWERED（来源不足）",
        "I must say UNANSWERED",
        "Graz or UNANSWERED",
        "_UNANSWERED_",
        "<UNANSWERED>",
    ],
)
def test_unanswered_as_a_tag_declines_alone_or_with_more(content):
    assert is_unanswered(content)


@pytest.mark.parametrize(
    "content",
    [
        "Graz",
        "",
        "The call went unanswered",
        "Unanswered Prayers",
        "The Unanswered Question",
        "THE CALL WENT UNANSWERED",
        "UNANSWERED QUESTIONS",
        "UNANSWEREDNESS is a word",
        "unanswered-call log",
    ],
)
def test_unanswered_as_an_ordinary_word_does_not_decline(content):
    assert not is_unanswered(content)


@pytest.mark.parametrize(
    ("reply", "answer", "start"),
    [
        (r"Graz? <answer>\boxed{\text{Graz}}</answer> Graz", "Graz", 27),
        ("Answer: A", "A", 8),
        ("<think>Graz?</think>Graz", "Graz", 20),
        ("Graz", "Wien", None),
        ("Graz", "", None),
    ],
)
def test_answer_starts_where_it_was_read(reply, answer, start):
    assert answer_start(reply, answer) == start


PIECES = st.sampled_from(
    [
        *("<answer>", "</answer>", "<think>", "</think>", "[THINK]", "[/THINK]", "<|channel|>final<|message|>"),
        *(
            "\\boxed{",
            "\\text{",
            "}",
            "{",
            "$",
            "$$",
            "\\(",
            "\\)",
            "**",
            "*",
            "`",
            '"',
            "„",
            "“",
            "Answer:",
            "\n",
            " ",
        ),
        *("UNANSWERED", "analysis", "assistantfinal", "a", "É", "答案：", "\\", "."),
    ]
)
REPLIES = st.lists(PIECES | st.text(max_size=3), max_size=14).map("".join)


@given(REPLIES)
@example("**Answer:**\n`a`")
def test_property_answer_is_part_of_the_visible_reply_and_can_be_located(reply):
    found = find_final_answer(reply)
    visible = re.sub("</?answer>", "", without_reasoning(reply), flags=re.IGNORECASE)
    assert found.text in visible
    assert found.text == found.text.strip()
    assert found.marked >= bool(found.n_tags)
    assert not found.well_formed or (found.n_tags == 1 and found.text)
    if found.text and "<" not in reply and "[" not in reply and "assistant" not in reply:
        assert reply[answer_start(reply, found.text) :].startswith(found.text)


@given(st.sampled_from(PAIRS), st.from_regex(r"[A-Za-z0-9%€][A-Za-z0-9 %€]{0,8}[A-Za-z0-9]", fullmatch=True))
def test_property_one_pair_of_enclosing_marks_is_removed(pair, answer):
    opening, closing = pair
    assert unwrapped(f"{opening}{answer}{closing}") == answer
    assert find_final_answer(f"<answer>{opening}{answer}{closing}.</answer>").text == answer


EARLIER = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
EARLIER_UNOPENED = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<THINKING>", "</thinking>", "<reasoning>", "</reasoning>", "a", " b"])
    ).map("".join)
)
def test_property_blocks_agree_with_removal_by_regular_expressions(reply):
    assert without_reasoning(reply) == EARLIER_UNOPENED.sub("", EARLIER.sub("", reply)).strip()


@pytest.mark.parametrize(
    "unit",
    [
        *("<think>", "</think>", "[THINK]", "<|channel|>", "<|channel|>final<|message|>", "<|channel|>x<|constrain|>"),
        *("assistantfinal", "analysis", "{", "}", "\\boxed{", "\\boxed{}", "\\text{", "\\", "$", "*", '"', "`"),
        *("Answer:", "Answer: ", "answer ", "the ", "final ", "so ", " ", "\n", "_ ", "#", "<answer>", "UNANSWERED "),
    ],
)
@pytest.mark.timeout(20)
def test_many_repeated_marks_are_read_in_linear_time(unit):
    # In linear time, this takes less than 0.1 s; in quadratic time, minutes.
    reply = unit * (2**18 // len(unit))
    found = find_final_answer(reply)
    assert len(found.text) <= len(reply)
    assert is_unanswered(found.text) is ("UNANSWERED" in unit)
