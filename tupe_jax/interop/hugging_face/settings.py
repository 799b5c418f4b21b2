"""`config.json` of a model type -> ModelConfig. What we could not follow exactly is refused."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tupe_jax.config.schema import Activation, ModelConfig, PositionConfig
from tupe_jax.utils.errors import UserError

ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


@dataclass(frozen=True)
class Settings:
    """A `config.json`, with the values that a model type has where the file is silent."""

    values: Mapping[str, Any]
    source: str
    """Named in complaints."""

    def get(self, name: str, default: Any = None) -> Any:
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

    def _typed(self, name: str, default: Any, wanted: str, *types: type) -> Any:
        value = self.get(name, default)
        if type(value) not in types:  # to isinstance, True is a number
            raise UserError(f"{self.source}: {name}={value!r} should be {wanted}")
        return value

    def require(self, name: str, *allowed: Any) -> None:
        """Refuse a value that is not one of these; the first is that of a silent file."""
        value = self.values.get(name)
        value = allowed[0] if value is None else value
        if value not in allowed:
            known = " or ".join(repr(one) for one in allowed)
            raise UserError(f"{self.source}: {name}={value!r} is not supported, only {known}")


@dataclass(frozen=True)
class Found:
    """What the other files of the folder tell."""

    pooler: bool
    masked_word_head: bool
    sep_id: int
    no_segments: bool = False
    """None at the input, whatever the config says."""


def model_config(kind: str, settings: Settings, found: Found) -> ModelConfig:
    """Our settings of a model of one of the known kinds; whatever is odd is one line."""
    # Values that do not go together are found by ModelConfig, which knows of no file.
    with naming(settings.source):
        return CONFIGS[kind](settings, found)


@contextlib.contextmanager
def naming(source: str) -> Iterator[None]:
    """Complaints of those who know of no file begin with its name."""
    try:
        yield
    except UserError as error:
        told = str(error)
        raise UserError(told if told.startswith(source) else f"{source}: {told}") from None


def bert(settings: Settings, found: Found) -> ModelConfig:
    """BERT, and what is built alike: StructBERT, MiniLM."""
    segments = 0 if found.no_segments else _segments(settings)
    return _encoder(settings, found, _added(settings), segments=segments)


def roberta(settings: Settings, found: Found) -> ModelConfig:
    """Its head for masked words has the exact GELU whatever the layers have.

    Its tokenizer tells no segments: all words are of the first, however many the table has.
    """
    settings.require("hidden_act", "gelu")
    pad_id = settings.number("pad_token_id", 1)
    position = _added(settings, offset=pad_id + 1)
    return _encoder(settings, found, position, pad_id=pad_id, segments=1)


def electra(settings: Settings, found: Found) -> ModelConfig:
    if found.masked_word_head:
        settings.require("hidden_act", "gelu")
    size = settings.size("embedding_size", 128)
    return _encoder(
        settings,
        found,
        _added(settings),
        segments=_segments(settings),
        embedding_size=0 if size == settings.size("hidden_size") else size,
    )


def albert(settings: Settings, found: Found) -> ModelConfig:
    settings.require("num_hidden_groups", 1)
    settings.require("inner_group_num", 1)
    return _encoder(
        settings,
        found,
        _added(settings),
        default_activation="gelu_new",
        default_dropout=0.0,
        classifier_dropout=settings.real("classifier_dropout_prob", 0.1),
        segments=_segments(settings),
        embedding_size=settings.size("embedding_size", 128),
        share_layers=True,
    )


def mpnet(settings: Settings, found: Found) -> ModelConfig:
    """Positions added at the input, and T5's bias with its 32 buckets up to distance 128."""
    settings.require("hidden_act", "gelu")
    settings.require("relative_attention_num_buckets", 32)
    # It takes its positions to begin after token 1, and pads with it, whatever is set.
    settings.require("pad_token_id", 1)
    position = _added(settings, offset=2, relative="t5", relative_bins=32, max_distance=128)
    return _encoder(settings, found, position, pad_id=1)


def deberta(settings: Settings, found: Found) -> ModelConfig:
    """Version 1."""
    settings.require("talking_head", False)
    return _disentangled(settings, found, buckets=-1)


def deberta_v2(settings: Settings, found: Found) -> ModelConfig:
    """Versions 2 and 3."""
    settings.require("conv_kernel_size", 0)
    settings.require("norm_rel_ebd", "none", "layer_norm")
    return _disentangled(settings, found, buckets=settings.number("position_buckets", -1))


def _disentangled(settings: Settings, found: Found, buckets: int) -> ModelConfig:
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
            f"{settings.source}: position_buckets={buckets} is not supported, only fewer than the "
            f"distances, {farthest}"
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
        found,
        position,
        default_eps=1e-7,
        classifier_dropout=settings.real("cls_dropout", dropout),
        segments=segments,
    )


def xlnet(settings: Settings, found: Found) -> ModelConfig:
    """Used as an encoder: all words see each other, and nothing is remembered.

    Its rows end with [CLS]. They are padded on the left there, on the right here: to relative
    positions that is the same.
    """
    settings.require("attn_type", "bi")
    settings.require("bi_data", False)
    settings.require("clamp_len", -1)
    settings.require("same_length", False)
    settings.require("untie_r", True)
    usual: dict[str, Any] = {
        "hidden_size": settings.size("d_model"),
        "num_hidden_layers": settings.size("n_layer"),
        "num_attention_heads": settings.size("n_head"),
        "intermediate_size": settings.size("d_inner"),
        "hidden_act": settings.text("ff_activation", "gelu"),
        "hidden_dropout_prob": settings.real("dropout", 0.1),
        "attention_probs_dropout_prob": settings.real("dropout", 0.1),
    }
    settings.require("d_head", usual["hidden_size"] // usual["num_attention_heads"])
    position = PositionConfig(absolute="none", relative="transformer_xl", untie_cls=False)
    return _encoder(
        Settings({**settings.values, **usual}, settings.source),
        found,
        position,
        pad_id=settings.number("pad_token_id", 5),
        classifier_dropout=settings.real("summary_last_dropout", 0.1),
        embedding_norm=False,
        segment_attention=True,
        cls_last=True,
    )


def _added(settings: Settings, offset: int = 0, **relative: Any) -> PositionConfig:
    """Learned positions at the input; the first `offset` rows of the table belong to no word."""
    settings.require("position_embedding_type", "absolute")
    return PositionConfig(
        absolute="added",
        untie_cls=False,
        max_length=settings.size("max_position_embeddings", 512) - offset,
        **{"relative": "none", **relative},
    )


def _segments(settings: Settings) -> int:
    return settings.number("type_vocab_size", 2)


def _encoder(
    settings: Settings,
    found: Found,
    position: PositionConfig,
    *,
    pad_id: int | None = None,
    default_activation: str = "gelu",
    default_dropout: float = 0.1,
    default_eps: float = 1e-12,
    classifier_dropout: float | None = None,
    **others: Any,
) -> ModelConfig:
    """What all types call alike."""
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
        sep_id=found.sep_id,
        masked_word_head=found.masked_word_head,
        pooler=found.pooler,
        position=position,
        **others,
    )


CONFIGS: Mapping[str, Callable[[Settings, Found], ModelConfig]] = {
    "bert": bert,
    "roberta": roberta,
    "electra": electra,
    "albert": albert,
    "mpnet": mpnet,
    "deberta": deberta,
    "deberta-v2": deberta_v2,
    "xlnet": xlnet,
}
