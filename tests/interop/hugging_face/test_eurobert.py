"""EuroBERT pads with its end of text, which here also ends a sequence: it is masked as padding."""

import numpy as np
import pytest
import safetensors.numpy
import tokenizers
import torch
import transformers

import tupe_jax
from tests.interop.hugging_face.public_encoders import SIZES
from tests.tokenizers.test_hugging_face import AWKWARD, CORPUS
from tupe_jax import cli

TEXTS = ["the quick fox", "the lazy dogs jump over"]
SPECIAL = {
    "bos_token": "<|begin_of_text|>",
    "eos_token": "<|end_of_text|>",
    "pad_token": "<|end_of_text|>",
    "mask_token": "<|mask|>",
}


def save_eurobert(folder):
    """A model with random weights and its tokenizer, both of `transformers`."""
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(CORPUS, vocab_size=400, special_tokens=sorted({*SPECIAL.values()}))
    bpe.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, **SPECIAL)
    ids = {f"{name[:-6]}_token_id": bpe.token_to_id(text) for name, text in SPECIAL.items()}
    torch.manual_seed(0)
    config = transformers.EuroBertConfig(**{**SIZES, "vocab_size": 400, **ids})
    theirs = transformers.EuroBertForMaskedLM(config).eval()
    theirs.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return theirs, tokenizer


@pytest.mark.slow
def test_vectors_of_a_whole_folder_are_those_of_transformers(tmp_path):
    theirs, tokenizer = save_eurobert(tmp_path)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs.model(batch["input_ids"], batch["attention_mask"]).last_hidden_state.numpy()
    is_token = batch["attention_mask"].numpy()[..., None]
    assert not is_token.all()
    expected = (hidden * is_token).sum(1) / is_token.sum(1)
    ours = tupe_jax.load(tmp_path)
    assert ours.config.pad_id == ours.config.sep_id
    found = ours.encode(TEXTS, pooling="mean_all")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())


def test_an_exported_folder_holds_the_arrays_and_the_tokenizer_that_were_read(tmp_path):
    _, tokenizer = save_eurobert(tmp_path)
    exported = tmp_path / "exported"
    assert cli.main(["export", str(tmp_path), str(exported), "--format=hf"]) == 0
    read, written = (
        safetensors.numpy.load_file(folder / "model.safetensors") for folder in (tmp_path, exported)
    )
    assert read.keys() == written.keys()
    for name, array in read.items():
        np.testing.assert_array_equal(array, written[name], err_msg=name)
    again = transformers.AutoTokenizer.from_pretrained(exported)
    for text in [*AWKWARD, "a <|mask|> boat"]:
        assert again(text)["input_ids"] == tokenizer(text)["input_ids"], repr(text)
    assert again.special_tokens_map.items() >= tokenizer.special_tokens_map.items()
    ours, back = tupe_jax.load(tmp_path), tupe_jax.load(exported)
    assert back.config == ours.config
    assert back.tokenizer.content == ours.tokenizer.content
