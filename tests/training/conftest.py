import pytest

from tests.training import runs


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A vocabulary and prepared rows, shared by all runs."""
    return runs.make_corpus(tmp_path_factory.mktemp("corpus"))
