"""The rendezvous: processes of a run connect to process 0 before JAX starts.

While processes are missing, JAX's own start waits silently; then it aborts without naming them. So
process 0 first listens at the coordinator's address, and the others connect and send their index.
When all are connected, JAX's service takes over the same port (no other port needs to be open). The
connections stay open for `process_group.py`.
"""

import json
import logging
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tupe_jax.utils.errors import RetryError, UserError

Json = Any
logger = logging.getLogger(__name__)
MEETING_NOTICE_SECONDS = 15.0
# Only process 0 knows which processes are missing: the others wait this much longer for its error.
GRACE_SECONDS = 5.0
# A host without power closes no connection. It counts as lost after a minute of silence.
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


@dataclass(frozen=True)
class ProcessInfo:
    """Which process of a run this is, and the address of process 0."""

    coordinator: str
    """host:port"""
    count: int
    index: int
    cluster: str | None = None
    """JAX's name of the cluster environment; None if flags or variables gave the values."""
    expected_hosts: tuple[str, ...] = ()
    """By process index; empty if the environment does not list them."""

    @property
    def host(self) -> str:
        return self.coordinator.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.coordinator.rpartition(":")[2])


class Connection:
    """JSON messages to and from another process, one per line."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._unread = b""
        self._sending = threading.Lock()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, message: Json) -> None:
        with self._sending:
            self._link.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout: float | None = None) -> Json:
        """The next message, or None if the other side closed the connection."""
        self._link.settimeout(timeout)
        while b"\n" not in self._unread:
            try:
                more = self._link.recv(1 << 16)
            except ConnectionError:
                return None
            if not more:
                return None
            self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        self._link.settimeout(None)
        return json.loads(line)

    def ended(self) -> bool:
        """Whether the other side closed the connection. Does not block."""
        try:
            return not self._link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


@dataclass(frozen=True)
class Peers:
    """Connections by process index, and all hosts. Processes other than 0 connect only to 0."""

    connections: Mapping[int, Connection]
    hosts: tuple[str, ...]


def meet(process: ProcessInfo, wait_seconds: float) -> Peers:
    """Return when all processes are connected, or fail in all of them and name the missing ones."""
    return (_accept_all if process.index == 0 else _connect)(process, wait_seconds)


# ---------------------------------------------------------------------------------------- process 0


@dataclass(frozen=True)
class _Peer:
    index: int
    host: str
    connection: Connection


def _accept_all(process: ProcessInfo, wait_seconds: float) -> Peers:
    here: dict[int, _Peer] = {}
    began, notice = time.monotonic(), MEETING_NOTICE_SECONDS
    try:
        with _listener(process, began + wait_seconds) as listener:
            while len(here) < process.count - 1:
                waited = time.monotonic() - began
                if waited > wait_seconds:
                    raise RetryError(_missing_message(process, here, wait_seconds))
                if waited > notice:
                    notice *= 2
                    logger.warning("waiting for %s", _names(process, _missing(process, here)))
                peer = _next_peer(listener, process)
                # A process that has ended may have been started again.
                here = {i: known for i, known in here.items() if not known.connection.ended()}
                if peer is not None and peer.index in here:
                    twice = UserError(
                        f"two processes have --process={peer.index}: on "
                        f"{here[peer.index].host} and on {peer.host}; give each its own number"
                    )
                    _refuse(peer, twice)
                    raise twice
                if peer is not None:
                    here[peer.index] = peer
    except UserError as error:
        for peer in here.values():
            _refuse(peer, error)
        raise
    hosts = (socket.gethostname(), *(here[i].host for i in range(1, process.count)))
    for peer in here.values():
        peer.connection.send({"hosts": hosts})
    return Peers({i: peer.connection for i, peer in here.items()}, hosts)


def _listener(process: ProcessInfo, deadline: float) -> socket.socket:
    """A socket at the coordinator's port, on all addresses, as JAX's service will use it."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    while True:
        try:
            listener = socket.create_server(
                ("", process.port), family=family, dualstack_ipv6=both, backlog=process.count
            )
            break
        except OSError as error:  # perhaps of a run that is ending
            if time.monotonic() > deadline:
                raise RetryError(
                    f"cannot listen on port {process.port} of this host ({error.strerror}); "
                    "end the other run, or choose another port for --coordinator"
                ) from error
            time.sleep(0.2)
    listener.settimeout(0.5)
    return listener


def _next_peer(listener: socket.socket, process: ProcessInfo) -> _Peer | None:
    """A process that connects within half a second. Other connections are ignored."""
    try:
        connection = Connection(listener.accept()[0])
        hello = connection.receive(timeout=2.0)
        index, count, host = hello["process"], hello["processes"], hello["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    peer, trouble = _Peer(index, host, connection), None
    if count != process.count:
        trouble = f"process {index} on {host} expects {count} processes, process 0 {process.count}"
    elif not 0 < index < count:
        trouble = f"--process={index} on {host} is not below --processes={count}"
    if trouble:
        error = UserError(f"{trouble}; give all the same --processes and each its own --process")
        _refuse(peer, error)
        raise error
    return peer


def _refuse(peer: _Peer, error: UserError) -> None:
    again = isinstance(error, RetryError)
    with suppress(OSError):
        peer.connection.send({"refused": str(error), "start_again": again})


def _missing(process: ProcessInfo, here: Mapping[int, _Peer]) -> list[int]:
    return [i for i in range(1, process.count) if i not in here]


def _names(process: ProcessInfo, indices: Sequence[int]) -> str:
    """Process 1 (host b), process 3 (host d)"""
    hosts = dict(enumerate(process.expected_hosts))
    names = [f"process {i}" + (f" ({hosts[i]})" if i in hosts else "") for i in indices[:8]]
    more = len(indices) - len(names)
    return f"{', '.join(names)}{f' and {more} more' if more else ''} of {process.count}"


def _missing_message(process: ProcessInfo, here: Mapping[int, _Peer], waited: float) -> str:
    hosts = {0: socket.gethostname()} | {i: peer.host for i, peer in sorted(here.items())[:8]}
    connected = ", ".join(f"{i} ({host})" for i, host in hosts.items())
    return (
        f"{_names(process, _missing(process, here))} did not connect within {waited:g} s; "
        f"connected: {connected}. Usual causes: the command was not started on every host; a "
        f"firewall blocks port {process.port} of process 0's host; --coordinator differs between "
        "hosts"
    )


# ----------------------------------------------------------------------------------------- the rest


def _connect(process: ProcessInfo, wait_seconds: float) -> Peers:
    began, notice, trouble = time.monotonic(), MEETING_NOTICE_SECONDS, "no answer"
    while (waited := time.monotonic() - began) < wait_seconds:
        if waited > notice:
            notice *= 2
            logger.warning("waiting for process 0 at %s (%s)", process.coordinator, trouble)
        try:
            connection = Connection(
                socket.create_connection((process.host, process.port), timeout=5)
            )
            connection.send(
                {"process": process.index, "processes": process.count, "host": socket.gethostname()}
            )
            answer = connection.receive(timeout=wait_seconds - waited + GRACE_SECONDS)
            if answer is not None and "refused" in answer:
                kind = RetryError if answer["start_again"] else UserError
                raise kind(answer["refused"])
            if answer is not None:
                return Peers({0: connection}, tuple(answer["hosts"]))
            trouble = "process 0 was reached, then ended"
        except OSError as error:
            trouble = error.strerror or str(error)
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, UserError):
                raise
            trouble = "another program answered"
        time.sleep(0.1)
    raise RetryError(
        f"process {process.index} could not reach process 0 at {process.coordinator} within "
        f"{wait_seconds:g} s ({trouble}). Usual causes: the command was not started on process 0's "
        f"host; a firewall blocks its port {process.port}; --coordinator names another host"
    )
