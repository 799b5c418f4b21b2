"""A checksum per array that does not depend on its sharding."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tupe_jax.distributed.mesh import block_on_cpu

GOLDEN_RATIO = 0x9E3779B9


def fingerprints(arrays: Mapping[str, Any]) -> dict[str, int]:
    """32 bits for each array, computed where the arrays are.

    Sums of integers do not depend on their order, so any sharding gives the same number. Every
    changed element changes its own term for certain; several may cancel once in 2^32.
    """
    # One call per array: arrays of one shape share a compilation, and all calls are dispatched
    # before the first result is awaited.
    values = jax.device_get([block_on_cpu(_fingerprint(array)) for array in arrays.values()])
    return {name: int(value) for name, value in zip(arrays, values, strict=True)}


@jax.jit
def _fingerprint(array: jax.Array) -> jax.Array:
    words = _words(array)
    # Computed axis by axis: to flatten a sharded array would move it between devices.
    index, stride = jnp.zeros((), jnp.uint32), 1
    for axis in reversed(range(words.ndim)):
        place = jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
        index = index + place * jnp.uint32(stride % 2**32)
        stride *= words.shape[axis]
    return jnp.sum(_mixed(words ^ (index * jnp.uint32(GOLDEN_RATIO))), dtype=jnp.uint32)


def _words(array: jax.Array) -> jax.Array:
    """The bits as uint32; 64-bit types get one more axis."""
    if array.dtype == jnp.bool_:
        return array.astype(jnp.uint32)
    same_size = {1: jnp.uint8, 2: jnp.uint16}.get(array.dtype.itemsize, jnp.uint32)
    return jax.lax.bitcast_convert_type(array, same_size).astype(jnp.uint32)


def _mixed(words: jax.Array) -> jax.Array:
    """Each word scrambled by a bijection (the finaliser of MurmurHash3)."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        words = (words ^ (words >> shift)) * jnp.uint32(factor)
    return words ^ (words >> 16)
