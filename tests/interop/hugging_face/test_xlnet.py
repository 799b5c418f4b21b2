"""XLNet with its own tokenizer: sequences end with [CLS], and attention uses segments."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx

import tupe_jax
from tests.interop.hugging_face.public_encoders import XLNET
from tests.model.helpers import small_config
from tests.tokenizers.test_hugging_face import unigram
from tupe_jax import cli
from tupe_jax.config.schema import Config, ModelConfig
from tupe_jax.data.labelled.encode import join
from tupe_jax.inference.trained_model import check_tokenizer
from tupe_jax.utils.errors import UserError

TEXTS = ["the quick fox", "the lazy dogs jump over"]


@pytest.fixture(scope="module")
def theirs():
    torch.manual_seed(0)
    config = transformers.XLNetConfig(**{**XLNET, "vocab_size": 300, "pad_token_id": 0})
    config._attn_implementation = "eager"
    model = transformers.XLNetModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(("norm.weight" in name) + 0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def folder(theirs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("xlnet") / "downloaded"
    theirs.save_pretrained(folder)
    unigram(folder, ["<pad>", "<cls>", "<sep>", "<mask>", "<unk>"])
    return folder


@pytest.fixture(scope="module")
def ours(folder):
    return tupe_jax.load(folder)


@pytest.fixture(scope="module")
def tokenizer(folder):
    return transformers.XLNetTokenizer.from_pretrained(folder)


def ask(theirs, batch):
    with torch.no_grad():
        return theirs(**batch, output_attentions=True)


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * abs(theirs).max())


@pytest.mark.slow
def test_sentence_vectors_are_those_of_transformers(ours, theirs, tokenizer):
    batch = tokenizer(TEXTS, padding=True, return_token_type_ids=True, return_tensors="pt")
    assert not batch["attention_mask"][0, 0]  # padded on the left
    hidden = ask(theirs, batch).last_hidden_state.numpy()
    assert_close(ours.encode(TEXTS, pooling="cls"), hidden[:, -1])
    no_words = [tokenizer.pad_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id]
    is_word = ~np.isin(batch["input_ids"].numpy(), no_words)[..., None]
    assert_close(ours.encode(TEXTS), (hidden * is_word).sum(1) / is_word.sum(1))


@pytest.mark.slow
def test_attention_in_a_pair_uses_its_token_types(ours, theirs, tokenizer):
    row = np.array([join(ours.tokenizer, *map(ours.tokenizer.encode, TEXTS), 99)])
    batch = tokenizer(*TEXTS, return_token_type_ids=True, return_tensors="pt")
    assert sorted(set(batch["token_type_ids"][0].tolist())) == [0, 1, 2]
    attention = nnx.jit(lambda encoder: encoder.attention_weights(row))(ours.module.encoder)
    expected = ask(theirs, batch).attentions
    for layer, wanted in zip(np.asarray(attention), expected, strict=True):
        assert_close(layer, wanted.numpy())
    without = ask(theirs, {**batch, "token_type_ids": None}).attentions
    assert abs(without[0] - expected[0]).max() > 0.01


def test_an_imported_folder_gives_the_same_vectors(ours, folder, tmp_path):
    assert cli.main(["import-hf", str(folder), str(tmp_path / "ours")]) == 0
    kept = tupe_jax.load(tmp_path / "ours")
    np.testing.assert_array_equal(kept.encode(TEXTS, "cls"), ours.encode(TEXTS, "cls"))


def test_a_classifier_reads_the_last_token_before_the_padding(ours):
    tokens = np.array([[7, 3, 2, 0, 0], [7, 9, 9, 3, 2]])
    hidden = np.random.default_rng(0).standard_normal((2, 5, 4), np.float32)
    found = ours.module.cls_BxD(jnp.asarray(hidden), jnp.asarray(tokens))
    np.testing.assert_array_equal(found, hidden[[0, 1], [2, 4]])


def test_cls_last_is_refused_where_it_does_not_fit(ours):
    with pytest.raises(UserError, match=r"untie_cls=True .*model\.cls_last=True"):
        small_config("tupe_a", cls_last=True)
    with pytest.raises(UserError, match=r"cls_last=True"):
        Config(model=small_config("bert_a", cls_last=True))
    config = ModelConfig(**{**vars(ours.config), "cls_last": False})
    with pytest.raises(UserError, match=r"\[CLS\]"):
        check_tokenizer(config, ours.tokenizer)
