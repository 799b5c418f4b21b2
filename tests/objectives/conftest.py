"""What these tests share: a corpus, and compiled programs."""

from tests.training.conftest import compile_once, corpus

__all__ = ["compile_once", "corpus"]
