"""The processes of one run, and the small messages that they exchange.

Every process runs the same program. Only process 0 writes files and logs progress; the others wait
for its results (`first`), and all compare what must agree (`require_same`). Every wait has a time
limit. A process that fails sends its reason to the others. A process that dies closes its
connection. A process that is stopped sends no heartbeats. In these cases all others end at once and
name it, instead of waiting for it in their next collective. The exit code is that of the failed
process, or `RETRY_EXIT_CODE`.
"""

import faulthandler
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
from typing import NoReturn, TypeVar

import jax

from tupe_jax.distributed.heartbeat import Heartbeat, furthest_behind, slowest
from tupe_jax.distributed.rendezvous import GRACE_SECONDS, Connection, Json
from tupe_jax.utils.errors import RETRY_EXIT_CODE, RetryError, UserError, is_full_disk
from tupe_jax.utils.logging import exit_at_the_latest

HEARTBEAT_SECONDS = 2.0
SILENCE_SECONDS = 60.0
SLOW_NOTICE_SECONDS = 600.0
WAITING_NOTICE_SECONDS = 60.0
EXCHANGE_SECONDS = 600.0
LAST_MESSAGES_SECONDS = 30.0
"""How long a process that ends may take to log why, and to tell the others."""
_END = "the end"

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ProcessGroup:
    """All processes of a run, seen from one of them; a context that they leave together."""

    def __init__(
        self,
        index: int,
        hosts: tuple[str, ...],
        connections: Mapping[int, Connection],
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.index = index
        self.heartbeat = Heartbeat()
        """How far this process is; replaced by the training loop's watchdog."""
        self._hosts = hosts
        self._connections = connections
        self._silence_seconds = silence_seconds
        self._news = threading.Condition()
        self._values: dict[str, dict[int, Json]] = {}
        """At process 0: values received, by the name of the exchange and by process."""
        self._answers: dict[str, Json] = {}
        """At other processes: results received from process 0, by the name of the exchange."""
        self._left: set[int] = set()
        self._ending = threading.Lock()
        """Taken by the thread that ends this process, so that later failures are ignored."""
        self._beats: dict[int, Heartbeat] = {}
        self._heard: dict[int, float] = dict.fromkeys(connections, time.monotonic())
        self._behind, self._quiet = "", 0.0
        """Which process is behind, and the longest silence of any, as process 0 reports them."""
        for peer, connection in connections.items():
            threading.Thread(target=self._listen, args=(peer, connection), daemon=True).start()
        if connections:
            threading.Thread(target=self._keep_beating, daemon=True).start()

    @property
    def count(self) -> int:
        return len(self._hosts)

    def name(self, index: int) -> str:
        return f"process {index} ({self._hosts[index]})"

    # -------------------------------------------------------------------------- exchanging values

    def first(self, what: str, do: Callable[[], T], seconds: float | None = EXCHANGE_SECONDS) -> T:
        """Call `do` in process 0 while the others wait; return its result (JSON) in all."""
        if self.count == 1:
            return do()
        result: T = self._exchange(
            what, do() if self.index == 0 else None, lambda values: values[0], seconds
        )
        return result

    def gather(
        self, what: str, value: Json, seconds: float | None = EXCHANGE_SECONDS
    ) -> list[Json]:
        """The values (small, JSON) of all processes, in all of them."""
        values: list[Json] = self._exchange(what, value, lambda values: values, seconds)
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

        compare = f"comparing {what}"
        if found := self._exchange(compare, dict(values), difference, EXCHANGE_SECONDS):
            raise UserError(found)

    def _exchange(
        self,
        what: str,
        value: Json,
        conclude: Callable[[list[Json]], Json],
        seconds: float | None,
    ) -> Json:
        """Process 0 derives a result from the values of all. A wait beyond a minute is logged.

        A wait beyond `seconds` is a `RetryError` that names the late processes. None: no limit, as
        long as their heartbeats arrive.
        """
        value = json.loads(json.dumps(value))  # as the others receive it
        if self.index:
            self._send(self._connections[0], {"for": what, "value": value})
            # Only process 0 knows which process is late: wait a little longer for its error.
            limit = None if seconds is None else seconds + GRACE_SECONDS
            self._wait(what, lambda: [] if what in self._answers else [0], limit)
            return self._answers.pop(what)
        with self._news:
            self._values.setdefault(what, {})[0] = value
        self._wait(
            what, lambda: [i for i in range(self.count) if i not in self._values[what]], seconds
        )
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
        except (OSError, ValueError):  # the host is unreachable, or a message was cut off
            return None

    def _wait(self, what: str, missing: Callable[[], list[int]], seconds: float | None) -> None:
        began, notice = time.monotonic(), WAITING_NOTICE_SECONDS
        with self._news:
            while absent := missing():
                waited = time.monotonic() - began
                names = ", ".join(self.name(i) for i in absent[:8])
                if seconds is not None and waited > seconds:
                    raise RetryError(
                        f"waited {seconds:g} s for {names}: {what}. The same command in all "
                        "processes resumes from the newest checkpoint"
                    )
                if waited > notice:
                    notice *= 2
                    logger.warning(
                        "process %d waits for %s: %s. Usual causes: slow storage; a program that "
                        "still compiles; a process that hangs",
                        self.index,
                        names,
                        what,
                    )
                self._news.wait(timeout=1.0)  # also returns for signals

    def _listen(self, peer: int, connection: Connection) -> None:
        """Runs in its own thread: the main thread may be waiting for a device."""
        while (message := self._receive(connection)) is not None:
            self._heard[peer] = time.monotonic()
            if "failed" in message:
                self._end_here(message["failed"], message["code"], stacks=message["stacks"])
            elif "beat" in message:
                self._beats[peer] = Heartbeat.parse(message["beat"])
                self._behind, self._quiet = message["behind"], message["quiet"]
            else:
                self._note(peer, message)
        if peer not in self._left:
            self._end_here(
                f"{self.name(peer)} has died or cannot be reached; the same command in all "
                "processes resumes from the newest checkpoint",
                RETRY_EXIT_CODE,
            )

    def _note(self, peer: int, message: Json) -> None:
        """A value for an exchange, or its result."""
        with self._news:
            if "all" in message:
                name = message["all"]
                self._answers[name] = message["result"]
            else:
                name = message["for"]
                self._values.setdefault(name, {})[peer] = message["value"]
            if name == _END:
                self._left.add(peer)
            self._news.notify_all()

    # ---------------------------------------------------------------------------------- heartbeats

    def behind(self) -> str:
        """The process that is behind all others, and what it does; empty if there is none."""
        if self.index:
            return self._behind
        beats = self._beats | {0: self.heartbeat}
        index = furthest_behind(beats)
        return "" if index is None else f"{self.name(index)}, {beats[index]}"

    def _keep_beating(self) -> None:
        """Runs in its own thread. Send heartbeats; end if another process sends none."""
        noticed = -SLOW_NOTICE_SECONDS
        before = time.monotonic()
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            now = time.monotonic()
            if now - before > self._silence_seconds / 2:  # this process itself was stopped
                self._heard.update(dict.fromkeys(self._heard, now))
            before = now
            for peer, heard in self._heard.items():
                if now - heard > self._silence_seconds and peer not in self._left:
                    self._end_here(
                        f"{self.name(peer)} has sent no heartbeat for {now - heard:.0f} s: it was "
                        "stopped, or its host hangs; the same command in all processes resumes "
                        "from the newest checkpoint",
                        RETRY_EXIT_CODE,
                    )
            quiet = max(now - heard for heard in self._heard.values())
            status = {"beat": self.heartbeat.message(), "behind": self.behind(), "quiet": quiet}
            for connection in self._connections.values():
                self._send(connection, status)
            if self.index == 0 and now - noticed > SLOW_NOTICE_SECONDS and self._warn_if_slow():
                noticed = now

    def _warn_if_slow(self) -> bool:
        beats = self._beats | {0: self.heartbeat}
        index = slowest(beats)
        if index is None:
            return False
        beat = beats[index]
        logger.warning(
            "step %d: %s is the slowest: it waits %.2f s for data in a step of %.2f s (%.0f %%)",
            *(beat.step, self.name(index), beat.data_seconds, beat.step_seconds),
            100 * beat.data_seconds / beat.step_seconds,
        )
        return True

    def _wait_until_all_are_heard(self) -> None:
        """Wait for a heartbeat of every process, or until `_keep_beating` ends this one.

        When a process dies or is stopped, its peers may see a network error before they learn which
        process it was.
        """
        began = time.monotonic()
        while time.monotonic() - began < self._silence_seconds + 2 * HEARTBEAT_SECONDS:
            heard = min(self._heard.values()) - (self._quiet if self.index else 0.0)
            if heard > began + HEARTBEAT_SECONDS / 2:
                return
            time.sleep(HEARTBEAT_SECONDS / 4)

    # ------------------------------------------------------------------------------ ending together

    def abandon(
        self, reason: str, exit_code: int, *, message: str = "", stacks: bool = False
    ) -> NoReturn:
        """End all processes, including this one. `reason` follows the name of this one.

        `message` is logged here. With `stacks`, all print the stacks of their threads.
        """
        exit_at_the_latest(exit_code, LAST_MESSAGES_SECONDS)
        reason = f"{self.name(self.index)} {reason}"

        def end() -> None:
            if self._ending.acquire(blocking=False):
                if message:
                    logger.error("%s", message)
                if stacks:
                    dump_stacks()
                self._send_failure(reason, exit_code, stacks)
                _exit(exit_code)

        # In a thread, since a signal may interrupt the caller.
        threading.Thread(target=end).start()
        while True:
            with suppress(BaseException):
                threading.Event().wait()

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
        if isinstance(error, UserError) and not os.environ.get("TUPE_TRACEBACK"):
            self.abandon(f"failed: {error}", error.exit_code, message=str(error))
        self._wait_until_all_are_heard()
        exit_code = _exit_code(error)
        exit_at_the_latest(exit_code, LAST_MESSAGES_SECONDS)
        logger.error("%s", type(error).__name__, exc_info=error)
        behind = f" (behind: {self.behind()})" if self.behind() else ""
        self.abandon(f"failed: {type(error).__name__}: {_first_line(error)}{behind}", exit_code)

    def _end_here(self, reason: str, exit_code: int, *, stacks: bool = False) -> None:
        """End this process because of another one; process 0 informs the rest."""
        if not self._ending.acquire(blocking=False):
            return
        exit_at_the_latest(exit_code, LAST_MESSAGES_SECONDS)
        logger.error("ended: %s", reason)
        if stacks:
            dump_stacks()
        self._send_failure(reason, exit_code, stacks)
        _exit(exit_code)

    def _send_failure(self, reason: str, exit_code: int, stacks: bool) -> None:
        for connection in self._connections.values():
            self._send(connection, {"failed": reason, "code": exit_code, "stacks": stacks})
        time.sleep(0.3)  # closing a connection with unread data may lose the last message


SINGLE_PROCESS = ProcessGroup(0, (socket.gethostname(),), {})
"""A run of one process."""


def dump_stacks() -> None:
    """Print the stacks of all threads of this process to standard error."""
    with suppress(OSError, ValueError):
        sys.stderr.flush()
        faulthandler.dump_traceback(2)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def _exit_code(error: BaseException) -> int:
    if isinstance(error, UserError):
        return error.exit_code
    if is_full_disk(error):
        return RETRY_EXIT_CODE
    # Usually a collective that failed because of another process; too little memory is not.
    lost = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error)
    return RETRY_EXIT_CODE if lost else 1


def _exit(exit_code: int) -> NoReturn:
    """End at once: otherwise JAX waits minutes for processes that are gone."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(exit_code)
