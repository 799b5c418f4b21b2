"""The set-up of the paper on locality and symmetry: BERT's objective with attenuated positions.

  tupe pretrain --config=locality_symmetry --workdir=runs/locality_symmetry
  tupe pretrain --config=locality_symmetry:modern --workdir=runs/locality_symmetry-modern
  tupe pretrain --config=locality_symmetry:tiny --workdir=runs/locality_symmetry-tiny

Masked LM and next-sentence prediction on pairs of passages, with segment embeddings
(https://arxiv.org/abs/2310.12864). The encoding is the fixed attenuated one with w = 0.5. For its
other encodings set --config.position.relative to attenuated_layer_head or attenuated_layer
(learnable), or --config.position.absolute=added and relative=none (BERT). In `:paper`, prepare the
data with --packing=pairs.

paper   steps of 96 x 512 tokens, 30,522 tokens, learning rate 1e-4, 10 % warm-up. The number of
        steps, 1 M as in BERT, is our choice. Not run.
modern  60 k steps of 2048 x 512 tokens. Not tuned and not run.
tiny    the built-in corpus, minutes on two CPU cores. Too short to learn next sentences: the
        accuracy is 54.6 % on 185 held-out pairs, of which 55.7 % are random. docs/pretraining.md
        has a run of 25 minutes that reaches 92.7 %.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import recipe


def get_config(form: str = "paper") -> ConfigDict:
    config = recipe(form)  # configs/recipes/paper.py, modern.py or tiny.py: every number
    config.position.absolute = "none"
    config.position.relative = "attenuated"
    config.position.untie_cls = False

    config.objective.name = "masked_lm_nsp"
    config.objective.mask_rule = "ordinary"  # as in BERT: [CLS] and [SEP] are never masked
    config.data.packing = "pairs"
    config.model.segments = 2
    if form == "paper":
        config.model.vocab_size = 30_522  # of BERT
        config.train.batch_size = 96
        config.optimizer.warmup = "10%"
    return config
