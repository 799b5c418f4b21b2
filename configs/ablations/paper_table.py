"""The TUPE paper's table: BERT-A, BERT-R, BERT-A^d, TUPE-A with [CLS] tied, TUPE-A, TUPE-R.

  tupe ablate --config=ablations/paper_table:tiny --workdir=runs/paper_table
  tupe ablate --config=ablations/paper_table:real_text --workdir=runs/real_text \
      --config.pretrain.data.task='text:corpus/*.txt.gz'
  tupe ablate --config=ablations/paper_table:paper --workdir=/shared/paper_table --shard=0/6

tiny       2 layers on the built-in corpus, three seeds: about an hour on two CPU cores.
real_text  4 layers, 128 wide, 4,096 pieces, on text files of one's own (some megabytes), three
           learning rates, then three seeds; pre-training only, a few hours on two CPU cores.
paper      the paper's models and protocol on GLUE; six pre-trainings of base, each about 1.1 h on a
           v5e-256 (counted FLOPs at 40 % of the peak, not measured).
           Expected, from the paper: GLUE averages 82.96, 83.66, 83.64, 83.81, 84.47, 85.04.
"""

from dataclasses import replace

from ml_collections import ConfigDict

from tupe_jax.ablation.config import (
    AblationConfig,
    DownstreamConfig,
    MeasureConfig,
    Variant,
    study,
)
from tupe_jax.checks import one_of
from tupe_jax.config import CheckpointConfig, DataConfig, EvalConfig, TrainConfig
from tupe_jax.finetune.config import FinetuneConfig, GlueConfig
from tupe_jax.recipes import from_config_dict, recipe

VARIANTS = (
    Variant("BERT-A", "bert_a"),
    Variant("BERT-R", "bert_r"),
    Variant("BERT-A^d", "bert_a_d"),
    Variant("TUPE-A-tie-cls", "tupe_a_tie_cls"),
    Variant("TUPE-A", "tupe_a"),
    Variant("TUPE-R", "tupe_r"),
)


def tiny() -> AblationConfig:
    pretrain = from_config_dict(recipe("bert_a", "tiny"))
    return AblationConfig(
        VARIANTS,
        learning_rates=(2e-3,),
        pretrain=replace(
            pretrain,
            checkpoint=CheckpointConfig(every=120, keep=1, keep_best=False),
            eval=EvalConfig(every=30, rows=512),
        ),
    )


def real_text() -> AblationConfig:
    pretrain = from_config_dict(recipe("bert_a", "tiny"))
    return AblationConfig(
        VARIANTS,
        learning_rates=(7.5e-4, 1.5e-3, 3e-3),
        pretrain=replace(
            pretrain,
            model=replace(
                pretrain.model,
                vocab_size=4096,
                num_layers=4,
                position=replace(pretrain.model.position, max_length=64),
            ),
            data=DataConfig(task="text:corpus/*.txt.gz", length=64),
            train=TrainConfig(steps=1000, batch_size=64, log_every=50),
            checkpoint=CheckpointConfig(every=250, keep=1, keep_best=False),
            eval=EvalConfig(every=25, rows=512),
        ),
        measure=MeasureConfig(minimal_pairs=0),
    )


def paper() -> AblationConfig:
    glue = GlueConfig()
    return AblationConfig(
        VARIANTS,
        seeds=(0,),
        pretrain=from_config_dict(recipe("bert_a")),
        downstream=DownstreamConfig(
            tasks=glue.tasks,
            learning_rates=glue.learning_rates,
            seeds=glue.seeds,
            data_dir="glue",
            finetune=FinetuneConfig(keep_weights=False),
        ),
        measure=MeasureConfig(length=128),
    )


FORMS = {"tiny": tiny, "real_text": real_text, "paper": paper}


def get_config(form: str = "tiny") -> ConfigDict:
    return study(FORMS[one_of(form, FORMS, "form")]())
