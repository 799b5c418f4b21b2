"""Predictions of a fine-tuned model: classes with their probabilities, or scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.data.labelled.encode import join
from tupe_jax.inference.batching import TokenIds, batches, describe, encode_unmasked
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.positions import padding_matters
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError

Texts = str | tuple[str, str]
"""The input of a classification head: a text or a pair of texts."""


@dataclass(frozen=True, repr=False)
class Answer:
    """The most likely class of a text or pair, and the probability of every class."""

    label: str
    probabilities: Mapping[str, float]

    def __repr__(self) -> str:
        return f"{self.label} {self.probabilities[self.label]:.0%}"


def as_answers(outputs_NxC: NDArray[np.float32], classes: Sequence[str]) -> list[Answer]:
    """Convert the logits of a head to answers."""
    unscaled_NxC = np.exp(outputs_NxC - outputs_NxC.max(-1, keepdims=True), dtype=np.float64)
    probability_NxC = unscaled_NxC / unscaled_NxC.sum(-1, keepdims=True)
    return [
        Answer(classes[int(p_C.argmax())], dict(zip(classes, map(float, p_C), strict=True)))
        for p_C in probability_NxC
    ]


def head_outputs(
    model: MaskedLM, tokenizer: Tokenizer, texts: Sequence[Texts], head: str, length: int
) -> NDArray[np.float32]:
    """The outputs of a classification head, [N, C]; texts are truncated to `length` tokens."""
    sequences = [
        _encode(tokenizer, text, describe(text, number, len(texts)), length)
        for number, text in enumerate(texts, 1)
    ]
    # Where padding changes the outputs, pad as in fine-tuning.
    padded_length = length if padding_matters(model.config) else None
    graph, state = nnx.split(model)
    classes = model.classification_heads[head].output.kernel.shape[-1]
    outputs_NxC = np.empty((len(sequences), classes))
    for tokens_BxS, indices in batches(sequences, model.config, padded_length):
        outputs_NxC[indices] = _outputs(graph, head, state, tokens_BxS)[: len(indices)]
    return outputs_NxC.astype(np.float32)


def _encode(tokenizer: Tokenizer, text: Texts, description: str, length: int) -> TokenIds:
    parts = (text,) if isinstance(text, str) else text
    ids = [encode_unmasked(tokenizer, part, description) for part in parts]
    if not all(ids):
        raise UserError(f"{description} has no words")
    return np.array(join(tokenizer, ids[0], ids[1] if len(ids) == 2 else None, length), np.int32)


@partial(jax.jit, static_argnums=(0, 1))
def _outputs(graph: Any, head: str, state: Any, tokens_BxS: jax.Array) -> jax.Array:
    outputs_BxC: jax.Array = nnx.merge(graph, state).classify(tokens_BxS, head)
    return outputs_BxC
