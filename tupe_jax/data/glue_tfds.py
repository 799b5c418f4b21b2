"""GLUE and SNLI from TensorFlow Datasets."""

import os
from pathlib import Path

import tensorflow_datasets as tfds

import tupe_jax.data.tensorflow_on_cpu  # noqa: F401 - TFDS reads by TensorFlow
from tupe_jax.data.examples import Example
from tupe_jax.data.glue import LabelledTask, split_names
from tupe_jax.errors import UserError

NO_LABEL = -1


def load_tfds(task: LabelledTask, split: str, data_dir: Path | None = None) -> list[Example]:
    """Read the labelled rows of a split that is prepared on disk; nothing is downloaded."""
    folder = data_dir or os.environ.get("TFDS_DATA_DIR") or tfds.core.constants.DATA_DIR
    try:
        builder = tfds.core.read_only_builder.builder_from_files(task.tfds_name, data_dir=folder)
    except tfds.core.DatasetNotFoundError:
        raise UserError(
            f"{task.tfds_name} is not in {folder}; set TFDS_DATA_DIR to where it is, or fetch it "
            f"with `tfds build {task.tfds_name}`"
        ) from None
    rows = builder.as_dataset(split=split_names(task, split).tfds)
    columns = task.tfds_columns
    examples = [
        Example(
            sentence1=row[columns.sentence1].decode(),
            sentence2=None if columns.sentence2 is None else row[columns.sentence2].decode(),
            label=row[columns.label].item(),
        )
        for row in tfds.as_numpy(rows)
        if task.is_regression or row[columns.label] != NO_LABEL
    ]
    if not examples:
        raise UserError(f"{task.tfds_name}: its split {split!r} has no labelled rows")
    return examples
