"""ELECTRA-Large with TUPE-R's positions in both networks.

  tupe pretrain --config=electra_tupe_large --workdir=runs/electra_tupe_large
  tupe pretrain --config=electra_tupe_large:modern --workdir=runs/electra_tupe_large-modern
  tupe pretrain --config=electra_tupe_large:tiny --workdir=runs/electra_tupe_large-tiny

paper   400 k steps of 2048 x 512 tokens; not in a paper.
modern  60 k steps of 2048 x 512 tokens. Not tuned and not run.
tiny    2400 steps of 16 x 64 tokens of the built-in corpus with 4 layers, 192 wide.
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config


def get_config(form: str = "paper") -> ConfigDict:
    # configs/electra_large.py: on top of configs/electra_bert_a.py, which has ELECTRA's settings
    config = load_config(f"electra_large:{form}")
    config.position.absolute = "untied"
    config.position.relative = "t5"
    config.position.untie_cls = True
    return config
