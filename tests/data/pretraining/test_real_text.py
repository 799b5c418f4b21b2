"""Extra checks on real text, for those who have it: set TUPE_SHARED_DATA to its folder."""

import os
from pathlib import Path

import pytest

from tupe_jax.cli import main
from tupe_jax.data.pretraining import token_shards

FOLDER = os.environ.get("TUPE_SHARED_DATA")


@pytest.mark.skipif(FOLDER is None, reason="TUPE_SHARED_DATA is not set")
def test_amalgum_and_a_novel_are_prepared_end_to_end(tmp_path: Path) -> None:
    amalgum, novels = (
        f"text:{FOLDER}/corpus/amalgum/[tv][ea][sl]*.gz",
        f"text:{FOLDER}/corpus/novels/test*",
    )
    task = f"{amalgum} + {novels}"
    tokenizer, folder = tmp_path / "real.model", tmp_path / "rows"
    assert main(["vocab", f"--task={task}", "--size=8192", f"--out={tokenizer}"]) == 0
    arguments = [f"--task={task}", f"--vocabulary={tokenizer}", f"--out={folder}"]
    assert main(["prepare", *arguments, "--length=128", "--cleaning=none"]) == 0
    splits = token_shards.read_index(folder).splits
    assert sum(split.documents for split in splits.values()) == 169 + 188 + 1
    assert 450_000 < splits["train"].tokens < 550_000
