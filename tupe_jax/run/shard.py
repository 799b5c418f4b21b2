"""Divide the work of a command among machines: `--shard=I/N`, `--part=I/N`."""

import re
from dataclasses import dataclass

from tupe_jax.utils.errors import UserError
from tupe_jax.utils.paths import Path


@dataclass(frozen=True)
class WorkShard:
    """Part `index` of `count` of the work; the default is all of it."""

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str, option: str = "--shard") -> "WorkShard":
        """`2/8` is the third of eight."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or int(match[1]) >= int(match[2]):
            raise UserError(f"{option}={text}: expected I/N with 0 <= I < N, for example 0/4")
        return cls(int(match[1]), int(match[2]))

    def folder(self, workdir: Path) -> Path:
        """The folder of this shard, which no other shard writes to."""
        if self.count == 1:
            return workdir
        return workdir / f"shard-{self.index}-of-{self.count}"


ALL_WORK = WorkShard()
