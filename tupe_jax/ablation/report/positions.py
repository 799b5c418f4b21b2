"""Sections of the report: position-only attention, and its correlation with scores."""

import statistics
from collections.abc import Callable, Iterator

from tupe_jax.ablation.correlation import RankCorrelation, rank_correlation
from tupe_jax.ablation.report.html import (
    Content,
    Html,
    ReportSection,
    cards,
    element,
    figure,
    folded,
    how_to_read,
    named_figure,
    not_shown,
    table,
)
from tupe_jax.ablation.report.plots import (
    FinishedRuns,
    attention_scale,
    head_matrices,
    scale_of,
    scatter,
)
from tupe_jax.ablation.results import RunRecord
from tupe_jax.ablation.table import SHOWN_MEASURES, Value
from tupe_jax.lab.head_kinds import KINDS

RunScore = Callable[[RunRecord], float]


def attention(finished: FinishedRuns) -> Iterator[ReportSection]:
    """Position-only attention of each variant's first seed."""
    found = finished.each(
        lambda r: None if r.matrices_LxHxNxN is None else (r.matrices_LxHxNxN, r.kinds)
    )
    if not found:
        return
    first = {name: of_runs[0] for name, of_runs in found.items()}
    scale = scale_of([matrices for matrices, _ in first.values()])
    drawn = [
        named_figure(
            name,
            _count(kinds),
            head_matrices(matrices, scale, f"heads{number}", f"attention by position, {name}"),
        )
        for number, (name, (matrices, kinds)) in enumerate(first.items())
    ]
    yield ReportSection(
        "heads",
        "What heads learn about positions",
        [
            how_to_read(
                "One seed of each variant. Each tile is a head, each row of tiles a layer: how "
                f"much each of {finished.config.measure.length} positions (down) attends to each "
                "other one (across) when all words are the same, relative to uniform attention. "
                "Values below the scale have its darkest colour. A bright diagonal is attention to "
                "the word itself and its neighbours. The kinds of heads are those of the TUPE "
                "paper, assigned by a fixed rule."
            ),
            element("div", Html(attention_scale(scale, "scale")), css="scale"),
            cards(drawn),
            not_shown(
                "Attention in real text; other seeds, whose heads are in another order; and [CLS], "
                "which is left out."
            ),
        ],
    )


def _count(kinds: tuple[tuple[str, ...], ...]) -> str:
    heads = [kind for layer in kinds for kind in layer]
    return ", ".join(f"{heads.count(kind)} {kind}" for kind in KINDS if kind in heads)


def structure_and_scores(finished: FinishedRuns) -> Iterator[ReportSection]:
    """Locality and symmetry against fine-tuning scores."""
    tasks = finished.config.downstream.tasks
    scored = finished.each(lambda r: r if r.scores.keys() >= set(tasks) and r.measures else None)
    if not tasks or not scored:
        return
    by_task: dict[str, RunScore] = {task: _score_of(task) for task in tasks}

    def overall(record: RunRecord) -> float:
        return statistics.fmean(score(record) for score in by_task.values())

    of_overall = "mean of tasks" if len(tasks) > 1 else tasks[0]
    runs = [record for records in scored.values() for record in records]

    def correlation(measure: Value, score: RunScore) -> RankCorrelation:
        x, y = [_number(measure, record) for record in runs], list(map(score, runs))
        return rank_correlation(x, y, [record.variant for record in runs])

    def correlations(score: RunScore) -> list[list[str]]:
        return [[name, *_cells(correlation(m, score))] for name, m in SHOWN_MEASURES.items()]

    drawn = [
        figure(
            scatter(
                {
                    variant: [(_number(measure, record), overall(record)) for record in records]
                    for variant, records in scored.items()
                },
                finished.styles,
                f"{name.replace(' ', '-')}-score",
                name,
                f"{of_overall}, x 100",
            ),
            _caption(correlation(measure, overall)),
        )
        for name, measure in SHOWN_MEASURES.items()
    ]
    header = ["measure", "over variants", "95 %", "as strong by chance", "over runs", "95 %"]
    yield ReportSection(
        "structure",
        "Locality and symmetry against downstream score",
        [
            how_to_read(
                "Locality and symmetry are computed from the mean matrix over layers and heads. "
                "Symmetry as published does not detect one-sided attention. Mirror symmetry does; "
                "it is computed per head and averaged, because opposite sides cancel in a mean "
                "matrix. A large marker is a variant, a small dot a run. Spearman's correlation "
                "compares orders only: 1 if they agree, -1 if one is the reverse of the other."
            ),
            finished.legend("structure"),
            cards(drawn),
            table(header, correlations(overall)),
            *(
                folded(f"With {task} alone", table(header, correlations(score)))
                for task, score in by_task.items()
                if len(tasks) > 1
            ),
            not_shown(
                "Causation: variants differ in more than one property. Intervals resample variants "
                "with all their runs, because runs of one variant are nearly copies of one "
                "another; with few variants they are wide. “By chance” is the share of all "
                "pairings of variants and scores with at least as strong a correlation (estimated "
                "from 10,000 random pairings for more than seven variants). Among many "
                "correlations, some are strong by chance."
            ),
        ],
    )


def _number(measure: Value, record: RunRecord) -> float:
    number = measure(record)
    assert number is not None, "a measured run has every metric"
    return number


def _score_of(task: str) -> RunScore:
    return lambda record: 100 * record.scores[task].best


def _caption(found: RankCorrelation) -> Content:
    if found.of_means is None:
        return "Rank correlation: not defined (fewer than three variants, or no differences)."
    interval = "no interval" if found.interval is None else f"95 %: {_range(found.interval)}"
    number = element("b", f"{found.of_means:.2f}").text
    return Html(f"Rank correlation of {found.variants} variants {number} ({interval}).")


def _cells(found: RankCorrelation) -> list[str]:
    return [
        *_estimate(found.of_means, found.interval),
        _share(found.by_chance),
        *_estimate(found.of_runs, found.runs_interval),
    ]


def _estimate(estimate: float | None, interval: tuple[float, float] | None) -> tuple[str, str]:
    if estimate is None:
        return "not defined", ""
    return f"{estimate:.2f}", "none" if interval is None else _range(interval)


def _share(by_chance: float | None) -> str:
    if by_chance is None:
        return ""
    return f"{by_chance:.3f}" if by_chance >= 0.001 else "below 0.001"


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}"
