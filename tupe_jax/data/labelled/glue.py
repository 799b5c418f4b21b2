"""The nine GLUE tasks and SNLI as data: their files, columns, classes and metrics.

`load_split` reads a folder of the original TSV files. `load_file` reads one file of the same
columns (a subset, a counterfactual version). `glue_tfds` reads the same tasks from TFDS.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.tsv import Columns, TsvFormat, read_tsv, read_unlabelled
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path


@dataclass(frozen=True)
class SplitNames:
    """The names of a split: its possible file names (also with .gz), and its name in TFDS."""

    files: tuple[str, ...]
    tfds: str


TRAIN = SplitNames(("train.tsv",), "train")
DEV = SplitNames(("dev.tsv",), "validation")
TEST = SplitNames(("test.tsv",), "test")


@dataclass(frozen=True)
class LabelledTask:
    """One task. Metrics are in the order in which papers report them.

    TFDS has its own column names, but the class numbers of `form.classes`.
    `splits` are labelled. GLUE does not publish the labels of `test_splits`.
    """

    name: str
    folder: str
    form: TsvFormat
    tfds_name: str
    tfds_columns: Columns
    metrics: tuple[str, ...] = ("accuracy",)
    splits: Mapping[str, SplitNames] = field(default_factory=lambda: {"train": TRAIN, "dev": DEV})
    test_splits: Mapping[str, SplitNames] = field(default_factory=lambda: {"test": TEST})

    @property
    def is_pair(self) -> bool:
        return self.form.columns.sentence2 is not None

    @property
    def is_regression(self) -> bool:
        return self.form.classes is None


SINGLE = Columns("sentence", None, "label")
PAIR = Columns("sentence1", "sentence2", "label")
PREMISE_HYPOTHESIS = Columns("premise", "hypothesis", "label")
NO_YES = ("0", "1")
TWO_WAY = ("entailment", "not_entailment")
THREE_WAY = ("entailment", "neutral", "contradiction")
SNLI_TEST = SplitNames(("test.tsv", "snli_1.0_test.txt"), "test")

TASKS: Mapping[str, LabelledTask] = {
    task.name: task
    for task in (
        LabelledTask(
            name="cola",
            folder="CoLA",
            form=TsvFormat(SINGLE, NO_YES, header=("source", "label", "mark", "sentence")),
            tfds_name="glue/cola",
            tfds_columns=SINGLE,
            metrics=("matthews",),
        ),
        LabelledTask(
            name="sst2",
            folder="SST-2",
            form=TsvFormat(SINGLE, NO_YES),
            tfds_name="glue/sst2",
            tfds_columns=SINGLE,
        ),
        LabelledTask(
            name="mrpc",
            folder="MRPC",
            form=TsvFormat(Columns("#1 String", "#2 String", "Quality"), NO_YES),
            tfds_name="glue/mrpc",
            tfds_columns=PAIR,
            metrics=("f1", "accuracy"),
            splits={"train": TRAIN, "dev": DEV, "test": TEST},
        ),
        LabelledTask(
            name="stsb",
            folder="STS-B",
            form=TsvFormat(Columns("sentence1", "sentence2", "score"), classes=None),
            tfds_name="glue/stsb",
            tfds_columns=PAIR,
            metrics=("pearson", "spearman"),
        ),
        LabelledTask(
            name="qqp",
            folder="QQP",
            # A few questions of the official file contain a line break, which splits their rows.
            form=TsvFormat(
                Columns("question1", "question2", "is_duplicate"), NO_YES, short_lines=10
            ),
            tfds_name="glue/qqp",
            tfds_columns=Columns("question1", "question2", "label"),
            metrics=("f1", "accuracy"),
        ),
        LabelledTask(
            name="mnli",
            folder="MNLI",
            form=TsvFormat(Columns("sentence1", "sentence2", "gold_label"), THREE_WAY),
            tfds_name="glue/mnli",
            tfds_columns=PREMISE_HYPOTHESIS,
            splits={
                "train": TRAIN,
                "dev_matched": SplitNames(("dev_matched.tsv",), "validation_matched"),
                "dev_mismatched": SplitNames(("dev_mismatched.tsv",), "validation_mismatched"),
            },
            test_splits={
                "test_matched": SplitNames(("test_matched.tsv",), "test_matched"),
                "test_mismatched": SplitNames(("test_mismatched.tsv",), "test_mismatched"),
            },
        ),
        LabelledTask(
            name="qnli",
            folder="QNLI",
            form=TsvFormat(Columns("question", "sentence", "label"), TWO_WAY),
            tfds_name="glue/qnli",
            tfds_columns=Columns("question", "sentence", "label"),
        ),
        LabelledTask(
            name="rte",
            folder="RTE",
            form=TsvFormat(PAIR, TWO_WAY),
            tfds_name="glue/rte",
            tfds_columns=PAIR,
        ),
        LabelledTask(
            name="wnli",
            folder="WNLI",
            form=TsvFormat(PAIR, NO_YES),
            tfds_name="glue/wnli",
            tfds_columns=PAIR,
        ),
        LabelledTask(
            name="snli",
            folder="SNLI",
            # "-" means that the annotators did not agree.
            form=TsvFormat(
                Columns("sentence1", "sentence2", "gold_label"), THREE_WAY, no_label="-"
            ),
            tfds_name="snli",
            tfds_columns=PREMISE_HYPOTHESIS,
            splits={
                "train": SplitNames(("train.tsv", "snli_1.0_train.txt"), "train"),
                "dev": SplitNames(("dev.tsv", "snli_1.0_dev.txt"), "validation"),
                "test": SNLI_TEST,
            },
            test_splits={"test": SNLI_TEST},
        ),
    )
}


def find_task(name: str) -> LabelledTask:
    """Return the task with this name."""
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}; expected one of {', '.join(TASKS)}")
    return TASKS[name]


def split_names(task: LabelledTask, split: str) -> SplitNames:
    """Return the names of a split in files and in TFDS."""
    if split not in task.splits:
        raise UserError(f"{task.name} has no split {split!r}; it has {', '.join(task.splits)}")
    return task.splits[split]


def load_split(task: LabelledTask, folder: Path, split: str) -> list[Example]:
    """Read a split of a task from its own folder or from the folder of all tasks."""
    names = split_names(task, split)
    path = _find_file(task, folder, names)
    if path is None:
        raise UserError(
            f"{folder}: no {' or '.join(_file_names(names))} there or in {task.folder}/; give the "
            "path of the file if it has another name"
        )
    return load_file(task, path)


def load_test_splits(task: LabelledTask, folder: Path) -> dict[str, list[Example]]:
    """Read the test splits that are in the folder: every row, without labels."""
    paths = {split: _find_file(task, folder, names) for split, names in task.test_splits.items()}
    return {
        split: read_unlabelled(path, task.form.columns)
        for split, path in paths.items()
        if path is not None
    }


def load_file(task: LabelledTask, path: Path) -> list[Example]:
    """Read one file with the columns of the task and any name."""
    return read_tsv(path, task.form)


def _find_file(task: LabelledTask, folder: Path, names: SplitNames) -> Path | None:
    folders = [folder / task.folder, folder]
    paths = [each / name for each in folders for name in _file_names(names)]
    return next((path for path in paths if path.is_file()), None)


def _file_names(names: SplitNames) -> list[str]:
    return [name + end for name in names.files for end in ("", ".gz")]
