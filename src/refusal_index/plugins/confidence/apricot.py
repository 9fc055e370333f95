"""APRICOT: another language model is taught to tell, from question and reply, how often such a question is answered.

The estimate is that of the other model. It needs two sets of weights, and a GPU to be trained in minutes rather than
hours: `trained.text_classifier` is the light relative that needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from refusal_index.plugins.confidence.folds import FloatArray, IntArray, cluster_targets, folds_of
from refusal_index.plugins.confidence.hidden_states import WeightsError, quietly
from refusal_index.plugins.confidence.method import Evidence, Method, Need
from refusal_index.plugins.confidence.score_table import Score

NAME = "apricot"

EMBEDDER = "sentence-transformers/all-mpnet-base-v2"
"""The published weights that place questions."""

PREDICTOR = "microsoft/deberta-v3-base"
"""The published weights that are fine-tuned."""

HUB_SECONDS = 10
"""How long the hub may take to answer at all."""

Loaded = TypeVar("Loaded")
Texts = Sequence[tuple[str, str]]
"""Questions with their replies."""


@dataclass(frozen=True)
class Recipe:
    """How the predictor is fine-tuned; as published for TriviaQA where nothing else is said.

    Attributes
    ----------
    steps, batch_size
        How many batches, of how many answers.
    learning_rate, weight_decay
        Of AdamW; the rate rises in the first tenth of the steps, and falls along a cosine.
    largest_norm
        What the gradient is cut to.
    longest
        Tokens of question and reply at most.
    """

    steps: int = 600
    batch_size: int = 32
    learning_rate: float = 3.369e-5
    weight_decay: float = 0.008936
    largest_norm: float = 10.0
    longest: int = 512


PUBLISHED = Recipe()


def apricot(
    evidence: Evidence, embedder: str = EMBEDDER, predictor: str = PREDICTOR, recipe: Recipe = PUBLISHED
) -> Iterable[Score]:
    """Yield the confidence that a fine-tuned model has in each answer, out of fold.

    Parameters
    ----------
    evidence
        The answers.
    embedder
        Weights for sentence-transformers: a name of the hub, or a local folder. They place the questions, which are
        clustered; the share of right answers in a cluster is what its answers are to be given.
    predictor
        Weights for transformers, likewise; they are fine-tuned anew for every fold.
    recipe
        How.

    Raises
    ------
    TrainingError
        If there is too little to train on.
    WeightsError
        If weights cannot be loaded.

    References
    ----------
    Ulmer et al. (2024). Calibrating large language models using their generations only. :arxiv:`2403.05973`. As in its
    code, the loss is the mean squared error of the second class's softmax, and the last step counts. Otherwise than
    there, targets are made of the training questions alone (see `cluster_targets`), and each question is held out once.
    """
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - of an extra, and slow to load

    folds = folds_of(evidence, NAME)
    questions = [evidence.questions[one].text for one in folds.ids]
    texts = [(question, answer.reply) for question, answer in zip(questions, folds.answers, strict=True)]
    encoder = _loaded(embedder, partial(SentenceTransformer, embedder))
    places = np.asarray(encoder.encode(questions, show_progress_bar=False), np.float64)
    right = folds.right

    def predict(train: IntArray, held_out: IntArray) -> FloatArray:
        targets = cluster_targets(places[train], right[train])
        known, asked = [texts[one] for one in train], [texts[one] for one in held_out]
        return fine_tuned(predictor, known, targets, asked, recipe, evidence.seed)

    return folds.scores(NAME, predict)


def fine_tuned(
    predictor: str, texts: Texts, targets: FloatArray, held_out: Texts, recipe: Recipe = PUBLISHED, seed: int = 0
) -> FloatArray:
    """Fine-tune weights to targets of questions with replies, and return what they give to others.

    Parameters
    ----------
    predictor
        The weights to begin from.
    texts, targets
        n questions with replies, and for each what it is to be given, in [0, 1].
    held_out
        m others.
    recipe, seed
        How, and the seed of the new head's weights, of dropout and of the order.

    Returns
    -------
    ndarray, shape (m,)
    """
    import torch  # noqa: PLC0415 - of an extra, and slow to load
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415 - of an extra

    def load(*, local_files_only: bool) -> tuple[Any, Any]:
        tokenizer = AutoTokenizer.from_pretrained(predictor, local_files_only=local_files_only)
        # Weights are often kept in half precision, in which AdamW's small steps are lost.
        model = AutoModelForSequenceClassification.from_pretrained(
            predictor, num_labels=2, dtype=torch.float32, local_files_only=local_files_only
        )
        return tokenizer, model

    with torch.random.fork_rng():  # whoever else draws from torch's generator finds it as it was
        torch.manual_seed(seed)
        tokenizer, model = _loaded(predictor, load)
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        _train(model, tokenizer, texts, targets, recipe, np.random.default_rng(seed))
        model.eval()
        batches = (held_out[start : start + recipe.batch_size] for start in range(0, len(held_out), recipe.batch_size))
        with torch.no_grad():
            parts = [_probabilities(model, tokenizer, batch, recipe).cpu().numpy() for batch in batches]
    return np.concatenate(parts).astype(np.float64)


def _train(
    model: Any, tokenizer: Any, texts: Texts, targets: FloatArray, recipe: Recipe, rng: np.random.Generator
) -> None:
    import torch  # noqa: PLC0415 - of an extra, and slow to load
    from transformers import get_cosine_schedule_with_warmup  # noqa: PLC0415 - of an extra

    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    # The schedule is a tenth longer than the training, so that the last steps still learn.
    rate = get_cosine_schedule_with_warmup(optimiser, min(recipe.steps // 10, 100), recipe.steps * 11 // 10)
    model.train()
    epochs = -(-recipe.steps * recipe.batch_size // len(texts))
    order = np.concatenate([rng.permutation(len(texts)) for _ in range(epochs)])
    for step in range(recipe.steps):
        batch = order[step * recipe.batch_size : (step + 1) * recipe.batch_size]
        given = _probabilities(model, tokenizer, [texts[one] for one in batch], recipe)
        wanted = torch.tensor(targets[batch], dtype=given.dtype, device=given.device)
        torch.nn.functional.mse_loss(given, wanted).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.largest_norm)
        optimiser.step()
        rate.step()
        optimiser.zero_grad()


def _probabilities(model: Any, tokenizer: Any, texts: Texts, recipe: Recipe) -> Any:
    """Return the second class's probability of each question with its reply, as a tensor."""
    questions, replies = ([one[part] for one in texts] for part in (0, 1))
    # Where the two are too long together, the longer one is cut: the question stays where the reply is long.
    longest = min(recipe.longest, tokenizer.model_max_length, model.config.max_position_embeddings)
    tokens = tokenizer(questions, replies, padding=True, truncation=True, max_length=longest, return_tensors="pt")
    return model(**tokens.to(model.device)).logits.softmax(dim=-1)[:, 1]


def _loaded(name: str, load: Callable[..., Loaded]) -> Loaded:
    """Load what is on this machine; else, after a look whether the hub is there and has it, what the hub has."""
    from huggingface_hub import model_info  # noqa: PLC0415 - of an extra

    try:
        with quietly():
            try:
                return load(local_files_only=True)
            except OSError:
                if Path(name).exists():
                    raise
                model_info(name, timeout=HUB_SECONDS)  # the libraries themselves try for more than a minute
                return load(local_files_only=False)
    except Exception as error:  # whatever else a library has to say of files that it cannot read
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WeightsError(
            f"{NAME}: the weights {name!r} cannot be loaded ({said}); have a local folder that holds them, or a network"
        ) from error


APRICOT = Method(
    NAME,
    "APRICOT: DeBERTa fine-tuned on question and reply of the other folds; hours without a GPU",
    apricot,
    frozenset({Need.TRAINING, Need.WEIGHTS}),
    is_of_model=False,
    packages=("sklearn", "sentence_transformers", "torch", "transformers"),
    extra="confidence,transformers",
)
