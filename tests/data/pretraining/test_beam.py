"""A corpus that outgrows one machine: SeqIO's own Beam pipeline, then `tupe prepare --cache`."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

import tupe_jax
from tests.data.pretraining.prepared_folder import lines_of, read_sequences
from tests.data.small_corpus import documents
from tests.documents import here_document, text_of
from tupe_jax.cli import main
from tupe_jax.data.pretraining import token_shards
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer

pytestmark = pytest.mark.slow

FILES = 3
DOCUMENTED = here_document(text_of("docs/data.md"), "my_tasks.py")


def module_of(sources: list[str], tokenizer: Path) -> str:
    """The documented file with these sources, each divided as a large corpus would be."""
    *imports, task = DOCUMENTED.strip().splitlines()
    for documented, here in (('"c4/en"', "source"), ('"/shared/c4.model"', repr(str(tokenizer)))):
        assert documented in task
        task = task.replace(documented, here)
    small = [
        "from tupe_jax.data.pretraining.sources import base",
        "base.SMALL_SHARD_BYTES = 1 << 10",
    ]
    return "\n".join([*imports, *small, f"for source in {sources}:", f"    {task}\n"])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for seed in range(FILES):
        (folder / f"{seed}.txt").write_text("\n\n".join(documents(100, seed)))
    trained_on = [text for text in documents(20) if not is_held_out(text)]
    (folder / "none_held_out").write_text("\n\n".join(trained_on))
    return folder


@pytest.fixture(scope="module")
def cache(
    corpus: Path, tokenizer: SentencePieceTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("beam")
    sources = [f"text:{corpus}/*.txt", f"text:{corpus}/none_held_out"]
    (folder / "my_tasks.py").write_text(module_of(sources, tokenizer.path))
    package = Path(tupe_jax.__file__).parents[1]
    subprocess.run(
        [
            f"{sysconfig.get_path('scripts')}/seqio_cache_tasks",
            "--module_import=my_tasks",
            "--output_cache_dir=cache",
            "--min_shards=4",
            "--pipeline_options=--runner=DirectRunner",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f".:{package}"},
        check=True,
    )
    return folder / "cache"


def run_prepare(task: str, tokenizer: SentencePieceTokenizer, out: Path, *arguments: str) -> int:
    command = ["prepare", f"--task={task}", f"--vocabulary={tokenizer.path}", f"--out={out}"]
    return main([*command, "--length=32", "--workers=1", *arguments])


def documents_of(folder: Path, split: str, tokenizer: SentencePieceTokenizer) -> list[str]:
    text = "\n".join(lines_of(read_sequences(folder, split), tokenizer))
    return sorted(f"number {rest.strip()}" for rest in text.split("number ")[1:])


def test_beam_gives_the_same_documents_in_the_same_splits(
    cache: Path, corpus: Path, tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    task, by_beam, without = f"text:{corpus}/*.txt", tmp_path / "by_beam", tmp_path / "without"
    assert run_prepare(task, tokenizer, by_beam, "--shards=2", f"--cache={cache}") == 0
    assert run_prepare(task, tokenizer, without, f"--shards={FILES}") == 0
    for split, held_out in (("train", False), ("validation", True)):
        expected = documents_of(without, split, tokenizer)
        texts = [text for seed in range(FILES) for text in documents(100, seed)]
        assert len(expected) == sum(is_held_out(text) == held_out for text in texts) > 0
        assert documents_of(by_beam, split, tokenizer) == expected
        assert token_shards.read_index(by_beam).splits[split].documents == len(expected)
    assert len(token_shards.read_index(by_beam).splits["train"].shards) == 2


def test_one_cache_serves_every_length_and_packing(
    cache: Path, corpus: Path, tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    task = f"text:{corpus}/*.txt"
    lengths = {"stream": 32, "sentences": 48}
    for packing, length in lengths.items():
        arguments = [f"--cache={cache}", f"--packing={packing}", f"--length={length}"]
        assert run_prepare(task, tokenizer, tmp_path / packing, "--shards=2", *arguments) == 0
    for split in ("train", "validation"):
        found = {packing: read_sequences(tmp_path / packing, split) for packing in lengths}
        assert {packing: each.shape[1] for packing, each in found.items()} == lengths
        stream, sentences = (lines_of(each, tokenizer) for each in found.values())
        assert stream == sentences
    assert token_shards.read_index(tmp_path / "sentences").packing == "sentences"


def test_a_split_may_be_without_documents(
    cache: Path, corpus: Path, tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    task = f"text:{corpus}/none_held_out"
    assert run_prepare(task, tokenizer, tmp_path / "rows", f"--cache={cache}") == 0
    assert token_shards.read_index(tmp_path / "rows").splits["validation"].rows == 0


def test_a_task_that_is_not_cached_is_named(
    cache: Path,
    corpus: Path,
    tokenizer: SentencePieceTokenizer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [f"--cache={cache}", "--cleaning=none"]
    assert run_prepare(f"text:{corpus}/*.txt", tokenizer, tmp_path / "rows", *arguments) == 2
    assert f"{cache}: no finished cache of the task " in capsys.readouterr().err
