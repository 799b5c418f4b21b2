"""Plots of a study as inline SVG, which takes its colours from the HTML page.

Each variant has a colour of Okabe and Ito's palette, a marker and a dash in all plots, so that
colour is never the only difference. Text stays text: it can be searched and read aloud.
"""

import html
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tupe_jax.ablation.config import AblationConfig
from tupe_jax.ablation.convergence import mean_curve
from tupe_jax.ablation.report.html import Html, element
from tupe_jax.ablation.results import RunRecord, StudyResults
from tupe_jax.utils.paths import Path
from tupe_jax.utils.plotting import (
    BLUE,
    GREY,
    ORANGE,
    exponents_of_two,
    new_figure,
    power_names,
    powers_of_two_around,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", GREY)
_MARKERS, _DASHES = "os^Dv<>", ("-", "--", ":")
_INK, _GRID, _PAPER = "#1b1b1c", "#e4e4e5", "#fefefe"
_PAGE_COLOURS = {
    _INK: "currentColor",
    _GRID: "var(--grid)",
    _PAPER: "var(--card)",
    **{colour.lower(): f"var(--c{number})" for number, colour in enumerate(COLOURS)},
}
_LONGEST_NAME = 22
_LARGEST_TILE = 64


@dataclass(frozen=True)
class VariantStyle:
    """Colour, marker and dash of a variant."""

    colour: str
    marker: str
    dash: str
    hollow: bool

    @property
    def marks(self) -> dict[str, Any]:
        """Keyword arguments of matplotlib for its markers."""
        edge = {"markeredgecolor": self.colour, "markerfacecolor": _PAPER, "markeredgewidth": 1.5}
        filled = {"markeredgecolor": _PAPER, "markerfacecolor": self.colour, "markeredgewidth": 0.7}
        return {"marker": self.marker, "linestyle": "none", **(edge if self.hollow else filled)}


def variant_styles(variants: Sequence[str]) -> dict[str, VariantStyle]:
    """Styles that differ for the first 21 variants, as lines and as markers."""
    return {name: _style(*divmod(number, len(COLOURS))) for number, name in enumerate(variants)}


def _style(cycle: int, index: int) -> VariantStyle:
    # Every second cycle has hollow markers; after two cycles colours get other markers.
    marker = _MARKERS[(index + 3 * (cycle // 2)) % len(_MARKERS)]
    return VariantStyle(
        COLOURS[index], marker, _DASHES[cycle % len(_DASHES)], hollow=cycle % 2 == 1
    )


@dataclass(frozen=True)
class FinishedRuns:
    """The runs that did not diverge, by variant in the study's order, and the variants' styles."""

    config: AblationConfig
    runs: Mapping[str, Sequence[RunRecord]]
    """In the order of seeds; variants without a run are left out."""
    styles: Mapping[str, VariantStyle]

    @classmethod
    def of(cls, results: StudyResults) -> "FinishedRuns":
        names = [variant.name for variant in results.config.variants]
        runs = {
            name: [record for _, record in sorted(of.items()) if not record.diverged]
            for name, of in ((name, results.runs[name]) for name in names)
        }
        there = {name: records for name, records in runs.items() if records}
        return cls(results.config, there, variant_styles(names))

    def of_objective(self, objective: str) -> "FinishedRuns":
        """The runs with this objective; losses of different objectives are in different plots."""
        chosen = {
            name: [record for record in records if record.objective == objective]
            for name, records in self.runs.items()
        }
        return replace(self, runs={name: records for name, records in chosen.items() if records})

    def each(self, value: Callable[[RunRecord], T | None]) -> dict[str, list[T]]:
        """A value of every run, by variant; None and variants without a value are left out."""
        found = {
            name: [v for v in map(value, records) if v is not None]
            for name, records in self.runs.items()
        }
        return {name: values for name, values in found.items() if values}

    def legend(self, key: str) -> Html:
        items = (
            element("li", Html(swatch(self.styles[variant], f"{key}{number}")), variant)
            for number, variant in enumerate(self.runs)
        )
        return element("ul", *items, css="legend")


def swatch(style: VariantStyle, name: str) -> str:
    """A short line with the variant's marker, for a legend."""
    figure = new_figure(0.5, 0.17)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    axes.plot(
        [0.05, 0.95], [0.5, 0.5], style.dash, color=style.colour, linewidth=1.8, clip_on=False
    )
    axes.plot([0.5], [0.5], **style.marks, markersize=7, clip_on=False)
    return _svg(figure, name, "")


def loss_curves(
    curves: Mapping[str, Sequence[ArrayLike]],
    styles: Mapping[str, VariantStyle],
    name: str,
    after: int = 0,
) -> str:
    """Mean over seeds and, shaded, from the lowest to the highest; evaluations `after` a step."""
    # As high as the plot of `dots` next to it.
    figure, axes = _figure(3.8, max(3.0, _height(len(curves))))
    _draw_losses(axes, curves, styles, after)
    return _svg(figure, name, "validation loss of each variant by step")


def length_curves(
    curves: Mapping[str, Sequence[ArrayLike]],
    styles: Mapping[str, VariantStyle],
    name: str,
    about: str,
) -> str:
    """Lines over input lengths, on a logarithmic scale; a curve per seed: length and value."""
    figure, axes = _figure(3.8, 3.0)
    _draw_curves(axes, curves, styles)
    lengths = sorted({int(n) for of in curves.values() for c in of for n in np.asarray(c)[:, 0]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, map(str, lengths))
    axes.minorticks_off()
    axes.set_xlabel("tokens with [CLS]")
    axes.set_ylabel(about)
    axes.margins(x=0.05)
    return _svg(figure, name, f"{about} of each variant by input length")


def loss_plot(
    curves: Mapping[str, Sequence[ArrayLike]], styles: Mapping[str, VariantStyle], path: Path
) -> None:
    """The curves with a legend, highest loss first, as an image outside the report."""
    from matplotlib.lines import Line2D

    figure, axes = _figure(7.5, max(3.6, _height(len(curves))))
    last = _draw_losses(axes, curves, styles)
    names = sorted(last, key=lambda variant: -last[variant])
    handles = [
        Line2D(
            [],
            [],
            **(styles[name].marks | {"color": styles[name].colour, "linestyle": styles[name].dash}),
        )
        for name in names
    ]
    labels = [f"{_short(name)}  {last[name]:.2f}" for name in names]
    axes.legend(handles, labels, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    save_figure(figure, path)


def _draw_losses(
    axes: "Axes",
    curves: Mapping[str, Sequence[ArrayLike]],
    styles: Mapping[str, VariantStyle],
    after: int = 0,
) -> dict[str, float]:
    """Draw each variant by step, and return its mean final loss."""
    ends = _draw_curves(axes, curves, styles, after)
    axes.set_xlabel("step")
    axes.set_ylabel("validation loss, nats")
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.locator_params(axis="x", nbins=6, integer=True)
    axes.margins(x=0.02)
    return ends


def _draw_curves(
    axes: "Axes",
    curves: Mapping[str, Sequence[ArrayLike]],
    styles: Mapping[str, VariantStyle],
    after: int = 0,
) -> dict[str, float]:
    """Draw the mean and the spread of each variant from x = `after`, and return the last mean."""
    ends = {}
    for variant, of_variant in curves.items():
        each = [np.asarray(curve) for curve in of_variant]
        late = [curve_Ex2[curve_Ex2[:, 0] >= after] for curve_Ex2 in each]
        mean_Ex2 = mean_curve(late)
        step_E = mean_Ex2[:, 0]
        loss_SxE = np.array([c_Ex2[np.isin(c_Ex2[:, 0], step_E), 1] for c_Ex2 in late])
        style = styles[variant]
        axes.fill_between(
            step_E, loss_SxE.min(0), loss_SxE.max(0), color=style.colour, alpha=0.2, linewidth=0
        )
        axes.plot(step_E, mean_Ex2[:, 1], style.dash, color=style.colour, linewidth=1.6)
        axes.plot(step_E[-1:], mean_Ex2[-1:, 1], **style.marks, markersize=7, clip_on=False)
        if len(mean_Ex2):
            ends[variant] = float(mean_Ex2[-1, 1])
    return ends


def dots(
    values: Mapping[str, Sequence[float]],
    styles: Mapping[str, VariantStyle],
    name: str,
    about: str,
    *,
    bars: Mapping[str, tuple[float, float]] | None = None,
    line: float | None = None,
    limits: tuple[float, float] | None = None,
) -> str:
    """A row for each variant: a small dot for each seed, a large marker for their mean."""
    figure, axes = _figure(3.8, _height(len(values)))
    for row, (variant, of_variant) in enumerate(values.items()):
        style = styles[variant]
        if bars is not None:
            axes.plot(bars[variant], [row, row], color=style.colour, linewidth=1.6, alpha=0.7)
        axes.plot(
            of_variant,
            [row] * len(of_variant),
            "o",
            color=style.colour,
            alpha=0.5,
            markersize=4,
            markeredgewidth=0,
        )
        axes.plot([np.mean(of_variant)], [row], **style.marks, markersize=7)
    if line is not None:
        axes.axvline(line, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_yticks(range(len(values)), [_short(variant) for variant in values])
    axes.set_ylim(len(values) - 0.4, -0.6)
    if limits is not None:
        axes.set_xlim(*limits)
    axes.margins(x=0.06)
    axes.locator_params(axis="x", nbins=5)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(about)
    return _svg(figure, name, about)


def scatter(
    points: Mapping[str, Sequence[tuple[float, float]]],
    styles: Mapping[str, VariantStyle],
    name: str,
    x_label: str,
    y_label: str,
) -> str:
    """A small dot for each run, a large marker for the mean of a variant."""
    figure, axes = _figure(3.8, 3.0)
    for variant, of_variant in points.items():
        style = styles[variant]
        xy_Rx2 = np.array(of_variant)
        axes.plot(*xy_Rx2.T, "o", color=style.colour, alpha=0.5, markersize=3.5, markeredgewidth=0)
        axes.plot(*xy_Rx2.mean(0)[:, None], **style.marks, markersize=9)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.margins(0.08)
    axes.locator_params(nbins=5)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    return _svg(figure, name, f"{y_label} against {x_label}")


def scale_of(matrices: Sequence[NDArray[np.float32]]) -> tuple[int, int]:
    """The common scale of matrices: powers of two, relative to uniform attention."""
    around = [powers_of_two_around(m.astype(np.float64) * m.shape[-1]) for m in matrices]
    return min(low for low, _ in around), max(high for _, high in around)


def head_matrices(
    weights_LxHxNxN: NDArray[np.float32], scale: tuple[int, int], name: str, about: str
) -> str:
    """All heads as tiles, a row for each layer; colour is weight relative to uniform attention."""
    layers, heads, length, _ = weights_LxHxNxN.shape
    tiles_LxHxTxT = exponents_of_two(
        coarse(weights_LxHxNxN.astype(np.float64), _LARGEST_TILE) * length
    )
    tile = tiles_LxHxTxT.shape[-1]
    gap = max(1, tile // 12)
    side = tile + gap
    mosaic = np.full((layers * side - gap, heads * side - gap), np.nan)
    for layer in range(layers):
        for head in range(heads):
            top, left = layer * side, head * side
            mosaic[top : top + tile, left : left + tile] = tiles_LxHxTxT[layer, head]
    figure = new_figure(3.8, 3.4 * layers / heads + 0.35)
    axes = figure.add_subplot()
    axes.imshow(mosaic, vmin=scale[0], vmax=scale[1], cmap="viridis", interpolation="none")
    every = max(1, math.ceil(max(layers, heads) / 12))
    axes.set_xticks(*_tile_names(heads, side, tile, every))
    axes.set_yticks(*_tile_names(layers, side, tile, every))
    axes.xaxis.tick_top()
    axes.tick_params(length=0, colors=_INK, labelsize=9, pad=1)
    axes.spines[:].set_visible(False)
    return _svg(figure, name, about)


def attention_scale(scale: tuple[int, int], name: str) -> str:
    """The colour bar of `head_matrices`."""
    lowest, highest = scale
    figure = new_figure(3.8, 0.45)
    axes = figure.add_subplot()
    axes.imshow(
        np.linspace(lowest, highest, 128)[None],
        cmap="viridis",
        aspect="auto",
        extent=(lowest, highest, 0, 1),
    )
    axes.set_xticks(range(lowest, highest + 1), power_names(lowest, highest))
    axes.set_yticks([])
    axes.tick_params(colors=_INK, labelsize=9, length=2)
    axes.spines[:].set_visible(False)
    return _svg(figure, name, "colour scale: attention relative to uniform attention")


def _tile_names(count: int, side: int, tile: int, every: int) -> tuple[list[float], list[str]]:
    numbers = range(0, count, every)
    return [n * side + (tile - 1) / 2 for n in numbers], [str(n + 1) for n in numbers]


def coarse(weights_LxHxNxN: NDArray[np.float64], largest: int) -> NDArray[np.float64]:
    """Average neighbouring weights to at most this many squared, to limit the size of a page."""
    length = weights_LxHxNxN.shape[-1]
    first_T = np.unique(np.linspace(0, length, min(length, largest) + 1).astype(int))
    width_T = np.diff(first_T)
    for axis in (-2, -1):
        weights_LxHxNxN = np.add.reduceat(weights_LxHxNxN, first_T[:-1], axis)
    means: NDArray[np.float64] = weights_LxHxNxN / (width_T[:, None] * width_T)
    return means


def _height(rows: int) -> float:
    return 0.3 * rows + 0.65


def _short(variant: str) -> str:
    return variant if len(variant) <= _LONGEST_NAME else f"{variant[: _LONGEST_NAME - 1]}…"


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    figure = new_figure(width, height)
    axes = figure.add_subplot()
    axes.set_facecolor("none")
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_INK)
    axes.tick_params(colors=_INK, labelsize=10, length=3)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(_INK)
        axis.label.set_fontsize(10)
    return figure, axes


def _svg(figure: "Figure", name: str, about: str) -> str:
    """The figure as SVG in the page's colours, with ids that are unique in the page."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": name, "font.sans-serif": ["DejaVu Sans"]}
    ):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    body = text[text.index(">") + 1 :]
    # Style rules inside an inline SVG would apply to the whole page.
    body = re.sub(r"<(metadata|style)\b.*?</\1>", "", body, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", body)
    body = re.sub(r'(url\(|href=")#', rf"\1#{name}-", body)
    for fixed, of_page in _PAGE_COLOURS.items():
        body = body.replace(fixed, of_page)
    view = re.search(r'viewBox="[^"]+"', text)
    assert view is not None
    seen = f'role="img" aria-label="{html.escape(about)}"' if about else 'aria-hidden="true"'
    return f"<svg {view[0]} {seen}>{body}"
