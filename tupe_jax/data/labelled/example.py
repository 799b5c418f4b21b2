"""One labelled example of any task."""

from dataclasses import dataclass

NO_LABEL = -1
"""The label of an unlabelled example, as in GLUE's test files. TFDS uses the same number."""


@dataclass(frozen=True)
class Example:
    """A sentence or a pair of sentences, with a class number or, for regression, a score."""

    sentence1: str
    sentence2: str | None
    label: int | float
