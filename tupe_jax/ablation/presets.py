"""Studies without variants; the files in `configs/ablations/` add theirs.

tiny       minutes per run on a CPU, on the built-in corpus and its tasks
real_text  a small model on your own text files, tuned; pre-training only
paper      the TUPE paper's pre-training and GLUE; docs/pretraining.md lists what differs
"""

from collections.abc import Sequence
from dataclasses import replace

from tupe_jax.ablation.config import AblationConfig, DownstreamConfig, MeasureConfig, Variant
from tupe_jax.config.recipes import from_config_dict, recipe
from tupe_jax.config.schema import CheckpointConfig, Config, DataConfig, EvalConfig, TrainConfig
from tupe_jax.finetune.config import GlueConfig, small_models


def tiny_study(variants: Sequence[Variant]) -> AblationConfig:
    return AblationConfig(
        tuple(variants),
        learning_rates=(2e-3,),
        pretrain=replace(
            _recipe("tiny"), checkpoint=_checkpoints(120), eval=EvalConfig(every=30, rows=512)
        ),
        downstream=DownstreamConfig(
            tasks=("builtin_cola", "builtin_nli"),
            learning_rates=(5e-4,),
            finetune=small_models(length=64, epochs=5, keep_weights=False),
        ),
        measure=MeasureConfig(probe_task="builtin_nli"),
    )


def real_text_study(variants: Sequence[Variant]) -> AblationConfig:
    tiny = _recipe("tiny")
    position = replace(tiny.model.position, max_length=64)
    return AblationConfig(
        tuple(variants),
        learning_rates=(7.5e-4, 1.5e-3, 3e-3),
        pretrain=replace(
            tiny,
            model=replace(tiny.model, vocab_size=4096, num_layers=4, position=position),
            data=DataConfig(task="text:corpus/*.txt.gz", length=64),
            train=TrainConfig(steps=1000, batch_size=64, log_every=50),
            checkpoint=_checkpoints(250),
            eval=EvalConfig(every=25, rows=512),
        ),
        measure=MeasureConfig(minimal_pairs=0),
    )


def paper_study(variants: Sequence[Variant]) -> AblationConfig:
    glue = GlueConfig()
    return AblationConfig(
        tuple(variants),
        seeds=(0,),
        learning_rates=(1e-4,),
        pretrain=_recipe("paper"),
        downstream=DownstreamConfig(
            tasks=glue.tasks,
            learning_rates=glue.learning_rates,
            seeds=glue.seeds,
            data_dir="glue",
            finetune=glue.finetune,
        ),
        measure=MeasureConfig(length=128, probe_task="mnli"),
    )


def _recipe(form: str) -> Config:
    return from_config_dict(recipe("bert_a", form))


def _checkpoints(every: int) -> CheckpointConfig:
    """Keep only the last one: a study has many short runs."""
    return CheckpointConfig(every=every, keep=1, keep_best=False)
