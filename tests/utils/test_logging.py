"""What a console shows of log records, alone and as one of several processes."""

import logging
import re

import pytest

from tupe_jax.utils.logging import configure_logging

logger = logging.getLogger("tupe_jax.training.loop")


@pytest.fixture(autouse=True)
def only_our_handler(monkeypatch):
    """As in a command, whatever libraries added before; other tests run as a single process."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    yield
    configure_logging()


def test_a_single_process_prints_plain_messages(capsys):
    configure_logging()
    logger.info("step 10: validation loss %.3f", 5.25)
    logger.warning("the loss rose")
    assert capsys.readouterr().err == "step 10: validation loss 5.250\nwarning: the loss rose\n"


def test_one_of_several_has_time_level_and_process_index(capsys):
    configure_logging(process_index=0, process_count=4)
    logger.info("compiling")
    line = capsys.readouterr().err
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO process 0: compiling\n", line)


def test_other_processes_print_warnings_only(capsys):
    configure_logging(process_index=3, process_count=4)
    logger.info("compiling")
    logger.warning("waiting for process 1")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING process 3: waiting for process 1")


def test_a_traceback_follows_its_message(capsys):
    configure_logging(process_index=1, process_count=2)
    logger.error("failed", exc_info=ZeroDivisionError("by zero"))
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.endswith("ERROR process 1: failed")
    assert last == "ZeroDivisionError: by zero"


@pytest.mark.parametrize("library", ["absl", "jax._src.xla_bridge", "orbax.checkpoint"])
def test_libraries_print_their_warnings_only(capsys, library):
    configure_logging()
    logging.getLogger(library).info("starting")
    logging.getLogger(library).warning("no space left")
    name = library.partition(".")[0]
    assert capsys.readouterr().err == f"warning: {name}: no space left\n"


def test_a_second_call_does_not_print_lines_twice(capsys):
    configure_logging()
    configure_logging()
    logger.info("once")
    assert capsys.readouterr().err == "once\n"
