"""TUPE-R in ModernBERT's block: does untying also help there, with attention windows?

  tupe pretrain --config=modern_tupe_r --workdir=runs/modern_tupe_r
  tupe pretrain --config=modern_tupe_r:modern --workdir=runs/modern_tupe_r-modern
  tupe pretrain --config=modern_tupe_r:tiny --workdir=runs/modern_tupe_r-tiny

paper   The data and the budget of the TUPE paper: 1 M steps of 256 x 512 tokens. Not run at full
        size.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config


def get_config(form: str = "paper") -> ConfigDict:
    config = load_config(f"modern_rope:{form}")
    config.position.absolute = "untied"
    config.position.relative = "t5"
    config.position.untie_cls = True
    config.position.options = ConfigDict()
    return config
