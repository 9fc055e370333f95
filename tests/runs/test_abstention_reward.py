"""The reward for training abstention, alone and in TRL's trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refusal_index as ri
from refusal_index.plugins.training.reward import RewardError
from refusal_index.replies import ReplyError
from tests.runs.training import LESSONS, loaded

REPLIES = ["<answer>Lima</answer>", "<answer>UNANSWERED</answer>", "<answer>Quito</answer>", ""]
GOLD = ["Lima"] * 4


@pytest.mark.parametrize(("target", "penalty"), [(0.0, 0.0), (0.5, 1.0), (0.75, 3.0), (0.9, 9.0)])
def test_theory_wrong_answers_cost_t_over_one_minus_t(target, penalty):
    assert ri.abstention_reward(target)(REPLIES, answer=GOLD) == pytest.approx([1, 0, -penalty, -penalty])


def test_theory_wrong_answers_cost_nothing_at_a_target_of_zero():
    assert str(ri.abstention_reward(0)(REPLIES, answer=GOLD)) == "[1.0, 0.0, 0.0, 0.0]"


@given(st.floats(0, 0.99), st.floats(0, 1))
def test_property_answering_pays_exactly_above_the_target(target, probability):
    right, refused, wrong = ri.abstention_reward(target)(REPLIES[:3], answer=GOLD[:3])
    expected = probability * right + (1 - probability) * wrong
    assert (expected - refused) * (1 - target) == pytest.approx(probability - target, abs=1e-9)


def test_conversations_and_content_in_parts_are_read_as_texts():
    conversations = [[{"role": "user", "content": "?"}, {"role": "assistant", "content": text}] for text in REPLIES]
    parts = [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in REPLIES]
    reward = ri.abstention_reward(0.5)
    assert reward(conversations, answer=GOLD) == reward(parts, answer=GOLD) == [1, 0, -1, -1]
    assert reward([[], [{"role": "assistant", "content": None}]], answer=GOLD[:2]) == [-1, -1]


def test_columns_of_the_training_data_are_used_row_by_row():
    reward = ri.abstention_reward(0.5, gold="solution")
    columns = {"aliases": [["Ciudad de los Reyes"], None], "choices": [None, None], "question": ["Capital?", None]}
    assert reward(["Ciudad de los Reyes"] * 2, solution=["Lima"] * 2, **columns) == [1, -1]
    assert ri.abstention_reward(0.5, grader="choice")(["B", "A"], answer=["B", "B"], choices=[["x", "y"]] * 2) == [
        1,
        -1,
    ]


def test_a_question_without_an_answer_rewards_no_answer():
    assert ri.abstention_reward(0.5)(["Lima", "I don't know."], answer=[None, ""]) == [-1, 0]


def test_grades_and_their_shares_are_logged():
    shares: dict[str, float] = {}
    grades: dict[str, list[str]] = {}
    reward = ri.abstention_reward(0.5)
    reward(REPLIES, answer=GOLD, log_metric=shares.__setitem__, log_extra=grades.__setitem__)
    assert shares == {f"abstention/{grade}": 0.25 for grade in ("correct", "incorrect", "refused", "unscored")}
    assert grades == {"grade": ["correct", "refused", "incorrect", "unscored"]}
    assert reward.__name__ == "abstention_reward_0.5"


@pytest.mark.parametrize("target", [-0.1, 1, 1.5, float("nan"), "0.75", True, None])
def test_a_target_outside_its_range_is_an_error(target):
    with pytest.raises(RewardError, match="target"):
        ri.abstention_reward(target)


@pytest.mark.parametrize(
    ("completions", "columns", "named"),
    [
        (["Lima"], {}, "'answer'"),
        (["Lima"], {"solution": ["Lima"]}, "solution"),
        (["Lima"], {"answer": ["Lima", "Lima"]}, "1 completions"),
        ([3], {"answer": ["Lima"]}, "completions"),
        ([["Lima"]], {"answer": ["Lima"]}, "completions"),
        ("Lima", {"answer": ["Lima"]}, "completions"),
        (["Lima"], {"answer": "L"}, "answer"),
        (["Lima"], {"answer": ["Lima"], "choices": []}, "choices"),
    ],
)
def test_replies_without_right_answers_are_an_error(completions, columns, named):
    with pytest.raises(RewardError, match=named):
        ri.abstention_reward()(completions, **columns)


@pytest.mark.parametrize("answer", [["Lima"], 0])
def test_a_right_answer_that_is_no_text_is_an_error(answer):
    with pytest.raises(ReplyError, match="gold"):
        ri.abstention_reward()(["Lima"], answer=[answer])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")  # TRL's own configuration sets it
def test_end_to_end_grpo_of_trl_trains_on_the_reward(tmp_path: Path):
    torch = pytest.importorskip("torch")
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from refusal_index.data.datasets import load_dataset, sample
    from refusal_index.protocol import load_prompt_set

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model, tokenizer = loaded()
    prompts = load_prompt_set("default")
    rows = [
        {
            "prompt": [{"role": "user", "content": "\n\n".join(prompts.render("normal", question.text))}],
            "answer": question.gold,
        }
        for question in sample(load_dataset("almanac"), LESSONS, 3).questions
    ]
    config: dict[str, Any] = {"bf16": False, "use_cpu": True, "dataloader_pin_memory": False, "report_to": []}
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=ri.abstention_reward(0.75),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=24,
            save_strategy="no",
            logging_steps=1,
            seed=1,
            **config,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    torch.set_num_threads(threads)
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logs) == 2
    for entry in logs:
        shares = {grade: entry[f"abstention/{grade}"] for grade in ("correct", "incorrect", "refused", "unscored")}
        assert sum(shares.values()) == pytest.approx(1)
        assert entry["reward"] == pytest.approx(shares["correct"] - 3 * (shares["incorrect"] + shares["unscored"]))
        assert entry["rewards/abstention_reward_0.75/mean"] == pytest.approx(entry["reward"])
