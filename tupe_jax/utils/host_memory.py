"""How the C library hands out the memory of a training step on CPUs."""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
"""glibc's numbers for `mallopt`."""


def keep_freed_memory() -> None:
    """Keep what one step frees for the next one, where the C library is glibc.

    XLA's CPU client asks for a program's temporary memory anew at every step. glibc takes blocks
    of that size from the kernel and gives them back, so that every step touches fresh pages: a
    fifth of the CPU time of a small model went into page faults. The process then stays as large
    as it once was, which is what a run that repeats one step wants. To be called before other
    threads run: one that has an arena of its own takes large blocks from the kernel all the same.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library: nothing to set
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, -1)  # never
    mallopt(_TOP_PAD, 2**26)
