"""Where the arrays of a foreign checkpoint live in our model, and how they are laid out there.

A format is a list of `Place`s, one for each of its arrays. Reading and writing walk the same list,
so what is read is written back bit for bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tupe_jax.model.params import Array, Path
from tupe_jax.utils.errors import UserError

Layout = Literal["same", "vector", "kernel", "merge"]
Index = tuple[int | slice, ...]


@dataclass(frozen=True)
class Place:
    """One array: its foreign name, our path, the part of our array at it, and the layout.

    same    as it is
    vector  flat there, [heads, head size] or the like here
    kernel  [outputs, inputs] there; here inputs first, outputs in several axes
    merge   [outputs, inputs] there; here inputs first and in several axes
    """

    name: str
    path: Path
    layout: Layout
    index: Index = ()
    """Such as the layer, or the queries among queries, keys and values."""

    def read(self, arrays: Mapping[Path, Array]) -> Array:
        """The foreign form of our array."""
        ours = arrays[self.path][self.index]
        match self.layout:
            case "same":
                return ours.copy()
            case "vector":
                return ours.reshape(-1).copy()
            case "kernel":
                return np.array(ours.reshape(ours.shape[0], -1).T, order="C")
            case "merge":
                return np.array(ours.reshape(-1, ours.shape[-1]).T, order="C")

    def write(self, arrays: Mapping[Path, Array], foreign: Array) -> None:
        """Fill our array from its foreign form."""
        check_shape(self.name, foreign, self.read(arrays).shape)
        ours = arrays[self.path][self.index]
        ours[...] = (foreign.T if self.layout in ("kernel", "merge") else foreign).reshape(
            ours.shape
        )


def check_shape(name: str, foreign: Array, expected: tuple[int, ...]) -> None:
    """Refuse an array that does not fit the model's sizes."""
    if foreign.shape != expected:
        raise UserError(
            f"{name} has shape {list(foreign.shape)}; the model's sizes ask for {list(expected)}"
        )


def linear(name: str, *path: str, layout: Layout = "kernel", index: Index = ()) -> Iterator[Place]:
    """The weight and the bias of a linear layer."""
    yield Place(f"{name}.weight", (*path, "kernel"), layout, index)
    yield Place(f"{name}.bias", (*path, "bias"), "vector", index)


def norm(name: str, *path: str, index: Index = ()) -> Iterator[Place]:
    """The scale and the bias of a LayerNorm."""
    yield Place(f"{name}.weight", (*path, "scale"), "same", index)
    yield Place(f"{name}.bias", (*path, "bias"), "same", index)


def reader(
    places: Sequence[Place], state: Mapping[str, Array]
) -> Callable[[dict[Path, tuple[int, ...]]], Mapping[Path, Array]]:
    """What `model_from` asks for: a function from the shapes of our arrays to the arrays."""

    def read(shapes: dict[Path, tuple[int, ...]]) -> Mapping[Path, Array]:
        arrays = {path: np.empty(shape, np.float32) for path, shape in shapes.items()}
        for place in places:
            place.write(arrays, state[place.name])
        return arrays

    return read


def check_names(
    state: Mapping[str, Array], places: Sequence[Place], hints: Mapping[str, str] | None = None
) -> None:
    """Refuse a checkpoint that lacks an array or has one more; `hints` by a part of its name."""
    expected = {place.name for place in places}
    for what, names in (
        ("lacks", expected - state.keys()),
        ("has an array we do not know,", state.keys() - expected),
    ):
        if names:
            first, rest = sorted(names)[0], len(names) - 1
            hint = next((text for part, text in (hints or {}).items() if part in first), "")
            raise UserError(
                f"the checkpoint {what} {first}" + (f" (and {rest} more)" * (rest > 0)) + hint
            )
