"""All encodings: every one that has a config of its own, side by side.

  tupe ablate --config=ablations/positions:tiny --workdir=runs/positions
  tupe ablate --config=ablations/positions:paper --workdir=/shared/positions --shard=0/17

tiny   2 layers on the built-in corpus, three seeds each: by estimate four hours on two cores.
paper  base, as in the TUPE paper, with GLUE; 17 pre-trainings.
"""

from ml_collections import ConfigDict

from tupe_jax.ablation.config import Variant, study
from tupe_jax.ablation.presets import paper_study, tiny_study
from tupe_jax.config.schema import POSITION_VARIANTS
from tupe_jax.config.validation import one_of

VARIANTS = tuple(Variant(name, name) for name in POSITION_VARIANTS)

FORMS = {"tiny": tiny_study, "paper": paper_study}


def get_config(form: str = "tiny") -> ConfigDict:
    return study(FORMS[one_of(form, FORMS, "form")](VARIANTS))
