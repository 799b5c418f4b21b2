"""The exceptions that mean "the user can mend this"."""

from typing import ClassVar

USER_ERROR_EXIT_CODE = 2
RETRY_EXIT_CODE = 76
"""Another process was lost, the storage failed, or an earlier run still holds the work directory:
the same command, in all processes, goes on from the newest checkpoint (sysexits' EX_PROTOCOL)."""


class UserError(ValueError):
    """A wrong setting or input, told in one line: what, where, and what to do.

    The command line prints the line and exits with code 2; everything else keeps its traceback.
    """

    exit_code: ClassVar[int] = USER_ERROR_EXIT_CODE


class RetryError(UserError):
    """The surroundings failed, not the command: started again, unchanged, it may well succeed.

    Launchers tell it by its exit code, and give up for good only on the other.
    """

    exit_code = RETRY_EXIT_CODE


def writing_failed(message: str, cause: Exception) -> UserError:
    """The error for a file that cannot be written: a wrong place stays wrong, all else may pass."""
    wrong_place = isinstance(
        cause, FileExistsError | IsADirectoryError | NotADirectoryError | PermissionError
    )
    return UserError(message) if wrong_place else RetryError(message)
