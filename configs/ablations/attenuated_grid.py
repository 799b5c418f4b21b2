"""Locality and symmetry against what is learned: attenuated encodings over a grid of decays.

  tupe ablate --config=ablations/attenuated_grid:tiny --workdir=runs/attenuated_grid
  tupe ablate --config=ablations/attenuated_grid:paper --workdir=/shared/attenuated_grid --shard=0/8

The bias 8 exp(-w (j-i)^2), each row scaled to sum to 8, is fixed: w sets how local attention
begins, and a different w to the right than to the left how one-sided. A variant w<w>-x<a> has w * a
to the left and w / a to the right: a = 1 is symmetric. As published, rows sum to 1 and w hardly
matters: no bias is above 1, and of 63 positions all attend nearly alike. With these settings
softmax of the bias alone has, at n = 63,

                             rows sum to 8     rows sum to 1     even attention
  locality                   0.07 to 0.90      0.05 to 0.07      0.05
  released symmetry          0.34 to 1         0.30 to 1         1
  mirror symmetry            0.67 to 1         0.97 to 1         1

tiny   2 layers on the built-in corpus, one seed each.
paper  base, as in the TUPE paper, with GLUE; 12 pre-trainings.
"""

from ml_collections import ConfigDict

from tupe_jax.ablation.config import Variant
from tupe_jax.config.loading import recipe

DECAYS = (0.02, 0.1, 0.5, 2.0)
ASYMMETRIES = (1, 4, 16)
GAIN = 8.0

VARIANTS = tuple(
    Variant(
        f"w{decay:g}-x{factor}",
        "attenuated",
        {
            "position.decay_left": decay * factor,
            "position.decay_right": decay / factor,
            "position.attenuation_gain": GAIN,
        },
    )
    for decay in DECAYS
    for factor in ASYMMETRIES
)


def get_config(form: str = "tiny") -> ConfigDict:
    config = recipe(f"studies/{form}")  # configs/recipes/studies/<form>.py: every number
    config.variants = VARIANTS
    config.seeds = config.seeds[:1]
    return config
