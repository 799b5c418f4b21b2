"""ELECTRA with BERT-R's positions: absolute ones at the input and a T5 bias, in both networks.

  tupe pretrain --config=electra_bert_r --workdir=runs/electra_bert_r
  tupe pretrain --config=electra_bert_r:modern --workdir=runs/electra_bert_r-modern
  tupe pretrain --config=electra_bert_r:tiny --workdir=runs/electra_bert_r-tiny

paper   1 M steps of 256 x 512 tokens; not in a paper.
modern  60 k steps of 2048 x 512 tokens, half as many tokens. Not tuned and not run.
tiny    2400 steps of 16 x 64 tokens of the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config


def get_config(form: str = "paper") -> ConfigDict:
    # configs/electra_bert_a.py: ELECTRA's settings, on top of configs/recipes/
    config = load_config(f"electra_bert_a:{form}")
    config.position.relative = "t5"
    return config
