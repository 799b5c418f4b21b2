"""What the tests of commands share: small models, a vocabulary, compiled programs."""

import pytest

from tests.finetune import tuning
from tests.lab.conftest import vocabulary, vocabulary_file
from tests.training.conftest import compile_once

__all__ = ["compile_once", "vocabulary", "vocabulary_file"]


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """A model with random weights and its vocabulary, as a folder."""
    return tuning.make_model_folder(tmp_path_factory.mktemp("model"))
