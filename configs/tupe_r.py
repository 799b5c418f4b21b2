"""TUPE-R: untied absolute positions and a T5 bias, [CLS] untied. The paper's best.

  tupe pretrain --config=tupe_r --workdir=runs/tupe_r
  tupe pretrain --config=tupe_r:modern --workdir=runs/tupe_r-modern
  tupe pretrain --config=tupe_r:tiny --workdir=runs/tupe_r-tiny

paper   1 M steps of 256 x 512 tokens; about 1.1 h on a v5e-256, 7 h on 8 H100 (counted FLOPs at
        40 % of the peak, without collectives; not measured).
        From the paper (base, 1 M steps): GLUE average 85.04, validation 2.044 bits per target.
        That loss is of its own text and tokens; docs/pretraining.md lists what differs here.
modern  60 k steps of 2048 x 512 tokens, half the tokens: half of that time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "untied"
    config.position.relative = "t5"
    config.position.untie_cls = True
    return config
