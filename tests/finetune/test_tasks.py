"""Every kind of task is read completely; missing or wrong files are reported by name."""

import math
from pathlib import Path

import pytest

from tests.finetune.glue_files import write, write_split, write_test_split
from tupe_jax.data.labelled.example import NO_LABEL, Example
from tupe_jax.data.labelled.glue import TASKS
from tupe_jax.finetune.metrics import METRICS
from tupe_jax.finetune.tasks import FinetuneTask, open_task
from tupe_jax.utils.errors import UserError


def example(task: str, number: int = 0) -> Example:
    second = f"Second {number}." if TASKS[task].is_pair else None
    return Example(f"First {number}.", second, 2.5 if TASKS[task].is_regression else number % 2)


def write_task(folder: Path, task: str) -> None:
    for split, names in TASKS[task].splits.items():
        if split == "train" or split.startswith("dev"):
            write_split(folder, task, names.files[0], [example(task, n) for n in range(2)])


@pytest.mark.parametrize("name", TASKS)
def test_glue_and_snli_from_their_files(tmp_path, name):
    write_task(tmp_path, name)
    task = open_task(name, data_dir=tmp_path)
    assert (task.name, task.classes) == (name, TASKS[name].form.classes)
    assert task.train == [example(name, 0), example(name, 1)]
    splits = ["dev_matched", "dev_mismatched"] if name == "mnli" else ["dev"]
    assert list(task.dev) == splits
    assert task.test == {}
    assert set(task.metrics) <= METRICS.keys()
    assert task.outputs == (1 if task.is_regression else len(task.classes))


def test_the_number_of_each_task_and_its_epochs_are_the_papers(tmp_path):
    numbers = {"cola": "matthews", "stsb": "pearson"}
    for name in ("mnli", "qnli", "qqp", "sst2", "cola", "mrpc", "rte", "stsb"):
        write_task(tmp_path, name)
        task = open_task(name, data_dir=tmp_path)
        assert task.chosen_by == (next(iter(task.dev)), numbers.get(name, "accuracy"))
        assert task.epochs == (5 if name in ("mnli", "qnli", "qqp") else 10)
        assert task.score_scale == (5.0 if name == "stsb" else 1.0)
    assert open_task("mrpc", data_dir=tmp_path).metrics == ("accuracy", "f1")


def test_test_splits_are_read_when_they_are_there(tmp_path):
    write_task(tmp_path, "mnli")
    write_test_split(tmp_path, "mnli", "test_mismatched.tsv", [("A", "B"), ("C", "D")])
    assert open_task("mnli", data_dir=tmp_path).test == {
        "test_mismatched": [Example("A", "B", NO_LABEL), Example("C", "D", NO_LABEL)]
    }
    write_task(tmp_path, "cola")  # whose other files have no header
    write_test_split(tmp_path, "cola", "test.tsv", [("A",)])
    assert open_task("cola", data_dir=tmp_path).test == {"test": [Example("A", None, NO_LABEL)]}


def test_a_labelled_test_file_is_a_test_split_like_others(tmp_path):
    write_task(tmp_path, "mrpc")
    write_split(tmp_path, "mrpc", "test.tsv", [Example("A", "B", 1)])
    assert open_task("mrpc", data_dir=tmp_path).test == {"test": [Example("A", "B", NO_LABEL)]}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mnli", "dev_mismatched.tsv"),
        ("mnli", "dev_matched.tsv"),
        ("snli", "train.tsv"),
        ("qnli", "train.tsv"),
        ("rte", "dev.tsv"),
    ],
)
def test_a_missing_file_is_named(tmp_path, name, file):
    write_task(tmp_path, name)
    (tmp_path / TASKS[name].folder / file).unlink()
    split = file.partition(".")[0]
    with pytest.raises(UserError, match=rf"^{name}, {split}: .*{file} .*{file}\.gz"):
        open_task(name, data_dir=tmp_path)


def test_files_of_other_names(tmp_path):
    train = write_split(tmp_path, "mnli", "train_subset.tsv", [example("mnli", 0)])
    dev = write_split(tmp_path, "mnli", "some.tsv", [example("mnli", 1)])
    task = open_task("mnli", train=train, dev=[dev])
    assert task.train == [example("mnli", 0)]
    assert task.dev == {"dev_matched": [example("mnli", 1)]}
    assert list(open_task("mnli", train=train, dev=[dev, dev]).dev) == [
        "dev_matched",
        "dev_mismatched",
    ]
    with pytest.raises(UserError, match=r"--dev .*3.*mnli.*2"):
        open_task("mnli", train=train, dev=[dev] * 3)
    with pytest.raises(UserError, match=r"gone\.tsv"):
        open_task("mnli", train=tmp_path / "gone.tsv", dev=[dev])


def test_a_built_in_task_needs_no_files():
    task = open_task("builtin_nli", train_examples=9, dev_examples=6)
    assert task.classes == ("entailment", "neutral", "contradiction")
    assert (len(task.train), len(task.dev["dev"])) == (9, 6)
    assert {e.label for e in task.train} == {0, 1, 2}
    with pytest.raises(UserError, match="builtin_nli: 0 "):
        open_task("builtin_nli", dev_examples=0)


def test_sizes_of_built_in_tasks_are_not_for_others(tmp_path):
    for task in ("cola", str(tmp_path / "mine.tsv")):
        with pytest.raises(UserError, match=f"--train_examples .*--task={task}"):
            open_task(task, train_examples=5)


@pytest.fixture
def own(tmp_path):
    """A function that writes training and dev files of a user."""

    def write_own(train_labels, dev_labels=("yes",)):
        for file, labels in (("train.tsv", train_labels), ("dev.tsv", dev_labels)):
            rows = [f"{label}\tx\tText {label}.\tMore." for label in labels]
            write(tmp_path / file, ["kind\tid\ttext\tmore", *rows])
        return tmp_path / "train.tsv", tmp_path / "dev.tsv"

    return write_own


def test_a_custom_task_has_pairs_or_single_texts(own):
    train, dev = own(["yes", "no", "yes"])
    task = open_task(str(train), dev=[dev], columns="text,more,kind")
    assert task.classes == ("no", "yes")
    assert task.train[0] == Example("Text yes.", "More.", 1)
    assert task.dev == {"dev": [Example("Text yes.", "More.", 1)]}
    assert task.chosen_by == ("dev", "accuracy")
    single = open_task(str(train), dev=[dev], columns="text,kind")
    assert single.train[0] == Example("Text yes.", None, 1)


def test_numeric_classes_of_a_custom_task_are_in_order(own):
    train, dev = own(["10", "9", "-1"], ["9"])
    task = open_task(str(train), dev=[dev], columns="text,kind")
    assert task.classes == ("-1", "9", "10")


def test_a_custom_task_with_scores(own):
    train, dev = own(["0.5", "7"], ["1"])
    task = open_task(str(train), dev=[dev], columns="text,kind", regression=True)
    assert [e.label for e in task.train] == [0.5, 7.0]
    assert (task.classes, task.outputs, task.metrics) == (None, 1, ("pearson", "spearman"))
    assert task.score_scale == 7.0


def test_a_custom_task_never_has_the_name_of_a_known_one(own):
    train, dev = own(["yes", "no"])
    assert open_task(str(train), dev=[dev], columns="text,kind").name == train.parent.name
    stsb = train.rename(train.parent / "stsb.tsv")
    assert open_task(str(stsb), dev=[dev], columns="text,kind").name == "own_stsb"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "text,kind"}, r"train\.tsv: .*--dev="),
        ({"dev": True}, r"train\.tsv: .*--columns="),
        ({"dev": True, "columns": "kind"}, "--columns=kind: "),
        ({"dev": True, "columns": "a,b,c,d"}, "--columns=a,b,c,d: "),
        ({"dev": True, "columns": "text,text"}, "--columns=text,text: "),
        ({"dev": True, "columns": "words,kind"}, r"train\.tsv:1: .*'words'"),
        ({"dev": True, "columns": "text,kind", "data_dir": Path()}, "--data_dir"),
        ({"dev": True, "columns": "text,kind", "regression": True}, r":2: .*'yes'"),
    ],
)
def test_errors_of_a_custom_task(own, options, message):
    train, dev = own(["yes", "no"])
    with pytest.raises(UserError, match=message):
        open_task(str(train), **{**options, "dev": [dev] if options.get("dev") else []})


def test_labels_that_cannot_be_classes(own):
    train, dev = own(["yes"], ["yes"])
    with pytest.raises(UserError, match=r"train\.tsv: .*'yes'"):
        open_task(str(train), dev=[dev], columns="text,kind")
    train, dev = own(["yes", "no"], ["yes", "maybe"])
    with pytest.raises(UserError, match=r"dev\.tsv:3: .*'maybe'.*no, yes"):
        open_task(str(train), dev=[dev], columns="text,kind")
    train, dev = own(["yes", "no", "yes "], [" no"])
    assert open_task(str(train), dev=[dev], columns="text,kind").classes == ("no", "yes")
    train, dev = own([f"{n / 7}" for n in range(2000)], ["1"])
    with pytest.raises(UserError, match=r"2000 .*--regression"):
        open_task(str(train), dev=[dev], columns="text,kind")
    train, dev = own(["yes", ""])
    with pytest.raises(UserError, match=r"train\.tsv:3: .*'kind'"):
        open_task(str(train), dev=[dev], columns="text,kind")
    train, dev = own([])
    with pytest.raises(UserError, match=r"train\.tsv: "):
        open_task(str(train), dev=[dev], columns="text,kind")


def test_unknown_tasks_name_the_known_ones():
    with pytest.raises(UserError, match=r"'colla' .*'cola'.*builtin_nli"):
        open_task("colla")
    with pytest.raises(UserError, match=r"lost/train\.tsv"):
        open_task("lost/train.tsv", dev=[Path("lost/dev.tsv")], columns="a,b")


def test_options_of_other_kinds_of_task_are_rejected():
    with pytest.raises(UserError, match=r"--columns .*--task=cola"):
        open_task("cola", columns="a,b")
    with pytest.raises(UserError, match=r"--dev .*--task=builtin_sst"):
        open_task("builtin_sst", dev=[Path("dev.tsv")])


@pytest.mark.parametrize(
    ("classes", "label", "message"),
    [
        (("no", "yes"), 2, "mine, dev, example 1: .* 2 .*no, yes"),
        (("no", "yes"), NO_LABEL, "label -1"),
        (None, math.inf, "mine, dev, example 1: .* inf "),
    ],
)
def test_a_label_outside_the_range_is_named(classes, label, message):
    good = Example("a", None, 0)
    with pytest.raises(UserError, match=message):
        FinetuneTask(
            "mine",
            classes,
            ("accuracy",),
            train=[good],
            dev={"dev": [good, Example("b", None, label)]},
        )
