"""How sensitive sentence representations are to word order.

A shuffled sentence is compared with the original and with another sentence:

    sensitivity    mean distance to the original, relative to the mean distance between originals:
                   0 for a bag of words, 1 if a shuffled sentence is as far away as any other one
    recognised     share of the shuffled sentences whose nearest original is their own

Distance is 1 - cosine, after subtracting the mean of all originals, because Transformer
representations share a large common component. It measures what a representation contains, not
what a model uses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tupe_jax.data.builtin.random_stream import stream
from tupe_jax.lab.intervals import Interval, bootstrap, wilson
from tupe_jax.lab.parsed_sentence import ParsedSentence, spelled
from tupe_jax.lab.shuffles import shuffle_all
from tupe_jax.model.measurement import full_precision
from tupe_jax.utils.errors import UserError

Represent = Callable[[Sequence[str]], ArrayLike]
"""Texts to vectors, [N, D]."""
_ROUNDING = 1e-5
"""Smaller distances are those of vectors that are equal in float32."""


@dataclass(frozen=True)
class OrderSensitivity:
    """See the module docstring; intervals by bootstrap over sentences and by Wilson."""

    count: int
    sensitivity: Interval
    recognised: Interval


@full_precision
def order_sensitivity(
    sentences: Sequence[ParsedSentence], represent: Represent, seed: int = 0
) -> OrderSensitivity:
    """Shuffle all words of each sentence and compare."""
    originals, changed = [], []
    for sentence in dict.fromkeys(sentences):
        tokens = shuffle_all(sentence, stream("order sensitivity", seed, sentence.text))
        if tokens is not None:
            originals.append(sentence.text)
            changed.append(spelled(tokens))
    if len(originals) < 3:
        raise UserError("word-order sensitivity takes at least three different sentences")
    vectors: NDArray[np.float64] = np.asarray(represent(originals + changed), np.float64)
    original_NxD, changed_NxD = vectors.reshape(2, len(originals), -1)
    common_D = original_NxD.mean(0)
    original_NxD, changed_NxD = _unit(original_NxD - common_D), _unit(changed_NxD - common_D)
    from_changed_NxN = 1 - changed_NxD @ original_NxD.T
    to_itself_N = from_changed_NxN.diagonal()
    # Unit vectors: the mean of the N - 1 products with the others is the sum over all minus itself.
    to_another_N = 1 - (original_NxD @ original_NxD.sum(0) - 1) / (len(originals) - 1)
    distances_Nx2 = np.stack([np.where(to_itself_N < _ROUNDING, 0, to_itself_N), to_another_N], 1)
    return OrderSensitivity(
        len(originals),
        bootstrap(distances_Nx2, lambda means: means[..., 0] / means[..., 1]),
        wilson(from_changed_NxN.argmin(1) == np.arange(len(originals))),
    )


def _unit(vectors_NxD: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = vectors_NxD / np.linalg.norm(vectors_NxD, axis=-1, keepdims=True)
    return unit
