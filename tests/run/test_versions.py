"""The versions that all processes of a run must share."""

import jax
import numpy as np

import tupe_jax
from tupe_jax.run import versions


def test_they_are_those_that_are_imported():
    found = versions.package_versions()
    assert found["tupe_jax"] == tupe_jax.__version__
    assert found["jax"] == jax.__version__
    assert found["numpy"] == np.__version__
    assert found.keys() == {"tupe_jax", *versions.PACKAGES}
    assert None not in found.values()  # the tests install them all


def test_a_package_that_is_not_installed_is_none(monkeypatch):
    monkeypatch.setattr(versions, "PACKAGES", ("no-such-package",))
    assert versions.package_versions()["no-such-package"] is None
