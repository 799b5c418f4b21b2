"""Recipes: whole experiments as ConfigDicts, from which the files in `configs/` are made.

paper     the TUPE paper's pre-training (base, 1 M steps of 256 x 512 tokens), with the official
          code's rules of masking, packing and learning rate; docs/pretraining.md lists what differs
modern    the same data seen sooner: large batches, 30 % masking, bfloat16, pre-LN
tiny      minutes on a CPU, on the built-in corpus
"""

import dataclasses
from typing import Any

from ml_collections import ConfigDict

from tupe_jax.config.loading import PRETRAINING, require_kind
from tupe_jax.config.schema import (
    CheckpointConfig,
    Config,
    DataConfig,
    EvalConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PositionConfig,
    TrainConfig,
    model_config,
)
from tupe_jax.config.validation import from_mapping, one_of

PAPER_DATA = "wikipedia + text:data/books/*.txt.gz"
"""English Wikipedia from TFDS and one's own books; BookCorpus itself is no longer distributed."""


def recipe(position: str | PositionConfig, form: str = "paper", size: str = "base") -> ConfigDict:
    """An experiment with a positional encoding, by the name of its recipe."""
    forms = {"paper": _paper, "modern": _modern, "tiny": _tiny}
    return to_config_dict(forms[one_of(form, forms, "recipe")](position, size))


def _paper(position: str | PositionConfig, size: str) -> Config:
    # All other defaults of the sections are the paper's.
    return Config(
        model=model_config(size, position, dtype="bfloat16"),
        data=DataConfig(task=PAPER_DATA, packing="sentences"),
        objective=ObjectiveConfig(mask_rule="released"),
        optimizer=OptimizerConfig(warmup_from_zero=True),
    )


def _modern(position: str | PositionConfig, size: str) -> Config:
    return Config(
        model=model_config(
            size,
            position,
            dtype="bfloat16",
            pre_layer_norm=True,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=DataConfig(task=PAPER_DATA),
        objective=ObjectiveConfig(mask_rate=0.3),
        optimizer=OptimizerConfig(
            name="adamw",
            peak_learning_rate=1e-3,
            warmup="6%",
            schedule="wsd",
            decay="20%",
            beta2=0.98,
        ),
        train=TrainConfig(steps=60_000, batch_size=2048),
        checkpoint=CheckpointConfig(every=2000),
        eval=EvalConfig(every=2000),
    )


def _tiny(position: str | PositionConfig, size: str) -> Config:
    model = model_config(
        "tiny", position, vocab_size=2048, num_heads=4, dropout=0.0, attention_dropout=0.0
    )
    return Config(
        model=model,
        data=DataConfig(task="builtin:8000", cleaning="none", length=64),
        optimizer=OptimizerConfig(peak_learning_rate=2e-3, warmup="10%"),
        train=TrainConfig(steps=900, batch_size=64, log_every=20),
        checkpoint=CheckpointConfig(every=300),
        eval=EvalConfig(every=150, rows=512),
    )


def to_config_dict(config: Config) -> ConfigDict:
    """Sections as a user overrides them; `position` stands beside `model`."""
    sections: dict[str, Any] = dataclasses.asdict(config)
    return ConfigDict({**sections, "position": sections["model"].pop("position")})


def from_config_dict(values: ConfigDict) -> Config:
    """The checked config of an experiment."""
    require_kind(values, PRETRAINING)
    sections = values.to_dict()
    model = sections.get("model", {})
    if "position" in sections:
        model = {**model, "position": sections.pop("position")}
    return from_mapping(Config, {**sections, "model": model}, "config")
