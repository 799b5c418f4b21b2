"""How a process learns that it is one of many, and joins the others.

From flags (`--coordinator=host:port --processes=4 --process=0`), or the variables
JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID, or what JAX itself finds out on TPU
pods (Cloud TPU VMs, GKE), under SLURM and under Open MPI.
"""

import os
from dataclasses import dataclass

import jax
from jax._src import clusters  # JAX has no public way to ask without starting

from tupe_jax.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from tupe_jax.distributed.rendezvous import Place, meet
from tupe_jax.utils.errors import RetryError, UserError
from tupe_jax.utils.logging import configure_logging

# Not Kubernetes in general: JAX asks its API server, which a pod may not be allowed to.
CLUSTERS = (
    clusters.OmpiCluster,
    clusters.SlurmCluster,
    clusters.GkeTpuCluster,
    clusters.GceTpuCluster,
)


@dataclass(frozen=True)
class ProcessFlags:
    """What flags say; None where they say nothing."""

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


def join(place: Place | None, wait_seconds: float) -> ProcessGroup:
    """Meet the other processes."""
    if place is None:
        return SINGLE_PROCESS
    configure_logging(place.index, place.count)
    met = meet(place, wait_seconds)
    return ProcessGroup(place.index, met.hosts, met.connections)


def start_jax(place: Place | None) -> None:
    """Start JAX's runtime among the processes that have met, before any device is used.

    Within their context: JAX would let the others wait for minutes for one that fails here.
    """
    if place is None:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would take SIGTERM for itself: processes agree on a stop in `run/preemption.py`.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        place.coordinator,
        place.count,
        place.index,
        cluster_detection_method=place.cluster or "deactivate",
    )


def find_place(wish: ProcessFlags, wait_seconds: float) -> Place | None:
    """The place of this process among many, or None if it is alone."""
    given = {
        "--coordinator or JAX_COORDINATOR_ADDRESS": wish.coordinator
        or os.environ.get("JAX_COORDINATOR_ADDRESS"),
        "--processes or JAX_NUM_PROCESSES": _number(wish.processes, "JAX_NUM_PROCESSES"),
        "--process or JAX_PROCESS_ID": _number(wish.process, "JAX_PROCESS_ID"),
    }
    if all(value is None for value in given.values()):
        return _from_cluster(wait_seconds)
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise UserError(
            f"one of several processes needs {' and '.join(missing)}, too: the address host:port "
            "of process 0, how many there are, and which this is"
        )
    coordinator, count, index = given.values()
    return _checked(Place(str(coordinator), int(count or 0), int(index or 0)))


def _number(flag: int | None, variable: str) -> int | None:
    value = os.environ.get(variable)
    if flag is not None or value is None:
        return flag
    if not value.isdecimal():
        raise UserError(f"{variable}={value!r} is not a number")
    return int(value)


def _checked(place: Place) -> Place | None:
    host, _, port = place.coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(
            f"the coordinator {place.coordinator!r} is not host:port, such as 10.0.0.1:8476"
        )
    if place.count < 1:
        raise UserError(f"--processes={place.count}: a run has at least one process")
    if not 0 <= place.index < place.count:
        raise UserError(
            f"there is no process {place.index} among {place.count}: they count from 0 to "
            f"{place.count - 1}"
        )
    return place if place.count > 1 else None


def _from_cluster(wait_seconds: float) -> Place | None:
    cluster = next((c for c in CLUSTERS if c.is_env_present()), None)
    if cluster is None or (count := cluster.get_process_count()) == 1:
        return None
    try:
        coordinator = cluster.get_coordinator_address(
            int(wait_seconds), os.environ.get("JAX_COORDINATOR_PORT")
        )
    except RuntimeError as error:
        raise RetryError(
            f"process 0's host is not known to this one within {wait_seconds:g} s ({error}): "
            "the usual cause is that the command was not started there"
        ) from error
    workers: list[str] = getattr(cluster, "_get_worker_list_in_slice", list)()
    return Place(
        coordinator,
        count,
        cluster.get_process_id(),
        cluster=cluster.name,
        expected_hosts=tuple(workers) if len(workers) == count else (),
    )
