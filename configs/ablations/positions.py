"""All encodings: every one that has a config of its own, side by side.

  tupe ablate --config=ablations/positions:tiny --workdir=runs/positions
  tupe ablate --config=ablations/positions:paper --workdir=/shared/positions --shard=0/17

tiny   2 layers on the built-in corpus, three seeds each: by estimate four hours on two cores.
paper  base, as in the TUPE paper, with GLUE; 17 pre-trainings.
"""

from ml_collections import ConfigDict

from tupe_jax.ablation.config import Variant
from tupe_jax.config.loading import recipe
from tupe_jax.config.schema import POSITION_VARIANTS

VARIANTS = tuple(Variant(name, name) for name in POSITION_VARIANTS)


def get_config(form: str = "tiny") -> ConfigDict:
    config = recipe(f"studies/{form}")  # configs/recipes/studies/<form>.py: every number
    config.variants = VARIANTS
    return config
