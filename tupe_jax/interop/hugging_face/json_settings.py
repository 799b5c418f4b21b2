"""The values of a JSON file, with checks and defaults that name the file and the setting."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tupe_jax.utils.errors import UserError


@dataclass(frozen=True)
class JsonSettings:
    """The values of a JSON file, with checks and defaults."""

    values: Mapping[str, Any]
    source: str
    """The file, for error messages."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The names of settings that a model type calls differently from BERT."""

    def get(self, name: str, default: Any = None) -> Any:
        name = self.aliases.get(name, name)
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise UserError(f"{self.source} has no {name!r}")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        return int(self._typed(name, default, "a whole number", int))

    def size(self, name: str, default: int | None = None) -> int:
        number = self.number(name, default)
        if number < 1:
            name = self.aliases.get(name, name)
            raise UserError(f"{self.source}: {name}={number} should be at least 1")
        return number

    def real(self, name: str, default: float) -> float:
        number = float(self._typed(name, default, "a number", int, float))
        if not math.isfinite(number):
            name = self.aliases.get(name, name)
            raise UserError(f"{self.source}: {name}={number} should be a finite number")
        return number

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._typed(name, default, "a text", str))

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._typed(name, default, "true or false", bool))

    def _typed(self, name: str, default: Any, expected: str, *types: type) -> Any:
        value = self.get(name, default)
        name = self.aliases.get(name, name)
        if type(value) not in types:  # isinstance would accept True as a number
            raise UserError(f"{self.source}: {name}={value!r} should be {expected}")
        return value

    def require(self, name: str, *allowed: Any) -> None:
        """Raise unless the value is one of these; the first is the default."""
        name = self.aliases.get(name, name)
        value = self.values.get(name)
        value = allowed[0] if value is None else value
        if value not in allowed:
            known = " or ".join(repr(one) for one in allowed)
            raise UserError(f"{self.source}: {name}={value!r} is not supported, only {known}")

    def part(self, name: str) -> "JsonSettings":
        """The settings in an object of the file; none if it is missing."""
        value = self.values.get(name)
        value = {} if value is None else value
        if not isinstance(value, dict):
            raise UserError(f"{self.source}: {name}={value!r} should be an object")
        return JsonSettings(value, f"{self.source}: {name}")

    def allow(self, *names: str) -> None:
        """Raise if there are others."""
        for name, value in self.values.items():
            if name not in names and value is not None:
                known = ", ".join(names)
                raise UserError(f"{self.source}: {name}={value!r} is not supported, only {known}")


@contextlib.contextmanager
def name_source_in_errors(source: str) -> Iterator[None]:
    """Prefix error messages with the file, unless they name it already."""
    try:
        yield
    except UserError as error:
        message = str(error)
        raise UserError(message if message.startswith(source) else f"{source}: {message}") from None
