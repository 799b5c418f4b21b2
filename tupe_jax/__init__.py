"""Untied positional encoding (TUPE) in JAX, and a laboratory of positional encodings.

    config     what can be set          model      the encoder and all positional encodings
    interop    other formats            commands   what `tupe` can do

    load       a trained model, for use: `model = tupe_jax.load("runs/quickstart")`

Names below are imported when first used: `tupe --help` should not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "MaskedLM": "tupe_jax.model.heads",
    "ModelConfig": "tupe_jax.config",
    "PositionConfig": "tupe_jax.config",
    "TrainedModel": "tupe_jax.trained_model",
    "UserError": "tupe_jax.errors",
    "load": "tupe_jax.trained_model",
    "model_config": "tupe_jax.config",
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
    from tupe_jax.config import ModelConfig, PositionConfig, model_config
    from tupe_jax.errors import UserError
    from tupe_jax.model.heads import MaskedLM
    from tupe_jax.trained_model import TrainedModel, load


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tupe_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
