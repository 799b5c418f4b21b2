"""What may differ between a run and its continuation."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tupe_jax.config import Config
from tupe_jax.errors import UserError

# These change what is shown, kept, or where the work is done, but no number of the training.
FREE = (
    "checkpoint.",
    "data.prepared",
    "data.vocabulary",
    "eval.",
    "mesh.",
    "model.layer_loop",
    "model.remat",
    "train.log_every",
    "train.max_skipped_in_a_row",
    "train.profile_at",
    "train.wandb_project",
)


def check_unchanged(saved: Mapping[str, Any] | None, config: Config) -> None:
    """Fail if a work directory was begun with other settings."""
    if saved is None:
        return
    before, now = dict(_flat(saved)), dict(_flat(asdict(config)))
    changed = [
        f"{name} was {before.get(name)!r}, now {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name) and not name.startswith(FREE)
    ]
    if changed:
        raise UserError(
            f"this work directory was begun with other settings: {'; '.join(changed)}. "
            "Go on with the old ones, or give a new --workdir"
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{name}.")
        else:  # JSON gives lists for tuples
            flat.append((prefix + name, list(value) if isinstance(value, tuple) else value))
    return flat
