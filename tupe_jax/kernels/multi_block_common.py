"""What the kernels over long rows have in common: their bias, their blocks, their logits."""

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tupe_jax.kernels.block_sizes import LANES, Tiles
from tupe_jax.kernels.common import Place, Settings, dot, of_head
from tupe_jax.kernels.diagonals import tile_of_window
from tupe_jax.kernels.dropout import is_kept


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BiasArrays:
    """A factored bias as the kernels read it; a part that is None is absent."""

    windows_HxNxW: jax.Array | None
    row_factor_Sx1: jax.Array | None
    p_q_SxF: jax.Array | None
    p_k_SxF: jax.Array | None
    thetas_Hx2: jax.Array | None


def bias_names(bias: BiasArrays) -> list[str]:
    """The parts that are present."""
    return [f.name for f in fields(bias) if getattr(bias, f.name) is not None]


def bias_arrays(bias: BiasArrays) -> list[jax.Array]:
    return [getattr(bias, name) for name in bias_names(bias)]


class LongBlockSpecs:
    """Which piece of an array the program (head block, row, query block) sees."""

    def __init__(self, tiles: Tiles):
        T, F = tiles, tiles.features
        self.grid = (T.num_heads // T.heads, T.batch, T.length // T.queries)
        self.queries = pl.BlockSpec((1, T.queries, F), lambda h, b, i, *_: (b, i, h))
        self.row = pl.BlockSpec((1, T.length, F), lambda h, b, i, *_: (b, 0, h))
        self.mask = pl.BlockSpec((1, 1, T.length), lambda h, b, i, *_: (b, 0, 0))
        self.stats = pl.BlockSpec((1, 1, 2 * T.heads, T.queries), lambda h, b, i, *_: (b, h, 0, i))
        windows = 2 * T.length // T.queries - 1
        self.bias = {
            "windows_HxNxW": pl.BlockSpec(
                (T.heads, windows, 2 * T.queries), lambda h, b, i, *_: (h, 0, 0)
            ),
            "row_factor_Sx1": pl.BlockSpec((T.queries, 1), lambda h, b, i, *_: (i, 0)),
            "p_q_SxF": pl.BlockSpec((T.length, F), lambda h, b, i, *_: (0, h)),
            "p_k_SxF": pl.BlockSpec((T.length, F), lambda h, b, i, *_: (0, h)),
            "thetas_Hx2": pl.BlockSpec(memory_space=pltpu.SMEM),
        }
        self.theta_gradient = pl.BlockSpec((T.heads, 1, LANES), lambda h, b, i, *_: (h, 0, 0))

    def of_bias(self, bias: BiasArrays) -> list[pl.BlockSpec]:
        return [self.bias[name] for name in bias_names(bias)]


@dataclass(frozen=True)
class Program:
    """Where in the whole batch a program works, read before any loop."""

    place: Place
    first_head: jax.Array
    """Among the heads given."""
    query_block: jax.Array

    @classmethod
    def of(cls, settings: Settings, place_ref: Any) -> "Program":
        first_head = pl.program_id(0) * settings.tiles.heads
        place = Place(place_ref[0], place_ref[1] + pl.program_id(1), place_ref[2] + first_head)
        return cls(place, first_head, pl.program_id(2))


def key_block(tiles: Tiles, n: Any) -> Any:
    return pl.ds(pl.multiple_of(n * tiles.queries, tiles.queries), tiles.queries)


def long_logits(
    settings: Settings,
    program: Program,
    bias: dict[str, Any],
    q: jax.Array,
    k: jax.Array,
    mask_1xk: jax.Array,
    head: int,
    n: Any,
) -> jax.Array:
    """The logits q k^T scale + bias for key block n, with padding masked, in float32."""
    tiles = settings.tiles
    total = jnp.zeros((tiles.queries, tiles.queries), jnp.float32)
    if "windows_HxNxW" in bias:
        window = n - program.query_block + tiles.length // tiles.queries - 1
        total += tile_of_window(bias["windows_HxNxW"][head, pl.ds(window, 1)])
    if "row_factor_Sx1" in bias:
        total *= bias["row_factor_Sx1"][...]
    if "p_q_SxF" in bias:
        p_q = bias["p_q_SxF"][key_block(tiles, program.query_block)]
        p_k = of_head(tiles, head, bias["p_k_SxF"][key_block(tiles, n)])
        total += dot(p_q, p_k, contract=(1, 1))
    if "thetas_Hx2" in bias:
        theta_1, theta_2 = (bias["thetas_Hx2"][program.first_head + head, m] for m in (0, 1))
        i, j = places(tiles, program, n)
        total = jnp.where(i == 0, theta_1, jnp.where(j == 0, theta_2, total))
    return dot(q, k, contract=(1, 1)) * settings.scale + mask_1xk + total


def long_kept(settings: Settings, program: Program, head: int, n: Any) -> jax.Array:
    """Dropout's choice for key block n."""
    place = program.place
    i, j = places(settings.tiles, program, n)
    return is_kept(place.seed, place.row, place.head + head, i, j, rate=settings.rate)


def places(tiles: Tiles, program: Program, n: Any) -> tuple[jax.Array, jax.Array]:
    """The places in the row of this program's queries, [queries, 1], and of key block n, [1, k]."""
    size = tiles.queries
    i = program.query_block * size + jax.lax.broadcasted_iota(jnp.int32, (size, 1), 0)
    return i, n * size + jax.lax.broadcasted_iota(jnp.int32, (1, size), 1)
