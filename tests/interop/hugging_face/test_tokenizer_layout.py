"""An imported encoder is exported with its tokenizer, of any kind: the tokens stay the same."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tokenizers
import torch
import transformers

from tests.interop.hugging_face import public_encoders as public
from tests.model.helpers import hidden_states, small_config, spread_model
from tests.tokenizers.test_hugging_face import AWKWARD, CORPUS, FILES, KINDS
from tupe_jax import cli
from tupe_jax.data.labelled.encode import join
from tupe_jax.inference.loading import load
from tupe_jax.interop.hugging_face.exporting import write_files
from tupe_jax.interop.hugging_face.tokenizer import read_tokenizer
from tupe_jax.tokenizers.base import SpecialTokens
from tupe_jax.tokenizers.hugging_face import HuggingFaceTokenizer
from tupe_jax.utils.errors import UserError

VOCAB_SIZE = 410
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
TEXTS = [*AWKWARD, "a [MASK] boat", "two   spaces     and more"]


def save_modernbert(folder):
    """Byte-level BPE in a tokenizer.json, as ModernBERT is published."""
    bpe = tokenizers.ByteLevelBPETokenizer(unicode_normalizer="nfc")
    bpe.train_from_iterator(CORPUS, vocab_size=400, special_tokens=SPECIAL)
    bpe.add_special_tokens([tokenizers.AddedToken("[MASK]", lstrip=True)])
    bpe.add_tokens([tokenizers.AddedToken("   ")])
    bpe._tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:0 [SEP]",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    names = {f"{name[1:-1].lower()}_token": name for name in (*SPECIAL, "[MASK]")}
    inputs = ["input_ids", "attention_mask"]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer, model_input_names=inputs, **names
    ).save_pretrained(folder)
    save_model(folder, transformers.ModernBertForMaskedLM, {**public.MODERNBERT, "pad_token_id": 3})


def save_files(kind, files="", **others):
    """The files that the class of this kind reads, which have no template of a sequence."""

    def save(folder):
        make, _ = FILES[files or kind]
        of = KINDS[kind]
        make(folder, [of.pad, of.cls, of.sep, of.mask, of.unk])
        pad_id = read_tokenizer(folder, kind, VOCAB_SIZE).special.pad_id
        sizes = {**public.SIZES, "type_vocab_size": 1, "pad_token_id": pad_id, **others}
        save_model(folder, public.MODELS[kind][0], sizes)

    return save


def save_model(folder, model_class, sizes):
    torch.manual_seed(0)
    sizes = {**sizes, "vocab_size": VOCAB_SIZE, "max_position_embeddings": 400}
    model_class(model_class.config_class(**sizes)).save_pretrained(folder)


SAVE = {
    "modernbert": save_modernbert,
    **{kind: save_files(kind) for kind in ("roberta", "xlm-roberta", "camembert")},
}


def export(folder, format):
    out = folder / format
    assert cli.main(["export", str(folder), str(out), f"--format={format}"]) == 0
    return out


@pytest.fixture(scope="module", params=SAVE)
def folders(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    SAVE[request.param](folder)
    return folder, export(folder, "hf")


def test_the_tokens_of_texts_are_the_same(folders):
    original, exported = folders
    ours, theirs = load(original).tokenizer, transformers.AutoTokenizer.from_pretrained(exported)
    assert isinstance(theirs, transformers.PreTrainedTokenizerFast)
    for text in TEXTS:
        assert theirs.encode(text, add_special_tokens=False) == ours.encode(text), repr(text)
        assert theirs(text)["input_ids"] == join(ours, ours.encode(text), None, 500), repr(text)
    first, second = map(ours.encode, TEXTS[2:4])
    assert theirs(*TEXTS[2:4])["input_ids"] == join(ours, first, second, 500)
    special = ours.special
    assert (special.pad_id, special.cls_id) == (theirs.pad_token_id, theirs.cls_token_id)
    assert (special.sep_id, special.mask_id) == (theirs.sep_token_id, theirs.mask_token_id)
    assert special.unk_id == theirs.unk_token_id


def test_texts_may_be_as_long_as_the_model_reads_and_have_no_segments(folders):
    original, exported = folders
    theirs = transformers.AutoTokenizer.from_pretrained(exported)
    assert theirs.model_max_length == load(original).config.position.max_length
    assert set(theirs("a", "b")) == {"input_ids", "attention_mask"}


def test_what_was_exported_is_loaded_again(folders):
    ours, back = map(load, folders)
    assert back.config == ours.config
    assert back.tokenizer.special == ours.tokenizer.special
    assert back.tokenizer.pair_separators == ours.tokenizer.pair_separators
    for text in TEXTS:
        assert back.tokenizer.encode(text) == ours.tokenizer.encode(text), repr(text)
    assert ours.params.keys() == back.params.keys()
    for path, array in ours.params.items():
        np.testing.assert_array_equal(array, back.params[path], err_msg=str(path))


def test_transformers_computes_the_same_hidden_states(folders):
    original, exported = folders
    model = load(original)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(exported).eval()
    batch = transformers.AutoTokenizer.from_pretrained(exported)(
        [AWKWARD[2], "a boat"], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        expected = theirs(**batch, output_hidden_states=True).hidden_states
    is_word = batch["attention_mask"].numpy() == 1
    assert not is_word.all()
    found = hidden_states(model.module, batch["input_ids"].numpy())
    for ours, others in zip(found, expected, strict=True):
        ours, others = np.asarray(ours)[is_word], others.numpy()[is_word]
        np.testing.assert_allclose(ours, others, rtol=0, atol=1e-5 * abs(others).max())


def test_the_files_of_modernbert_are_written_as_they_were_read(tmp_path):
    save_modernbert(tmp_path)
    exported = export(tmp_path, "hf")
    read, written = (
        safetensors.numpy.load_file(folder / "model.safetensors") for folder in (tmp_path, exported)
    )
    assert read.keys() == written.keys()
    for name, array in read.items():
        np.testing.assert_array_equal(array, written[name], err_msg=name)
    read, written = (
        json.loads((folder / "tokenizer.json").read_text()) for folder in (tmp_path, exported)
    )
    assert read == written


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["modernbert", "xlm-roberta"])
def test_sentence_transformers_gives_the_vectors_of_encode(kind, tmp_path):
    from sentence_transformers import SentenceTransformer

    SAVE[kind](tmp_path)
    exported = export(tmp_path, "sentence-transformers")
    texts = [text for text in TEXTS if text.strip() and "MASK" not in text.upper()]
    expected = SentenceTransformer(str(exported), device="cpu").encode(texts)
    for folder in (tmp_path, exported):
        ours = load(folder).encode(texts, pooling="mean_all")
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * abs(expected).max())


def test_roformer_keeps_the_split_of_chinese_into_characters(tmp_path):
    save_files("roformer", "bert", embedding_size=16)(tmp_path)
    ours = load(tmp_path).tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(export(tmp_path, "hf"))
    for text in TEXTS:
        assert theirs.encode(text, add_special_tokens=False) == ours.encode(text), repr(text)


def test_a_tokenizer_that_ends_with_cls_is_refused_in_one_line(tmp_path):
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram([("a", 0.0)]))
    tokenizer = HuggingFaceTokenizer(tmp_path, SpecialTokens(0, 1, 2, 3), 1, True, 50, unigram)
    with pytest.raises(UserError, match=r"^[^\n]*ends it with \[CLS\][^\n]*$"):
        write_files(spread_model(small_config("bert_a")), tokenizer, tmp_path)
