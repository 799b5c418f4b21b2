"""TUPE-Large: TUPE-R with 24 layers, 1024 wide.

  tupe pretrain --config=tupe_large --workdir=runs/tupe_large
  tupe pretrain --config=tupe_large:modern --workdir=runs/tupe_large-modern
  tupe pretrain --config=tupe_large:tiny --workdir=runs/tupe_large-tiny

paper   1 M steps of 256 x 512 tokens; about 58 h on a v5e-16, 23 h on 8 H100 (estimated from
        FLOPs at 40 % of peak, without collectives; not measured).
        Expected, from the paper (large, 1 M steps): GLUE average 87.39.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, with 4 layers, 192 wide: 4.1 times the FLOPs of
        tupe_r:tiny (counted).
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "untied"
    config.position.relative = "t5"
    config.position.untie_cls = True
    if form == "tiny":  # a rehearsal: deeper and wider than the other tiny models
        config.model.num_layers = 4
        config.model.hidden_size = 192
        config.model.num_heads = 6  # of 32 features, as in recipes/tiny.py
        config.model.mlp_size = 768
    else:
        config.model.num_layers = 24
        config.model.hidden_size = 1024
        config.model.num_heads = 16  # of 64 features, as in base
        config.model.mlp_size = 4096
    return config
