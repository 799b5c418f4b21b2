"""What one finished run leaves: `record.json`, to read anywhere, and `matrices.npz` beside it."""

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file

RECORD_FILE, MATRICES_FILE = "record.json", "matrices.npz"

Matrices = NDArray[np.float32]
"""Attention by position of every layer and head, [L, H, N, N]."""
Curve = tuple[tuple[int, float], ...]
"""(step, loss in nats), in the order of steps."""


@dataclass(frozen=True)
class TaskScore:
    """What fine-tuning on a task reached, as a fraction: by the best and the last evaluation."""

    metric: str
    best: float
    last: float


@dataclass(frozen=True)
class ProbeScore:
    """Accuracy after a change of word order, and what it changed, with the interval of that."""

    accuracy: float
    delta: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True)
class PairScore:
    """How often the English sentence of a minimal pair is found likelier, with its interval."""

    accuracy: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class RunRecord:
    """One variant, one seed, one learning rate.

    A run that only served to choose the learning rate has a curve and nothing else.
    """

    variant: str
    seed: int
    learning_rate: float
    settings: Mapping[str, Any]
    """All that decided on the run, by section: `pretrain`, `downstream`, `measure`."""
    data: str
    """A digest of vocabulary and rows: runs on other text do not belong into one table."""
    parameters: int
    validation: Curve
    diverged: bool = False
    """Loss or gradient were not finite: training was given up, and nothing was measured."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Every metric of attention among identical words, of the mean matrix of layers and heads."""
    by_head: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    """Every metric of every head, by layer, then head."""
    kinds: tuple[tuple[str, ...], ...] = ()
    """The kind of every head, by layer, then head."""
    scores: Mapping[str, TaskScore] = field(default_factory=dict)
    """By task."""
    judged_on: Mapping[str, str] = field(default_factory=dict)
    """Digests of the examples of every task, and of those that the probes change."""
    probes: Mapping[str, ProbeScore] = field(default_factory=dict)
    """By probe, of the model that was fine-tuned on the probed task."""
    pairs: Mapping[str, PairScore] = field(default_factory=dict)
    """By phenomenon; `all` is all of them."""
    matrices_LxHxNxN: Matrices | None = field(default=None, repr=False, compare=False)

    @property
    def of_heads(self) -> dict[str, float]:
        """Every metric, the mean over all heads of what each has by itself."""
        return {name: float(np.mean(values)) for name, values in self.by_head.items()}

    @property
    def is_measured(self) -> bool:
        """Whether this is a whole run, not one for tuning."""
        return bool(self.measures)

    @property
    def curve(self) -> Curve:
        """`validation`, to compare steps: a run that diverged never gets anywhere."""
        if self.diverged:
            return tuple((step, math.inf) for step, _ in self.validation) or ((0, math.inf),)
        return self.validation

    @property
    def final_loss(self) -> float:
        """Validation loss in nats after the last step; infinite if the run diverged."""
        return math.inf if self.diverged or not self.validation else self.validation[-1][1]


def write_record(record: RunRecord, folder: Path) -> None:
    """Matrices first: where there is a record, it is whole."""
    if record.matrices_LxHxNxN is not None:
        with atomic_file(folder / MATRICES_FILE) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, matrices_LxHxNxN=record.matrices_LxHxNxN)
    values = {name: value for name, value in _as_dict(record).items() if name != _MATRICES}
    with atomic_file(folder / RECORD_FILE) as unfinished:
        unfinished.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def read_record(folder: Path) -> RunRecord | None:
    """What a run has left; None if it is not finished."""
    file = folder / RECORD_FILE
    if not file.exists():
        return None
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        record = _from_json(values, _read_matrices(folder) if values["measures"] else None)
    except (*_DAMAGE, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is damaged ({error}); remove it to measure again") from error
    return record


_MATRICES = "matrices_LxHxNxN"
_DAMAGE = (BadZipFile, EOFError, zlib.error)
"""What an archive that was cut or overwritten raises."""


def _as_dict(record: RunRecord) -> dict[str, Any]:
    values = asdict(record)
    # JSON has no infinity.
    values["validation"] = [(s, x if math.isfinite(x) else None) for s, x in record.validation]
    return values


def _from_json(values: Mapping[str, Any], matrices: Matrices | None) -> RunRecord:
    parts = {
        "validation": tuple(
            (int(step), math.inf if loss is None else float(loss))
            for step, loss in values["validation"]
        ),
        "by_head": {
            name: tuple(tuple(map(float, layer)) for layer in layers)
            for name, layers in values["by_head"].items()
        },
        "kinds": tuple(tuple(layer) for layer in values["kinds"]),
        "scores": {name: TaskScore(**score) for name, score in values["scores"].items()},
        "probes": {name: ProbeScore(**score) for name, score in values["probes"].items()},
        "pairs": {name: PairScore(**score) for name, score in values["pairs"].items()},
    }
    return RunRecord(**{**values, **parts, _MATRICES: matrices})


def _read_matrices(folder: Path) -> Matrices:
    with np.load(folder / MATRICES_FILE) as file:
        matrices: Matrices = file[_MATRICES]
    return matrices
