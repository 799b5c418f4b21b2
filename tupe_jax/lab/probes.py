"""Probes: the accuracy of a sentence-pair classifier when the word order changes.

A probe needs no model, only a function from examples to predicted classes. Each compares the
predictions for the same examples before and after the change:

    Shuffle-3 .. Shuffle-6, Random    the premise's words shuffled inside its constituents of that
                                      size, or all of them; the label is assumed to stay
    Shuffle-SR                        agent and patient of the hypothesis exchanged, in pairs whose
                                      premise entails it; any label but entailment is right

The published probe sets (Chen et al., 2023) were not released; these follow their description.
Roles are exchanged in the hypothesis, because an exchange in the premise may leave the label
unchanged: "A ball throws a man outside" still entails that a man is outside. Sentences before and
after the change are spelled by the same rules, so that only the order differs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tupe_jax.data.builtin.random_stream import stream
from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.glue import THREE_WAY
from tupe_jax.lab.intervals import Interval, paired_difference, wilson
from tupe_jax.lab.nli_pairs import ENTAILMENT, NliPair
from tupe_jax.lab.parsed_sentence import spelled
from tupe_jax.lab.shuffles import SIZES, shuffle_all, shuffle_constituents
from tupe_jax.utils.errors import UserError

ROLES = "Shuffle-SR"

Predict = Callable[[Sequence[Example]], ArrayLike]
"""Maps examples to predicted class numbers; it must not use the labels."""


@dataclass(frozen=True)
class ProbeItem:
    """An example, its changed version, and the labels that are right after the change."""

    original: Example
    changed: Example
    right: frozenset[int]


@dataclass(frozen=True)
class Probe:
    """A named set of items."""

    name: str
    items: tuple[ProbeItem, ...]


@dataclass(frozen=True)
class ProbeResult:
    """Accuracies before and after the change on the same examples, and their difference."""

    name: str
    count: int
    original: Interval
    changed: Interval
    delta: Interval


def run_probe(probe: Probe, predict: Predict) -> ProbeResult:
    """Classify both versions of every item."""
    if not probe.items:
        raise UserError(f"{probe.name} applies to none of the pairs; give more pairs")
    classified = [item.original for item in probe.items] + [item.changed for item in probe.items]
    predictions = np.asarray(predict(classified))
    if predictions.shape != (len(classified),):
        raise UserError(
            f"{probe.name}: predictions for {len(classified)} examples have the shape "
            f"{list(predictions.shape)}"
        )
    right = [{item.original.label} for item in probe.items] + [item.right for item in probe.items]
    hits_2N = np.array(
        [int(prediction) in r for prediction, r in zip(predictions, right, strict=True)], float
    )
    before, after = hits_2N.reshape(2, -1)
    delta = paired_difference(before, after)
    return ProbeResult(probe.name, len(probe.items), wilson(before), wilson(after), delta)


def run_probes(probes: Sequence[Probe], predict: Predict) -> list[ProbeResult]:
    """Run all probes; each example is classified once, because probes share their originals."""
    items = [item for probe in probes for item in probe.items]
    classified = list(dict.fromkeys(e for item in items for e in (item.original, item.changed)))
    predictions = dict(zip(classified, np.asarray(predict(classified)), strict=True))
    return [
        run_probe(probe, lambda examples: [predictions[e] for e in examples]) for probe in probes
    ]


def order_probes(pairs: Sequence[NliPair], seed: int = 0) -> list[Probe]:
    """All six probes, each with the pairs that it applies to."""
    return [
        *(constituency_probe(pairs, size, seed) for size in SIZES),
        constituency_probe(pairs, None, seed),
        role_probe(pairs),
    ]


def constituency_probe(pairs: Sequence[NliPair], size: int | None, seed: int = 0) -> Probe:
    """Shuffle-`size`; Random if `size` is None."""
    name = "Random" if size is None else f"Shuffle-{size}"
    items = []
    for pair in pairs:
        draw = stream(name, seed, pair.premise.text)
        tokens = (
            shuffle_all(pair.premise, draw)
            if size is None
            else shuffle_constituents(pair.premise, size, draw)
        )
        if tokens is not None:
            changed = Example(spelled(tokens), pair.hypothesis.text, pair.label)
            items.append(ProbeItem(pair.example, changed, frozenset({pair.label})))
    return Probe(name, tuple(items))


def role_probe(pairs: Sequence[NliPair]) -> Probe:
    """Shuffle-SR. Changed examples have the label -1: any class but entailment is right."""
    others = frozenset(range(len(THREE_WAY))) - {ENTAILMENT}
    items = [
        ProbeItem(pair.example, Example(pair.premise.text, pair.swapped_hypothesis, -1), others)
        for pair in pairs
        if pair.label == ENTAILMENT and pair.swapped_hypothesis is not None
    ]
    return Probe(ROLES, tuple(items))
