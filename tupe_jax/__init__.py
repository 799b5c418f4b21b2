"""Untied positional encoding (TUPE) in JAX, and a laboratory of positional encodings.

    config     all settings             model      the encoder and all positional encodings
    interop    other formats            commands   the `tupe` commands

    load       loads a trained model: `model = tupe_jax.load("runs/quickstart")`

Names below are imported when first used, so that `tupe --help` does not import JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "MaskedLM": "tupe_jax.model.heads",
    "ModelConfig": "tupe_jax.config.schema",
    "PositionConfig": "tupe_jax.config.schema",
    "TrainedModel": "tupe_jax.inference.trained_model",
    "UserError": "tupe_jax.utils.errors",
    "load": "tupe_jax.inference.loading",
    "model_config": "tupe_jax.config.schema",
}

__all__ = [
    "MaskedLM",
    "ModelConfig",
    "PositionConfig",
    "TrainedModel",
    "UserError",
    "__version__",
    "load",
    "model_config",
]

if TYPE_CHECKING:
    from tupe_jax.config.schema import ModelConfig, PositionConfig, model_config
    from tupe_jax.inference.loading import load
    from tupe_jax.inference.trained_model import TrainedModel
    from tupe_jax.model.heads import MaskedLM
    from tupe_jax.utils.errors import UserError


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tupe_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
