"""Which settings may change when a run resumes."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tupe_jax.config.schema import Config
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import Path

# These change what is shown, kept, or where the work is done, but not what is trained.
FREE_IN_PRETRAINING = (
    "checkpoint.",
    "data.prepared",
    "data.vocabulary",
    "eval.",
    "mesh.",
    "model.layer_loop",
    "model.remat",
    "train.compilation_cache",
    "train.log_every",
    "train.max_skipped_in_a_row",
    "train.profile_at",
    "train.wandb_project",
    "watchdog.",
)


CONFIG_FILE = "config.json"


def check_begun_with(
    workdir: Path, config: Mapping[str, Any], free: tuple[str, ...] = FREE_IN_PRETRAINING
) -> None:
    """Save the config of a new work directory; raise if an older one was started with another."""
    file = workdir / CONFIG_FILE
    if file.exists():
        check_unchanged(read_settings(file), config, free)
    with atomic_file(file) as unfinished:
        unfinished.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def read_settings(file: Path) -> dict[str, Any]:
    """The settings that a work directory was started with."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}); restore a copy") from None
    return found


def check_unchanged(
    saved: Mapping[str, Any] | None,
    config: Mapping[str, Any],
    free: tuple[str, ...] = FREE_IN_PRETRAINING,
) -> None:
    """Raise if a setting changed whose name does not begin with one of `free`."""
    changed = [] if saved is None else changed_settings(saved, config, free)
    if changed:
        raise UserError(
            f"this work directory was started with other settings: {'; '.join(changed)}. "
            "Resume with the old ones, or choose a new --workdir"
        )


def changed_settings(
    saved: Mapping[str, Any], config: Mapping[str, Any], free: tuple[str, ...]
) -> list[str]:
    """Each changed setting with both values, except those whose name begins with one of `free`."""
    before, now = dict(flattened(saved)), dict(flattened(config))
    before |= {name: value_before_it_existed(name) for name in now.keys() - before.keys()}
    return [
        f"{name} was {before.get(name)!r}, now {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name) and not name.startswith(free)
    ]


def value_before_it_existed(name: str) -> Any:
    """The value of a setting in work directories that are older than the setting: its default.

    The default also applies in the sections of fine-tuning and studies: that of
    `finetune.optimizer.warmup_from_zero` is that of `optimizer.warmup_from_zero`.
    """
    defaults = settings(Config())
    endings = (name.split(".", skipped)[-1] for skipped in range(max(name.count("."), 1)))
    return next((defaults[ending] for ending in endings if ending in defaults), None)


def settings(config: Config) -> dict[str, Any]:
    """Every setting by its full name, such as `optimizer.warmup`, as JSON has it."""
    return dict(flattened(asdict(config)))


def flattened(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Every setting of nested sections by its full name, such as `optimizer.warmup`."""
    flat = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat += flattened(value, f"{prefix}{name}.")
        else:  # JSON gives lists for tuples
            flat.append((prefix + name, list(value) if isinstance(value, tuple) else value))
    return flat
