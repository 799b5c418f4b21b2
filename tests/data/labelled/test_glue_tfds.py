"""GLUE and SNLI are read from TFDS's own format on disk, with the same labels as from files."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow_datasets as tfds

from tupe_jax.data.labelled.example import NO_LABEL, Example
from tupe_jax.data.labelled.glue import TASKS, find_task
from tupe_jax.data.labelled.glue_tfds import load_tfds, load_tfds_test_splits
from tupe_jax.finetune.tasks import open_task
from tupe_jax.utils.errors import UserError


def store(folder: Path, name: str, **splits: list[dict[str, Any]]) -> None:
    """Write rows as the registered TFDS builder of this name would have."""
    builder = tfds.builder(name, data_dir=folder)
    dataset, _, config = name.partition("/")
    tfds.dataset_builders.store_as_tfds_dataset(
        name=dataset,
        config=config or None,
        version=builder.version,
        features=builder.info.features,
        split_datasets={split: list(enumerate(rows)) for split, rows in splits.items()},
        data_dir=folder,
        disable_shuffling=True,
    )


@pytest.mark.parametrize("name", TASKS)
def test_column_names_are_those_of_tfds(tmp_path: Path, name: str) -> None:
    task = find_task(name)
    features = tfds.builder(task.tfds_name, data_dir=tmp_path).info.features
    assert set(task.tfds_columns.names) <= set(features)
    if task.form.classes is not None:
        assert features["label"].num_classes == len(task.form.classes)


def test_a_pair_task_from_disk(tmp_path: Path) -> None:
    rows = [
        {"premise": "A.", "hypothesis": "B.", "label": "contradiction", "idx": 0},
        {"premise": "Ä", "hypothesis": "C.", "label": "entailment", "idx": 1},
    ]
    store(tmp_path, "glue/mnli", validation_matched=rows)
    examples = load_tfds(find_task("mnli"), "dev_matched", tmp_path)
    assert examples == [Example("A.", "B.", 2), Example("Ä", "C.", 0)]


def test_single_sentences_and_scores_from_disk(tmp_path: Path) -> None:
    store(tmp_path, "glue/cola", train=[{"sentence": "Go.", "label": 1, "idx": 0}])
    assert load_tfds(find_task("cola"), "train", tmp_path) == [Example("Go.", None, 1)]
    row = {"sentence1": "A", "sentence2": "B", "label": 2.5, "idx": 0}
    store(tmp_path, "glue/stsb", validation=[row])
    assert load_tfds(find_task("stsb"), "dev", tmp_path) == [Example("A", "B", 2.5)]


def test_pairs_without_a_label_are_left_out(tmp_path: Path) -> None:
    pairs = [("A", "B", -1), ("A", "C", 1)]
    rows = [{"premise": a, "hypothesis": b, "label": label} for a, b, label in pairs]
    store(tmp_path / "some", "snli", test=rows)
    assert load_tfds(find_task("snli"), "test", tmp_path / "some") == [Example("A", "C", 1)]
    store(tmp_path / "none", "snli", test=rows[:1])
    with pytest.raises(UserError, match=r"snli: .*'test'"):
        load_tfds(find_task("snli"), "test", tmp_path / "none")


def test_test_splits_come_without_labels_in_the_order_of_glues_index(tmp_path: Path) -> None:
    rows = [{"sentence": text, "label": -1, "idx": i} for text, i in (("B.", 1), ("A.", 0))]
    store(tmp_path, "glue/cola", test=rows)
    unlabelled = [Example("A.", None, NO_LABEL), Example("B.", None, NO_LABEL)]
    assert load_tfds_test_splits(find_task("cola"), tmp_path) == {"test": unlabelled}
    row = {"premise": "A", "hypothesis": "B", "label": 1}
    store(tmp_path, "snli", test=[row])
    labels_hidden = {"test": [Example("A", "B", NO_LABEL)]}
    assert load_tfds_test_splits(find_task("snli"), tmp_path) == labels_hidden


def test_a_test_split_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    store(tmp_path, "glue/cola", train=[{"sentence": "Go.", "label": 1, "idx": 0}])
    assert load_tfds_test_splits(find_task("cola"), tmp_path) == {}


def test_a_whole_task_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    train, dev, test = (
        [{"sentence": text, "label": label, "idx": 0}]
        for text, label in (("A.", 0), ("B.", 1), ("C.", -1))
    )
    store(tmp_path, "glue/sst2", train=train, validation=dev, test=test)
    task = open_task("sst2")
    assert task.train == [Example("A.", None, 0)]
    assert task.dev == {"dev": [Example("B.", None, 1)]}
    assert task.test == {"test": [Example("C.", None, NO_LABEL)]}
    with pytest.raises(UserError, match=r"glue/rte: .*`tfds build glue/rte`"):
        open_task("rte")


def test_a_data_set_that_is_not_there_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"glue/rte: .*`tfds build glue/rte`"):
        load_tfds(find_task("rte"), "dev", tmp_path)
