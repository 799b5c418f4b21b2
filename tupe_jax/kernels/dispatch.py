"""Which implementation of attention runs: what was asked for, or the best that can, and why."""

from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp

from tupe_jax.kernels.block_sizes import fits_one_tile
from tupe_jax.utils.errors import UserError

Implementation = Literal["xla", "pallas", "cudnn"]
Asked = Literal["auto", "xla", "pallas", "cudnn"]

_BEST: dict[str, Implementation] = {"tpu": "pallas", "gpu": "cudnn"}
_HEAD_SIZES = (32, 64, 128)


@dataclass(frozen=True)
class Choice:
    """An implementation and the reason for it, as the log states them."""

    implementation: Implementation
    reason: str
    long_rows: bool = False
    """The Pallas kernel that cuts rows into blocks, and takes the bias in factors."""

    def __str__(self) -> str:
        return f"attention: {self.implementation} ({self.reason})"


def choose(
    asked: Asked,
    platform: str,
    length: int,
    *,
    num_heads: int,
    head_size: int,
    dtype: str,
    attention_dropout: float,
    has_bias: bool,
    content_scores_of: str | None,
    formless_bias_of: str | None,
) -> Choice:
    """Decide for rows of `length` on `cpu`, `gpu` or `tpu`; asking for what cannot run is an error.

    `content_scores_of` names a setting whose terms need words and positions together, if any;
    `formless_bias_of` one whose bias has no factors and must be made as S x S.
    """
    if asked == "xla":
        return Choice("xla", "asked for")
    wanted = _BEST.get(platform, "xla") if asked == "auto" else asked
    if wanted == "xla":
        return Choice("xla", f"no fused kernel for {platform}")
    whole_rows = fits_one_tile(length, num_heads, head_size, jnp.dtype(dtype).itemsize)
    if content_scores_of is not None:
        hindrance: str | None = f"{content_scores_of} adds terms that need the words"
    elif wanted == "cudnn":
        hindrance = _hindrance_to_cudnn(platform, length, head_size, dtype, has_bias)
    elif platform == "gpu":
        hindrance = "the kernel is for TPUs"
    elif not whole_rows and formless_bias_of is not None:
        hindrance = f"{formless_bias_of} has a bias without factors, for {length} tokens too large"
    elif asked == "auto" and head_size not in _HEAD_SIZES:
        hindrance = f"heads of {head_size} features fill the kernel's tiles badly"
    else:
        hindrance = None
    if hindrance is not None and asked != "auto":
        raise UserError(
            f"model.attention_implementation={asked!r} cannot run: {hindrance}; "
            "set it to 'auto' or 'xla'"
        )
    if hindrance is not None:
        return Choice("xla", f"not {wanted}: {hindrance}")
    reason = "asked for" if asked != "auto" else f"the fused kernel for {platform}"
    if wanted == "pallas":
        reason += f"; {'whole' if whole_rows else 'long'} rows"
        return Choice("pallas", reason, long_rows=not whole_rows)
    if attention_dropout:
        reason += f"; xla in training, for model.attention_dropout={attention_dropout}"
    return Choice("cudnn", reason)


def _hindrance_to_cudnn(
    platform: str, length: int, head_size: int, dtype: str, has_bias: bool
) -> str | None:
    if platform != "gpu":
        return f"cuDNN is for GPUs, not for {platform}"
    if dtype != "bfloat16":
        return f"cuDNN has no fused attention for model.dtype={dtype!r}"
    if head_size % 8 or head_size > 128:
        return f"cuDNN wants heads of a multiple of 8 and at most 128 features, not {head_size}"
    if has_bias and length % 2:
        return f"cuDNN cannot train a bias for rows of an odd length, {length} tokens"
    return None
