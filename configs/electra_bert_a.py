"""ELECTRA with BERT-A's positions: replaced-token detection, a generator of a third of the width.

  tupe pretrain --config=electra_bert_a --workdir=runs/electra_bert_a
  tupe pretrain --config=electra_bert_a:modern --workdir=runs/electra_bert_a-modern
  tupe pretrain --config=electra_bert_a:tiny --workdir=runs/electra_bert_a-tiny

paper   ELECTRA-Base by its paper (https://arxiv.org/abs/2003.10555), for 1 M steps as in TUPE's.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time. Not tuned or run.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "added"
    config.position.relative = "none"
    config.position.untie_cls = False
    config.objective.name = "replaced_token"
    config.objective.mask_rate = 0.15
    config.objective.mask_rule = "ordinary"  # special tokens are never replaced
    config.objective.replace_by_mask = 1.0  # ELECTRA's official code leaves 15 % unchanged
    config.objective.replace_by_random = 0.0
    if form == "paper":
        config.objective.generator_size = 1 / 3  # of base; small and large have 1/4
        config.optimizer.peak_learning_rate = 2e-4
    return config
