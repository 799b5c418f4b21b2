"""fill-mask, encode, score and predict: the same as in Python, from arguments, files and pipes."""

import io
import json

import numpy as np
import pytest

import tupe_jax
from tests.inference.small_language import PIECES, sentences
from tests.model.helpers import small_config, spread_model, with_position
from tupe_jax import cli
from tupe_jax.interop.model_folder import Facts, HeadFacts, save_folder
from tupe_jax.tokenizers.sentencepiece import train_sentencepiece

TEXTS = ["the dog sees the cat.", "a girl is quiet."]


def said(capsys, *arguments):
    assert cli.main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory):
    """Random weights: the words are of no interest here."""
    folder = tmp_path_factory.mktemp("random") / "model"
    config = with_position(small_config(vocab_size=PIECES, num_layers=1), max_length=32)
    save_folder(spread_model(config), folder, train_sentencepiece(sentences(500), PIECES))
    return folder


@pytest.fixture(scope="module")
def model(trained_model):
    return tupe_jax.load(trained_model)


def test_masks_are_filled_for_reading_and_as_json(model, trained_model, capsys):
    text = "two [MASK] see the [MASK]."
    filled = model.fill_mask(text, top_k=2)
    lines = said(capsys, "fill-mask", trained_model, text, "--top_k=2").splitlines()
    assert lines == [text, *(f"  {mask[0]}, {mask[1]}" for mask in filled.guesses)]
    as_json = json.loads(said(capsys, "fill-mask", trained_model, text, "--top_k=2", "--json"))
    assert as_json["filled"] == filled.filled
    assert as_json["guesses"][1][0]["piece"] == filled.guesses[1][0].piece


def test_vectors_go_to_a_file_or_to_the_pipe(model, trained_model, tmp_path, monkeypatch, capsys):
    expected = model.encode(TEXTS)
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    out = tmp_path / "vectors.npy"
    told = said(capsys, "encode", trained_model, f"--file={file}", f"--out={out}")
    assert told == f"{out}: 2 vectors of 16 numbers\n"
    np.testing.assert_array_equal(np.load(out), expected)
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    lines = [json.loads(line) for line in said(capsys, "encode", trained_model).splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    np.testing.assert_array_equal(np.float32([line["vector"] for line in lines]), expected)


def test_scores_are_printed_before_their_texts(model, trained_model, capsys):
    lines = said(capsys, "score", trained_model, *TEXTS).splitlines()
    scores = model.score(TEXTS)
    assert lines == [f"{s:.3f}\t{text}" for s, text in zip(scores, TEXTS, strict=True)]


def test_a_fine_tuned_model_answers(model, trained_model, tmp_path, capsys):
    tuned = spread_model(model.config, heads={"same": 2})
    facts = Facts(heads={"same": HeadFacts(("no", "yes"), texts=2, length=32)})
    vocabulary = (trained_model / "vocabulary.model").read_bytes()
    save_folder(tuned, tmp_path / "m", vocabulary, facts)
    answer = tupe_jax.load(tmp_path / "m").predict(tuple(TEXTS))
    assert "d\u00e9j\u00e0" in said(
        capsys, "predict", tmp_path / "m", "d\u00e9j\u00e0\ta", "--json"
    )
    pair = "\t".join(TEXTS)
    assert said(capsys, "predict", tmp_path / "m", pair) == f"{answer}\t{pair}\n"
    as_json = json.loads(said(capsys, "predict", tmp_path / "m", pair, "--json"))
    assert (as_json["text"], as_json["label"]) == (pair, answer.label)
    assert as_json["probabilities"] == answer.probabilities


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fill-mask", "{model}", "the dog"], "the text 'the dog' has no [MASK]"),
        (["fill-mask", "{model}", "--top_k=0", "[MASK]"], "top_k=0 must be at least 1"),
        (["fill-mask", "/nowhere", "[MASK]"], "/nowhere: no such folder"),
        (["encode", "{model}", "a", "--file=b"], "as arguments or as --file, not both"),
        (["encode", "{model}", "--file=/nowhere/x"], "cannot read /nowhere/x: No such file"),
        (["encode", "{model}", "--file={here}/gap"], "gap:2: an empty line"),
        (["encode", "{model}", "--file={here}/latin"], "latin is not UTF-8"),
        (["encode", "{model}", "--file={here}/empty"], "empty has no texts"),
        (["encode", "{model}", "a", "--out=x.txt"], "--out=x.txt must end in .npy"),
        (["encode", "{model}", "a", "--out=/nowhere/x.npy"], "/nowhere: no such folder"),
        (["score", "{model}", "the dog " * 30], "is longer than position.max_length=32"),
        (["encode", "{model}", "the", "--out={here}/d.npy"], "d.npy is a folder; --out"),
        (["predict", "{model}", "a"], "was not fine-tuned"),
        (["predict", "{model}", "a\tb\tc"], "has several tabs"),
    ],
)
def test_what_is_wrong_is_one_line(trained_model, tmp_path, arguments, words, capsys):
    (tmp_path / "gap").write_text("a\n\nb\n")
    (tmp_path / "latin").write_bytes("d\xe9j\xe0".encode("latin-1"))
    (tmp_path / "empty").touch()
    (tmp_path / "d.npy").mkdir()
    filled = [argument.format(model=trained_model, here=tmp_path) for argument in arguments]
    assert cli.main(filled) == cli.USER_ERROR_EXIT_CODE
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_byte_order_mark_is_no_part_of_a_text(trained_model, tmp_path, monkeypatch, capsys):
    content = "\ufeffthe dog.\n".encode()
    (tmp_path / "marked").write_bytes(content)
    from_file = said(capsys, "score", trained_model, f"--file={tmp_path / 'marked'}")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "ascii"))
    assert said(capsys, "score", trained_model) == from_file
    assert from_file.endswith("\tthe dog.\n")


def test_standard_input_is_utf_8_in_every_locale(trained_model, monkeypatch, capsys):
    piped = io.TextIOWrapper(io.BytesIO(b"d\xe9j\xe0"), "ascii", errors="surrogateescape")
    monkeypatch.setattr("sys.stdin", piped)
    assert cli.main(["score", str(trained_model)]) == cli.USER_ERROR_EXIT_CODE
    error = capsys.readouterr().err
    assert "standard input is not UTF-8 text" in error
    assert error.count("\n") == 1


def test_without_any_text_a_terminal_is_not_waited_for(trained_model, monkeypatch, capsys):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    assert cli.main(["score", str(trained_model)]) == cli.USER_ERROR_EXIT_CODE
    assert "no texts: give them as arguments" in capsys.readouterr().err
