"""Tasks to fine-tune on: GLUE, SNLI, the built-in tasks, or your own files.

`open_task` reads all examples, so that missing or wrong files are reported before training.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tupe_jax.config.validation import did_you_mean
from tupe_jax.data.builtin import LABELS, labelled
from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.glue import TASKS, LabelledTask, load_file, load_split, load_test_splits
from tupe_jax.data.labelled.tsv import Columns, TsvFormat, read_classes, read_tsv
from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path, storage_path

KNOWN_TASKS = (*TASKS, *LABELS)

PAPER_EPOCHS = 10
PAPER_EPOCHS_OF_LARGE_TASKS = 5
LARGE_TASKS = ("mnli", "qnli", "qqp", "snli")
"""The paper's three, and SNLI, which is as large as MNLI."""

STSB_SCALE = 5.0
BUILTIN_SEED = 0
BUILTIN_TRAIN, BUILTIN_DEV = 4000, 1000
MOST_CLASSES = 1000
"""A column with more distinct labels holds scores, or is the wrong column."""


@dataclass(frozen=True)
class FinetuneTask:
    """The examples of a task, its classes and metrics.

    The first metric on the first dev split selects the best evaluation and is the task's number in
    tables. Examples hold the scores of the files; a model learns score / `score_scale`.
    """

    name: str
    classes: tuple[str, ...] | None
    """The names of the classes, by number; None: regression."""
    metrics: tuple[str, ...]
    train: Sequence[Example]
    dev: Mapping[str, Sequence[Example]]
    test: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    """Splits without known labels, to be predicted; in the order of GLUE's index."""
    epochs: int = PAPER_EPOCHS
    score_scale: float = 1.0
    arguments: tuple[str, ...] = ()
    """The arguments of `tupe finetune` that open this task."""

    def __post_init__(self) -> None:
        for split, examples in {"train": self.train, **self.dev}.items():
            for number, example in enumerate(examples):
                self._check_label(example.label, f"{self.name}, {split}, example {number}")

    def _check_label(self, label: int | float, where: str) -> None:
        if self.classes is None:
            if not math.isfinite(label):
                raise UserError(f"{where}: the score {label} is not a finite number")
        elif label not in range(len(self.classes)):
            raise UserError(
                f"{where}: the label {label} is not a class number; there are {len(self.classes)} "
                f"classes ({', '.join(self.classes)})"
            )

    @property
    def is_regression(self) -> bool:
        return self.classes is None

    @property
    def outputs(self) -> int:
        """Size of the model's output: the number of classes, or 1 for a score."""
        return 1 if self.classes is None else len(self.classes)

    @property
    def chosen_by(self) -> tuple[str, str]:
        """The dev split and the metric that select the best evaluation."""
        return next(iter(self.dev)), self.metrics[0]


def open_task(
    name: str,
    *,
    data_dir: Path | None = None,
    train: Path | None = None,
    dev: Sequence[Path] = (),
    columns: str | None = None,
    regression: bool = False,
    train_examples: int | None = None,
    dev_examples: int | None = None,
) -> FinetuneTask:
    """Read a task by its name, or your own task by the path of its training file.

    GLUE and SNLI are read from `data_dir` in the original layout, or from TFDS on disk; `train` and
    `dev` (for MNLI: matched, mismatched) replace single files. Your own task needs `dev` and
    `columns` ("sentence,label" or "sentence1,sentence2,label"). `train_examples` and
    `dev_examples` are the sizes of a built-in task, by default 4,000 and 1,000.
    """
    arguments = [f"--task={name}"]
    given = {"data_dir": data_dir, "train": train, "columns": columns}
    arguments += [f"--{option}={value}" for option, value in given.items() if value is not None]
    arguments += [f"--dev={file}" for file in dev] + ["--regression"] * regression
    sizes = {"train_examples": train_examples, "dev_examples": dev_examples}
    if name in TASKS:
        _refuse(name, columns=columns, regression=regression, **sizes)
        return replace(_public(TASKS[name], data_dir, train, dev), arguments=tuple(arguments))
    if name in LABELS:
        _refuse(
            name, data_dir=data_dir, train=train, dev=dev, columns=columns, regression=regression
        )
        train_count = BUILTIN_TRAIN if train_examples is None else train_examples
        dev_count = BUILTIN_DEV if dev_examples is None else dev_examples
        arguments += [f"--train_examples={train_count}", f"--dev_examples={dev_count}"]
        return replace(_builtin(name, train_count, dev_count), arguments=tuple(arguments))
    path = storage_path(name)
    if path.suffix not in (".tsv", ".gz", ".txt") and not path.is_file():
        raise UserError(
            f"no task {name!r}{did_you_mean(name, KNOWN_TASKS)}; choose one of "
            f"{', '.join(KNOWN_TASKS)}, or give the path of your own training file (.tsv)"
        )
    _refuse(name, data_dir=data_dir, train=train, **sizes)
    return replace(_own(path, dev, columns, regression), arguments=tuple(arguments))


def metrics_of(name: str) -> tuple[str, ...]:
    """The metrics of a known task; as in the TUPE paper accuracy comes before F1."""
    if name in LABELS:
        return ("accuracy", "matthews")
    return tuple(sorted(TASKS[name].metrics, key=lambda metric: metric == "f1"))


def _public(
    task: LabelledTask, data_dir: Path | None, train: Path | None, dev: Sequence[Path]
) -> FinetuneTask:
    dev_splits = [split for split in task.splits if split.startswith("dev")]
    if len(dev) > len(dev_splits):
        raise UserError(
            f"--dev names {len(dev)} files, but {task.name} has {len(dev_splits)} dev splits "
            f"({', '.join(dev_splits)})"
        )
    files = dict(zip(dev_splits, dev, strict=False)) or dict.fromkeys(dev_splits)
    return FinetuneTask(
        name=task.name,
        classes=task.form.classes,
        metrics=metrics_of(task.name),
        train=_load(task, data_dir, "train", train),
        dev={split: _load(task, data_dir, split, file) for split, file in files.items()},
        test=_load_test(task, data_dir, any_file_given=bool(train or dev)),
        epochs=PAPER_EPOCHS_OF_LARGE_TASKS if task.name in LARGE_TASKS else PAPER_EPOCHS,
        score_scale=STSB_SCALE if task.is_regression else 1.0,
    )


def _load(
    task: LabelledTask, data_dir: Path | None, split: str, file: Path | None
) -> list[Example]:
    if file is not None:
        return load_file(task, file)
    if data_dir is not None:
        try:
            return load_split(task, data_dir, split)
        except UserError as error:
            raise UserError(f"{task.name}, {split}: {error}") from None
    from tupe_jax.data.labelled.glue_tfds import load_tfds  # TensorFlow takes seconds to import

    return load_tfds(task, split)


def _load_test(
    task: LabelledTask, data_dir: Path | None, any_file_given: bool
) -> dict[str, list[Example]]:
    if data_dir is not None:
        return load_test_splits(task, data_dir)
    if any_file_given:
        return {}
    from tupe_jax.data.labelled.glue_tfds import load_tfds_test_splits

    return load_tfds_test_splits(task)


def _builtin(name: str, train_examples: int, dev_examples: int) -> FinetuneTask:
    for count, what in ((train_examples, "train"), (dev_examples, "dev")):
        if count < 1:
            raise UserError(f"{name}: {count} {what} examples are too few; give at least 1")
    return FinetuneTask(
        name=name,
        classes=LABELS[name],
        metrics=metrics_of(name),
        train=labelled(name, "train", BUILTIN_SEED, train_examples),
        dev={"dev": labelled(name, "validation", BUILTIN_SEED, dev_examples)},
    )


def _own(path: Path, dev: Sequence[Path], columns: str | None, regression: bool) -> FinetuneTask:
    if columns is None:
        raise UserError(f"{path}: name its columns, such as --columns=sentence1,sentence2,label")
    names = [name.strip() for name in columns.split(",")]
    if len(names) not in (2, 3) or not all(names) or len(set(names)) < len(names):
        raise UserError(
            f"--columns={columns}: name one or two text columns, then the label column, such "
            "as sentence,label"
        )
    if len(dev) != 1:
        raise UserError(f"{path}: give one file to evaluate on, such as --dev=dev.tsv")
    layout = Columns(names[0], names[1] if len(names) == 3 else None, names[-1])
    form = TsvFormat(layout, None if regression else _own_classes(path, layout))
    train = read_tsv(path, form)
    return FinetuneTask(
        name=_own_name(path),
        classes=form.classes,
        metrics=("pearson", "spearman") if regression else ("accuracy", "matthews"),
        # Outputs start near 0 and change in small steps; they would never reach scores like 30.
        score_scale=(max(abs(e.label) for e in train) or 1.0) if regression else 1.0,
        train=train,
        dev={"dev": read_tsv(dev[0], form)},
    )


def _own_name(path: Path) -> str:
    """The name of the file, or of its folder if the file is called train; never a known task."""
    name = path.name.partition(".")[0]
    if name in ("train", "training"):
        name = path.absolute().parent.name or name
    return f"own_{name}" if name in KNOWN_TASKS else name


def _own_classes(path: Path, columns: Columns) -> tuple[str, ...]:
    classes = read_classes(path, columns)
    if len(classes) < 2:
        raise UserError(f"{path}: every label is {classes[0]!r}; a task needs at least two classes")
    if len(classes) > MOST_CLASSES:
        raise UserError(
            f"{path}: {len(classes)} different labels in column {columns.label!r}, such as "
            f"{classes[0]!r}; if they are scores, add --regression"
        )
    return classes


def _refuse(name: str, **options: object) -> None:
    """Reject options that the task does not use."""
    for option, value in options.items():
        if value:
            raise UserError(f"--{option} is not used with --task={name}; leave it out")
