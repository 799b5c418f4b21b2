"""Processes that exchange values and agree; threads stand in for processes here.

What happens when a process fails or dies is shown with real ones in
`tests/training/test_many_processes.py`.
"""

import json
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.distributed.ports import free_port
from tupe_jax.distributed.heartbeat import Heartbeat
from tupe_jax.distributed.process_group import ProcessGroup
from tupe_jax.distributed.rendezvous import Connection, ProcessInfo, _Reception, bind_host, meet
from tupe_jax.run.workdir import open_workdir
from tupe_jax.utils.errors import (
    RETRY_EXIT_CODE,
    USER_ERROR_EXIT_CODE,
    RetryError,
    UserError,
)


def together(count, act, *, here=None, wait=30.0, token="a run"):
    """Results of `act(processes)` in those of `count` processes that are here; or their errors."""
    port = free_port()

    def run(index):
        info = ProcessInfo(f"localhost:{port}", count, index, token=token)
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
        assert "is not the same folder at process 0 (" in str(error)
        assert "and at process 2 (" in str(error)
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
    with socket.create_server(("127.0.0.1", 0)) as taken:
        info = ProcessInfo(f"localhost:{taken.getsockname()[1]}", 2, 0)
        with pytest.raises(RetryError, match="in use"):
            meet(info, 0.3)


def test_two_processes_with_one_number():
    """A retry: one may be of an earlier start that is still ending."""
    for error in together(3, lambda _: None, here=[0, 1, 1]):
        assert "two processes have --process=1" in str(error)
        assert error.exit_code == RETRY_EXIT_CODE


def test_processes_with_different_counts():
    port = free_port()

    def run(index):
        with pytest.raises(UserError, match=r"\b3 processes, process 0 2\b") as raised:
            meet(ProcessInfo(f"localhost:{port}", 2 + index, index, token="a run"), 30.0)
        assert raised.value.exit_code == USER_ERROR_EXIT_CODE
        return str(raised.value)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    assert first == second


HELLO = {"process": 1, "processes": 3, "host": "somewhere", "token": "a run"}


def test_a_process_that_was_restarted_replaces_the_one_that_ended():
    port = free_port()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(meet, ProcessInfo(f"localhost:{port}", 3, 0, token="a run"), 30.0)
        gone = _connected(port)
        Connection(gone).send(HELLO)
        gone.close()
        others = [
            pool.submit(meet, ProcessInfo(f"localhost:{port}", 3, index, token="a run"), 30.0)
            for index in (1, 2)
        ]
        assert first.result().hosts == (socket.gethostname(),) * 3
        assert all(other.result().hosts == first.result().hosts for other in others)


STRANGERS = {
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "not an object": b"[1]\n",
    "too deep": b"[" * 4000 + b"\n",
    "too long": b"x" * 10_000,
    "a number as text": json.dumps({**HELLO, "process": "1"}).encode() + b"\n",
    "true as a number": json.dumps({**HELLO, "process": True}).encode() + b"\n",
    "no token": json.dumps({k: v for k, v in HELLO.items() if k != "token"}).encode() + b"\n",
    "another token": json.dumps({**HELLO, "token": "another run"}).encode() + b"\n",
    "another token and count": json.dumps({**HELLO, "token": "", "processes": 9}).encode() + b"\n",
}


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS.keys())
def test_a_stranger_is_dropped_and_the_run_begins(said, caplog):
    port = free_port()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(meet, ProcessInfo(f"localhost:{port}", 3, 0, token="a run"), 30.0)
        with _connected(port) as stranger, _connected(port) as again:
            stranger.sendall(said)
            again.sendall(said)
            assert _closed(stranger)
            assert _closed(again)
        others = [
            pool.submit(meet, ProcessInfo(f"localhost:{port}", 3, index, token="a run"), 30.0)
            for index in (1, 2)
        ]
        assert first.result().hosts == others[0].result().hosts == others[1].result().hosts
    dropped = [message for message in caplog.messages if "dropped a connection" in message]
    assert len(dropped) == 1
    assert "127.0.0.1" in dropped[0]


def test_silent_and_dripping_strangers_delay_nobody():
    """Each of ten used to cost two seconds; one that drips held the meeting for good."""
    port = free_port()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(meet, ProcessInfo(f"localhost:{port}", 3, 0), 30.0)
        silent = [_connected(port) for _ in range(10)]
        done = threading.Event()

        def drip():
            while not done.wait(0.2):
                silent[0].send(b" ")

        pool.submit(drip)
        began = time.monotonic()
        with ThreadPoolExecutor(2) as others:
            infos = [ProcessInfo(f"localhost:{port}", 3, index) for index in (1, 2)]
            met = list(others.map(lambda info: meet(info, 30.0), infos))
        took = time.monotonic() - began
        done.set()
        assert met[0].hosts == first.result().hosts
        assert took < 2.0
        for link in silent:
            link.close()


def test_a_connection_that_cannot_be_accepted_is_dropped():
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    reception = _Reception(listener, ProcessInfo("localhost:1", 2, 0, token="a run"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with listener, socket.create_connection(listener.getsockname()) as link:
        resource.setrlimit(resource.RLIMIT_NOFILE, (link.fileno(), hard))  # too many open files
        try:
            assert reception.next_peer() is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        Connection(link).send({**HELLO, "process": 1})
        deadline = time.monotonic() + 20
        while (peer := reception.next_peer()) is None:
            assert time.monotonic() < deadline
        assert peer.hello.process == 1


def test_a_message_that_drips_in_has_a_deadline():
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    done = threading.Event()

    def drip():
        while not done.wait(0.05):
            theirs.send(b" ")

    with ours, theirs, ThreadPoolExecutor(1) as pool:
        pool.submit(drip)
        with pytest.raises(TimeoutError):
            Connection(ours).receive(0.5)
        done.set()


def test_without_a_token_a_wrong_count_ends_only_the_process_that_has_it(caplog):
    port = free_port()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(meet, ProcessInfo(f"localhost:{port}", 2, 0), 30.0)
        with pytest.raises(UserError, match=r"\b3 processes, process 0 2\b"):
            meet(ProcessInfo(f"localhost:{port}", 3, 1), 30.0)
        second = pool.submit(meet, ProcessInfo(f"localhost:{port}", 2, 1), 30.0)
        assert first.result().hosts == second.result().hosts
    assert any("expects 3 processes" in message for message in caplog.messages)


def test_process_0_listens_at_the_coordinators_address_only(monkeypatch):
    monkeypatch.delenv("JAX_COORDINATOR_BIND_ADDRESS", raising=False)
    assert bind_host(ProcessInfo("127.0.0.1:1", 2, 0)) == "127.0.0.1"
    assert bind_host(ProcessInfo("localhost:1", 2, 0)) == "127.0.0.1"
    # An address of another host (RFC 5737), a name of no host, a name that is loopback only here.
    assert bind_host(ProcessInfo("192.0.2.1:1", 2, 0)) == ""
    assert bind_host(ProcessInfo("no-such-host.invalid:1", 2, 0)) == ""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [LOOPBACK_OF_DEBIAN])
    assert bind_host(ProcessInfo("node1:1", 2, 0)) == ""
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "10.0.0.1:8476")
    assert bind_host(ProcessInfo("node1:1", 2, 0)) == "10.0.0.1"
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "[::]:8476")
    assert bind_host(ProcessInfo("127.0.0.1:1", 2, 0)) == ""


LOOPBACK_OF_DEBIAN = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))


def test_a_wait_has_a_limit_and_names_who_is_late(monkeypatch):
    monkeypatch.setattr("tupe_jax.distributed.process_group.GRACE_SECONDS", 0.2)

    def act(processes):
        if processes.index == 2:
            time.sleep(1.0)
            return None
        return processes.gather("rows", 1, seconds=0.3)

    first, second, _ = together(3, act)
    assert isinstance(first, RetryError)
    assert "waited 0.3 s for process 2 (" in str(first)
    assert isinstance(second, RetryError)


def test_process_0_names_the_slowest_host_and_its_share_once(monkeypatch, caplog):
    monkeypatch.setattr("tupe_jax.distributed.process_group.HEARTBEAT_SECONDS", 0.02)

    def act(processes):
        slow = processes.index == 2
        processes.heartbeat = Heartbeat(1, 7, "training", 1.0, 0.8 if slow else 0.1)
        time.sleep(0.5)

    together(3, act)
    (notice,) = [message for message in caplog.messages if "slowest" in message]
    assert "process 2 (" in notice
    assert "0.80 s for data in a step of 1.00 s (80 %)" in notice


def test_every_process_knows_which_one_is_behind(monkeypatch):
    monkeypatch.setattr("tupe_jax.distributed.process_group.HEARTBEAT_SECONDS", 0.02)

    def act(processes):
        late = processes.index == 1
        processes.heartbeat = Heartbeat(39 if late else 40, 10, "saving" if late else "training")
        time.sleep(0.5)
        return processes.behind()

    for behind in together(3, act):
        assert behind == f"process 1 ({socket.gethostname()}), at step 10, saving"


def _connected(port):
    while True:
        try:
            return socket.create_connection(("localhost", port))
        except ConnectionRefusedError:
            time.sleep(0.01)


def _closed(link):
    link.settimeout(20)
    try:
        return link.recv(1) == b""
    except ConnectionResetError:  # closed with what we sent still unread
        return True
