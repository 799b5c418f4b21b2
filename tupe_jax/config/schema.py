"""All settings, as frozen dataclasses that refuse wrong types and values by the setting's name."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tupe_jax.config.validation import (
    check_fields,
    check_path,
    from_mapping,
    one_of,
    require_positive,
)
from tupe_jax.utils.errors import UserError

Dtype = Literal["float32", "bfloat16"]
LayerLoop = Literal["auto", "scan", "unroll"]
AttentionImplementation = Literal["auto", "xla", "pallas", "cudnn"]
Remat = Literal["none", "dots", "projections", "full"]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
Norm = Literal["layer_norm", "rms_norm"]


@dataclass(frozen=True)
class PositionConfig:
    """Which positional encodings the encoder has: a point on the grid of both papers.

    `absolute` and `relative` name entries of the registry in `tupe_jax.model.positions`.
    """

    absolute: str = "untied"
    relative: str = "none"
    untie_cls: bool = True
    """[CLS] is untied from the position biases (`reset` in the TUPE paper)."""

    max_length: int = 512
    """Rows of the position tables; encodings without a table accept any length."""
    relative_bins: int = 32
    """Distance buckets of the T5 bias."""
    max_distance: int = 128
    """Larger distances are treated as this one (T5, Shaw, DeBERTa)."""
    decay_left: float = 0.5
    decay_right: float = 0.5
    """w of the attenuated encodings to the left and right; unequal values break symmetry."""
    attenuation_gain: float = 1.0
    """Factor of the attenuated bias. With 1, as published, no bias is larger than 1."""
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict, hash=False)
    """Options that the chosen encodings declare; an option that is not set has its default."""

    def __post_init__(self) -> None:
        check_fields(self, "position")
        require_positive(self, "position", "max_length", "relative_bins", "max_distance")
        for name in ("decay_left", "decay_right", "attenuation_gain"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(
                    f"position.{name}={getattr(self, name)} must be finite and at least 0"
                )


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and numerics of the encoder; the defaults are the papers' base model."""

    vocab_size: int = 32768
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    mlp_size: int = 3072
    embedding_size: int = 0
    """Features of the embeddings, projected to hidden_size (ALBERT, ELECTRA); 0: hidden_size."""
    embedding_norm: bool = True
    """LayerNorm after the sum of the embeddings; XLNet has none."""
    segments: int = 0
    """Number of segment embeddings (BERT has 2); a segment ends with `sep_id`."""
    segment_attention: bool = False
    """Attention distinguishes tokens of the same segment from others (XLNet)."""
    cls_last: bool = False
    """[CLS] is the last token of a sequence (XLNet), not the first."""
    share_layers: bool = False
    """All layers have the same weights (ALBERT)."""
    activation: Activation = "gelu"
    """`gelu_tanh` is Google's approximation of `gelu`."""
    gated_mlp: bool = False
    """The MLP's activations are multiplied by a second projection of its input: GeGLU with
    `activation="gelu"`, SwiGLU with "silu"."""
    linear_bias: bool = True
    """Biases in the projections of attention and MLP and before the output matrix."""
    masked_word_head: bool = True
    """Some public encoders lack it and cannot predict masked tokens."""
    masked_word_transform: bool = True
    """A dense layer, an activation and a norm before the output matrix, as in BERT."""
    output_embedding_size: int = 0
    """The size of a separate (untied) output matrix; 0: it is the token embedding (tied)."""
    replaced_token_head: bool = False
    """The model predicts which tokens of its input were replaced: ELECTRA's discriminator."""
    next_sentence_head: bool = False
    """The model predicts, from the pooler, whether the second of two texts follows the first. It
    was trained on pairs [CLS] A [SEP] B [SEP], as BERT, and fine-tuning writes pairs like that."""
    pooler: bool = False
    """The pooler belongs to the model (BERT) and not to each classification head."""
    pre_layer_norm: bool = False
    """The norm is before each sub-layer and once at the end; False: after each (the papers)."""
    first_attention_norm: bool = True
    """False: with `pre_layer_norm`, the first layer's attention has no norm (ModernBERT)."""
    norm: Norm = "layer_norm"
    norm_bias: bool = True
    """A bias in every LayerNorm; RMSNorm has none."""
    layer_norm_eps: float = 1e-5
    """The epsilon of the norms, of either kind."""
    query_key_norm: bool = False
    """A norm on the queries and one on the keys of every head, before any rotation."""
    attention_window: int = 0
    """Token i of a local layer attends to j if |j - i| is at most half of it; 0: none is local."""
    attention_global_every: int = 3
    """With a window: every n-th layer, beginning with the first, attends to all tokens; 0: none."""
    mask_dropout: float = 0.0
    """[MASK] is embedded as zeros, and all embeddings are multiplied by (1 - mask_dropout) / (1 -
    the sequence's share of [MASK]) (ESM); 0: [MASK] has an embedding."""
    mask_id: int = 3
    """[MASK]; read with `mask_dropout` only."""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float = 0.1
    pad_id: int = 0
    sep_id: int = 2
    dtype: Dtype = "float32"
    """Compute type. Parameters, softmax and LayerNorm statistics are float32 in either case."""
    layer_loop: LayerLoop = "auto"
    """`scan` compiles one layer, `unroll` all; `auto` unrolls on CPU, where that is faster."""
    attention_implementation: AttentionImplementation = "auto"
    """`pallas` is our fused kernel for TPUs or GPUs, `cudnn` NVIDIA's, without dropout; `auto` uses
    ours where it can run, else `xla`. The log reports the choice and its reason."""
    remat: Remat = "none"
    """What the backward pass keeps; see `tupe_jax.model.encoder.REMAT_POLICIES`."""
    position: PositionConfig = field(default_factory=PositionConfig)

    def __post_init__(self) -> None:
        check_fields(self, "model")
        require_positive(
            self, "model", "vocab_size", "hidden_size", "num_layers", "num_heads", "mlp_size"
        )
        if self.hidden_size % self.num_heads:
            raise UserError(
                f"model.hidden_size={self.hidden_size} is not divisible by "
                f"model.num_heads={self.num_heads}; every head needs the same number of features"
            )
        for name in ("pad_id", "sep_id", *(["mask_id"] if self.mask_dropout else [])):
            if not 0 <= getattr(self, name) < self.vocab_size:
                raise UserError(
                    f"model.{name}={getattr(self, name)} is outside the vocabulary: "
                    f"model.vocab_size={self.vocab_size}"
                )
        for name in (
            "embedding_size",
            "segments",
            "output_embedding_size",
            "attention_window",
            "attention_global_every",
        ):
            if getattr(self, name) < 0:
                raise UserError(f"model.{name}={getattr(self, name)} must be at least 0")
        if self.attention_window % 2:
            raise UserError(
                f"model.attention_window={self.attention_window} must be even: half of it is on "
                "either side"
            )
        if not self.first_attention_norm and not self.pre_layer_norm:
            raise UserError(
                "model.first_attention_norm=False leaves out a norm before attention, but with "
                "model.pre_layer_norm=False there is none; set one of them to True"
            )
        if not self.masked_word_transform and self.output_size != self.hidden_size:
            raise UserError(
                f"model.masked_word_transform=False needs an output matrix of model.hidden_size="
                f"{self.hidden_size} features, not {self.output_size}; set "
                "model.output_embedding_size or model.embedding_size"
            )
        if self.next_sentence_head and not self.pooler:
            raise UserError("model.next_sentence_head=True needs model.pooler=True")
        if self.cls_last and self.position.untie_cls:
            raise UserError(
                "position.untie_cls=True unties the first token, but with model.cls_last=True "
                "[CLS] is the last; set one of them to False"
            )
        if self.layer_norm_eps <= 0:
            raise UserError(f"model.layer_norm_eps={self.layer_norm_eps} must be above 0")
        for name in ("dropout", "attention_dropout", "classifier_dropout", "mask_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"model.{name}={getattr(self, name)} must be in [0, 1)")

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def word_size(self) -> int:
        """Features of the token embedding, and of whatever is added to it."""
        return self.embedding_size or self.hidden_size

    @property
    def output_size(self) -> int:
        """The number of features of the output matrix."""
        return self.output_embedding_size or self.word_size

    @property
    def windows(self) -> tuple[int, ...]:
        """The attention window of each layer; 0: the layer attends to all tokens."""
        every = self.attention_global_every
        return tuple(
            0 if every and layer % every == 0 else self.attention_window
            for layer in range(self.num_layers)
        )


Packing = Literal["stream", "sentences", "pairs"]
"""How lines fill sequences: split across them; whole, with padding; or as pairs of passages."""


OnError = Literal["stop", "skip"]
"""What is done at a broken record or file of a corpus."""


@dataclass(frozen=True)
class DataConfig:
    """The text, its tokenizer, and the length of the token sequences."""

    task: str = "builtin"
    """A source or a mixture, as in `tupe prepare --task`."""
    cleaning: str = "all"
    vocabulary: str = ""
    """A SentencePiece model; empty: that of `data.prepared`, or else one of `model.vocab_size`
    tokens is trained."""
    prepared: str = ""
    """A folder of prepared data; empty: prepare the data in the work directory."""
    reader: Literal["prepared", "live"] = "prepared"
    length: int = 512
    """Tokens in a sequence, [CLS] included."""
    packing: Packing = "stream"
    """`stream` splits lines across sequences; `sentences` keeps lines whole and pads; `pairs` makes
    the pairs of passages that `objective.name=masked_lm_nsp` needs."""

    def __post_init__(self) -> None:
        check_fields(self, "data")
        files = re.findall(r"\b(?:text|jsonl|parquet):(\S+)", self.task)
        paths = {"vocabulary": [self.vocabulary], "prepared": [self.prepared], "task": files}
        for name, given in paths.items():
            for path in given:
                check_path(path, f"data.{name}")
        if self.length < 8:
            raise UserError(f"data.length={self.length} must be at least 8")
        if self.reader == "live" and self.prepared:
            raise UserError(
                f"data.prepared={self.prepared!r} is not used with data.reader='live'; "
                "set one of them only"
            )


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is trained, and for masked language modelling which tokens are hidden, and how."""

    name: str = "masked_lm"
    """One of `tupe_jax.objectives.registry.OBJECTIVES`."""
    mask_rate: float = 0.15
    """Share of the tokens that are chosen; all of them are scored."""
    mask_rule: Literal["ordinary", "released"] = "ordinary"
    """Which tokens can be chosen: `ordinary`, all but special ones; `released`, all but padding,
    [CLS] and [SEP] included, as in the official code."""
    mask_unit: Literal["token", "word", "span"] = "token"
    mean_span: float = 3.0
    replace_by_mask: float = 0.8
    replace_by_random: float = 0.1
    """The rest of the chosen tokens stay as they are."""
    generator_size: float = 0.25
    """`replaced_token` only, as the settings below: hidden size, MLP size and heads of the
    generator, as a fraction of the discriminator's."""
    generator_layers: int = 0
    """0: as many as the discriminator has."""
    generator_position: str = ""
    """A positional encoding by name, such as "bert_a"; empty: that of the discriminator."""
    discriminator_weight: float = 50.0
    """Factor of the discriminator's loss; the generator's has factor 1."""

    def __post_init__(self) -> None:
        check_fields(self, "objective")
        if not 0 < self.generator_size <= 1:
            raise UserError(
                f"objective.generator_size={self.generator_size} must be above 0 and at most 1"
            )
        if self.generator_layers < 0:
            raise UserError(
                f"objective.generator_layers={self.generator_layers} must be at least 0"
            )
        if self.generator_position:
            one_of(self.generator_position, POSITION_VARIANTS, "objective.generator_position")
        if not 0 < self.discriminator_weight < math.inf:
            raise UserError(
                f"objective.discriminator_weight={self.discriminator_weight} must be above 0"
            )
        if not 0 < self.mask_rate < 1:
            raise UserError(f"objective.mask_rate={self.mask_rate} must be between 0 and 1")
        if self.mask_rule == "released" and self.mask_unit != "token":
            raise UserError(
                f"objective.mask_rule='released' chooses single tokens, but objective.mask_unit="
                f"{self.mask_unit!r}; set --config.objective.mask_rule=ordinary"
            )
        if self.mean_span < 1:
            raise UserError(f"objective.mean_span={self.mean_span} must be at least 1")
        kept = 1 - self.replace_by_mask - self.replace_by_random
        if min(self.replace_by_mask, self.replace_by_random, round(kept, 9)) < 0:
            raise UserError(
                f"objective.replace_by_mask={self.replace_by_mask} and "
                f"objective.replace_by_random={self.replace_by_random} must not be negative and "
                "must not add up to more than 1"
            )


@dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer and schedule. Durations: "500" steps, "10%", "2 epochs" or "5000 examples"."""

    name: Literal["adam_released", "adamw", "lamb", "muon"] = "adam_released"
    peak_learning_rate: float = 1e-4
    warmup: str = "10000"
    schedule: Literal["linear", "cosine", "wsd", "constant"] = "linear"
    decay: str = "10%"
    """Length of the final decay of the `wsd` schedule (warm-up, stable, decay)."""
    final_fraction: float = 0.0
    """The learning rate at the last step, as a share of the peak."""
    warmup_from_zero: bool = False
    """The schedule starts one step later, as in the official pre-training: the first update has
    learning rate 0. False: the first update has an effect."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    """Largest global norm of a gradient; 0 turns clipping off."""
    position_learning_rate_factor: float = 1.0
    """The learning rate of all parameters of the positional encoding is multiplied by it."""

    def __post_init__(self) -> None:
        check_fields(self, "optimizer")
        for name, low, high in (
            ("beta1", 0, 1),
            ("beta2", 0, 1),
            ("final_fraction", 0, 1),
            ("peak_learning_rate", 0, math.inf),
            ("weight_decay", 0, math.inf),
            ("clip_norm", 0, math.inf),
            ("eps", 0, math.inf),
            ("position_learning_rate_factor", 0, math.inf),
        ):
            value = getattr(self, name)
            if not low <= value < high:
                raise UserError(f"optimizer.{name}={value} must be in [{low}, {high})")


@dataclass(frozen=True)
class TrainConfig:
    """Length of the run, batches, logging."""

    steps: int = 1_000_000
    batch_size: int = 256
    """Sequences in a global batch, over all devices and micro-batches."""
    accumulate: int = 1
    """Micro-batches per step, in sequence: less memory, the same gradient."""
    log_every: int = 100
    ema_decay: float = 0.0
    """Evaluate and export an average of the weights; 0 turns it off. The decay warms up to this
    value in 79 / (1 - ema_decay) updates."""
    max_skipped_in_a_row: int = 5
    """Steps without a finite loss and gradient after which the run gives up."""
    profile_at: int = 0
    """Write a profiler trace of five steps from this one; 0 turns it off."""
    wandb_project: str = ""
    compilation_cache: bool = True
    """Keep compiled programs in the work directory, so that a resumed run starts faster."""

    def __post_init__(self) -> None:
        check_fields(self, "train")
        require_positive(self, "train", "steps", "batch_size", "accumulate", "log_every")
        if self.batch_size % self.accumulate:
            raise UserError(
                f"train.batch_size={self.batch_size} is not divisible by "
                f"train.accumulate={self.accumulate}"
            )
        if not 0 <= self.ema_decay < 1:
            raise UserError(f"train.ema_decay={self.ema_decay} must be in [0, 1)")


@dataclass(frozen=True)
class MeshConfig:
    """Devices along each axis of the mesh; -1: all that remain."""

    slice: int = -1
    """Slices, joined by the data-center network (DCN); -1: as many as the devices report."""
    data: int = -1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        check_fields(self, "mesh")


@dataclass(frozen=True)
class CheckpointConfig:
    """When to save checkpoints, and which to keep."""

    every: int = 10_000
    """Save a checkpoint after so many steps."""
    every_minutes: float = 30.0
    """Save a checkpoint if the last one is so many minutes old; 0 turns it off."""
    keep: int = 3
    """How many of the newest checkpoints to keep."""
    keep_steps: tuple[int, ...] = ()
    """Also save a checkpoint at these steps, and keep it."""
    keep_best: bool = True
    """Also keep the checkpoint with the lowest validation loss."""

    def __post_init__(self) -> None:
        check_fields(self, "checkpoint")
        require_positive(self, "checkpoint", "every", "keep")
        if not self.every_minutes >= 0:
            raise UserError(f"checkpoint.every_minutes={self.every_minutes} must not be negative")


@dataclass(frozen=True)
class WatchdogConfig:
    """When a run that hangs is ended, with exit code 76."""

    stalled_minutes: float = 10.0
    """If no step or batch of the evaluation completes for so long, or for 20 median steps if that
    is longer; 0 turns off this limit and the two below."""
    compile_minutes: float = 60.0
    """While the train step is compiled."""
    checkpoint_minutes: float = 30.0
    """While a checkpoint is saved or restored."""
    silence_seconds: float = 60.0
    """If a process sends no heartbeat to the others for so long."""
    jax_heartbeat_seconds: int = 180
    """JAX's own limit for that, after which it aborts with exit code 134 and names no host."""
    stop_seconds: float = 120.0
    """After SIGTERM: if the run does not begin to stop for so long, it ends without saving."""

    def __post_init__(self) -> None:
        check_fields(self, "watchdog")
        require_positive(self, "watchdog", "silence_seconds", "jax_heartbeat_seconds")
        for name in ("stalled_minutes", "compile_minutes", "checkpoint_minutes", "stop_seconds"):
            value = getattr(self, name)
            if not value >= 0 or (value == 0 and name != "stalled_minutes"):
                raise UserError(f"watchdog.{name}={value} must be positive")
        if self.jax_heartbeat_seconds <= self.silence_seconds:
            raise UserError(
                f"watchdog.jax_heartbeat_seconds={self.jax_heartbeat_seconds} must be above "
                f"watchdog.silence_seconds={self.silence_seconds:g}; otherwise JAX aborts first "
                "and names no host"
            )


@dataclass(frozen=True)
class EvalConfig:
    """Validation, on the same sequences and masks each time (for one size of micro-batches)."""

    every: int = 10_000
    rows: int = 4096
    """At most this many validation sequences, evenly spread over all."""

    def __post_init__(self) -> None:
        check_fields(self, "eval")
        require_positive(self, "eval", "every", "rows")


@dataclass(frozen=True)
class Config:
    """All settings of a pre-training run, in sections."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    watchdog: WatchdogConfig = field(default_factory=WatchdogConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise UserError(f"config.seed={self.seed} must be between 0 and {2**32 - 1}")
        if self.model.cls_last:
            raise UserError(
                "model.cls_last=True is for imported models; in pre-training [CLS] comes first"
            )
        if self.model.replaced_token_head:
            raise UserError(
                "model.replaced_token_head=True is for imported models; "
                "set --config.objective.name=replaced_token, which adds this head"
            )
        if self.objective.name == "replaced_token":
            generator_config(self.model, self.objective)
        if self.model.next_sentence_head:
            raise UserError(
                "model.next_sentence_head=True is for imported models; "
                "set --config.objective.name=masked_lm_nsp, which adds this head"
            )
        if self.objective.name == "masked_lm_nsp" and self.data.packing != "pairs":
            raise UserError(
                f"objective.name=masked_lm_nsp needs sentence pairs, but data.packing="
                f"{self.data.packing}; set --config.data.packing=pairs"
            )
        if self.objective.name != "masked_lm_nsp" and self.data.packing == "pairs":
            raise UserError(
                f"data.packing=pairs needs objective.name=masked_lm_nsp, not "
                f"{self.objective.name}; set one of them"
            )


MODEL_SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny": {"num_layers": 2, "hidden_size": 128, "num_heads": 2, "mlp_size": 512},
    "small": {"num_layers": 4, "hidden_size": 512, "num_heads": 8, "mlp_size": 2048},
    "base": {"num_layers": 12, "hidden_size": 768, "num_heads": 12, "mlp_size": 3072},
    "large": {"num_layers": 24, "hidden_size": 1024, "num_heads": 16, "mlp_size": 4096},
}

POSITION_VARIANTS: Mapping[str, PositionConfig] = {
    "none": PositionConfig("none", "none", untie_cls=False),
    "bert_a": PositionConfig("added", "none", untie_cls=False),
    "sinusoidal": PositionConfig("sinusoidal", "none", untie_cls=False),
    "t5": PositionConfig("none", "t5", untie_cls=False),
    "bert_r": PositionConfig("added", "t5", untie_cls=False),
    "shaw": PositionConfig("none", "shaw", untie_cls=False),
    "tupe_a": PositionConfig("untied", "none", untie_cls=True),
    "tupe_r": PositionConfig("untied", "t5", untie_cls=True),
    "tupe_a_tie_cls": PositionConfig("untied", "none", untie_cls=False),
    "bert_a_d": PositionConfig("mixed", "none", untie_cls=False),
    "attenuated": PositionConfig("none", "attenuated", untie_cls=False),
    "attenuated_layer": PositionConfig("none", "attenuated_layer", untie_cls=False),
    "attenuated_layer_head": PositionConfig("none", "attenuated_layer_head", untie_cls=False),
    "attenuated_asymmetric": PositionConfig(
        "none", "attenuated", untie_cls=False, decay_left=0.1, decay_right=2.0
    ),
    "alibi": PositionConfig("none", "alibi", untie_cls=False),
    "rope": PositionConfig("none", "rope", untie_cls=False),
    "deberta": PositionConfig("none", "deberta", untie_cls=False),
}
"""The encodings of both papers and their public relatives, by the names used in tables."""


ENCODING = (
    "absolute",
    "relative",
    "untie_cls",
    "decay_left",
    "decay_right",
    "attenuation_gain",
    "options",
)
"""The settings of a `PositionConfig` that define an encoding; the others are sizes."""


def with_encoding(position: PositionConfig, name: str) -> PositionConfig:
    """A named encoding with the sizes of `position`."""
    named = POSITION_VARIANTS[name]
    return replace(position, **{part: getattr(named, part) for part in ENCODING})


def discriminator_config(model: ModelConfig) -> ModelConfig:
    """ELECTRA's discriminator: `model`, whose only head detects replaced tokens."""
    return replace(model, masked_word_head=False, replaced_token_head=True)


def next_sentence_config(model: ModelConfig) -> ModelConfig:
    """The config of BERT with next-sentence prediction: a pooler and a head on it."""
    return replace(model, pooler=True, next_sentence_head=True)


def generator_config(model: ModelConfig, objective: ObjectiveConfig) -> ModelConfig:
    """ELECTRA's generator: smaller than `model`, with embeddings of the same size."""
    size = objective.generator_size
    hidden, mlp, heads = (
        round(size * full) for full in (model.hidden_size, model.mlp_size, model.num_heads)
    )
    if min(hidden, mlp, heads) < 1 or hidden % heads:
        raise UserError(
            f"objective.generator_size={size:g} gives the generator hidden size {hidden}, MLP size "
            f"{mlp} and {heads} heads; it needs at least one head and a hidden size divisible by "
            "the number of heads"
        )
    position = model.position
    if objective.generator_position:
        position = with_encoding(position, objective.generator_position)
    return replace(
        model,
        hidden_size=hidden,
        mlp_size=mlp,
        num_heads=heads,
        num_layers=objective.generator_layers or model.num_layers,
        embedding_size=0 if model.word_size == hidden else model.word_size,
        masked_word_head=True,
        position=position,
    )


def position_name(position: PositionConfig) -> str:
    """Its name in tables, or else its settings."""
    for name, known in POSITION_VARIANTS.items():
        if all(getattr(position, part) == getattr(known, part) for part in ENCODING):
            return name
    untied = " + untie_cls" if position.untie_cls else ""
    options = "".join(f", {name}={value}" for name, value in sorted(position.options.items()))
    return f"{position.absolute} + {position.relative}{untied}{options}"


def model_config(size: str, position: str | PositionConfig, **settings: Any) -> ModelConfig:
    """A model of a named size with a named positional encoding: `model_config("base", "tupe_r")`.

    `settings` are fields of `ModelConfig` and take precedence over the size.
    """
    if isinstance(position, str):
        position = POSITION_VARIANTS[one_of(position, POSITION_VARIANTS, "positional encoding")]
    sizes = MODEL_SIZES[one_of(size, MODEL_SIZES, "model size")]
    return from_mapping(ModelConfig, {**sizes, **settings, "position": position}, "model")
