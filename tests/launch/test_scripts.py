"""What all scripts of launch/ have in common."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.launch.scripts import INSIDE, LAUNCH, ROOT, SCRIPTS, printed, run


def names(script):
    return script.relative_to(LAUNCH).as_posix()


FOR_USERS = [script for script in SCRIPTS if names(script) not in INSIDE]


def test_shellcheck_finds_nothing():
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shellcheck = shutil.which("shellcheck", path=path)
    assert shellcheck, "the test extra installs shellcheck"
    done = subprocess.run([shellcheck, *SCRIPTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", ["gke/Dockerfile", "tpu_worker.sh"])
def test_workers_install_extras_that_the_package_has(file):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    installed = re.findall(r"(?:tupe_jax|\.)\[([a-z,]+)\]", (LAUNCH / file).read_text())
    assert {tuple(names.split(",")) for names in installed} == {("tpu", "gcs")}
    assert {"tpu", "gcs"} <= extras.keys()


@pytest.mark.parametrize("script", SCRIPTS, ids=names)
def test_a_script_can_be_executed(script):
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")


@pytest.mark.parametrize("script", FOR_USERS, ids=names)
def test_help_shows_a_command_and_every_option(script):
    shown = "\n".join(printed(script, "--help"))
    assert f"launch/{names(script)} " in shown
    taken = set(re.findall(r"^ +(--[a-z-]+)=?\*?\)", script.read_text(), re.MULTILINE))
    if script.name == "submit.sh":
        render = (LAUNCH / "gke/render.py").read_text()
        taken |= set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', render))
        assert "--target" in taken
    assert not {option for option in taken - {"--help"} if option not in shown}
    assert "--dry-run" in shown


GKE = ("--name=a", "--target=v5e:4x4", "--image=i")
RUN = ("--", "pretrain", "--workdir=gs://b/w")
TPU = ("--name=a", "--zone=z")
RESUME = ("resume", *TPU, "--accelerator=v4-8", "--git=u@r")
MISTAKES = [
    ("local.sh", [], "no tupe command"),
    ("local.sh", ["--processes=none", "--", "x"], "--processes=none must be a whole number"),
    ("local.sh", ["pretrain"], "unknown argument pretrain"),
    ("tpu_vm.sh", [], "no command"),
    ("tpu_vm.sh", ["creat"], "no command creat"),
    ("tpu_vm.sh", ["create", "--name=a"], "create needs --zone"),
    ("tpu_vm.sh", ["create", *TPU], "create needs --accelerator"),
    ("tpu_vm.sh", ["create", *TPU, "--accelerator=v9-8"], "v9-8"),
    ("tpu_vm.sh", ["create", *TPU, "--accelerator=tpu7x-8"], "launch/gke"),
    ("tpu_vm.sh", ["create", *TPU, "--accelerator=v4-8", "--spot", "--reserved"], "exclude"),
    ("tpu_vm.sh", ["install", *TPU], "install needs --wheel or --git"),
    ("tpu_vm.sh", ["install", *TPU, "--wheel=none.whl"], "no file none.whl"),
    ("tpu_vm.sh", ["install", *TPU, "--git=u@r", "--bucket=gs://b"], "without gs://"),
    ("tpu_vm.sh", ["run", *TPU], "run needs tupe's arguments"),
    ("tpu_vm.sh", [*RESUME, "--", "pretrain"], "resume needs --workdir=gs://"),
    ("tpu_vm.sh", [*RESUME, "--", "finetune"], "finetune: resume restarts pretrain only"),
    ("tpu_vm.sh", ["status", *TPU, "--polls=3"], "unknown argument --polls=3"),
    ("gke/submit.sh", [], "--name"),
    ("gke/submit.sh", GKE, "arguments"),
    ("gke/submit.sh", [*GKE, "--name=A", *RUN], "--name=A"),
    ("gke/submit.sh", [*GKE, "--target=v5e", *RUN], "16x16"),
    ("gke/submit.sh", [*GKE, "--target=v7:2x2", *RUN], "'v7' is none of v4"),
    ("gke/submit.sh", [*GKE, "--target=v5p:4x4", *RUN], "3 dimensions, not 2"),
    ("gke/submit.sh", [*GKE, "--target=v5e:3x3", *RUN], "9 chips"),
    ("gke/submit.sh", [*GKE, "--target=v5e:2x2", "--slices=2", *RUN], "one machine"),
    ("gke/submit.sh", [*GKE, "--slices=0", *RUN], "--slices=0"),
    ("gke/submit.sh", [*GKE, "--bucket=gs://b", *RUN], "without gs://"),
    ("gke/submit.sh", [*GKE, "--", "finetune"], "finetune is not pretrain"),
    ("gke/submit.sh", [*GKE, "--", "pretrain"], "pretrain needs --workdir=gs://"),
    ("slurm.sbatch", [], "nothing is not pretrain"),
    ("slurm.sbatch", ["--config=tupe_r"], "--config=tupe_r is not pretrain"),
    ("slurm.sbatch", ["pretrain"], "pretrain needs --workdir="),
    ("slurm.sbatch", ["pretrain", "--workdir=w"], "not in a SLURM job"),
    ("sweep.sbatch", ["--configs=a"], "no --workdir"),
    ("sweep.sbatch", ["--configs=a", "--workdir=w", "--seeds=1-3"], "--seeds=1-3"),
    ("sweep.sbatch", ["--workdir=w"], "no --configs"),
]


@pytest.mark.parametrize(("script", "arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(script, arguments, message):
    done = run(script, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith(f"launch/{script}: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
