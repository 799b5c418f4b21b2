"""Memory that a step frees is there for the next one."""

import subprocess
import sys

import pytest

# Blocks of 256 MiB, which glibc would else take from the kernel and give back each time. They are
# asked for in a thread, as XLA does.
REPEATED_BLOCKS = """
import ctypes, resource, sys, threading
from tupe_jax.utils.host_memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
def step():
    block = ctypes.c_void_p(libc.malloc(2**28))
    ctypes.memset(block, 1, 2**28)
    libc.free(block)
def steps():
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=steps)
thread.start()
thread.join()
"""


def page_faults_of_a_repeated_block(setting: str) -> int:
    command = [sys.executable, "-c", REPEATED_BLOCKS, setting]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own allocator")
def test_a_block_that_was_freed_is_not_fetched_from_the_kernel_again() -> None:
    assert page_faults_of_a_repeated_block("keep") < 100
    assert page_faults_of_a_repeated_block("leave") > 100
