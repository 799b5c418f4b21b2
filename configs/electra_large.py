"""ELECTRA-Large: 24 layers, 1024 wide, with BERT-A's positions.

  tupe pretrain --config=electra_large --workdir=runs/electra_large
  tupe pretrain --config=electra_large:modern --workdir=runs/electra_large-modern
  tupe pretrain --config=electra_large:tiny --workdir=runs/electra_large-tiny

paper   400 k steps of 2048 x 512 tokens, ELECTRA-400K of Clark et al., 2020.
modern  60 k steps of 2048 x 512 tokens. Not tuned and not run.
tiny    2400 steps of 16 x 64 tokens of the built-in corpus with 4 layers, 192 wide.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config


def get_config(form: str = "paper") -> ConfigDict:
    # configs/electra_bert_a.py: ELECTRA's settings, on top of configs/recipes/
    config = load_config(f"electra_bert_a:{form}")
    if form == "tiny":  # a rehearsal: deeper and wider than the other tiny models
        config.model.num_layers = 4
        config.model.hidden_size = 192
        config.model.num_heads = 6  # of 32 features, as in recipes/tiny.py
        config.model.mlp_size = 768
        return config
    config.model.num_layers = 24
    config.model.hidden_size = 1024
    config.model.num_heads = 16  # of 64 features, as in base
    config.model.mlp_size = 4096
    config.objective.generator_size = 0.25  # 256 wide, 4 heads
    config.objective.mask_rate = 0.25  # with 15 % the generator was too accurate
    if form == "paper":
        config.train.steps = 400_000
        config.train.batch_size = 2_048
    return config
