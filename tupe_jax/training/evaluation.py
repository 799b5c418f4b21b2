"""Validation: the same rows with the same masks in every run, so that losses can be compared.

Masks are drawn batch by batch: they are others where `train.batch_size / train.accumulate` is.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from numpy.typing import NDArray

from tupe_jax.config.schema import Config
from tupe_jax.distributed.cpu_sync import block_on_cpu
from tupe_jax.distributed.mesh import batch_sharding
from tupe_jax.model.heads import MaskedLM
from tupe_jax.objectives.masked_lm import Sums, masked_lm_sums
from tupe_jax.objectives.masking import MaskedBatch, never_chosen
from tupe_jax.tokenizers.sentencepiece import SPECIAL
from tupe_jax.training.dataset import global_batch
from tupe_jax.training.train_state import Params, random_key
from tupe_jax.training.train_step import Mask

Rows = NDArray[np.int32]


class Validation:
    """Loss and accuracy at the masked positions of fixed validation rows."""

    def __init__(
        self,
        config: Config,
        graph: nnx.GraphDef[MaskedLM],
        mask: Mask,
        rows_NxS: Rows,
        mesh: Mesh,
    ):
        # As many rows at once as in a micro-batch of training, which fits by experience; the last
        # batch is filled up with padding, of which nothing is ever masked.
        size = config.train.batch_size // config.train.accumulate
        self._batches = list(_batches(rows_NxS, size, config.model.pad_id))
        self._mesh = mesh
        self.never_chosen = never_chosen(config.objective, SPECIAL)

        def masked_batch(tokens_BxS: jax.Array, number: jax.Array) -> MaskedBatch:
            # Not the run's seed: runs of different seeds are compared, too.
            return mask(tokens_BxS, random_key(0, "validation", number))

        def sums_of(params: Params, tokens_BxS: jax.Array, number: jax.Array) -> Sums:
            return masked_lm_sums(nnx.merge(graph, params), masked_batch(tokens_BxS, number), None)

        self._mask: Callable[..., MaskedBatch] = jax.jit(masked_batch)
        self._sums_of: Callable[..., Sums] = jax.jit(sums_of)

    def __call__(
        self, params: Params, stop_requested: Callable[[], bool]
    ) -> dict[str, float] | None:
        """Validation metrics, or None if the run was asked to stop meanwhile."""
        totals: Any = None
        for number, tokens_BxS in enumerate(self._batches):
            if stop_requested():
                return None
            tokens = global_batch(batch_sharding(self._mesh), tokens_BxS)
            with jax.set_mesh(self._mesh):
                sums = block_on_cpu(self._sums_of(params, tokens, jnp.int32(number)))
            totals = sums if totals is None else jax.tree.map(jnp.add, totals, sums)
        return {
            "valid_loss": float(totals.loss / totals.weight),
            "valid_accuracy": float(totals.correct / totals.weight),
        }

    def targets(self) -> Rows:
        """The hidden tokens of all validation rows, in one array: what a baseline has to guess."""
        hidden = []
        for number, tokens_BxS in enumerate(self._batches):
            masked = jax.device_get(self._mask(tokens_BxS, jnp.int32(number)))
            hidden.append(masked.targets_BxM[masked.weights_BxM > 0])
        return np.concatenate(hidden)


def _batches(rows_NxS: Rows, size: int, pad_id: int) -> Iterator[Rows]:
    for start in range(0, len(rows_NxS), size):
        batch = rows_NxS[start : start + size]
        yield np.pad(batch, ((0, size - len(batch)), (0, 0)), constant_values=pad_id)
