"""Does an encoding help as much in a modern block, and with attention windows, as in BERT's?

  tupe ablate --config=ablations/blocks:tiny --workdir=runs/blocks
  tupe ablate --config=ablations/blocks:paper --workdir=/shared/blocks --shard=0/16

Four encodings in two blocks, with and without attention windows. BERT's block has the norm after
each sub-layer; +modern is the block of configs/modern_rope.py: the norm before each sub-layer,
GeGLU, no biases. +window limits two of three layers to nearby tokens, in either block. The MLPs of
both blocks have about as many weights. RoPE has one base in all layers. The learning rate of each
variant is the best of three on seed 3, which is not reported: norms before the sub-layers allow
higher rates. A variant with windows has the rate of the same variant without.

tiny   3 layers of 128 on the built-in corpus, windows of 16 of 64 tokens; 72 runs in 3.2 CPU
       hours, pre-training only. The encodings with positions of their own are close to each other
       in both blocks, and BERT-A is far behind: docs/results.md.
paper  base, as in the TUPE paper, one rate, windows of 128 of 512 tokens, with GLUE. Not run.
"""

from ml_collections import ConfigDict

from tupe_jax.ablation.config import Variant
from tupe_jax.config.loading import load_config, recipe

ENCODINGS = {"BERT-A": "bert_a", "RoPE": "rope", "TUPE-A": "tupe_a", "TUPE-R": "tupe_r"}
BLOCK = ("pre_layer_norm", "first_attention_norm", "norm_bias", "linear_bias", "gated_mlp")
"""The settings in which the modern block differs, besides the size of its MLP."""


def get_config(form: str = "tiny") -> ConfigDict:
    config = recipe(f"studies/{form}")  # configs/recipes/studies/<form>.py: every number
    if form == "tiny":
        config.pretrain.model.num_layers = 3  # a global and two local ones
        config.learning_rates = (1e-3, 2e-3, 4e-3)
        config.tuning_seed = 3
        config.downstream.tasks = ()  # loss curves and minimal pairs are the subject
        config.measure.probe_task = ""
    of_rope = load_config(f"modern_rope:{'paper' if form == 'paper' else 'tiny'}").model
    modern = {f"model.{name}": of_rope[name] for name in BLOCK}
    # Three matrices with about the weights of two, in multiples of 8.
    modern["model.mlp_size"] = round(config.pretrain.model.mlp_size * 2 / 3 / 8) * 8
    window = {"model.attention_window": of_rope.attention_window}
    config.variants = tuple(
        Variant(
            f"{name}{block_name}{window_name}",
            encoding,
            {**block, **windows},
            tuned_as=f"{name}{block_name}" if windows else "",
        )
        for block_name, block in (("", {}), ("+modern", modern))
        for window_name, windows in (("", {}), ("+window", window))
        for name, encoding in ENCODINGS.items()
    )
    return config
