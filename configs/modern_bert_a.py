"""BERT-A's learned positions in ModernBERT's block: the baseline of configs/modern_tupe_r.py.

  tupe pretrain --config=modern_bert_a --workdir=runs/modern_bert_a
  tupe pretrain --config=modern_bert_a:modern --workdir=runs/modern_bert_a-modern
  tupe pretrain --config=modern_bert_a:tiny --workdir=runs/modern_bert_a-tiny

paper   The data and the budget of the TUPE paper: 1 M steps of 256 x 512 tokens. Not run at full
        size.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config


def get_config(form: str = "paper") -> ConfigDict:
    config = load_config(f"modern_rope:{form}")
    config.position.absolute = "added"
    config.position.relative = "none"
    config.position.untie_cls = False
    config.position.options = ConfigDict()
    return config
