"""What these tests share: a small vocabulary."""

from tests.data.conftest import vocabulary

__all__ = ["vocabulary"]
