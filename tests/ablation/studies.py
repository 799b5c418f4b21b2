"""Small studies, and records of runs without training."""

from dataclasses import replace

import numpy as np

from tupe_jax.ablation.config import AblationConfig, DownstreamConfig, MeasureConfig, Variant
from tupe_jax.ablation.results import PairScore, ProbeScore, RunRecord, TaskScore, run_settings
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import CheckpointConfig, DataConfig, EvalConfig, TrainConfig
from tupe_jax.finetune.config import FinetuneConfig

PIECES = 300


def small_study(
    names=("bert_a", "tupe_a"), *, seeds=(0, 1), learning_rates=(1e-3, 1e-2), **settings
):
    """A study of one layer, 16 wide, on the built-in corpus."""
    pretrain = from_config_dict(load_config("bert_a:tiny"))
    model = replace(
        pretrain.model, vocab_size=PIECES, hidden_size=16, num_layers=1, num_heads=2, mlp_size=32
    )
    parts = {
        "pretrain": replace(
            pretrain,
            model=model,
            data=DataConfig(task="builtin:400", cleaning="none", length=16),
            train=TrainConfig(steps=4, batch_size=8, log_every=2),
            eval=EvalConfig(every=2, rows=16),
            checkpoint=CheckpointConfig(every=2, keep=1, keep_best=False),
        ),
        "downstream": DownstreamConfig(
            tasks=("builtin_sst",),
            train_examples=32,
            dev_examples=16,
            finetune=FinetuneConfig(length=16, epochs=1, batch_size=16, keep_weights=False),
        ),
        "measure": MeasureConfig(length=12, words=2, minimal_pairs=2),
    }
    variants = tuple(Variant(name, name) for name in names)
    return AblationConfig(variants, seeds, learning_rates, **{**parts, **settings})


def record_of(config, key, *, loss=3.0, is_tuning=False, **changes):
    """What a run may have left."""
    measured = {
        "measures": {"locality": 0.25, "symmetry": 0.5, "mirror_symmetry": 0.75},
        "by_head": {"locality": ((0.125, 0.375),), "mirror_symmetry": ((0.0, 0.25),)},
        "kinds": (("local", "broad"),),
        "scores": {"builtin_sst": TaskScore("accuracy", best=0.75, last=0.5)},
        "probes": {"Random": ProbeScore(0.5, -0.25, -0.375, -0.125, rows=40)},
        "pairs": {"all": PairScore(0.625, 0.5, 0.75, pairs=30)},
        "matrices_LxHxNxN": np.full((1, 2, 4, 4), 0.25, np.float32),
    }
    settings = {
        "variant": key.variant,
        "seed": key.seed,
        "learning_rate": key.learning_rate,
        "settings": run_settings(config, key),
        "data": "the same",
        "parameters": 1000,
        "validation": ((2, loss + 1), (4, loss)),
        "bias_sizes": {"absolute": ((2, (0.5, None)), (4, (0.75, 1.5)))},
    }
    return RunRecord(**{**settings, **({} if is_tuning else measured), **changes})
