"""x"""

from tupe_jax.recipes import recipe


def get_config(form="paper"):
    return recipe("tupe_r", form)
