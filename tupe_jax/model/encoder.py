"""The Transformer encoder: token embedding, positional terms once, layers, hidden states."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from tupe_jax.config.schema import ModelConfig
from tupe_jax.distributed.sharding_rules import constrain
from tupe_jax.model.attention import AttentionInputs, SelfAttention, segment_BxS
from tupe_jax.model.attention_backend import attention_choices, platform_here, unrolls_layers
from tupe_jax.model.layers import (
    ACTIVATIONS,
    Axis,
    Linear,
    Weight,
    dropout,
    make_norm,
    normal,
    split_key,
)
from tupe_jax.model.positions import SharedPositions
from tupe_jax.utils.errors import UserError

_PRODUCTS = ("dot_general", "dot_product_attention_fwd_wrapper")
"""The primitives that multiply matrices: XLA's, and cuDNN's attention. Our kernels name what they
compute."""


def _is_product(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name in _PRODUCTS


_policies = jax.checkpoint_policies
REMAT_POLICIES: Mapping[str, Callable[..., Any]] = {
    # Repeat no product: keep their results, and the arrays that `checkpoint_name` marks.
    "none": _policies.save_from_both_policies(_is_product, _policies.save_any_names_but_these()),
    "dots": _policies.dots_saveable,  # repeat what a fused kernel computes
    # repeat attention (its products have batch dimensions), keep the projections
    "projections": _policies.dots_with_no_batch_dims_saveable,
    "full": _policies.nothing_saveable,  # keep layer inputs only: least memory
}
"""What the backward pass keeps of a layer. Under every policy it computes elementwise functions
again: norms, activations, dropout, softmax."""


class Layer(nnx.Module):
    """Attention and MLP, each with dropout, residual and norm. The norm is after or before it."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        embed, mlp = Axis("embed", config.hidden_size), Axis("mlp", config.mlp_size)
        linear = partial(Linear, dtype=config.dtype, rngs=rngs, use_bias=config.linear_bias)
        self.config = config
        self.attention = SelfAttention(config, rngs=rngs)
        self.attention_norm = make_norm(config, embed, rngs=rngs)
        self.mlp_in = linear([embed], [mlp])
        self.mlp_gate = linear([embed], [mlp]) if config.gated_mlp else None
        self.mlp_out = linear([mlp], [embed])
        self.mlp_norm = make_norm(config, embed, rngs=rngs)

    def __call__(
        self,
        x_BxSxD: jax.Array,
        shared: AttentionInputs,
        key: jax.Array | None,
        index: jax.Array | int,
    ) -> jax.Array:
        """The output of this layer, which has the given index in its encoder."""
        attention_key, *residual_keys = split_key(key, 3)

        def attend(x: jax.Array) -> jax.Array:
            return self.attention(x, shared, attention_key)

        x = self._residual(x_BxSxD, attend, self._attention_norm(index), residual_keys[0])
        return self._residual(x, self._mlp, self.mlp_norm, residual_keys[1])

    def attention_weights(
        self, x_BxSxD: jax.Array, shared: AttentionInputs, index: jax.Array | int
    ) -> jax.Array:
        """Softmaxed attention for this input of the layer, [B, H, S, S]."""
        if self.config.pre_layer_norm:
            x_BxSxD = self._attention_norm(index)(x_BxSxD)
        return self.attention.weights_and_values(x_BxSxD, shared)[0]

    def _mlp(self, x_BxSxD: jax.Array) -> jax.Array:
        activation = ACTIVATIONS[self.config.activation]
        hidden_BxSxF = constrain(self.mlp_in(x_BxSxD), "batch", None, "mlp")
        if self.mlp_gate is None:
            return self.mlp_out(activation(hidden_BxSxF))
        gate_BxSxF = constrain(self.mlp_gate(x_BxSxD), "batch", None, "mlp")
        return self.mlp_out(activation(gate_BxSxF) * hidden_BxSxF)

    def _attention_norm(self, index: jax.Array | int) -> Callable[[jax.Array], jax.Array]:
        if self.config.first_attention_norm:
            return self.attention_norm
        return lambda x: jnp.where(index == 0, x, self.attention_norm(x))

    def _residual(
        self,
        x: jax.Array,
        branch: Callable[[jax.Array], jax.Array],
        norm: Callable[[jax.Array], jax.Array],
        key: jax.Array | None,
    ) -> jax.Array:
        def in_branch(x: jax.Array) -> jax.Array:
            """Devices that split heads hold whole sequences here, and parts of them outside."""
            out = branch(constrain(x, "batch", None, None))
            return dropout(constrain(out, "batch", "length", None), self.config.dropout, key)

        pre = self.config.pre_layer_norm
        # The backward pass keeps the sum instead of the branch's output.
        total: jax.Array = checkpoint_name(x + in_branch(norm(x) if pre else x), "residual")
        return total if pre else norm(total)


class Encoder(nnx.Module):
    """Tokens to hidden states. Dropout is on when a random key is given, and only then."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        def embedding(key: jax.Array, shape: Any) -> jax.Array:
            return normal(key, shape).at[config.pad_id].set(0)

        self.config = config
        size = config.hidden_size
        word = Axis("embed", config.word_size)
        self.word_embedding = Weight(
            (config.vocab_size, word.size), ("vocab", "embed"), embedding
        ).create(rngs)
        self.segment_embedding = (
            Weight((config.segments, word.size), (None, "embed")).create(rngs)
            if config.segments
            else None
        )
        self.embedding_norm = make_norm(config, word, rngs=rngs) if config.embedding_norm else None
        self.embedding_projection = (
            Linear([word], [Axis(None, size)], dtype=config.dtype, rngs=rngs)
            if config.embedding_size
            else None
        )
        self.positions = SharedPositions(config, rngs=rngs)
        self.layers = _stacked_layers(config, rngs)
        self.final_norm = (
            make_norm(config, Axis("embed", size), rngs=rngs) if config.pre_layer_norm else None
        )

    def __call__(
        self,
        tokens_BxS: jax.Array,
        *,
        segments_BxS: jax.Array | None = None,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """The last hidden states, [B, S, D]. Without `segments_BxS`, each [SEP] ends a segment."""
        return self._forward(tokens_BxS, key, keep_all=False, segments_BxS=segments_BxS)[0]

    def hidden_states(self, tokens_BxS: jax.Array) -> list[jax.Array]:
        """The input of the first layer and the output of every layer, the last one normalized."""
        last, inputs = self._forward(tokens_BxS, None, keep_all=True)
        return [*inputs, last]

    def attention_weights(self, tokens_BxS: jax.Array) -> jax.Array:
        """The attention weights of every layer, [L, B, H, S, S], float32."""
        _, inputs_LxBxSxD = self._forward(tokens_BxS, None, keep_all=True)
        shared = self.shared_inputs(tokens_BxS)
        graph, stacked = self._layer_weights()

        def weights(_: None, layer: Any, window: int) -> tuple[None, jax.Array]:
            index, layer_weights, x_BxSxD = layer
            module = nnx.merge(graph, layer_weights)
            return None, module.attention_weights(x_BxSxD, shared[window], index)

        layers = jnp.arange(self.config.num_layers), stacked, inputs_LxBxSxD
        weights_LxBxHxSxS: jax.Array = scan_layers(self.config.windows, weights, None, layers)[1]
        return weights_LxBxHxSxS

    def shared_inputs(
        self, tokens_BxS: jax.Array, segments_BxS: jax.Array | None = None
    ) -> dict[int, AttentionInputs]:
        """The inputs of attention besides the hidden states, for each window in use.

        They are computed once and used by all layers with the same window.
        """
        config, positions, length = self.config, self.positions, tokens_BxS.shape[1]
        in_factors = {
            window: choice.takes_factors
            for window, choice in attention_choices(config, platform_here(), length).items()
        }
        biases = {
            factored: (positions.factored_bias if factored else positions.bias_HxSxS)(length)
            for factored in dict.fromkeys(in_factors.values())
        }
        segment_BxS = (
            self._segment_BxS(tokens_BxS, segments_BxS) if config.segment_attention else None
        )
        return {
            window: AttentionInputs(
                is_token_BxS=tokens_BxS != config.pad_id,
                bias=biases[factored],
                once=positions.once(length, local=window > 0),
                segment_BxS=segment_BxS,
                window=window,
            )
            for window, factored in in_factors.items()
        }

    def embed(
        self,
        tokens_BxS: jax.Array,
        *,
        segments_BxS: jax.Array | None = None,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Token embedding (and added positions), normalized; zero at padding."""
        x = self.tokens_and_segments(tokens_BxS, segments_BxS)
        added_SxD = self.positions.input_SxD(tokens_BxS.shape[1])
        if added_SxD is not None:
            x = x + added_SxD
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        x = dropout(x, self.config.dropout, key)
        if self.embedding_projection is not None:
            x = self.embedding_projection(x.astype(self.config.dtype))
        x = jnp.where((tokens_BxS != self.config.pad_id)[..., None], x, 0)
        return x.astype(self.config.dtype)

    def tokens_and_segments(
        self, tokens_BxS: jax.Array, segments_BxS: jax.Array | None = None
    ) -> jax.Array:
        """The input without positions, [B, S, D]."""
        x = self._look_up(tokens_BxS)
        if self.config.mask_dropout:
            x = self._without_masks(x, tokens_BxS)
        if self.segment_embedding is None:
            return x
        found_BxS = self._segment_BxS(tokens_BxS, segments_BxS)
        kind_BxS = jnp.minimum(found_BxS, self.config.segments - 1)
        return x + self.segment_embedding[...][kind_BxS]

    def _segment_BxS(self, tokens_BxS: jax.Array, given_BxS: jax.Array | None) -> jax.Array:
        return segment_BxS(tokens_BxS, self.config.sep_id) if given_BxS is None else given_BxS

    def _without_masks(self, x_BxSxD: jax.Array, tokens_BxS: jax.Array) -> jax.Array:
        """Zeros at [MASK]; the rest is scaled to the expected size in training, as for dropout."""
        is_mask_BxS = tokens_BxS == self.config.mask_id
        is_token_BxS = tokens_BxS != self.config.pad_id
        seen_B = jnp.maximum((is_token_BxS & ~is_mask_BxS).sum(1), 1)  # there may be none
        scale_B = (1 - self.config.mask_dropout) * is_token_BxS.sum(1) / seen_B
        scale_Bx1x1 = scale_B[:, None, None]
        return jnp.where(is_mask_BxS[..., None], 0, x_BxSxD * scale_Bx1x1)

    def _look_up(self, tokens_BxS: jax.Array) -> jax.Array:
        """The embedding of each token, [B, S, D]; NaN for a token id outside the table.

        Under jit, NaN is the only way to report it. As an unsigned number a negative id is outside
        too; as a signed one it would count from the end.
        """
        ids_BxS = constrain(jnp.asarray(tokens_BxS, jnp.uint32), "replica", None)
        x = jnp.take(self.word_embedding[...], ids_BxS, axis=0, mode="clip")
        # The table stays sharded: each device looks up the tokens and features that it holds, the
        # sum over the vocabulary is scattered along the length, and features are exchanged for
        # sequences last. Without these constraints the compiler gathers the whole table, or even
        # the whole batch.
        x = constrain(x, "replica", None, "embed")
        x = constrain(x, "replica", "length", "embed")
        x = constrain(x, "batch", "length", None)
        return jnp.where(ids_BxS[..., None] < self.config.vocab_size, x, jnp.nan)

    def _layer_weights(self) -> tuple[Any, Any]:
        """The graph of a layer, and the weights of all with a leading axis."""
        graph, stacked = nnx.split(self.layers)
        if self.config.share_layers:
            count = self.config.num_layers
            stacked = jax.tree.map(lambda w: jnp.broadcast_to(w, (count, *w.shape[1:])), stacked)
        return graph, stacked

    def _forward(
        self,
        tokens_BxS: jax.Array,
        key: jax.Array | None,
        *,
        keep_all: bool,
        segments_BxS: jax.Array | None = None,
    ) -> tuple[jax.Array, Any]:
        """The last hidden states and, with `keep_all`, the inputs of all layers."""
        check_ids(
            tokens_BxS, "token id", "the vocabulary: model.vocab_size", self.config.vocab_size
        )
        self.positions.check_length(tokens_BxS.shape[1])
        embedding_key, layers_key = split_key(key, 2)
        shared = self.shared_inputs(tokens_BxS, segments_BxS)
        graph, stacked = self._layer_weights()

        def step(x: jax.Array, layer: Any, window: int) -> tuple[jax.Array, Any]:
            index, weights = layer
            layer_key = None if layers_key is None else jax.random.fold_in(layers_key, index)
            module = nnx.merge(graph, weights)
            return module(x, shared[window], layer_key, index), x if keep_all else None

        remat = self.config.remat
        unroll = unrolls_layers(self.config, platform_here())
        windows = self.config.windows
        # In a loop the compiler cannot undo the recomputation; unrolled, it needs barriers, as do
        # the layers of a group.
        barriers = unroll or period(windows) > 1
        # Of unrolled layers the compiler can choose what to keep, in a loop it has to keep whatever
        # the backward pass reads.
        if remat != "none" or not unroll:
            step = jax.checkpoint(
                step, policy=REMAT_POLICIES[remat], prevent_cse=barriers, static_argnums=2
            )
        x, inputs = scan_layers(
            windows,
            step,
            self.embed(tokens_BxS, segments_BxS=segments_BxS, key=embedding_key),
            (jnp.arange(self.config.num_layers), stacked),
            unroll=unroll,
        )
        return x if self.final_norm is None else self.final_norm(x), inputs


def period(windows: Sequence[int]) -> int:
    """After how many layers the windows repeat."""
    layers = range(len(windows))
    return next(
        n for n in range(1, len(windows) + 1) if all(windows[i] == windows[i % n] for i in layers)
    )


def scan_layers(
    windows: Sequence[int],
    step: Callable[[Any, Any, int], tuple[Any, Any]],
    x: Any,
    layers: Any,
    *,
    unroll: bool = False,
) -> tuple[Any, Any]:
    """`jax.lax.scan` of step(x, layer, window) over layers whose windows alternate.

    The scan is over groups of layers. Within a group every window is a constant, so each layer is
    compiled for its window. The layers after the last whole group follow one by one.
    """
    size = period(windows)
    groups, rest = divmod(len(windows), size)
    if size == 1:
        return jax.lax.scan(lambda x, layer: step(x, layer, windows[0]), x, layers, unroll=unroll)

    def group(x: Any, members: Any) -> tuple[Any, Any]:
        outputs = []
        for n in range(size):
            x, output = step(x, jax.tree.map(lambda a, n=n: a[n], members), windows[n])
            outputs.append(output)
        return x, jax.tree.map(lambda *parts: jnp.stack(parts), *outputs)

    whole = jax.tree.map(lambda a: a[: groups * size].reshape(groups, size, *a.shape[1:]), layers)
    x, outputs = jax.lax.scan(group, x, whole, unroll=unroll)
    parts = [jax.tree.map(lambda a: a.reshape(groups * size, *a.shape[2:]), outputs)]
    for i in range(groups * size, groups * size + rest):
        x, output = step(x, jax.tree.map(lambda a, i=i: a[i], layers), windows[i])
        parts.append(jax.tree.map(lambda a: a[None], output))
    return x, jax.tree.map(lambda *parts: jnp.concatenate(parts), *parts)


def _stacked_layers(config: ModelConfig, rngs: nnx.Rngs) -> Layer:
    """All layers as one module whose weights have a leading axis `layers`: of 1 if shared."""

    @nnx.split_rngs(splits=1 if config.share_layers else config.num_layers)
    @nnx.vmap(transform_metadata={nnx.PARTITION_NAME: None, "axes": "layers"})
    def create(rngs: nnx.Rngs) -> Layer:
        return Layer(config, rngs=rngs)

    layers: Layer = create(rngs)
    return layers


def check_ids(ids_BxN: jax.Array, what: str, of: str, count: int) -> None:
    """Raise unless this is a batch of ids below `count`; under jit, values cannot be checked."""
    if not hasattr(ids_BxN, "ndim") or ids_BxN.ndim != 2 or ids_BxN.dtype.kind not in "iu":
        kind, shape = getattr(ids_BxN, "dtype", type(ids_BxN).__name__), np.shape(ids_BxN)
        raise UserError(
            f"{what}s must be an array of integers of shape [batch, length], "
            f"not {kind} of shape {list(shape)}"
        )
    if isinstance(ids_BxN, jax.core.Tracer) or not ids_BxN.size:
        return
    if isinstance(ids_BxN, jax.Array) and not ids_BxN.is_fully_addressable:
        return
    values = np.asarray(ids_BxN)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= count:
        raise UserError(f"{what} {low if low < 0 else high} is outside {of}={count}")
