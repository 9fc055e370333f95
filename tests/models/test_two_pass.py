"""`two_pass` on tasks of Inspect: short answers, choices, an agent with a tool, and tasks that it cannot measure."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval_async
from inspect_ai.agent import AgentSubmit, react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog, EvalSample
from inspect_ai.model import ChatMessage, ContentText, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, choice, includes, match, scorer
from inspect_ai.solver import Generate, Solver, TaskState, generate, multiple_choice, solver, system_message
from inspect_ai.tool import Tool, tool
from inspect_ai.util import store
from typer.testing import CliRunner

from refusal_index import ContingencyTable
from refusal_index import refusal_index as index_of
from refusal_index.cli import app
from refusal_index.data.datasets import load_dataset, sample
from refusal_index.data.text import PatternError
from refusal_index.inspect import TwoPassError, over_refusal, refusal_index, two_pass
from refusal_index.plugins.inspect.foreign_log import read_foreign_log
from refusal_index.plugins.inspect.outcomes import OUTCOME, SCORER, outcome_row, outcome_score
from refusal_index.plugins.inspect.two_pass import instructed
from refusal_index.protocol import PromptSetError, load_prompt_set
from refusal_index.stats import metrics
from tests.docs.blocks import blocks
from tests.docs.running import run_bash

INSTRUCTIONS = load_prompt_set("instructions")
FORCED = INSTRUCTIONS.preambles["forced"]

CAPITALS = {"Peru": "Lima", "Norway": "Oslo", "Chad": "N'Djamena", "Palau": "Ngerulmud", "Nauru": "none"}
FIRST = {"Peru": "Lima", "Norway": "Bergen", "Chad": "UNANSWERED", "Palau": "I don't know.", "Nauru": "I don't know."}
SECOND = {"Chad": "N'Djamena", "Palau": "Koror", "Nauru": "UNANSWERED"}
CELLS = {
    "Peru": (False, False),
    "Norway": (False, True),
    "Chad": (True, False),
    "Palau": (True, True),
    "Nauru": (True, True),
}
"""Whether each question is refused and wrong, from the two replies above: refusing again counts as wrong."""
TABLE = ContingencyTable(refused_wrong=2, refused_right=1, answered_wrong=1, answered_right=1)


def output(text: str, stop: Any = "stop") -> ModelOutput:
    found = ModelOutput.from_content("mockllm/model", text, stop_reason=stop)
    found.usage = ModelUsage(input_tokens=5, output_tokens=5, total_tokens=10)
    return found


def country_in(messages: Sequence[ChatMessage]) -> str:
    (found,) = (country for country in CAPITALS if f"capital of {country}?" in " ".join(m.text for m in messages))
    return found


def is_forced(messages: Sequence[ChatMessage]) -> bool:
    return any(FORCED in message.text for message in messages if message.role == "user")


def scripted(first: Mapping[str, str] = FIRST, second: Mapping[str, str] = SECOND, stop: Any = "stop") -> Model:
    """Return a model that gives these replies by country, in the first and in the forced pass."""

    def reply(messages: list[ChatMessage], *_: object) -> ModelOutput:
        country = country_in(messages)
        return output(second[country] if is_forced(messages) else first[country], stop)

    return get_model("mockllm/model", custom_outputs=reply)


def questions(*countries: str) -> MemoryDataset:
    asked = countries or tuple(CAPITALS)
    samples = [
        Sample(id=country, input=f"What is the capital of {country}?", target=CAPITALS[country]) for country in asked
    ]
    return MemoryDataset(samples, name="capitals")


@pytest.fixture
def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EvalLog]:
    monkeypatch.setenv("INSPECT_DISPLAY", "none")

    def run(task: Task, model: Model | str | None = None, **options: Any) -> EvalLog:
        options = {"fail_on_error": False, "log_dir": str(tmp_path / "logs"), **options}
        (log,) = asyncio.run(eval_async(task, model=model or scripted(), **options))
        return log

    return run


def outcomes(log: EvalLog) -> dict[str, tuple[bool | None, bool | None]]:
    rows = {str(sample.id): sample.metadata[OUTCOME] for sample in log.samples or []}
    return {country: (row["refused"], row["wrong"]) for country, row in rows.items()}


def found(log: EvalLog, name: str = SCORER) -> dict[str, float]:
    assert log.results
    scores = [score for score in log.results.scores if score.name == name]
    return {key: metric.value for score in scores for key, metric in score.metrics.items()}


def only(log: EvalLog) -> EvalSample:
    (found,) = log.samples or []
    return found


# --- Tasks


def test_end_to_end_short_answers_are_read_and_graded_by_the_scorer_of_the_task(evaluated):
    log = evaluated(Task(dataset=questions(), solver=two_pass(generate()), scorer=match()))
    assert log.status == "success"
    assert outcomes(log) == CELLS
    shown = found(log)
    expected = {metric.name: metric for metric in metrics(TABLE)}
    for name in ("refusal_index", "refusal_precision", "over_refusal"):
        ends = [shown[f"{name}{end}"] for end in ("", "/low", "/high")]
        assert ends == [expected[name].estimate, expected[name].low, expected[name].high]
    assert shown["refusal_index"] == index_of(TABLE).estimate
    cells = {"refused_wrong": 2, "refused_right": 1, "answered_wrong": 1, "answered_right": 1}
    assert {name: shown[name] for name in cells} == cells
    assert found(log, "match")["accuracy"] == 0.2, "the task's own metric is that of the first pass"


def test_end_to_end_the_log_is_scored_and_imported_without_options(evaluated, tmp_path):
    log = evaluated(Task(dataset=questions(), solver=two_pass(), scorer=match()))
    done = CliRunner().invoke(app, ["score", log.location, "--json"])
    assert done.exit_code == 0, done.output
    assert str(index_of(TABLE).estimate)[:12] in done.output
    read = read_foreign_log(Path(log.location)).passes
    assert {first.question.question_id: (first.outcome().refused, first.outcome().wrong) for first in read} == CELLS
    (chad,) = (first for first in read if first.question.question_id == "Chad")
    assert (chad.reply, chad.forced.forced_reply) == ("UNANSWERED", "N'Djamena")
    assert (chad.question.text, chad.question.gold) == ("What is the capital of Chad?", "N'Djamena")
    assert (chad.model, chad.dataset, chad.variant) == ("mockllm/model", "capitals", "normal")
    table = tmp_path / "outcomes.parquet"
    assert CliRunner().invoke(app, ["import", log.location, "--out", str(table)]).exit_code == 0
    assert table.is_file()


def test_end_to_end_a_log_without_refusals_has_an_undefined_index_and_asks_for_no_other_reading(evaluated):
    log = evaluated(Task(dataset=questions("Peru", "Norway"), solver=two_pass(), scorer=match()))
    scored = json.loads(CliRunner().invoke(app, ["score", log.location, "--json"]).stdout)
    assert scored["first_passes"] == []
    index = scored["variants"][0]["metrics"]["refusal_index"]
    assert (index["status"], index["reason"]) == ("undefined", "nobody_refused")


def test_end_to_end_a_question_without_a_target_has_no_right_answer(evaluated):
    dataset = questions("Peru", "Chad", "Nauru")
    dataset[2].target = ""
    log = evaluated(Task(dataset=dataset, solver=two_pass(), scorer=match()))
    read = {first.question.question_id: first.answerable for first in read_foreign_log(Path(log.location)).passes}
    assert read == {"Peru": True, "Chad": True, "Nauru": False}


def test_end_to_end_a_multiple_choice_task_is_graded_in_both_passes(evaluated):
    first = {"Peru": "ANSWER: B", "Norway": "ANSWER: A", "Chad": "UNANSWERED", "Palau": "UNANSWERED"}
    second = {"Chad": "ANSWER: B", "Palau": "ANSWER: A"}
    asked = [
        Sample(id=country, input=f"What is the capital of {country}?", choices=["Rome", CAPITALS[country]], target="B")
        for country in first
    ]
    task = Task(dataset=MemoryDataset(asked), solver=two_pass(multiple_choice()), scorer=choice())
    log = evaluated(task, scripted(first, second))
    assert outcomes(log) == {country: CELLS[country] for country in first}


@tool
def lookup() -> Tool:
    async def execute(country: str) -> str:
        """Look up a capital.

        Args:
            country: The country.
        """
        store().set("calls", store().get("calls", 0) + 1)
        return CAPITALS[country] if country in ("Peru", "Norway") else "nothing found"

    return execute


def agent_model() -> Model:
    def reply(messages: list[ChatMessage], *_: object) -> ModelOutput:
        country = country_in(messages)
        last = messages[-1]
        if last.role != "tool":
            made = ModelOutput.for_tool_call("mockllm/model", "lookup", {"country": country})
        elif last.text != "nothing found":
            made = ModelOutput.for_tool_call("mockllm/model", "submit", {"answer": last.text})
        else:
            answer = SECOND[country] if is_forced(messages) else FIRST[country]
            made = ModelOutput.for_tool_call("mockllm/model", "submit", {"answer": answer})
        made.usage = ModelUsage(input_tokens=5, output_tokens=5, total_tokens=10)
        return made

    return get_model("mockllm/model", custom_outputs=reply)


def test_end_to_end_an_agent_starts_again_with_its_messages_and_its_store_as_at_first(evaluated):
    agent = react(tools=[lookup()], submit=AgentSubmit(answer_only=True))
    log = evaluated(Task(dataset=questions(), solver=two_pass(agent), scorer=match()), agent_model())
    assert [one.error for one in log.samples] == [None] * 5
    assert outcomes(log) == {**CELLS, "Norway": (False, False)}
    for one in log.samples:
        assert one.store["calls"] == 1, "the call of the second pass is in its own store"
        assert not is_forced(one.messages), "the log shows the messages of the first pass"


def test_end_to_end_unanswered_after_prose_of_an_agent_is_a_refusal(evaluated):
    log = evaluated(
        Task(dataset=questions("Chad"), solver=two_pass(react(tools=[lookup()])), scorer=includes()), agent_model()
    )
    row = only(log).metadata[OUTCOME]
    assert (row["reading"], row["refused"], row["wrong"]) == ("tag", True, False)
    assert row["first_reply"].endswith("\n\nUNANSWERED")


@pytest.mark.slow
def test_end_to_end_an_embedded_model_gives_the_table_that_its_replies_say(evaluated):
    asked = sample(load_dataset("almanac"), 40, 0).questions
    dataset = MemoryDataset([Sample(id=one.question_id, input=one.text, target=one.gold) for one in asked])
    log = evaluated(Task(dataset=dataset, solver=two_pass(variant="high"), scorer=includes()), "almanac/base", seed=1)
    cells = found(log)
    assert log.results.scores[-1].unscored_samples + sum(cells[name] for name in (
        "refused_wrong", "refused_right", "answered_wrong", "answered_right",
    )) == 40  # fmt: skip
    refused = sum(row is True for row, _ in outcomes(log).values())
    assert 0 < refused < 40
    for one in log.samples:
        row = one.metadata[OUTCOME]
        assert (row["forced_reply"] is not None) == (row["refused"] or row["reading"] == "unclear")


# --- What is put before the prompt


@solver
def seen() -> Solver:
    """Reply with the text of the prompt."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output = ModelOutput.from_content("m", f"{state.user_prompt.text} | UNANSWERED")
        return state

    return solve


def test_instructions_of_the_prompt_set_stand_before_the_prompt(evaluated):
    task = Task(
        dataset=questions("Chad"), solver=two_pass(seen(), "high", "instructions-de", "+UNANSWERED"), scorer=includes()
    )
    row = only(evaluated(task)).metadata[OUTCOME]
    german = load_prompt_set("instructions-de").preambles
    question = "What is the capital of Chad?"
    assert row["first_reply"].startswith(f"{german['high']}\n\n{question}")
    assert row["forced_reply"].startswith(f"{german['forced']}\n\n{question}")
    assert row["variant"] == "high"


def test_a_list_of_solvers_is_a_chain(evaluated):
    task = Task(dataset=questions("Peru"), solver=two_pass([system_message("Be brief."), generate()]), scorer=match())
    assert [message.role for message in only(evaluated(task)).messages] == ["system", "user", "assistant"]


def test_an_instruction_is_a_message_of_its_own_without_one_of_the_user():
    state = TaskState(model="m", sample_id=1, epoch=1, input=[], messages=[])
    asyncio.run(instructed("Go.")(state, None))
    assert [message.text for message in state.messages] == ["Go."]


# --- Grades


@scorer(metrics=[accuracy()])
def fixed(value: Any) -> Scorer:
    async def score(state: TaskState, target: Target) -> Score | None:
        given = value.get(state.output.completion) if isinstance(value, dict) and "N" in value.values() else value
        return None if given is None else Score(value=given)

    return score


def test_end_to_end_a_refusal_that_only_the_scorer_sees_is_forced_and_counted(evaluated):
    grades = {"Lima": "C", "Bergen": "N", "Oslo": "C"}
    task = Task(dataset=questions("Peru", "Norway"), solver=two_pass(), scorer=fixed(grades))
    log = evaluated(task, scripted(FIRST, {"Norway": "Oslo"}))
    row = log.samples[0].metadata[OUTCOME]
    assert outcomes(log) == {"Peru": (False, False), "Norway": (True, False)}
    assert row["reading"] == "grader"
    assert found(log)["refused_by_scorer"] == 1


def test_end_to_end_a_refusal_by_the_mark_of_the_provider_is_forced(evaluated):
    def reply(messages: list[ChatMessage], *_: object) -> ModelOutput:
        if is_forced(messages):
            return output("Lima")
        marked = output("That is not for me.")
        marked.message.content = [ContentText(text="That is not for me.", refusal=True)]
        return marked

    model = get_model("mockllm/model", custom_outputs=reply)
    log = evaluated(Task(dataset=questions("Peru"), solver=two_pass(), scorer=match()), model)
    assert only(log).metadata[OUTCOME]["reading"] == "flag"
    assert outcomes(log) == {"Peru": (True, False)}


@pytest.mark.parametrize("value", [None, float("nan")])
def test_an_answer_without_a_grade_is_unscored_and_counted(evaluated, value):
    log = evaluated(Task(dataset=questions("Peru"), solver=two_pass(), scorer=fixed(value)))
    assert only(log).metadata[OUTCOME]["unscored_reason"] == "first_not_graded"
    assert outcomes(log) == {"Peru": (False, None)}
    assert log.results.scores[-1].unscored_samples == 1
    assert math.isnan(found(log)["refusal_index"])


def test_a_refusal_without_a_forced_grade_is_unscored(evaluated):
    log = evaluated(Task(dataset=questions("Chad"), solver=two_pass(), scorer=fixed(None)))
    row = only(log).metadata[OUTCOME]
    assert (row["refused"], row["wrong"], row["unscored_reason"]) == (True, None, "forced_not_graded")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, False), (0.0, True), (True, False), ("I", True), ({"correct": 1, "incorrect": 0, "not_attempted": 0}, False)],
)
def test_values_that_say_right_or_wrong_are_grades(evaluated, value, expected):
    log = evaluated(Task(dataset=questions("Peru"), solver=two_pass(), scorer=fixed(value)))
    assert outcomes(log) == {"Peru": (False, expected)}


@pytest.mark.parametrize("value", [0.5, "P", "B", "fluent", {"f1": 0.3}, {"correct": 1, "incorrect": 1}])
def test_a_scorer_that_is_not_about_correctness_is_an_error_that_names_it(evaluated, value):
    log = evaluated(Task(dataset=questions("Peru"), solver=two_pass(), scorer=fixed(value)))
    message = only(log).error.message
    assert "two_pass, sample 'Peru', score 'fixed': expected" in message
    assert "needs a scorer that says whether an answer is correct" in message
    (first,) = read_foreign_log(Path(log.location)).passes
    assert first.outcome().unscored_reason == "request_failed"


def test_a_task_without_a_scorer_is_an_error(evaluated):
    log = evaluated(Task(dataset=questions("Peru"), solver=two_pass()))
    assert "expected a task with a scorer, which grades both passes, found none" in only(log).error.message


def test_one_of_several_scorers_is_named(evaluated):
    scorers = [fixed(0.5), match()]
    log = evaluated(Task(dataset=questions("Peru"), solver=two_pass(), scorer=scorers))
    assert "the task has the scorers fixed, match; name the one that grades" in only(log).error.message
    log = evaluated(Task(dataset=questions("Peru"), solver=two_pass(scorer="match"), scorer=scorers))
    assert outcomes(log) == {"Peru": (False, False)}
    log = evaluated(Task(dataset=questions("Peru"), solver=two_pass(scorer="macth"), scorer=scorers))
    assert "got 'macth'; did you mean 'match'?" in only(log).error.message


def test_arguments_are_checked_before_any_question():
    with pytest.raises(PromptSetError, match="did you mean 'normal'"):
        two_pass(variant="nromal")
    with pytest.raises(PromptSetError, match="no prompt set 'de'"):
        two_pass(prompts="de")
    with pytest.raises(PatternError):
        two_pass(refusal="no comment")
    assert issubclass(TwoPassError, ValueError)


# --- Replies and samples that are not whole


@pytest.mark.parametrize(
    ("stop", "reason"), [("max_tokens", "first_truncated"), ("content_filter", "first_content_filter")]
)
def test_a_reply_that_is_not_whole_is_unscored(evaluated, stop, reason):
    log = evaluated(Task(dataset=questions("Chad"), solver=two_pass(), scorer=match()), scripted(stop=stop))
    assert only(log).metadata[OUTCOME]["unscored_reason"] == reason
    assert outcomes(log) == {"Chad": (None, None)}


@solver
def silent() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        return state

    return solve


def test_an_agent_that_never_answers_is_unscored_and_its_metrics_undefined(evaluated):
    log = evaluated(Task(dataset=questions(), solver=two_pass(silent()), scorer=match()))
    assert {sample.metadata[OUTCOME]["unscored_reason"] for sample in log.samples} == {"first_empty"}
    assert log.results.scores[-1].unscored_samples == 5
    assert math.isnan(found(log)["refusal_index"])
    done = CliRunner().invoke(app, ["score", log.location])
    assert "first_empty" in done.output


@solver
def twice_when_forced(calls: int) -> Solver:
    """Ask once, or `calls` times in the forced pass."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        for _ in range(calls if is_forced(state.messages) else 1):
            state = await generate(state)
        return state

    return solve


def test_a_limit_in_the_second_pass_leaves_the_refusal_without_a_forced_answer(evaluated):
    task = Task(dataset=questions("Chad"), solver=two_pass(twice_when_forced(4)), scorer=match(), message_limit=4)
    log = evaluated(task)
    row = only(log).metadata[OUTCOME]
    assert (row["refused"], row["wrong"], row["unscored_reason"]) == (True, None, "forced_limit")
    assert only(log).limit.type == "message"
    (first,) = read_foreign_log(Path(log.location)).passes
    assert first.outcome().unscored_reason in ("forced_limit", "forced_not_asked")


def test_a_limit_in_the_second_pass_leaves_an_unclear_answer_as_it_is(evaluated):
    task = Task(dataset=questions("Peru"), solver=two_pass(twice_when_forced(4)), scorer=includes(), message_limit=4)
    reply = {"Peru": "tool call for tool submit\n\nI don't know."}
    row = only(evaluated(task, scripted(reply, reply))).metadata[OUTCOME]
    assert (row["reading"], row["refused"], row["wrong"]) == ("unclear", False, True)
    assert (row["unscored_reason"], row["forced_reply"]) == (None, None)


def test_the_forced_answer_to_an_unclear_reply_stands_beside_the_grade_of_the_first(evaluated):
    task = Task(dataset=questions("Peru"), solver=two_pass(), scorer=includes())
    unclear = {"Peru": "tool call for tool submit\n\nI don't know."}
    row = only(evaluated(task, scripted(unclear, {"Peru": "Lima"}))).metadata[OUTCOME]
    assert (row["reading"], row["refused"], row["wrong"]) == ("unclear", False, True)
    assert (row["forced_reply"], row["forced_grade"]) == ("Lima", "correct")


def test_a_limit_in_the_first_pass_leaves_the_sample_unscored(evaluated):
    task = Task(dataset=questions("Chad"), solver=two_pass(), scorer=match(), message_limit=1)
    log = evaluated(task)
    assert only(log).metadata[OUTCOME]["unscored_reason"] == "first_limit"
    (first,) = read_foreign_log(Path(log.location)).passes
    assert first.outcome().unscored_reason == "first_limit"


@solver
def failing(country: str) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.sample_id == country:
            raise RuntimeError("the tool broke")
        return await generate(state)

    return solve


def test_a_sample_that_failed_is_unscored_in_the_import(evaluated):
    log = evaluated(Task(dataset=questions(), solver=two_pass(failing("Peru")), scorer=match()))
    read = {first.question.question_id: first.outcome() for first in read_foreign_log(Path(log.location)).passes}
    assert read["Peru"].unscored_reason == "request_failed"
    assert read["Chad"].refused is True
    assert read["Chad"].wrong is False


def test_end_to_end_epochs_are_draws_and_metrics_are_those_of_the_first(evaluated):
    log = evaluated(Task(dataset=questions(), solver=two_pass(), scorer=match()), epochs=2)
    assert found(log)["refusal_index"] == index_of(TABLE).estimate
    assert found(log)["refused_wrong"] == TABLE.refused_wrong
    read = read_foreign_log(Path(log.location)).passes
    assert sorted({first.draw for first in read}) == [0, 1]
    assert len(read) == 10


# --- Metrics


def score_of(refused: bool | None, wrong: bool | None, draw: int = 0) -> Score:
    from refusal_index.data import Outcome

    return outcome_score(outcome_row(Outcome(refused, wrong), "normal", draw))


@pytest.mark.parametrize(
    ("refused", "wrong", "value"), [(True, True, "N"), (True, False, "N"), (False, True, "I"), (False, False, "C")]
)
def test_every_outcome_has_a_letter_of_inspect(refused, wrong, value):
    assert score_of(refused, wrong).value == value


@pytest.mark.parametrize(("refused", "wrong"), [(None, None), (True, None), (False, None)])
def test_outcome_without_a_grade_has_no_value(refused, wrong):
    assert math.isnan(score_of(refused, wrong).value)


def computed(metric: Any, *cells: tuple[bool, bool]) -> Mapping[str, float]:
    from inspect_ai.scorer import SampleScore

    return metric([SampleScore(score=score_of(*cell)) for cell in cells])


def test_a_status_is_an_entry_and_undefined_is_nan():
    shown = computed(refusal_index(), (False, True), (False, False))
    assert math.isnan(shown.pop("refusal_index"))
    assert shown == {"refusal_index/undefined/nobody_refused": 1}
    boundary = computed(refusal_index(), (True, True), (False, True), (False, False))
    assert boundary["refusal_index"] == 1
    assert boundary["refusal_index/boundary/zero_cell:refused_right"] == 1
    assert set(computed(over_refusal(), (False, True))) == {"over_refusal", "over_refusal/undefined/all_wrong"}


def test_metrics_named_by_the_task_are_only_those_of_the_outcomes(evaluated):
    task = Task(dataset=questions(), solver=two_pass(), scorer=match(), metrics=[accuracy(), refusal_index()])
    log = evaluated(task)
    assert set(found(log, "match")) == {"accuracy"}
    assert found(log)["accuracy"] == 0.2, "of the first pass, with refusals as wrong"
    assert found(log)["refusal_index"] == index_of(TABLE).estimate


# --- The page of the documentation


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_end_to_end_the_task_of_the_page_runs_in_a_shell_and_its_log_is_scored(tmp_path):
    page = {block.title or block.language: block.text for block in blocks("docs/how-to/inspect.md")}
    asked = sample(load_dataset("almanac"), 40, 0).questions
    lines = [json.dumps({"id": one.question_id, "input": one.text, "target": one.gold}) for one in asked]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    (tmp_path / "task.py").write_text(page["task.py"])
    evaluate, score, *_ = page["bash"].splitlines()
    assert evaluate.split()[:3] == ["inspect", "eval", "task.py"]
    run_bash("inspect eval task.py --model almanac/base --display none", tmp_path)
    assert "almanac/base on questions: 40 questions" in run_bash(score, tmp_path)
