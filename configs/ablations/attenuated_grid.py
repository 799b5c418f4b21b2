"""How locality and symmetry affect learning: attenuated encodings over a grid of decays.

  tupe ablate --config=ablations/attenuated_grid:tiny --workdir=runs/attenuated_grid
  tupe ablate --config=ablations/attenuated_grid:paper --workdir=/shared/attenuated_grid --shard=0/8

The bias exp(-w (j-i)^2), each row scaled to sum to 8, is fixed. w sets how local the initial
attention is, and different w to the left and right set how one-sided. Variant w<w>-x<a> has w * a
to the left and w / a to the right; a = 1 is symmetric. As published, rows sum to 1 and w hardly
matters: no bias is above 1, and attention is nearly uniform over 63 positions. With these settings,
the softmax of the bias alone has, at n = 63:

                             rows sum to 8     rows sum to 1     uniform
  locality                   0.07 to 0.90      0.05 to 0.07      0.05
  released symmetry          0.34 to 1         0.30 to 1         1
  mirror symmetry            0.67 to 1         0.97 to 1         1

The 24 variants differ only in locality and symmetry, so families of encodings cannot explain a
correlation with scores. All have the same learning rate, because only a fixed bias differs.

tiny   2 layers on the built-in corpus, one seed each: 24 runs, an estimated 3 CPU hours (7 CPU
       minutes per run, as in ablations/paper_table). Data, tasks and measurements are those of
       ablations/positions, whose variants can be compared with these.
paper  base, as in the TUPE paper, with GLUE; 24 pre-training runs.
"""

from ml_collections import ConfigDict

from tupe_jax.ablation.config import Variant
from tupe_jax.config.loading import recipe

DECAYS = (0.02, 0.05, 0.1, 0.2, 0.5, 2.0)
ASYMMETRIES = (1, 2, 4, 16)
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
    config.seeds = (2,) if form == "tiny" else config.seeds  # a seed that ablations/positions has
    return config
