"""Tokenizer and data, made once for all runs of a study."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from tupe_jax.config.schema import Config
from tupe_jax.data.pretraining.token_shards import INDEX_FILE
from tupe_jax.training.dataset import DATA_FOLDER, ROWS_FOLDER, make_dataset
from tupe_jax.utils.files import exclusive_lock


@dataclass(frozen=True)
class SharedData:
    """Where the data of all runs is."""

    vocabulary: Path
    rows: Path

    def digest(self) -> str:
        """Tells this vocabulary and these rows from others."""
        files = [self.vocabulary, self.rows / INDEX_FILE]
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    def given_to(self, config: Config) -> Config:
        """A run that reads it."""
        data = replace(config.data, vocabulary=str(self.vocabulary), prepared=str(self.rows))
        return replace(config, data=data)


def make_shared_data(config: Config, workdir: Path) -> SharedData:
    """Make what is missing in the work directory."""
    # Shards may begin at the same time: the first one makes the data, the others wait for it.
    with exclusive_lock(workdir / "data.lock"):
        vocabulary = make_dataset(config, workdir, None)
    return SharedData(vocabulary, Path(config.data.prepared or workdir / DATA_FOLDER / ROWS_FOLDER))
