"""Checks of settings: a wrong name, type or value raises a one-line `UserError`."""

import dataclasses
import difflib
import operator
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal, Protocol, TypeVar

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import check_scheme

T = TypeVar("T")


class SupportsItems(Protocol):
    """A dict, or a ConfigDict, which is not a Mapping."""

    def items(self) -> Iterable[tuple[str, Any]]: ...


def from_mapping(cls: type[T], values: SupportsItems, section: str) -> T:
    """Build a config dataclass from a mapping or ConfigDict, checking names and types."""
    types_by_name = typing.get_type_hints(cls)
    arguments = {}
    for name, value in values.items():
        if name not in types_by_name:
            raise UserError(f"{section} has no setting {name!r}{did_you_mean(name, types_by_name)}")
        expected = types_by_name[name]
        if dataclasses.is_dataclass(expected) and hasattr(value, "items"):
            value = from_mapping(typing.cast(type[Any], expected), value, f"{section}.{name}")
        arguments[name] = checked(value, expected, f"{section}.{name}")
    return cls(**arguments)


def check_fields(config: Any, section: str) -> None:
    """Check the types of a dataclass that may have been built by hand."""
    for name, expected in typing.get_type_hints(type(config)).items():
        checked(getattr(config, name), expected, f"{section}.{name}")


def checked(value: Any, expected: Any, setting: str) -> Any:
    """`value` as `expected`; an int passes as a float, nothing else is converted."""
    origin, choices = typing.get_origin(expected), typing.get_args(expected)
    if origin is Literal:
        if value not in choices:
            raise UserError(f"{setting}={value!r} is not one of {', '.join(map(repr, choices))}")
        return value
    if origin is tuple and isinstance(value, list | tuple):  # JSON has lists only
        return tuple(checked(item, choices[0], setting) for item in value)
    allowed = choices if origin in (typing.Union, types.UnionType) else (expected,)
    if float in allowed and type(value) is int:
        return float(value)
    # bool is an int to isinstance, but `num_layers=True` is a mistake.
    if not any(
        type(value) is kind
        or (kind is not int and isinstance(value, typing.get_origin(kind) or kind))
        for kind in allowed
    ):
        names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in allowed)
        raise UserError(f"{setting}={value!r} should be {names}, not {type(value).__name__}")
    return value


def require_positive(config: Any, section: str, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 1:
            raise UserError(f"{section}.{name}={getattr(config, name)} must be at least 1")


def check_path(given: str, setting: str) -> None:
    """Raise if a path is neither local nor on `gs://`."""
    try:
        check_scheme(given)
    except UserError as error:
        raise UserError(f"{setting}={error}") from None


def whole_number(value: Any, setting: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise UserError(f"{setting}={value!r} should be a whole number, not {kind}") from None


def one_of(name: str, known: Iterable[str], what: str) -> str:
    if not isinstance(name, str) or name not in known:
        raise UserError(
            f"unknown {what} {name!r}{did_you_mean(str(name), known)}; known: {', '.join(known)}"
        )
    return name


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
