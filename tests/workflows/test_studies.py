"""Studies by their documented commands, one run of each."""

import pytest

from tests.workflows.files import write_text
from tests.workflows.small import STUDY, STUDY_TASKS
from tests.workflows.steps import Step, in_order

pytestmark = pytest.mark.slow

STEPS = [
    Step(
        "tupe ablate --config=ablations/paper_table:tiny --workdir=runs/paper_table",
        small=f"{STUDY} --shard=0/6 --config.pretrain.data.task=builtin:400 {STUDY_TASKS}",
        leaves="runs/paper_table/report.html",
        says="| BERT-A |",
    ),
    Step(
        "tupe ablate --config=ablations/paper_table:real_text --workdir=runs/real_text "
        "--config.pretrain.data.task='text:amalgum/*.txt.gz'",
        small=f"{STUDY} --shard=0/6",
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
