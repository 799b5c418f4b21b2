"""Constituency shuffling: reorder the words inside constituents of one size.

`Shuffle-k` shuffles every constituent of exactly k words, `Random` all words of the sentence. A
shuffled group never keeps its order; sentences without a group that can change are left out.
Groups of the same size never overlap: constituents are nested or disjoint, and nested ones of equal
size contain the same words.
"""

from collections.abc import Sequence

from tupe_jax.data.builtin.random_stream import Draw, shuffled
from tupe_jax.lab.parsed_sentence import ParsedSentence

SIZES = (3, 4, 5, 6)


def shuffle_constituents(sentence: ParsedSentence, size: int, draw: Draw) -> tuple[str, ...] | None:
    """The tokens after Shuffle-`size`; None if nothing can change."""
    groups = [sorted(group) for group in sentence.constituents if len(group) == size]
    return _shuffle(sentence, groups, draw)


def shuffle_all(sentence: ParsedSentence, draw: Draw) -> tuple[str, ...] | None:
    """The tokens with all words shuffled; None if nothing can change."""
    return _shuffle(sentence, [sentence.words], draw)


def _shuffle(
    sentence: ParsedSentence, groups: Sequence[Sequence[int]], draw: Draw
) -> tuple[str, ...] | None:
    tokens = list(sentence.tokens)
    for indices in groups:
        words = [tokens[index] for index in indices]
        for index, word in zip(indices, _another_order(words, draw), strict=True):
            tokens[index] = word
    return None if tuple(tokens) == sentence.tokens else tuple(tokens)


def _another_order(words: Sequence[str], draw: Draw) -> Sequence[str]:
    """A uniformly random other order of the words; the same order if all words are equal."""
    if len(set(words)) == 1:
        return words
    while True:
        order = shuffled(draw, words)
        if order != list(words):
            return order
