"""The versions of the packages that decide what a run computes and writes."""

from importlib.metadata import PackageNotFoundError, version

from tupe_jax import __version__

PACKAGES = (
    "jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint", "tensorstore", "grain",
    "array_record", "numpy",
)  # fmt: skip


def package_versions() -> dict[str, str | None]:
    """By name; None if a package is not installed, as libtpu outside of TPU machines."""
    return {"tupe_jax": __version__} | {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
