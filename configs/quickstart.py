"""The quick start: a small TUPE-R on the built-in corpus, in a few minutes on two cores.

tupe pretrain
"""

from tupe_jax.recipes import recipe


def get_config():
    return recipe("tupe_r", "tiny")
