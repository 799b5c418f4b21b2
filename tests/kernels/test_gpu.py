"""What only the kernels for GPUs must keep: programs run in any order, and each owns its blocks."""

import itertools
import math
from functools import partial

import jax
import numpy as np
import pytest

from tests.kernels.cases import (
    SEED,
    is_token,
    largest_difference,
    numbers,
    output_and_gradients,
    qkv,
)
from tupe_jax.kernels import gpu, gpu_kernels
from tupe_jax.kernels.reference import attention

SETTINGS = {"scale": 0.1, "rate": 0.1}


def with_gradients(attend, B, S, H, d):
    return output_and_gradients(
        lambda *x: attend(*x, is_token(B, S), SEED, **SETTINGS),
        *qkv(B, S, H, d),
        numbers((H, S, S), 9),
    )


def test_the_bias_gradient_is_summed_within_and_over_parts_of_the_batch(monkeypatch):
    sizes = 4, 70, 1, 16
    monkeypatch.setattr(gpu_kernels, "ENOUGH_PROGRAMS", 5)
    assert gpu.settings_for(*sizes, **SETTINGS).bias_gradient_parts == 2
    ours, expected = (with_gradients(f, *sizes) for f in (gpu.gpu_attention, attention))
    assert largest_difference(ours, expected) < 1e-5


@pytest.mark.parametrize(
    ("batch", "length", "num_heads", "parts"),
    [
        (64, 512, 12, 1),  # 768 programs
        (64, 512, 4, 2),
        (60, 512, 4, 3),  # rather more programs than wanted than fewer
        (61, 512, 4, 1),  # no divisor but 61
        (64, 64, 4, 16),  # 4 programs; 64 parts would take as much memory as the scores
        (8, 64, 4, 8),
    ],
)
def test_the_bias_gradient_has_few_parts(batch, length, num_heads, parts):
    settings = gpu.settings_for(batch, length, num_heads, 64, **SETTINGS)
    assert settings.bias_gradient_parts == parts


@pytest.mark.parametrize("head_size", [64, 128])
@pytest.mark.parametrize("enough", [1, 10**6])
@pytest.mark.parametrize("window", [0, 16])
def test_each_block_of_an_output_is_written_by_one_program(monkeypatch, head_size, enough, window):
    """Interpreting runs the programs in turn, so a race would not show in the values."""
    monkeypatch.setattr(gpu_kernels, "ENOUGH_PROGRAMS", enough)
    calls, run = {}, gpu.pl.pallas_call

    def record(kernel, **settings):
        calls[settings["name"]] = settings
        return run(kernel, **settings)

    monkeypatch.setattr(gpu.pl, "pallas_call", record)
    attend = partial(gpu.gpu_attention, window=window)
    jax.eval_shape(lambda: with_gradients(attend, 2, 130, 3, head_size))
    assert calls.keys() == {f"gpu_attention_{of}" for of in ("forward", "dq", "dkv", "dbias")}
    for call in calls.values():
        for spec, output in zip(call["out_specs"], call["out_shape"], strict=True):
            programs = itertools.product(*map(range, call["grid"]))
            written = [tuple(map(int, spec.index_map(*program))) for program in programs]
            blocks = [
                size // (1 if block is None else block)
                for size, block in zip(output.shape, spec.block_shape, strict=True)
            ]
            assert len(written) == len(set(written)) == math.prod(blocks)
            assert set(written) == set(np.ndindex(*blocks))
