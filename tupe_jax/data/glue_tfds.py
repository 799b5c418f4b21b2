"""GLUE and SNLI from TensorFlow Datasets."""

from pathlib import Path

from tupe_jax.data.examples import Example
from tupe_jax.data.glue import LabelledTask, split_names
from tupe_jax.data.tensorflow_on_cpu import tfds
from tupe_jax.data.tfds_on_disk import find_builder
from tupe_jax.errors import UserError

NO_LABEL = -1


def load_tfds(task: LabelledTask, split: str, data_dir: Path | None = None) -> list[Example]:
    """Read the labelled rows of a split that is prepared on disk; nothing is downloaded."""
    builder = find_builder(task.tfds_name, data_dir)
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
