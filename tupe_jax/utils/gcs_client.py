"""A gcsfs client that does not report an outage as a missing object."""

from gcsfs import GCSFileSystem  # type: ignore[import-untyped]


class StrictGCSFileSystem(GCSFileSystem):  # type: ignore[misc]
    """Only "not found" means that a path does not exist. Any other error is raised.

    gcsfs answers False when the connection fails, and callers would report a wrong path.
    """

    async def _isdir(self, path: str) -> bool:
        return await self._kind(path) == "directory"

    async def _isfile(self, path: str) -> bool:
        return await self._kind(path) == "file"

    async def _kind(self, path: str) -> str | None:
        try:
            return str((await self._info(path))["type"])
        except (FileNotFoundError, NotADirectoryError):
            return None
