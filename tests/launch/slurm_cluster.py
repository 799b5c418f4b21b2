"""A real SLURM cluster of two nodes on this machine, from Debian's packages.

Both nodes are daemons on loopback addresses, which are also their names: JAX resolves the first as
the coordinator. Everything that they write is in one folder, and nothing survives its context.
"""

import contextlib
import getpass
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.distributed.ports import free_port
from tests.launch.scripts import ROOT, clean_environment

NODES = ("127.0.0.1", "127.0.0.2")
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
DAEMONS = {name: shutil.which(name, path=PATH) for name in ("slurmctld", "slurmd")}
MISSING = None in DAEMONS.values() or shutil.which("sbatch", path=PATH) is None

# A requeued job waits as long as a credential is valid (cred_expire; 5 s is the minimum). The
# GPUs are a null device, so that the scripts run with the options that they have for real ones.
SLURM_CONF = """
ClusterName=tupe
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
SwitchType=switch/none
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=ALL Default=YES PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF
"""
NODE = "NodeName={name} Port={port} CPUs=8 Gres=gpu:1"
GRES_CONF = f"NodeName={','.join(NODES)} Name=gpu File=/dev/null\n"
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nCgroupMountpoint={folder}/no-cgroups\n"


class Cluster:
    """The daemons, which run in its context, and their jobs."""

    def __init__(self, folder, **environment):
        self.folder = folder
        self._environment = {
            **clean_environment(),
            **environment,
            "PATH": PATH,
            "PYTHONPATH": str(ROOT),
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self._daemons = []

    def __enter__(self):
        self._configure()
        try:
            self._daemons.append(self._start("slurmctld"))
            self._daemons += [self._start("slurmd", "-N", node) for node in NODES]
            self.wait(self._nodes_are_idle, 30, "idle nodes")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Not gracefully: slurmd would wait for its jobs, and a job may start another process.
        while processes := self.processes():
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.1)
        for daemon in self._daemons:
            daemon.wait()

    def run(self, *command, **environment):
        """What a command of SLURM's, or a script that calls one, prints."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self._environment | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}"

    def submit(self, *words, **environment):
        """The number of a new job."""
        answer = self.run(
            "sbatch", "--parsable", f"--output={self.log('%j')}", *words, **environment
        )
        assert answer.strip().isdecimal(), answer
        return answer.strip()

    def log(self, job):
        return self.folder / f"{job}.log"

    def show(self, job):
        """The fields of `scontrol show job`."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.run("scontrol", "show", "job", job)))

    def state(self, job):
        return self.show(job).get("JobState")

    def restarts(self, job):
        return int(self.show(job)["Restarts"])

    def processes(self, *, job=None, task=None):
        """The ids of all processes of this cluster, or of a task of a job."""
        wanted = {f"SLURM_CONF={self._environment['SLURM_CONF']}"}
        if job is not None:
            wanted |= {f"SLURM_JOB_ID={job}", f"SLURM_PROCID={task}"}
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                variables = (process / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue  # it ended, or belongs to another user
            if wanted <= set(variables.split("\0")):
                found.append(int(process.name))
        return found

    def wait(self, condition, seconds, what):
        """Wait for a condition, and fail with the logs if it does not come."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = [
                    f"{log.name}:\n{log.read_text()[-4000:]}" for log in self.folder.glob("*.log")
                ]
                raise AssertionError("\n".join([f"no {what} within {seconds} s", *logs]))
            time.sleep(0.25)

    def _nodes_are_idle(self):
        states = self.run("sinfo", "--noheader", "--Node", "--partition=gpu", "--format=%T")
        return states.split() == ["idle"] * len(NODES)

    def _configure(self):
        for name in ("state", "no-cgroups", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        nodes = [NODE.format(name=name, port=free_port()) for name in NODES]
        filled = {
            "folder": self.folder,
            "port": free_port(),
            "user": getpass.getuser(),
            "nodes": "\n".join(nodes),
        }
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(**filled))
        (self.folder / "cgroup.conf").write_text(CGROUP_CONF.format(**filled))
        (self.folder / "gres.conf").write_text(GRES_CONF)

    def _start(self, name, *arguments):
        log = (self.folder / f"{'-'.join([name, *arguments[1:]])}.log").open("w")
        with log:
            return subprocess.Popen(
                [DAEMONS[name], "-D", *arguments],
                env=self._environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
