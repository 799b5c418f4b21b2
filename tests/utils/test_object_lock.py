"""The lock of a work directory on object storage."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict

import pytest

from tupe_jax.utils import object_lock
from tupe_jax.utils.errors import RETRY_EXIT_CODE, RetryError
from tupe_jax.utils.files import exclusive_lock
from tupe_jax.utils.object_lock import Owner

REFUSAL = RetryError("another run is using this work directory")
ELSEWHERE = Owner("another-host", "another boot", 1, "token")


def name_of(path):
    return str(path).removeprefix("gs://runs/")


@pytest.fixture
def lock(gs_folder):
    return gs_folder / "run.lock"


def write(gcs, lock, owner):
    gcs.write(name_of(lock), json.dumps(asdict(owner)).encode())


def test_one_of_two_gets_it_and_releases_it(lock):
    with exclusive_lock(lock, REFUSAL):
        with pytest.raises(RetryError, match="another run"), exclusive_lock(lock, REFUSAL):
            pass
        assert lock.exists()
    assert not lock.exists()
    with exclusive_lock(lock, REFUSAL):
        pass


def test_of_many_at_the_same_time_one_gets_it(lock):
    outcomes = []
    together, leave = threading.Barrier(8), threading.Event()

    def attempt():
        together.wait()
        try:
            with exclusive_lock(lock, REFUSAL):
                outcomes.append("held")
                leave.wait(20)
        except RetryError:
            outcomes.append("refused")
        if len(outcomes) == 8:
            leave.set()

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["held"] + ["refused"] * 7


def test_without_a_refusal_the_second_waits(lock):
    order = []

    def second():
        with exclusive_lock(lock):
            order.append("second")

    with exclusive_lock(lock):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_the_lock_of_a_dead_process_of_this_machine_is_taken_over_at_once(gcs, lock):
    dead = subprocess.Popen(["true"])
    dead.wait()
    write(gcs, lock, Owner("here", object_lock._machine(), dead.pid, "token"))
    with exclusive_lock(lock, REFUSAL):
        assert json.loads(lock.read_text())["pid"] == os.getpid()


def test_a_stale_lock_of_another_machine_is_taken_over(gcs, lock):
    write(gcs, lock, ELSEWHERE)
    gcs.age(name_of(lock), seconds=object_lock.STALE_SECONDS + 2)
    with exclusive_lock(lock, REFUSAL):
        assert json.loads(lock.read_text())["pid"] == os.getpid()


def test_the_lock_file_of_a_run_that_was_copied_to_the_bucket_does_not_matter(gcs, lock):
    gcs.write(name_of(lock), b"")
    gcs.age(name_of(lock), seconds=object_lock.STALE_SECONDS + 2)
    with exclusive_lock(lock, REFUSAL):
        assert json.loads(lock.read_text())["pid"] == os.getpid()


def test_a_lock_that_is_renewed_meanwhile_is_refused(gcs, lock, monkeypatch):
    monkeypatch.setattr(object_lock, "_POLL_SECONDS", 0.05)
    write(gcs, lock, ELSEWHERE)
    renewal = threading.Timer(0.3, write, (gcs, lock, ELSEWHERE))
    renewal.start()
    with pytest.raises(RetryError, match="another run"), exclusive_lock(lock, REFUSAL):
        pass
    renewal.join()


def test_a_lock_that_is_not_renewed_is_taken_over_after_a_while(gcs, lock, monkeypatch):
    monkeypatch.setattr(object_lock, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(object_lock, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(object_lock, "STALE_SECONDS", 1.0)
    write(gcs, lock, ELSEWHERE)
    with exclusive_lock(lock, REFUSAL):
        assert json.loads(lock.read_text())["host"] != ELSEWHERE.host


def test_it_is_renewed_while_it_is_held(lock, monkeypatch):
    monkeypatch.setattr(object_lock, "RENEW_SECONDS", 0.05)
    with exclusive_lock(lock, REFUSAL):
        first = object_lock._read(lock)
        deadline = time.monotonic() + 20
        while object_lock._read(lock).generation == first.generation:
            assert time.monotonic() < deadline
    assert not lock.exists()


HOLDER = """
import sys, threading, time
from tupe_jax.utils import object_lock
from tupe_jax.utils.files import exclusive_lock
from tupe_jax.utils.paths import storage_path
object_lock.RENEW_SECONDS, object_lock.STALE_SECONDS = 0.2, {stale}
object_lock.LAST_MESSAGE_SECONDS = 0.5
with exclusive_lock(storage_path({lock!r})):
    print("held", flush=True)
    # More than a pipe holds that is not read.
    threading.Thread(target=sys.stderr.write, args=("." * {unread},), daemon=True).start()
    time.sleep(60)
"""


@pytest.mark.parametrize("outage", ["fail_for", "stall_for"])
def test_a_run_that_cannot_renew_its_lock_ends_before_it_is_stale(gcs, lock, outage):
    stale = 2.0
    program = HOLDER.format(stale=stale, lock=str(lock), unread=0)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "held\n"
        getattr(gcs, outage)(60)
        began = time.monotonic()
        try:
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
            getattr(gcs, outage)(0)
    assert process.returncode == RETRY_EXIT_CODE
    assert "was not renewed for" in err
    assert time.monotonic() - began < stale + 1.0  # the end of a process takes a moment


def test_a_log_that_nobody_reads_does_not_keep_a_lost_lock_held(gcs, lock):
    program = HOLDER.format(stale=5.0, lock=str(lock), unread=1_000_000)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "held\n"
        lock.unlink()
        try:
            assert process.wait(timeout=30) == RETRY_EXIT_CODE
        finally:
            process.kill()


@pytest.mark.parametrize("taken_over", [True, False])
def test_a_run_that_loses_its_lock_ends_with_the_code_for_a_retry(gcs, lock, taken_over):
    program = HOLDER.format(stale=60.0, lock=str(lock), unread=0)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "held\n"
        if taken_over:
            write(gcs, lock, ELSEWHERE)
        else:
            lock.unlink()
        _, err = process.communicate(timeout=30)
    assert process.returncode == RETRY_EXIT_CODE
    assert ("another-host" in err) == taken_over
    assert lock.exists() == taken_over  # it leaves the lock of its successor alone
