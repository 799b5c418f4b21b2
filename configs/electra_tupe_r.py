"""ELECTRA-TUPE: replaced-token detection with TUPE-R's positions in both networks.

  tupe pretrain --config=electra_tupe_r --workdir=runs/electra_tupe_r
  tupe pretrain --config=electra_tupe_r:modern --workdir=runs/electra_tupe_r-modern
  tupe pretrain --config=electra_tupe_r:tiny --workdir=runs/electra_tupe_r-tiny

paper   1 M steps of 256 x 512 tokens; about 19 h on a v5e-16 (estimated from FLOPs at 40 % of
        peak, without collectives; not measured). From the TUPE paper: GLUE average 86.07.
modern  60 k steps of 2048 x 512 tokens, half as many tokens. Not tuned and not run.
tiny    2400 steps of 16 x 64 tokens of the built-in corpus, a few minutes on two CPU cores.
        Expected: the discriminator's area under the ROC curve is 0.89 (guessing: 0.5), its accuracy
        93 % (answering "original" for all tokens: 88 %).
"""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config


def get_config(form: str = "paper") -> ConfigDict:
    # configs/electra_bert_a.py: ELECTRA's settings, on top of configs/recipes/
    config = load_config(f"electra_bert_a:{form}")
    config.position.absolute = "untied"
    config.position.relative = "t5"
    config.position.untie_cls = True
    return config
