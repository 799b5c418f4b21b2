"""Paths of files and folders, local or on object storage (`gs://`), with one interface.

`storage_path` reads every path that a user gives: an argument of a command or a setting of a
config. The result is a path of `etils.epath`, which has the methods of `pathlib.Path`. Files on
object storage are read and written with gcsfs (the extra `gcs`), which is imported on first use.
"""

import argparse
import functools
import os
import pathlib
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec

# Before epath is used: it would prefer TensorFlow's client, and only `tupe_jax/data/` imports that.
os.environ.setdefault("EPATH_USE_TF", "false")
# A cached listing lacks what other processes and tensorstore write. fsspec reads the variable when
# it is imported; worker processes inherit it.
os.environ.setdefault("FSSPEC_GCS", '{"use_listings_cache": false}')
if "fsspec" in sys.modules:
    sys.modules["fsspec.config"].set_conf_env(sys.modules["fsspec.config"].conf)

from etils import epath

from tupe_jax.utils.errors import UserError

Path = epath.Path

SCHEME = "gs://"
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):/|(gs):")
# epath reads /gs/bucket as gs://bucket.
_ROOTS_OF_EPATH = re.compile(r"/+(gs|s3|az|hf)(/|$)")


class PathError(UserError, argparse.ArgumentTypeError):
    """A path that cannot be used. argparse prints its message, and hides that of a ValueError."""


def storage_path(text: str | os.PathLike[str]) -> Path:
    """The path that a user gave. Raise if it has a scheme other than `gs://`."""
    given = os.fspath(text)
    check_scheme(given)
    if given.startswith(SCHEME) and find_spec("gcsfs") is None:
        raise PathError(f"{given}: gs:// needs gcsfs: pip install 'tupe_jax[gcs]'")
    if given.startswith(SCHEME):
        use_strict_client()
    return Path(given)


@functools.cache
def use_strict_client() -> None:
    """Make fsspec, and so epath, use the client of `gcs_client.py`."""
    import fsspec

    for name in ("gcs", "gs"):
        fsspec.register_implementation(
            name, "tupe_jax.utils.gcs_client.StrictGCSFileSystem", clobber=True
        )


def check_scheme(given: str) -> None:
    """Raise unless a path is local or on `gs://`."""
    if given.startswith(SCHEME):
        if not given.removeprefix(SCHEME).partition("/")[0]:
            raise PathError(f"{given}: no bucket; write gs://BUCKET/FOLDER")
    elif scheme := _SCHEME.match(given):
        if (scheme[1] or scheme[2]).lower() == "gs":
            raise PathError(f"{given}: write gs://BUCKET/FOLDER, with two slashes")
        raise PathError(
            f"{given}: {scheme[1]}:// is not supported; use gs://, or mount the storage and give "
            "a local path"
        )
    elif root := _ROOTS_OF_EPATH.match(given):
        raise PathError(f"{given}: a folder /{root[1]} cannot be used; mount it elsewhere")


def is_object(path: str | os.PathLike[str]) -> bool:
    """Whether a path is on object storage."""
    return os.fspath(path).startswith(SCHEME)


def absolute(path: Path) -> Path:
    """The absolute path. epath's own method would make a local path of gs://bucket."""
    return path if is_object(path) else path.absolute()


def glob_in(folder: Path, pattern: str) -> Iterator[Path]:
    """The paths that match a pattern in a folder; `[` in the name of the folder is literal."""
    if is_object(folder):
        yield from folder.glob(pattern)
    else:
        yield from map(Path, pathlib.Path(folder).glob(pattern))
