"""The parameters of a model as NumPy arrays by path. Every file format is built on them."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tupe_jax.config.schema import ModelConfig
from tupe_jax.model.heads import MaskedLM
from tupe_jax.utils.errors import UserError

Array = np.ndarray[Any, np.dtype[Any]]
Path = tuple[str, ...]
"""The path of a parameter in the model, such as ("encoder", "layers", "mlp_in", "kernel")."""
ParamArrays = Mapping[Path, Array]


def arrays_of(model: MaskedLM) -> dict[Path, Array]:
    """Every parameter of the model, in host memory."""
    params = nnx.to_flat_state(nnx.state(model, nnx.Param))
    return {path_names(path): np.asarray(jax.device_get(param[...])) for path, param in params}


def classification_heads_of(model: MaskedLM) -> dict[str, int]:
    """The number of outputs of each classification head of a model."""
    heads = model.classification_heads
    return {name: heads[name].output.kernel.shape[-1] for name in heads}


def classification_heads_in(params: ParamArrays) -> dict[str, int]:
    """The number of outputs of each classification head that has parameters."""
    found = {
        path[1]: array.shape[0]
        for path, array in params.items()
        if path[0] == "classification_heads" and path[2:] == ("output", "bias")
    }
    return dict(sorted(found.items()))


def param_shapes(
    config: ModelConfig, classification_heads: Mapping[str, int]
) -> dict[Path, tuple[int, ...]]:
    """The shape of every parameter of a model with this config and these heads."""
    abstract = nnx.state(_abstract_model(config, classification_heads))
    return {path_names(path): param.shape for path, param in nnx.to_flat_state(abstract)}


def model_from(config: ModelConfig, params: ParamArrays) -> MaskedLM:
    """The model with these parameters and the classification heads among them."""
    graph, abstract = nnx.split(_abstract_model(config, classification_heads_in(params)))
    expected = nnx.to_flat_state(abstract)
    for path, _ in expected:
        if path_names(path) not in params:
            raise UserError(f"the model lacks the array {'.'.join(path_names(path))}")
    filled = [
        (path, param.replace(jnp.asarray(params[path_names(path)]))) for path, param in expected
    ]
    model: MaskedLM = nnx.merge(graph, nnx.from_flat_state(filled))
    return model


def _abstract_model(config: ModelConfig, classification_heads: Mapping[str, int]) -> MaskedLM:
    """A model of shapes without values."""
    model: MaskedLM = nnx.eval_shape(
        lambda: MaskedLM(config, rngs=nnx.Rngs(0), classification_heads=classification_heads)
    )
    return model


def path_names(path: Any) -> Path:
    """A path of NNX, whose parts may be numbers, as names."""
    return tuple(str(part) for part in path)
