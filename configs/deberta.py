"""DeBERTa's disentangled attention.

  tupe pretrain --config=deberta --workdir=runs/deberta
  tupe pretrain --config=deberta:modern --workdir=runs/deberta-modern
  tupe pretrain --config=deberta:tiny --workdir=runs/deberta-tiny

paper   1 M steps of 256 x 512 tokens; about 21 h on a v5e-16, 8 h on 8 H100 (estimated from
        FLOPs at 40 % of peak, without collectives; not measured).
        Neither paper reports a result for it in this setup.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "none"
    config.position.relative = "deberta"
    config.position.untie_cls = False
    return config
