"""Texts are encoded to the same tokens as in `transformers`, for all kinds of files."""

import io
import json

import numpy as np
import pytest
import sentencepiece
import tokenizers
import transformers

from tupe_jax.data.labelled.encode import join
from tupe_jax.interop.hugging_face.tokenizer import KINDS, read_tokenizer
from tupe_jax.model.attention import segment_BxS
from tupe_jax.tokenizers.hugging_face import HuggingFaceTokenizer
from tupe_jax.utils.errors import UserError

SIZE = 1000
AWKWARD = [
    "",
    " ",
    "The quick brown fox's jump, over 3.14 lazy dogs!",
    "Ein Café in Zürich, naïve façade; Ångström, İstanbul",
    "e\u0301 versus \u00e9, \ufb01ne \u2160\u00bd\uff21",
    "\U0001f600 emoji \U0001f469\u200d\U0001f680 and \u2603\ufe0f",
    "漢字とかな 한국어 中文abc",
    "a" * 300 + " supercalifragilisticexpialidocious",
    "tabs\tand\nnewlines \r\n  and   spaces ",
    "zero\u200bwidth \x00null\ufffd \u00a0hard\u3000space",
    "don't `quote' ``this'' [MASK] [SEP] <mask> </s> [unused3]",
    "https://example.org/a_b?c=d&e=%20 user@example.org #tag $5.00",
    "MKTVRQERLKSIVRILERSKEPVSG<mask>AQ-LAEEL. <null_1> mk<cls>T",
]
CORPUS = [*AWKWARD[2:], "the quick brown fox jumps over the lazy dog " * 3]


def wordpiece(folder, special):
    words = sorted({word for text in CORPUS for word in text.lower().split()})[::2]
    letters = sorted({letter for text in CORPUS for letter in text.lower() if letter.isprintable()})
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *words]
    (folder / "vocab.txt").write_text("".join(f"{p}\n" for p in dict.fromkeys(pieces)))


AMINO_ACIDS = [*"LAGVSERTIDPKQNFYMHWCXBUZO.-"]


def protein(folder, special):
    pad, cls, sep, mask, unk = special
    (folder / "vocab.txt").write_text(
        "\n".join([cls, pad, sep, unk, *AMINO_ACIDS, "<null_1>", mask])
    )


def byte_level_bpe(folder, special):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(CORPUS, vocab_size=400, special_tokens=special)
    tokenizer.save_model(str(folder))


def modern_bpe(folder, special):
    """A `tokenizer.json` as ModernBERT's: BERT's special tokens, and [MASK] takes the space."""
    pad, cls, sep, mask, unk = special
    bpe = tokenizers.ByteLevelBPETokenizer(unicode_normalizer="nfc")
    bpe.train_from_iterator(CORPUS, vocab_size=400, special_tokens=[unk, cls, sep, pad])
    bpe.add_special_tokens([tokenizers.AddedToken(mask, lstrip=True, normalized=False)])
    bpe.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B {sep}",
        special_tokens=[(token, bpe.token_to_id(token)) for token in (cls, sep)],
    )
    names = {f"{name}_token": token for name, token in zip(NAMES, special, strict=True)}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, **names)
    fast.save_pretrained(folder)


NAMES = ("pad", "cls", "sep", "mask", "unk")
SENTENCEPIECE = {
    "deberta": "spm.model",
    "xlm-roberta": "sentencepiece.bpe.model",
    "camembert": "sentencepiece.bpe.model",
    "rembert": "sentencepiece.model",
}


def unigram(folder, special):
    pad, cls, sep, mask, unk = special
    name = next(
        (name for part, name in SENTENCEPIECE.items() if part in folder.name), "spiece.model"
    )
    is_fairseq = name == "sentencepiece.bpe.model"  # [PAD] and [MASK] are not in its file
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=170,
        hard_vocab_limit=False,
        pad_id=-1 if is_fairseq else 0,
        pad_piece=pad,
        # RemBERT's class has this id in its code.
        unk_id=0 if is_fairseq else 2 if "rembert" in folder.name else 1,
        unk_piece=unk,
        bos_id=1 if is_fairseq or "rembert" in folder.name else 2,
        bos_piece=cls,
        eos_id=2 if is_fairseq else 3,
        eos_piece=sep,
        control_symbols=[] if is_fairseq else [mask, "<s>", "</s>", "<eop>", "<eod>"],
        minloglevel=2,
    )
    (folder / name).write_bytes(model.getvalue())


FILES = {
    "bert": (wordpiece, transformers.BertTokenizer),
    "mpnet": (wordpiece, transformers.MPNetTokenizer),
    "roberta": (byte_level_bpe, transformers.RobertaTokenizer),
    "deberta": (byte_level_bpe, transformers.DebertaTokenizer),
    "albert": (unigram, transformers.AlbertTokenizer),
    "xlnet": (unigram, transformers.XLNetTokenizer),
    "deberta-v2": (unigram, transformers.DebertaV2Tokenizer),
    "xlm-roberta": (unigram, transformers.XLMRobertaTokenizer),
    "camembert": (unigram, transformers.CamembertTokenizer),
    "rembert": (unigram, transformers.RemBertTokenizer),
    "esm": (protein, transformers.EsmTokenizer),
    "modernbert": (modern_bpe, transformers.PreTrainedTokenizerFast),
}


WITHOUT_SEGMENTS = ("roberta", "mpnet", "deberta", "xlm-roberta", "camembert", "esm", "modernbert")
"""Their models have one segment, or none."""


@pytest.fixture(scope="module", params=FILES)
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    make, _ = FILES[request.param]
    kind = KINDS[request.param]
    make(folder, [kind.pad, kind.cls, kind.sep, kind.mask, kind.unk])
    return folder, request.param


def assert_same_tokens(ours, theirs):
    for text in AWKWARD:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), repr(text)
    special = ours.special
    assert set(special.ids) <= set(theirs.all_special_ids)
    assert (special.pad_id, special.cls_id) == (theirs.pad_token_id, theirs.cls_token_id)
    sep_id = theirs.eos_token_id if theirs.sep_token is None else theirs.sep_token_id  # ESM
    assert (special.sep_id, special.mask_id) == (sep_id, theirs.mask_token_id)


def test_tokenizer_files(folder):
    path, kind = folder
    theirs, ours = FILES[kind][1].from_pretrained(path), read_tokenizer(path, kind, SIZE)
    assert_same_tokens(ours, theirs)
    assert_same_tokens(HuggingFaceTokenizer.parse(ours.content, path), theirs)


OF_THEIR_OWN = {
    "eurobert": "test_eurobert_pads_with_its_end_of_text_and_has_no_unknown_token",
    "roformer": "test_roformer_splits_chinese_into_characters_and_says_so",
}
"""Types whose tokenizers are compared by other tests."""


@pytest.mark.parametrize("model_type", KINDS)
def test_the_tokenizer_of_every_type_is_one_that_is_compared(model_type):
    if model_type in OF_THEIR_OWN:
        assert callable(globals()[OF_THEIR_OWN[model_type]])
        return
    same = [other for other in FILES if KINDS[other] == KINDS[model_type]]
    assert same


def test_a_saved_tokenizer(folder, tmp_path):
    path, kind = folder
    theirs = FILES[kind][1].from_pretrained(path)
    theirs.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").exists() == (kind != "esm")
    assert_same_tokens(read_tokenizer(tmp_path, kind, SIZE), theirs)


def test_sequences_of_one_text_and_of_a_pair_match_transformers(folder):
    path, kind = folder
    ours, theirs = read_tokenizer(path, kind, SIZE), FILES[kind][1].from_pretrained(path)
    for texts in ([AWKWARD[2]], AWKWARD[2:4]):
        pieces = [ours.encode(text) for text in texts]
        row = join(ours, pieces[0], pieces[1] if len(pieces) == 2 else None, SIZE)
        wanted = theirs(*texts, return_token_type_ids=True)
        if kind == "deberta" and len(texts) == 2:
            # Version 5 of transformers doubles the first [SEP]. The model was trained with one, and
            # version 4 has one.
            wanted["input_ids"].remove(ours.special.sep_id)
        if kind == "rembert":
            # Version 5 of transformers adds no special tokens to what it reads from SentencePiece.
            special = (ours.special.cls_id, ours.special.sep_id)
            assert [token for token in row if token not in special] == wanted["input_ids"]
            continue
        assert row == wanted["input_ids"]
        if kind in WITHOUT_SEGMENTS:
            continue
        segments = np.asarray(segment_BxS(np.array([row]), ours.special.sep_id))[0]
        types = np.array(wanted["token_type_ids"])
        if kind == "xlnet":  # to which it counts only whether two tokens are of one segment
            segments, types = segments[:, None] == segments, types[:, None] == types
        np.testing.assert_array_equal(segments, types)


def test_the_mask_that_deberta_adds_to_its_tokens(tmp_path):
    folder = tmp_path / "deberta-v2"
    folder.mkdir()
    unigram(folder, ["[PAD]", "[CLS]", "[SEP]", "<other>", "[UNK]"])
    ours = read_tokenizer(folder, "deberta-v2", SIZE)
    assert_same_tokens(ours, transformers.DebertaV2Tokenizer.from_pretrained(folder))


def test_a_missing_special_token_is_not_made_up(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
    with pytest.raises(UserError, match=r"'\[MASK\]'"):
        read_tokenizer(tmp_path, "bert", SIZE)


BERT = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]


def written(folder, **files):
    """A WordPiece vocabulary with other files beside it, by their names without `.json`."""
    wordpiece(folder, BERT)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_two_files_that_disagree_on_capitals_are_refused(tmp_path):
    theirs = transformers.BertTokenizer.from_pretrained(written(tmp_path))
    theirs.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["do_lower_case"]
    written(tmp_path, tokenizer_config={**settings, "do_lower_case": False})
    with pytest.raises(UserError, match=r"tokenizer\.json .*do_lower_case .*False"):
        read_tokenizer(tmp_path, "bert", SIZE)
    del settings["do_lower_case"]
    written(tmp_path, tokenizer_config={**settings, "tokenizer_class": "DebertaV2Tokenizer"})
    with pytest.raises(UserError, match=r"do_lower_case .*False"):
        read_tokenizer(tmp_path, "bert", SIZE)
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}
    written(tmp_path, tokenizer_config=settings)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert_same_tokens(read_tokenizer(tmp_path, "bert", SIZE), theirs)


def added_in_either_way(number):
    properties = {"lstrip": False, "rstrip": False, "single_word": False}
    token = {"content": "<ent>", "normalized": False, "special": True, **properties}
    return (
        {"added_tokens": {"<ent>": number}},
        {"tokenizer_config": {"added_tokens_decoder": {str(number): token}}},
    )


@pytest.mark.parametrize("way", [0, 1])
def test_tokens_added_to_a_vocabulary(tmp_path, way):
    wordpiece(tmp_path, BERT)
    size = len((tmp_path / "vocab.txt").read_text().splitlines())
    written(tmp_path, **added_in_either_way(size)[way])
    ours = read_tokenizer(tmp_path, "bert", SIZE)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    text = "the <ent> fox<ent>"
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
    assert ours.encode(text).count(size) == 2
    written(tmp_path, **added_in_either_way(size + 7)[way])
    with pytest.raises(UserError, match=rf"'<ent>' .*{size + 7}.*{size}"):
        read_tokenizer(tmp_path, "bert", SIZE)


@pytest.mark.parametrize("content", [["<ent>"], {"0": "<ent>"}, {"x": {"content": "a"}}])
def test_malformed_added_tokens_are_an_error(tmp_path, content):
    written(tmp_path, tokenizer_config={"added_tokens_decoder": content})
    with pytest.raises(UserError, match=r"tokenizer_config\.json"):
        read_tokenizer(tmp_path, "bert", SIZE)


@pytest.mark.parametrize("file", ["tokenizer_config", "config"])
@pytest.mark.parametrize("model_type", ["roberta", "deberta-v2"])
def test_a_model_with_the_tokenizer_of_another_type(tmp_path, model_type, file):
    written(tmp_path, **{file: {"tokenizer_class": "BertTokenizerFast"}})
    ours = read_tokenizer(tmp_path, model_type, SIZE)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    assert_same_tokens(ours, theirs)
    pair = [ours.encode(text) for text in AWKWARD[2:4]]
    assert join(ours, *pair, SIZE) == theirs(*AWKWARD[2:4])["input_ids"]


def test_an_unknown_tokenizer_class_is_refused(tmp_path):
    written(tmp_path, tokenizer_config={"tokenizer_class": "BertJapaneseTokenizer"})
    with pytest.raises(UserError, match="BertJapaneseTokenizer"):
        read_tokenizer(tmp_path, "bert", SIZE)


def test_eurobert_pads_with_its_end_of_text_and_has_no_unknown_token(tmp_path):
    names = {"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>", "mask": "<|mask|>"}
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(CORPUS, vocab_size=400, special_tokens=[*names.values()])
    special = {f"{name}_token": token for name, token in {**names, "pad": names["eos"]}.items()}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, **special)
    theirs.save_pretrained(tmp_path)
    ours = read_tokenizer(tmp_path, "eurobert", SIZE)
    for text in [*AWKWARD, "a <|mask|> boat<|end_of_text|>"]:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), repr(text)
    assert ours.special.unk_id is None
    assert ours.special.pad_id == ours.special.sep_id == theirs.eos_token_id
    assert (ours.special.cls_id, ours.special.mask_id) == (
        theirs.bos_token_id,
        theirs.mask_token_id,
    )


@pytest.mark.parametrize("has_json", [False, True])
def test_roformer_splits_chinese_into_characters_and_says_so(tmp_path, caplog, has_json):
    wordpiece(tmp_path, BERT)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    if has_json:  # as RoFormerTokenizer writes it, which has code of its own for Chinese
        fast = theirs.backend_tokenizer
        fast.normalizer = tokenizers.normalizers.BertNormalizer(handle_chinese_chars=False)
        fast.save(str(tmp_path / "tokenizer.json"))
        theirs = transformers.BertTokenizer.from_pretrained(tmp_path / "vocab.txt")
    ours = read_tokenizer(tmp_path, "roformer", SIZE)
    assert "jieba" in caplog.text
    for text in AWKWARD:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), repr(text)
