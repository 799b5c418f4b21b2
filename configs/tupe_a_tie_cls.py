"""TUPE-A tie-cls (ablation): untied absolute positions, [CLS] treated like any token.

  tupe pretrain --config=tupe_a_tie_cls --workdir=runs/tupe_a_tie_cls
  tupe pretrain --config=tupe_a_tie_cls:modern --workdir=runs/tupe_a_tie_cls-modern
  tupe pretrain --config=tupe_a_tie_cls:tiny --workdir=runs/tupe_a_tie_cls-tiny

paper   1 M steps of 256 x 512 tokens; about 17 h on a v5e-16, 7 h on 8 H100 (estimated from
        FLOPs at 40 % of peak, without collectives; not measured).
        Expected, from the paper (base, 1 M steps): GLUE average 83.81.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "untied"
    config.position.relative = "none"
    config.position.untie_cls = False
    return config
