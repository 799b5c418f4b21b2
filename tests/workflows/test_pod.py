"""The way to a pod, with two processes of this machine in place of the pod's."""

import pytest

from tests.workflows.files import write_text
from tests.workflows.small import FEW_STEPS, LONG_ENOUGH_TO_STOP, MODEL
from tests.workflows.steps import Step, in_order

pytestmark = pytest.mark.slow

MIXTURE = {"wikipedia + ": "builtin:100 + "}
BUCKET = {"gs://tupe-runs": "bucket"}  # tests/training/test_object_storage.py runs on gs://
LAUNCH = (
    "launch/tpu_vm.sh resume --name=tupe-r --zone=us-west4-a --accelerator=v5litepod-256 --spot "
    "--wheel=dist/tupe_jax-0.1.0-py3-none-any.whl -- "
)
PRETRAIN = (
    "pretrain --config=tupe_r:modern --workdir=gs://tupe-runs/tupe_r "
    "--config.data.prepared=gs://tupe-runs/data"
)
SMALL = f"""
  --config.data.length=32 {MODEL} {LONG_ENOUGH_TO_STOP} --config.train.steps=100
  --config.checkpoint.every=10
"""
DATA = "--config.data.prepared=bucket/data --config.data.length=32"

STEPS = [
    Step(
        "tupe vocab --task='wikipedia + text:data/books/*.txt.gz' --out=gs://tupe-runs/pod.model",
        small="--size=300",
        instead=MIXTURE | BUCKET,
    ),
    Step(
        "tupe prepare --task='wikipedia + text:data/books/*.txt.gz' "
        "--vocabulary=gs://tupe-runs/pod.model --out=gs://tupe-runs/data",
        small="--length=32 --workers=1",
        instead=MIXTURE | BUCKET,
        leaves="bucket/data/index.json",
    ),
    Step(
        "tupe rehearse --config=tupe_r:modern --target=v5e:16x16 --workdir=gs://tupe-runs/tupe_r "
        "--config.data.prepared=gs://tupe-runs/data",
        # A step of a small model takes less time than any reader: assume a slow chip.
        small=f"--peak-share=0.000001 --config.data.length=32 {MODEL} {FEW_STEPS}",
        instead=BUCKET | {"v5e:16x16": "v5e:2x2"},
        says="go (0 no-go",
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
        small=f"{DATA} {MODEL} {FEW_STEPS}",
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
