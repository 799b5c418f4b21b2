"""BERT-R: absolute positions at the input and a T5 bias in every layer, the second baseline.

  tupe pretrain --config=bert_r --workdir=runs/bert_r
  tupe pretrain --config=bert_r:modern --workdir=runs/bert_r-modern
  tupe pretrain --config=bert_r:tiny --workdir=runs/bert_r-tiny

paper   1 M steps of 256 x 512 tokens; about 17 h on a v5e-16, 7 h on 8 H100 (estimated from
        FLOPs at 40 % of peak, without collectives; not measured).
        From the paper (base, 1 M steps): GLUE average 83.66, validation 2.055 bits per target.
        The loss depends on text and tokenizer; docs/pretraining.md lists what differs here.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "added"
    config.position.relative = "t5"
    config.position.untie_cls = False
    return config
