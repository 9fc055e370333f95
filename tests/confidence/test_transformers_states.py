"""Hidden states from transformers, against the runtime of the embedded models, whose weights it also reads."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec

import numpy as np
import pytest

from refusal_index.data.datasets import load_dataset
from refusal_index.plugins.almanac import runtime
from refusal_index.plugins.almanac.models import model_folder
from refusal_index.plugins.confidence.hidden_states import WeightsError, hidden_states
from refusal_index.protocol import Message, load_prompt_set

TOLERANCE = 1e-4
LACKING = [name for name in ("torch", "transformers") if find_spec(name) is None]


@pytest.fixture
def installed():
    """Skip where the extra is not installed."""
    if LACKING:
        pytest.skip(f"needs {' and '.join(LACKING)}: pip install 'refusal-index[transformers]'")


def rendered_prompts(count: int, variant: str = "normal") -> list[str]:
    prompts, questions = load_prompt_set("default"), load_dataset("almanac").questions[:count]
    return ["\n\n".join(prompts.render(variant, question.text)) for question in questions]


def conversations(texts: list[str]) -> list[list[Message]]:
    return [[Message("user", text)] for text in texts]


def folder_without(name: str, tmp_path, file: str | None = None, **changes: object) -> str:
    copy = shutil.copytree(model_folder("small"), tmp_path / name)
    if file is not None:
        path = copy / file
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return str(copy)


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_remote_code_is_never_run_even_if_confirmed(tmp_path, monkeypatch):
    places = {"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Model"}
    folder = folder_without("theirs", tmp_path, "config.json", model_type="theirs", auto_map=places)
    mark = tmp_path / "mark"
    (tmp_path / "theirs/theirs.py").write_text(f"open({str(mark)!r}, 'w').close()\nConfig = Model = object\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # what transformers asks for by itself
    with pytest.raises(WeightsError, match="cannot be loaded"):
        hidden_states(folder, conversations(["Who?"]))
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["base", "small", "rash"])
def test_hidden_states_against_the_embedded_runtime_in_every_layer(name):
    texts = rendered_prompts(24)
    found = hidden_states(str(model_folder(name)), conversations(texts), batch_size=5)
    own = runtime.hidden_states(name, [[Message("user", text)] for text in texts])
    assert found.dtype == np.float32
    assert found.shape == own.shape
    np.testing.assert_allclose(found, own, atol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_hidden_states_do_not_depend_on_the_batch():
    texts = ["Who?", *rendered_prompts(3, "low"), "When was it?", "Who?"]
    folder = str(model_folder("small"))
    found = hidden_states(folder, conversations(texts))
    alone = np.concatenate(
        [hidden_states(folder, one) for one in ([conversation] for conversation in conversations(texts))]
    )
    np.testing.assert_allclose(found, alone, atol=TOLERANCE)
    assert hidden_states(folder, []).shape == (0, 4, 192)


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
@pytest.mark.filterwarnings("ignore")  # from transformers, about files damaged on purpose
def test_unusable_weights_error_is_one_line(tmp_path):
    several = conversations(["Who?"])
    broken = folder_without("broken", tmp_path)
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"torn")
    bare = folder_without("bare", tmp_path, "tokenizer_config.json", chat_template=None)
    small = folder_without("short", tmp_path, "config.json", max_position_embeddings=8)
    for folder, told in (
        (str(tmp_path / "nowhere"), "cannot be loaded"),
        (broken, "cannot be loaded"),
        (bare, "its chat template cannot render a conversation: "),
        (small, "takes 10 tokens and the model reads at most 8"),
    ):
        with pytest.raises(WeightsError, match=told) as error:
            hidden_states(folder, several)
        assert str(error.value).startswith(f"hf/{folder}: ")
        assert "\n" not in str(error.value)
