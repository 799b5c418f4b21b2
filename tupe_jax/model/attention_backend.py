"""Settings that follow the hardware: what `auto` means on a platform.

The platform is that of the devices a program is compiled for, which may be another machine's. A
config keeps its `auto`, so a model trained on TPUs runs elsewhere too.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from tupe_jax.config.schema import ModelConfig
from tupe_jax.kernels.banded import band_block
from tupe_jax.kernels.block_sizes import fits_one_tile, long_block
from tupe_jax.kernels.window import skips_half
from tupe_jax.model.positions import Encoding, encodings
from tupe_jax.utils.errors import UserError

Implementation = Literal["xla", "pallas", "cudnn"]

Kernel = Literal["single_block", "multi_block", "gpu", "banded"]
"""A module of `tupe_jax.kernels`. The last is XLA's, the others are Pallas kernels."""

_FUSED = ("tpu", "gpu")
"""The platforms for which we have kernels."""
_TPU_HEAD_SIZES = (32, 64, 128)
_LARGEST_GPU_HEAD = 128
"""Tiles of larger heads do not fit the shared memory of a GPU."""


_LEAST_GPU = (8, 0)
"""The CUDA compute capability from which Triton, which compiles our kernel, supports a GPU."""


def platform_here() -> str:
    """`cpu`, `gpu` or `tpu`: of the mesh in context (`jax.set_mesh`), else of this process.

    A GPU that no fused kernel can run on has its architecture behind it, as in `gpu 7.5`.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    if device is None:
        return platform_of(jax.local_devices()[0])
    if jax.default_backend() == "gpu" and jax.local_devices()[0].device_kind == device.device_kind:
        return platform_of(jax.local_devices()[0])
    return str(device.platform)


def platform_of(device: Any) -> str:
    """The platform of a device, as `platform_here` names it."""
    # "8.0" for CUDA, "gfx90a" for ROCm; a device that is only compiled for has none.
    architecture = getattr(device, "compute_capability", None)
    if device.platform != "gpu" or architecture is None:
        return str(device.platform)
    capability = re.fullmatch(r"(\d+)\.(\d+)", architecture)
    if capability and tuple(map(int, capability.groups())) >= _LEAST_GPU:
        return "gpu"
    return f"gpu {architecture}"


def unrolls_layers(config: ModelConfig, platform: str) -> bool:
    """Unrolled layers run faster on CPUs; a scan, used elsewhere, compiles one layer instead."""
    return config.layer_loop == "unroll" or (config.layer_loop == "auto" and platform == "cpu")


@dataclass(frozen=True)
class Choice:
    """An implementation of attention and the reason for it, as the log states them."""

    implementation: Implementation
    reason: str
    kernel: Kernel | None = None
    """None: scores of all pairs."""

    @property
    def takes_factors(self) -> bool:
        """Whether the kernel makes the bias from its factors, as it must for long sequences."""
        return self.kernel in ("multi_block", "banded")

    def __str__(self) -> str:
        return f"attention: {self.implementation} ({self.reason})"


def attention_choices(config: ModelConfig, platform: str, length: int) -> dict[int, Choice]:
    """The choice for each window in use. Kernels may differ, the implementation does not."""
    return {
        window: attention_choice(config, platform, length, window)
        for window in dict.fromkeys(config.windows)
    }


def attention_choice(config: ModelConfig, platform: str, length: int, window: int = 0) -> Choice:
    """The implementation for sequences of `length` on a platform (`platform_here`), and why.

    `window` is that of a layer, one of `config.windows`. A requested implementation that cannot run
    is an error.
    """
    requested = config.attention_implementation
    if requested == "xla":
        return _by_xla(config, length, window, "requested")
    if requested == "auto" and platform not in _FUSED:
        return _by_xla(config, length, window, f"no fused kernel for {platform}")
    wanted: Implementation = "pallas" if requested == "auto" else requested
    obstacle = _obstacle(config, wanted, platform, length, window)
    if obstacle is not None and requested != "auto":
        raise UserError(
            f"model.attention_implementation={requested!r} cannot run: {obstacle}; "
            "set it to 'auto' or 'xla'"
        )
    if obstacle is not None:
        return _by_xla(config, length, window, f"not {wanted}: {obstacle}")
    reason = "requested" if requested != "auto" else f"the fused kernel for {platform}"
    if wanted == "pallas":
        kernel = _pallas_kernel(config, platform, length, window)
        reason += _scores_computed(kernel, window) + _size_of_bias(config, kernel, length)
        return Choice("pallas", reason, kernel)
    if config.attention_dropout:
        reason += f"; xla in training, for model.attention_dropout={config.attention_dropout}"
    return Choice("cudnn", reason)


def _by_xla(config: ModelConfig, length: int, window: int, reason: str) -> Choice:
    """Without a Pallas kernel. Terms that need the tokens have scores of all pairs."""
    from_factors = not _terms_of_tokens(config) and not _dense_biases(config)
    if window and from_factors and skips_half(length, band_block(window), window):
        return Choice("xla", f"{reason}{_scores_computed('banded', window)}", "banded")
    return Choice("xla", reason)


def _pallas_kernel(config: ModelConfig, platform: str, length: int, window: int) -> Kernel:
    if platform == "gpu":
        return "gpu"
    if not _fits_one_block(config, length):
        return "multi_block"
    if window and not _dense_biases(config) and skips_half(length, long_block(window), window):
        return "multi_block"
    return "single_block"


def _scores_computed(kernel: Kernel, window: int) -> str:
    """For the log: which scores a kernel computes."""
    if kernel == "single_block":
        return "; one block of keys" + (f", masked outside a window of {window}" if window else "")
    if window:
        return f"; blocks of keys in a window of {window}"
    return "; many blocks of keys" if kernel == "multi_block" else ""


def _size_of_bias(config: ModelConfig, kernel: Kernel, length: int) -> str:
    """For the log: the bias of long sequences, which only the kernel for GPUs reads whole."""
    has_bias = any(encoding.has_bias for encoding in encodings(config).values())
    gibibytes = math.ceil(4 * config.num_heads * length**2 / 2**30)
    if kernel != "gpu" or not has_bias or gibibytes < 2:
        return ""
    return f"; the bias takes {gibibytes} GiB, its gradient as much"


def _obstacle(
    config: ModelConfig, wanted: Implementation, platform: str, length: int, window: int
) -> str | None:
    """Why a fused kernel cannot run, or should not; None if it can."""
    need_tokens, dense_biases = _terms_of_tokens(config), _dense_biases(config)
    if platform.startswith("gpu "):
        return f"the kernels for GPUs need CUDA and compute capability 8.0, and this is {platform}"
    if need_tokens:
        return f"{need_tokens[0]} adds terms that need the tokens"
    if wanted == "cudnn" and window:
        return f"cuDNN has no window on both sides, and model.attention_window={window}"
    if wanted == "cudnn":
        has_bias = any(encoding.has_bias for encoding in encodings(config).values())
        return _obstacle_to_cudnn(config, platform, length, has_bias)
    if platform == "gpu":
        return _obstacle_on_gpus(config)
    if dense_biases and not _fits_one_block(config, length):
        return f"{dense_biases[0]} has a bias without factors, for {length} tokens too large"
    if config.attention_implementation == "auto" and config.head_size not in _TPU_HEAD_SIZES:
        return f"heads of {config.head_size} features do not fill the kernel's tiles"
    return None


def _obstacle_on_gpus(config: ModelConfig) -> str | None:
    if config.dtype != "bfloat16":
        # Tensor cores do not multiply float32, and a tile of it overflows the registers.
        return f"the kernel for GPUs is for model.dtype='bfloat16', not {config.dtype!r}"
    if config.head_size > _LARGEST_GPU_HEAD:
        return (
            f"the kernel for GPUs requires heads of at most {_LARGEST_GPU_HEAD} features, "
            f"not {config.head_size}"
        )
    return None


def _obstacle_to_cudnn(
    config: ModelConfig, platform: str, length: int, has_bias: bool
) -> str | None:
    if platform != "gpu":
        return f"cuDNN is for GPUs, not for {platform}"
    if config.dtype != "bfloat16":
        return f"cuDNN has no fused attention for model.dtype={config.dtype!r}"
    if config.head_size % 8 or config.head_size > 128:
        return (
            "cuDNN requires heads of a multiple of 8 and at most 128 features, "
            f"not {config.head_size}"
        )
    if has_bias and length % 2:
        return f"cuDNN cannot train a bias for sequences of an odd length, {length} tokens"
    return None


def _encodings_by_setting(config: ModelConfig) -> dict[str, Encoding]:
    return {
        f"position.{part}={getattr(config.position, part)!r}": encoding
        for part, encoding in encodings(config).items()
    }


def _terms_of_tokens(config: ModelConfig) -> list[str]:
    """The settings that add terms which need the tokens."""
    names = [name for name, encoding in _encodings_by_setting(config).items() if encoding.scores]
    return [*names, "model.segment_attention=True"] if config.segment_attention else names


def _dense_biases(config: ModelConfig) -> list[str]:
    """The settings whose bias has no factors."""
    return [name for name, encoding in _encodings_by_setting(config).items() if encoding.bias]


def _fits_one_block(config: ModelConfig, length: int) -> bool:
    itemsize = jnp.dtype(config.dtype).itemsize
    return fits_one_tile(length, config.num_heads, config.head_size, itemsize)
