"""The largest batch that fits, found with few compilations."""

from collections.abc import Callable

_FINE = 8
"""Up to this batch every size is a candidate; above it only multiples, which fill the hardware's
tiles, and the start of the search."""


def largest_batch(needed_bytes: Callable[[int], int], limit: int, start: int) -> int:
    """The largest batch with `needed_bytes(batch) <= limit`; 0 if a batch of one does not fit.

    Memory grows about linearly with the batch, so two measurements predict the rest. The search
    measures both the result and the next larger candidate.
    """
    needed: dict[int, int] = {}
    fits, too_large = 0, None
    batch = start
    while True:
        needed[batch] = needed_bytes(batch)
        if needed[batch] <= limit:
            fits = batch
        else:
            too_large = batch
        if too_large is not None and too_large <= _next(fits):
            return fits
        batch = max(_floor(_predicted(needed, limit)), _next(fits))
        if too_large is not None:
            batch = min(batch, _previous(too_large))


def _predicted(needed: dict[int, int], limit: int) -> float:
    """Where the line through the two measurements nearest to the limit reaches it."""
    if len(needed) == 1:
        ((batch, size),) = needed.items()
        return 2 * batch if size <= limit else batch / 2
    near, far = sorted(needed, key=lambda batch: abs(needed[batch] - limit))[:2]
    slope = (needed[near] - needed[far]) / (near - far)
    most = 4 * max(needed)  # do not extrapolate further
    return min(near + (limit - needed[near]) / slope, most) if slope > 0 else most


def _floor(batch: float) -> int:
    whole = max(int(batch), 1)
    return whole if whole <= _FINE else whole - whole % _FINE


def _next(batch: int) -> int:
    return batch + 1 if batch < _FINE else batch - batch % _FINE + _FINE


def _previous(batch: int) -> int:
    return batch - 1 if batch <= _FINE else (batch - 1) // _FINE * _FINE
