"""Balanced, disjoint splits of the four tasks."""

import hashlib
from collections.abc import Callable
from typing import Literal, get_args

from tupe_jax.data.builtin.random_stream import Draw, shuffled, stream
from tupe_jax.data.builtin.tasks import acceptability, nli, paraphrase, sentiment
from tupe_jax.data.labelled.example import Example
from tupe_jax.utils.errors import UserError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
_Maker = Callable[[Draw, int], Example | None]
_MAKERS: dict[str, _Maker] = {
    "builtin_cola": acceptability.example,
    "builtin_sst": sentiment.example,
    "builtin_paraphrase": paraphrase.example,
    "builtin_nli": nli.example,
}
# The names of each task's labels; an example holds the position of its own.
LABELS: dict[str, tuple[str, ...]] = {
    "builtin_cola": acceptability.LABELS,
    "builtin_sst": sentiment.LABELS,
    "builtin_paraphrase": paraphrase.LABELS,
    "builtin_nli": nli.LABELS,
}


def labelled(task: str, split: str, seed: int, count: int) -> list[Example]:
    """The first `count` examples of a split; labels are equally frequent, no example comes twice.

    The words of an example decide its split: splits have none in common, whatever the seeds.
    """
    if task not in LABELS:
        raise UserError(f"no built-in task {task!r}; there are {', '.join(LABELS)}")
    if split not in SPLITS:
        raise UserError(f"no split {split!r} of {task}; there are {', '.join(SPLITS)}")
    examples: list[Example] = []
    seen: set[tuple[str, str | None]] = set()
    while len(examples) < count:
        draw = stream(task, split, seed, len(examples))
        # Labels come in shuffled blocks that hold each label once.
        for label in shuffled(draw, range(len(LABELS[task]))):
            example = _next(draw, _MAKERS[task], label, split, seen)
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
