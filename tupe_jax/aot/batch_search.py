"""The largest batch that fits, found with few compilations."""

from collections.abc import Callable

_FINE = 8
"""Up to here every number of rows is tried; beyond, multiples of it, which fill the tiles, and the
number that was asked for."""


def largest_batch(needed_bytes: Callable[[int], int], limit: int, start: int) -> int:
    """The most rows whose `needed_bytes(rows)` is at most `limit`; 0 if not even one fits.

    Memory grows about linearly with the rows, so two answers foretell the rest. The result and a
    larger number, at most one step away, were both asked for.
    """
    needed: dict[int, int] = {}
    fits, too_many = 0, None
    rows = start
    while True:
        needed[rows] = needed_bytes(rows)
        if needed[rows] <= limit:
            fits = rows
        else:
            too_many = rows
        if too_many is not None and too_many <= _next(fits):
            return fits
        rows = max(_floor(_foretold(needed, limit)), _next(fits))
        if too_many is not None:
            rows = min(rows, _before(too_many))


def _foretold(needed: dict[int, int], limit: int) -> float:
    """Where the line through the two answers nearest to the limit meets it."""
    if len(needed) == 1:
        ((rows, size),) = needed.items()
        return 2 * rows if size <= limit else rows / 2
    near, far = sorted(needed, key=lambda rows: abs(needed[rows] - limit))[:2]
    slope = (needed[near] - needed[far]) / (near - far)
    most = 4 * max(needed)  # a line drawn further is a bold claim
    return min(near + (limit - needed[near]) / slope, most) if slope > 0 else most


def _floor(rows: float) -> int:
    whole = max(int(rows), 1)
    return whole if whole <= _FINE else whole - whole % _FINE


def _next(rows: int) -> int:
    return rows + 1 if rows < _FINE else rows - rows % _FINE + _FINE


def _before(rows: int) -> int:
    return rows - 1 if rows <= _FINE else (rows - 1) // _FINE * _FINE
