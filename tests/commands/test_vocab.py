"""`tupe vocab`: the same file from the same text, a sample of a large corpus, clear errors."""

from pathlib import Path

import pytest

from tests.data.small_corpus import documents
from tupe_jax.cli import main
from tupe_jax.data.pretraining.seqio_tasks import Component, parse_task
from tupe_jax.data.pretraining.sources.text_files import TextFiles
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.pretraining.train_tokenizer import sample_lines
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for seed in range(2):
        (tmp_path / f"{seed}.txt").write_text("\n\n".join(documents(300, seed)))
    return tmp_path


def test_the_same_text_gives_the_same_file(corpus: Path) -> None:
    for name in ("a", "b"):
        arguments = [f"--text={corpus}/*.txt", "--size=150", f"--out={corpus}/{name}.model"]
        assert main(["vocab", *arguments]) == 0
    assert (corpus / "a.model").read_bytes() == (corpus / "b.model").read_bytes()
    assert SentencePieceTokenizer.load(corpus / "a.model").size == 150
    assert not list(corpus.glob("*.tmp"))


def test_a_task_of_the_built_in_corpus_will_do(corpus: Path) -> None:
    out = corpus / "builtin.model"
    assert main(["vocab", "--task=builtin:50", "--size=300", f"--out={out}"]) == 0
    assert SentencePieceTokenizer.load(out).size == 300


def test_a_small_corpus_is_read_whole_but_for_the_held_out_documents(corpus: Path) -> None:
    texts = [text for seed in range(2) for text in documents(300, seed) if not is_held_out(text)]
    lines = list(sample_lines(parse_task(f"text:{corpus}/*.txt"), (), limit=10**6, seed=0))
    assert lines == "\n".join(texts).split("\n")


def test_a_large_corpus_is_sampled_by_weight(corpus: Path) -> None:
    components = parse_task(f"3 * text:{corpus}/0.txt + text:{corpus}/1.txt")
    lines = list(sample_lines(components, (), limit=400, seed=0))
    assert abs(len(lines) - 400) <= 1
    first = {line for text in documents(300, 0) for line in text.split("\n")}
    assert abs(sum(line in first for line in lines) - 300) <= 10  # the files are about as large


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "parts"),
    [
        ("{0} + {1}", (1, 1)),
        ("3 * {0} + 3 * {1}", (1, 1)),
        ("10 * {0} + {1}", (1, 0.1)),
        ("0.1 * {0} + {1}", (0.1, 1)),
        ("7 * {0}", (1,)),
    ],
)
@pytest.mark.parametrize("limit", [10**6, 5_000])
def test_a_small_corpus_is_sampled_by_weight(
    corpus: Path, task: str, parts: tuple[float, ...], limit: int
) -> None:
    """No line is repeated, so the heaviest source gives all it has and the others a part."""
    components = parse_task(task.format(f"text:{corpus}/0.txt", f"text:{corpus}/1.txt"))
    sampled = list(sample_lines(components, (), limit=limit, seed=0))
    for seed, part in enumerate(parts):
        texts = [text for text in documents(300, seed) if not is_held_out(text)]
        lines = "\n".join(texts).split("\n")
        found = [line for line in sampled if line in set(lines)]
        assert len(found) == int(part * len(lines))
        assert part < 1 or found == lines


def test_sources_give_text_by_their_size_not_lines(tmp_path: Path) -> None:
    """Sentences on lines of their own, and paragraphs: as much text of either is as much text."""
    words = " ".join(["word"] * 9)
    (tmp_path / "sentences.txt").write_text("\n\n".join(f"a {n} {words}" for n in range(4000)))
    paragraphs = (" ".join([f"b {n} {words}"] * 10) for n in range(400))
    (tmp_path / "paragraphs.txt").write_text("\n\n".join(paragraphs))
    task = f"text:{tmp_path}/sentences.txt + text:{tmp_path}/paragraphs.txt"
    lines = list(sample_lines(parse_task(task), (), limit=1100, seed=0))
    sizes = [sum(len(line) for line in lines if line.startswith(kind)) for kind in "ab"]
    assert 0.8 < sizes[0] / sizes[1] < 1.25
    assert abs(len(lines) - 1100) <= 110


def test_the_seed_decides_which_shards_are_read(corpus: Path) -> None:
    class ManyShards(TextFiles):
        default_shards = 20

    source = ManyShards(f"{corpus}/*.txt", block_bytes=2_000)
    samples = [
        list(sample_lines([Component(1.0, source)], (), limit=100, seed=seed)) for seed in (0, 0, 1)
    ]
    assert samples[0] == samples[1] != samples[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text=/nowhere/*"], "no file matches '/nowhere/*'"),
        (["--task=nothing"], "source 'nothing'"),
        (["--task=builtin:10", "--size=100000"], "100000 tokens are too many"),
        (["--task=builtin:10", "--size=0"], "--size=0 must be at least 6"),
        (["--task=builtin:10", "--size=-5"], "--size=-5 must be at least 6"),
        (["--task=builtin:10", "--size=6"], "6 tokens are too few"),
        (["--task=builtin:10", "--out=."], "--out must be the .model file"),
        (["--task=builtin:10", "--lines=0"], "--lines=0 must be at least 1"),
        (["--task=builtin:10", "--out=/nowhere/a.model"], "/nowhere: no such folder"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["vocab", f"--out={tmp_path}/a.model", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
