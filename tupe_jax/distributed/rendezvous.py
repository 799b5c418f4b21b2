"""The rendezvous: processes of a run connect to process 0 before JAX starts.

While processes are missing, JAX's own start waits silently; then it aborts without naming them. So
process 0 first listens at the coordinator's address, and the others connect and send their index.
When all are connected, JAX's service takes over the same port (no other port needs to be open). The
connections stay open for `process_group.py`.

The port may be reached by others: a port scanner, a health check, a process of another run. Process
0 reads each hello in a thread of its own, within a time and size limit, and drops a connection
whose hello is malformed or has another token than `ProcessInfo.token`. The token identifies a
run. It is sent in the clear, and JAX's service has none: the port belongs on a private network.
"""

import hmac
import ipaddress
import json
import logging
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tupe_jax.utils.errors import RetryError, UserError

Json = Any
logger = logging.getLogger(__name__)
MEETING_NOTICE_SECONDS = 15.0
# Only process 0 knows which processes are missing: the others wait this much longer for its error.
GRACE_SECONDS = 5.0
# A host without power closes no connection. It counts as lost after a minute of silence.
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# A hello is a hundred bytes and is sent at once; later messages are a list of hosts, settings, ...
HELLO_SECONDS, HELLO_BYTES = 5.0, 4096
MESSAGE_BYTES = 1 << 24
# A process that is stopped does not read: without a limit, a full buffer would block its peers.
SEND_SECONDS = 10
# The number of connections by strangers at the same time, besides two for each process.
STRANGERS = 64


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
    """The host of each process, by index; empty if the environment does not list them."""
    token: str = field(default="", repr=False)
    """The same in all processes of a run; empty if none is configured."""

    @property
    def host(self) -> str:
        return self.coordinator.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.coordinator.rpartition(":")[2])


@dataclass(frozen=True)
class Hello:
    """The first message of a process to process 0."""

    process: int
    processes: int
    host: str
    token: str

    @classmethod
    def parse(cls, message: Json) -> "Hello":
        """Raise a ValueError if a message is anything else."""
        names = {part.name: part.type for part in fields(cls)}
        if not isinstance(message, dict) or message.keys() != names.keys():
            raise ValueError("the message is not a hello of tupe_jax")
        for name, kind in names.items():
            if type(message[name]) is not kind:  # `isinstance` would accept True as a number
                raise ValueError(f"the hello's {name} has the wrong type")
        return cls(**message)


class Connection:
    """JSON messages to and from another process, one per line."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._unread = b""
        self._sending = threading.Lock()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, message: Json) -> None:
        with self._sending:
            self._link.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float | None = None, max_bytes: int = MESSAGE_BYTES) -> Json:
        """The next message, or None if the other side closed the connection.

        Raises a TimeoutError if the whole message has not arrived after so many seconds, and a
        ValueError if it is too long or not JSON.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._unread:
            if len(self._unread) > max_bytes:
                raise ValueError(f"the message is longer than {max_bytes} bytes")
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimeoutError("the message is incomplete")
            self._link.settimeout(remaining)
            try:
                more = self._link.recv(1 << 16)
            except ConnectionError:
                return None
            if not more:
                return None
            self._unread += more
        self._link.settimeout(None)
        line, self._unread = self._unread.split(b"\n", 1)
        if len(line) > max_bytes:
            raise ValueError(f"the message is longer than {max_bytes} bytes")
        try:
            return json.loads(line)
        except RecursionError:
            raise ValueError("the message is nested too deeply") from None

    def ended(self) -> bool:
        """Whether the other side closed the connection. Does not block."""
        try:
            return not self._link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._link.close()


@dataclass(frozen=True)
class Peers:
    """Connections by process index, and all hosts. Processes other than 0 connect only to 0."""

    connections: Mapping[int, Connection]
    hosts: tuple[str, ...]


def meet(process: ProcessInfo, wait_seconds: float) -> Peers:
    """Return when all processes are connected, or fail in all of them and name the missing ones."""
    return (_accept_all if process.index == 0 else _connect)(process, wait_seconds)


# ---------------------------------------------------------------------------------------- process 0


def bind_host(process: ProcessInfo) -> str:
    """The address at which process 0 listens; empty: all addresses of this host.

    It is the coordinator's, unless that is not an address of this host (behind NAT), or is a name
    that means the loopback interface here (`127.0.1.1` in Debian's /etc/hosts) but not elsewhere.
    JAX_COORDINATOR_BIND_ADDRESS overrides it.
    """
    given = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")
    if given:
        host = given.rpartition(":")[0].strip("[]")
        return "" if host in ("::", "0.0.0.0") else host
    for family, address in _addresses(process.host):
        only_here = ipaddress.ip_address(address.partition("%")[0]).is_loopback
        if only_here and process.host not in ("localhost", address):
            continue
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
            return address
    return ""


def _addresses(host: str) -> list[tuple[int, str]]:
    """The families and addresses of a host, those of IPv4 first."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted((int(family), str(address[0])) for family, _, _, _, address in found)


@dataclass(frozen=True)
class _Peer:
    hello: Hello
    connection: Connection

    @property
    def name(self) -> str:
        return f"process {self.hello.process} on {self.hello.host}"

    def refuse(self, error: UserError) -> None:
        again = isinstance(error, RetryError)
        with suppress(OSError):
            self.connection.send({"refused": str(error), "start_again": again})


class _Reception:
    """Accepts connections; those with a valid hello and the right token become peers."""

    def __init__(self, listener: socket.socket, process: ProcessInfo) -> None:
        self._listener = listener
        self._token = process.token.encode()
        self._greeted: queue.SimpleQueue[_Peer] = queue.SimpleQueue()
        self._room = threading.Semaphore(2 * process.count + STRANGERS)
        self._dropped_one = False

    def next_peer(self) -> _Peer | None:
        """A process that has been greeted; None if there is none after a tenth of a second."""
        with suppress(OSError):  # a timeout, or the error of a connection that is gone already
            link, address = self._listener.accept()
            if self._room.acquire(blocking=False):
                threading.Thread(target=self._greet, args=(link, address[0]), daemon=True).start()
            else:
                link.close()  # a process of the run tries again
        with suppress(queue.Empty):
            return self._greeted.get_nowait()
        return None

    def _greet(self, link: socket.socket, address: str) -> None:
        try:
            connection = Connection(link)
            hello = Hello.parse(connection.receive(HELLO_SECONDS, HELLO_BYTES))
            if not hmac.compare_digest(hello.token.encode(), self._token):
                raise ValueError("another token (see --token)")
        except (OSError, ValueError) as error:
            link.close()
            if not self._dropped_one:
                self._dropped_one = True
                logger.warning(
                    "dropped a connection from %s: %s. Further ones are not logged", address, error
                )
        else:
            self._greeted.put(_Peer(hello, connection))
        finally:
            self._room.release()


def _accept_all(process: ProcessInfo, wait_seconds: float) -> Peers:
    here: dict[int, _Peer] = {}
    refused = ""
    began, notice = time.monotonic(), MEETING_NOTICE_SECONDS
    try:
        with _listener(process, began + wait_seconds) as listener:
            reception = _Reception(listener, process)
            while len(here) < process.count - 1:
                waited = time.monotonic() - began
                if waited > wait_seconds:
                    raise RetryError(_missing_message(process, here, wait_seconds) + refused)
                if waited > notice:
                    notice *= 2
                    logger.warning("waiting for %s", _names(process, _missing(process, here)))
                peer = reception.next_peer()
                if peer is None or peer.connection.ended():  # greeted, but gone since
                    continue
                # A process that has ended may have been started again.
                here = {i: known for i, known in here.items() if not known.connection.ended()}
                if wrong := _mistake(process, peer, here):
                    peer.refuse(wrong)
                    if process.token:
                        raise wrong
                    # Without a token it may be a stranger, who must not be able to end the run.
                    logger.warning("refused %s: %s", peer.name, wrong)
                    refused = f". Refused: {wrong}"
                else:
                    here[peer.hello.process] = peer
    except UserError as error:
        for peer in here.values():
            peer.refuse(error)
        raise
    hosts = (socket.gethostname(), *(here[i].hello.host for i in range(1, process.count)))
    for peer in here.values():
        with suppress(OSError):  # `process_group.py` notices a process that has just died
            peer.connection.send({"hosts": hosts})
    return Peers({i: peer.connection for i, peer in here.items()}, hosts)


def _mistake(process: ProcessInfo, peer: _Peer, here: Mapping[int, _Peer]) -> UserError | None:
    """What is wrong with the numbers that a process was given."""
    index, count = peer.hello.process, peer.hello.processes
    same = "give all the same --processes and each its own --process"
    if count != process.count:
        return UserError(
            f"{peer.name} expects {count} processes, process 0 {process.count}; {same}"
        )
    if not 0 < index < count:
        return UserError(
            f"--process={index} on {peer.hello.host} is not below --processes={count}; {same}"
        )
    if index in here:
        # Not a `UserError`: a process of an earlier start may still be ending.
        return RetryError(
            f"two processes have --process={index}: on {here[index].hello.host} and on "
            f"{peer.hello.host}; end processes of an earlier start, and give each its own number"
        )
    return None


def _listener(process: ProcessInfo, deadline: float) -> socket.socket:
    """A socket at the coordinator's port, on the addresses that JAX's service will use."""
    host = bind_host(process)
    if not host:
        logger.info("process 0 listens on all addresses of its host (port %d)", process.port)
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    while True:
        try:
            listener = socket.create_server(
                (host, process.port),
                family=family,
                dualstack_ipv6=both,
                backlog=process.count + STRANGERS,
            )
            break
        except OSError as error:  # perhaps of a run that is ending
            if time.monotonic() > deadline:
                raise RetryError(
                    f"cannot listen on port {process.port} of this host ({error.strerror}); "
                    "end the other run, or choose another port for --coordinator"
                ) from error
            time.sleep(0.2)
    listener.settimeout(0.1)
    return listener


def _missing(process: ProcessInfo, here: Mapping[int, _Peer]) -> list[int]:
    return [i for i in range(1, process.count) if i not in here]


def _names(process: ProcessInfo, indices: Sequence[int]) -> str:
    """Process 1 (host b), process 3 (host d)"""
    hosts = dict(enumerate(process.expected_hosts))
    names = [f"process {i}" + (f" ({hosts[i]})" if i in hosts else "") for i in indices[:8]]
    more = len(indices) - len(names)
    return f"{', '.join(names)}{f' and {more} more' if more else ''} of {process.count}"


def _missing_message(process: ProcessInfo, here: Mapping[int, _Peer], waited: float) -> str:
    hosts = {0: socket.gethostname()} | {i: peer.hello.host for i, peer in sorted(here.items())[:8]}
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
            link = socket.create_connection((process.host, process.port), timeout=5)
            connection = Connection(link)
            hello = Hello(process.index, process.count, socket.gethostname(), process.token)
            connection.send(asdict(hello))
            answer = connection.receive(wait_seconds - waited + GRACE_SECONDS)
            if answer is not None:
                return Peers({0: connection}, _hosts(answer))
            connection.close()
            trouble = "it closed the connection: it has ended, or has another --token"
        except UserError:
            raise
        except OSError as error:
            trouble = error.strerror or str(error)
        except ValueError:
            trouble = "another program answered"
        time.sleep(0.1)
    raise RetryError(
        f"process {process.index} could not reach process 0 at {process.coordinator} within "
        f"{wait_seconds:g} s ({trouble}). Usual causes: the command was not started on process 0's "
        f"host; a firewall blocks its port {process.port}; --coordinator names another host"
    )


def _hosts(answer: Json) -> tuple[str, ...]:
    """The hosts in process 0's answer. Raises its error if it refused this process."""
    match answer:
        case {"hosts": [*hosts]} if all(isinstance(host, str) for host in hosts):
            return tuple(hosts)
        case {"refused": str(reason), "start_again": bool(again)}:
            raise (RetryError if again else UserError)(reason)
    raise ValueError("the answer is not that of process 0")
