"""ELECTRA with BERT-A's positions: replaced-token detection instead of masked language modelling.

  tupe pretrain --config=electra_bert_a --workdir=runs/electra_bert_a
  tupe pretrain --config=electra_bert_a:modern --workdir=runs/electra_bert_a-modern
  tupe pretrain --config=electra_bert_a:tiny --workdir=runs/electra_bert_a-tiny

paper   ELECTRA-Base (Clark et al., 2020, https://arxiv.org/abs/2003.10555) as in the TUPE paper:
        1 M steps of 256 x 512 tokens. From the TUPE paper: GLUE average 85.38.
modern  60 k steps of 2048 x 512 tokens, half as many tokens. Not tuned and not run.
tiny    2400 steps of 16 x 64 tokens of the built-in corpus, a few minutes on two CPU cores.
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
    config.objective.replace_by_mask = 1.0  # as in the paper; its code leaves 15 % unchanged
    config.objective.replace_by_random = 0.0
    if form == "paper":
        config.objective.generator_size = 1 / 3  # 256 wide, 4 heads
        config.optimizer.peak_learning_rate = 2e-4
    if form == "tiny":
        config.objective.generator_size = 0.5  # 64 wide; 32 learns too little in so few steps
        config.objective.discriminator_weight = 5.0  # 50 drowns the generator in small batches
        # The discriminator needs many steps before it learns anything from context.
        config.train.steps = 2_400  # 2.5 M tokens
        config.train.batch_size = 16
        config.optimizer.peak_learning_rate = 1e-3  # of small batches
        config.checkpoint.every = 800
        config.eval.every = 400
    return config
