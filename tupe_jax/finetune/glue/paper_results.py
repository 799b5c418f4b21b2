"""The TUPE paper's table of GLUE dev results."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class GlueColumn:
    """One column of the table: a split of a task under the paper's name."""

    title: str
    task: str
    split: str = "dev"


PAPER_COLUMNS = (
    GlueColumn("MNLI-m", "mnli", "dev_matched"),
    GlueColumn("MNLI-mm", "mnli", "dev_mismatched"),
    GlueColumn("QNLI", "qnli"),
    GlueColumn("QQP", "qqp"),
    GlueColumn("SST", "sst2"),
    GlueColumn("CoLA", "cola"),
    GlueColumn("MRPC", "mrpc"),
    GlueColumn("RTE", "rte"),
    GlueColumn("STS", "stsb"),
)
COLA = PAPER_COLUMNS[5]


@dataclass(frozen=True)
class PaperRow:
    """A model of the paper; `numbers` are percentages in the order of the columns."""

    model: str
    steps: str
    numbers: tuple[float, ...]
    average: float
    """As published."""

    @property
    def by_column(self) -> Mapping[GlueColumn, float]:
        return dict(zip(PAPER_COLUMNS, self.numbers, strict=True))


PUBLISHED = """
BERT-A | 1M | 84.93 84.91 91.34 91.04 92.88 55.19 88.29 68.61 89.43 | 82.96
BERT-R | 1M | 85.81 85.84 92.16 91.12 92.90 55.43 89.26 71.46 88.94 | 83.66
TUPE-A | 1M | 86.05 85.99 91.92 91.16 93.19 63.09 88.37 71.61 88.88 | 84.47
TUPE-R | 1M | 86.21 86.19 92.17 91.30 93.26 63.56 89.89 73.56 89.23 | 85.04
TUPE-A | 300k | 84.76 84.83 90.96 91.00 92.25 62.13 87.10 68.79 88.16 | 83.33
TUPE-R | 300k | 84.86 85.21 91.23 91.14 92.41 62.47 87.29 69.85 88.63 | 83.68
TUPE-A tie-cls | 1M | 85.91 85.73 91.90 91.05 93.17 59.46 88.53 69.54 88.97 | 83.81
BERT-A^d | 1M | 85.26 85.28 91.56 91.02 92.70 59.73 88.46 71.31 87.47 | 83.64
BERT-Large | 1M | 88.21 88.18 93.56 91.66 94.08 58.42 90.46 77.63 90.15 | 85.82
TUPE-Large (R) | 1M | 88.22 88.21 93.55 91.69 94.98 67.46 90.06 81.66 90.67 | 87.39
ELECTRA-Base | 1M | 86.42 86.14 92.19 91.45 92.97 65.92 89.74 73.56 89.99 | 85.38
ELECTRA-TUPE (R) | 1M | 86.98 87.01 92.03 91.75 93.97 66.51 89.74 76.53 90.13 | 86.07
"""
"""Model | steps | the numbers of the columns above | their average."""


def _row(line: str) -> PaperRow:
    model, steps, numbers, average = line.split(" | ")
    return PaperRow(model, steps, tuple(map(float, numbers.split())), float(average))


PAPER_ROWS = tuple(_row(line) for line in PUBLISHED.strip().splitlines())
