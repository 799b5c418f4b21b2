"""configs/modern_bert_a.py at the size of ModernBERT-large.

  tupe pretrain --config=modern_bert_a_large --workdir=runs/modern_bert_a_large
  tupe pretrain --config=modern_bert_a_large:modern --workdir=runs/modern_bert_a_large-modern
  tupe pretrain --config=modern_bert_a_large:tiny --workdir=runs/modern_bert_a_large-tiny

paper   1 M steps of 256 x 512 tokens, with 28 layers, 1024 wide. Not run at full size.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, with 4 layers, 192 wide.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config


def get_config(form: str = "paper") -> ConfigDict:
    config = load_config(f"modern_bert_a:{form}")
    if form == "tiny":  # a rehearsal: deeper and wider than the other tiny models
        config.model.num_layers = 4
        config.model.hidden_size = 192
        config.model.num_heads = 6  # of 32 features
        config.model.mlp_size = 512
    else:
        config.model.num_layers = 28
        config.model.hidden_size = 1_024
        config.model.num_heads = 16  # of 64 features, as in base
        config.model.mlp_size = 2_624
    return config
