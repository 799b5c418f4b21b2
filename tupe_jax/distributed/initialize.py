"""Finds out which process of a run this is, and starts JAX among all of them.

Sources: the flags `--coordinator=host:port --processes=4 --process=0`; for those not given, the
variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; without any of them, what
JAX detects on TPU pods (Cloud TPU VMs, GKE), under SLURM and under Open MPI.

The token that identifies the processes of a run is `--token`, the variable TUPE_TOKEN, or the
job of SLURM or Open MPI. The number of restarts is appended if the scheduler counts them
(SLURM_RESTART_COUNT, or TUPE_RESTART in a JobSet), so that a process of an earlier start is a
stranger.
"""

import os
from dataclasses import dataclass, replace

import jax
from jax._src import clusters  # the public API detects a cluster only when it starts

from tupe_jax.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from tupe_jax.distributed.rendezvous import ProcessInfo, bind_host, meet
from tupe_jax.utils.errors import RetryError, UserError
from tupe_jax.utils.logging import configure_logging

# Not Kubernetes in general: JAX queries its API server, which a pod may not be allowed to do.
CLUSTERS = (
    clusters.OmpiCluster,
    clusters.SlurmCluster,
    clusters.GkeTpuCluster,
    clusters.GceTpuCluster,
)
# For each of JAX's clusters: variables with the same value in all processes of a job only.
JOB_VARIABLES = {"slurm": ("SLURM_JOB_ID", "SLURM_STEP_ID"), "ompi": ("OMPI_MCA_orte_hnp_uri",)}

# How often the scheduler has restarted the job; absent at the first start.
RESTART_VARIABLES = ("TUPE_RESTART", "SLURM_RESTART_COUNT")


@dataclass(frozen=True)
class ProcessFlags:
    """The flags of `tupe pretrain`; None if not given."""

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None
    token: str | None = None


def join(process: ProcessInfo | None, wait_seconds: float, silence_seconds: float) -> ProcessGroup:
    """Connect to the other processes."""
    if process is None:
        return SINGLE_PROCESS
    configure_logging(process.index, process.count)
    peers = meet(process, wait_seconds)
    return ProcessGroup(process.index, peers.hosts, peers.connections, silence_seconds)


def start_jax(process: ProcessInfo | None, heartbeat_seconds: int) -> None:
    """Start JAX's distributed runtime, before any device is used.

    JAX aborts (exit code 134) if a process sent no heartbeat for `heartbeat_seconds`.

    Call it in the context of the process group: if one process fails here, JAX lets the others wait
    for minutes.
    """
    if process is None:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would handle SIGTERM itself; `tupe_jax.run.preemption` does.
    jax.config.update("jax_enable_preemption_service", False)
    host = bind_host(process)
    bracketed = f"[{host}]" if ":" in host else host
    jax.distributed.initialize(
        process.coordinator,
        process.count,
        process.index,
        cluster_detection_method=process.cluster or "deactivate",
        coordinator_bind_address=f"{bracketed}:{process.port}" if host else None,
        heartbeat_timeout_seconds=heartbeat_seconds,
    )


def find_process(flags: ProcessFlags, wait_seconds: float) -> ProcessInfo | None:
    """Which process of a run this is; None if it is the only one."""
    process = _find_process(flags, wait_seconds)
    return process and replace(process, token=_token(flags, process))


def _token(flags: ProcessFlags, process: ProcessInfo) -> str:
    given = flags.token or os.environ.get("TUPE_TOKEN")
    job = [os.environ.get(name, "") for name in JOB_VARIABLES.get(process.cluster or "", ())]
    token = given or ".".join(job)
    restarts = next(filter(None, map(os.environ.get, RESTART_VARIABLES)), None)
    return f"{token}.{restarts}" if token and restarts else token


def _find_process(flags: ProcessFlags, wait_seconds: float) -> ProcessInfo | None:
    given = {
        "--coordinator or JAX_COORDINATOR_ADDRESS": flags.coordinator
        or os.environ.get("JAX_COORDINATOR_ADDRESS"),
        "--processes or JAX_NUM_PROCESSES": _number(flags.processes, "JAX_NUM_PROCESSES"),
        "--process or JAX_PROCESS_ID": _number(flags.process, "JAX_PROCESS_ID"),
    }
    if all(value is None for value in given.values()):
        return _from_cluster(wait_seconds)
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise UserError(
            f"a run of several processes also needs {' and '.join(missing)}: the address host:port "
            "of process 0, the number of processes, and the index of this one"
        )
    coordinator, count, index = given.values()
    return _checked(ProcessInfo(str(coordinator), int(count or 0), int(index or 0)))


def _number(flag: int | None, variable: str) -> int | None:
    value = os.environ.get(variable)
    if flag is not None or value is None:
        return flag
    if not value.isdecimal():
        raise UserError(f"{variable}={value!r} is not a number")
    return int(value)


def _checked(process: ProcessInfo) -> ProcessInfo | None:
    host, _, port = process.coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(
            f"--coordinator={process.coordinator!r} must be host:port, such as 10.0.0.1:8476"
        )
    if process.count < 1:
        raise UserError(f"--processes={process.count} must be at least 1")
    if not 0 <= process.index < process.count:
        raise UserError(
            f"--process={process.index} must be from 0 to {process.count - 1}, "
            f"below --processes={process.count}"
        )
    return process if process.count > 1 else None


def _from_cluster(wait_seconds: float) -> ProcessInfo | None:
    cluster = next((c for c in CLUSTERS if c.is_env_present()), None)
    if cluster is None or (count := cluster.get_process_count()) == 1:
        return None
    try:
        coordinator = cluster.get_coordinator_address(
            int(wait_seconds), os.environ.get("JAX_COORDINATOR_PORT")
        )
    except RuntimeError as error:
        raise RetryError(
            f"the address of process 0 was not found within {wait_seconds:g} s ({error}). Usual "
            "cause: the command was not started on its host"
        ) from error
    workers: list[str] = getattr(cluster, "_get_worker_list_in_slice", list)()
    return ProcessInfo(
        coordinator,
        count,
        cluster.get_process_id(),
        cluster=cluster.name,
        expected_hosts=tuple(workers) if len(workers) == count else (),
    )
