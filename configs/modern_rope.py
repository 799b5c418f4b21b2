"""ModernBERT's block with its own encoding: RoPE, and attention windows in two of three layers.

  tupe pretrain --config=modern_rope --workdir=runs/modern_rope
  tupe pretrain --config=modern_rope:modern --workdir=runs/modern_rope-modern
  tupe pretrain --config=modern_rope:tiny --workdir=runs/modern_rope-tiny

The block of https://arxiv.org/abs/2412.13663: the norm comes before each sub-layer and after the
embeddings, MLPs are GeGLU, projections and norms have no biases. configs/modern_tupe_r.py and
configs/modern_bert_a.py put other encodings into the same block, configs/modern_rope_large.py has
the size of ModernBERT-large.

paper   The block at ModernBERT-base's size, with the data and the budget of the TUPE paper: 1 M
        steps of 256 x 512 tokens. Not run at full size.
modern  60 k steps of 2048 x 512 tokens, half as many tokens: half the time.
tiny    900 steps on the built-in corpus, a few minutes on two CPU cores.

`tupe export runs/modern_rope-tiny out --format=hf` writes it for `transformers`.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "none"
    config.position.relative = "rope"
    config.position.untie_cls = False
    config.position.options.rope_base = 160_000.0  # in layers that attend to all tokens
    config.position.options.rope_local_base = 10_000.0  # in layers with a window

    config.model.pre_layer_norm = True
    config.model.first_attention_norm = False  # the embeddings are normalized already
    config.model.norm_bias = False
    config.model.linear_bias = False
    config.model.gated_mlp = True
    config.model.attention_global_every = 3
    if form == "tiny":
        config.model.attention_window = 16  # of 64 tokens
        config.model.mlp_size = 344  # three matrices with about the weights of two of 512
    else:
        config.model.attention_window = 128
        config.model.num_layers = 22
        config.model.mlp_size = 1_152
    return config
