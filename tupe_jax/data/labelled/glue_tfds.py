"""GLUE and SNLI from TFDS. A separate module, because it imports TensorFlow."""

from dataclasses import replace

from tupe_jax.data.labelled.example import NO_LABEL, Example
from tupe_jax.data.labelled.glue import LabelledTask, split_names
from tupe_jax.data.tf_utils import find_builder, tfds
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path


def load_tfds(task: LabelledTask, split: str, data_dir: Path | None = None) -> list[Example]:
    """Read the labelled rows of a split that is prepared on disk. Nothing is downloaded."""
    builder = find_builder(task.tfds_name, data_dir)
    examples = [
        example
        for example in _examples(task, builder, split_names(task, split).tfds)
        if task.is_regression or example.label != NO_LABEL
    ]
    if not examples:
        raise UserError(f"{task.tfds_name}: split {split!r} has no labelled rows")
    return examples


def load_tfds_test_splits(
    task: LabelledTask, data_dir: Path | None = None
) -> dict[str, list[Example]]:
    """Read the available test splits: every row, without labels, in GLUE's order."""
    builder = find_builder(task.tfds_name, data_dir)
    return {
        split: [
            replace(example, label=NO_LABEL) for example in _examples(task, builder, names.tfds)
        ]
        for split, names in task.test_splits.items()
        if names.tfds in builder.info.splits
    }


def _examples(
    task: LabelledTask, builder: tfds.core.DatasetBuilder, tfds_split: str
) -> list[Example]:
    columns = task.tfds_columns
    rows = tfds.as_numpy(builder.as_dataset(split=tfds_split))
    return [
        Example(
            sentence1=row[columns.sentence1].decode(),
            sentence2=None if columns.sentence2 is None else row[columns.sentence2].decode(),
            label=row[columns.label].item(),
        )
        # TFDS stores GLUE's rows in another order than GLUE's index; SNLI has no index.
        for row in sorted(rows, key=lambda row: int(row.get("idx", 0)))
    ]
