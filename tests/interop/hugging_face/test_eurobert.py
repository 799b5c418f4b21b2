"""EuroBERT pads with its end of text, which here also ends a sequence: it is masked as padding."""

import numpy as np
import pytest
import tokenizers
import torch
import transformers

import tupe_jax
from tests.interop.hugging_face.public_encoders import SIZES
from tests.tokenizers.test_hugging_face import CORPUS

TEXTS = ["the quick fox", "the lazy dogs jump over"]
SPECIAL = {
    "bos_token": "<|begin_of_text|>",
    "eos_token": "<|end_of_text|>",
    "pad_token": "<|end_of_text|>",
    "mask_token": "<|mask|>",
}


@pytest.mark.slow
def test_vectors_of_a_whole_folder_are_those_of_transformers(tmp_path):
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(CORPUS, vocab_size=400, special_tokens=sorted({*SPECIAL.values()}))
    bpe.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, **SPECIAL)
    ids = {f"{name[:-6]}_token_id": bpe.token_to_id(text) for name, text in SPECIAL.items()}
    torch.manual_seed(0)
    config = transformers.EuroBertConfig(**{**SIZES, "vocab_size": 400, **ids})
    theirs = transformers.EuroBertModel(config).eval()
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(batch["input_ids"], batch["attention_mask"]).last_hidden_state.numpy()
    is_token = batch["attention_mask"].numpy()[..., None]
    assert not is_token.all()
    expected = (hidden * is_token).sum(1) / is_token.sum(1)
    ours = tupe_jax.load(tmp_path)
    assert ours.config.pad_id == ours.config.sep_id
    found = ours.encode(TEXTS, pooling="mean_all")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())
