"""BERT-A: learned absolute positions added to the token embedding, the papers' first baseline.

  tupe pretrain --config=bert_a --workdir=runs/bert_a
  tupe pretrain --config=bert_a:modern --workdir=runs/bert_a-modern
  tupe pretrain --config=bert_a:tiny --workdir=runs/bert_a-tiny

paper   1 M steps of 256 x 512 tokens; about 17 h on a v5e-16, 7 h on 8 H100 (estimated from
        FLOPs at 40 % of peak, without collectives; not measured).
        From the paper (base, 1 M steps): GLUE average 82.96, validation 2.093 bits per target.
        The loss depends on text and tokenizer; docs/pretraining.md lists what differs here.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "added"
    config.position.relative = "none"
    config.position.untie_cls = False
    return config
