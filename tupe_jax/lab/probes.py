"""Probes: what a classifier of sentence pairs says when the order of words is changed.

A probe needs no model, only a function from examples to predicted classes. Each compares the
answers to the same examples before and after the change:

    Shuffle-3 .. Shuffle-6, Random    the premise's words shuffled inside its constituents of that
                                      size, or all of them; the right answer is taken to stay
    Shuffle-SR                        agent and patient of the hypothesis exchanged, in pairs whose
                                      premise entails it; the right answer is any but entailment

The published probe sets (Chen et al., 2023) were never released; these are built in their spirit.
The hypothesis is the one whose roles are exchanged because only that makes the answer another: "A
ball throws a man outside" still entails that a man is outside. Sentences before and after the
change are written by the same rules, so that nothing but the order differs.
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
from tupe_jax.lab.shuffles import SIZES, shuffle_all, shuffle_constituents
from tupe_jax.lab.written import spelled
from tupe_jax.utils.errors import UserError

ROLES = "Shuffle-SR"

Predict = Callable[[Sequence[Example]], ArrayLike]
"""Examples to the numbers of their predicted classes; labels are not to be looked at."""


@dataclass(frozen=True)
class ProbeItem:
    """An example, the same after the change, and the answers that are right then."""

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
    """Accuracies before and after the change, and their difference, of the same examples."""

    name: str
    count: int
    original: Interval
    changed: Interval
    delta: Interval


def run_probe(probe: Probe, predict: Predict) -> ProbeResult:
    """Ask for both versions of every item."""
    if not probe.items:
        raise UserError(f"no pair can be used for {probe.name}; give more pairs")
    asked = [item.original for item in probe.items] + [item.changed for item in probe.items]
    answers = np.asarray(predict(asked))
    if answers.shape != (len(asked),):
        raise UserError(
            f"{probe.name}: {len(asked)} examples were given, but the answers have the shape "
            f"{list(answers.shape)}"
        )
    right = [{item.original.label} for item in probe.items] + [item.right for item in probe.items]
    hits_2N = np.array([int(answer) in r for answer, r in zip(answers, right, strict=True)], float)
    before, after = hits_2N.reshape(2, -1)
    delta = paired_difference(before, after)
    return ProbeResult(probe.name, len(probe.items), wilson(before), wilson(after), delta)


def run_probes(probes: Sequence[Probe], predict: Predict) -> list[ProbeResult]:
    """Ask once, and only once for each example: the originals are the same in many probes."""
    items = [item for probe in probes for item in probe.items]
    asked = list(dict.fromkeys(e for item in items for e in (item.original, item.changed)))
    answers = dict(zip(asked, np.asarray(predict(asked)), strict=True))
    return [run_probe(probe, lambda examples: [answers[e] for e in examples]) for probe in probes]


def order_probes(pairs: Sequence[NliPair], seed: int = 0) -> list[Probe]:
    """All six probes, each from the pairs in which its change can be made."""
    return [
        *(constituency_probe(pairs, size, seed) for size in SIZES),
        constituency_probe(pairs, None, seed),
        role_probe(pairs),
    ]


def constituency_probe(pairs: Sequence[NliPair], size: int | None, seed: int = 0) -> Probe:
    """Shuffle-`size`, or with None Random."""
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
    """Shuffle-SR. The label of a changed example is -1: any class but entailment is right."""
    others = frozenset(range(len(THREE_WAY))) - {ENTAILMENT}
    items = [
        ProbeItem(pair.example, Example(pair.premise.text, pair.swapped_hypothesis, -1), others)
        for pair in pairs
        if pair.label == ENTAILMENT and pair.swapped_hypothesis is not None
    ]
    return Probe(ROLES, tuple(items))
