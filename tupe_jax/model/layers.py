"""Weights with named axes, and the small functions every layer is made of."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from tupe_jax.config.schema import ModelConfig
from tupe_jax.kernels.dropout import is_kept

Initializer = Callable[[jax.Array, Sequence[int]], jax.Array]


def normal(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    """N(0, 0.02), the papers' initialization of every linear and embedding weight."""
    return 0.02 * jax.random.normal(key, shape)


def zeros(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    return jnp.zeros(shape)


def ones(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    return jnp.ones(shape)


@dataclass(frozen=True)
class Weight:
    """The declaration of a learnable float32 array: shape, logical axis names, initial values.

    Sharding needs only these names (`embed`, `heads`, ...) of a model.
    """

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    init: Initializer = normal

    def create(self, rngs: nnx.Rngs) -> nnx.Param[jax.Array]:
        # Not flax's own `sharding` metadata: that needs a mesh as soon as the array is created.
        return nnx.Param(self.init(rngs.params(), self.shape), axes=self.axes)


@dataclass(frozen=True)
class Axis:
    """A dimension of a weight: its logical name (None is never sharded) and its size."""

    name: str | None
    size: int


class Linear(nnx.Module):
    """y = x W + b, where x ends in the axes `inputs` and y in the axes `outputs`."""

    def __init__(
        self,
        inputs: Sequence[Axis],
        outputs: Sequence[Axis],
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        use_bias: bool = True,
    ):
        def weight(axes: Sequence[Axis], init: Initializer) -> Weight:
            return Weight(tuple(a.size for a in axes), tuple(a.name for a in axes), init)

        self.kernel = weight((*inputs, *outputs), normal).create(rngs)
        self.bias = weight(outputs, zeros).create(rngs) if use_bias else None
        self.inputs = len(inputs)
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        kernel, inputs = self.kernel[...].astype(self.dtype), self.inputs
        bias = None if self.bias is None else self.bias[...].astype(self.dtype)
        if jax.sharding.get_abstract_mesh().size > 1:
            y = jnp.tensordot(x, kernel, inputs)
            return y if bias is None else y + bias
        # XLA multiplies plain matrices faster on CPUs, above all in the backward pass.
        tokens_TxI = x.reshape(-1, math.prod(kernel.shape[:inputs]))
        y_TxO = tokens_TxI @ kernel.reshape(tokens_TxI.shape[1], -1)
        if bias is not None:
            y_TxO += bias.reshape(-1)
        return y_TxO.reshape(*x.shape[: x.ndim - inputs], *kernel.shape[inputs:])


class LayerNorm(nnx.Module):
    """LayerNorm over the last axis, with float32 statistics whatever the type of its input."""

    def __init__(self, feature: Axis, *, eps: float, rngs: nnx.Rngs, use_bias: bool = True):
        self.scale = Weight((feature.size,), (feature.name,), ones).create(rngs)
        self.bias = (
            Weight((feature.size,), (feature.name,), zeros).create(rngs) if use_bias else None
        )
        self.eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        bias = None if self.bias is None else self.bias[...]
        return layer_norm(x, self.scale[...], bias, self.eps)


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array | None, eps: float) -> jax.Array:
    """(x - mean) / sqrt(variance + eps) * scale + bias, over the last axis, in float32."""
    x32 = x.astype(jnp.float32)
    centred = x32 - x32.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    normed = centred * jax.lax.rsqrt(variance + eps) * scale
    return (normed if bias is None else normed + bias).astype(x.dtype)


class RMSNorm(nnx.Module):
    """x / sqrt(mean(x^2) + eps) * scale over the last axis, in float32 (Zhang & Sennrich, 2019)."""

    def __init__(self, feature: Axis, *, eps: float, rngs: nnx.Rngs):
        self.scale = Weight((feature.size,), (feature.name,), ones).create(rngs)
        self.eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        mean_square = jnp.square(x32).mean(-1, keepdims=True)
        normed: jax.Array = x32 * jax.lax.rsqrt(mean_square + self.eps) * self.scale[...]
        return normed.astype(x.dtype)


def make_norm(config: ModelConfig, feature: Axis, *, rngs: nnx.Rngs) -> LayerNorm | RMSNorm:
    """The norm chosen by the config, over an axis of features."""
    if config.norm == "rms_norm":
        return RMSNorm(feature, eps=config.layer_norm_eps, rngs=rngs)
    return LayerNorm(feature, eps=config.layer_norm_eps, rngs=rngs, use_bias=config.norm_bias)


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """The exact GELU, x Phi(x), in float32: in bfloat16 Phi would be lost where it is small.

    By erf: `jax.nn.gelu` has erfc, which is twice as expensive on CPUs. The backward pass keeps x
    and nothing else: the largest arrays of a layer are of this shape.
    """
    x32 = x.astype(jnp.float32)
    return (x32 * (0.5 + 0.5 * jax.lax.erf(x32 * 0.5**0.5))).astype(x.dtype)


def _gelu_backward(x: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    x32 = x.astype(jnp.float32)
    Phi = 0.5 + 0.5 * jax.lax.erf(x32 * 0.5**0.5)
    phi = jnp.exp(-0.5 * x32 * x32) * (2 * np.pi) ** -0.5
    return ((dy * (Phi + x32 * phi)).astype(x.dtype),)


gelu.defvjp(lambda x: (gelu(x), x), _gelu_backward)


def gelu_tanh(x: jax.Array) -> jax.Array:
    """Phi(x) as (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, for models trained with it."""
    return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)


def silu(x: jax.Array) -> jax.Array:
    """SiLU, x sigmoid(x), in float32."""
    return jax.nn.silu(x.astype(jnp.float32)).astype(x.dtype)


ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": jax.nn.relu,
    "silu": silu,
}


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Zero a fraction `rate` of x [batch, ..., features] and scale the rest; no key: x unchanged.

    The mask is a function of the key and of the indices, as in attention: it is never stored.
    """
    if key is None or rate == 0:
        return x
    sequence, *between, feature = jnp.ogrid[tuple(slice(size) for size in x.shape)]
    position = jnp.uint32(0)
    for size, index in zip(x.shape[1:-1], between, strict=True):
        position = position * size + index
    kept = is_kept(jax.random.bits(key), sequence, 0, position, feature, rate=rate)
    return jnp.where(kept, x / (1 - rate), 0).astype(x.dtype)


def split_key(key: jax.Array | None, count: int) -> Sequence[jax.Array | None]:
    """`count` keys from one; none from none."""
    return [None] * count if key is None else list(jax.random.split(key, count))
