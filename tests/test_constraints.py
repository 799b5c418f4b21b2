"""constraints.txt pins what the README installs, within the bounds of pyproject.toml."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.documents import text_of

PROJECT = tomllib.loads(text_of("pyproject.toml"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LINES = text_of("constraints.txt").splitlines()
PINNED = dict(line.split("==") for line in LINES)
INSTALLED_EXTRAS = ("test", "notebooks")
"""The extras whose dependencies are pinned, with all that those depend on."""


def direct_dependencies(extra):
    """The dependencies of an extra, and of the extras of this project that it includes."""
    for requirement in map(Requirement, EXTRAS[extra]):
        if canonicalize_name(requirement.name) == canonicalize_name(PROJECT["name"]):
            for included in requirement.extras:
                yield from direct_dependencies(included)
        else:
            yield requirement


ALWAYS = [Requirement(line) for line in PROJECT["dependencies"]]
EVERY = sorted(
    {*ALWAYS, *(dependency for extra in EXTRAS for dependency in direct_dependencies(extra))},
    key=str,
)
INSTALLED = {*ALWAYS, *(d for extra in INSTALLED_EXTRAS for d in direct_dependencies(extra))}


def test_every_line_is_a_name_and_an_exact_public_version():
    """No hosts, no files, no local versions such as `+cpu`, which not every index has."""
    line = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*==[0-9][0-9a-z.]*")
    assert [wrong for wrong in LINES if not line.fullmatch(wrong)] == []


def test_each_package_is_pinned_once_in_order():
    assert sorted(LINES) == LINES
    assert len(PINNED) == len(LINES)


@pytest.mark.parametrize("dependency", EVERY, ids=str)
def test_a_direct_dependency_is_pinned_within_its_bounds(dependency):
    version = PINNED.get(canonicalize_name(dependency.name))
    assert version is not None or dependency not in INSTALLED
    assert version is None or dependency.specifier.contains(version)


def test_the_project_and_pip_are_left_out():
    assert not {canonicalize_name(PROJECT["name"]), "pip"} & PINNED.keys()


@pytest.mark.parametrize("marker", ["run", "test"])
def test_the_readme_installs_with_the_constraints(marker):
    block = rf"<!-- {marker} -->\n```bash\n(.*?)```"
    (command,) = re.findall(block, text_of("README.md"), re.DOTALL)
    assert command.startswith("pip install -c constraints.txt ")
    assert len(command.splitlines()) == 1
