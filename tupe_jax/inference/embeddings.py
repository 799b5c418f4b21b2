"""Texts as vectors: the last hidden state of [CLS], or the mean over the words."""

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

Pooling = Literal["cls", "mean"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


def sentence_vectors(
    model: MaskedLM, encoder: Tokenizer, texts: Sequence[str], pooling: Pooling
) -> NDArray[np.float32]:
    """One vector for each text, [N, D]."""
    graph, state = nnx.split(model)
    special = encoder.special
    no_words = np.array([special.pad_id, special.cls_id, special.sep_id])
    rows = encode_sentences(encoder, texts, model.config)
    vectors_NxD = np.empty((len(rows), model.config.hidden_size), np.float32)
    for tokens_BxS, which in batches(rows, model.config):
        vectors_NxD[which] = _vectors(graph, pooling, state, tokens_BxS, no_words)[: len(which)]
    return vectors_NxD


@partial(jax.jit, static_argnums=(0, 1))
def _vectors(
    graph: Any, pooling: Pooling, state: Any, tokens_BxS: jax.Array, no_words: jax.Array
) -> jax.Array:
    model: MaskedLM = nnx.merge(graph, state)
    hidden_BxSxD = model.encode(tokens_BxS).astype(jnp.float32)
    if pooling == "cls":
        return model.cls_BxD(hidden_BxSxD, tokens_BxS)
    is_word_BxSx1 = ~jnp.isin(tokens_BxS, no_words)[..., None]
    mean_BxD: jax.Array = (hidden_BxSxD * is_word_BxSx1).sum(1) / is_word_BxSx1.sum(1)
    return mean_BxD
