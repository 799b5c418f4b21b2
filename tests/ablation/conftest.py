"""Fixtures of studies: compiled programs."""

from tests.training.conftest import compile_once

__all__ = ["compile_once"]
