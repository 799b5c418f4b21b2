"""All shipped encodings, and two with a faster bias, side by side.

  tupe ablate --config=ablations/positions:tiny --workdir=runs/positions
  tupe ablate --config=ablations/positions:paper --workdir=/shared/positions --shard=0/19

The variants with +gain=32 multiply T5's bias by 32 (ablations/gain). Adam moves each number of that
bias by about the learning rate per update, which limits how fast it can grow.

tiny   2 layers on the built-in corpus, with tasks, probes and minimal pairs. The learning rate of
       each variant is the best of three on seed 0, which is not reported; then three other seeds.
       114 runs, an estimated 10 CPU hours (7 CPU minutes per run, as in ablations/paper_table, and
       half of it for a tuning run). A killed study resumes and repeats no finished run.
paper  base, as in the TUPE paper, with GLUE; 19 pre-training runs.
"""

from ml_collections import ConfigDict

from tupe_jax.ablation.config import Variant
from tupe_jax.config.loading import recipe
from tupe_jax.config.schema import POSITION_VARIANTS

GAIN = {"position.options.t5_gain": 32.0}
VARIANTS = (
    *(Variant(name, name) for name in POSITION_VARIANTS),
    Variant("tupe_r+gain=32", "tupe_r", GAIN),
    Variant("t5-untie-cls+gain=32", "t5", GAIN | {"position.untie_cls": True}),
)


def get_config(form: str = "tiny") -> ConfigDict:
    config = recipe(f"studies/{form}")  # configs/recipes/studies/<form>.py: every number
    config.variants = VARIANTS
    if form == "tiny":
        config.learning_rates = (1e-3, 2e-3, 4e-3)
        config.tuning_seed = 0
        config.seeds = (2, 3, 4)
    return config
