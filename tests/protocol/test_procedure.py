"""The two-pass procedure, and the forced pass alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Grade, Outcome, Question
from refusal_index.protocol import (
    FORCED,
    ForcedPass,
    GraderKind,
    Message,
    Pass,
    Placement,
    PromptSetError,
    Protocol,
    Reply,
    Request,
    Role,
    Step,
    StopReason,
    TwoPass,
    load_prompt_set,
)
from refusal_index.protocol.steps import next_step

# --- The two-pass procedure

PROMPTS = load_prompt_set("default")
VARIANTS = tuple(PROMPTS.variants)
QUESTION = Question("q1", "What is the capital of Peru?", "Lima", aliases=("Ciudad de los Reyes",))
NO_GOLD = replace(QUESTION, gold=None, aliases=())
MAX_REQUESTS = 10  # a reply and two attempts at the grade of two graders, in each pass

RIGHT = "<answer>Lima</answer>"
WRONG = "<answer>Cuzco</answer>"
REFUSED = "<answer>UNANSWERED</answer>"
DECLINED = "I do not know."
CUT = ("<answer>Lima</answer>", StopReason.LENGTH)
FILTERED = ("", StopReason.CONTENT_FILTER)

ScriptedReply = str | tuple[str, StopReason]


def protocol(grader: GraderKind, variant: str = "normal", placement: Placement = Placement.USER) -> Protocol:
    return Protocol(PROMPTS, variant, grader, placement)


def next_request(
    question: Question, replies: Sequence[Reply], settings_: Protocol, *, force_answered: bool = False
) -> Request | Outcome:
    """Return the next request of both passes, or the outcome."""
    procedure = TwoPass(settings_.grader, settings_, settings_.refusals)
    step = procedure.step(question, replies, force_answered=force_answered)
    return step if isinstance(step, Outcome) else procedure.request(step, question)


def converse(
    settings_: Protocol, answer: Callable[[Request], ScriptedReply], question: Question = QUESTION
) -> tuple[list[Request], Outcome]:
    """Exchange requests and replies as an engine does, and return every request with the outcome."""
    requests: list[Request] = []
    replies: list[Reply] = []
    while isinstance(step := next_request(question, replies, settings_), Request):
        assert len(requests) < MAX_REQUESTS
        requests.append(step)
        said = answer(step)
        text, stop_reason = said if isinstance(said, tuple) else (said, StopReason.STOP)
        replies.append(Reply(step.pass_, step.role, text, stop_reason))
    return requests, step


@dataclass(frozen=True)
class Case:
    """What model (M) and graders (G, H) say in turn, in the first and the forced (+) pass, and the outcome."""

    script: tuple[tuple[str, ScriptedReply], ...]
    first: Grade
    refused: bool | None
    wrong: bool | None
    forced: Grade | None = None
    reason: str | None = None

    def reading(self, grader: GraderKind) -> str | None:
        """Return what the first reply is read as."""
        if self.first is Grade.UNSCORED:
            return None
        if self.first is not Grade.REFUSED:
            return "answer"
        by_words = "grader" if grader.models else "wording"
        return "tag" if first_text(self, "M") == REFUSED else by_words


PARTIES = {
    "M": (Pass.FIRST, Role.MODEL, 0),
    "G": (Pass.FIRST, Role.GRADER, 0),
    "G again": (Pass.FIRST, Role.GRADER, 1),
    "M+": (Pass.FORCED, Role.MODEL, 0),
    "H": (Pass.FIRST, Role.SECOND_GRADER, 0),
    "H again": (Pass.FIRST, Role.SECOND_GRADER, 1),
    "G+": (Pass.FORCED, Role.GRADER, 0),
    "H+": (Pass.FORCED, Role.SECOND_GRADER, 0),
    "G+ again": (Pass.FORCED, Role.GRADER, 1),
}

EXACT_CASES = {
    "right": Case((("M", RIGHT),), Grade.CORRECT, refused=False, wrong=False),
    "right by an alias": Case(
        (("M", "<answer>Ciudad de los Reyes</answer>"),), Grade.CORRECT, refused=False, wrong=False
    ),
    "wrong": Case((("M", WRONG),), Grade.INCORRECT, refused=False, wrong=True),
    "right without a tag": Case((("M", "Lima"),), Grade.CORRECT, refused=False, wrong=False),
    "refused, then right": Case(
        (("M", REFUSED), ("M+", RIGHT)), Grade.REFUSED, refused=True, wrong=False, forced=Grade.CORRECT
    ),
    "refused, then wrong": Case(
        (("M", REFUSED), ("M+", WRONG)), Grade.REFUSED, refused=True, wrong=True, forced=Grade.INCORRECT
    ),
    "refused twice": Case(
        (("M", REFUSED), ("M+", REFUSED)), Grade.REFUSED, refused=True, wrong=True, forced=Grade.REFUSED
    ),
    "declined, then right": Case(
        (("M", DECLINED), ("M+", RIGHT)), Grade.REFUSED, refused=True, wrong=False, forced=Grade.CORRECT
    ),
    "refused, then declined": Case(
        (("M", REFUSED), ("M+", DECLINED)), Grade.REFUSED, refused=True, wrong=True, forced=Grade.REFUSED
    ),
    "hedged": Case((("M", "I am not sure, but Cuzco"),), Grade.INCORRECT, refused=False, wrong=True),
    "hedged and right": Case((("M", "I am not sure, but Lima"),), Grade.CORRECT, refused=False, wrong=False),
    "cut": Case((("M", CUT),), Grade.UNSCORED, refused=None, wrong=None, reason="first_truncated"),
    "filtered": Case((("M", FILTERED),), Grade.UNSCORED, refused=None, wrong=None, reason="first_content_filter"),
    "silent": Case((("M", ""),), Grade.UNSCORED, refused=None, wrong=None, reason="first_empty"),
    "blank tag": Case((("M", "<answer> </answer>"),), Grade.UNSCORED, refused=None, wrong=None, reason="first_empty"),
    "thought only": Case((("M", f"<think>{REFUSED}"),), Grade.UNSCORED, refused=None, wrong=None, reason="first_empty"),
    "refused, then cut": Case(
        (("M", REFUSED), ("M+", CUT)),
        Grade.REFUSED,
        refused=True,
        wrong=None,
        forced=Grade.UNSCORED,
        reason="forced_truncated",
    ),
    "refused, then filtered": Case(
        (("M", REFUSED), ("M+", FILTERED)),
        Grade.REFUSED,
        refused=True,
        wrong=None,
        forced=Grade.UNSCORED,
        reason="forced_content_filter",
    ),
    "refused, then silent": Case(
        (("M", REFUSED), ("M+", " ")),
        Grade.REFUSED,
        refused=True,
        wrong=None,
        forced=Grade.UNSCORED,
        reason="forced_empty",
    ),
}

MODEL_CASES = {
    "right": Case((("M", "It is Lima"), ("G", "A")), Grade.CORRECT, refused=False, wrong=False),
    "wrong": Case((("M", WRONG), ("G", "B")), Grade.INCORRECT, refused=False, wrong=True),
    "the grader's word counts, not ours": Case((("M", RIGHT), ("G", "B")), Grade.INCORRECT, refused=False, wrong=True),
    "refused by the tag, ungraded": Case(
        (("M", REFUSED), ("M+", RIGHT), ("G+", "A")), Grade.REFUSED, refused=True, wrong=False, forced=Grade.CORRECT
    ),
    "not attempted, then wrong": Case(
        (("M", DECLINED), ("G", "C"), ("M+", WRONG), ("G+", "B")),
        Grade.REFUSED,
        refused=True,
        wrong=True,
        forced=Grade.INCORRECT,
    ),
    "not attempted twice": Case(
        (("M", DECLINED), ("G", "C"), ("M+", DECLINED), ("G+", "C")),
        Grade.REFUSED,
        refused=True,
        wrong=True,
        forced=Grade.REFUSED,
    ),
    "refused twice by the tag": Case(
        (("M", REFUSED), ("M+", REFUSED)), Grade.REFUSED, refused=True, wrong=True, forced=Grade.REFUSED
    ),
    "a grade read at the second attempt": Case(
        (("M", RIGHT), ("G", "Hm."), ("G again", "A")), Grade.CORRECT, refused=False, wrong=False
    ),
    "a refusal read at the second attempt": Case(
        (("M", DECLINED), ("G", ""), ("G again", "C"), ("M+", RIGHT), ("G+", "A or B"), ("G+ again", "A")),
        Grade.REFUSED,
        refused=True,
        wrong=False,
        forced=Grade.CORRECT,
    ),
    "a grade that cannot be read": Case(
        (("M", RIGHT), ("G", "Hm."), ("G again", "A or B")),
        Grade.UNSCORED,
        refused=None,
        wrong=None,
        reason="first_grade_unreadable",
    ),
    "a forced grade that cannot be read": Case(
        (("M", REFUSED), ("M+", RIGHT), ("G+", ""), ("G+ again", "")),
        Grade.REFUSED,
        refused=True,
        wrong=None,
        forced=Grade.UNSCORED,
        reason="forced_grade_unreadable",
    ),
    "cut": Case((("M", CUT),), Grade.UNSCORED, refused=None, wrong=None, reason="first_truncated"),
    "silent": Case((("M", ""),), Grade.UNSCORED, refused=None, wrong=None, reason="first_empty"),
    "not attempted, then filtered": Case(
        (("M", DECLINED), ("G", "C"), ("M+", FILTERED)),
        Grade.REFUSED,
        refused=True,
        wrong=None,
        forced=Grade.UNSCORED,
        reason="forced_content_filter",
    ),
}


AGREE_CASES = {
    "both say right": Case((("M", RIGHT), ("G", "A"), ("H", "A")), Grade.CORRECT, refused=False, wrong=False),
    "both say not attempted": Case(
        (("M", DECLINED), ("G", "C"), ("H", "C"), ("M+", WRONG), ("G+", "B"), ("H+", "B")),
        Grade.REFUSED,
        refused=True,
        wrong=True,
        forced=Grade.INCORRECT,
    ),
    "they disagree": Case(
        (("M", RIGHT), ("G", "A"), ("H", "B")),
        Grade.UNSCORED,
        refused=False,
        wrong=None,
        reason="first_graders_disagree",
    ),
    "they disagree over a refusal": Case(
        (("M", DECLINED), ("G", "B"), ("H", "C")),
        Grade.UNSCORED,
        refused=None,
        wrong=None,
        reason="first_graders_disagree",
    ),
    "they disagree over the forced answer": Case(
        (("M", REFUSED), ("M+", RIGHT), ("G+", "A"), ("H+", "B")),
        Grade.REFUSED,
        refused=True,
        wrong=None,
        forced=Grade.UNSCORED,
        reason="forced_graders_disagree",
    ),
    "the first cannot be read, so the second is not asked": Case(
        (("M", RIGHT), ("G", "Hm."), ("G again", "Hm.")),
        Grade.UNSCORED,
        refused=None,
        wrong=None,
        reason="first_grade_unreadable",
    ),
    "the second is read at the second attempt": Case(
        (("M", RIGHT), ("G", "A"), ("H", "Hm."), ("H again", "A")), Grade.CORRECT, refused=False, wrong=False
    ),
}

NO_GOLD_CASES = {
    "answered": Case((("M", RIGHT), ("G", "B")), Grade.INCORRECT, refused=False, wrong=True),
    "refused by the tag, which settles it": Case(
        (("M", REFUSED),), Grade.REFUSED, refused=True, wrong=True, forced=Grade.INCORRECT
    ),
    "declined": Case((("M", DECLINED), ("G", "C")), Grade.REFUSED, refused=True, wrong=True, forced=Grade.INCORRECT),
    "a verdict that it cannot have": Case(
        (("M", RIGHT), ("G", "A"), ("G again", "B")), Grade.INCORRECT, refused=False, wrong=True
    ),
    "cut": Case((("M", CUT),), Grade.UNSCORED, refused=None, wrong=None, reason="first_truncated"),
}


def first_text(case: Case, party: str) -> str | None:
    text = dict(case.script).get(party)
    return text[0] if isinstance(text, tuple) else text


@pytest.mark.parametrize(
    ("grader", "case"),
    [
        *(pytest.param(GraderKind.EXACT, case, id=f"exact: {name}") for name, case in EXACT_CASES.items()),
        *(pytest.param(GraderKind.MODEL, case, id=f"model: {name}") for name, case in MODEL_CASES.items()),
        *(pytest.param(GraderKind.AGREE, case, id=f"agree: {name}") for name, case in AGREE_CASES.items()),
    ],
)
def test_scripted_conversation_leads_to_its_outcome(grader, case):
    check(grader, case, QUESTION)


@pytest.mark.parametrize("case", NO_GOLD_CASES.values(), ids=NO_GOLD_CASES)
def test_unanswerable_questions_send_no_needless_requests(case):
    check(GraderKind.MODEL, case, NO_GOLD)


def check(grader: GraderKind, case: Case, question: Question) -> None:
    script = iter(case.script)

    def answer(request: Request) -> ScriptedReply:
        party, text = next(script)
        assert (request.pass_, request.role, request.attempt) == PARTIES[party]
        return text

    _, outcome = converse(protocol(grader), answer, question)
    assert next(script, None) is None
    assert outcome == Outcome(
        refused=case.refused,
        wrong=case.wrong,
        first_grade=case.first,
        forced_grade=case.forced,
        unscored_reason=case.reason,
        first_reply=first_text(case, "M"),
        forced_reply=first_text(case, "M+"),
        reading=case.reading(grader),
    )


# What is asked


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_pass_is_a_conversation_of_one_user_message(variant):
    requests, _ = converse(protocol(GraderKind.EXACT, variant), lambda _: REFUSED)
    for request, prompt in zip(requests, (variant, FORCED), strict=True):
        assert request.messages == (Message("user", "\n\n".join(PROMPTS.render(prompt, QUESTION.text))),)


def test_placement_moves_the_instruction_into_a_system_message():
    settings_ = protocol(GraderKind.EXACT, "high", Placement.SYSTEM)
    requests, _ = converse(settings_, lambda _: REFUSED)
    for request, prompt in zip(requests, ("high", FORCED), strict=True):
        preamble, question = PROMPTS.render(prompt, QUESTION.text)
        assert request.messages == (Message("system", preamble), Message("user", question))


@pytest.mark.parametrize("placement", Placement)
def test_grader_sees_the_answer_without_tag_and_thoughts_in_one_user_message(placement):
    text = {Role.MODEL: "<think>Cuzco?</think>No: <answer>The city of kings</answer>", Role.GRADER: "A"}
    requests, _ = converse(protocol(GraderKind.MODEL, placement=placement), lambda request: text[request.role])
    (message,) = requests[1].messages
    assert message.role == "user"
    assert "<prediction>\nThe city of kings\n</prediction>" in message.content
    assert "Cuzco" not in message.content


def test_a_grade_is_asked_for_again_in_the_same_words():
    text = {Role.MODEL: RIGHT, Role.GRADER: "Hm."}
    requests, _ = converse(protocol(GraderKind.MODEL), lambda request: text[request.role])
    assert [request.attempt for request in requests] == [0, 0, 1]
    assert requests[1].messages == requests[2].messages


def test_neither_gold_answer_nor_alias_is_shown_to_the_model():
    requests, _ = converse(protocol(GraderKind.EXACT), lambda _: REFUSED)
    for request in requests:
        assert not any(text in message.content for message in request.messages for text in ("Lima", "Reyes"))


@pytest.mark.parametrize("variant", ["lo", "", FORCED])
def test_unknown_variant_is_rejected_before_any_request(variant):
    with pytest.raises(PromptSetError, match="choose one of low, normal, high, highest"):
        protocol(GraderKind.EXACT, variant)


# What holds for any replies

MARKUP = st.sampled_from([RIGHT, WRONG, REFUSED, DECLINED, "<think>", "</think>", "<answer>", "</answer>", "", " "])
TEXTS = st.lists(MARKUP | st.text(max_size=6), max_size=5).map("".join)
GRADES = st.sampled_from(["A", "B", "C", "Hm.", "A or B", "NOT_ATTEMPTED"]) | TEXTS
STOPS = st.sampled_from([StopReason.STOP, *StopReason])
SCRIPTS = st.fixed_dictionaries(
    {
        (Pass.FIRST, Role.MODEL): st.tuples(TEXTS, STOPS),
        (Pass.FORCED, Role.MODEL): st.tuples(TEXTS, STOPS),
        (Pass.FIRST, Role.GRADER): st.lists(GRADES, min_size=2, max_size=2),
        (Pass.FORCED, Role.GRADER): st.lists(GRADES, min_size=2, max_size=2),
        (Pass.FIRST, Role.SECOND_GRADER): st.lists(GRADES, min_size=2, max_size=2),
        (Pass.FORCED, Role.SECOND_GRADER): st.lists(GRADES, min_size=2, max_size=2),
    }
)
SETTINGS = st.builds(
    protocol, st.sampled_from(GraderKind), variant=st.sampled_from(VARIANTS), placement=st.sampled_from(Placement)
)


def play(script: dict, request: Request) -> ScriptedReply:
    text = script[request.pass_, request.role]
    return text if request.role is Role.MODEL else text[request.attempt]


@given(SETTINGS, SCRIPTS)
def test_any_replies_lead_to_a_consistent_outcome(settings_, script):
    requests, outcome = converse(settings_, lambda request: play(script, request))
    assert isinstance(outcome, Outcome)
    assert len(set(requests)) == len(requests) <= MAX_REQUESTS
    assert outcome.first_grade is not None
    if outcome.refused is None:
        assert outcome.first_grade is Grade.UNSCORED
    elif outcome.first_grade is Grade.UNSCORED:  # graders that differ between right and wrong agree on an answer
        assert (outcome.refused, outcome.unscored_reason) == (False, "first_graders_disagree")
    assert (outcome.refused is True) == (outcome.first_grade is Grade.REFUSED)
    assert (outcome.forced_grade is not None) == (outcome.refused is True)
    assert (outcome.wrong is None) == (outcome.unscored_reason is not None)
    assert (outcome.wrong is None) == (Grade.UNSCORED in {outcome.first_grade, outcome.forced_grade})
    counted = outcome.forced_grade or outcome.first_grade
    assert outcome.wrong in {None, counted is not Grade.CORRECT}
    if outcome.unscored_reason:
        assert outcome.unscored_reason.startswith("forced_" if outcome.refused else "first_")
    assert outcome.first_reply == script[Pass.FIRST, Role.MODEL][0]
    assert outcome.forced_reply == (script[Pass.FORCED, Role.MODEL][0] if outcome.refused else None)


@given(st.sampled_from(Placement), st.lists(st.tuples(st.sampled_from(VARIANTS), SCRIPTS), min_size=2, max_size=4))
def test_forced_request_is_the_same_for_every_variant_and_first_reply(placement, conversations):
    forced = set()
    for variant, script in conversations:
        refusing = script | {
            (Pass.FIRST, Role.MODEL): (f"{script[Pass.FIRST, Role.MODEL][0]}</think>{REFUSED}", StopReason.STOP)
        }
        requests, _ = converse(
            protocol(GraderKind.EXACT, variant, placement), lambda request, text=refusing: play(text, request)
        )
        forced.add(requests[1])
    assert len(forced) == 1
    assert forced.pop().pass_ is Pass.FORCED


@given(SETTINGS, SCRIPTS)
def test_conversation_can_resume_at_any_reply(settings_, script):
    requests, outcome = converse(settings_, lambda request: play(script, request))
    replies = []
    for request in requests:
        assert next_request(QUESTION, replies, settings_) == request
        text = play(script, request)
        replies.append(Reply(request.pass_, request.role, *(text if isinstance(text, tuple) else (text,))))
    assert next_request(QUESTION, replies, settings_) == outcome


@given(SETTINGS, SCRIPTS)
def test_any_answer_to_an_unanswerable_question_is_wrong_and_unforced(settings_, script):
    requests, outcome = converse(settings_, lambda request: play(script, request), NO_GOLD)
    assert {request.pass_ for request in requests} == {Pass.FIRST}
    assert outcome.wrong in {True, None}
    assert (outcome.wrong is None) == (outcome.first_grade is Grade.UNSCORED)
    assert outcome.first_grade is not Grade.CORRECT
    assert outcome.forced_grade is (Grade.INCORRECT if outcome.refused else None)
    assert outcome.forced_reply is None


def test_every_draw_of_an_unanswerable_question_has_a_forced_grade():
    answered = Reply(Pass.FIRST, Role.MODEL, RIGHT)
    outcome = next_request(NO_GOLD, [answered], protocol(GraderKind.EXACT), force_answered=True)
    assert (outcome.refused, outcome.wrong, outcome.forced_grade) == (False, True, Grade.INCORRECT)


@pytest.mark.parametrize("placement", Placement)
def test_context_and_choices_accompany_the_question_in_both_passes(placement):
    question = replace(QUESTION, context="Lima is on the coast.", choices=("Cuzco", "Lima"))
    requests, _ = converse(protocol(GraderKind.EXACT, placement=placement), lambda _: REFUSED, question)
    asked = [request.messages[-1].content for request in requests]
    assert len(asked) == 2
    for content in asked:
        assert content.endswith(PROMPTS.render("low", question.text, question.context, question.choices)[1])
    assert "Lima is on the coast." not in requests[0].messages[0].content or placement is Placement.USER


@pytest.mark.parametrize(
    ("reply", "wrong", "reason"),
    [("B) Lima", False, None), ("a", True, None), ("A) Lima", None, "first_choice_ambiguous")],
)
def test_a_choice_is_graded_by_rule_and_unscored_where_letter_and_text_disagree(reply, wrong, reason):
    question = replace(QUESTION, choices=("Cuzco", "Lima"))
    _, outcome = converse(protocol(GraderKind.CHOICE), lambda _: f"<answer>{reply}</answer>", question)
    assert (outcome.wrong, outcome.unscored_reason) == (wrong, reason)


# --- The forced pass alone

WITHOUT_ALIAS = Question("q1", "What is the capital of Peru?", "Lima")


def forced(text: str, stop_reason: StopReason = StopReason.STOP) -> Reply:
    return Reply(Pass.FORCED, Role.MODEL, text, stop_reason)


@pytest.mark.parametrize("variant", list(PROMPTS.variants))
def test_forced_request_equals_two_pass_request_after_a_refusal(variant):
    refused = Reply(Pass.FIRST, Role.MODEL, "<answer>unanswered</answer>")
    whole = TwoPass(GraderKind.EXACT, Protocol(PROMPTS, variant, GraderKind.EXACT))
    alone = ForcedPass(GraderKind.EXACT, Protocol(PROMPTS, next(iter(PROMPTS.variants)), GraderKind.EXACT))
    step = alone.step(WITHOUT_ALIAS, [])
    assert step == whole.step(WITHOUT_ALIAS, [refused])
    assert alone.request(step, WITHOUT_ALIAS) == whole.request(step, WITHOUT_ALIAS)


@pytest.mark.parametrize(
    ("reply", "wrong", "grade", "reason"),
    [
        (forced("<answer>Lima</answer>"), False, Grade.CORRECT, None),
        (forced("<answer>Quito</answer>"), True, Grade.INCORRECT, None),
        (forced("<answer>UNANSWERED</answer>"), True, Grade.REFUSED, None),
        (forced("<answer>Li", StopReason.LENGTH), None, Grade.UNSCORED, "forced_truncated"),
    ],
)
def test_forced_answer_outcomes(reply, wrong, grade, reason):
    outcome = ForcedPass(GraderKind.EXACT).step(WITHOUT_ALIAS, [reply])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.forced_grade) == (True, wrong, grade)
    assert outcome.unscored_reason == reason


def test_a_model_grades_the_forced_answer():
    procedure = ForcedPass(GraderKind.MODEL)
    asked = procedure.step(WITHOUT_ALIAS, [forced("<answer>Lima</answer>")])
    assert isinstance(asked, Step)
    assert (asked.pass_, asked.role) == (Pass.FORCED, Role.GRADER)
    verdict = Reply(Pass.FORCED, Role.GRADER, "A")
    outcome = procedure.step(WITHOUT_ALIAS, [forced("<answer>Lima</answer>"), verdict])
    assert isinstance(outcome, Outcome)
    assert outcome.wrong is False


# --- Forcing answered questions

PROTOCOL = Protocol(load_prompt_set("default"), "normal", GraderKind.EXACT)
RIGHT_REPLY, WRONG_REPLY, REFUSED_REPLY = (
    "<answer>Lima</answer>",
    "<answer>Cuzco</answer>",
    "<answer>UNANSWERED</answer>",
)


def converse_forced(first: str, forced: str, *, force_answered: bool) -> tuple[int, Outcome]:
    replies: list[Reply] = []
    while isinstance(step := next_request(WITHOUT_ALIAS, replies, PROTOCOL, force_answered=force_answered), Request):
        replies.append(Reply(step.pass_, step.role, first if step.pass_ is Pass.FIRST else forced))
    return len(replies), step


@pytest.mark.parametrize(
    ("first", "forced"), [*itertools.product((RIGHT_REPLY, WRONG_REPLY), (RIGHT_REPLY, WRONG_REPLY, REFUSED_REPLY))]
)
def test_first_answer_counts_and_forced_grade_is_stored_beside_it(first, forced):
    requests, outcome = converse_forced(first, forced, force_answered=True)
    assert requests == 2
    assert (outcome.refused, outcome.wrong) == (False, first == WRONG_REPLY)
    assert (
        outcome.forced_grade
        == {RIGHT_REPLY: Grade.CORRECT, WRONG_REPLY: Grade.INCORRECT, REFUSED_REPLY: Grade.REFUSED}[forced]
    )
    assert outcome.forced_reply == forced
    assert outcome.unscored_reason is None


@pytest.mark.parametrize("forced", [RIGHT_REPLY, WRONG_REPLY, REFUSED_REPLY])
def test_force_answered_does_not_change_refused_questions(forced):
    assert converse_forced(REFUSED_REPLY, forced, force_answered=True) == converse_forced(
        REFUSED_REPLY, forced, force_answered=False
    )


def test_an_unscored_first_pass_is_not_forced():
    requests, outcome = converse_forced("", RIGHT_REPLY, force_answered=True)
    assert requests == 1
    assert (outcome.first_grade, outcome.forced_grade, outcome.unscored_reason) == (Grade.UNSCORED, None, "first_empty")


def test_an_unscored_forced_answer_does_not_unscore_an_answered_question():
    _, outcome = converse_forced(RIGHT_REPLY, "", force_answered=True)
    assert (outcome.wrong, outcome.forced_grade, outcome.unscored_reason) == (False, Grade.UNSCORED, None)


def test_log_gives_the_same_outcome_without_force_answered():
    replies = [Reply(Pass.FIRST, Role.MODEL, RIGHT_REPLY), Reply(Pass.FORCED, Role.MODEL, WRONG_REPLY)]
    outcome = next_step(WITHOUT_ALIAS, replies, GraderKind.EXACT)
    assert isinstance(outcome, Outcome)
    assert (outcome.wrong, outcome.forced_grade) == (False, Grade.INCORRECT)
