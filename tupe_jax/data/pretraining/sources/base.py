"""The interface of all corpora: a SeqIO data source that yields documents in shards."""

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tupe_jax.config.schema import OnError
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.tf_utils import map_documents, seqio, tf
from tupe_jax.utils.errors import UserError

TRAIN, VALIDATION = "train", "validation"
# The text of one shard: about half a minute of work for one core. A small corpus is divided into
# smaller shards to use all cores, but into few enough that starting a worker pays off.
SHARD_BYTES = 1 << 26
SMALL_SHARD_BYTES = 1 << 23
MOST_SMALL_SHARDS = 16
# What `bytes.strip` removes from the lines of a text file, except the line feed.
_WHITE_SPACE = " \t\r\v\f"


@dataclass(frozen=True)
class Broken:
    """What cannot be read of a shard, and was skipped."""

    count: int = 0
    """Records and files."""
    damaged: int = 0
    """Those of them that are damaged files or row groups: all their further records are lost."""
    first: str = ""


class DocumentSource(seqio.DataSource, metaclass=abc.ABCMeta):
    """A corpus that can be divided into any number of shards up to `most_shards`."""

    def __init__(
        self,
        spec: str,
        text_bytes: int,
        most_shards: int,
        identity: str,
        on_error: OnError = "stop",
    ):
        """Describe the corpus without reading a document.

        `parse_source(spec)` returns an equal source. `text_bytes` is the approximate size of the
        text. `identity` changes when the corpus changes. `on_error` is what happens at a broken
        record or file: an error, or it is skipped.
        """
        super().__init__(splits=(TRAIN, VALIDATION))
        self.spec = spec
        self.text_bytes = text_bytes
        self.most_shards = most_shards
        self.identity = identity
        self.on_error = on_error

    @abc.abstractmethod
    def documents(self, index: int, count: int) -> tf.data.Dataset:
        """Return shard `index` of `count`, always in the same order."""

    def count_broken(self, index: int, count: int) -> Broken:
        """Count the broken records and files of a shard."""
        return Broken()

    @property
    def default_shards(self) -> int:
        small_shards = min(math.ceil(self.text_bytes / SMALL_SHARD_BYTES), MOST_SMALL_SHARDS)
        wanted = max(small_shards, math.ceil(self.text_bytes / SHARD_BYTES))
        return max(1, min(wanted, self.most_shards))

    # The interface of seqio.DataSource.

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return [f"{self.spec}#{number}" for number in range(self.default_shards)]

    def num_input_examples(self, split: str) -> int | None:
        return None

    def get_dataset(
        self,
        split: str = TRAIN,
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
    ) -> tf.data.Dataset:
        """Return the documents of a split, in order: SeqIO shuffles sequences, not documents."""
        if split not in self.splits:
            raise UserError(f"{self.spec}: no split {split!r}; expected {' or '.join(self.splits)}")
        shard = shard_info or seqio.ShardInfo(index=0, num_shards=1)
        if shard.num_shards > self.most_shards:
            raise UserError(
                f"{self.spec}: {shard.num_shards} shards requested, but it can be divided into at "
                f"most {self.most_shards}; use fewer shards"
            )
        documents = self.documents(shard.index, shard.num_shards)
        wanted = split == VALIDATION
        return map_documents(
            documents, lambda texts: [text for text in texts if is_held_out(text) == wanted]
        )


def lines_of_record(text: str) -> str:
    """Return the lines of a text as a text file would have them: stripped, without blank ones."""
    stripped = (line.strip(_WHITE_SPACE) for line in text.split("\n"))
    return "\n".join(line for line in stripped if line)
