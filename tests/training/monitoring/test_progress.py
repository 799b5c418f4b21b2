"""A bar on a terminal, plain lines elsewhere."""

import io
import logging

import pytest

from tupe_jax.training.monitoring.progress import Progress, time_text
from tupe_jax.utils.logging import configure_logging


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def console(monkeypatch):
    """Standard error of a `tupe` command that runs alone; the test chooses what it is."""

    def open_console(stream):
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        configure_logging()
        return stream

    return open_console


def run(stream):
    """100 steps from step 20; 1 s each after the first 20, which take a minute."""
    clock = Clock()
    progress = Progress(100, start=20, clock=clock)
    progress.status("compiling")
    clock.now += 60
    for step in range(21, 41):
        progress.advance(step)
    progress.report(40, loss=5.4321, tokens_per_second=31234.0)
    logging.getLogger("tupe_jax.training.loop").info("step 41: validation loss 3.2")
    clock.now += 20
    progress.report(60, loss=4.5, tokens_per_second=32000.0)
    progress.close()
    return stream.getvalue()


def test_plain_lines_without_a_terminal(console):
    assert run(console(io.StringIO())).splitlines() == [
        "compiling",
        "step 40/100 · loss 5.432 · 31.2 k tokens/s · 3:00 left",
        "step 41: validation loss 3.2",
        "step 60/100 · loss 4.500 · 32.0 k tokens/s · 1:20 left",
    ]


def test_one_bar_on_a_terminal_with_messages_above_it(console):
    shown = run(console(Terminal()))
    assert "20/100 compiling" in shown
    assert "40/100 compiling" not in shown
    assert "40/100 loss 5.432 · 31.2 k tokens/s · 3:00 left" in shown
    message = "step 41: validation loss 3.2\n"
    # The bar is wiped, the message takes its line, and the bar is drawn again below.
    before, after = shown.split(message)
    assert before.endswith("\r")
    assert "40/100" in after
    assert "60/100" in after
    assert shown.count("\n") == 2  # after the message and at the end
    assert shown.endswith("\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (67.4, "1:07"), (8100, "2:15:00"), (180000, "2 d 02 h")],
)
def test_time_left(seconds, text):
    assert time_text(seconds) == text
