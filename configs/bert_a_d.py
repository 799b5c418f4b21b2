"""BERT-A^d (ablation): all four word and position terms, each with its own projections.

  tupe pretrain --config=bert_a_d --workdir=runs/bert_a_d
  tupe pretrain --config=bert_a_d:modern --workdir=runs/bert_a_d-modern
  tupe pretrain --config=bert_a_d:tiny --workdir=runs/bert_a_d-tiny

paper   1 M steps of 256 x 512 tokens; about 17 h on a v5e-16, 7 h on 8 H100 (estimated from
        FLOPs at 40 % of peak, without collectives; not measured).
        Expected, from the paper (base, 1 M steps): GLUE average 83.64.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "mixed"
    config.position.relative = "none"
    config.position.untie_cls = False
    return config
