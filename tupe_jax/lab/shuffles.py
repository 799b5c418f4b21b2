"""Constituency shuffling: the words inside constituents of one size in another order.

`Shuffle-k` shuffles every constituent of exactly k words, `Random` all words of the sentence. Every
shuffled group really has another order; a sentence with no group that can have one is left out.
Groups of the same size never overlap: constituents are nested or apart, and nested ones with
equally many words have the same ones.
"""

from collections.abc import Sequence

from tupe_jax.data.builtin.random_stream import Draw, shuffled
from tupe_jax.lab.written import Written

SIZES = (3, 4, 5, 6)


def shuffle_constituents(sentence: Written, size: int, draw: Draw) -> tuple[str, ...] | None:
    """The tokens after Shuffle-`size`, or None where nothing can change."""
    groups = [sorted(group) for group in sentence.constituents if len(group) == size]
    return _shuffle(sentence, groups, draw)


def shuffle_all(sentence: Written, draw: Draw) -> tuple[str, ...] | None:
    """The tokens with all words shuffled, or None where nothing can change."""
    return _shuffle(sentence, [sentence.words], draw)


def _shuffle(
    sentence: Written, groups: Sequence[Sequence[int]], draw: Draw
) -> tuple[str, ...] | None:
    tokens = list(sentence.tokens)
    for places in groups:
        words = [tokens[place] for place in places]
        for place, word in zip(places, _another_order(words, draw), strict=True):
            tokens[place] = word
    return None if tuple(tokens) == sentence.tokens else tuple(tokens)


def _another_order(words: Sequence[str], draw: Draw) -> Sequence[str]:
    """Any order of the words but this one, all equally likely; this one if all words are equal."""
    if len(set(words)) == 1:
        return words
    while True:
        order = shuffled(draw, words)
        if order != list(words):
            return order
