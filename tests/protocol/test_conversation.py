"""A conversation as a function of its replies, regrading, and the seeds of requests."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Grade, Outcome, Question
from refusal_index.protocol import (
    ASKED_AGAIN,
    Completion,
    Conversation,
    ForcedPass,
    GraderKind,
    Message,
    Pass,
    PendingRequest,
    Procedure,
    Regrading,
    Reply,
    Request,
    Role,
    Step,
    StopReason,
    TwoPass,
    completions_to_retire,
    next_requests,
    next_step,
    outcomes,
    request_seed,
    used_completions,
)

# --- Replaying a conversation

GOLD = Question("q", "What is the capital of Peru?", "Lima")
NO_GOLD = replace(GOLD, gold=None)
TEXTS = (
    "<answer>Lima</answer>",
    "<answer>Cuzco</answer>",
    "<answer>UNANSWERED</answer>",
    "",
    "I could not say.",
)
VERDICTS = ("A", "B", "C", "hm")
Place = tuple[str, Pass, Role, int, int]
ScriptedReply = Callable[[str, Pass, Role, int, int], Reply]


def world(seed: int) -> ScriptedReply:
    """Return a model and its graders, whose replies depend only on the place of the request."""

    def reply(variant: str, of: Pass, asked: Role, draw: int, attempt: int) -> Reply:
        own = random.Random(f"{seed} {variant if of is Pass.FIRST else ''} {of} {asked} {draw} {attempt}")
        text = own.choice(TEXTS if asked is Role.MODEL else VERDICTS)
        stop = StopReason.LENGTH if asked is Role.MODEL and own.random() < 0.1 else StopReason.STOP
        return Reply(of, asked, text, stop)

    return reply


def replies_to(
    conversation: Conversation, one: PendingRequest, script: ScriptedReply, choices: int = 1
) -> list[Completion]:
    step = one.step
    variant = conversation.variant if step.pass_ is Pass.FIRST else ""
    return [
        Completion(
            "q", variant, draw, script(conversation.variant, step.pass_, step.role, draw, step.attempt), step.attempt
        )
        for draw in range(one.draw, one.draw + min(choices, one.n))
    ]


def place(one: Completion) -> tuple[object, ...]:
    return one.variant, one.reply.pass_, one.reply.role, one.draw, one.attempt


def ask_everything(
    conversation: Conversation, script: ScriptedReply, known: Sequence[Completion] = (), seed: int = 0
) -> list[Completion]:
    """Ask whatever is due until nothing is, one request at a time in any order, with any number of choices."""
    order, found = random.Random(seed), list(known)
    while asks := next_requests(conversation, found):
        one = order.choice(asks)
        new = replies_to(conversation, one, script, order.randint(1, 4))
        places = [place(each) for each in [*found, *new]]
        assert len(set(places)) == len(places), "each place is requested once"
        found += new
        order.shuffle(found)
    return found


def in_turn(conversation: Conversation, script: ScriptedReply, draw: int = 0) -> Outcome:
    """Follow the procedure for one draw literally: one step, one reply."""
    replies: list[Reply] = []
    while not isinstance(
        step := next_step(
            conversation.question, replies, conversation.procedure.grader, force_answered=conversation.draws > 1
        ),
        Outcome,
    ):
        replies.append(script(conversation.variant, step.pass_, step.role, draw, step.attempt))
    return step


KINDS = st.sampled_from([GraderKind.EXACT, GraderKind.MODEL, GraderKind.AGREE])
QUESTIONS = st.sampled_from([GOLD, NO_GOLD])
TALKS = st.builds(Conversation, QUESTIONS, st.just("low"), st.builds(TwoPass, KINDS), st.integers(1, 4)) | st.builds(
    Conversation, st.just(GOLD), st.just("low"), st.builds(ForcedPass, KINDS)
)
SEEDS = st.integers(0, 10**6)


@given(TALKS, SEEDS, SEEDS, SEEDS)
def test_outcomes_do_not_depend_on_reply_order_property(conversation, seed, one, other):
    script = world(seed)
    assert outcomes(conversation, ask_everything(conversation, script, seed=one)) == outcomes(
        conversation, ask_everything(conversation, script, seed=other)
    )


@given(QUESTIONS, KINDS, SEEDS, SEEDS)
def test_outcomes_match_sequential_requests_property(question, kind, seed, order):
    talk, script = Conversation(question, "low", TwoPass(kind)), world(seed)
    assert outcomes(talk, ask_everything(talk, script, seed=order)) == [in_turn(talk, script)]


@given(QUESTIONS, st.integers(2, 5), SEEDS, SEEDS)
def test_each_of_several_draws_matches_a_single_draw_property(question, draws, seed, order):
    """Graded by a rule; if a model grades, identical draws share one verdict."""
    talk, script = Conversation(question, "low", TwoPass(GraderKind.EXACT), draws), world(seed)
    assert outcomes(talk, ask_everything(talk, script, seed=order)) == [
        in_turn(talk, script, draw) for draw in range(draws)
    ]


@given(TALKS, SEEDS, SEEDS, st.data())
def test_resume_after_any_interruption_gives_the_same_outcomes_property(conversation, seed, order, data):
    script = world(seed)
    whole = ask_everything(conversation, script, seed=order)
    there = data.draw(st.integers(0, len(whole)))
    kept = []  # a prefix in the order of the requests, as an interruption would leave it
    while len(kept) < there:
        kept += replies_to(conversation, next_requests(conversation, kept)[0], script)
    finished = ask_everything(conversation, script, kept, seed=order)
    assert outcomes(conversation, finished) == outcomes(conversation, whole)
    assert {place(one) for one in kept} <= {place(one) for one in finished}


@given(TALKS, SEEDS)
def test_outcomes_exist_exactly_when_no_request_is_due(conversation, seed):
    whole = ask_everything(conversation, world(seed))
    assert outcomes(conversation, whole) is not None
    assert next_requests(conversation, whole) == []
    without = [one for one in whole if one.reply.role is not Role.MODEL or one.draw != 0]
    if conversation.procedure.asks_first:
        assert outcomes(conversation, without) is None
        assert next_requests(conversation, without)


@given(QUESTIONS, KINDS, SEEDS)
def test_adding_draws_sends_only_new_requests(question, kind, seed):
    script, known = world(seed), []
    for draws in (1, 3, 10):
        conversation = Conversation(question, "low", TwoPass(kind), draws)
        before, known = known, ask_everything(conversation, script, known, seed)
        assert [one for one in known if one in before] != [] or not before
        assert {place(one) for one in before} <= {place(one) for one in known}
        assert len(outcomes(conversation, known)) == draws
    own = [one for one in known if one.reply.role is Role.MODEL]
    assert len(own) == 10 if question.gold is None else 20
    at_once = ask_everything(Conversation(question, "low", TwoPass(kind), 10), script, seed=seed)
    if kind is GraderKind.EXACT:
        assert outcomes(conversation, at_once) == outcomes(conversation, known)


@given(KINDS, SEEDS)
def test_forced_answers_are_shared_between_variants_not_requested_again(kind, seed):
    script = world(seed)
    low, high = (Conversation(GOLD, variant, TwoPass(kind)) for variant in ("low", "high"))
    after_low = ask_everything(low, script)
    shared = [one for one in after_low if one.variant == ""]
    after_high = ask_everything(high, script, shared)
    assert outcomes(high, after_high) == [in_turn(high, script)], "forced answers of another variant change nothing"
    own = [one.reply for one in after_high if one.reply.pass_ is Pass.FORCED and one.reply.role is Role.MODEL]
    assert len(own) <= 1


def first(text: str, draw: int = 0) -> Completion:
    return Completion("q", "low", draw, Reply(Pass.FIRST, Role.MODEL, text))


def forced(text: str, draw: int = 0) -> Completion:
    return Completion("q", "", draw, Reply(Pass.FORCED, Role.MODEL, text))


RIGHT, REFUSED = TEXTS[0], TEXTS[2]


def dues(procedure: Procedure, replies: Sequence[Completion], draws: int = 1) -> list[tuple[str, str, int, int]]:
    asks = next_requests(Conversation(GOLD, "low", procedure, draws), replies)
    return [(str(ask.step.pass_), str(ask.step.role), ask.draw, ask.n) for ask in asks]


def test_forced_pass_of_a_single_draw_waits_for_a_refusal():
    exact = TwoPass(GraderKind.EXACT)
    assert dues(exact, []) == [("first", "model", 0, 1)]
    assert dues(exact, [first(RIGHT)]) == []
    assert dues(exact, [first(REFUSED)]) == [("forced", "model", 0, 1)]
    assert dues(exact, [first(REFUSED), forced(RIGHT)]) == []


def test_both_passes_of_several_draws_are_due_at_once():
    exact = TwoPass(GraderKind.EXACT)
    assert dues(exact, [], 5) == [("first", "model", 0, 5), ("forced", "model", 0, 5)]
    there = [first(RIGHT, 1), first(RIGHT, 2), forced(RIGHT, 4)]
    assert dues(exact, there, 5) == [("first", "model", 0, 1), ("first", "model", 3, 2), ("forced", "model", 0, 4)]


def test_repeated_reply_is_graded_once_in_its_first_draw():
    model = TwoPass(GraderKind.MODEL)
    there = [first(RIGHT, 2), first(RIGHT, 1), first("Cuzco", 0), *(forced(REFUSED, draw) for draw in range(3))]
    assert dues(model, there, 3) == [("first", "grader", 0, 1), ("first", "grader", 1, 1)]


def test_forced_answer_of_another_variant_is_used_only_after_a_refusal():
    conversation = Conversation(GOLD, "low", TwoPass(GraderKind.EXACT))
    assert used_completions(conversation, [first(RIGHT), forced(RIGHT)]) == [first(RIGHT)]
    assert used_completions(conversation, [first(REFUSED), forced(RIGHT)]) == [first(REFUSED), forced(RIGHT)]
    (outcome,) = outcomes(conversation, [first(RIGHT), forced(TEXTS[1])])
    assert (outcome.refused, outcome.forced_grade) == (False, None)


def test_extra_draws_of_another_variant_are_ignored():
    conversation = Conversation(GOLD, "low", TwoPass(GraderKind.EXACT), 2)
    there = [*(first(RIGHT, draw) for draw in range(2)), *(forced(RIGHT, draw) for draw in range(9))]
    assert dues(conversation.procedure, there, 2) == []
    assert len(outcomes(conversation, there)) == 2
    assert max(completion.draw for completion in used_completions(conversation, there)) == 1


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_second_verdict_attempt_counts_in_any_order(order):
    verdicts = [
        Completion("q", "low", 0, Reply(Pass.FIRST, Role.GRADER, text), attempt)
        for attempt, text in enumerate(("hm", "A"))
    ]
    there = [first("It is Lima."), *verdicts]
    (outcome,) = outcomes(Conversation(GOLD, "low", TwoPass(GraderKind.MODEL)), [there[place] for place in order])
    assert (outcome.refused, outcome.wrong) == (False, False)


@given(TALKS, SEEDS, SEEDS)
def test_only_unscored_draws_are_due_again_after_retiring(conversation, seed, order):
    whole = ask_everything(conversation, world(seed), seed=order)
    before = outcomes(conversation, whole)
    kept = completions_to_retire(conversation, whole, ASKED_AGAIN)
    unscored = {draw for draw, one in enumerate(before) if one.unscored_reason in ASKED_AGAIN}
    assert bool(kept) == bool(unscored)
    left = [one for one in whole if one not in kept]
    assert bool(next_requests(conversation, left)) == bool(kept)
    again = outcomes(conversation, ask_everything(conversation, world(seed + 1), left, seed=order))
    for draw in set(range(conversation.draws)) - unscored:
        found = before[draw]
        if found.forced_grade is Grade.UNSCORED:  # another draw's verdict on the same forced answer may fill it
            found = replace(found, forced_grade=again[draw].forced_grade)
        assert again[draw] == found


def test_draw_with_the_same_reply_uses_the_verdict_of_a_later_one():
    """Earlier, the later draw was graded again and a scored question was left open."""
    conversation = Conversation(GOLD, "low", TwoPass(GraderKind.MODEL), 2)
    same = [Completion("q", "low", draw, Reply(Pass.FIRST, Role.MODEL, "It is Lima.")) for draw in range(2)]
    forced = [Completion("q", "", draw, Reply(Pass.FORCED, Role.MODEL, "UNSURE")) for draw in range(2)]
    verdict = Completion("q", "low", 1, Reply(Pass.FIRST, Role.GRADER, "A"))
    on_forced = Completion("q", "", 0, Reply(Pass.FORCED, Role.GRADER, "B"))
    there = [*same, *forced, verdict, on_forced]
    assert next_requests(conversation, there) == []
    assert [outcome.wrong for outcome in outcomes(conversation, there)] == [False, False]


@given(TALKS, SEEDS, st.sets(st.sampled_from(ASKED_AGAIN)))
def test_only_draws_unscored_for_given_reasons_are_retired(conversation, seed, reasons):
    whole = ask_everything(conversation, world(seed))
    found = {outcome.unscored_reason for outcome in outcomes(conversation, whole)}
    assert bool(completions_to_retire(conversation, whole, reasons)) == bool(found & reasons)


def test_regrading_retires_verdicts_but_not_model_replies():
    empty = Completion("q", "low", 0, Reply(Pass.FIRST, Role.MODEL, ""))
    assert completions_to_retire(Conversation(GOLD, "low", TwoPass(GraderKind.MODEL)), [empty], ASKED_AGAIN) == [empty]
    assert completions_to_retire(Conversation(GOLD, "low", Regrading(GraderKind.MODEL)), [empty], ASKED_AGAIN) == []
    answer = Completion("q", "low", 0, Reply(Pass.FIRST, Role.MODEL, "Lima"))
    verdicts = [Completion("q", "low", 0, Reply(Pass.FIRST, Role.GRADER, "hm"), attempt) for attempt in (0, 1)]
    conversation = Conversation(GOLD, "low", Regrading(GraderKind.MODEL))
    assert completions_to_retire(conversation, [answer, *verdicts], ASKED_AGAIN) == verdicts


# --- Regrading

QUESTION = Question("q", "What is the capital of Peru?", "Lima")
REGRADED_WITHOUT_GOLD = Question("q", "Who was it?", None)
RIGHT_REPLY, WRONG, REFUSED_REPLY, EMPTY = (
    "<answer>Lima</answer>",
    "<answer>Cuzco</answer>",
    "<answer>UNANSWERED</answer>",
    "",
)
VAGUE = "<answer>I cannot say: nobody told me</answer>"  # an answer to exact, a refusal to a model


def replies_of(first: str, forced: str | None = None) -> list[Reply]:
    replies = [Reply(Pass.FIRST, Role.MODEL, first)]
    return replies if forced is None else [*replies, Reply(Pass.FORCED, Role.MODEL, forced)]


def graded(replies: list[Reply], kind: GraderKind, verdicts: dict[str, str], question: Question = QUESTION) -> Outcome:
    """Answer the graders' requests; `verdicts` gives the verdict on each answer."""
    replies = list(replies)
    for _ in range(10):
        step = Regrading(kind).step(question, replies)
        if isinstance(step, Outcome):
            return step
        assert step.role is not Role.MODEL
        content = Regrading(kind).request(step, question).messages[0].content
        verdict = next(verdict for answer, verdict in verdicts.items() if f"\n{answer}\n</prediction>" in content)
        replies.append(Reply(step.pass_, step.role, verdict))
    raise AssertionError


@pytest.mark.parametrize("first", [RIGHT_REPLY, WRONG, REFUSED_REPLY, EMPTY])
@pytest.mark.parametrize("forced", [RIGHT_REPLY, WRONG, REFUSED_REPLY])
def test_regrading_by_the_same_rule_gives_the_same_outcome(first, forced):
    replies = replies_of(first, forced)
    assert Regrading(GraderKind.EXACT).step(QUESTION, replies) == next_step(QUESTION, replies, GraderKind.EXACT)


def test_answer_regraded_as_refusal_has_no_forced_answer():
    outcome = graded(replies_of(VAGUE), GraderKind.MODEL, {"I cannot say: nobody told me": "C"})
    assert (outcome.refused, outcome.wrong, outcome.first_grade) == (True, None, Grade.REFUSED)
    assert (outcome.forced_grade, outcome.unscored_reason) == (None, "forced_not_asked")
    assert outcome.first_reply == VAGUE


def test_refusal_regraded_as_answer_keeps_its_forced_answer():
    outcome = graded(replies_of("I do not know.", RIGHT_REPLY), GraderKind.MODEL, {"I do not know.": "B", "Lima": "A"})
    assert (outcome.refused, outcome.wrong) == (False, True)
    assert (outcome.forced_grade, outcome.forced_reply) == (Grade.CORRECT, RIGHT_REPLY)


def test_two_graders_are_both_asked_about_both_replies():
    outcome = graded(replies_of(REFUSED_REPLY, RIGHT_REPLY), GraderKind.AGREE, {"Lima": "A"})
    assert (outcome.refused, outcome.wrong) == (True, False)


@pytest.mark.parametrize("kind", [GraderKind.EXACT, GraderKind.MODEL])
def test_unanswerable_question_needs_no_forced_answer(kind):
    outcome = graded(replies_of(VAGUE), kind, {"I cannot say: nobody told me": "C"}, REGRADED_WITHOUT_GOLD)
    assert outcome.wrong is True
    assert outcome.unscored_reason is None
    assert graded(replies_of(REFUSED_REPLY), kind, {}, REGRADED_WITHOUT_GOLD).forced_grade is Grade.INCORRECT


def test_forced_grade_of_unanswerable_repeated_draws_is_known():
    outcome = Regrading(GraderKind.EXACT).step(REGRADED_WITHOUT_GOLD, replies_of(RIGHT_REPLY), force_answered=True)
    assert outcome.forced_grade is Grade.INCORRECT


def test_unreadable_verdict_is_requested_once_more():
    replies = [*replies_of(RIGHT_REPLY), Reply(Pass.FIRST, Role.GRADER, "A or B")]
    step = Regrading(GraderKind.MODEL).step(QUESTION, replies)
    assert isinstance(step, Step)
    assert step.attempt == 1


def test_regrading_without_a_first_reply_raises():
    with pytest.raises(ValueError, match="question q: there is no first reply to grade"):
        Regrading(GraderKind.EXACT).step(QUESTION, [])


# --- Seeds of requests

FIRST = Request(Pass.FIRST, Role.MODEL, ())
FORCED = Request(Pass.FORCED, Role.MODEL, ())
FIRST_GRADE = Request(Pass.FIRST, Role.GRADER, ())
FORCED_GRADE = Request(Pass.FORCED, Role.GRADER, (), attempt=1)


@pytest.mark.parametrize(
    ("parts", "seed"),
    [
        ((0, "q1", 0, "low", FIRST), 104429712),
        ((0, "q1", 0, "high", FIRST), 281994780),
        ((1, "q1", 0, "low", FIRST), 1418469083),
        ((0, "frage-ü", 2, "low", FIRST), 347942643),
        ((0, "q1", 0, "low", FORCED), 931609936),
        ((0, "q1", 0, "low", FORCED_GRADE), 84933224),
    ],
)
def test_seeds_match_earlier_runs(parts, seed):
    """Changed seeds would ask and pay for everything again in folders that are resumed.

    Each value is the first 31 bits of what the shell says to, for instance,
    ``printf '0\\x1fq1\\x1f0\\x1flow\\x1ffirst\\x1fmodel\\x1f0' | sha256sum``.
    """
    assert request_seed(*parts) == seed


def test_every_part_of_a_request_changes_its_seed():
    variations = [
        (0, "q1", 0, "low", FIRST),
        (1, "q1", 0, "low", FIRST),
        (0, "q2", 0, "low", FIRST),
        (0, "q1", 1, "low", FIRST),
        (0, "q1", 0, "high", FIRST),
        (0, "q1", 0, "low", FORCED),
        (0, "q1", 0, "low", FIRST_GRADE),
        (0, "q1", 0, "low", FORCED_GRADE),
        (0, "q1", 0, "low", Request(Pass.FIRST, Role.GRADER, (), attempt=1)),
        (0, "q1", 0, "low", Request(Pass.FORCED, Role.GRADER, ())),
        (10, "q1", 0, "low", FIRST),
        (0, "q10", 0, "low", FIRST),
        (0, "q", 10, "low", FIRST),
    ]
    assert len({request_seed(*parts) for parts in variations}) == len(variations)


def test_variant_changes_the_seed_in_the_first_pass_only():
    for request, seeds in ((FIRST, 4), (FIRST_GRADE, 4), (FORCED, 1), (FORCED_GRADE, 1)):
        found = {request_seed(7, "q1", 3, variant, request) for variant in ("low", "normal", "high", "highest")}
        assert len(found) == seeds


def test_wording_does_not_change_the_seed():
    worded = Request(Pass.FIRST, Role.MODEL, (Message("user", "Who?"),))
    assert request_seed(0, "q1", 0, "low", worded) == request_seed(0, "q1", 0, "low", FIRST)


@given(st.integers(), st.text(), st.integers(min_value=0), st.text(), st.sampled_from([FIRST, FORCED, FORCED_GRADE]))
def test_seeds_are_non_negative_31_bit_integers_property(run_seed, question_id, draw, variant, request):
    assert 0 <= request_seed(run_seed, question_id, draw, variant, request) < 2**31


def test_seed_collisions_do_not_exceed_chance():
    n = 10_000
    seeds = {request_seed(0, f"q{number}", 0, "low", FIRST) for number in range(n)}
    assert len(seeds) >= n - 3  # the expected number of collisions is n² / 2³² = 0.02


def test_auxiliary_variant_seed_depends_only_on_its_bare_name():
    probe = Request(Pass.PROBE, Role.MODEL, ())
    assert request_seed(0, "q1", 0, "confidence/p-true", probe) == request_seed(0, "q1", 0, "p-true", probe)
    assert request_seed(0, "q1", 0, "confidence/forced", FORCED) == request_seed(0, "q1", 0, "low", FORCED)
