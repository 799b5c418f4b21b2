"""An emulator of Google Cloud Storage for tests with the real clients, in a thread or a process.

  python -m tests.gcs_emulator --port=9023 --bucket=runs

It is `gcp-storage-emulator` with what tensorstore, gcsfs and ArrayRecord need in addition:
generations in the headers of downloads, ranges such as `bytes=-64`, generation preconditions,
objects that end in any byte, and requests from several threads and processes. Objects are in
memory. `environment(port)` points all clients to it.
"""

import argparse
import contextlib
import io
import json
import logging
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from gcp_storage_emulator.handlers import buckets, objects
from gcp_storage_emulator.server import RequestHandler, Router, _read_raw_data
from gcp_storage_emulator.storage import Storage

HOST = "127.0.0.1"
BUCKET = "runs"


def environment(port: int) -> dict[str, str]:
    """The environment variables with which every client finds the emulator."""
    url = f"http://{HOST}:{port}"
    return {
        "STORAGE_EMULATOR_HOST": url,  # gcsfs, and with it epath
        "TENSORSTORE_GCS_HTTP_URL": url,
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": url,  # ArrayRecord
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",  # tensorstore
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # it would ask a second service first
        "GCSFS_DEFAULT_PROJECT": "tests",
    }


class Emulator(ThreadingHTTPServer):
    """The server. `objects` are its contents, for tests that change them behind a client's back."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0, bucket: str = BUCKET) -> None:
        self.storage = _MemoryStorage(use_memory_fs=True)
        buckets.create_bucket(bucket, self.storage)
        # Deleted objects would be kept for a week.
        self.storage.buckets[bucket]["softDeletePolicy"] = {"retentionDurationSeconds": "0"}
        self.lock = threading.Lock()
        self.requests: list[str] = []
        """The method and the path of every request, for tests that count them."""
        self._stalled_until = self._failing_until = 0.0
        super().__init__((HOST, port), _Handler)

    def stall_for(self, seconds: float) -> None:
        """Answer no request for so long."""
        self._stalled_until = time.monotonic() + seconds

    def fail_for(self, seconds: float) -> None:
        """Answer every request with 503 for so long."""
        self._failing_until = time.monotonic() + seconds

    def fails(self) -> bool:
        """Wait while requests are stalled; return whether to answer with an error."""
        while (left := self._stalled_until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
        return time.monotonic() < self._failing_until

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def names(self, bucket: str = BUCKET) -> list[str]:
        with self.lock:
            return sorted(self.storage.objects.get(bucket, {}))

    def read(self, name: str, bucket: str = BUCKET) -> bytes:
        with self.lock:
            return bytes(self.storage.get_file(bucket, name))

    def write(self, name: str, content: bytes, bucket: str = BUCKET) -> None:
        with self.lock:
            _put(self.storage, bucket, name, content)

    def delete(self, prefix: str, bucket: str = BUCKET) -> None:
        """Delete all objects whose names begin so."""
        for name in self.names(bucket):
            if name.startswith(prefix):
                with self.lock:
                    self.storage.delete_file(bucket, name)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that ended in the middle of a request is no news."""

    def age(self, name: str, seconds: float, bucket: str = BUCKET) -> None:
        """Let an object seem to have been written so long ago."""
        then = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - seconds))
        with self.lock:
            self.storage.objects[bucket][name]["updated"] = then


@contextlib.contextmanager
def running(port: int = 0) -> Iterator[Emulator]:
    """An emulator in a thread of this process; other processes can use it, too."""
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    logging.getLogger("api.object").setLevel(logging.CRITICAL)
    with Emulator(port) as emulator:
        threading.Thread(target=emulator.serve_forever, daemon=True).start()
        try:
            yield emulator
        finally:
            emulator.shutdown()


class _MemoryStorage(Storage):
    def _write_config_to_file(self) -> None:
        """Nothing is kept on disk; the original would serialize all metadata at every write."""


class _Handler(RequestHandler):
    protocol_version = "HTTP/1.1"
    server: Emulator

    def __init__(self, request: Any, address: Any, server: Emulator) -> None:
        super().__init__(server.storage, request, address, server)

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        """Answer under the lock, but neither read nor write the network under it.

        A client that is stopped in the middle of a request must not stop the others.
        """
        body = _read_raw_data(self) or b""
        self._generation = None
        self.server.requests.append(f"{method} {unquote(self.path)}")
        if self.server.fails():
            status = HTTPStatus.SERVICE_UNAVAILABLE
            self._reply(status, {"error": {"code": status.value, "message": status.phrase}})
            return
        network_in, network_out = self.rfile, self.wfile
        self.rfile, self.wfile = io.BytesIO(body), io.BytesIO()
        try:
            with self.server.lock:
                self._answer(method, body)
            answer = self.wfile.getvalue()
        finally:
            self.rfile, self.wfile = network_in, network_out
        self.wfile.write(answer)

    def _answer(self, method: str, body: bytes) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        upload = None
        if method == "POST" and query.get("uploadType") in ("media", "multipart"):
            upload = _upload(query, self.headers.get("Content-Type", ""), body)
        bucket, name = _target(url.path, query, upload)
        if status := _failed_precondition(self.storage, bucket, name, query):
            self._reply(status, {"error": {"code": status.value, "message": status.phrase}})
            return
        if upload is not None:
            self._reply(HTTPStatus.OK, _put(self.storage, bucket, *upload))
            return
        found = self.storage.objects.get(bucket, {}).get(name)
        if "/moveTo/o/" in url.path:
            _, _, target = url.path.partition("/moveTo/o/")
            if found is None:
                self._reply(HTTPStatus.NOT_FOUND, {})
                return
            content = self.storage.get_file(bucket, name)
            self.storage.delete_file(bucket, name)
            self._reply(HTTPStatus.OK, _put(self.storage, bucket, unquote(target), content))
            return
        if found is not None:
            self._generation = found["generation"]
            _make_suffix_range_absolute(self.headers, int(found["size"]))
        del self.headers["Transfer-Encoding"], self.headers["Content-Length"]
        self.headers["Content-Length"] = str(len(body))
        Router(self).handle(method)

    def _reply(self, status: HTTPStatus, content: Any) -> None:
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def end_headers(self) -> None:
        if self._generation is not None:
            self.send_header("x-goog-generation", self._generation)
        super().end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(timestamp, usegmt=True)


def _upload(query: dict[str, str], content_type: str, body: bytes) -> tuple[str, bytes]:
    """The name and the content of an object that is uploaded in one request."""
    if query["uploadType"] == "media":
        return query["name"], body
    boundary = b"--" + content_type.partition("boundary=")[2].strip('"').encode()
    _, metadata, content = body.split(boundary, 2)
    newline = b"\r\n" if metadata.startswith(b"\r\n") else b"\n"
    name = json.loads(metadata.split(newline * 2, 1)[1])["name"]
    content = content[: content.rindex(newline + boundary + b"--")]
    return query.get("name", name), content.split(newline * 2, 1)[1]


def _put(storage: Storage, bucket: str, name: str, content: bytes) -> Any:
    resource = objects._make_object_resource(
        f"http://{HOST}", bucket, name, "application/octet-stream", str(len(content))
    )
    resource = objects._checksums(content, resource)
    storage.create_file(bucket, name, content, resource)
    return resource


def _target(
    path: str, query: dict[str, str], upload: tuple[str, bytes] | None
) -> tuple[str, str | None]:
    """The bucket and the object of a request."""
    _, is_api, rest = path.partition("/b/")
    if not is_api:  # a media link, /bucket/object
        bucket, _, name = path.lstrip("/").partition("/")
        return bucket, unquote(name)
    bucket, _, name = rest.partition("/o")
    if upload is not None:
        return bucket, upload[0]
    name, *_ = name.partition("/moveTo/o/")
    return bucket, unquote(name.lstrip("/")) or query.get("name")


def _failed_precondition(
    storage: Storage, bucket: str, name: str | None, query: dict[str, str]
) -> HTTPStatus | None:
    found = storage.objects.get(bucket, {}).get(name)
    generation = "0" if found is None else found["generation"]
    if query.get("ifGenerationMatch", generation) != generation:
        return HTTPStatus.PRECONDITION_FAILED
    if query.get("ifGenerationNotMatch") == generation:
        return HTTPStatus.NOT_MODIFIED
    return None


def _make_suffix_range_absolute(headers: Any, size: int) -> None:
    given = headers.get("Range", "")
    if given.startswith("bytes=-"):
        del headers["Range"]
        headers["Range"] = f"bytes={max(size - int(given.removeprefix('bytes=-')), 0)}-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9023)
    parser.add_argument("--bucket", default=BUCKET)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with Emulator(arguments.port, arguments.bucket) as emulator:
        print("\n".join(f"export {k}={v}" for k, v in environment(emulator.port).items()))
        print(f"# serving gs://{arguments.bucket}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            emulator.serve_forever()


if __name__ == "__main__":
    main()
