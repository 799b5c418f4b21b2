"""What these tests share: a small tokenizer."""

from tests.data.conftest import tokenizer

__all__ = ["tokenizer"]
