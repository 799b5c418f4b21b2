"""The arithmetic of the model, counted from its shapes: what a perfect implementation must do.

Matrix products only, a multiply-add being two operations. Softmax, LayerNorm, GELU, dropout and
RoPE's rotations are left out, as is usual: on accelerators other units do them. Neither recomputed
activations (`remat`) nor padding to tiles count, so a share of the peak computed from these numbers
is model FLOPs utilisation (MFU).
"""

from tupe_jax.config.schema import ModelConfig


def flops_per_token(config: ModelConfig, length: int, scored_share: float, *, rows: int) -> float:
    """Forward FLOPs per token of a pass over `rows` rows of `length` tokens.

    `scored_share` of the positions have words predicted. `rows` matters little: the position terms
    that no word enters are computed once per pass, and shared by its rows.
    """
    D, E, V = config.hidden_size, config.word_size, config.vocab_size
    head = 2 * D * E + 2 * E * V
    projection = 2 * E * D if config.embedding_size else 0
    shared = _positions_per_pass(config, length) / (rows * length)
    layers = config.num_layers * _layer(config, length)
    return projection + layers + scored_share * head + shared


def training_flops_per_token(
    config: ModelConfig, length: int, scored_share: float, *, rows: int
) -> float:
    """Forward and backward: each product has two more, one for the gradient of each factor."""
    return 3 * flops_per_token(config, length, scored_share, rows=rows)


def recomputed_flops_per_token(config: ModelConfig, length: int, *, by_kernel: bool) -> float:
    """Products that the backward pass does once more, by `model.remat`; no part of MFU.

    Attention `by_kernel` is no matrix product to JAX, so that "dots" does not keep its output.
    """
    attention = 2 * (2 * length * config.hidden_size) + _positions_per_layer(config, length)
    again = {
        "none": 0.0,
        "dots": attention if by_kernel else 0.0,
        "projections": attention,
        "full": _layer(config, length),
    }
    return config.num_layers * again[config.remat]


def attention_flops_per_token(config: ModelConfig, length: int) -> float:
    """Forward FLOPs per token of one layer's attention, its projections included."""
    D = config.hidden_size
    projections = 2 * D * (3 * D) + 2 * D * D
    scores_and_values = 2 * (2 * length * D)
    return projections + scores_and_values + _positions_per_layer(config, length)


def _layer(config: ModelConfig, length: int) -> float:
    """Per token."""
    mlp = 2 * (2 * config.hidden_size * config.mlp_size)
    return attention_flops_per_token(config, length) + mlp


def _positions_per_layer(config: ModelConfig, length: int) -> int:
    """Per token: each query (and key) meets a vector for every distance -(S-1) .. S-1."""
    distances = 2 * length - 1
    products = {"shaw": 1, "transformer_xl": 1, "deberta": 2, "deberta_released": 2}
    return products.get(config.position.relative, 0) * 2 * distances * config.hidden_size


def _positions_per_pass(config: ModelConfig, length: int) -> int:
    """What depends on positions alone."""
    D = config.hidden_size
    total = 0
    if config.position.absolute in ("untied", "mixed"):
        total += 2 * (2 * length * D * D)  # p U^Q and p U^K
    if config.position.absolute == "untied":
        total += 2 * length * length * D  # their product
        if config.position.untie_cls:
            total += 2 * (2 * 2 * D * D) + 2 * 2 * D  # the same for the two p_theta
    if config.position.relative == "transformer_xl":
        total += config.num_layers * 2 * (2 * length - 1) * D * D  # R W^R
    tables = {
        "deberta": config.position.max_distance,
        "deberta_released": config.position.relative_bins,
    }
    if rows := 2 * tables.get(config.position.relative, 0):
        total += config.num_layers * 2 * (2 * rows * D * D)  # r W^{K,r} and r W^{Q,r}
    return total
