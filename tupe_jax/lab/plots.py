"""Plots of the laboratory; `tupe_jax.utils.plotting` has their style."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.lab.four_terms import TERMS, FourTerms
from tupe_jax.lab.length_extrapolation import LengthScore
from tupe_jax.lab.nli_probes import NliProbes
from tupe_jax.lab.probes import ROLES
from tupe_jax.utils.paths import Path
from tupe_jax.utils.plotting import BLUE, GREY, ORANGE, mark_positions, new_figure, save_figure


def term_matrices(terms: FourTerms, path: Path) -> None:
    """A row for each head, a column for each of the four terms, averaged over the text.

    Each row of a matrix is drawn without its mean, which softmax ignores. All panels share one
    colour scale, so that a term without visible structure is small compared with the others.
    """
    centred_4xHxSxS = terms.mean_4xHxSxS - terms.mean_4xHxSxS.mean(-1, keepdims=True)
    _, heads, length, _ = centred_4xHxSxS.shape
    # Otherwise a few extreme logits, often of [CLS], would leave all others grey.
    limit = float(np.percentile(abs(centred_4xHxSxS), 99.5))
    figure = new_figure(9.5, 1.95 * heads + 0.9)
    grid: NDArray[Any] = figure.subplots(heads, 4, squeeze=False, sharex=True, sharey=True)
    for head in range(heads):
        for panel, name, matrix_SxS in zip(
            grid[head], TERMS, centred_4xHxSxS[:, head], strict=True
        ):
            image = panel.imshow(matrix_SxS, vmin=-limit, vmax=limit, cmap="RdBu_r")
            mark_positions(panel, length)
            if head == 0:
                panel.set_title(name, fontsize=10)
        grid[head][0].set_ylabel(f"head {head + 1}", fontsize=10)
    figure.suptitle("the first layer's logits in four terms, mean over text", fontsize=12)
    bar = figure.colorbar(image, ax=grid, shrink=0.9, aspect=30, pad=0.02, extend="both")
    bar.set_label("logit minus the mean of its row", fontsize=10)
    save_figure(figure, path)


def probe_deltas(probes: NliProbes, path: Path) -> None:
    """The change of accuracy in each probe, with its interval.

    Exchanged roles have their own scale: on it the effect of shuffles would be invisible.
    """
    roles = [result for result in probes.results if result.name == ROLES]
    shuffles = [result for result in probes.results if result.name != ROLES]
    panels = [results for results in (shuffles, roles) if results]
    figure = new_figure(7.5, 4)
    widths = [len(results) + 1 for results in panels]
    grid: NDArray[Any] = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)
    for panel, results in zip(grid[0], panels, strict=True):
        deltas = [result.delta for result in results]
        points_3xN = 100 * np.array([(d.estimate, d.low, d.high) for d in deltas]).T
        delta_N, low_N, high_N = points_3xN
        panel.axhline(0, color=GREY, linestyle="--", linewidth=1.2)
        panel.errorbar(
            [f"{r.name}\n{r.original.estimate:.1%} of {r.count}" for r in results],
            delta_N,
            yerr=(delta_N - low_N, high_N - delta_N),
            fmt="o",
            color=BLUE,
            capsize=4,
        )
        panel.margins(x=0.6 / len(results))
        panel.tick_params(labelsize=9)
        panel.grid(axis="y", color="#e5e5e5", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    grid[0][0].set_ylabel("change of accuracy, percentage points")
    figure.suptitle(f"{probes.head} after changes of word order", fontsize=12)
    figure.supxlabel("probe, and accuracy before the change", fontsize=10)
    save_figure(figure, path)


def loss_by_length(scores: Sequence[LengthScore], path: Path) -> None:
    """Loss by input length, one line per rule. All lines begin with the trained lengths."""
    figure = new_figure(6, 3.6)
    axes = figure.add_subplot()
    rules = dict.fromkeys(score.rule for score in scores)
    shared = [s for s in scores if [other.length for other in scores].count(s.length) == 1]
    for rule, colour in zip(rules, (BLUE, ORANGE, GREY), strict=False):
        of_rule = {s.length: s.loss for s in (*shared, *scores) if s in shared or s.rule == rule}
        if len(of_rule) > 1 or len(rules) == 1:
            line = sorted(of_rule.items())
            axes.plot(*zip(*line, strict=True), "o-", color=colour, label=rule.replace("_", " "))
    axes.set_xscale("log", base=2)
    lengths = sorted({score.length for score in scores})
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_xlabel("tokens with [CLS]")
    axes.set_ylabel("nats per masked token")
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="tables of positions", frameon=False)
    save_figure(figure, path)
