"""Fine-tuning on one task.

  tupe finetune --config=finetune --checkpoint=runs/tupe_r --task=cola --data_dir=glue
  tupe finetune --config=finetune:quick --checkpoint=runs/quickstart --task=builtin_nli

paper   the TUPE paper's recipe: batches of 32, 10 epochs (5 for MNLI, QNLI, QQP, SNLI), dropout
        0.1, 6 % warm-up, linear decay; one learning rate of its four, all by --learning_rates.
        Expected, from the paper (TUPE-R base, median of 5 seeds): CoLA 63.6, RTE 73.6, MNLI 86.2.
quick   small models on a CPU, in minutes; dropout as in pre-training.
"""

import dataclasses

from ml_collections import ConfigDict

from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.config.validation import one_of
from tupe_jax.finetune.config import FinetuneConfig

FORMS = {
    "paper": FinetuneConfig(),
    "quick": FinetuneConfig(
        length=128,
        epochs=5,
        dropout=-1.0,
        optimizer=OptimizerConfig(peak_learning_rate=1e-3, warmup="6%"),
    ),
}


def get_config(form: str = "paper") -> ConfigDict:
    return ConfigDict(dataclasses.asdict(FORMS[one_of(form, FORMS, "form")]))
