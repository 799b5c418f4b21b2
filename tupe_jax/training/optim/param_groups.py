"""Parameter groups of the optimizers: which parameters are matrices, and along which axes.

This follows from the names of a parameter and of its axes, not from its number of axes: layers are
stacked, and the bias of a projection to heads has as many axes as a matrix.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx

Params = Any
"""A tree whose leaves are in `nnx.Param`s: parameters, gradients, updates."""

_FEATURES = {"embed", "mlp", "head_size"}

_INPUT_AXES: Mapping[tuple[str, ...], int] = {
    ("embed", "heads", "head_size"): 1,
    ("heads", "head_size", "embed"): 2,
    ("embed", "mlp"): 1,
    ("mlp", "embed"): 1,
}
"""The matrices between hidden states, by their axes: how many of these are the input's."""


@dataclass(frozen=True)
class HiddenMatrix:
    """Which axes of a parameter are the matrix's input and output; others stack matrices."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def is_decayed(path: tuple[Any, ...], param: nnx.Variable[Any]) -> bool:
    """Whether weight decay is usual: for matrices and embeddings.

    Not for biases, LayerNorms, other vectors, nor for the tables of numbers per distance that are
    added to the attention logits: they have no features.
    """
    axes = [name for name in param.get_metadata("axes") if name != "layers"]
    is_bias = str(path[-1].key).endswith("bias")
    return len(axes) >= 2 and not _FEATURES.isdisjoint(axes) and not is_bias


def is_positional(path: tuple[Any, ...]) -> bool:
    """Whether a parameter belongs to a positional encoding, shared by all layers or of a layer."""
    return any(getattr(part, "key", None) == "positions" for part in path)


def hidden_matrix(param: nnx.Variable[Any]) -> HiddenMatrix | None:
    """The axes of a matrix between hidden states; None for embeddings, output heads and vectors."""
    axes = param.get_metadata("axes")
    named = [i for i, name in enumerate(axes) if name not in ("layers", None)]
    inputs = _INPUT_AXES.get(tuple(axes[i] for i in named))
    if inputs is None:
        return None
    return HiddenMatrix(tuple(named[:inputs]), tuple(named[inputs:]))


def matrix_axes(param: nnx.Variable[Any]) -> tuple[int, ...]:
    """The axes of one of the matrices that a parameter stacks: of one layer, of query or key."""
    if matrix := hidden_matrix(param):
        return (*matrix.inputs, *matrix.outputs)
    return tuple(i for i, name in enumerate(param.get_metadata("axes")) if name != "layers")


def map_params(function: Callable[..., Any], params: Params, *others: Params) -> Any:
    """A tree like `params` with `function(path, param, *others)` as content of each `nnx.Param`."""

    def replaced(path: tuple[Any, ...], param: nnx.Variable[Any], *rest: Any) -> Any:
        return param.replace(function(path, param, *rest))

    return jax.tree.map_with_path(replaced, params, *others, is_leaf=_is_param)


def _is_param(node: Any) -> bool:
    return isinstance(node, nnx.Variable)
