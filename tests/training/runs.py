"""Small real runs: a corpus made once, and `tupe pretrain` in this process or in another."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from tests.distributed.ports import free_port
from tupe_jax.checkpointing.manager import FOLDER, Checkpoints
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.prepare import prepare
from tupe_jax.data.pretraining.train_tokenizer import train_tokenizer
from tupe_jax.distributed.mesh import make_mesh
from tupe_jax.training.loop import pretrain
from tupe_jax.training.monitoring.metrics import read_metrics
from tupe_jax.training.train_state import plan_state

ROOT = Path(__file__).parents[2]
PIECES, LENGTH, TASK = 300, 16, "builtin:400"
WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None  # importing it fails
from tupe_jax.cli import main
sys.exit(main())
"""


# A reader that never returns, as on a file system that stalls: from the n-th batch in one process.
HUNG_READER = """
import sys, threading
from tupe_jax.cli import main
from tupe_jax.data.pretraining.readers import PreparedReader

process, batches = int(sys.argv.pop(1)), int(sys.argv.pop(1))
next_batch = PreparedReader.next

def hang(reader):
    global batches
    batches -= 1
    if batches < 0 and (f"--process={process}" in sys.argv or process < 0):
        threading.Event().wait()
    return next_batch(reader)

PreparedReader.next = hang
sys.exit(main())
"""


HUNG_WORKDIR = """
import sys, threading
from tupe_jax.cli import main
from tupe_jax.run import workdir

def hang(*_):
    threading.Event().wait()

workdir.open_workdir = hang
sys.exit(main())
"""


def make_corpus(folder):
    vocabulary = train_tokenizer(TASK, folder / "v.model", size=PIECES, cleaning=(), seed=0)
    settings = PrepareConfig(TASK, vocabulary.path, LENGTH, shards=2)
    prepare(settings, folder / "rows", worker_count=1)
    return folder


def settings(corpus, *, reader="prepared", **overrides):
    """Arguments of a run that takes seconds; dropout is on, since resuming must reproduce it."""
    values = {
        "data.task": TASK,
        "data.cleaning": "none",
        "data.length": LENGTH,
        "data.reader": reader,
        "model.vocab_size": PIECES,
        "model.hidden_size": 32,
        "model.mlp_size": 64,
        "model.num_layers": 1,
        "model.dropout": 0.1,
        "model.attention_dropout": 0.1,
        "position.max_length": LENGTH,
        "train.batch_size": 16,
        "train.steps": 12,
        "train.log_every": 1,
        "checkpoint.every": 5,
        "eval.every": 5,
        "eval.rows": 16,
        # A prepared folder brings its tokenizer.
        **(
            {"data.prepared": corpus / "rows"}
            if reader == "prepared"
            else {"data.vocabulary": corpus / "v.model"}
        ),
        **overrides,
    }
    return [f"--config.{name}={value}" for name, value in values.items()]


def config_of(arguments):
    return from_config_dict(load_config("tupe_r:tiny", arguments))


class NeverStop:
    requested = False
    has_state = False


class StopAfter:
    """Asks to stop from the n-th time that the run looks."""

    has_state = False

    def __init__(self, looks):
        self.looks = looks

    @property
    def requested(self):
        self.looks -= 1
        return self.looks < 0


def run_here(arguments, workdir, stop=None):
    workdir.mkdir(parents=True, exist_ok=True)
    return pretrain(config_of(arguments), workdir, stop or NeverStop())


def start_elsewhere(arguments, workdir, devices=1, *, program=("-m", "tupe_jax")):
    """`tupe pretrain` in a separate process, with so many devices."""
    environment = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": str(devices),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, *program, "pretrain", "--config=tupe_r:tiny"]
    return subprocess.Popen(
        [*command, f"--workdir={workdir}", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_many(arguments, workdir, count, devices=1, **options):
    """One run of several processes on this machine."""
    coordinator = f"--coordinator=localhost:{free_port()}"
    return [
        start_elsewhere(
            [*arguments, coordinator, f"--processes={count}", f"--process={index}"],
            workdir,
            devices,
            **options,
        )
        for index in range(count)
    ]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def end_all(processes, number=None):
    """Send all of them a signal, if any is given, and wait for their ends."""
    for process in processes if number else ():
        process.send_signal(number)
    return [Ended(p.wait(), *said) for p, said in [(p, p.communicate()) for p in processes]]


def mesh(**sizes):
    return [f"--config.mesh.{axis}={size}" for axis, size in sizes.items()]


TIMING = {"tokens_per_second", "goodput", "mfu"}


def numbers(workdir):
    """All metrics but those of time."""
    lines = read_metrics(workdir / "metrics.jsonl")
    return [{name: v for name, v in line.items() if name not in TIMING} for line in lines]


def final_state(arguments, workdir):
    """The newest checkpoint's whole state, on one device."""
    config = config_of(arguments)
    plan = plan_state(config, make_mesh(config.mesh))
    checkpoints = Checkpoints(workdir / FOLDER, config.checkpoint)
    restored = checkpoints.restore(plan.abstract_sharded)
    checkpoints.close()
    return restored


def assert_same_run(arguments, one, other):
    """Bit for bit: every metric of every step, every array at the end, the data position."""
    assert numbers(one) == numbers(other)
    a, b = (final_state(arguments, workdir) for workdir in (one, other))
    assert a.step == b.step
    assert a.data == b.data
    for x, y in zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True):
        np.testing.assert_array_equal(x, y)


def wait_for_lines(process, workdir, count):
    """Until the run has logged so many steps, or ended."""
    while process.poll() is None:
        metrics = workdir / "metrics.jsonl"
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.005)


def finish(process):
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


STEPS = 24


def steps_with_saves(corpus, reader="prepared", every=3):
    """A save every third step: many kills fall into one. Layers that differ in their dropout."""
    return settings(
        corpus,
        reader=reader,
        **{
            "model.num_layers": 2,
            "train.steps": STEPS,
            "checkpoint.every": every,
            "eval.every": 12,
        },
    )


def left_alone(arguments, workdir, devices, **options):
    finish(start_elsewhere(arguments, workdir, devices, **options))
    return workdir


EARLY, LATE = (3, 9), (12, 19)


def assert_kills_change_nothing(arguments, devices, calm, killed, when=(EARLY, LATE)):
    """Kill a run at random moments, restart it each time, compare it with an uninterrupted run."""
    moments = random.Random(f"{killed.name} {devices}")
    kills = 0
    for after in when:
        process = start_elsewhere(arguments, killed, devices)
        wait_for_lines(process, killed, moments.randrange(*after))
        time.sleep(moments.random() * 0.05)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills == len(when), "each of them was still going on"
    finish(start_elsewhere(arguments, killed, devices))
    assert_same_run(arguments, calm, killed)
