"""The processes of one run: who they are, and what they tell each other besides arrays.

Every process runs the same program. Process 0 alone writes, draws and speaks; where the others
depend on that they wait for it (`first`), and where all must agree they compare (`require_same`).
A process that fails tells the others why, and one that dies is noticed by its closed connection:
all others end at once with a line that names it, instead of waiting for it in their next collective
operation. The exit code is the failed one's own, or `RETRY_EXIT_CODE`.
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
# When a process dies, an error of the network may be seen before the news of whose it was.
NEWS_SECONDS = 3.0
_END = "the end"

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ProcessGroup:
    """All processes of a run, seen from one of them; a context that all leave together."""

    def __init__(
        self, index: int, hosts: tuple[str, ...], connections: Mapping[int, Connection]
    ) -> None:
        self.index = index
        self._hosts = hosts
        self._connections = connections
        self._news = threading.Condition()
        self._values: dict[str, dict[int, Json]] = {}
        """At process 0: what came for a meeting point, by its name and by process."""
        self._answers: dict[str, Json] = {}
        """Elsewhere: what process 0 concluded from it."""
        self._left: set[int] = set()
        self._ending = threading.RLock()
        """Held by the thread that ends this process; the ends of others that follow are no news.

        It may take it twice: Ctrl-C may interrupt its first try."""
        for peer, connection in connections.items():
            threading.Thread(target=self._listen, args=(peer, connection), daemon=True).start()

    @property
    def count(self) -> int:
        return len(self._hosts)

    def name(self, index: int) -> str:
        return f"process {index} ({self._hosts[index]})"

    # -------------------------------------------------------------------------- telling each other

    def first(self, what: str, do: Callable[[], T]) -> T:
        """Let process 0 do something while the others wait; return its result (JSON) to all."""
        if self.count == 1:
            return do()
        result: T = self._meet_at(what, do() if self.index == 0 else None, lambda all_of: all_of[0])
        return result

    def gather(self, what: str, value: Json) -> list[Json]:
        """Every process's value (JSON, small), for all."""
        values: list[Json] = self._meet_at(what, value, lambda all_of: all_of)
        return values

    def require_same(self, what: str, facts: Mapping[str, Json]) -> None:
        """Fail in all processes if one of these facts is not the same in all."""

        def difference(everywhere: list[Json]) -> str | None:
            for name, expected in everywhere[0].items():
                for index, here in enumerate(everywhere):
                    if here.get(name) != expected:
                        return (
                            f"{name} is {here.get(name)} at {self.name(index)}, but {expected} at "
                            f"{self.name(0)}: all processes of a run need the same"
                        )
            return None

        if found := self._meet_at(f"comparing {what}", dict(facts), difference):
            raise UserError(found)

    def _meet_at(self, what: str, value: Json, conclude: Callable[[list[Json]], Json]) -> Json:
        """All bring a value, process 0 concludes. Who waits more than a minute says for whom."""
        value = json.loads(json.dumps(value))  # as the others see it
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
        with suppress(OSError):  # whoever has gone is noticed where its messages are awaited
            connection.send(message)

    def _receive(self, connection: Connection) -> Json:
        try:
            return connection.receive()
        except OSError:  # the host cannot be reached any more
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
                self._news.wait(timeout=1.0)  # comes back for signals, too

    def _listen(self, peer: int, connection: Connection) -> None:
        """Runs in a thread of its own: the main one may be waiting for a device."""
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
                "processes goes on from the newest checkpoint",
                RETRY_EXIT_CODE,
            )

    # ------------------------------------------------------------------------------ ending together

    def abandon(self, reason: str, exit_code: int) -> None:
        """End all processes, this one included: `reason` follows this one's name."""
        if self.count > 1:
            self._ending.acquire()
            self._tell_of_failure(f"{self.name(self.index)} {reason}", exit_code)
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
        time.sleep(NEWS_SECONDS)  # the thread that hears of a lost process would end this one
        logger.error("%s", type(error).__name__, exc_info=error)
        self.abandon(f"failed: {type(error).__name__}: {_first_line(error)}", exit_code)

    def _end_here(self, reason: str, exit_code: int) -> None:
        """Because of another process; process 0 passes the news on."""
        if not self._ending.acquire(blocking=False):
            return
        logger.error("ended: %s", reason)
        if self.index == 0:
            self._tell_of_failure(reason, exit_code)
        _exit(exit_code)

    def _tell_of_failure(self, reason: str, exit_code: int) -> None:
        for connection in self._connections.values():
            self._send(connection, {"failed": reason, "code": exit_code})
        time.sleep(0.3)  # a connection closed with something unread may lose what was sent last


SINGLE_PROCESS = ProcessGroup(0, (socket.gethostname(),), {})
"""A run of one process."""


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def _exit(exit_code: int) -> None:
    """End at once: JAX would first wait, for minutes, for processes that are gone."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(exit_code)
