"""From a corpus to results: every step of a user who pre-trains, in one folder, a study last."""

import pytest

from tests.documents import here_document, text_of
from tests.workflows.files import write_glue, write_own_task, write_records, write_text
from tests.workflows.small import (
    FEW_STEPS,
    LONG_ENOUGH_TO_STOP,
    MEASUREMENT,
    MODEL,
    STUDY,
    STUDY_TASKS,
)
from tests.workflows.steps import Step, in_order

pytestmark = pytest.mark.slow

PRETRAIN = "tupe pretrain --config=tupe_r:tiny --config.data.prepared=rows --workdir=runs/prepared"
OURS = {"runs/quickstart": "runs/prepared"}
RECORDS = "jsonl:data/pages/*.jsonl.zst + parquet:data/books/*.parquet#body"
MIXTURE = {"wikipedia + ": "builtin:100 + "}
MY_STUDY = here_document(text_of("docs/laboratory.md"), "my_study.py")

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
        "tupe prepare --task=builtin --vocabulary=tiny.model --length=64 --cleaning=none "
        "--packing=pairs --out=pairs",
        small="--task=builtin:800 --workers=1",
        leaves="pairs/index.json",
    ),
    Step(
        "tupe pretrain --config=locality_symmetry:tiny --workdir=runs/pairs",
        small=f"--config.data.prepared=pairs {MODEL} {FEW_STEPS}",
        leaves="runs/pairs/checkpoints/4",
        says="next sentence accuracy",
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
    Step(
        "tupe vocab --task='wikipedia + text:data/books/*.txt.gz' --out=paper.model",
        small="--size=300",
        instead=MIXTURE,
        leaves="paper.model",
    ),
    Step(
        "tupe prepare --task='wikipedia + text:data/books/*.txt.gz' --vocabulary=paper.model "
        "--length=512 --packing=sentences --out=paper_rows",
        small="--length=32 --workers=1",
        instead=MIXTURE,
        leaves="paper_rows/tokenizer.model",
    ),
    Step(
        "tupe prepare --task='wikipedia + text:data/books/*.txt.gz' --vocabulary=paper.model "
        "--packing=sentences --deduplicate=exact --out=distinct_rows",
        small="--length=32 --workers=1",
        instead=MIXTURE,
        says="documents were copies",
    ),
    Step(
        "tupe pretrain --config=tupe_r --config.data.prepared=paper_rows --workdir=runs/tupe_r",
        small=f"--config.data.length=32 {MODEL} {FEW_STEPS}",
        leaves="runs/tupe_r/checkpoints/4",
    ),
    Step(
        "tupe vocab --task='text:data/books/*.txt.gz' --size=8192 --out=books.model",
        small="--size=300",
        leaves="books.model",
    ),
    Step(
        "tupe prepare --task='text:data/books/*.txt.gz' --vocabulary=books.model --length=128 "
        "--out=books",
        small="--workers=1",
        leaves="books/index.json",
    ),
    Step(
        "tupe pretrain --config=tupe_r:tiny --config.data.prepared=books "
        "--config.data.length=128 --config.position.max_length=128 "
        "--config.model.vocab_size=8192 --workdir=runs/books",
        small=f"{MODEL} {FEW_STEPS}",
        leaves="runs/books/checkpoints/4",
    ),
    Step(
        f"tupe vocab --task='{RECORDS}' --size=8192 --on-error=skip --out=mixed.model",
        small="--size=300",
        leaves="mixed.model",
    ),
    Step(
        f"tupe prepare --task='{RECORDS}' --vocabulary=mixed.model --length=128 --on-error=skip "
        "--out=mixed",
        small="--workers=1",
        says="broken records or files skipped: 1, first data/pages/one.jsonl.zst, line 401: ",
        leaves="mixed/index.json",
    ),
    Step("tupe data mixed", says="jsonl:data/pages/*.jsonl.zst"),
    Step("tupe data rows", says="1  [CLS] "),
    Step("tupe data books", says="! the validation split"),
    Step("tupe analyze runs/quickstart", MEASUREMENT, OURS, leaves="analysis/report.txt"),
    Step(
        "tupe export runs/quickstart quickstart",
        instead=OURS,
        leaves="quickstart/model.safetensors",
    ),
    Step(
        "an exported or fine-tuned model",
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
        "tupe finetune --checkpoint=runs/books --task=mine/train.tsv --dev=mine/dev.tsv "
        "--columns=text,label",
        small="--config.epochs=1 --config.length=64",
        says="dev accuracy",
    ),
    Step(
        "tupe glue --checkpoint=runs/tupe_r --data_dir=glue",
        small="--config.tasks=rte --config.learning_rates=5e-4 --config.seeds=0 "
        "--config.finetune.length=16 --config.finetune.epochs=1",
        leaves="runs/glue/table.md",
        says="| TUPE-R | 1M |",
    ),
    Step(
        "tupe export runs/tupe_r released --format=fairseq",
        leaves="released/dict.txt",
    ),
    Step(
        "tupe import-fairseq released/checkpoint.pt tupe_r --vocabulary=released/vocabulary.model",
        leaves="tupe_r/model.safetensors",
    ),
    Step(
        "measures one checkpoint",
        run="tupe analyze tupe_r",
        small=f"{MEASUREMENT} --out=tupe_r-analysis",
        leaves="tupe_r-analysis/report.txt",
    ),
    Step(
        "the built-in tasks",
        run="tupe finetune --checkpoint=tupe_r --task=builtin_sst",
        small="--train_examples=16 --dev_examples=8 --config.epochs=1 --config.length=32",
        says="dev accuracy",
    ),
    Step(
        "cat > my_study.py <<'EOF'",
        run=f"cat > my_study.py <<'EOF'\n{MY_STUDY}EOF",
        leaves="my_study.py",
    ),
    Step(
        "tupe ablate --config=my_study.py --workdir=runs/my_study "
        "--config.pretrain.data.prepared=rows",
        small=f"{STUDY} --shard=0/3 {STUDY_TASKS}",
        leaves="runs/my_study/report.html",
        says="| T5 |",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def files(folder):
    write_glue(folder / "glue", "rte")
    write_own_task(folder / "mine")
    write_text(folder / "data/books/one.txt.gz")
    write_records(folder / "data/pages/one.jsonl.zst", folder / "data/books/two.parquet")


@in_order(STEPS)
def test_step(step, folder):
    step.execute(folder)
