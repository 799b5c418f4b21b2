"""The records of a study as small JSON files, which a repository can hold.

    study.json                      the command and the settings of the study
    <variant>/seed<s>-lr<r>.json    one run

The file of a run does not repeat its settings, which follow from those of the study. Reports show
the attention of one run of each variant. Only that run keeps its attention matrices, as 8-bit
logarithms: weights are rounded to a sixteenth of a power of two. All other numbers are copied
exactly. A study that begins in a new work directory continues from its archive.
"""

import base64
import json
from pathlib import PurePath
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from numpy.typing import NDArray

from tupe_jax.ablation.config import AblationConfig, ablation_config, study
from tupe_jax.ablation.results import (
    Matrices,
    Records,
    RunRecord,
    record_from,
    run_settings,
    values_of,
)
from tupe_jax.ablation.work_plan import RunKey
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import Path, glob_in

STUDY_FILE = "study.json"
_STEPS, _OFFSET = 16, 8
"""A byte b stands for the weight 2^(b / 16 - 8) / N: 1/256 to 256 times uniform attention."""


class ArchivedRecords(Records):
    """An archived study. Every file is read once."""

    def __init__(self, folder: Path) -> None:
        values = _read_json(folder / STUDY_FILE)
        try:
            config = ablation_config(ConfigDict(values["config"]))
            self.command = str(values["command"])
        except KeyError as error:
            raise UserError(
                f"{folder / STUDY_FILE} lacks {error}; archive the study again"
            ) from None
        super().__init__(config, folder)
        records = [_read_run(file, config) for file in sorted(glob_in(folder, "*/seed*.json"))]
        self._records = {record.key: record for record in records}

    @property
    def variants(self) -> set[str]:
        """The variants that have a run here."""
        return {key.variant for key in self._records}

    def read(self, key: RunKey) -> RunRecord | None:
        return self._records.get(key)

    def place_of(self, key: RunKey) -> Path:
        return self.folder / _file_of(key)


def open_archive(config: AblationConfig, folder: Path) -> ArchivedRecords | None:
    """The archived runs of a study; None if there are none yet. Raises for another study."""
    if not (folder / STUDY_FILE).exists():
        return None
    archived = ArchivedRecords(folder)
    foreign = archived.variants - {variant.name for variant in config.variants}
    if foreign:
        raise UserError(
            f"{folder} has runs of {', '.join(sorted(foreign))}, which this study does not have; "
            "give another folder to --records"
        )
    return archived


def write_archive(records: Records, command: str, folder: Path) -> None:
    """Write the finished runs of a study, replacing files of earlier calls."""
    results = records.collect()
    shown = {
        min(seeds)
        for runs in results.runs.values()
        if (seeds := [(r.variant, r.seed) for r in runs.values() if r.matrices_LxHxNxN is not None])
    }
    _write_json({"command": command, "config": _as_json(records.config)}, folder / STUDY_FILE)
    for record in results.records:
        values = values_of(record)
        del values["settings"]
        matrices = record.matrices_LxHxNxN
        if matrices is not None and (record.variant, record.seed) in shown:
            values[_MATRICES] = {"shape": matrices.shape, "log2": encoded(matrices)}
        _write_json(values, folder / _file_of(record.key))


def encoded(weights: Matrices) -> str:
    """Weights as base-64 text, one byte per weight."""
    with np.errstate(divide="ignore"):
        exponents = np.log2(weights.astype(np.float64) * weights.shape[-1])
    levels = np.clip(np.round((exponents + _OFFSET) * _STEPS), 0, 255)
    return base64.b64encode(levels.astype(np.uint8).tobytes()).decode("ascii")


def _decoded(values: dict[str, Any]) -> Matrices:
    levels: NDArray[np.uint8] = np.frombuffer(base64.b64decode(values["log2"]), np.uint8)
    exponents = levels.reshape(values["shape"]) / _STEPS - _OFFSET
    return np.asarray(2.0**exponents / values["shape"][-1], np.float32)


_MATRICES = "attention"


def _as_json(config: AblationConfig) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(study(config).to_json())
    return values


def _file_of(key: RunKey) -> PurePath:
    """The run's folder in a work directory, `runs/<variant>/seed0-lr0.001`, as a file."""
    return PurePath(key.variant) / f"{key.folder.name}.json"


def _read_run(file: Path, config: AblationConfig) -> RunRecord:
    values = _read_json(file)
    try:
        attention = values.pop(_MATRICES, None)
        key = RunKey(values["variant"], values["seed"], values["learning_rate"])
        if key.variant not in {variant.name for variant in config.variants}:
            raise ValueError(f"{STUDY_FILE} has no variant {key.variant}")
        settings = run_settings(config, key)
        return record_from({**values, "settings": settings}, attention and _decoded(attention))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged ({error}); archive the study again") from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{file}: no such file; `tupe ablate --records` writes it") from None
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}); archive the study again") from error
    return values


def _write_json(values: dict[str, Any], file: Path) -> None:
    """One line for each field, so that a diff shows which one changed."""
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as unfinished:
        unfinished.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
