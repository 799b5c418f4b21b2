"""`tupe doctor` reports what is installed and what is missing, even if JAX finds no device."""

import importlib.metadata
import os

import pytest
from packaging.requirements import Requirement

from tupe_jax import cli
from tupe_jax.commands import doctor


def report(capsys):
    code = cli.main(["doctor"])
    return code, capsys.readouterr().out.splitlines()


def test_all_is_well_here(capsys):
    code, lines = report(capsys)
    assert code == 0
    assert not [line for line in lines if line.startswith("!")]
    for words in ("version   tupe_jax", "packages  all requirements are met; jax 0.", "GiB"):
        assert any(words in line for line in lines)
    assert lines[-1].split() == ["devices", "1", "x", "cpu"]
    assert any("extra     torch: torch" in line for line in lines), "the tests need it"


def test_without_a_device_it_still_reports(monkeypatch, capsys):
    monkeypatch.setenv("JAX_PLATFORMS", "no_such_platform")
    code, lines = report(capsys)
    assert code == 1
    assert lines[-1].startswith("! devices   none with JAX_PLATFORMS=no_such_platform (")
    assert "JAX_PLATFORMS=cpu uses no accelerator" in lines[-1]
    assert any("packages  all requirements are met" in line for line in lines)


def test_devices_that_do_not_respond_time_out(monkeypatch):
    monkeypatch.setattr(doctor, "_FIND_DEVICES", "import time; time.sleep(60)")
    found = doctor.devices(0.2)
    assert not found.healthy
    assert "none within 0.2 s" in found.text


def test_an_accelerator_that_jax_does_not_find_is_reported(monkeypatch):
    monkeypatch.setattr(doctor, "_FIND_DEVICES", """print('[1, "cpu", "cpu", null]')""")
    monkeypatch.setattr(doctor, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(doctor, "has_tpu", lambda: True)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert doctor.devices(60).text == "1 x cpu"
    monkeypatch.delenv("JAX_PLATFORMS")
    found = doctor.devices(60)
    assert not found.healthy
    assert "JAX does not find the accelerator: pip install 'tupe_jax[tpu]'" in found.text
    monkeypatch.setattr(doctor, "has_tpu", lambda: False)
    assert doctor.devices(60).healthy


@pytest.fixture
def installed(monkeypatch):
    """A package with its own ideas of what is installed: `versions` may be changed."""
    needs = {
        "app": ["one<2,>=1", "engine>=1", "engine[fast]>=1; extra == 'fast'"],
        "engine": ["turbo>=3; extra == 'fast'"],
    }
    versions = {
        "app": "1",
        "one": "1.5",
        "engine": "1",
        "turbo": "3",
        **dict.fromkeys(doctor.SHOWN, "1"),
    }

    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    class Metadata:
        def get_all(self, field):
            return ["fast", "test"] if field == "Provides-Extra" else None

    def metadata(name):
        version(name)
        return Metadata()

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: needs.get(name))
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "metadata", metadata)
    return versions


def report_of(installed):
    return [(line.healthy, line.text) for line in doctor.packages("app")]


def test_required_packages_and_extras_of_extras(installed):
    required, extra = report_of(installed)
    assert required[0]
    assert extra == (True, "fast: turbo 3")


def test_a_wrong_version_names_what_to_install(installed):
    installed["one"] = "2.1"
    assert report_of(installed)[0] == (False, "one 2.1, not <2,>=1: pip install 'one<2,>=1'")


def test_a_missing_package_names_what_to_install(installed):
    del installed["one"]
    assert report_of(installed)[0] == (False, "no one: pip install 'one<2,>=1'")


def test_a_missing_extra_is_no_problem_and_names_what_to_install(installed):
    installed["turbo"] = "2"
    assert report_of(installed)[-1] == (
        True,
        "fast: not installed (turbo 2, not >=3): pip install 'app[fast]'",
    )


def test_a_package_that_is_not_installed(installed):
    del installed["app"]
    assert report_of(installed) == [(False, "app is not installed: pip install -e .")]


def test_our_own_requirements_are_understood():
    requirements = importlib.metadata.requires(doctor.PACKAGE)
    assert requirements
    assert all(Requirement(line).name for line in requirements)
    assert os.sysconf("SC_PHYS_PAGES") > 0
