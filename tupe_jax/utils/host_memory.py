"""Settings of the C library's memory allocator."""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
"""glibc's numbers for `mallopt`."""


def keep_freed_memory() -> None:
    """Let glibc keep the memory that one step frees for the next one.

    XLA's CPU client allocates a program's temporary memory anew at every step. By default glibc
    takes such large blocks from the kernel and returns them, so that every step touches new pages:
    a small model spent a fifth of its CPU time in page faults. With these settings the process
    keeps its largest size. Call it before other threads start: a thread with its own arena would
    still take large blocks from the kernel.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library: nothing to set
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, -1)  # never
    mallopt(_TOP_PAD, 2**26)
