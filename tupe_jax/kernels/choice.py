"""Which implementation of attention runs: what was asked for, or the best that can, and why."""

from dataclasses import dataclass
from typing import Literal

from tupe_jax.errors import UserError

Implementation = Literal["xla", "pallas", "cudnn"]
Asked = Literal["auto", "xla", "pallas", "cudnn"]

_BEST: dict[str, Implementation] = {"tpu": "pallas", "gpu": "cudnn"}
_HEAD_SIZES = (32, 64, 128)


@dataclass(frozen=True)
class Choice:
    """An implementation and the reason for it, as the log states them."""

    implementation: Implementation
    reason: str

    def __str__(self) -> str:
        return f"attention: {self.implementation} ({self.reason})"


def choose(
    asked: Asked,
    platform: str,
    *,
    head_size: int,
    dtype: str,
    attention_dropout: float,
    content_scores_of: str | None,
) -> Choice:
    """Decide for `cpu`, `gpu` or `tpu`; asking for what cannot run is an error.

    `content_scores_of` names an encoding whose terms need words and positions together, if any.
    """
    if asked == "xla":
        return Choice("xla", "asked for")
    wanted = _BEST.get(platform, "xla") if asked == "auto" else asked
    if wanted == "xla":
        return Choice("xla", f"no fused kernel for {platform}")
    hindrance = _hindrance(wanted, platform, head_size, dtype, content_scores_of)
    if (
        hindrance is None
        and asked == "auto"
        and wanted == "pallas"
        and head_size not in _HEAD_SIZES
    ):
        hindrance = f"heads of {head_size} features fill the kernel's tiles badly"
    if hindrance is None:
        reason = "asked for" if asked != "auto" else f"the fused kernel for {platform}"
        if wanted == "cudnn" and attention_dropout:
            reason += f"; xla in training, for model.attention_dropout={attention_dropout}"
        return Choice(wanted, reason)
    if asked == "auto":
        return Choice("xla", f"not {wanted}: {hindrance}")
    raise UserError(
        f"model.attention_implementation={asked!r} cannot run: {hindrance}; "
        "set it to 'auto' or 'xla'"
    )


def _hindrance(
    wanted: Implementation, platform: str, head_size: int, dtype: str, content_scores_of: str | None
) -> str | None:
    if content_scores_of is not None:
        return f"position.relative={content_scores_of!r} adds terms that need the words"
    if wanted == "pallas":
        return "the kernel is for TPUs" if platform == "gpu" else None
    if platform != "gpu":
        return f"cuDNN is for GPUs, not for {platform}"
    if dtype != "bfloat16":
        return f"cuDNN has no fused attention for model.dtype={dtype!r}"
    if head_size % 8 or head_size > 128:
        return f"cuDNN wants heads of a multiple of 8 and at most 128 features, not {head_size}"
    return None
