"""Measurements in full float32, on every platform."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def full_precision(measure: Callable[P, R]) -> Callable[P, R]:
    """Let all products of float32 matrices in a function be float32 products.

    By default JAX multiplies them in bfloat16 on TPUs and in TF32 on recent GPUs. Numbers that
    should be equal then differ by more than what is measured.
    """

    @functools.wraps(measure)
    def measured(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_matmul_precision("highest"):
            return measure(*args, **kwargs)

    return measured
