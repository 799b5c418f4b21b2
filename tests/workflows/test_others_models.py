"""Public encoders and an official checkpoint: imported, compared, fine-tuned, and back."""

import numpy as np
import pytest
import torch
import transformers

from tests.model.helpers import logits, random_tokens
from tests.workflows.files import (
    write_glue,
    write_official_checkpoint,
    write_public_encoder,
    write_rows,
)
from tests.workflows.small import FEW_STEPS, MEASUREMENT, MODEL, PREPARED
from tests.workflows.steps import Step, in_order
from tupe_jax.inference.loading import load

pytestmark = pytest.mark.slow

SMALL_RUN = f"{PREPARED} {MODEL} {FEW_STEPS}"

STEPS = [
    Step(
        "tupe pretrain --config=bert_a:tiny --workdir=runs/bert_a",
        small=SMALL_RUN,
        leaves="runs/bert_a/checkpoints/4",
    ),
    Step(
        "tupe pretrain --config=tupe_r:tiny --workdir=runs/wide --config.model.hidden_size=256 "
        "--config.train.steps=1000",
        small=SMALL_RUN,
        leaves="runs/wide/checkpoints/4",
    ),
    Step("tupe analyze bert-base-uncased --length=64", small=MEASUREMENT, says="identical words"),
    Step(
        "tupe analyze runs/tupe_r bert-base-uncased albert-base-v2",
        small=MEASUREMENT,
        instead={"runs/tupe_r": "runs/wide"},
        leaves="analysis/comparison.json",
        says="albert-base-v2",
    ),
    Step(
        "tupe finetune --checkpoint=bert-base-uncased --task=rte --data_dir=glue",
        small="--config.length=16 --config.epochs=1",
        says="dev accuracy",
    ),
    Step(
        "tupe export bert-base-uncased sentences --format=sentence-transformers",
        leaves="sentences/modules.json",
    ),
    Step("tupe import-hf bert-base-uncased bert", leaves="bert/model.safetensors"),
    Step(
        "`load` accepts a work directory, a checkpoint, an exported or fine-tuned model",
        run="""python -c 'import tupe_jax; print(tupe_jax.load("bert").encode("a boat").shape)'""",
        says="(",
    ),
    Step("tupe export runs/bert_a out --format=hf", leaves="out/model.safetensors"),
    Step(
        "`load` also reads it",
        run="""python -c 'import tupe_jax; print(tupe_jax.load("out").encode("a text").shape)'""",
        says="(32,)",
    ),
    Step(
        "tupe pretrain --config=electra_tupe_r:tiny --workdir=runs/electra",
        small=SMALL_RUN,
        leaves="runs/electra/checkpoints/4",
        says="discriminator auc",
    ),
    Step('tupe fill-mask runs/electra "The old doctors [MASK] tired."', says="%"),
    Step(
        "`electra_bert_a` (ELECTRA)",
        run="tupe pretrain --config=electra_bert_a:tiny --workdir=runs/electra_bert_a",
        small=SMALL_RUN,
        leaves="runs/electra_bert_a/checkpoints/4",
    ),
    Step(
        "tupe export runs/electra_bert_a electra --format=hf",
        leaves="electra/generator/model.safetensors",
    ),
    Step(
        "tupe pretrain --config=modern_rope:tiny --workdir=runs/modern_rope",
        small=f"{SMALL_RUN} --config.model.num_layers=3 --config.model.attention_window=4",
        leaves="runs/modern_rope/checkpoints/4",
    ),
    Step("tupe export runs/modern_rope modern --format=hf", leaves="modern/model.safetensors"),
    Step(
        "tupe import-hf electra electra_back --generator=electra/generator",
        leaves="electra_back/model.safetensors",
    ),
    Step(
        "tupe import-fairseq checkpoint.pt out/",
        instead={"out/": "tupe/"},
        leaves="tupe/model.safetensors",
        says="TUPE-R",
    ),
    Step(
        "You can analyze (`tupe analyze`, `position_bias`) and export an imported model",
        run="tupe analyze tupe",
        small=f"{MEASUREMENT} --out=tupe-analysis",
        leaves="tupe-analysis/report.txt",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def files(folder):
    write_rows(folder / "rows")
    for name, kind in (("bert-base-uncased", "bert"), ("albert-base-v2", "albert")):
        write_public_encoder(folder / name, kind)
    write_official_checkpoint(folder / "checkpoint.pt")
    write_glue(folder / "glue", "rte")


@in_order(STEPS)
def test_step(step, folder):
    step.execute(folder)


def test_a_modern_block_trained_here_gives_the_same_logits_in_transformers(folder):
    """After the steps: a global and two local layers, and sequences longer than the window."""
    ours = load(folder / "runs/modern_rope")
    assert ours.config.windows == (0, 4, 4)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder / "modern").eval()
    tokens = random_tokens(length=16, vocab=ours.config.vocab_size)
    is_token = tokens != ours.config.pad_id
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens), torch.tensor(is_token)).logits.numpy()[is_token]
    found = np.asarray(logits(ours.module, tokens))[is_token]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())
