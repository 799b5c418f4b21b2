"""A stop that all processes make at the same step, whichever of them was asked."""

from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tupe_jax.distributed.cpu_sync import block_on_cpu


class Stop(Protocol):
    """Says whether the run should stop."""

    has_state: bool

    @property
    def requested(self) -> bool: ...


def agreed_stop(stop: Stop, mesh: Mesh) -> Stop:
    """A stop with one answer for all processes, if there are several."""
    return stop if jax.process_count() == 1 else _AgreedStop(stop, mesh)


class _AgreedStop:
    """Every process looks equally often; each look is a maximum over all of what they were asked.

    The answer is that of the look before, so that nobody waits for the devices: a signal stops the
    run one step later than it would stop a single process. The first look waits, for a signal may
    have come while the step was compiled.
    """

    has_state = True

    def __init__(self, stop: Stop, mesh: Mesh) -> None:
        self._stop = stop
        self._sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self._any = jax.jit(jnp.max, out_shardings=NamedSharding(mesh, PartitionSpec()))
        self._before: jax.Array | None = None
        self._agreed = False

    @property
    def requested(self) -> bool:
        if not self._agreed:
            asked = np.array([self._stop.requested])
            asked_all = jax.make_array_from_callback(
                (self._sharding.num_devices,), self._sharding, lambda _: asked
            )
            now = block_on_cpu(self._any(asked_all))
            self._agreed = bool(now if self._before is None else self._before)
            self._before = now
        return self._agreed
