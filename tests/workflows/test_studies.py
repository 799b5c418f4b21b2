"""Studies by their documented commands, one run of each."""

import pytest

from tests.workflows.files import write_text
from tests.workflows.small import STUDY
from tests.workflows.steps import Step, in_order

STEPS = [
    Step(
        "tupe ablate --config=ablations/paper_table:tiny --workdir=runs/paper_table",
        small=f"""{STUDY} --config.pretrain.data.task=builtin:400
          --config.downstream.train_examples=16 --config.downstream.dev_examples=8
          --config.downstream.finetune.epochs=1
          --config.measure.minimal_pairs=4 --config.measure.probe_pairs=20""",
        leaves="runs/paper_table/report.html",
        says="| BERT-A |",
    ),
    Step(
        "tupe ablate --config=ablations/paper_table:real_text --workdir=runs/real_text "
        "--config.pretrain.data.task='text:amalgum/*.txt.gz'",
        small=STUDY,
        leaves="runs/real_text/loss.png",
        says="| BERT-A |",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def files(folder):
    write_text(folder / "amalgum/one.txt.gz")


@in_order(STEPS)
def test_step(step, folder):
    step.execute(folder)
