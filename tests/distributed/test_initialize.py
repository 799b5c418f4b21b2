"""How a process learns which one of a run it is."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from jax._src.clusters import cloud_tpu_cluster

from tests.distributed.ports import free_port
from tupe_jax.distributed.initialize import ProcessFlags, find_process
from tupe_jax.distributed.rendezvous import ProcessInfo, meet
from tupe_jax.utils.errors import (
    RETRY_EXIT_CODE,
    STOPPED_EXIT_CODE,
    USER_ERROR_EXIT_CODE,
    UserError,
)

ROOT = Path(__file__).parents[2]

SLURM = {
    "SLURM_JOB_ID": "1000",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[003-006]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
}

OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
}
GKE = {
    "TPU_WORKER_HOSTNAMES": "localhost,worker-1",
    "TPU_WORKER_ID": "1",
    "MEGASCALE_COORDINATOR_ADDRESS": "",
    "MEGASCALE_NUM_SLICES": "1",
    "MEGASCALE_SLICE_ID": "0",
}
VARIABLES = (
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "TUPE_TOKEN",
    "TUPE_RESTART",
    "SLURM_RESTART_COUNT",
)


@pytest.fixture
def environment(monkeypatch):
    for name in (*VARIABLES, *SLURM, *OPEN_MPI, *GKE):
        monkeypatch.delenv(name, raising=False)
    return lambda **values: [monkeypatch.setenv(name, value) for name, value in values.items()]


def test_a_single_process_by_default(environment):
    assert find_process(ProcessFlags(), 1.0) is None
    assert find_process(ProcessFlags("host:1", 1, 0), 1.0) is None


def test_flags_come_before_variables(environment):
    environment(JAX_COORDINATOR_ADDRESS="a:1", JAX_NUM_PROCESSES="8", JAX_PROCESS_ID="5")
    assert find_process(ProcessFlags(), 1.0) == ProcessInfo("a:1", 8, 5)
    assert find_process(ProcessFlags("b:2", None, 0), 1.0) == ProcessInfo("b:2", 8, 0)


def test_a_token_is_given_by_a_flag_or_by_a_variable(environment):
    processes = ProcessFlags("a:1", 8, 5)
    assert find_process(processes, 1.0).token == ""
    environment(TUPE_TOKEN="of the job")
    assert find_process(processes, 1.0).token == "of the job"
    assert find_process(replace(processes, token="of the flag"), 1.0).token == "of the flag"
    assert "of the job" not in repr(find_process(processes, 1.0))


def test_each_restart_has_its_own_token(environment):
    environment(**SLURM, SLURM_RESTART_COUNT="3")
    assert find_process(ProcessFlags(), 1.0).token == "1000.0.3"
    environment(TUPE_TOKEN="a job set", TUPE_RESTART="2")
    assert find_process(ProcessFlags(), 1.0).token == "a job set.2"


def test_a_restart_without_a_token_gives_none(environment):
    environment(TUPE_RESTART="2")
    assert find_process(ProcessFlags("a:1", 8, 5), 1.0).token == ""


def test_slurm_is_detected_by_jax(environment):
    environment(**SLURM)
    info = find_process(ProcessFlags(), 1.0)
    assert (info.host, info.count, info.index, info.cluster) == ("node003", 4, 2, "slurm")
    assert info.token == "1000.0"
    environment(SLURM_NTASKS="1", SLURM_PROCID="0")
    assert find_process(ProcessFlags(), 1.0) is None


def test_open_mpi_is_detected_by_jax(environment):
    environment(**OPEN_MPI)
    info = find_process(ProcessFlags(), 1.0)
    assert (info.host, info.count, info.index, info.cluster) == ("10.96.0.1", 4, 2, "ompi")


def test_gke_is_detected_by_jax(environment, monkeypatch):
    monkeypatch.setattr(cloud_tpu_cluster, "running_in_cloud_tpu_vm", True)
    environment(**GKE)
    info = find_process(ProcessFlags(), 1.0)
    assert (info.host, info.count, info.index, info.cluster) == ("localhost", 2, 1, "gketpu")
    assert info.expected_hosts == ("localhost", "worker-1")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (ProcessFlags("host:1", 4), ["--process or JAX_PROCESS_ID", "needs"]),
        (ProcessFlags(process=1), ["--coordinator", "--processes"]),
        (ProcessFlags("host", 4, 1), ["--coordinator='host'"]),
        (ProcessFlags("host:99999", 4, 1), ["--coordinator='host:99999'"]),
        (ProcessFlags("host:1", 0, 0), ["--processes=0"]),
        (ProcessFlags("host:1", 4, 4), ["--process=4", "0 to 3"]),
    ],
)
def test_incomplete_flags_are_refused(flags, words, environment):
    with pytest.raises(UserError) as error:
        find_process(flags, 1.0)
    for word in words:
        assert word in str(error.value)


def test_a_variable_that_is_not_a_number(environment):
    environment(JAX_NUM_PROCESSES="many")
    with pytest.raises(UserError, match="JAX_NUM_PROCESSES='many'"):
        find_process(ProcessFlags(), 1.0)


def python(program, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


INTERRUPTED_TWICE = """
import os, socket, sys, threading
from tupe_jax.distributed.rendezvous import Connection
from tupe_jax.distributed.process_group import ProcessGroup
from tupe_jax.run.preemption import StopBeforeTraining, StopSignal
from tupe_jax.utils.errors import STOPPED_EXIT_CODE

def send_signal():
    os.kill(os.getpid(), int(sys.argv[1]))

other = socket.create_server(("localhost", 0))
connection = Connection(socket.create_connection(other.getsockname()))
with StopSignal(), ProcessGroup(0, ("a", "b"), {1: connection}) as processes:
    try:
        send_signal()
    except StopBeforeTraining:
        threading.Timer(0.1, send_signal).start()  # while the others are told
        processes.abandon("was asked to stop", STOPPED_EXIT_CODE)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_while_a_process_ends_does_not_keep_it_from_ending(number):
    with python(INTERRUPTED_TWICE, str(int(number))) as process:
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == STOPPED_EXIT_CODE, errors
    assert "Traceback" not in errors


REFUSED_THEN_TERMINATED = """
import os, signal, socket, threading
from tupe_jax.distributed.rendezvous import Connection
from tupe_jax.distributed.process_group import ProcessGroup
from tupe_jax.run.preemption import StopSignal
from tupe_jax.utils.errors import UserError

other = socket.create_server(("localhost", 0))
connection = Connection(socket.create_connection(other.getsockname()))
with StopSignal(), ProcessGroup(0, ("a", "b"), {1: connection}):
    # A launcher sends it when the first of several processes has ended.
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    raise UserError("the folder is refused")
"""


def test_a_signal_while_others_are_informed_of_an_error_changes_nothing():
    with python(REFUSED_THEN_TERMINATED) as process:
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == USER_ERROR_EXIT_CODE, errors
    assert "the folder is refused" in errors
    assert "Traceback" not in errors


STOPPED_WHILE_JAX_STARTS = """
import os, signal, sys
import jax
from tupe_jax.cli import main

# As if the signal had come while JAX's start waits in native code, which delays its handler.
jax.distributed.initialize = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
sys.exit(main(["pretrain", "--processes=2", "--process=0", *sys.argv[1:]]))
"""


def test_a_signal_while_jax_starts_reaches_the_others(tmp_path):
    coordinator = f"localhost:{free_port()}"
    arguments = (f"--coordinator={coordinator}", f"--workdir={tmp_path}")
    with python(STOPPED_WHILE_JAX_STARTS, *arguments) as process:
        try:
            met = meet(ProcessInfo(coordinator, 2, 1), 60.0)
            news = met.connections[0].receive(60.0)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == STOPPED_EXIT_CODE, errors
    assert news["code"] == STOPPED_EXIT_CODE
    assert "process 0 (" in news["failed"]
    assert "stop request before training began" in news["failed"]


FAILS = """
import socket, sys
from tupe_jax.utils.errors import UserError
from tupe_jax.distributed.rendezvous import Connection
from tupe_jax.distributed.process_group import ProcessGroup
from tupe_jax.utils.logging import configure_logging

configure_logging(0, 2)
other = socket.create_server(("localhost", 0))
connection = Connection(socket.create_connection(other.getsockname()))
with ProcessGroup(0, ("a", "b"), {1: connection}):
    sys.stdin.read()
    raise UserError("wrong")
"""


def test_a_closed_stderr_does_not_keep_a_process_from_ending():
    program = [sys.executable, "-c", FAILS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, env=environment, **pipes) as process:
        process.stderr.close()
        process.stdin.close()
        assert process.wait(timeout=60) == USER_ERROR_EXIT_CODE


UNREAD = """
import socket, sys, threading
from tupe_jax.distributed import process_group
from tupe_jax.distributed.rendezvous import Connection
from tupe_jax.utils.logging import configure_logging

process_group.LAST_MESSAGES_SECONDS = 0.5
configure_logging(0, 2)
# More than a pipe holds.
threading.Thread(target=sys.stderr.write, args=("." * 1_000_000,), daemon=True).start()
other = socket.create_server(("localhost", 0))
connection = Connection(socket.create_connection(other.getsockname()))
processes = process_group.ProcessGroup(0, ("a", "b"), {1: connection})
if sys.argv[1] == "process 0 ends all":
    processes.abandon("made no progress", 76, message="made no progress", stacks=True)
if sys.argv[1] == "an error":
    processes._wait_until_all_are_heard = lambda: None
    with processes:
        raise RuntimeError("a defect")
other.accept()[0].close()
threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("cause", "exit_code"),
    [("process 0 ends all", RETRY_EXIT_CODE), ("process 1 dies", RETRY_EXIT_CODE), ("an error", 1)],
)
def test_a_log_that_nobody_reads_does_not_keep_a_process_from_ending(cause, exit_code):
    """As of a shell whose storage hangs."""
    with python(UNREAD, cause) as process:
        try:
            assert process.wait(timeout=60) == exit_code
        finally:
            process.kill()
