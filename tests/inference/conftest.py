"""A small model, trained on a small language."""

import pytest

from tests.inference import small_language


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    return small_language.make_model_folder(tmp_path_factory.mktemp("small_language"))
