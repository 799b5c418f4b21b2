"""Masked LM against replaced-token detection (ELECTRA), at equal training FLOPs.

  tupe ablate --config=ablations/objectives:tiny --workdir=runs/objectives
  tupe ablate --config=ablations/objectives:paper --workdir=/shared/objectives --shard=0/2

Both have the positions of TUPE-R. RTD trains two networks, so it has fewer steps: as many as cost
the training FLOPs of MLM. The losses of the two are different quantities; the report compares
scores of fine-tuning, minimal pairs and probes. Minimal pairs of RTD are those of the
discriminator. The learning rate of each is the best of two on seed 3, which is not reported.

tiny   2 layers on the built-in corpus, batches of 16; 10 runs, 6 of them fine-tuned, in 31 CPU
       minutes. MLM has the better scores: docs/results.md.
paper  base, as in the TUPE paper and ELECTRA-Base, one rate, with GLUE. Not run.
"""

from ml_collections import ConfigDict

from tupe_jax.ablation.config import Variant
from tupe_jax.config.loading import load_config, recipe


def get_config(form: str = "tiny") -> ConfigDict:
    config = recipe(f"studies/{form}")  # configs/recipes/studies/<form>.py: every number
    if form == "tiny":
        # Discriminators need many steps: small batches and as many steps as electra_tupe_r:tiny.
        config.pretrain.train.batch_size = 16
        config.pretrain.train.steps = 2_400
        config.pretrain.checkpoint.every = 600
        config.pretrain.eval.every = 300
        config.learning_rates = (1e-3, 2e-3)
        config.tuning_seed = 3
    electra = load_config(f"electra_tupe_r:{form}").objective
    settings = {f"objective.{name}": value for name, value in electra.items()}
    config.variants = (Variant("MLM", "tupe_r"), Variant("RTD", "tupe_r", settings))
    config.equal_flops = True
    return config
