"""The exceptions that a user can fix, and the exit codes of all commands."""

import errno
from typing import ClassVar

USER_ERROR_EXIT_CODE = 2
STOPPED_EXIT_CODE = 75
"""The run stopped on request; the same command resumes it (sysexits' EX_TEMPFAIL)."""
RETRY_EXIT_CODE = 76
"""A process was lost, hung or did not connect, the storage failed, or another run uses the work
directory: the same command, in all processes, resumes from the newest checkpoint (sysexits'
EX_PROTOCOL)."""


class UserError(ValueError):
    """A wrong setting or input, as one line: what, where, and what to do.

    The command line prints the line and exits with code 2. All other exceptions print a traceback.
    """

    exit_code: ClassVar[int] = USER_ERROR_EXIT_CODE


class RetryError(UserError):
    """A failure of the environment: the same command may succeed if it is restarted.

    Launchers recognize it by its exit code and restart the command.
    """

    exit_code = RETRY_EXIT_CODE


def is_full_disk(error: BaseException) -> bool:
    """Whether a write failed for lack of space, or beyond a quota or a limit."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return isinstance(error, OSError) and error.errno in full


def reason(error: OSError) -> str:
    """What went wrong, without the path; errors of object storage have only a text."""
    return error.strerror or str(error) or type(error).__name__


def writing_failed(message: str, cause: Exception) -> UserError:
    """The error for a failed write: `UserError` for a wrong path, otherwise `RetryError`."""
    wrong_path = isinstance(
        cause, FileExistsError | IsADirectoryError | NotADirectoryError | PermissionError
    )
    return UserError(message) if wrong_path else RetryError(message)


def reading_failed(message: str, cause: OSError) -> UserError:
    """The error for a failed read: `UserError` for a wrong path, otherwise `RetryError`."""
    wrong_path = isinstance(
        cause, FileNotFoundError | IsADirectoryError | NotADirectoryError | PermissionError
    )
    denied = str(cause).startswith("Forbidden")  # by gcsfs
    return UserError(message) if wrong_path or denied else RetryError(message)
