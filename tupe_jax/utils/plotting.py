"""Plots of a run: its loss curve, and the position-only attention of each head.

The colours are those of Okabe and Ito and of `viridis`: colour-blind people can distinguish them,
also in greyscale. matplotlib is imported when a plot is drawn, because that takes a second.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import Path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"


def loss_curve(
    metrics: Sequence[dict[str, Any]], path: Path, *, unit: str, baseline: float | None
) -> None:
    """Training and validation loss by step, and the loss of predicting from frequencies."""
    step_N, loss_N = _series(metrics, "loss")
    valid_step_M, valid_loss_M = _series(metrics, "valid_loss")
    figure = new_figure(7.5, 4.5)
    axes = figure.add_subplot()
    if len(step_N):
        axes.plot(step_N, loss_N, color=BLUE, alpha=0.3, linewidth=0.8)
        axes.plot(step_N, smoothed(loss_N), color=BLUE, linewidth=2, label="training, smoothed")
    if len(valid_step_M):
        axes.plot(
            valid_step_M,
            valid_loss_M,
            "o-",
            color=ORANGE,
            markersize=5,
            linewidth=1,
            label=f"validation, {valid_loss_M[-1]:.2f} at the end",
        )
    if baseline is not None:
        axes.axhline(
            baseline,
            color=GREY,
            linestyle="--",
            linewidth=1.2,
            label=f"token frequencies only, {baseline:.2f}",
        )
    axes.set_xlabel("step")
    axes.set_ylabel(f"loss, {unit}")
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.margins(x=0.01)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        axes.legend(frameon=False)
    save_figure(figure, path)


def position_matrices(
    weights: ArrayLike, path: Path, *, title: str, first_position: int = 0
) -> None:
    """One panel per head: how much each position (row) attends to each position (column).

    `weights` is [H, S, S], or [L, H, S, S] if the layers differ; see `attention_by_position`. The
    colour is the weight relative to even attention, 1/S, on a scale of powers of two that all
    panels share, so that uniform and concentrated attention are equally easy to read.
    """
    weights = np.asarray(weights, np.float64)
    by_layer = weights.ndim == 4
    length = weights.shape[-1]
    heads = weights.shape[-3]
    panels_NxSxS = weights.reshape(-1, length, length) * length
    columns = heads if by_layer else _columns(heads)
    rows = -(-len(panels_NxSxS) // columns)
    figure = new_figure(2.1 * columns + 1.5, 2.2 * rows + 0.7)
    grid: NDArray[Any] = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    lowest, highest = powers_of_two_around(panels_NxSxS)
    for panel in grid.flat[len(panels_NxSxS) :]:
        panel.set_axis_off()
    for number, (panel, matrix_SxS) in enumerate(zip(grid.flat, panels_NxSxS, strict=False)):
        image = panel.imshow(
            exponents_of_two(matrix_SxS), vmin=lowest, vmax=highest, cmap="viridis"
        )
        layer, head = divmod(number, heads)
        name = f"layer {layer + 1}, head {head + 1}" if by_layer else f"head {head + 1}"
        panel.set_title(name, fontsize=10)
        mark_positions(panel, length, first_position)
    figure.suptitle(title, fontsize=12)
    figure.supxlabel("attended position", fontsize=10)
    figure.supylabel("attending position", fontsize=10)
    clipped = panels_NxSxS.min() < 2.0**lowest
    bar = figure.colorbar(
        image, ax=grid, shrink=0.9, aspect=30, pad=0.02, extend="min" if clipped else "neither"
    )
    bar.set_ticks(range(lowest, highest + 1), labels=power_names(lowest, highest))
    bar.ax.tick_params(labelsize=8)
    bar.set_label("attention (1x is even)", fontsize=10)
    save_figure(figure, path)


def _columns(panels: int) -> int:
    """One row for a few panels; otherwise four to six columns with the fewest gaps."""
    return panels if panels <= 4 else min((4, 5, 6), key=lambda columns: -panels % columns)


def exponents_of_two(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Binary logarithms; for zero a very small value, because infinity cannot be drawn."""
    exponents: NDArray[np.float64] = np.log2(np.maximum(weights, 1e-30))
    return exponents


def powers_of_two_around(values: NDArray[np.float64]) -> tuple[int, int]:
    """Exponents for the ends of a scale: at least 1/2 to 2, and not below 1/16."""
    highest = max(1, math.ceil(math.log2(values.max())))
    lowest = math.floor(math.log2(max(values.min(), 2.0**-4)))
    return min(-1, lowest), highest


def power_names(lowest: int, highest: int) -> list[str]:
    """Labels of a scale of binary exponents, relative to uniform attention."""
    return [f"{2**n}x" if n >= 0 else f"1/{2**-n}" for n in range(lowest, highest + 1)]


def attention_by_position(bias: ArrayLike) -> NDArray[np.float64]:
    """Softmax over the last axis: the attention that a position bias alone gives."""
    logits: NDArray[np.float64] = np.asarray(bias, np.float64)
    weights: NDArray[np.float64] = np.exp(logits - logits.max(-1, keepdims=True))
    normalized: NDArray[np.float64] = weights / weights.sum(-1, keepdims=True)
    return normalized


def smoothed(values_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """A centred running mean over about a fortieth of the curve, narrower at its ends."""
    half = max(1, len(values_N) // 80)
    sums = np.concatenate([[0.0], np.cumsum(values_N)])
    place = np.arange(len(values_N))
    # Symmetric windows: otherwise the ends of a falling curve would be bent.
    reach = np.minimum(half, np.minimum(place, len(values_N) - 1 - place))
    means: NDArray[np.float64] = (sums[place + reach + 1] - sums[place - reach]) / (2 * reach + 1)
    return means


def _series(
    metrics: Sequence[dict[str, Any]], name: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps and values of the lines that have the metric; non-finite values are None."""
    lines = [line for line in metrics if line.get(name) is not None]
    return (
        np.array([line["step"] for line in lines], np.int64),
        np.array([line[name] for line in lines], np.float64),
    )


def mark_positions(panel: "Axes", length: int, first: int = 0) -> None:
    """Ticks at a few positions, of which 0 is [CLS]; no frame."""
    step = 2 ** max(0, math.ceil(math.log2(length / 4)))
    ticks = range(0, length, step)
    names = [str(first + tick) if first + tick else "[CLS]" for tick in ticks]
    panel.set_xticks(ticks, names, fontsize=8)
    panel.set_yticks(ticks, names, fontsize=8)
    panel.tick_params(length=2)
    panel.spines[:].set_visible(False)


def new_figure(width: float, height: float) -> "Figure":
    # Not pyplot: this draws to memory on any machine and leaves a notebook's settings alone.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write atomically: a reader never sees a partial file."""
    with atomic_file(path) as unfinished:
        figure.savefig(unfinished, format="png", facecolor="white")
