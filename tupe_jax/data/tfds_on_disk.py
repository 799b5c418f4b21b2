"""TFDS data sets that are already prepared on disk; nothing is ever downloaded."""

import os
from pathlib import Path

from tupe_jax.data.tensorflow_on_cpu import tfds
from tupe_jax.utils.errors import UserError


def find_builder(name: str, data_dir: Path | str | None = None) -> tfds.core.DatasetBuilder:
    """Return the builder of `dataset/config`, in the folder given or in $TFDS_DATA_DIR."""
    folder = data_dir or os.environ.get("TFDS_DATA_DIR") or tfds.core.constants.DATA_DIR
    try:
        return tfds.core.read_only_builder.builder_from_files(name, data_dir=folder)
    except tfds.core.DatasetNotFoundError:
        raise UserError(
            f"{name} is not in {folder}; set TFDS_DATA_DIR to where it is, or fetch it with "
            f"`tfds build {name}`"
        ) from None
