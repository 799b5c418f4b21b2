"""Convert the `config.json` of each model type to a `ModelConfig`; raise on unsupported values."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tupe_jax.config.schema import Activation, ModelConfig, PositionConfig
from tupe_jax.utils.errors import UserError

ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}


@dataclass(frozen=True)
class JsonSettings:
    """The values of a JSON file, with checks and defaults."""

    values: Mapping[str, Any]
    source: str
    """The file, for error messages."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The names of settings that a model type calls differently from BERT."""

    def get(self, name: str, default: Any = None) -> Any:
        name = self.aliases.get(name, name)
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise UserError(f"{self.source} has no {name!r}")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        return int(self._typed(name, default, "a whole number", int))

    def size(self, name: str, default: int | None = None) -> int:
        number = self.number(name, default)
        if number < 1:
            raise UserError(f"{self.source}: {name}={number} should be at least 1")
        return number

    def real(self, name: str, default: float) -> float:
        number = float(self._typed(name, default, "a number", int, float))
        if not math.isfinite(number):
            raise UserError(f"{self.source}: {name}={number} should be a finite number")
        return number

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._typed(name, default, "a text", str))

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._typed(name, default, "true or false", bool))

    def _typed(self, name: str, default: Any, expected: str, *types: type) -> Any:
        value = self.get(name, default)
        name = self.aliases.get(name, name)
        if type(value) not in types:  # isinstance would accept True as a number
            raise UserError(f"{self.source}: {name}={value!r} should be {expected}")
        return value

    def require(self, name: str, *allowed: Any) -> None:
        """Raise unless the value is one of these; the first is the default."""
        name = self.aliases.get(name, name)
        value = self.values.get(name)
        value = allowed[0] if value is None else value
        if value not in allowed:
            known = " or ".join(repr(one) for one in allowed)
            raise UserError(f"{self.source}: {name}={value!r} is not supported, only {known}")


@dataclass(frozen=True)
class CheckpointContents:
    """What the weights and the tokenizer say about a model."""

    pooler: bool
    masked_word_head: bool
    sep_id: int
    replaced_token_head: bool = False
    next_sentence_head: bool = False
    no_segments: bool = False
    """There is no segment embedding at the input, whatever the config says."""
    output_embedding_size: int = 0
    """The size of an untied output matrix; 0: it is the token embedding."""


def model_config(
    model_type: str, settings: JsonSettings, contents: CheckpointContents
) -> ModelConfig:
    """The `ModelConfig` for a `config.json` of this model type."""
    with name_source_in_errors(settings.source):
        return CONFIGS[model_type](settings, contents)


@contextlib.contextmanager
def name_source_in_errors(source: str) -> Iterator[None]:
    """Prefix error messages with the file, unless they name it already."""
    try:
        yield
    except UserError as error:
        message = str(error)
        raise UserError(message if message.startswith(source) else f"{source}: {message}") from None


def bert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """BERT; StructBERT and MiniLM have the same architecture."""
    segments = 0 if contents.no_segments else _segments(settings)
    return _encoder(settings, contents, _added(settings), segments=segments)


def roberta(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """The masked LM head always uses the exact GELU.

    The tokenizer has no segments: all tokens are in the first, whatever the size of the table.
    """
    settings.require("hidden_act", "gelu")
    pad_id = settings.number("pad_token_id", 1)
    position = _added(settings, offset=pad_id + 1)
    return _encoder(settings, contents, position, pad_id=pad_id, segments=1)


def electra(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    if contents.masked_word_head:
        settings.require("hidden_act", "gelu")
    size = settings.size("embedding_size", 128)
    return _encoder(
        settings,
        contents,
        _added(settings),
        segments=0 if contents.no_segments else _segments(settings),
        embedding_size=0 if size == settings.size("hidden_size") else size,
    )


def albert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    settings.require("num_hidden_groups", 1)
    settings.require("inner_group_num", 1)
    return _encoder(
        settings,
        contents,
        _added(settings),
        default_activation="gelu_new",
        default_dropout=0.0,
        classifier_dropout=settings.real("classifier_dropout_prob", 0.1),
        segments=_segments(settings),
        embedding_size=settings.size("embedding_size", 128),
        share_layers=True,
    )


def mpnet(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """Positions are added at the input; attention has T5's bias of 32 buckets up to 128."""
    settings.require("hidden_act", "gelu")
    settings.require("relative_attention_num_buckets", 32)
    # Its code assumes that positions start after padding token 1, whatever the config says.
    settings.require("pad_token_id", 1)
    position = _added(settings, offset=2, relative="t5", relative_bins=32, max_distance=128)
    return _encoder(settings, contents, position, pad_id=1)


def deberta(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """Version 1."""
    settings.require("talking_head", False)
    return _disentangled(settings, contents, buckets=-1)


def deberta_v2(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """Versions 2 and 3."""
    settings.require("conv_kernel_size", 0)
    settings.require("norm_rel_ebd", "none", "layer_norm")
    return _disentangled(settings, contents, buckets=settings.number("position_buckets", -1))


def _disentangled(
    settings: JsonSettings, contents: CheckpointContents, buckets: int
) -> ModelConfig:
    settings.require("relative_attention", True)
    terms = settings.get("pos_att_type")
    listed = terms if isinstance(terms, list) else settings.text("pos_att_type").split("|")
    if sorted(str(part).strip().lower() for part in listed) != ["c2p", "p2c"]:
        settings.require("pos_att_type", "c2p|p2c")
    hidden_size = settings.size("hidden_size")
    settings.require("embedding_size", hidden_size)
    settings.require("attention_head_size", hidden_size // settings.size("num_attention_heads"))
    longest = settings.size("max_position_embeddings", 512)
    farthest = settings.number("max_relative_positions", -1)
    farthest = longest if farthest < 1 else farthest
    if buckets >= farthest:
        raise UserError(
            f"{settings.source}: position_buckets={buckets} is not supported; it must be less "
            f"than the largest distance, {farthest}"
        )
    position = PositionConfig(
        absolute="added" if settings.flag("position_biased_input", True) else "none",
        relative="deberta_released",
        untie_cls=False,
        max_length=longest,
        relative_bins=farthest if buckets < 1 else buckets,
        max_distance=farthest,
    )
    segments = settings.number("type_vocab_size", 0)
    dropout = settings.real("hidden_dropout_prob", 0.1)
    return _encoder(
        settings,
        contents,
        position,
        default_eps=1e-7,
        classifier_dropout=settings.real("cls_dropout", dropout),
        segments=segments,
    )


def xlnet(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    """XLNet as an encoder: attention is bidirectional and has no memory.

    Sequences end with [CLS]. Hugging Face pads on the left, we pad on the right; with relative
    positions this makes no difference.
    """
    settings.require("attn_type", "bi")
    settings.require("bi_data", False)
    settings.require("clamp_len", -1)
    settings.require("same_length", False)
    settings.require("untie_r", True)
    common: dict[str, Any] = {
        "hidden_size": settings.size("d_model"),
        "num_hidden_layers": settings.size("n_layer"),
        "num_attention_heads": settings.size("n_head"),
        "intermediate_size": settings.size("d_inner"),
        "hidden_act": settings.text("ff_activation", "gelu"),
        "hidden_dropout_prob": settings.real("dropout", 0.1),
        "attention_probs_dropout_prob": settings.real("dropout", 0.1),
    }
    settings.require("d_head", common["hidden_size"] // common["num_attention_heads"])
    position = PositionConfig(absolute="none", relative="transformer_xl", untie_cls=False)
    return _encoder(
        JsonSettings({**settings.values, **common}, settings.source),
        contents,
        position,
        pad_id=settings.number("pad_token_id", 5),
        classifier_dropout=settings.real("summary_last_dropout", 0.1),
        embedding_norm=False,
        segment_attention=True,
        cls_last=True,
    )


def modernbert(settings: JsonSettings, contents: CheckpointContents) -> ModelConfig:
    settings = replace(
        settings,
        aliases={
            "hidden_act": "hidden_activation",
            "layer_norm_eps": "norm_eps",
            "hidden_dropout_prob": "mlp_dropout",
            "attention_probs_dropout_prob": "attention_dropout",
        },
    )
    has_bias = settings.flag("attention_bias", False)
    settings.require("mlp_bias", has_bias)
    if contents.masked_word_head:
        settings.require("classifier_bias", has_bias)
        settings.require("classifier_activation", settings.text("hidden_act", "gelu"))
        settings.require("decoder_bias", True)
    window, every = _windows(settings)
    position = _rope(
        settings,
        rope_base=_rope_base(settings, "full_attention", "global_rope_theta", 160_000.0),
        rope_local_base=_rope_base(settings, "sliding_attention", "local_rope_theta", 10_000.0),
    )
    return _encoder(
        settings,
        contents,
        position,
        pad_id=settings.number("pad_token_id", 50_283),
        default_dropout=0.0,
        default_eps=1e-5,
        norm_bias=settings.flag("norm_bias", False),
        linear_bias=has_bias,
        gated_mlp=True,
        pre_layer_norm=True,
        first_attention_norm=False,
        attention_window=window,
        attention_global_every=every,
    )


def _windows(settings: JsonSettings) -> tuple[int, int]:
    """The window, and the n for which every n-th layer attends to all tokens."""
    layers = settings.size("num_hidden_layers")
    every = settings.size("global_attn_every_n_layers", 3)
    kinds = settings.values.get("layer_types")

    def pattern(every: int) -> list[str]:
        return ["sliding_attention" if i % every else "full_attention" for i in range(layers)]

    if kinds is not None and kinds != pattern(every):
        every = next((n for n in range(1, layers + 1) if kinds == pattern(n)), 0)
        if not every:
            raise UserError(
                f"{settings.source}: layer_types={kinds!r} is not supported; every n-th "
                "layer, beginning with the first, should be full_attention"
            )
    window = settings.size("local_attention", 128)
    if window < 2:
        raise UserError(f"{settings.source}: local_attention={window} should be at least 2")
    # `transformers` also rounds an odd window down.
    return (0, 3) if every == 1 else (window // 2 * 2, every)


def _rope_base(settings: JsonSettings, kind: str, old_name: str, default: float) -> float:
    """The base of RoPE for a kind of layer, from current or older names of settings."""
    settings.require("rope_scaling", None)
    parameters = settings.values.get("rope_parameters")
    if not isinstance(parameters, dict) or not isinstance(parameters.get(kind), dict):
        return settings.real(old_name, default)
    of_kind = JsonSettings(parameters[kind], f"{settings.source}: rope_parameters.{kind}")
    of_kind.require("rope_type", "default")
    return of_kind.real("rope_theta", default)


def _rope(settings: JsonSettings, **options: float) -> PositionConfig:
    return PositionConfig(
        absolute="none",
        relative="rope",
        untie_cls=False,
        max_length=settings.size("max_position_embeddings", 512),
        options=options,
    )


def _added(settings: JsonSettings, offset: int = 0, **relative: Any) -> PositionConfig:
    """Learned positions at the input; the first `offset` rows of the table are unused."""
    settings.require("position_embedding_type", "absolute")
    return PositionConfig(
        absolute="added",
        untie_cls=False,
        max_length=settings.size("max_position_embeddings", 512) - offset,
        **{"relative": "none", **relative},
    )


def _segments(settings: JsonSettings) -> int:
    return settings.number("type_vocab_size", 2)


def _encoder(
    settings: JsonSettings,
    contents: CheckpointContents,
    position: PositionConfig,
    *,
    pad_id: int | None = None,
    default_activation: str = "gelu",
    default_dropout: float = 0.1,
    default_eps: float = 1e-12,
    classifier_dropout: float | None = None,
    **others: Any,
) -> ModelConfig:
    """The settings that have the same name in all model types."""
    settings.require("is_decoder", False)
    settings.require("add_cross_attention", False)
    activation = settings.text("hidden_act", default_activation)
    if activation not in ACTIVATIONS:
        settings.require("hidden_act", *ACTIVATIONS)
    dropout = settings.real("hidden_dropout_prob", default_dropout)
    if classifier_dropout is None:
        classifier_dropout = settings.real("classifier_dropout", dropout)
    return ModelConfig(
        vocab_size=settings.size("vocab_size"),
        hidden_size=settings.size("hidden_size"),
        num_layers=settings.size("num_hidden_layers"),
        num_heads=settings.size("num_attention_heads"),
        mlp_size=settings.size("intermediate_size"),
        layer_norm_eps=settings.real("layer_norm_eps", default_eps),
        dropout=dropout,
        attention_dropout=settings.real("attention_probs_dropout_prob", default_dropout),
        classifier_dropout=classifier_dropout,
        activation=ACTIVATIONS[activation],
        pad_id=settings.number("pad_token_id", 0) if pad_id is None else pad_id,
        sep_id=contents.sep_id,
        masked_word_head=contents.masked_word_head,
        replaced_token_head=contents.replaced_token_head,
        output_embedding_size=contents.output_embedding_size,
        next_sentence_head=contents.next_sentence_head,
        pooler=contents.pooler,
        position=position,
        **others,
    )


CONFIGS: Mapping[str, Callable[[JsonSettings, CheckpointContents], ModelConfig]] = {
    "bert": bert,
    "roberta": roberta,
    "electra": electra,
    "albert": albert,
    "mpnet": mpnet,
    "deberta": deberta,
    "deberta-v2": deberta_v2,
    "xlnet": xlnet,
    "modernbert": modernbert,
}
