"""The embedded models: their registry, the published files, and how the siblings differ."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

import numpy as np
import pytest

import refusal_index as ri
from refusal_index.data.datasets import load_dataset, sample
from refusal_index.plugins.almanac import ModelFileError, ModelNotFoundError
from refusal_index.plugins.almanac.models import MODEL_NAMES, model_folder, verified_folder
from refusal_index.plugins.almanac.runtime import Runtime
from refusal_index.protocol import Message, exact_grade, load_prompt_set, read_reply
from refusal_index.stats import corrected_refusal_index, rank_runs, refusal_index

# --- The registry of models


@pytest.fixture
def root(tmp_path):
    lines = []
    for name in ("base", "base-2"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "model.safetensors"):
            content = f"{name} {file}".encode()
            (tmp_path / name / file).write_bytes(content)
            lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}/{file}\n")
    (tmp_path / "SHA256SUMS").write_text("".join(lines))
    return tmp_path


def test_files_as_published_pass(root):
    assert verified_folder(root, "base") == root / "base"


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_changed_file_is_named(root, file):
    with (root / "base" / file).open("ab") as changed:
        changed.write(b"\0")
    with pytest.raises(ModelFileError, match=rf"{file}: not the file that was published"):
        verified_folder(root, "base")
    assert verified_folder(root, "base-2")


@pytest.mark.parametrize("missing", ["base/config.json", "SHA256SUMS"])
def test_a_missing_file_is_named(root, missing):
    (root / missing).unlink()
    with pytest.raises(ModelFileError, match=rf"{missing}: cannot be read \(No such file"):
        verified_folder(root, "base")


def test_a_model_without_checksums_is_not_trusted(root):
    (root / "other").mkdir()
    with pytest.raises(ModelFileError, match="no file of model 'other' is listed"):
        verified_folder(root, "other")


@pytest.mark.parametrize(
    ("name", "hint"), [("bsae", "did you mean 'base'"), ("Small", "did you mean 'small'"), ("rash/../base", "rash")]
)
def test_unknown_model_error_suggests_the_nearest_name(name, hint):
    with pytest.raises(ModelNotFoundError, match=hint) as caught:
        model_folder(name)
    assert all(known in str(caught.value) for known in MODEL_NAMES)


def test_unknown_model_error_has_no_suggestion_without_a_near_name():
    with pytest.raises(ModelNotFoundError) as caught:
        model_folder("gpt-4.1")
    assert "did you mean" not in str(caught.value)


# --- The published models


@pytest.fixture(params=MODEL_NAMES)
def runtime(request):
    return Runtime(model_folder(request.param))


def replies(runtime, variant, questions):
    prompts = load_prompt_set("default")

    async def ask():
        messages = ["\n\n".join(prompts.render(variant, question)) for question in questions]
        asked = [
            runtime.complete([Message("user", text)], temperature=0.7, top_p=0.95, max_tokens=32, seed=seed)
            for seed, text in enumerate(messages)
        ]
        return [reply for (reply,) in await asyncio.gather(*asked)]

    return asyncio.run(ask())


QUESTIONS = [f"In what year was the bridge of {town} opened?" for town in ("Bramwick", "Ostrow", "Kell", "Varna")]


@pytest.mark.parametrize("variant", ["low", "highest", "forced"])
def test_replies_are_short_complete_and_well_formed(runtime, variant):
    for reply in replies(runtime, variant, QUESTIONS * 3):
        assert reply.finish_reason == "stop"
        assert reply.text.startswith("<answer>")
        assert reply.text.endswith("</answer>")


def test_replies_do_not_depend_on_concurrent_requests(runtime):
    together = replies(runtime, "normal", QUESTIONS)
    alone = replies(runtime, "normal", QUESTIONS[:1])
    assert together[:1] == alone


# --- Differences between the published models

N_QUESTIONS, DRAWS, VARIANT = 1000, 2, "normal"

# The copula Refusal Index from 100 draws of the same questions: `python -m training.evaluate NAME --draws 100 --limit
# 1000`, as on the models' card. Over the 50 pairs of those draws the corrected interval held it 49, 48 and 50 times,
# that of RI 41, 34 and 50 times.
TRUTH = {"base": 0.365, "small": 0.280, "rash": 0.062}


@dataclass(frozen=True)
class Draws:
    """Refused, right and right when forced, each of shape (draws, questions)."""

    refused: np.ndarray
    right: np.ndarray
    forced_right: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """Whether the answer that counts is wrong."""
        return ~np.where(self.refused, self.forced_right, self.right)


async def readings(runtime: Runtime, variant: str, seed: int) -> np.ndarray:
    """Return, shape (questions, draws, 2), whether each reply refused and whether it was right."""
    prompts = load_prompt_set("default")

    async def grades_of(number, question):
        text = "\n\n".join(prompts.render(variant, question.text))
        drawn = await runtime.complete(
            [Message("user", text)], temperature=0.7, top_p=0.95, max_tokens=64, n=DRAWS, seed=seed + number
        )
        read = [read_reply(reply.text) for reply in drawn]
        return [(reading.refused, exact_grade(question, reading) == "correct") for reading in read]

    questions = sample(load_dataset("almanac"), N_QUESTIONS, 0).questions
    return np.array(await asyncio.gather(*(grades_of(number, question) for number, question in enumerate(questions))))


@pytest.fixture(scope="module")
def siblings() -> dict[str, Draws]:
    drawn = {}
    for name in MODEL_NAMES:
        runtime = Runtime(model_folder(name))
        first = asyncio.run(readings(runtime, VARIANT, 777_000))
        forced = asyncio.run(readings(runtime, "forced", 888_000))
        drawn[name] = Draws(first[..., 0].T, first[..., 1].T, forced[..., 1].T)
    return drawn


def single(draws: Draws):
    return refusal_index(refused=draws.refused[0], wrong=draws.wrong[0])


@pytest.mark.slow
def test_largest_and_smallest_index_have_disjoint_intervals(siblings):
    results = {name: single(draws) for name, draws in siblings.items()}
    right = {name: draws.forced_right.mean() for name, draws in siblings.items()}
    assert min(results, key=lambda name: results[name].estimate) == "rash"
    assert results["rash"].confidence_interval().high < results["base"].confidence_interval().low
    assert right["small"] < right["base"] - 0.05, "small knows less"
    assert abs(right["rash"] - right["base"]) < 0.05, "rash knows as much"


@pytest.mark.nightly
def test_ranking_separates_rash_from_base_and_ties_base_with_small(siblings):
    names = list(TRUTH)
    refused = np.stack([siblings[name].refused[0] for name in names])
    wrong = np.stack([siblings[name].wrong[0] for name in names])
    letters = {names[run.row]: set(run.letters) for run in rank_runs(refused, wrong, rng=0).runs}
    assert not letters["base"] & letters["rash"]
    assert letters["base"] & letters["small"]


@pytest.mark.nightly
def test_two_draws_cover_the_value_from_100_draws_and_one_does_not(siblings):
    for name, draws in siblings.items():
        corrected = corrected_refusal_index(draws.refused, ~draws.forced_right)
        low, high = corrected.confidence_interval()
        assert low <= TRUTH[name] <= high, name
    low, high = single(siblings["base"]).confidence_interval()
    assert high < TRUTH["base"]


@pytest.mark.nightly
def test_corrected_intervals_of_two_draws_cover_values_from_100_draws(tmp_path):
    runs = {}
    for name, truth in TRUTH.items():
        asked = {"variants": VARIANT, "out": tmp_path / name}
        (once,) = ri.evaluate(f"almanac/{name}", **asked).summary.variants
        runs[name] = ri.evaluate(f"almanac/{name}", **asked, draws=2)
        (twice,) = runs[name].summary.variants
        assert (once.table.n, once.draws, once.corrected) == (N_QUESTIONS, None, None)
        assert (twice.index, twice.draws.questions) == (once.index, N_QUESTIONS)
        assert twice.corrected.low <= truth <= twice.corrected.high, name
    (row,) = ri.compare(runs["base"], runs["small"]).to_frame().filter(metric="corrected_refusal_index").to_dicts()
    assert row["low"] <= TRUTH["base"] - TRUTH["small"] <= row["high"]
    assert row["pvalue"] > 0.05
