"""Copies of documents in the whole corpus: found by ranges of hashes, dropped from each shard."""

import random
from pathlib import Path

import numpy as np
import pytest

from tests.data.pretraining.prepared_folder import lines_of, read_sequences
from tests.data.small_corpus import documents
from tupe_jax.data.pretraining import copies, token_shards
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.prepare import prepare
from tupe_jax.data.pretraining.sources import parse_source
from tupe_jax.data.pretraining.splits import fingerprint, is_held_out, is_in_share
from tupe_jax.data.tf_utils import elements, texts
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer

STARTS_SOURCE = (True, False, False, False, True, True)
STARTS_PASS = (True, False, True, False, True, True)
"""Of six shards: two passes of two shards over a source, then one shard of each of two others."""


def records(hashes: list[int], numbers: list[int]) -> np.ndarray:
    found = np.array(list(zip(hashes, numbers, strict=True)), copies._HASH)
    return np.sort(found, order=("hash", "document"))


def some_shards(seed: int) -> list[np.ndarray]:
    generator = random.Random(seed)
    values = [generator.getrandbits(64) for _ in range(30)] + [0, 1, 2**64 - 1]
    shards = []
    for size in (20, 0, 17, 3, 25, 20):
        numbers = sorted(generator.sample(range(2 * size), size))
        shards.append(records(generator.choices(values, k=size), numbers))
    return shards


def copies_by_definition(shards: list[np.ndarray]) -> list[list[int]]:
    owner: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    dropped = []
    source = of_pass = 0
    for shard, starts_source, starts_pass in zip(shards, STARTS_SOURCE, STARTS_PASS, strict=True):
        source, of_pass = source + starts_source, of_pass + starts_pass
        dropped.append([])
        for value, number in sorted(map(tuple, shard.tolist()), key=lambda each: each[1]):
            is_first = owner.setdefault(value, source) == source and (value, of_pass) not in seen
            seen.add((value, of_pass))
            if not is_first:
                dropped[-1].append(number)
    return dropped


@pytest.mark.parametrize("ranges", [1, 2, 256])
@pytest.mark.parametrize("seed", range(3))
def test_copies_are_those_of_the_definition_for_any_number_of_ranges(
    tmp_path: Path, ranges: int, seed: int
) -> None:
    shards = some_shards(seed)
    files = [tmp_path / f"hashes-{number}" for number in range(len(shards))]
    for file, shard in zip(files, shards, strict=True):
        copies.write_hashes(file, shard)
        assert copies.count_hashes(file.stat().st_size) == len(shard)
    found = [tmp_path / f"copies-{number}" for number in range(ranges)]
    for number, file in enumerate(found):
        hashes = copies.read_hashes(files, number, ranges)
        copies.write_copies(file, copies.find_copies(hashes, STARTS_SOURCE, STARTS_PASS))
    expected = copies_by_definition(shards)
    assert sum(map(len, expected)) > 20
    for number in range(len(shards)):
        assert copies.read_copies(found, number, len(shards)).tolist() == expected[number]


def test_a_range_holds_a_bounded_number_of_documents_and_their_number_divides_the_parts() -> None:
    limit = copies.DOCUMENTS_PER_RANGE
    assert [copies.range_count(n) for n in (0, 1, limit, limit + 1, 3 * limit)] == [1, 1, 1, 2, 4]
    billions = 16_000_000_000
    assert billions / copies.range_count(billions) <= limit
    assert copies.PARTS % copies.range_count(billions) == 0
    assert copies.range_count(1 << 40) == copies.PARTS


def test_a_shard_without_copies_is_the_rest_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(documents(200)))
    source = parse_source(f"text:{tmp_path}/a.txt")
    everything = texts(list(elements(source.documents(0, 1))))
    dropped = [0, 1, 63, 64, 130, 199]
    rest = copies.WithoutCopies(source, np.array(dropped, np.uint32))
    kept = [text for number, text in enumerate(everything) if number not in dropped]
    assert texts(list(elements(rest.documents(0, 1)))) == kept
    splits = [texts(list(elements(rest.get_dataset(split)))) for split in ("train", "validation")]
    assert splits == [
        [text for text in kept if is_held_out(text) == held] for held in (False, True)
    ]


def test_only_documents_of_the_share_are_hashed_with_their_place_in_the_shard(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(documents(100)))
    source = parse_source(f"text:{tmp_path}/a.txt")
    hashed = copies.hash_documents(source, 0, 1, 0.25, lambda amount: None)
    in_share = [(fingerprint(t), n) for n, t in enumerate(documents(100)) if is_in_share(0.25, t)]
    assert hashed.tolist() == sorted(in_share)
    assert 0 < len(in_share) < 50


@pytest.mark.slow
def test_planted_copies_are_dropped_across_shards_and_sources(
    tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    """Source a: 2.5 passes, 3 of its 103 documents are copies; b: 107, of which 7 are also in a."""
    a, b = documents(100, seed=1), documents(100, seed=2)
    shouted = [text.upper().replace(".", " !") for text in a[50:57]]
    (tmp_path / "a0.txt").write_text("\n\n".join(a[:60] + a[:2]))
    (tmp_path / "a1.txt").write_text("\n\n".join([a[59], *a[60:]]))
    (tmp_path / "b0.txt").write_text("\n\n".join(shouted[:4] + b[:50]))
    (tmp_path / "b1.txt").write_text("\n\n".join(b[50:] + shouted[4:]))
    task = f"2.5 * text:{tmp_path}/a*.txt + text:{tmp_path}/b*.txt"
    config = PrepareConfig(task, tokenizer.path, length=32, shards=7, deduplicate="exact")
    index = prepare(config, tmp_path / "rows").index
    half = [text for text in a if is_in_share(0.5, text)]
    copied = [a[0], a[1], a[59]]
    dropped = [3 + 3 + sum(is_in_share(0.5, text) for text in copied), 7]
    read = [103 + 103 + len(half) + dropped[0] - 6, 107]
    assert [(each.compared, each.copies) for each in index.sources] == list(
        zip(read, dropped, strict=True)
    )
    kept = [*a, *a, *half, *b]
    trained_on = [text for text in kept if not is_held_out(text)]
    assert index.splits["train"].documents == len(trained_on)
    assert index.splits["validation"].documents == sum(map(is_held_out, [*a, *b]))
    lines = [line for text in trained_on for line in text.lower().split("\n")]
    found = lines_of(read_sequences(tmp_path / "rows", "train"), tokenizer)
    assert sorted(found) == sorted(lines)
    assert token_shards.read_index(tmp_path / "rows") == index


@pytest.mark.slow
def test_a_source_that_keeps_a_share_does_not_shut_out_the_rest(
    tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    """A document outside of the share of the first source is read from the second one."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents(100)))
    task = f"0.5 * text:{tmp_path}/a.txt + text:{tmp_path}/b.txt"
    config = PrepareConfig(task, tokenizer.path, length=32, deduplicate="exact")
    index = prepare(config, tmp_path / "rows").index
    in_share = sum(is_in_share(0.5, text) for text in documents(100))
    assert [each.copies for each in index.sources] == [0, in_share]
    assert sum(split.documents for split in index.splits.values()) == 100
