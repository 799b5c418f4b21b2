"""Section of the report: inputs longer than those in training."""

import statistics
from collections.abc import Iterator, Sequence

from tupe_jax.ablation.report.html import (
    Html,
    ReportSection,
    cards,
    element,
    figure,
    folded,
    how_to_read,
    not_shown,
    table,
)
from tupe_jax.ablation.report.plots import FinishedRuns, length_curves
from tupe_jax.ablation.table import best_by_length
from tupe_jax.lab.length_extrapolation import SHOWN_MEASURES, LengthScore


def longer_inputs(finished: FinishedRuns) -> Iterator[ReportSection]:
    """Loss and position-only attention by input length, with the best rule and with every rule."""
    best = finished.each(lambda record: best_by_length(record) or None)
    if not best:
        return
    trained = finished.config.pretrain.data.length
    lengths = sorted({length for runs in best.values() for of in runs for length in of})
    losses = {
        name: [[(length, loss) for length, (loss, _) in of.items()] for of in runs]
        for name, runs in best.items()
    }
    localities = {
        name: [[(length, s.measures["locality"]) for length, (_, s) in of.items()] for of in runs]
        for name, runs in best.items()
    }
    scores = finished.each(lambda record: record.lengths or None)
    yield ReportSection(
        "lengths",
        "Longer inputs",
        [
            how_to_read(
                f"Models were trained on {trained} tokens. The same masked tokens of the "
                "validation text are predicted at every length; only the borders of the sequences "
                "differ. Encodings that are functions of the distance or of the position define "
                "every length. A table of positions is extended by one of three rules: as is "
                "(further rows were never trained), interpolated, or with copies of the last "
                "trained row. The plots and the first table show, for each run and length, the "
                "rule with the lowest loss."
            ),
            finished.legend("lengths"),
            cards(
                [
                    figure(
                        length_curves(losses, finished.styles, "length-loss", _LOSS),
                        "Loss. A line is the mean over seeds; the shaded area spans the lowest to "
                        "the highest seed.",
                    ),
                    figure(
                        length_curves(localities, finished.styles, "length-locality", "locality"),
                        "Locality of position-only attention, of the mean over layers and heads. "
                        "Uniform attention is less local the longer the input is.",
                    ),
                ]
            ),
            element("p", f"{_LOSS[0].upper()}{_LOSS[1:]}, the mean over seeds:"),
            table(
                ["variant", *(f"{length} tokens" for length in lengths)],
                [[name, *(_best(runs, n) for n in lengths)] for name, runs in best.items()],
            ),
            folded("Every rule, with position-only attention", _by_rule(scores)),
            not_shown(
                "Fine-tuning or training on longer inputs. Whether a model uses distant context: "
                "a text of short sentences needs little of it. The rule was chosen on the text "
                "that is shown, a small bias in favour of tables."
            ),
        ],
    )


_LOSS = "nats per masked token"

BestScores = dict[int, tuple[float, LengthScore]]


def _best(runs: Sequence[BestScores], length: int) -> str:
    there = [of[length] for of in runs if length in of]
    if not there:
        return ""
    rules = sorted({_words(score.rule) for _, score in there})
    named = f" ({', '.join(rules)})" if rules != ["as is"] else ""
    return f"{statistics.fmean(loss for loss, _ in there):.3f}{named}"


def _by_rule(scores: dict[str, list[tuple[LengthScore, ...]]]) -> Html:
    rows = []
    for variant, runs in scores.items():
        by_rule: dict[tuple[int, str], list[LengthScore]] = {}
        for score in (score for of_run in runs for score in of_run):
            by_rule.setdefault((score.length, score.rule), []).append(score)
        for (length, rule), found in by_rule.items():
            losses = [score.loss for score in found if score.loss is not None]
            loss = f"{statistics.fmean(losses):.3f}" if losses else ""
            means = (statistics.fmean(s.measures[name] for s in found) for name in SHOWN_MEASURES)
            rows.append([variant, f"{length}", _words(rule), loss, *(f"{x:.3f}" for x in means)])
    header = ["variant", "tokens", "rule", _LOSS, *map(_words, SHOWN_MEASURES)]
    return table(header, rows)


def _words(name: str) -> str:
    return name.replace("_", " ")
