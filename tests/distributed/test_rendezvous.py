"""Processes that exchange values and agree; threads stand in for processes here.

What happens when a process fails or dies is shown with real ones in
`tests/training/test_many_processes.py`.
"""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.distributed.ports import free_port
from tupe_jax.distributed.process_group import ProcessGroup
from tupe_jax.distributed.rendezvous import Connection, ProcessInfo, meet
from tupe_jax.run.workdir import open_workdir
from tupe_jax.utils.errors import (
    RETRY_EXIT_CODE,
    USER_ERROR_EXIT_CODE,
    RetryError,
    UserError,
)


def together(count, act, *, here=None, wait=30.0):
    """Results of `act(processes)` in those of `count` processes that are here; or their errors."""
    port = free_port()

    def run(index):
        info = ProcessInfo(f"localhost:{port}", count, index)
        try:
            met = meet(info, wait)
        except UserError as error:
            return error
        with ProcessGroup(index, met.hosts, met.connections) as processes:
            try:
                return act(processes)
            except UserError as error:
                return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count) if here is None else here))


def test_gather_returns_all_values_to_all():
    results = together(3, lambda processes: processes.gather("squares", processes.index**2))
    assert results == [[0, 1, 4]] * 3


def test_first_runs_in_process_0_while_the_others_wait():
    done = []

    def act(processes):
        result = processes.first("work", lambda: done.append(processes.index) or {"rows": 7})
        assert done == [0]
        return result

    assert together(3, act) == [{"rows": 7}] * 3


def test_a_long_wait_is_logged_with_names_and_causes(monkeypatch, caplog):
    monkeypatch.setattr("tupe_jax.distributed.process_group.WAITING_NOTICE_SECONDS", 0.5)

    def act(processes):
        if processes.index == 1:
            time.sleep(1.5)
        return processes.gather("rows", 1)

    assert together(2, act) == [[1, 1]] * 2
    notice = f"process 0 waits for process 1 ({socket.gethostname()}): rows. Usual causes: "
    line, *_ = caplog.messages
    assert line.startswith(notice)
    assert "compiles" in line


def test_a_difference_is_named_with_both_values_and_where():
    def act(processes):
        processes.require_same(
            "settings", {"seed": 1, "mesh.fsdp": 4 if processes.index == 2 else 2}
        )

    for error in together(3, act):
        assert "mesh.fsdp is 4 at process 2 (" in str(error)
        assert "but 2 at process 0 (" in str(error)


def test_a_work_directory_that_is_not_shared(tmp_path, monkeypatch):
    monkeypatch.setattr("tupe_jax.run.workdir.VISIBLE_SECONDS", 0.5)

    def act(processes):
        own = tmp_path / str(processes.index // 2)
        open_workdir(own, processes)

    for error in together(3, act):
        assert "is another folder at process 2 (" in str(error)
        assert "share" in str(error)
    assert not list(tmp_path.rglob(".*"))


def test_a_shared_work_directory(tmp_path):
    assert together(3, lambda processes: open_workdir(tmp_path / "run", processes)) == [None] * 3
    assert not list((tmp_path / "run").iterdir())


def test_missing_processes_are_named_in_all_others():
    errors = together(4, lambda _: None, here=[0, 2], wait=1.0)
    for error in errors:
        assert "process 1, process 3 of 4 did not connect within 1 s" in str(error)
        assert "connected: 0 (" in str(error)
        assert "not started on every host" in str(error)
        assert "firewall" in str(error)
        assert error.exit_code == RETRY_EXIT_CODE


def test_process_0_is_missing():
    (error,) = together(2, lambda _: None, here=[1], wait=0.5)
    assert "process 1 could not reach process 0 at localhost:" in str(error)
    assert "refused" in str(error)
    assert error.exit_code == RETRY_EXIT_CODE


def test_a_port_that_stays_in_use():
    with socket.create_server(("", 0)) as taken:
        info = ProcessInfo(f"localhost:{taken.getsockname()[1]}", 2, 0)
        with pytest.raises(RetryError, match="in use"):
            meet(info, 0.3)


def test_two_processes_with_one_number():
    for error in together(3, lambda _: None, here=[0, 1, 1]):
        assert "two processes have --process=1" in str(error)
        assert error.exit_code == USER_ERROR_EXIT_CODE


def test_processes_with_different_counts():
    port = free_port()

    def run(index):
        with pytest.raises(UserError, match="expects 3 processes, process 0 2") as raised:
            meet(ProcessInfo(f"localhost:{port}", 2 + index, index), 30.0)
        assert raised.value.exit_code == USER_ERROR_EXIT_CODE
        return str(raised.value)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    assert first == second


def test_foreign_connections_and_restarted_processes_are_handled():
    port = free_port()

    def first():
        return meet(ProcessInfo(f"localhost:{port}", 3, 0), 30.0).hosts

    with ThreadPoolExecutor(3) as pool:
        hosts = pool.submit(first)
        stranger = _connected(port)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        gone = _connected(port)
        Connection(gone).send({"process": 1, "processes": 3, "host": "somewhere"})
        gone.close()
        others = [
            pool.submit(meet, ProcessInfo(f"localhost:{port}", 3, index), 30.0) for index in (1, 2)
        ]
        assert hosts.result() == (socket.gethostname(),) * 3
        assert all(other.result().hosts == hosts.result() for other in others)
        stranger.close()


def _connected(port):
    while True:
        try:
            return socket.create_connection(("localhost", port))
        except ConnectionRefusedError:
            continue
