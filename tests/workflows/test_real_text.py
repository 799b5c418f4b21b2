"""A user's own text files: pre-training, GLUE, minimal pairs."""

import pytest

from tests.workflows.files import write_glue, write_minimal_pairs, write_text
from tests.workflows.small import FEW_STEPS, MEASUREMENT, MODEL
from tests.workflows.steps import Step, in_order

pytestmark = pytest.mark.slow

FEW_EPOCHS = "--config.finetune.length=16 --config.finetune.epochs=1"

STEPS = [
    Step(
        "tupe pretrain --config=tupe_r:tiny --workdir=runs/small "
        "--config.data.task='text:corpus/*/train.txt.gz' --config.data.cleaning=all "
        "--config.data.length=128 --config.position.max_length=128 --config.model.vocab_size=8192 "
        "--config.model.num_layers=4 --config.train.batch_size=32 --config.train.steps=2400 "
        "--config.optimizer.peak_learning_rate=1.5e-3",
        small=f"{MODEL} {FEW_STEPS}",
        leaves="runs/small/checkpoints/4",
        says="validation loss",
    ),
    Step(
        "tupe glue --checkpoint=runs/small --data_dir=glue --config=glue:quick "
        "--config.tasks=stsb,mrpc,rte,cola,wnli --config.learning_rates=5e-4 --config.seeds=0 "
        "--workdir=runs/glue",
        small=FEW_EPOCHS,
        instead={"stsb,mrpc,rte,cola,wnli": "stsb,cola"},
        leaves="runs/glue/table.md",
    ),
    Step(
        "tupe glue --checkpoint=runs/small --data_dir=glue --config=glue:quick "
        "--config.tasks=sst2 --config.learning_rates=5e-4 --config.seeds=0 "
        "--config.finetune.epochs=1 --workdir=runs/sst2",
        small=FEW_EPOCHS,
        leaves="runs/sst2/table.md",
    ),
    Step(
        "tupe analyze runs/small --pairs=blimp.jsonl.gz",
        small=MEASUREMENT,
        leaves="analysis/report.txt",
        says="verbs",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def files(folder):
    write_text(folder / "corpus/novels/train.txt.gz", seed=1)
    write_glue(folder / "glue", "stsb", "cola", "sst2")
    write_minimal_pairs(folder / "blimp.jsonl.gz")


@in_order(STEPS)
def test_step(step, folder):
    step.execute(folder)
