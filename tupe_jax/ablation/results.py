"""The records of a study, written by each run and read from the folders of all shards.

A finished run writes `record.json` and, if it was measured, `matrices.npz`.
"""

import hashlib
import json
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from tupe_jax.ablation.config import AblationConfig, run_config
from tupe_jax.ablation.convergence import SpeedUp, speed_up
from tupe_jax.ablation.work_plan import RunKey, Unit, best_rate, plan, tuning_runs
from tupe_jax.finetune.run import FREE_IN_FINETUNING
from tupe_jax.finetune.tasks import FinetuneTask
from tupe_jax.lab.length_extrapolation import LengthScore
from tupe_jax.lab.nli_pairs import NliPair
from tupe_jax.run.resume_checks import FREE_IN_PRETRAINING, changed_settings
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file, file_version
from tupe_jax.utils.paths import Path

RECORD_FILE, MATRICES_FILE = "record.json", "matrices.npz"
PROBES = "probes"

FREE_IN_STUDY = (
    *(f"pretrain.{name}" for name in FREE_IN_PRETRAINING if name != "eval."),
    *(f"downstream.{name}" for name in FREE_IN_FINETUNING),
    "downstream.data_dir",
    "measure.probe_file",
    "measure.lengths",
    "measure.goals",
)
"""Settings that may change when a study resumes: the location of data, not what is computed.

Lengths may also be added: later runs measure them, finished runs stay as they are. Goals are only
used for tables.
"""

Matrices = NDArray[np.float32]
"""Position-only attention of every layer and head, [L, H, N, N]."""
Curve = tuple[tuple[int, float], ...]
"""(step, loss in nats), in the order of steps."""

BiasSizes = tuple[int, tuple[float | None, ...]]
"""A step, and the size of each head's position bias after it (`bias_sizes` of
`tupe_jax.model.measurement`); None if it is not finite."""


@dataclass(frozen=True)
class TaskScore:
    """The score of fine-tuning on a task, as a fraction: best and last evaluation."""

    metric: str
    best: float
    last: float


@dataclass(frozen=True)
class ProbeScore:
    """Accuracy after a change of word order; the difference to before, with its 95 % interval."""

    accuracy: float
    delta: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True)
class PairScore:
    """Share of minimal pairs whose grammatical sentence is likelier, with its 95 % interval."""

    accuracy: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class RunRecord:
    """The results of one variant, seed and learning rate.

    A tuning run, which serves to choose the learning rate, has only a loss curve.
    """

    variant: str
    seed: int
    learning_rate: float
    settings: Mapping[str, Any]
    """All settings that determine the run, by section: `pretrain`, `downstream`, `measure`."""
    data: str
    """Digest of the tokenizer and the token sequences; all runs of a table must share it."""
    parameters: int
    validation: Curve
    diverged: bool = False
    """The loss or a gradient was not finite: training ended early and nothing was measured."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Every metric of attention among identical words, of the mean over layers and heads."""
    by_head: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    """Every metric of every head, by layer, then head."""
    kinds: tuple[tuple[str, ...], ...] = ()
    """The kind of every head, by layer, then head."""
    scores: Mapping[str, TaskScore] = field(default_factory=dict)
    """By task."""
    judged_on: Mapping[str, str] = field(default_factory=dict)
    """Digests of the evaluation examples: one for each task, and `probes` for the probe pairs."""
    probes: Mapping[str, ProbeScore] = field(default_factory=dict)
    """By probe, of the model that was fine-tuned on `measure.probe_task`."""
    pairs: Mapping[str, PairScore] = field(default_factory=dict)
    """By phenomenon; `all` covers all of them."""
    bias_sizes: Mapping[str, tuple[BiasSizes, ...]] = field(default_factory=dict)
    """By part of the encoding, `absolute` and `relative`: one entry for each evaluation."""
    lengths: tuple[LengthScore, ...] = ()
    """Loss and position-only attention at other input lengths."""
    cpu_seconds: float = field(default=0.0, compare=False)
    """CPU time of all processes that worked on the run, except those that were killed."""
    matrices_LxHxNxN: Matrices | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> RunKey:
        return RunKey(self.variant, self.seed, self.learning_rate)

    @property
    def objective(self) -> str:
        """The name of its objective. Losses of different objectives are never compared."""
        objective = self.settings.get("pretrain", {}).get("objective", {})
        return str(objective.get("name", "masked_lm"))

    @property
    def of_heads(self) -> dict[str, float]:
        """Every metric, computed per head and then averaged over all heads."""
        return {name: float(np.mean(values)) for name, values in self.by_head.items()}

    @property
    def is_measured(self) -> bool:
        """False for a tuning run and for a run that diverged."""
        return bool(self.measures)

    @property
    def curve(self) -> Curve:
        """`validation` for comparing steps: a diverged run has an infinite loss throughout."""
        if self.diverged:
            return tuple((step, math.inf) for step, _ in self.validation) or ((0, math.inf),)
        return self.validation

    @property
    def final_loss(self) -> float:
        """Validation loss in nats after the last step; infinite if the run diverged."""
        return math.inf if self.diverged or not self.validation else self.validation[-1][1]


def write_record(record: RunRecord, folder: Path) -> None:
    """Write the matrices first, so that a record on disk is always complete."""
    if record.matrices_LxHxNxN is not None:
        with atomic_file(folder / MATRICES_FILE) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, matrices_LxHxNxN=record.matrices_LxHxNxN)
    with atomic_file(folder / RECORD_FILE) as unfinished:
        text = json.dumps(values_of(record), indent=1) + "\n"
        unfinished.write_text(text, encoding="utf-8")


def read_record(folder: Path) -> RunRecord | None:
    """The record of the run in a folder; None if the run is not finished."""
    file = folder / RECORD_FILE
    if not file.exists():
        return None
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return record_from(values, _read_matrices(folder) if values["measures"] else None)
    except (*_DAMAGE, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is damaged ({error}); remove it to measure again") from error


_MATRICES = "matrices_LxHxNxN"
_DAMAGE = (BadZipFile, EOFError, zlib.error)
"""Errors of an archive that was truncated or overwritten."""


def values_of(record: RunRecord) -> dict[str, Any]:
    """The fields of a record as JSON values, without its matrices."""
    values = asdict(replace(record, matrices_LxHxNxN=None))
    del values[_MATRICES]
    # JSON has no infinity.
    values["validation"] = [(s, x if math.isfinite(x) else None) for s, x in record.validation]
    return values


def record_from(values: Mapping[str, Any], matrices: Matrices | None) -> RunRecord:
    """The record with these fields, as read from JSON."""
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
        "bias_sizes": {
            part: tuple((step, tuple(heads)) for step, heads in sizes)
            for part, sizes in values.get("bias_sizes", {}).items()
        },
        "scores": {name: TaskScore(**score) for name, score in values["scores"].items()},
        "probes": {name: ProbeScore(**score) for name, score in values["probes"].items()},
        "pairs": {name: PairScore(**score) for name, score in values["pairs"].items()},
        "lengths": tuple(LengthScore(**score) for score in values.get("lengths", ())),
    }
    return RunRecord(**{**values, **parts, _MATRICES: matrices})


def _read_matrices(folder: Path) -> Matrices:
    with np.load(folder / MATRICES_FILE) as file:
        matrices: Matrices = file[_MATRICES]
    return matrices


def digests(tasks: Mapping[str, FinetuneTask], pairs: Sequence[NliPair]) -> dict[str, str]:
    """The evaluation examples of a study, by task, and as `probes` the pairs of the probes."""
    found = {
        name: _digest(("train", map(repr, task.train)), *_texts(task.dev))
        for name, task in tasks.items()
    }
    return {**found, PROBES: _digest((PROBES, map(_pair_text, pairs)))} if pairs else found


def _texts(splits: Mapping[str, Sequence[Any]]) -> Iterable[tuple[str, Iterable[str]]]:
    return ((name, map(repr, examples)) for name, examples in splits.items())


def _pair_text(pair: NliPair) -> str:
    """Records store digests of this text, so the text and the names in it must not change."""
    premise, hypothesis = (
        f"Written(tokens={sentence.tokens!r}, constituents={sentence.constituents!r})"
        for sentence in (pair.premise, pair.hypothesis)
    )
    return (
        f"InferencePair(premise={premise}, hypothesis={hypothesis}, "
        f"label={pair.label!r}, swapped_hypothesis={pair.swapped_hypothesis!r})"
    )


def _digest(*splits: tuple[str, Iterable[str]]) -> str:
    digest = hashlib.sha256()
    for name, texts in splits:
        digest.update(f"{name}\n".encode())
        for text in texts:
            digest.update(f"{text}\n".encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class StudyResults:
    """The finished runs of a study."""

    config: AblationConfig
    runs: Mapping[str, Mapping[int, RunRecord]]
    """Finished runs by variant and seed, with the chosen learning rate."""
    tuning: Mapping[str, Mapping[float, RunRecord]]
    """Finished tuning runs by variant and learning rate."""
    missing: tuple[Unit, ...]

    @property
    def records(self) -> list[RunRecord]:
        """All finished runs, then all finished tuning runs."""
        return [
            r for of in (self.runs, self.tuning) for found in of.values() for r in found.values()
        ]

    @property
    def curves(self) -> dict[str, list[Curve]]:
        """The curves of all seeds, by variant; variants without a curve are left out.

        Only variants with the objective of the first variant: other losses are not comparable.
        """
        objective = self.config.objectives[0]
        found = {
            name: [
                record.curve
                for _, record in sorted(runs.items())
                if record.curve and record.objective == objective
            ]
            for name, runs in self.runs.items()
        }
        return {name: curves for name, curves in found.items() if curves}

    @property
    def first(self) -> str:
        """The variant that the others are compared with."""
        return self.config.variants[0].name

    @property
    def to_first(self) -> dict[str, SpeedUp]:
        """How soon every other variant reaches the first one's final loss.

        Empty if the first variant has no run here, as in the work directory of one shard.
        """
        curves = self.curves
        if self.first not in curves:
            return {}
        others = (name for name in curves if name != self.first)
        return {name: speed_up(curves[name], curves[self.first]) for name in others}


class Records(ABC):
    """The records of a study, in a work directory or an archive."""

    def __init__(self, config: AblationConfig, folder: Path) -> None:
        self.config, self.folder = config, folder

    @abstractmethod
    def read(self, key: RunKey) -> RunRecord | None:
        """The record of a run of this study; None if the run is not finished."""

    def place_of(self, key: RunKey) -> Path:
        """Where the record of a finished run is, for messages."""
        return self.folder / key.folder

    def key_of(self, unit: Unit) -> RunKey | None:
        """The run of a unit; None while the variant's learning rate is not chosen."""
        if unit.learning_rate is not None:
            return RunKey(unit.variant, unit.seed, unit.learning_rate)
        candidates = tuning_runs(self.config, unit.variant)
        if not candidates:
            return RunKey(unit.variant, unit.seed, self.config.learning_rates[0])
        records = [record for key in candidates if (record := self.read(key)) is not None]
        if len(records) < len(candidates):
            return None
        losses = {record.learning_rate: record.final_loss for record in records}
        return RunKey(unit.variant, unit.seed, best_rate(losses))

    def finished(self, unit: Unit) -> RunRecord | None:
        """The record of a unit; None if there is work left."""
        key = self.key_of(unit)
        record = None if key is None else self.read(key)
        if record is None or unit.is_tuning:
            return record
        return record if record.is_measured or record.diverged else None

    def collect(self) -> StudyResults:
        """All finished runs; raises for a record of other data or other evaluation examples."""
        names = [variant.name for variant in self.config.variants]
        runs: dict[str, dict[int, RunRecord]] = {name: {} for name in names}
        tuning: dict[str, dict[float, RunRecord]] = {name: {} for name in names}
        missing, found = [], []
        for unit in plan(self.config):
            record = self.finished(unit)
            if record is None:
                missing.append(unit)
                continue
            found.append(record)
            if unit.is_tuning:
                tuning[unit.variant][record.learning_rate] = record
            else:
                runs[unit.variant][unit.seed] = record
        if found:
            self.check_trained_on(found[0].data, self.place_of(found[0].key), found)
        if measured := [record for record in found if record.is_measured]:
            first = self.place_of(measured[0].key)
            self.check_evaluated_on(measured[0].judged_on, f"those of {first}", measured)
        return StudyResults(self.config, runs, tuning, tuple(missing))

    def check_trained_on(self, data: str, where: Path, records: Sequence[RunRecord]) -> None:
        """Raise for a record whose training data is not the data at `where`, by digest."""
        for record in records:
            if record.data != data:
                raise UserError(
                    f"{self.place_of(record.key)} was trained on other text or with another "
                    f"tokenizer than {where}; all copies of a work directory must read the same "
                    "files"
                )

    def check_evaluated_on(
        self, expected: Mapping[str, str], those: str, records: Sequence[RunRecord]
    ) -> None:
        """Raise for a measured record whose evaluation examples have other digests."""
        for record in records:
            if record.is_measured and record.judged_on != expected:
                differing = dict(record.judged_on.items() ^ expected.items())
                raise UserError(
                    f"{self.place_of(record.key)} was evaluated on other examples of "
                    f"{', '.join(sorted(differing))} than {those}; all copies of a work directory "
                    "must read the same files"
                )


class StudyRecords(Records):
    """The records in a work directory, and those of an archive for runs that it does not have.

    A file is read again only when it has changed.
    """

    def __init__(
        self, config: AblationConfig, workdir: Path, archived: Records | None = None
    ) -> None:
        super().__init__(config, workdir)
        self.workdir, self._archived = workdir, archived
        self._read: dict[RunKey, tuple[tuple[int, ...], RunRecord]] = {}

    def read(self, key: RunKey) -> RunRecord | None:
        """The record of a run of this study; None if the run is not finished."""
        folder = self.workdir / key.folder
        try:
            version = file_version(folder / RECORD_FILE)
        except FileNotFoundError:
            version = _ARCHIVED
        known = self._read.get(key)
        if known is not None and known[0] == version:
            return known[1]
        if version != _ARCHIVED:
            record, file = read_record(folder), folder / RECORD_FILE
        elif self._archived is not None:
            record, file = self._archived.read(key), self._archived.place_of(key)
        else:
            return None
        if record is not None:
            self._check(record, key, file)
            self._read[key] = version, record
        return record

    def place_of(self, key: RunKey) -> Path:
        if self._archived is None or (self.workdir / key.folder / RECORD_FILE).exists():
            return super().place_of(key)
        return self._archived.place_of(key)

    def _check(self, record: RunRecord, key: RunKey, file: Path) -> None:
        if record.key != key:
            raise UserError(f"{file} belongs to {record.key}; move it back to {record.key.folder}")
        changed = changed_settings(record.settings, run_settings(self.config, key), FREE_IN_STUDY)
        if changed:
            raise UserError(
                f"{file} does not match this study: {'; '.join(changed)}. Use the old settings, or "
                "other folders for --workdir and --records"
            )


_ARCHIVED = ()
"""The version of a record that the work directory does not have."""


def run_settings(config: AblationConfig, key: RunKey) -> dict[str, Any]:
    """All settings that determine a run."""
    pretrain = run_config(config, config.variant(key.variant), key.seed, key.learning_rate)
    return {
        "pretrain": asdict(pretrain),
        "downstream": asdict(config.downstream),
        "measure": asdict(config.measure),
    }
