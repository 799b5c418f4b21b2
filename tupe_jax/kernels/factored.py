"""A positional bias in factors, of size S rather than S x S, for long sequences.

    bias[h, i, j] = row_factor[i] by_distance[h, j - i] + p_q[i, h] . p_k[j, h]

and, where [CLS] is untied, theta_2[h] in place of column 0 and theta_1[h] in place of row 0.
"""

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FactoredBias:
    """A part that is None is absent."""

    by_distance_HxN: jax.Array | None = None
    """For j - i = -(S-1) .. S-1: T5, ALiBi, attenuated."""
    row_factor_S: jax.Array | None = None
    """Not learnable: the attenuated encoding's normalisation near the ends of a sequence."""
    p_q_SxHxd: jax.Array | None = None
    p_k_SxHxd: jax.Array | None = None
    """TUPE's projected positions, the scale of logits in one of them."""
    theta_1_H: jax.Array | None = None
    theta_2_H: jax.Array | None = None


def dense(bias: FactoredBias, length: int) -> jax.Array:
    """The bias as [H, S, S]: the definition."""
    total: jax.Array | float = 0.0
    i, j = jnp.arange(length)[:, None], jnp.arange(length)
    if bias.by_distance_HxN is not None:
        total += bias.by_distance_HxN[:, j - i + length - 1]
    if bias.row_factor_S is not None:
        total *= bias.row_factor_S[:, None]
    if bias.p_q_SxHxd is not None and bias.p_k_SxHxd is not None:
        total += jnp.einsum("ihd,jhd->hij", bias.p_q_SxHxd, bias.p_k_SxHxd)
    if bias.theta_1_H is not None and bias.theta_2_H is not None:
        total = jnp.where(j == 0, bias.theta_2_H[:, None, None], total)
        total = jnp.where(i == 0, bias.theta_1_H[:, None, None], total)
    return jnp.asarray(total)


def sum_of_factored(a: FactoredBias, b: FactoredBias) -> FactoredBias:
    """Both at once: what one of them has, and the sum of what both have."""

    def both(name: str) -> jax.Array | None:
        x, y = getattr(a, name), getattr(b, name)
        total: jax.Array | None = x if y is None else y if x is None else x + y
        return total

    if a.p_q_SxHxd is not None and b.p_q_SxHxd is not None:
        raise ValueError("two biases that are products of positions have no sum of that form")
    for x, y in ((a, b), (b, a)):
        if x.row_factor_S is not None and y.by_distance_HxN is not None:
            raise ValueError(
                "a bias by distance with a row factor and another one have no sum of that form"
            )
    return FactoredBias(**{field.name: both(field.name) for field in fields(FactoredBias)})
