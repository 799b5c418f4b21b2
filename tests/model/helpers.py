"""Small models whose every weight matters."""

import dataclasses

import jax
import numpy as np
from flax import nnx

from tupe_jax.config.schema import POSITION_VARIANTS, ModelConfig
from tupe_jax.interop.model_folder import NO_METADATA, write_folder
from tupe_jax.model import attention, attention_backend, encoder
from tupe_jax.model.params import arrays_of, model_from, param_shapes

VARIANTS = sorted(POSITION_VARIANTS)


def small_config(variant="tupe_r", **settings):
    """3 layers, 4 heads of 4; distances are clipped and bucketed within a dozen words."""
    position = dataclasses.replace(
        POSITION_VARIANTS[variant], max_length=20, relative_bins=8, max_distance=6
    )
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_layers": 3, "num_heads": 4, "mlp_size": 24}
    return ModelConfig(**{**sizes, "position": position, **settings})


def with_position(config, **changes):
    return dataclasses.replace(config, position=dataclasses.replace(config.position, **changes))


def spread_model(config, seed=0, heads=None):
    """A model with weights far wider than at the start, so that no term is negligible."""
    rng = np.random.default_rng(seed)
    params = {
        path: ("scale" in path[-1]) + 0.3 * rng.standard_normal(shape, np.float32)
        for path, shape in sorted(param_shapes(config, heads or {}).items())
    }
    return model_from(config, params)


def save_folder(model, folder, tokenizer=None, metadata=NO_METADATA):
    """Write a module to a model folder, with the content of a tokenizer's file."""
    params = arrays_of(model)
    write_folder(folder, model.config, params, tokenizer=tokenizer, metadata=metadata)


def reconfigured(model, **changes):
    """The same weights under changed settings."""
    return model_from(dataclasses.replace(model.config, **changes), arrays_of(model))


def random_tokens(rows=2, length=13, vocab=50, padded=3, seed=0):
    tokens = np.random.default_rng(seed).integers(1, vocab, (rows, length))
    if padded:
        tokens[-1, -padded:] = 0
    return tokens


def attention_weights(model, tokens, layer=0):
    """Softmaxed attention of one layer, [B, H, S, S]."""

    @nnx.jit
    def weights(encoder, tokens):
        return encoder.attention_weights(tokens)[layer]

    return np.asarray(weights(model.encoder, tokens))


def one_layer(layers, i):
    """Layer i of the stack, as a module of its own."""
    graph, stacked = nnx.split(layers)
    return nnx.merge(graph, jax.tree.map(lambda a: a[i], stacked))


def position_bias(model, length):
    """The bias all layers share or, where each has its own, that of layer 1: [H, S, S]."""

    @nnx.jit
    def bias(encoder):
        shared = encoder.positions.bias_HxSxS(length)
        own = one_layer(encoder.layers, 1).attention.positions.bias_HxSxS(length)
        return own if shared is None else shared

    return np.asarray(bias(model.encoder))


@nnx.jit
def logits(model, tokens):
    return model(tokens)


@nnx.jit
def hidden_states(model, tokens):
    return model.hidden_states(tokens)


def as_on_gpus(monkeypatch):
    """Models as on GPUs, with interpreted kernels; also in float32, so that errors show."""
    for module in (attention, encoder):
        monkeypatch.setattr(module, "platform_here", lambda: "gpu")
    monkeypatch.setattr(attention_backend, "_obstacle_on_gpus", lambda config: None)
