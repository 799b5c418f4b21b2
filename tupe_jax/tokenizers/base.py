"""The ids of a vocabulary that are no words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SpecialTokens:
    """Ids that are no words: never chosen, never drawn as a replacement."""

    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    unk_id: int | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """All of them, ascending."""
        ids = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        return tuple(sorted(ids if self.unk_id is None else ids | {self.unk_id}))
