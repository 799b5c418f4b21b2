"""The GLUE protocol of the TUPE paper.

  tupe glue --config=glue --checkpoint=runs/tupe_r --data_dir=glue --workdir=runs/glue
  tupe glue --config=glue:quick --checkpoint=runs/quickstart --data_dir=glue --workdir=runs/quick

paper   8 tasks x 4 learning rates x 5 seeds; for base about 2.4e18 FLOPs, which is two hours on a
        host of 8 v5e chips at a quarter of their peak (counted, not measured).
        Expected, from the paper (TUPE-R base, 1 M steps): average 85.04.
quick   small models on a CPU: the five tasks with fewer than 100,000 examples, a coarser grid,
        not tuned, dropout as in pre-training. docs/finetuning.md has what a model of 20 minutes
        reached with one of them.
"""

import dataclasses

from ml_collections import ConfigDict

from tupe_jax.config.validation import one_of
from tupe_jax.finetune.config import GlueConfig, small_models

FORMS = {
    "paper": GlueConfig(),
    "quick": GlueConfig(
        tasks=("sst2", "cola", "mrpc", "rte", "stsb"),
        learning_rates=(1e-4, 5e-4),
        seeds=(0, 1, 2),
        finetune=small_models(length=128, epochs=3, keep_weights=False),
    ),
}


def get_config(form: str = "paper") -> ConfigDict:
    return ConfigDict(dataclasses.asdict(FORMS[one_of(form, FORMS, "form")]))
