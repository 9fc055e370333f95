"""What tells weights apart: each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from refusal_index.plugins.training.callback import weights_tag
from refusal_index.plugins.training.watch import checkpoint_at, weights_digest
from tests.runs.test_checkpoints import safetensors, written


@pytest.mark.parametrize("place", [-1, -150_000, -399_000])
def test_one_other_weight_makes_another_hash_wherever_it_stands(tmp_path: Path, place: int):
    content = safetensors(100_000)
    changed = bytearray(content)
    changed[place] ^= 1
    first = written(tmp_path / "a" / "step-1", **{"model.safetensors": content})
    same = written(tmp_path / "b" / "step-1", **{"model.safetensors": content, "notes.json": "x"})
    other = written(tmp_path / "c" / "step-1", **{"model.safetensors": bytes(changed)})
    digests = [weights_digest(checkpoint_at(place)) for place in (first, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_one_other_weight_makes_another_tag_of_a_model_in_memory():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(300, 200).to(torch.bfloat16)
    before = weights_tag(model)
    assert weights_tag(model) == before
    with torch.no_grad():
        model.weight[150, 7] += 1
    assert weights_tag(model) != before
    assert len(before) == 8


def test_tags_are_those_of_weights_in_any_layout():
    torch = pytest.importorskip("torch")
    model, turned = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    turned.weight = torch.nn.Parameter(model.weight.detach().T.contiguous().T)
    turned.bias = model.bias
    assert weights_tag(model) == weights_tag(turned)
