"""Fixtures of fine-tuning: a small model and compiled programs."""

import pytest

from tests.finetune import tuning
from tests.training.conftest import compile_once

__all__ = ["compile_once"]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A model with random weights and its vocabulary, as a folder."""
    return tuning.make_model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def task():
    """One hundred short sentences to train on."""
    return tuning.small_task()
