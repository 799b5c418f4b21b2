"""What a fine-tuned model answers: classes with their probabilities, or scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.data.labelled.encode import join
from tupe_jax.inference.batching import batches, encode_unmasked, named
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.positions import padding_matters
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError

Texts = str | tuple[str, str]
"""What is to be judged: a text, or a pair of them."""


@dataclass(frozen=True, repr=False)
class Answer:
    """The likeliest class of a text or pair, and the probability of every class."""

    label: str
    probabilities: Mapping[str, float]

    def __repr__(self) -> str:
        return f"{self.label} {self.probabilities[self.label]:.0%}"


def as_answers(outputs_NxC: NDArray[np.float32], classes: Sequence[str]) -> list[Answer]:
    """The outputs of a head as classes."""
    unscaled_NxC = np.exp(outputs_NxC - outputs_NxC.max(-1, keepdims=True), dtype=np.float64)
    probability_NxC = unscaled_NxC / unscaled_NxC.sum(-1, keepdims=True)
    return [
        Answer(classes[int(row.argmax())], dict(zip(classes, map(float, row), strict=True)))
        for row in probability_NxC
    ]


def head_outputs(
    model: MaskedLM, encoder: Tokenizer, texts: Sequence[Texts], head: str, length: int
) -> NDArray[np.float32]:
    """What a classification head gives for each, [N, C]; cut at `length` tokens, as in training."""
    rows = [
        _row(encoder, text, named(text, number, len(texts)), length)
        for number, text in enumerate(texts, 1)
    ]
    # Where padding changes numbers, there is as much of it as in training.
    by_padding = padding_matters(model.config)
    graph, state = nnx.split(model)
    outputs_NxC = np.empty((len(rows), model.classification_heads[head].output.bias.shape[0]))
    for tokens_BxS, which in batches(rows, model.config, length if by_padding else None):
        outputs_NxC[which] = _outputs(graph, head, state, tokens_BxS)[: len(which)]
    return outputs_NxC.astype(np.float32)


def _row(encoder: Tokenizer, text: Texts, name: str, length: int) -> NDArray[np.int32]:
    parts = (text,) if isinstance(text, str) else text
    ids = [encode_unmasked(encoder, part, name) for part in parts]
    if not all(ids):
        raise UserError(f"{name} has no words")
    return np.array(join(encoder, ids[0], ids[1] if len(ids) == 2 else None, length), np.int32)


@partial(jax.jit, static_argnums=(0, 1))
def _outputs(graph: Any, head: str, state: Any, tokens_BxS: jax.Array) -> jax.Array:
    outputs_BxC: jax.Array = nnx.merge(graph, state).classify(tokens_BxS, head)
    return outputs_BxC
