"""The versions of the packages that decide what a run computes and writes."""

import importlib.metadata

from tupe_jax import __version__

PACKAGES = (
    "jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint", "tensorstore", "grain",
    "array_record", "numpy",
)  # fmt: skip


def package_versions() -> dict[str, str | None]:
    """The version of each package; None if it is not installed, such as libtpu without a TPU."""
    return {"tupe_jax": __version__} | {package: installed_version(package) for package in PACKAGES}


def installed_version(package: str) -> str | None:
    """None if the package is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
