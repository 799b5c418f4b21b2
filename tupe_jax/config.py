"""What a user can set, as frozen dataclasses: wrong names, types and values fail here, by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tupe_jax.checks import from_mapping, one_of, require_positive
from tupe_jax.errors import UserError

Dtype = Literal["float32", "bfloat16"]
LayerLoop = Literal["auto", "scan", "unroll"]
Remat = Literal["none", "dots", "projections", "full"]


@dataclass(frozen=True)
class PositionConfig:
    """Which positional encodings the encoder has: a point on the grid of both papers.

    `absolute` and `relative` name entries of the registry in `tupe_jax.model.positions`.
    """

    absolute: str = "untied"
    relative: str = "none"
    untie_cls: bool = True
    """[CLS] is cut loose from the position biases (`reset` in the TUPE paper)."""

    max_length: int = 512
    """Rows of the position tables; encodings without a table take any length."""
    relative_bins: int = 32
    """Distance buckets of the T5 bias."""
    max_distance: int = 128
    """Distances beyond this are treated alike (T5, Shaw, DeBERTa)."""
    decay_left: float = 0.5
    decay_right: float = 0.5
    """w of the attenuated encodings towards earlier and later words; unequal breaks symmetry."""

    def __post_init__(self) -> None:
        require_positive(self, "position", "max_length", "relative_bins", "max_distance")
        for name in ("decay_left", "decay_right"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(
                    f"position.{name}={getattr(self, name)} must be 0 (no decay) or a larger number"
                )


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and numerics of the encoder; the defaults are the papers' base model."""

    vocab_size: int = 32768
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    mlp_size: int = 3072
    pre_layer_norm: bool = False
    """LayerNorm before each sub-layer and once at the end, instead of after each (the papers)."""
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float = 0.1
    pad_id: int = 0
    dtype: Dtype = "float32"
    """Compute type. Parameters, softmax and LayerNorm statistics are float32 in either case."""
    layer_loop: LayerLoop = "auto"
    """`scan` compiles one layer, `unroll` all; `auto` unrolls on CPU, where that is faster."""
    remat: Remat = "none"
    """What the backward pass keeps; see `tupe_jax.model.encoder.REMAT_POLICIES`."""
    position: PositionConfig = field(default_factory=PositionConfig)

    def __post_init__(self) -> None:
        require_positive(
            self, "model", "vocab_size", "hidden_size", "num_layers", "num_heads", "mlp_size"
        )
        if self.hidden_size % self.num_heads:
            raise UserError(
                f"model.hidden_size={self.hidden_size} is not divisible by "
                f"model.num_heads={self.num_heads}; every head needs the same number of features"
            )
        if not 0 <= self.pad_id < self.vocab_size:
            raise UserError(
                f"model.pad_id={self.pad_id} is outside the vocabulary: "
                f"model.vocab_size={self.vocab_size}"
            )
        for name in ("dropout", "attention_dropout", "classifier_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"model.{name}={getattr(self, name)} must be in [0, 1)")

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads


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


def model_config(size: str, position: str | PositionConfig, **settings: Any) -> ModelConfig:
    """A model of a named size with a named positional encoding: `model_config("base", "tupe_r")`.

    `settings` are fields of `ModelConfig` and take precedence over the size.
    """
    if isinstance(position, str):
        position = POSITION_VARIANTS[one_of(position, POSITION_VARIANTS, "positional encoding")]
    sizes = MODEL_SIZES[one_of(size, MODEL_SIZES, "model size")]
    return from_mapping(ModelConfig, {**sizes, **settings, "position": position}, "model")
