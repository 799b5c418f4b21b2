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

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config
from tupe_jax.config.validation import one_of


def get_config(form: str = "paper") -> ConfigDict:
    config = ConfigDict()
    config.tasks = ("mnli", "qnli", "qqp", "sst2", "cola", "mrpc", "rte", "stsb")
    config.learning_rates = (2e-5, 3e-5, 4e-5, 5e-5)
    config.seeds = (0, 1, 2, 3, 4)

    config.finetune = load_config("finetune")  # configs/finetune.py: every number of a trial
    config.finetune.keep_weights = False  # of 160 trials of the base model: 70 GB

    if one_of(form, ("paper", "quick"), "form") == "quick":
        config.tasks = ("sst2", "cola", "mrpc", "rte", "stsb")
        config.learning_rates = (1e-4, 5e-4)
        config.seeds = (0, 1, 2)
        config.finetune.length = 128
        config.finetune.epochs = 3
        config.finetune.dropout = -1.0  # as in pre-training
        config.finetune.optimizer.warmup_from_zero = False
    return config
