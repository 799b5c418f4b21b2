"""A folder for sentence-transformers gives the vectors of `encode`."""

import json

import numpy as np
import pytest

from tests.interop.hugging_face import public_encoders as public
from tests.model.helpers import save_folder, small_config, spread_model
from tupe_jax import cli
from tupe_jax.inference.loading import load
from tupe_jax.tokenizers.sentencepiece import train_sentencepiece

TEXTS = ["the boat", "ab the boat ab ab", "a"]


@pytest.fixture(scope="module", params=["mean_all", "cls"])
def exported(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences")
    public.theirs("bert").save_pretrained(folder / "bert")
    pieces = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "the", "boat"]
    (folder / "bert/vocab.txt").write_text("\n".join(pieces))
    options = ["--format=sentence-transformers", f"--pooling={request.param}"]
    assert cli.main(["export", str(folder / "bert"), str(folder / "out"), *options]) == 0
    return folder / "out", request.param


def test_the_files(exported):
    folder, pooling = exported
    pooled = json.loads((folder / "1_Pooling/config.json").read_text())
    assert pooled["pooling_mode_cls_token"] == (pooling == "cls")
    assert pooled["pooling_mode_mean_tokens"] == (pooling == "mean_all")
    paths = [module["path"] for module in json.loads((folder / "modules.json").read_text())]
    assert paths == ["", "1_Pooling"]
    assert f"SentenceTransformer({folder.name!r})" in (folder / "README.md").read_text()


@pytest.mark.slow
def test_sentence_transformers_gives_the_same_vectors(exported):
    from sentence_transformers import SentenceTransformer

    folder, pooling = exported
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    ours = load(folder).encode(TEXTS, pooling=pooling)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * abs(expected).max())


@pytest.mark.slow
def test_so_it_does_for_a_model_with_a_tokenizer_of_ours(tmp_path):
    from sentence_transformers import SentenceTransformer

    letters = "abcdefghijklmnopqrstuvwxyz"
    tokenizer = train_sentencepiece([" ".join(letters), "a cat and a dog and a boat"] * 20, 70)
    model = spread_model(small_config("bert_a", vocab_size=70))
    save_folder(model, tmp_path / "ours", tokenizer)
    command = ["export", str(tmp_path / "ours"), str(tmp_path / "out")]
    assert cli.main([*command, "--format=sentence-transformers"]) == 0
    expected = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    for folder in ("ours", "out"):
        vectors = load(tmp_path / folder).encode(TEXTS, pooling="mean_all")
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5 * abs(expected).max())


def test_a_model_without_a_tokenizer_is_refused(tmp_path, capsys):
    save_folder(spread_model(small_config("bert_a")), tmp_path / "ours")
    command = ["export", str(tmp_path / "ours"), str(tmp_path / "out")]
    assert cli.main([*command, "--format=sentence-transformers"]) == cli.USER_ERROR_EXIT_CODE
    assert "tokenizer" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
