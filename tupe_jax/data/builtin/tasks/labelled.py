"""Balanced, disjoint splits of the four tasks."""

import hashlib
from collections.abc import Callable
from typing import Literal, get_args

from tupe_jax.data.builtin.random_stream import Draw, shuffled, stream
from tupe_jax.data.builtin.tasks import acceptability, inference, paraphrase, sentiment
from tupe_jax.data.builtin.tasks.example import Example
from tupe_jax.errors import UserError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
_Maker = Callable[[Draw, int], Example | None]
_TASKS: dict[str, tuple[int, _Maker]] = {
    "builtin_cola": (acceptability.LABELS, acceptability.example),
    "builtin_sst": (sentiment.LABELS, sentiment.example),
    "builtin_paraphrase": (paraphrase.LABELS, paraphrase.example),
    "builtin_nli": (inference.LABELS, inference.example),
}
TASKS = tuple(_TASKS)


def labelled(task: str, split: str, seed: int, count: int) -> list[Example]:
    """The first `count` examples of a split; labels are equally frequent, no example comes twice.

    The words of an example decide its split: splits have none in common, whatever the seeds.
    """
    if task not in _TASKS:
        raise UserError(f"no built-in task {task!r}; there are {', '.join(TASKS)}")
    if split not in SPLITS:
        raise UserError(f"no split {split!r} of {task}; there are {', '.join(SPLITS)}")
    number_of_labels, make = _TASKS[task]
    examples: list[Example] = []
    seen: set[tuple[str, str | None]] = set()
    while len(examples) < count:
        draw = stream(task, split, seed, len(examples))
        # Labels come in shuffled blocks that hold each label once.
        for label in shuffled(draw, range(number_of_labels)):
            example = _next(draw, make, label, split, seen)
            seen.add((example.sentence1, example.sentence2))
            examples.append(example)
    return examples[:count]


def _next(
    draw: Draw, make: _Maker, label: int, split: str, seen: set[tuple[str, str | None]]
) -> Example:
    while True:
        example = make(draw, label)
        if example is None or (example.sentence1, example.sentence2) in seen:
            continue
        if split_of(example) == split:
            return example


def split_of(example: Example) -> Split:
    """The split that an example belongs to: half of all are for training.

    It depends on the set of words only, so that the sentences of a pair in the other order, or the
    same words with another label, are not on both sides of a border.
    """
    text = f"{example.sentence1} {example.sentence2 or ''}".lower().replace(",", "")
    words = sorted(set(text.replace(".", "").split()))
    digest = hashlib.blake2b(" ".join(words).encode(), digest_size=1).digest()
    return ("train", "train", "validation", "test")[digest[0] % 4]
