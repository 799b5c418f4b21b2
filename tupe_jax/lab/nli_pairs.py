"""NLI pairs with parse trees, for the word-order probes.

From the built-in corpus, whose trees and roles are correct by construction, or from SNLI's own
files, whose trees come from a parser and whose roles are found by `tupe_jax.lab.semantic_roles`.
"""

import itertools
from dataclasses import dataclass

from tupe_jax.data.builtin import Sentence, swap_roles
from tupe_jax.data.builtin.lexicon import lexicon
from tupe_jax.data.builtin.plan import Statement
from tupe_jax.data.builtin.random_stream import stream
from tupe_jax.data.builtin.realise import realise
from tupe_jax.data.builtin.tasks import nli
from tupe_jax.data.builtin.tasks.labelled import Split, split_of
from tupe_jax.data.builtin.transform import main_clause
from tupe_jax.data.labelled.blimp_snli import read_parsed_snli
from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.glue import THREE_WAY
from tupe_jax.lab.parsed_sentence import ParsedSentence, parsed_sentence
from tupe_jax.lab.semantic_roles import exchange, find_roles
from tupe_jax.utils.paths import Path

ENTAILMENT = THREE_WAY.index("entailment")
assert nli.LABELS == THREE_WAY


@dataclass(frozen=True)
class NliPair:
    """Premise, hypothesis and the index of the label in THREE_WAY."""

    premise: ParsedSentence
    hypothesis: ParsedSentence
    label: int
    swapped_hypothesis: str | None
    """With agent and patient exchanged; None if one of them is missing, or if the result would be
    ungrammatical or have the same meaning (they met)."""

    @property
    def example(self) -> Example:
        return Example(self.premise.text, self.hypothesis.text, self.label)


def builtin_pairs(split: Split, count: int, seed: int = 0) -> list[NliPair]:
    """Pairs of the built-in NLI task, sampled like its examples, with labels in rotation.

    The words of a pair determine its split, as for the task's examples: a model that was trained on
    the split `train` has seen none of the others, whatever the seeds.
    """
    pairs: list[NliPair] = []
    tries = itertools.count()
    while len(pairs) < count:
        label = len(pairs) % len(THREE_WAY)
        found = nli.pair(stream("probe", split, seed, next(tries)), label)
        if found is None:
            continue
        premise, hypothesis = (realise(Statement(clause)) for clause in found)
        if split_of(Example(premise.text, hypothesis.text, label)) == split:
            trees = parsed_sentence(premise.tree), parsed_sentence(hypothesis.tree)
            pairs.append(NliPair(*trees, label, _swapped(hypothesis)))
    return pairs


def _swapped(sentence: Sentence) -> str | None:
    clause = main_clause(sentence.plan)
    if clause is None or clause.verb.base in lexicon().lists["symmetric"]:
        return None
    swapped = swap_roles(sentence)
    return None if swapped is None else swapped.text


def snli_pairs(path: Path) -> list[NliPair]:
    """The labelled pairs of a file in SNLI's own format, with `sentence1_parse`."""
    pairs = []
    for parsed in read_parsed_snli(path):
        roles = find_roles(parsed.hypothesis)
        swapped = None if roles is None else exchange(parsed.hypothesis, roles)
        trees = parsed_sentence(parsed.premise), parsed_sentence(parsed.hypothesis)
        pairs.append(NliPair(*trees, parsed.label, swapped))
    return pairs
