"""The TUPE paper's table: BERT-A, BERT-R, BERT-A^d, TUPE-A with [CLS] tied, TUPE-A, TUPE-R.

  tupe ablate --config=ablations/paper_table:tiny --workdir=runs/paper_table
  tupe ablate --config=ablations/paper_table:real_text --workdir=runs/real_text
  tupe ablate --config=ablations/paper_table:paper --workdir=/shared/paper_table --shard=0/6

tiny       2 layers on the built-in corpus, three seeds: an hour on two CPU cores (128 CPU
           minutes, measured; the README has the table).
real_text  4 layers, 128 wide, 4,096 pieces, on text files of one's own (some megabytes, named by
           --config.pretrain.data.task='text:corpus/*.txt.gz'), three learning rates, then three
           seeds; pre-training only, about 2.5 hours on two CPU cores (30 runs of 10 minutes).
paper      the paper's models and protocol on GLUE; six pre-trainings of base, each about 7 h on a
           host of 8 H100 (counted FLOPs at 40 % of the peak, not measured). One that a pod makes
           is taken as it is: `tupe pretrain` with the same settings, its work directory being
           runs/<variant>/seed0-lr0.0001/pretrain in that of the study.
           Expected, from the paper: GLUE averages 82.96, 83.66, 83.64, 83.81, 84.47, 85.04; the
           table has each task by itself, MNLI matched, and `tupe glue` the paper's nine numbers
           and their average, of the same pre-trained models.
"""

from ml_collections import ConfigDict

from tupe_jax.ablation.config import Variant
from tupe_jax.config.loading import recipe

VARIANTS = (
    Variant("BERT-A", "bert_a"),
    Variant("BERT-R", "bert_r"),
    Variant("BERT-A^d", "bert_a_d"),
    Variant("TUPE-A-tie-cls", "tupe_a_tie_cls"),
    Variant("TUPE-A", "tupe_a"),
    Variant("TUPE-R", "tupe_r"),
)


def get_config(form: str = "tiny") -> ConfigDict:
    config = recipe(f"studies/{form}")  # configs/recipes/studies/<form>.py: every number
    config.variants = VARIANTS
    return config
