"""Vocabulary, rows, pre-training, resuming, measuring, exporting, loading, fine-tuning, GLUE."""

import pytest

from tests.workflows.files import write_glue, write_own_task
from tests.workflows.small import LONG_ENOUGH_TO_STOP, MEASUREMENT, MODEL
from tests.workflows.steps import Step, in_order

PRETRAIN = "tupe pretrain --config=tupe_r:tiny --config.data.prepared=rows --workdir=runs/prepared"
OURS = {"runs/quickstart": "runs/prepared"}

STEPS = [
    Step(
        "tupe vocab --task=builtin --size=2048 --cleaning=none --out=tiny.model",
        small="--task=builtin:400 --size=300",
        leaves="tiny.model",
    ),
    Step(
        "tupe prepare --task=builtin --vocabulary=tiny.model --length=64 --cleaning=none "
        "--out=rows",
        small="--task=builtin:400 --workers=1",
        leaves="rows/index.json",
    ),
    Step(
        PRETRAIN,
        small=f"{MODEL} {LONG_ENOUGH_TO_STOP}",
        stop_at="runs/prepared/metrics.jsonl",
        says="saved",
    ),
    Step(
        PRETRAIN,
        small=f"{MODEL} {LONG_ENOUGH_TO_STOP}",
        leaves="runs/prepared/checkpoints/300",
        says="validation loss",
    ),
    Step("tupe analyze runs/quickstart", MEASUREMENT, OURS, leaves="analysis/report.txt"),
    Step(
        "tupe export runs/quickstart quickstart",
        instead=OURS,
        leaves="quickstart/model.safetensors",
    ),
    Step(
        "an exported or imported folder",
        run="""python -c 'import tupe_jax; m = tupe_jax.load("quickstart"); """
        """print(m.fill_mask("The [MASK]."), m.encode("a text").shape)'""",
        says="(32,)",
    ),
    Step(
        "tupe finetune --checkpoint=runs/quickstart --task=builtin_cola --config=finetune:quick "
        "--config.length=64",
        small="--train_examples=16 --dev_examples=8 --config.epochs=1",
        instead=OURS,
    ),
    Step(
        'tupe predict runs/finetune-builtin_cola "The old doctors is tired."',
        says="The old doctors is tired.",
    ),
    Step(
        "--task=mine/train.tsv --dev=mine/dev.tsv --columns=text,label",
        run="tupe finetune --checkpoint=quickstart --task=mine/train.tsv --dev=mine/dev.tsv "
        "--columns=text,label",
        small="--config.epochs=1 --config.length=64",
        says="dev accuracy",
    ),
    Step(
        "tupe glue --checkpoint=runs/tupe_r --data_dir=glue",
        small="--config.tasks=rte --config.learning_rates=5e-4 --config.seeds=0 "
        "--config.finetune.length=16 --config.finetune.epochs=1",
        instead={"runs/tupe_r": "runs/prepared"},
        leaves="runs/glue/table.md",
        says="| TUPE-R | 1M |",
    ),
    Step(
        "tupe export runs/tupe_r released --format=fairseq",
        instead={"runs/tupe_r": "runs/prepared"},
        leaves="released/dict.txt",
    ),
    Step(
        "tupe import-fairseq released/checkpoint.pt tupe_r --vocabulary=released/vocabulary.model",
        leaves="tupe_r/model.safetensors",
    ),
    Step(
        "on a built-in task",
        run="tupe finetune --checkpoint=tupe_r --task=builtin_sst",
        small="--train_examples=16 --dev_examples=8 --config.epochs=1 --config.length=64",
        says="dev accuracy",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def files(folder):
    write_glue(folder / "glue", "rte")
    write_own_task(folder / "mine")


@in_order(STEPS)
def test_step(step, folder):
    step.execute(folder)
