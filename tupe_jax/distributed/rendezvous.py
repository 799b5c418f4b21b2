"""How the processes of a run find each other before JAX starts.

JAX's own start is silent while processes are missing, and then aborts without saying which. So they
meet first: process 0 listens at the coordinator's address, and each of the others connects and says
its number. When all are there, JAX's service takes over the same port (no other needs to be open)
and the connections stay: what is told over them is in `processes.py`.
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
# Process 0 knows who is missing: the others give it time to say so before they give up themselves.
GRACE_SECONDS = 5.0
# A host that loses its power closes nothing. It is noticed after about a minute of silence.
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


@dataclass(frozen=True)
class Place:
    """Which process of a run this is, and where it finds process 0."""

    coordinator: str
    """host:port"""
    count: int
    index: int
    cluster: str | None = None
    """JAX's name of the environment that said so; None if flags or variables did."""
    expected_hosts: tuple[str, ...] = ()
    """By process, where the environment tells."""

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
        """The next message, or None if the other side has ended."""
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
        """Whether the other side has gone, without waiting for it."""
        try:
            return not self._link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


@dataclass(frozen=True)
class Met:
    """The end of a meeting: connections by process (all have one to process 0), and hosts."""

    connections: Mapping[int, Connection]
    hosts: tuple[str, ...]


def meet(place: Place, wait_seconds: float) -> Met:
    """Return when all processes are there, or fail in all of them, naming those that are not."""
    return (_receive_all if place.index == 0 else _go_there)(place, wait_seconds)


# ---------------------------------------------------------------------------------------- process 0


@dataclass(frozen=True)
class _Guest:
    index: int
    host: str
    connection: Connection


def _receive_all(place: Place, wait_seconds: float) -> Met:
    here: dict[int, _Guest] = {}
    began, notice = time.monotonic(), MEETING_NOTICE_SECONDS
    try:
        with _listener(place, began + wait_seconds) as listener:
            while len(here) < place.count - 1:
                waited = time.monotonic() - began
                if waited > wait_seconds:
                    raise RetryError(_who_is_missing(place, here, wait_seconds))
                if waited > notice:
                    notice *= 2
                    logger.warning("waiting for %s", _named(place, _missing(place, here)))
                guest = _next_guest(listener, place)
                # One that has gone meanwhile may have been started again.
                here = {i: known for i, known in here.items() if not known.connection.ended()}
                if guest is not None and guest.index in here:
                    twice = UserError(
                        f"two processes say that they are process {guest.index}: on "
                        f"{here[guest.index].host} and on {guest.host}; give each its own --process"
                    )
                    _refuse(guest, twice)
                    raise twice
                if guest is not None:
                    here[guest.index] = guest
    except UserError as error:
        for guest in here.values():
            _refuse(guest, error)
        raise
    hosts = (socket.gethostname(), *(here[i].host for i in range(1, place.count)))
    for guest in here.values():
        guest.connection.send({"hosts": hosts})
    return Met({i: guest.connection for i, guest in here.items()}, hosts)


def _listener(place: Place, deadline: float) -> socket.socket:
    """A socket at the coordinator's port, on all addresses, as JAX's service will have it."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    while True:
        try:
            listener = socket.create_server(
                ("", place.port), family=family, dualstack_ipv6=both, backlog=place.count
            )
            break
        except OSError as error:  # perhaps a run that is about to end
            if time.monotonic() > deadline:
                raise RetryError(
                    f"port {place.port} of this host cannot be used ({error.strerror}); "
                    "end the other run, or choose another port for --coordinator"
                ) from error
            time.sleep(0.2)
    listener.settimeout(0.5)
    return listener


def _next_guest(listener: socket.socket, place: Place) -> _Guest | None:
    """A process that came within half a second; others that knock at the port are ignored."""
    try:
        connection = Connection(listener.accept()[0])
        hello = connection.receive(timeout=2.0)
        index, count, host = hello["process"], hello["processes"], hello["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    guest, trouble = _Guest(index, host, connection), None
    if count != place.count:
        trouble = f"process {index} on {host} expects {count} processes, process 0 {place.count}"
    elif not 0 < index < count:
        trouble = f"there is no process {index} among {count}, as {host} has it"
    if trouble:
        error = UserError(f"{trouble}; give all the same --processes and each its own --process")
        _refuse(guest, error)
        raise error
    return guest


def _refuse(guest: _Guest, error: UserError) -> None:
    again = isinstance(error, RetryError)
    with suppress(OSError):
        guest.connection.send({"refused": str(error), "start_again": again})


def _missing(place: Place, here: Mapping[int, _Guest]) -> list[int]:
    return [i for i in range(1, place.count) if i not in here]


def _named(place: Place, indices: Sequence[int]) -> str:
    """Process 1 (host b), process 3 (host d)"""
    hosts = dict(enumerate(place.expected_hosts))
    names = [f"process {i}" + (f" ({hosts[i]})" if i in hosts else "") for i in indices[:8]]
    more = len(indices) - len(names)
    return f"{', '.join(names)}{f' and {more} more' if more else ''} of {place.count}"


def _who_is_missing(place: Place, here: Mapping[int, _Guest], waited: float) -> str:
    came = ", ".join(f"{i} ({guest.host})" for i, guest in sorted(here.items())[:8])
    return (
        f"{_named(place, _missing(place, here))} did not come within {waited:g} s; here: 0 "
        f"({socket.gethostname()}){f', {came}' if came else ''}. Usual causes: the command was not "
        f"started on every host; a firewall closes port {place.port} of process 0's host; "
        "--coordinator is not the same everywhere"
    )


# ----------------------------------------------------------------------------------------- the rest


def _go_there(place: Place, wait_seconds: float) -> Met:
    began, notice, trouble = time.monotonic(), MEETING_NOTICE_SECONDS, "no answer"
    while (waited := time.monotonic() - began) < wait_seconds:
        if waited > notice:
            notice *= 2
            logger.warning("waiting for process 0 at %s (%s)", place.coordinator, trouble)
        try:
            connection = Connection(socket.create_connection((place.host, place.port), timeout=5))
            connection.send(
                {"process": place.index, "processes": place.count, "host": socket.gethostname()}
            )
            answer = connection.receive(timeout=wait_seconds - waited + GRACE_SECONDS)
            if answer is not None and "refused" in answer:
                kind = RetryError if answer["start_again"] else UserError
                raise kind(answer["refused"])
            if answer is not None:
                return Met({0: connection}, tuple(answer["hosts"]))
            trouble = "it was there, and ended"
        except OSError as error:
            trouble = error.strerror or str(error)
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, UserError):
                raise
            trouble = "somebody else answers"
        time.sleep(0.1)
    raise RetryError(
        f"process {place.index} could not reach process 0 at {place.coordinator} within "
        f"{wait_seconds:g} s ({trouble}). Usual causes: the command was not started on process 0's "
        f"host; a firewall closes its port {place.port}; --coordinator names another host"
    )
