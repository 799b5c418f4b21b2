"""Object storage besides what paths offer: reachability, versions, transfers and errors.

gcsfs is imported when a `gs://` path is first used: most runs never need it.
"""

import functools
import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from tupe_jax.utils.errors import RetryError, UserError
from tupe_jax.utils.paths import SCHEME, Path, is_object, use_strict_client

_DENIED = {401, 403}
ANSWER_SECONDS = 120.0
NO_OBJECT = "0"
"""The generation of an object that does not exist."""
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")

T = TypeVar("T")


def filesystem() -> Any:
    """The gcsfs client that epath uses as well."""
    import fsspec

    use_strict_client()
    # gcsfs logs with a traceback what it then raises; `storage_errors` reports it in one line.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    return fsspec.filesystem("gcs", finalize_on_close=True)


def split(path: Path) -> tuple[str, str]:
    """The bucket and the name of an object."""
    bucket, _, name = os.fspath(path).removeprefix(SCHEME).partition("/")
    return bucket, name


def check_reachable(path: Path) -> None:
    """Raise unless the bucket of a path answers.

    Call it before the first use of a path: of a bucket that does not answer, epath reports that
    nothing exists there, and ArrayRecord waits for ten minutes.
    """
    if is_object(path):
        _check_bucket(split(path)[0])


@functools.cache
def _check_bucket(bucket: str) -> None:
    with storage_errors():
        try:
            filesystem().call("GET", "b/{}/o", bucket, maxResults=1)
        except FileNotFoundError:
            raise UserError(f"gs://{bucket}: no such bucket") from None


def metadata(path: Path) -> dict[str, Any]:
    """Size, generation and times of an object, as Cloud Storage names them."""
    bucket, name = split(path)
    found: dict[str, Any] = filesystem().call("GET", "b/{}/o/{}", bucket, name, json_out=True)
    return found


def upload(file: str | os.PathLike[str], path: Path) -> None:
    """Upload a local file as one object. Readers see the old object or the new one."""
    filesystem().put_file(os.fspath(file), os.fspath(path))


def write_if(path: Path, content: bytes, generation: str) -> str | None:
    """Write an object if its generation is this one; return the new one, or None if it is not."""
    bucket, name = split(path)
    client = filesystem()
    try:
        written = client.call(
            "POST",
            client.base.replace("/storage/", "/upload/storage/") + "b/{}/o",
            bucket,
            uploadType="media",
            name=name,
            ifGenerationMatch=generation,
            headers={"Content-Type": "application/json"},
            data=content,
            json_out=True,
        )
    except (FileExistsError, FileNotFoundError):  # the precondition failed
        return None
    return str(written["generation"])


def download(path: Path, file: str | os.PathLike[str]) -> None:
    filesystem().get_file(os.fspath(path), os.fspath(file))


def with_time_limit(path: Path, request: Callable[[], T]) -> T:
    """Run a request of a client without a time limit of its own, such as ArrayRecord.

    gcsfs ignores the proxy variables, but other clients do not: a bucket may answer one client
    and not another.
    """
    if not is_object(path):
        return request()
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(request())
        except BaseException as error:
            outcome.set_exception(error)

    # Not an executor, which would wait for the thread when the process ends.
    threading.Thread(target=run, daemon=True).start()
    if wait([outcome], ANSWER_SECONDS).done:
        return outcome.result()
    names = [name for name in PROXY_VARIABLES if name in os.environ or name.upper() in os.environ]
    proxies = f"; {', '.join(names)} is set: check it, and no_proxy" if names else ""
    raise RetryError(f"{path}: the storage did not answer for {ANSWER_SECONDS:g} s{proxies}")


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise errors of object storage as one line: `RetryError`, or `UserError` if denied."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not _is_of_client(error):
            raise
        text = " ".join(str(error).split())[:300] or type(error).__name__
        if getattr(error, "code", None) in _DENIED or text.startswith("Forbidden"):
            raise UserError(
                f"object storage: permission denied ({text}); log in with `gcloud auth "
                "application-default login`, or let the service account use the bucket"
            ) from error
        if isinstance(error, FileNotFoundError):
            raise UserError(f"object storage: no such object: {text}") from error
        raise RetryError(f"object storage: {type(error).__name__}: {text}") from error


def _is_of_client(error: BaseException) -> bool:
    """Whether it was raised in gcsfs, whose errors are of Python's classes and of many packages."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").startswith("gcsfs") for frame in frames)
