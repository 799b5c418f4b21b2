"""The processes of one run, and the small messages that they exchange.

Every process runs the same program. Only process 0 writes files and logs progress; the others wait
for its results (`first`), and all compare what must agree (`require_same`). A process that fails
sends its reason to the others. A process that dies closes its connection. In both cases all others
end at once and name it, instead of waiting for it in their next collective. The exit code is that
of the failed process, or `RETRY_EXIT_CODE`.
"""

import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from tupe_jax.distributed.rendezvous import Connection, Json
from tupe_jax.utils.errors import RETRY_EXIT_CODE, UserError

WAITING_NOTICE_SECONDS = 60.0
# When a process dies, its peers may see a network error before they learn which process it was.
NEWS_SECONDS = 3.0
_END = "the end"

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ProcessGroup:
    """All processes of a run, seen from one of them; a context that they leave together."""

    def __init__(
        self, index: int, hosts: tuple[str, ...], connections: Mapping[int, Connection]
    ) -> None:
        self.index = index
        self._hosts = hosts
        self._connections = connections
        self._news = threading.Condition()
        self._values: dict[str, dict[int, Json]] = {}
        """At process 0: values received, by the name of the exchange and by process."""
        self._answers: dict[str, Json] = {}
        """At other processes: results received from process 0, by the name of the exchange."""
        self._left: set[int] = set()
        self._ending = threading.RLock()
        """Held by the thread that ends this process, so that later failures of others are ignored.

        Reentrant: Ctrl-C may interrupt the first attempt."""
        for peer, connection in connections.items():
            threading.Thread(target=self._listen, args=(peer, connection), daemon=True).start()

    @property
    def count(self) -> int:
        return len(self._hosts)

    def name(self, index: int) -> str:
        return f"process {index} ({self._hosts[index]})"

    # -------------------------------------------------------------------------- exchanging values

    def first(self, what: str, do: Callable[[], T]) -> T:
        """Call `do` in process 0 while the others wait; return its result (JSON) in all."""
        if self.count == 1:
            return do()
        result: T = self._exchange(
            what, do() if self.index == 0 else None, lambda values: values[0]
        )
        return result

    def gather(self, what: str, value: Json) -> list[Json]:
        """The values (small, JSON) of all processes, in all of them."""
        values: list[Json] = self._exchange(what, value, lambda values: values)
        return values

    def require_same(self, what: str, values: Mapping[str, Json]) -> None:
        """Raise in all processes if one of these values differs between them."""

        def difference(everywhere: list[Json]) -> str | None:
            for name, expected in everywhere[0].items():
                for index, here in enumerate(everywhere):
                    if here.get(name) != expected:
                        return (
                            f"{name} is {here.get(name)} at {self.name(index)}, but {expected} at "
                            f"{self.name(0)}: it must be the same in all processes"
                        )
            return None

        if found := self._exchange(f"comparing {what}", dict(values), difference):
            raise UserError(found)

    def _exchange(self, what: str, value: Json, conclude: Callable[[list[Json]], Json]) -> Json:
        """Process 0 derives a result from the values of all. A wait beyond a minute is logged."""
        value = json.loads(json.dumps(value))  # as the others receive it
        if self.index:
            self._send(self._connections[0], {"for": what, "value": value})
            self._wait(what, lambda: [] if what in self._answers else [0])
            return self._answers.pop(what)
        with self._news:
            self._values.setdefault(what, {})[0] = value
        self._wait(what, lambda: [i for i in range(self.count) if i not in self._values[what]])
        result = conclude([value for _, value in sorted(self._values.pop(what).items())])
        for connection in self._connections.values():
            self._send(connection, {"all": what, "result": result})
        return result

    def _send(self, connection: Connection, message: Json) -> None:
        with suppress(OSError):  # `_listen` notices a peer that has gone
            connection.send(message)

    def _receive(self, connection: Connection) -> Json:
        try:
            return connection.receive()
        except OSError:  # the host is unreachable
            return None

    def _wait(self, what: str, missing: Callable[[], list[int]]) -> None:
        began, notice = time.monotonic(), WAITING_NOTICE_SECONDS
        with self._news:
            while absent := missing():
                if time.monotonic() - began > notice:
                    notice *= 2
                    names = ", ".join(self.name(i) for i in absent[:8])
                    logger.warning(
                        "process %d waits for %s: %s. Usual causes: slow storage; a program that "
                        "still compiles; a process that hangs",
                        self.index,
                        names,
                        what,
                    )
                self._news.wait(timeout=1.0)  # returns for signals, too

    def _listen(self, peer: int, connection: Connection) -> None:
        """Runs in its own thread: the main thread may be waiting for a device."""
        while (message := self._receive(connection)) is not None:
            with self._news:
                if "failed" in message:
                    self._end_here(message["failed"], message["code"])
                elif "all" in message:
                    self._answers[message["all"]] = message["result"]
                    if message["all"] == _END:
                        self._left.add(peer)
                else:
                    self._values.setdefault(message["for"], {})[peer] = message["value"]
                    if message["for"] == _END:
                        self._left.add(peer)
                self._news.notify_all()
        if peer not in self._left:
            self._end_here(
                f"{self.name(peer)} has died or cannot be reached; the same command in all "
                "processes resumes from the newest checkpoint",
                RETRY_EXIT_CODE,
            )

    # ------------------------------------------------------------------------------ ending together

    def abandon(self, reason: str, exit_code: int) -> None:
        """End all processes, including this one. `reason` follows the name of this one."""
        if self.count > 1:
            self._ending.acquire()
            self._send_failure(f"{self.name(self.index)} {reason}", exit_code)
            _exit(exit_code)

    def __enter__(self) -> "ProcessGroup":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.count == 1:
            return
        if error is None:
            self.gather(_END, None)
            return
        exit_code = error.exit_code if isinstance(error, UserError) else 1
        if isinstance(error, UserError) and not os.environ.get("TUPE_TRACEBACK"):
            logger.error("%s", error)
            self.abandon(f"failed: {error}", exit_code)
        time.sleep(NEWS_SECONDS)  # `_listen` ends this process if the cause is another one
        logger.error("%s", type(error).__name__, exc_info=error)
        self.abandon(f"failed: {type(error).__name__}: {_first_line(error)}", exit_code)

    def _end_here(self, reason: str, exit_code: int) -> None:
        """End this process because of another one; process 0 informs the rest."""
        if not self._ending.acquire(blocking=False):
            return
        logger.error("ended: %s", reason)
        if self.index == 0:
            self._send_failure(reason, exit_code)
        _exit(exit_code)

    def _send_failure(self, reason: str, exit_code: int) -> None:
        for connection in self._connections.values():
            self._send(connection, {"failed": reason, "code": exit_code})
        time.sleep(0.3)  # closing a connection with unread data may lose the last message


SINGLE_PROCESS = ProcessGroup(0, (socket.gethostname(),), {})
"""A run of one process."""


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def _exit(exit_code: int) -> None:
    """End at once: otherwise JAX waits minutes for processes that are gone."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(exit_code)
