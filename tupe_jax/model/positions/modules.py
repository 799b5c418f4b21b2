"""The chosen encodings as modules: weights shared by all layers, weights of a layer, `reset`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tupe_jax.config.schema import ModelConfig
from tupe_jax.kernels.factored import FactoredBias, sum_of_factored
from tupe_jax.model.layers import Weight
from tupe_jax.model.positions.distances import distances, toeplitz
from tupe_jax.model.positions.encoding import Encoding, Weights, encodings
from tupe_jax.utils.errors import UserError

PARTS = ("absolute", "relative")


class _Positions(nnx.Module):
    """Holds the weights of each part of the grid, such as `self.absolute["table"]`."""

    absolute: nnx.Dict[Any]
    relative: nnx.Dict[Any]

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Mapping[str, Weight]], rngs: nnx.Rngs
    ):
        self.config = config
        for part, declared in weights.items():
            setattr(
                self, part, nnx.Dict({n: weight.create(rngs) for n, weight in declared.items()})
            )

    def _parts(self) -> dict[str, tuple[Encoding, Weights]]:
        """The encodings with the arrays held here."""
        return {
            part: (encoding, {name: param[...] for name, param in getattr(self, part).items()})
            for part, encoding in encodings(self.config).items()
        }


class SharedPositions(_Positions):
    """The position weights that all layers share, and what is computed from them once per pass."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        chosen = encodings(config)
        super().__init__(config, {part: e.weights for part, e in chosen.items()}, rngs)

    def check_length(self, length: int) -> None:
        """Refuse an input that a table of positions does not cover."""
        for encoding, _ in self._parts().values():
            if encoding.longest is not None and length > encoding.longest:
                raise UserError(
                    f"input of {length} tokens is longer than position.max_length="
                    f"{encoding.longest}; truncate the input or train with a longer table"
                )

    def input_SxD(self, length: int) -> jax.Array | None:
        """The encodings that are added to the token embeddings, if any."""
        return sum_of(e.input(weights, length) for e, weights in self._parts().values() if e.input)

    def bias_HxSxS(self, length: int, parts: Sequence[str] = PARTS) -> jax.Array | None:
        """The bias that every layer adds to its scaled logits, if there is one."""
        chosen = (pair for part, pair in self._parts().items() if part in parts)
        shared = [pair for pair in chosen if not pair[0].has_layer_bias]
        return _sum_of_biases(shared, length, self.config.position.untie_cls)

    def once(self, length: int, *, local: bool = False) -> dict[str, Any]:
        """The arrays that terms inside the layers need from the shared weights, by part.

        `local` is for layers with an attention window.
        """
        return {
            part: (encoding.local_once if local and encoding.local_once else encoding.once)(
                weights, length
            )
            for part, (encoding, weights) in self._parts().items()
            if encoding.once
        }

    def factored_bias(self, length: int) -> FactoredBias:
        """The same bias without S x S numbers; no encoding may have a `bias` without form."""
        shared = [pair for pair in self._parts().values() if not pair[0].has_layer_bias]
        return _factored_sum(shared, length, self.config.position.untie_cls)


class LayerPositions(_Positions):
    """The position weights of one layer, and the terms that arise inside it."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        chosen = encodings(config)
        super().__init__(config, {part: e.layer_weights for part, e in chosen.items()}, rngs)

    def bias_HxSxS(self, length: int, parts: Sequence[str] = PARTS) -> jax.Array | None:
        """The layer's own bias, if it has one."""
        chosen = (pair for part, pair in self._parts().items() if part in parts)
        own = [pair for pair in chosen if pair[0].has_layer_bias]
        return _sum_of_biases(own, length, self.config.position.untie_cls)

    def factored_bias(self, length: int) -> FactoredBias:
        """The same bias without S x S numbers; no encoding may have a `bias` without form."""
        own = [pair for pair in self._parts().values() if pair[0].has_layer_bias]
        return _factored_sum(own, length, self.config.position.untie_cls)

    def queries_keys(
        self, once: Mapping[str, Any], q: jax.Array, k: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Queries and keys [B, S, H, d] as they enter the dot product."""
        for part, (encoding, weights) in self._parts().items():
            if encoding.queries_keys:
                q, k = encoding.queries_keys(once.get(part), weights, q, k)
        return q, k

    def scores_BxHxSxS(
        self, once: Mapping[str, Any], q: jax.Array, k: jax.Array
    ) -> jax.Array | None:
        """Position terms that need content, before the scale."""
        return sum_of(
            encoding.scores(once.get(part), weights, q, k)
            for part, (encoding, weights) in self._parts().items()
            if encoding.scores
        )


def reset(bias_HxSxS: jax.Array, theta_1_H: jax.Array, theta_2_H: jax.Array) -> jax.Array:
    """TUPE's untied [CLS]: theta_1 where i is [CLS], theta_2 where only j is, else the bias.

    [CLS] is always the first token. theta_1 is the same for all logits of a query, and softmax
    ignores that: [CLS] attends by content alone and theta_1 is never trained. It is here because
    the paper and its released weights have it.
    """
    is_cls_S = jnp.arange(bias_HxSxS.shape[-1]) == 0
    bias_HxSxS = jnp.where(is_cls_S[None, None, :], theta_2_H[:, None, None], bias_HxSxS)
    return jnp.where(is_cls_S[None, :, None], theta_1_H[:, None, None], bias_HxSxS)


def _sum_of_biases(
    chosen: Iterable[tuple[Encoding, Weights]], length: int, untie_cls: bool
) -> jax.Array | None:
    """The sum of the biases of several encodings, with [CLS] untied if `untie_cls`."""

    def one_bias(encoding: Encoding, weights: Weights) -> jax.Array | None:
        if encoding.bias:
            bias_HxSxS = encoding.bias(weights, length)
        elif encoding.position_products:
            p_q, p_k = encoding.position_products(weights, length)
            bias_HxSxS = jnp.einsum("ihd,jhd->hij", p_q, p_k)
        elif encoding.distance_bias:
            bias_HxSxS = toeplitz(encoding.distance_bias(weights, distances(length)), length)
            if encoding.row_factor:
                bias_HxSxS *= encoding.row_factor(length)[:, None]
        else:
            return None
        # `reset` overwrites, so the sum of reset biases has the sum of their thetas.
        return (
            reset(bias_HxSxS, *encoding.theta(weights))
            if untie_cls and encoding.theta
            else bias_HxSxS
        )

    biases = (one_bias(encoding, weights) for encoding, weights in chosen)
    return sum_of(bias for bias in biases if bias is not None)


def _factored_sum(
    chosen: Iterable[tuple[Encoding, Weights]], length: int, untie_cls: bool
) -> FactoredBias:
    """The biases of several encodings in factors."""
    total = FactoredBias()
    for encoding, weights in chosen:
        term = FactoredBias()
        if encoding.position_products:
            p_q, p_k = encoding.position_products(weights, length)
            term = FactoredBias(p_q_SxHxd=p_q, p_k_SxHxd=p_k)
        elif encoding.distance_bias:
            term = FactoredBias(
                by_distance_HxN=encoding.distance_bias(weights, distances(length)),
                row_factor_S=encoding.row_factor(length) if encoding.row_factor else None,
            )
        if untie_cls and encoding.theta:
            theta_1_H, theta_2_H = encoding.theta(weights)
            term = replace(term, theta_1_H=theta_1_H, theta_2_H=theta_2_H)
        total = sum_of_factored(total, term)
    return total


def sum_of(terms: Iterable[jax.Array]) -> jax.Array | None:
    """The sum of the terms; None if there are none."""
    total: jax.Array | None = None
    for term in terms:
        total = term if total is None else total + term
    return total
