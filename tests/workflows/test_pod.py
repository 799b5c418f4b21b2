"""The way to a pod, with two processes of this machine in place of the pod's."""

import pytest

from tests.workflows.files import write_text
from tests.workflows.small import FEW_STEPS, LONG_ENOUGH_TO_STOP, MODEL
from tests.workflows.steps import Step, in_order

pytestmark = pytest.mark.slow

MIXTURE = {"wikipedia + ": "builtin:100 + "}
BUCKET = {"/mnt/tupe-runs": "bucket"}
LAUNCH = (
    "launch/tpu_vm.sh resume --name=tupe-r --zone=us-west4-a --accelerator=v5litepod-256 --spot "
    "--wheel=dist/tupe_jax-0.1.0-py3-none-any.whl --bucket=tupe-runs -- "
)
PRETRAIN = (
    "pretrain --config=tupe_r:modern --workdir=/mnt/tupe-runs/tupe_r "
    "--config.data.prepared=/mnt/tupe-runs/rows"
)
SMALL = f"--config.data.length=32 {MODEL} {LONG_ENOUGH_TO_STOP} --config.train.steps=100"

STEPS = [
    Step(
        "tupe vocab --task='wikipedia + text:data/books/*.txt.gz' --out=pod.model",
        small="--size=300",
        instead=MIXTURE,
    ),
    Step(
        "tupe prepare --task='wikipedia + text:data/books/*.txt.gz' --vocabulary=pod.model "
        "--out=rows",
        small="--length=32 --workers=1",
        instead=MIXTURE,
    ),
    Step(
        "gcloud storage cp --recursive rows gs://tupe-runs/",
        run="cp -r rows bucket/",
        leaves="bucket/rows/index.json",
    ),
    Step(
        LAUNCH + PRETRAIN,
        run=f"launch/local.sh --processes=2 -- {PRETRAIN}",
        small=SMALL,
        instead=BUCKET,
        stop_at="bucket/tupe_r/metrics.jsonl",
        says="saved",
    ),
    Step(
        LAUNCH + PRETRAIN,
        run=f"launch/local.sh --processes=2 -- {PRETRAIN}",
        small=SMALL,
        instead=BUCKET,
        leaves="bucket/tupe_r/checkpoints/100",
    ),
    Step(
        "launch/local.sh --processes=2 --devices=2 -- pretrain --config=quickstart "
        "--workdir=runs/two",
        small=f"--config.data.prepared=bucket/rows --config.data.length=32 {MODEL} {FEW_STEPS}",
        leaves="runs/two/checkpoints/4",
        says="[0] validation loss",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def files(folder):
    write_text(folder / "data/books/one.txt.gz")
    (folder / "bucket").mkdir()


@in_order(STEPS)
def test_step(step, folder):
    step.execute(folder)
