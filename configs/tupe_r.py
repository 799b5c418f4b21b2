"""TUPE-R: untied absolute positions and a T5 bias, [CLS] untied; the paper's best model.

  tupe pretrain --config=tupe_r --workdir=runs/tupe_r
  tupe pretrain --config=tupe_r:modern --workdir=runs/tupe_r-modern
  tupe pretrain --config=tupe_r:tiny --workdir=runs/tupe_r-tiny

paper   1 M steps of 256 x 512 tokens; about 17 h on a v5e-16, 7 h on 8 H100 (estimated from
        FLOPs at 40 % of peak, without collectives; not measured).
        From the paper (base, 1 M steps): GLUE average 85.04, validation 2.044 bits per target.
        The loss depends on text and tokenizer; docs/pretraining.md lists what differs here.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
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
