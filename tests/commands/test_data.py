"""`tupe data` describes a prepared folder and warns of what usually goes wrong with one."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.data.small_corpus import documents
from tupe_jax.cli import main
from tupe_jax.data.pretraining.token_shards import (
    INDEX_FILE,
    PreparedIndex,
    SourceCounts,
    Split,
    examples_of,
    record_type,
    shard_file_name,
    write_index,
    write_shard,
)
from tupe_jax.tokenizers.sentencepiece import (
    CLS_ID,
    PAD_ID,
    SEP_ID,
    UNK_ID,
    SentencePieceTokenizer,
    train_sentencepiece,
)
from tupe_jax.utils.files import atomic_file
from tupe_jax.utils.paths import storage_path

LENGTH, TRAIN, VALIDATION = 16, 400, 120


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    lines = (line for document in documents(500) for line in document.split("\n"))
    path.write_bytes(train_sentencepiece(lines, 200))
    return SentencePieceTokenizer.load(path)


def prepared(folder, made_by, *, validation=VALIDATION, unknown=0, pad=0, pairs=False, **more):
    """A folder of sequences of real words, with some [UNK] and [PAD] in each."""
    folder = storage_path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids = [i for line in " ".join(documents(500)).split("\n") for i in made_by.encode(line)]
    packing = "pairs" if pairs else "stream"
    record = record_type(packing, made_by.size, LENGTH)
    splits = {}
    for name, rows in (("train", TRAIN), ("validation", validation)):
        tokens_NxS = np.resize(np.array(ids, np.int32), [rows, LENGTH])
        tokens_NxS[:, 0], tokens_NxS[:, 7] = CLS_ID, SEP_ID
        tokens_NxS[:, 8 : 8 + unknown] = UNK_ID
        tokens_NxS[:, LENGTH - pad :] = PAD_ID
        segments_NxS = np.zeros_like(tokens_NxS)
        features = {"tokens": tokens_NxS, "segments": segments_NxS}
        features["is_random_next"] = np.arange(rows) % 2
        path = folder / shard_file_name(name, 0, 1)
        shards = (write_shard(path, examples_of(features), record),) if rows else ()
        splits[name] = Split(shards, rows, rows * (LENGTH - pad), documents=10 * rows)
    with atomic_file(folder / "tokenizer.model") as file:
        file.write_bytes(made_by.content)
    given = {"tokenizer": "tokenizer.model", "packing": packing} | more
    index = PreparedIndex("text:*.txt", made_by.sha256, made_by.size, LENGTH, 0, splits)
    write_index(folder, PreparedIndex(**(vars(index) | given)))
    return folder


@pytest.fixture
def card(capsys):
    """Run the command; return its exit code, text, and warnings on one line each."""

    def card(*arguments):
        code = main(["data", *map(str, arguments)])
        out, error = capsys.readouterr()
        text, *warnings = out.split("\n! ")
        assert max(map(len, out.splitlines()), default=0) <= 100 or "/" in out
        return SimpleNamespace(
            code=code, text=text, error=error, warnings=[" ".join(w.split()) for w in warnings]
        )

    return card


def test_a_good_folder_is_described_without_warnings(tmp_path, tokenizer, card):
    found = card(prepared(tmp_path / "rows", tokenizer))
    assert (found.code, found.warnings) == (0, [])
    words = found.text.split()
    assert {f"{TRAIN:,}", f"{VALIDATION:,}", f"{10 * TRAIN:,}", "stream,", "200"} <= set(words)
    assert "0.0 % [UNK]" in found.text
    ids = [i for line in " ".join(documents(500)).split("\n") for i in tokenizer.encode(line)]
    begin = tokenizer.decode(ids[1:7])
    assert f"1  [CLS] {begin} [SEP] " in found.text


def test_sources_with_what_was_dropped(tmp_path, tokenizer, card):
    tokens = TRAIN * LENGTH
    first = SourceCounts("text:a", 100, tokens // 4, 40, 2, compared=50, copies=10)
    second = SourceCounts(
        "jsonl:b", 300, tokens * 3 // 4, 90, 3, compared=95, broken=7, first_broken="b, line 9"
    )
    found = card(prepared(tmp_path / "rows", tokenizer, sources=(first, second)))
    rows = [line.split() for line in found.text.splitlines()]
    assert ["text:a", "1.60", "k", "25.0", "%", "40", "10", "(20.0", "%)", "0"] in rows
    assert ["jsonl:b", "4.80", "k", "75.0", "%", "90", "0", "(0.0", "%)", "7"] in rows
    (warning,) = found.warnings
    assert "7 broken" in warning
    assert "b, line 9" in warning


@pytest.mark.parametrize(
    ("counts", "warned"),
    [
        ({"broken": 2}, True),  # of 102 records
        ({"broken": 2, "documents": 10_000, "passes": 100}, True),
        ({"broken": 2, "documents": 10, "passes": 0.1}, True),
        ({"broken": 1, "documents": 10_000}, False),
        ({"broken": 1, "documents": 10_000, "copies": 5_000, "passes": 10}, False),
        ({"broken": 1, "documents": 10_000, "damaged": 1}, True),
    ],
)
def test_broken_records_are_compared_with_one_pass_and_damage_is_always_told(
    tmp_path, tokenizer, card, counts, warned
):
    given = {"documents": 100, "validation_documents": 0, "first_broken": "a, line 9"} | counts
    source = SourceCounts("text:a", TRAIN, TRAIN * LENGTH, **given)
    warnings = card(prepared(tmp_path / "rows", tokenizer, sources=(source,))).warnings
    assert ["a, line 9" in each for each in warnings] == [True] * warned


@pytest.mark.parametrize(
    ("folder", "warning"),
    [
        ({"unknown": 1}, "7.1 % of the tokens are [UNK]"),
        ({"pad": 4}, "25.0 % of the training sequences is padding"),
        ({"validation": 30}, "only 30 sequences"),
        ({"validation": 0}, "the validation split is empty"),
        ({"tokenizer": None}, "--vocabulary"),
        ({"vocabulary_sha256": "ab" * 32}, "sha256"),
        (
            {
                "sources": (
                    SourceCounts("text:a", 390, 390 * LENGTH, 1, 1),
                    SourceCounts("text:b", 10, 10 * LENGTH, 1, 1),
                )
            },
            "97.5 % of the tokens are from text:a",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_common_mistake_is_one_warning(tmp_path, tokenizer, card, folder, warning):
    found = card(prepared(tmp_path / "rows", tokenizer, **folder))
    assert found.code == 0
    assert [warning in each for each in found.warnings] == [True]


def test_a_tokenizer_of_other_text_is_noticed(tmp_path, tokenizer, card):
    """Few of its tokens occur."""
    folder = prepared(tmp_path / "rows", tokenizer)
    rows, record = 2_000, record_type("stream", tokenizer.size, LENGTH)
    tokens_NxS = np.resize(np.arange(10, 40), [rows, LENGTH])
    shard = write_shard(
        folder / shard_file_name("train", 0, 1), examples_of({"tokens": tokens_NxS}), record
    )
    index = json.loads((folder / INDEX_FILE).read_text())
    index["splits"]["train"] |= {"rows": rows, "tokens": rows * LENGTH, "shards": [vars(shard)]}
    (folder / INDEX_FILE).write_text(json.dumps(index))
    (warning,) = card(folder).warnings
    assert "15.4 % of the tokenizer's tokens" in warning


def test_a_config_that_does_not_fit_is_a_warning(tmp_path, tokenizer, card):
    folder = prepared(tmp_path / "rows", tokenizer)
    config = ["--config=tupe_r:tiny", "--config.position.max_length=16"]
    (warning,) = card(folder, *config, "--config.data.length=16").warnings
    assert "model.vocab_size" in warning
    fits = ["--config.data.length=16", "--config.model.vocab_size=200"]
    assert card(folder, *config, *fits).warnings == []


def test_sentence_pairs_show_their_label(tmp_path, tokenizer, card):
    text = card(prepared(tmp_path / "rows", tokenizer, pairs=True)).text
    assert "packing pairs" in text
    assert "(next text)" in text
    assert "(random next text)" in text


def test_an_index_of_an_older_version_has_no_sources(tmp_path, tokenizer, card):
    folder = prepared(tmp_path / "rows", tokenizer)
    index = json.loads((folder / INDEX_FILE).read_text())
    for name in ("sources", "packing", "tokenizer"):
        del index[name]
    (folder / INDEX_FILE).write_text(json.dumps(index))
    found = card(folder, f"--vocabulary={tokenizer.path}")
    assert found.warnings == []
    assert "source" not in found.text.split()
    assert "1  [CLS] " in found.text


def test_an_unfinished_or_truncated_folder_is_an_error(tmp_path, tokenizer, card):
    folder = prepared(tmp_path / "rows", tokenizer)
    shard = folder / shard_file_name("train", 0, 1)
    shard.write_bytes(shard.read_bytes()[:-10])
    found = card(folder)
    assert found.code == 2
    assert shard.name in found.error
    (folder / INDEX_FILE).unlink()
    assert card(folder).code == 2
    assert card(tmp_path / "none").code == 2


@pytest.mark.slow
def test_a_folder_on_object_storage(gs_folder, tokenizer, card):
    found = card(prepared(gs_folder, tokenizer))
    assert found.warnings == []
    assert str(gs_folder) in found.text
    assert "1  [CLS] " in found.text
