"""Checks of how replies were read and graded: their thresholds, and the counts of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.findings.metrics import Statement
from refusal_index.findings.reply_checks import ReplyChecks, repeated_sentences, reply_caveats
from refusal_index.findings.reply_groups import groups_by_variant, reply_groups
from refusal_index.findings.unclear import UnclearReplies, unclear_caveats
from refusal_index.protocol import GraderKind, Pass, Regrading, Reply, Role, TwoPass
from refusal_index.protocol.refusals import RefusalRule
from refusal_index.render.replies import replies_blocks
from refusal_index.render.sentences import sentence
from refusal_index.runs.reply_counter import ReplyCounter
from refusal_index.stats import Estimate

NOTHING = ReplyChecks({}, answers=100, untagged=0, unclear=0, unread_choices=0, wrong=40, wrong_with_gold=0)


def rows(replies: Sequence[tuple[str, bool, bool]]) -> pl.DataFrame:
    asked = Identification("m", "d", "normal")
    return outcome_table(
        (asked, Question(f"q{i}", "?", "!"), Outcome(refused, wrong, first_reply=reply, reading="answer"))
        for i, (reply, refused, wrong) in enumerate(replies)
    )


SOME = rows([("no", True, True), ("yes", False, False)])


def codes(checks: ReplyChecks | None, table: pl.DataFrame = SOME) -> list[str]:
    found = list(reply_caveats(table, checks))
    assert all(sentence(statement) for statement in found)
    return [statement.code for statement in found]


def test_nothing_to_say_without_counts():
    assert codes(None) == []
    assert codes(NOTHING) == []


@pytest.mark.parametrize(
    ("wrong", "with_gold", "found"),
    [
        (80, 4, []),  # fewer than five
        (80, 5, ["wrong_with_gold"]),
        (100, 5, []),  # 5 % exactly
        (100, 6, ["wrong_with_gold"]),
        (0, 0, []),
    ],
)
def test_wrong_answers_that_contain_the_right_one_are_a_caveat_above_five_per_cent(wrong, with_gold, found):
    assert codes(replace(NOTHING, wrong=wrong, wrong_with_gold=with_gold)) == found


@pytest.mark.parametrize(
    ("answers", "unread", "found"),
    [(100, 4, []), (100, 5, ["unread_choices"]), (200, 6, []), (200, 7, ["unread_choices"])],
)
def test_choices_that_cannot_be_read_are_a_caveat_above_three_per_cent(answers, unread, found):
    assert codes(replace(NOTHING, answers=answers, unread_choices=unread)) == found


def test_caveats_state_their_counts():
    checks = ReplyChecks({}, answers=90, untagged=80, unclear=0, unread_choices=9, wrong=40, wrong_with_gold=30)
    one, other = reply_caveats(SOME, checks)
    assert dict(one.values) == {"wrong": 40, "with_gold": 30, "untagged": 80, "answers": 90}
    assert dict(other.values) == {"unread": 9, "answers": 90}
    assert one.severity == other.severity == "serious"


def test_wrong_answers_with_one_sentence_are_a_caveat_if_a_rule_graded():
    repeated = [("There is nothing about this here. Sorry.", False, True)] * 5
    table = rows([*repeated, ("no", True, True), *[(f"It was person {n}.", False, True) for n in range(100)]])
    assert codes(NOTHING, table) == ["repeated_sentence"]
    assert codes(replace(NOTHING, wrong=None, wrong_with_gold=None), table) == []
    assert codes(NOTHING, rows([*repeated[:4], ("no", True, True)])) == []
    many = [(f"It was person {n}.", False, True) for n in range(200)]
    assert codes(NOTHING, rows([*repeated, ("no", True, True), *many])) == []


def test_run_without_refusals_gets_a_note():
    assert codes(NOTHING, rows([("Lima", False, True)])) == ["no_refusals_found"]
    assert codes(replace(NOTHING, wrong=None), rows([("Lima", False, True)])) == []


def test_repeated_sentences_ignore_case_tags_and_reasoning():
    replies = [
        "[THINK]Hm. What?[/THINK]I cannot tell you that. Sorry.",
        "<answer>I CANNOT tell you that.</answer>",
        "Lima",
        "文中没有提到。",
    ]
    assert repeated_sentences(replies) == [("I cannot tell you that.", 2), ("文中没有提到。", 1)]


def test_counts_round_trip_through_a_summary():
    checks = ReplyChecks({"tag": 3, "wording": 2}, 10, 4, 1, 0, 5, 2)
    assert ReplyChecks.read(json.loads(json.dumps(checks.to_document()))) == checks
    for invalid in ({"answers": True}, {"answers": "10"}, {"wrong": 1.5}, {"answers": None}):
        with pytest.raises(TypeError):
            ReplyChecks.read({**checks.to_document(), **invalid})


# --- The counts of a run

RIVER = Question("q", "Which river flows through Prague?", "the Vltava", aliases=("Moldau",))
LETTERED = Question("q", "Which river?", "Vltava", choices=("Elbe", "Vltava", "Cannot be determined"))


def counted(
    replies: Sequence[str],
    question: Question = RIVER,
    kind: GraderKind = GraderKind.EXACT,
    rule: RefusalRule | None = None,
) -> ReplyChecks:
    procedure = Regrading(kind, refusals=rule)
    counter = ReplyCounter(procedure)
    for reply in replies:
        outcome = procedure.step(question, [Reply(Pass.FIRST, Role.MODEL, reply)])
        assert isinstance(outcome, Outcome)
        counter.add(question, outcome)
    return counter.checks


def test_counts_of_free_text_counted_by_hand():
    checks = counted(
        [
            "<answer>Vltava</answer>",  # right
            "<answer>Elbe</answer>",  # wrong
            "It is the Vltava.",  # wrong by `exact`, with the right answer, untagged
            "<answer>It is called Moldau.</answer>",  # the same by an alias, tagged
            "I do not know.",  # refused, whatever its forced answer
            "<answer>UNANSWERED</answer>",
            "Prague was founded on the Vltava. I do not know which river flows through it.",  # unclear, untagged
            "",  # unscored
        ]
    )
    assert checks == ReplyChecks(
        {"tag": 1, "wording": 1}, answers=5, untagged=2, unclear=1, unread_choices=0, wrong=4, wrong_with_gold=3
    )


def test_counts_of_choices_counted_by_hand():
    replies = ["<answer>A</answer>", "B", "A or B", "<answer>C</answer>", "It is long.", "A) Vltava"]
    assert counted(replies, LETTERED, GraderKind.CHOICE) == ReplyChecks(
        {"choice": 1}, answers=4, untagged=3, unclear=2, unread_choices=2, wrong=3, wrong_with_gold=0
    )


def test_forced_answers_of_refused_questions_are_checked_too():
    procedure = TwoPass(GraderKind.EXACT)
    counter = ReplyCounter(procedure)
    for forced in ("It is the Vltava.", "Elbe", "I do not know."):
        replies = [Reply(Pass.FIRST, Role.MODEL, "I do not know."), Reply(Pass.FORCED, Role.MODEL, forced)]
        outcome = procedure.step(RIVER, replies)
        assert isinstance(outcome, Outcome)
        counter.add(RIVER, outcome)
    checks = counter.checks
    assert (checks.refusals, checks.answers) == ({"wording": 3}, 0)
    assert (checks.wrong, checks.wrong_with_gold) == (2, 1), "a refusal of the forced pass is no wrong answer"


def test_grading_models_have_no_counts_of_what_a_rule_would_do():
    counter = ReplyCounter(TwoPass(GraderKind.MODEL))
    counter.add(LETTERED, Outcome(False, True, Grade.INCORRECT, first_reply="It is the Vltava.", reading="answer"))
    counter.add(LETTERED, Outcome(True, True, Grade.REFUSED, Grade.INCORRECT, first_reply="no", reading="grader"))
    checks = counter.checks
    assert (checks.refusals, checks.answers, checks.untagged) == ({"grader": 1}, 1, 1)
    assert (checks.unread_choices, checks.wrong, checks.wrong_with_gold) == (0, None, None)


def test_own_reasoning_is_left_out_of_what_is_counted():
    rule = RefusalRule(reasoning=r"\[\[.*?\]\]")
    assert counted(["[[the Vltava?]] Elbe"], rule=rule).wrong_with_gold == 0
    assert counted(["[[the Vltava?]] Elbe"]).wrong_with_gold == 1


# --- Groups of replies


def test_replies_are_grouped_by_sentence_without_words_of_the_question():
    asked = Identification("m", "d", "normal")
    table = outcome_table(
        (asked, Question(f"q{i}", f"Who built the {thing}?", "!"), Outcome(*flags, first_reply=reply, reading=reading))
        for i, (thing, flags, reply, reading) in enumerate(
            [
                ("bridge", (True, True), "The text does not name the bridge. Sorry.", "wording"),
                ("castle", (True, True), "<answer>The text does not name the castle.</answer>", "wording"),
                ("tower", (False, True), "Ann built a tower. I do not know who built the tower.", "unclear"),
                ("mill", (False, True), "Nobody has ever told me.", "answer"),
                ("inn", (False, True), "Nobody has ever told me.", None),
                ("well", (False, True), "Nobody has ever asked me.", "answer"),
                ("road", (False, False), "Nobody has ever told me.", "answer"),
                ("gate", (True, True), "<answer>UNANSWERED</answer>", "tag"),
            ]
        )
    )
    assert [(group.kind, group.replies, group.sentence, group.question_id) for group in reply_groups(table)] == [
        ("unclear", 1, "Ann built a tower.", "q2"),
        ("refused", 2, "The text does not name the bridge.", "q0"),
        ("wrong", 2, "Nobody has ever told me.", "q3"),
    ]


def test_table_without_readings_says_so():
    asked = Identification("m", "d", "normal")
    outcomes = [Outcome(False, True, first_reply="It is the Rhine, I am sure.") for _ in range(2)]
    table = outcome_table((asked, Question(f"q{i}", "?", "!"), outcome) for i, outcome in enumerate(outcomes))
    (found,) = groups_by_variant(table)
    assert not found.is_read
    output = " ".join(map(str, replies_blocks([found])))
    assert "does not say how its replies were read" in output
    assert "No reply was unclear" not in output
    assert groups_by_variant(table.with_columns(reading=pl.lit("answer")))[0].is_read


@pytest.mark.parametrize(
    ("untagged", "expected"), [(30, "(none of the 30 answers uses the answer tag)"), (7, "(7 of 30 answers ignore")]
)
def test_answers_without_the_tag_are_counted_in_words(untagged, expected):
    values = {"wrong": 20, "with_gold": 10, "untagged": untagged, "answers": 30}
    assert expected in sentence(Statement("wrong_with_gold", "serious", values))


@pytest.mark.parametrize(
    ("unread", "expected"),
    [
        (0, "are unclear: they decline and also give an answer."),
        (9, "are unclear: they name no single choice."),
        (4, "are unclear: they decline and also give an answer, or name no single choice (4)."),
    ],
)
def test_unread_choices_are_part_of_the_unclear_replies(unread, expected):
    checks = replace(NOTHING, unclear=9, unread_choices=unread)
    unclear = UnclearReplies(9, 100, Estimate(0.5, name="refusal_index"), 0)
    (statement,) = unclear_caveats(Estimate(0.5, 0.4, 0.6, name="refusal_index"), unclear, checks)
    assert expected in sentence(statement)
