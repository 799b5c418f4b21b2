"""The attenuated encoding of the locality and symmetry study, fixed w = 0.5.

  tupe pretrain --config=attenuated --workdir=runs/attenuated
  tupe pretrain --config=attenuated:modern --workdir=runs/attenuated-modern
  tupe pretrain --config=attenuated:tiny --workdir=runs/attenuated-tiny

paper   1 M steps of 256 x 512 tokens; about 1.1 h on a v5e-256, 7 h on 8 H100 (counted FLOPs at
        40 % of the peak, without collectives; not measured).
        Expected: neither paper reports it in this set-up.
modern  60 k steps of 2048 x 512 tokens, half the tokens: half of that time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "none"
    config.position.relative = "attenuated"
    config.position.untie_cls = False
    return config
