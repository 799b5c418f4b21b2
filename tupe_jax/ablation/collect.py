"""The records of a study, wherever shards have left them, and what is still missing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tupe_jax.ablation.config import AblationConfig, run_config
from tupe_jax.ablation.convergence import SpeedUp, speed_up
from tupe_jax.ablation.record import RECORD_FILE, Curve, RunRecord, read_record
from tupe_jax.ablation.work_plan import RunKey, Unit, best_rate, plan, tuning_runs
from tupe_jax.finetune.run import FREE as FREE_IN_FINETUNING
from tupe_jax.run.resume_checks import FREE_IN_PRETRAINING, check_unchanged
from tupe_jax.utils.errors import UserError

FREE = (
    *(f"pretrain.{name}" for name in FREE_IN_PRETRAINING if name != "eval."),
    *(f"downstream.{name}" for name in FREE_IN_FINETUNING),
    "downstream.data_dir",
    "measure.probe_file",
)
"""What may differ when a study is gone on with: where, not what."""


@dataclass(frozen=True)
class Collected:
    """What is there of a study."""

    config: AblationConfig
    runs: Mapping[str, Mapping[int, RunRecord]]
    """Finished runs by variant and seed, with the learning rate that was chosen."""
    tuning: Mapping[str, Mapping[float, RunRecord]]
    """Finished tuning runs by variant and learning rate."""
    missing: tuple[Unit, ...]

    @property
    def records(self) -> list[RunRecord]:
        """All that was read."""
        return [
            r for of in (self.runs, self.tuning) for found in of.values() for r in found.values()
        ]

    @property
    def curves(self) -> dict[str, list[Curve]]:
        """By variant, of every seed that was evaluated or diverged; variants without left out."""
        found = {
            name: [record.curve for _, record in sorted(runs.items()) if record.curve]
            for name, runs in self.runs.items()
        }
        return {name: curves for name, curves in found.items() if curves}

    @property
    def first(self) -> str:
        """The variant that the others are compared with."""
        return self.config.variants[0].name

    @property
    def to_first(self) -> dict[str, SpeedUp]:
        """How soon each other variant is where the first one ends; empty while that is not there.

        A work directory of one shard may be without it.
        """
        curves = self.curves
        if self.first not in curves:
            return {}
        others = (name for name in curves if name != self.first)
        return {name: speed_up(curves[name], curves[self.first]) for name in others}


def collect(config: AblationConfig, workdir: Path) -> Collected:
    """Read what is finished; a record that does not belong here is an error that names it."""
    runs: dict[str, dict[int, RunRecord]] = {variant.name: {} for variant in config.variants}
    tuning: dict[str, dict[float, RunRecord]] = {variant.name: {} for variant in config.variants}
    missing, found = [], []
    for unit in plan(config):
        record = finished(config, workdir, unit)
        if record is None:
            missing.append(unit)
            continue
        found.append(record)
        if unit.is_tuning:
            tuning[unit.variant][record.learning_rate] = record
        else:
            runs[unit.variant][unit.seed] = record
    if found:
        check_trained_on(found[0].data, workdir / key_of_record(found[0]).folder, found, workdir)
    if measured := [record for record in found if record.is_measured]:
        first = workdir / key_of_record(measured[0]).folder
        check_judged_on(measured[0].judged_on, f"those of {first}", measured, workdir)
    return Collected(config, runs, tuning, tuple(missing))


def finished(config: AblationConfig, workdir: Path, unit: Unit) -> RunRecord | None:
    """The record of a unit, if it is done."""
    key = key_of(config, workdir, unit)
    record = None if key is None else read_run(config, workdir, key)
    if record is None or unit.is_tuning:
        return record
    return record if record.is_measured or record.diverged else None


def key_of(config: AblationConfig, workdir: Path, unit: Unit) -> RunKey | None:
    """The run of a unit; None while the variant's learning rate is not known."""
    if unit.learning_rate is not None:
        return RunKey(unit.variant, unit.seed, unit.learning_rate)
    candidates = tuning_runs(config, unit.variant)
    if not candidates:
        return RunKey(unit.variant, unit.seed, config.learning_rates[0])
    records = [read_run(config, workdir, key) for key in candidates]
    losses = {record.learning_rate: record.final_loss for record in records if record is not None}
    if len(losses) < len(candidates):
        return None
    return RunKey(unit.variant, unit.seed, best_rate(losses))


def read_run(config: AblationConfig, workdir: Path, key: RunKey) -> RunRecord | None:
    """The record of a run of this study; None if it is not finished."""
    folder = workdir / key.folder
    record = read_record(folder)
    if record is None:
        return None
    if key_of_record(record) != key:
        raise UserError(
            f"{folder / RECORD_FILE} is of {key_of_record(record)}; it was moved: put it back"
        )
    try:
        check_unchanged(record.settings, run_settings(config, key), FREE)
    except UserError as error:
        raise UserError(f"{folder / RECORD_FILE} does not fit: {error}") from None
    return record


def run_settings(config: AblationConfig, key: RunKey) -> dict[str, Any]:
    """All that decides on a run."""
    pretrain = run_config(config, config.variant(key.variant), key.seed, key.learning_rate)
    return {
        "pretrain": asdict(pretrain),
        "downstream": asdict(config.downstream),
        "measure": asdict(config.measure),
    }


def key_of_record(record: RunRecord) -> RunKey:
    return RunKey(record.variant, record.seed, record.learning_rate)


def check_trained_on(data: str, where: Path, records: Sequence[RunRecord], workdir: Path) -> None:
    """Refuse records of other data than what is at `where`, by their digests."""
    for record in records:
        if record.data != data:
            raise UserError(
                f"{workdir / key_of_record(record).folder} was trained on other text or another "
                f"vocabulary than {where}; copies of a work directory must read the same files"
            )


def check_judged_on(
    judged_on: Mapping[str, str], those: str, records: Sequence[RunRecord], workdir: Path
) -> None:
    """Refuse measured records of other examples than those with these digests."""
    for record in records:
        if record.is_measured and record.judged_on != judged_on:
            differing = dict(record.judged_on.items() ^ judged_on.items())
            raise UserError(
                f"{workdir / key_of_record(record).folder} was judged on other examples of "
                f"{', '.join(sorted(differing))} than {those}; copies of a work directory must "
                "read the same files"
            )
