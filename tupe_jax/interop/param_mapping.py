"""The mapping between the arrays of a foreign checkpoint and the parameters of our model.

A format is a list of `ParamMapping`s, one for each of its arrays. Reading and writing use the same
list, so what is read is written back bit for bit. Mappings of the same name are parts of one
foreign array, in this order along its first axis.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tupe_jax.model.params import Array, ParamArrays, Path
from tupe_jax.utils.errors import UserError

Layout = Literal["same", "vector", "kernel", "merge"]
Index = tuple[int | slice, ...]


@dataclass(frozen=True)
class ParamMapping:
    """One foreign array: its name, and the path, index and layout of its values in our model.

    same    identical
    vector  foreign: one axis; ours: several, such as [heads, head size]
    kernel  foreign: [outputs, inputs]; ours: inputs first, outputs in several axes
    merge   foreign: [outputs, inputs]; ours: inputs first and in several axes
    """

    name: str
    path: Path
    layout: Layout
    index: Index = ()
    """The part of our array, such as a layer, or the queries of a joint projection."""

    def to_foreign(self, params: ParamArrays) -> Array:
        """The foreign array with the values of our parameter."""
        ours = params[self.path][self.index]
        match self.layout:
            case "same":
                return ours.copy()
            case "vector":
                return ours.reshape(-1).copy()
            case "kernel":
                return np.array(ours.reshape(ours.shape[0], -1).T, order="C")
            case "merge":
                return np.array(ours.reshape(-1, ours.shape[-1]).T, order="C")

    def from_foreign(self, params: ParamArrays, foreign: Array) -> None:
        """Fill our parameter with the values of the foreign array."""
        ours = params[self.path][self.index]
        ours[...] = (foreign.T if self.layout in ("kernel", "merge") else foreign).reshape(
            ours.shape
        )


def check_shape(name: str, foreign: Array, expected: tuple[int, ...]) -> None:
    """Raise if an array does not fit the model's sizes."""
    if foreign.shape != expected:
        raise UserError(
            f"{name} has shape {list(foreign.shape)}; the model's sizes require {list(expected)}"
        )


def check_type(name: str, kind: str) -> None:
    """Raise unless the numbers of an array are the weights themselves."""
    if kind not in ("float16", "bfloat16", "float32", "float64"):
        raise UserError(
            f"{name} is of type {kind}: quantized weights are not supported; use the original model"
        )


def linear(
    name: str, *path: str, layout: Layout = "kernel", index: Index = (), bias: bool = True
) -> Iterator[ParamMapping]:
    """The weight and the bias of a linear layer."""
    yield ParamMapping(f"{name}.weight", (*path, "kernel"), layout, index)
    if bias:
        yield ParamMapping(f"{name}.bias", (*path, "bias"), "vector", index)


def norm(name: str, *path: str, index: Index = (), bias: bool = True) -> Iterator[ParamMapping]:
    """The scale and the bias of a norm."""
    yield ParamMapping(f"{name}.weight", (*path, "scale"), "same", index)
    if bias:
        yield ParamMapping(f"{name}.bias", (*path, "bias"), "same", index)


def params_from_state(
    state: Mapping[str, Array],
    mappings: Sequence[ParamMapping],
    shapes: Mapping[Path, tuple[int, ...]],
) -> ParamArrays:
    """Our parameters, of these shapes, with the values of the foreign arrays.

    A norm that the format does not have stays at its initial values, a scale of 1.
    """
    params = {
        path: np.full(shape, path[-1] == "scale", np.float32) for path, shape in shapes.items()
    }
    for name, parts in _by_name(mappings).items():
        shapes_of_parts = [part.to_foreign(params).shape for part in parts]
        rows = np.cumsum([0, *(shape[0] for shape in shapes_of_parts)])
        check_shape(name, state[name], (int(rows[-1]), *shapes_of_parts[0][1:]))
        for part, start, end in zip(parts, rows, rows[1:], strict=False):
            part.from_foreign(params, state[name][start:end])
    return params


def state_from_params(params: ParamArrays, mappings: Iterable[ParamMapping]) -> dict[str, Array]:
    """The foreign arrays, by name, with the values of our parameters."""
    return {
        name: np.concatenate([part.to_foreign(params) for part in parts])
        for name, parts in _by_name(mappings).items()
    }


def _by_name(mappings: Iterable[ParamMapping]) -> dict[str, list[ParamMapping]]:
    parts: dict[str, list[ParamMapping]] = {}
    for mapping in mappings:
        parts.setdefault(mapping.name, []).append(mapping)
    return parts


def check_names(
    state: Mapping[str, Array],
    mappings: Sequence[ParamMapping],
    hints: Mapping[str, str] | None = None,
) -> None:
    """Raise if arrays are missing or unknown. `hints` are appended, by a part of the name."""
    expected = {mapping.name for mapping in mappings}
    for what, names in (
        ("lacks", expected - state.keys()),
        ("has an unknown array,", state.keys() - expected),
    ):
        if names:
            first, rest = sorted(names)[0], len(names) - 1
            hint = next((text for part, text in (hints or {}).items() if part in first), "")
            raise UserError(
                f"the checkpoint {what} {first}" + (f" (and {rest} more)" * (rest > 0)) + hint
            )
