"""Pictures of a run: its loss curve, and what each head has learned about positions.

Colours are those of Okabe and Ito and of `viridis`: told apart by colour-blind people, and even in
grey. matplotlib is imported when a picture is drawn, for it takes a second.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"


def loss_curve(metrics: Sequence[dict[str, Any]], unigram_loss: float | None, path: Path) -> None:
    """Training and validation loss by step, beside the loss of guessing by frequency alone."""
    step_N, loss_N = _series(metrics, "loss")
    valid_step_M, valid_loss_M = _series(metrics, "valid_loss")
    figure = _figure(7.5, 4.5)
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
    if unigram_loss is not None:
        axes.axhline(
            unigram_loss,
            color=GREY,
            linestyle="--",
            linewidth=1.2,
            label=f"word frequencies alone, {unigram_loss:.2f}",
        )
    axes.set_xlabel("step")
    axes.set_ylabel("loss per masked word (nats)")
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.margins(x=0.01)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        axes.legend(frameon=False)
    _save(figure, path)


def position_matrices(weights: ArrayLike, path: Path, *, title: str) -> None:
    """One panel per head: the share of attention (colour) from each place (row) to each (column).

    `weights` is [H, S, S], or [L, H, S, S] for matrices of each layer; see `attention_by_position`.
    A share is drawn relative to even attention, 1/S, on a scale of powers of two that all panels
    have in common: a head that looks everywhere is as plain to see as one that looks at one word.
    """
    from matplotlib.colors import LogNorm

    weights_LxHxSxS = np.asarray(weights, np.float64)
    by_layer = weights_LxHxSxS.ndim == 4
    if not by_layer:
        weights_LxHxSxS = weights_LxHxSxS[None]
    layers, heads, length, _ = weights_LxHxSxS.shape
    # Layers are rows of the grid; without them the heads are laid out as a rectangle.
    columns = heads if by_layer else min(heads, max(2, math.ceil(math.sqrt(heads * 1.5))))
    rows = layers * heads // columns if by_layer else -(-heads // columns)
    figure = _figure(2.1 * columns + 1.3, 2.25 * rows + 0.9)
    grid: NDArray[Any] = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    relative = weights_LxHxSxS * length
    scale = LogNorm(2.0**-4, 2.0 ** max(3, math.ceil(math.log2(relative.max()))), clip=True)
    for number, panel in enumerate(grid.flat):
        if number >= layers * heads:
            panel.set_axis_off()
            continue
        layer, head = divmod(number, heads)
        image = panel.imshow(relative[layer, head], norm=scale, cmap="viridis")
        panel.set_title(
            f"layer {layer + 1}, head {head + 1}" if by_layer else f"head {head + 1}", fontsize=10
        )
        _mark_positions(panel, length)
    figure.suptitle(title, fontsize=12)
    figure.supxlabel("attended position", fontsize=10)
    figure.supylabel("attending position", fontsize=10)
    bar = figure.colorbar(image, ax=grid, shrink=0.8, aspect=30, pad=0.02)
    bar.ax.yaxis.set_major_formatter(lambda x, _: f"{x:g}x" if x >= 1 else f"1/{1 / x:g}")
    bar.set_label("attention relative to even", fontsize=10)
    _save(figure, path)


def attention_by_position(bias: ArrayLike) -> NDArray[np.float64]:
    """Softmax over the last axis: the attention that a position bias alone would give."""
    bias = np.asarray(bias, np.float64)
    exponentials = np.exp(bias - bias.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def smoothed(values_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """A centred running mean over about a fortieth of the curve, narrower at its ends."""
    half = max(1, len(values_N) // 80)
    sums = np.concatenate([[0.0], np.cumsum(values_N)])
    place = np.arange(len(values_N))
    # As far to one side as to the other: else the ends of a falling curve are bent.
    reach = np.minimum(half, np.minimum(place, len(values_N) - 1 - place))
    return (sums[place + reach + 1] - sums[place - reach]) / (2 * reach + 1)


def _series(
    metrics: Sequence[dict[str, Any]], name: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps and values of the lines that have the value; it is None where it was not finite."""
    lines = [line for line in metrics if line.get(name) is not None]
    return (
        np.array([line["step"] for line in lines], np.int64),
        np.array([line[name] for line in lines], np.float64),
    )


def _mark_positions(panel: "Axes", length: int) -> None:
    """Ticks at [CLS] and a few positions, no frame."""
    step = 2 ** max(0, math.ceil(math.log2(length / 4)))
    ticks = range(0, length, step)
    names = ["[CLS]", *map(str, ticks[1:])]
    panel.set_xticks(ticks, names, fontsize=8)
    panel.set_yticks(ticks, names, fontsize=8)
    panel.tick_params(length=2)
    panel.spines[:].set_visible(False)


def _figure(width: float, height: float) -> "Figure":
    # Not pyplot: this draws to memory on any machine and leaves a notebook's settings alone.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    """A reader never sees half a picture."""
    unfinished = path.with_name(f"{path.name}.tmp")
    figure.savefig(unfinished, format="png", facecolor="white")
    unfinished.replace(path)
