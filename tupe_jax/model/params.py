"""A model as plain numpy arrays by path, and back: the basis of every file format."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tupe_jax.config.schema import ModelConfig
from tupe_jax.model.heads import MaskedLM

Array = np.ndarray[Any, np.dtype[Any]]
Path = tuple[str, ...]
"""The path of a parameter in the model: ("encoder", "layers", "mlp_in", "kernel")."""


def arrays_of(model: MaskedLM) -> dict[Path, Array]:
    """Every parameter of the model."""
    params = nnx.to_flat_state(nnx.state(model, nnx.Param))
    return {_names(path): np.asarray(jax.device_get(param[...])) for path, param in params}


def classification_heads_of(model: MaskedLM) -> dict[str, int]:
    """The number of outputs of each classification head."""
    heads = model.classification_heads
    return {name: heads[name].output.bias.shape[0] for name in heads}


def model_from(
    config: ModelConfig,
    classification_heads: Mapping[str, int],
    read: Callable[[dict[Path, tuple[int, ...]]], Mapping[Path, Array]],
) -> MaskedLM:
    """A model whose parameters are what `read` returns, given the shapes of the model."""
    graph, abstract = nnx.split(
        nnx.eval_shape(
            lambda: MaskedLM(config, rngs=nnx.Rngs(0), classification_heads=classification_heads)
        )
    )
    params = nnx.to_flat_state(abstract)
    arrays = read({_names(path): param.shape for path, param in params})
    filled = [(path, param.replace(jnp.asarray(arrays[_names(path)]))) for path, param in params]
    model: MaskedLM = nnx.merge(graph, nnx.from_flat_state(filled))
    return model


def _names(path: Any) -> Path:
    return tuple(str(part) for part in path)
