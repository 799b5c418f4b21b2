"""Pictures of the laboratory; see `tupe_jax.training.pictures` for their style."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tupe_jax.lab.four_terms import TERMS, FourTerms
from tupe_jax.training.pictures import mark_positions, new_figure, save_figure


def term_matrices(terms: FourTerms, path: Path) -> None:
    """A row for each head, a column for each of the four terms, averaged over the text.

    Each row of a matrix is drawn without its mean, which softmax ignores. All panels share their
    colours, so that a term that looks even is small beside the others.
    """
    centred_4xHxSxS = terms.mean_4xHxSxS - terms.mean_4xHxSxS.mean(-1, keepdims=True)
    _, heads, length, _ = centred_4xHxSxS.shape
    # A few extreme logits, often of [CLS], would else leave all others grey.
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
    bar.set_label("logit, less its row's mean", fontsize=10)
    save_figure(figure, path)
