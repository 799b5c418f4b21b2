"""Sentence vectors: the last hidden state of [CLS], or a mean over tokens."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.inference.batching import batches, encode_sentences
from tupe_jax.model.heads import MaskedLM
from tupe_jax.tokenizers.base import Tokenizer

Pooling = Literal["cls", "mean", "mean_all"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


def sentence_vectors(
    model: MaskedLM, tokenizer: Tokenizer, texts: Sequence[str], pooling: Pooling
) -> NDArray[np.float32]:
    """One vector for each text, [N, D]."""
    graph, state = nnx.split(model)
    special = tokenizer.special
    left_out = [special.pad_id]
    if pooling == "mean":
        left_out += [special.cls_id, special.sep_id]
    not_text = np.array(left_out)
    sequences = encode_sentences(tokenizer, texts, model.config)
    vectors_NxD = np.empty((len(sequences), model.config.hidden_size), np.float32)
    for tokens_BxS, indices in batches(sequences, model.config):
        vectors_BxD = _vectors(graph, pooling, state, tokens_BxS, not_text)
        vectors_NxD[indices] = vectors_BxD[: len(indices)]
    return vectors_NxD


@partial(jax.jit, static_argnums=(0, 1))
def _vectors(
    graph: Any, pooling: Pooling, state: Any, tokens_BxS: jax.Array, not_text: jax.Array
) -> jax.Array:
    model: MaskedLM = nnx.merge(graph, state)
    hidden_BxSxD = model.encode(tokens_BxS).astype(jnp.float32)
    if pooling == "cls":
        return model.cls_BxD(hidden_BxSxD, tokens_BxS)
    is_text_BxSx1 = ~jnp.isin(tokens_BxS, not_text)[..., None]
    mean_BxD: jax.Array = (hidden_BxSxD * is_text_BxSx1).sum(1) / is_text_BxSx1.sum(1)
    return mean_BxD
