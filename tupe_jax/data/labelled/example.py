"""One labelled example, whatever file, data set or generator it comes from."""

from dataclasses import dataclass

NO_LABEL = -1
"""The label of an example that has none, as in GLUE's test files; TFDS has the same number."""


@dataclass(frozen=True)
class Example:
    """A sentence or a pair of them, with a class number or, for regression, a score."""

    sentence1: str
    sentence2: str | None
    label: int | float
