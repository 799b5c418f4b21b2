"""TUPE-Large: TUPE-R with 24 layers, 1024 wide.

  tupe pretrain --config=tupe_large --workdir=runs/tupe_large
  tupe pretrain --config=tupe_large:modern --workdir=runs/tupe_large-modern
  tupe pretrain --config=tupe_large:tiny --workdir=runs/tupe_large-tiny

paper   1 M steps of 256 x 512 tokens; about 3.6 h on a v5e-256, 23 h on 8 H100 (counted FLOPs at
        40 % of the peak, without collectives; not measured).
        Expected, from the paper (large, 1 M steps): GLUE average 87.39.
modern  60 k steps of 2048 x 512 tokens, half the tokens: half of that time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.recipes import recipe


def get_config(form: str = "paper") -> ConfigDict:
    return recipe("tupe_r", form, size="large")
