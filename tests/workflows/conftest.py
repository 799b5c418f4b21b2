"""What workflows share: a folder for each, and compiled programs."""

import pytest

from tests.training.conftest import compile_once
from tests.workflows.steps import make_folder

__all__ = ["compile_once"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("user"))
