"""Random numbers that are the same on every platform and Python version.

Only `random.Random.random()` after seeding with an int is promised to stay the same between Python
versions, so everything is drawn from it; weights are made with exactly rounded operations only.
"""

import hashlib
import random
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T")
Draw = Callable[[], float]  # uniform in [0, 1)


def stream(*key: int | str) -> Draw:
    """A stream of uniform numbers that depends on nothing but the key."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big")).random


def pick(draw: Draw, items: Sequence[T]) -> T:
    """One item, each equally likely."""
    return items[int(draw() * len(items))]


def shuffled(draw: Draw, items: Sequence[T]) -> list[T]:
    """The items in random order."""
    keyed = sorted((draw(), index) for index in range(len(items)))
    return [items[index] for _, index in keyed]


class Urn(Generic[T]):
    """Items to draw from, with fixed weights."""

    __slots__ = ("_cumulative", "items")

    def __init__(self, weighted: Sequence[tuple[T, float]]) -> None:
        self.items = tuple(item for item, _ in weighted)
        total = sum(weight for _, weight in weighted)
        self._cumulative = list(accumulate(weight / total for _, weight in weighted))
        if self._cumulative:
            self._cumulative[-1] = 1.0  # rounding must not leave a gap at the end

    def __bool__(self) -> bool:
        return bool(self.items)

    def draw(self, draw: Draw) -> T:
        """One item, by its weight."""
        return self.items[bisect(self._cumulative, draw())]


def zipf(items: Sequence[T], share: float = 1.0) -> list[tuple[T, float]]:
    """Weights that fall with the rank, as word frequencies do; the first item is the commonest."""
    return [(item, share / (rank + 2)) for rank, item in enumerate(items)]
