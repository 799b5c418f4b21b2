"""What `tupe export --format=fairseq` writes, by the rules of the official loader.

The rules are restated here: what its loader looks up in a checkpoint, what its task and model take
from `args`, and how its dictionary numbers tokens.
"""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tupe_jax
from tests.interop.test_fairseq import GOLDEN, assert_same_state, golden_state
from tests.model.helpers import (
    hidden_states,
    logits,
    save_folder,
    small_config,
    spread_model,
    with_position,
)
from tupe_jax import cli
from tupe_jax.data.builtin import documents
from tupe_jax.interop import fairseq, official_tokens
from tupe_jax.interop.fairseq_checkpoint import read_checkpoint, write_checkpoint
from tupe_jax.model.params import arrays_of
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece
from tupe_jax.utils.errors import UserError

PIECES = 300
EMBEDDING = "decoder.sentence_encoder.embed_tokens.weight"
TEXTS = ("the old doctors are tired.", "the dog sees \u4e2d the house", "a dog")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "vocabulary.model"
    lines = [sentence.text for d in documents(0, 0, 100) for sentence in d.sentences]
    path.write_bytes(train_sentencepiece(lines, PIECES))
    return SentencePieceTokenizer.load(path)


@pytest.fixture(scope="module", params=["tupe_r", "tupe_a"])
def exported(request, tokenizer, tmp_path_factory):
    """A model, and the folder of its export."""
    folder = tmp_path_factory.mktemp(request.param)
    config = small_config(request.param, vocab_size=PIECES, num_layers=2)
    model = spread_model(with_position(config, relative_bins=32, max_distance=128))
    save_folder(model, folder / "ours", tokenizer.path.read_bytes())
    run("export", folder / "ours", folder / "official", "--format=fairseq")
    return model, folder / "official"


def run(*arguments):
    assert cli.main([str(argument) for argument in arguments]) == 0


def content_of(file):
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(file, weights_only=True)


def official_symbols(folder):
    """The tokens by id: seven fixed ones, those of dict.txt, and the task adds one more."""
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>"]
    with open(folder / "dict.txt", encoding="utf-8") as file:
        for line in file.readlines():
            token, count = line.rsplit(" ", 1)
            assert int(count) > 0
            symbols.append(token)
    if "<mask>" not in symbols:
        symbols.append("<mask>")
    assert len(set(symbols)) == len(symbols)
    return symbols


def official_batch(folder, tokenizer, texts):
    """Texts as the official code reads them: <s> tokens </s>, padded with <pad>."""
    index = {symbol: i for i, symbol in enumerate(official_symbols(folder))}
    rows = []
    for text in texts:
        pieces = [tokenizer.token(i) for i in tokenizer.encode(text)]
        rows.append([0, *(index.get(piece, 3) for piece in pieces), 2])
    rows[0][2] = index["<mask>"]
    return np.array([row + [1] * (max(map(len, rows)) - len(row)) for row in rows])


def our_batch(tokenizer, texts):
    rows = [[1, *tokenizer.encode(text), 2] for text in texts]
    rows[0][2] = tokenizer.special.mask_id
    return np.array([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])


def test_the_checkpoint_has_all_that_the_official_loader_reads(exported):
    model, folder = exported
    content = content_of(folder / "checkpoint.pt")
    last = content["optimizer_history"][-1]
    assert {"criterion_name", "optimizer_name", "lr_scheduler_state", "num_updates"} <= last.keys()
    assert "optimizer" not in last
    assert {"epoch", "iterations_in_epoch"} <= content["extra_state"]["train_iterator"].keys()
    options = content["args"]
    assert (options.task, options.arch) == ("masked_lm", "bert_base")
    config = model.config
    assert options.rel_pos == (config.position.relative == "t5")
    assert options.embedding_normalize
    assert options.max_positions == options.tokens_per_sample == config.position.max_length
    assert (options.encoder_layers, options.encoder_embed_dim) == (2, config.hidden_size)
    assert options.encoder_ffn_embed_dim == config.mlp_size
    assert options.encoder_attention_heads == config.num_heads
    assert options.encoder_normalize_before == config.pre_layer_norm
    assert isinstance(options.data, str)
    assert isinstance(options.seed, int)


def test_there_is_a_row_for_every_token_of_the_official_dictionary(exported, tokenizer):
    model, folder = exported
    symbols, state = official_symbols(folder), content_of(folder / "checkpoint.pt")["model"]
    ours = np.asarray(model.encoder.word_embedding[...])
    named = {"<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<mask>": "[MASK]"}
    unknown = ("<unk>", "<file>", "<email>", "<url>")
    our_id = {tokenizer.token(i): i for i in range(PIECES)}
    expected = ours[[our_id[named.get(s, "[UNK]" if s in unknown else s)] for s in symbols]]
    np.testing.assert_array_equal(state[EMBEDDING].numpy(), expected)
    np.testing.assert_array_equal(state["decoder.lm_head.weight"].numpy(), expected)


def test_padded_text_in_official_ids_gives_our_numbers(exported, tokenizer):
    model, folder = exported
    released = read_checkpoint(folder / "checkpoint.pt")
    theirs = fairseq.from_state_dict(released.state, num_heads=model.config.num_heads)
    assert theirs.config.pad_id == 1
    official_BxS = official_batch(folder, tokenizer, TEXTS)
    ours_BxS = our_batch(tokenizer, TEXTS)
    is_word = ours_BxS != 0
    np.testing.assert_array_equal(official_BxS != 1, is_word)
    for one, other in zip(
        hidden_states(theirs, official_BxS), hidden_states(model, ours_BxS), strict=True
    ):
        np.testing.assert_allclose(one[is_word], other[is_word], atol=1e-6)
    one, other = (
        np.asarray(jax.nn.softmax(jnp.asarray(logits(m, tokens))))[is_word]
        for m, tokens in ((theirs, official_BxS), (model, ours_BxS))
    )
    ids_V = official_tokens.official_ids(PIECES)
    np.testing.assert_allclose(one[:, ids_V], other, atol=1e-6)
    assert np.delete(one, ids_V, axis=1).max() == 0


def test_our_token_ids_come_back_bit_for_bit(exported, tokenizer, tmp_path):
    model, folder = exported
    file = folder / "checkpoint.pt"
    run("import-fairseq", file, tmp_path / "ours", f"--vocabulary={tokenizer.path}")
    back = tupe_jax.load(tmp_path / "ours")
    assert back.config == dataclasses.replace(model.config, dtype=back.config.dtype)
    ours, theirs = arrays_of(model), back.params
    assert ours.keys() == theirs.keys()
    for path in ours:
        np.testing.assert_array_equal(theirs[path], ours[path])


def test_an_array_of_another_size_is_refused_by_name(exported, tokenizer, tmp_path, capsys):
    content = content_of(exported[1] / "checkpoint.pt")
    content["model"]["decoder.lm_head.bias"] = torch.zeros(PIECES)
    torch.save(content, tmp_path / "damaged.pt")
    arguments = ["import-fairseq", str(tmp_path / "damaged.pt"), str(tmp_path / "out")]
    code = cli.main([*arguments, f"--vocabulary={tokenizer.path}"])
    assert code == cli.USER_ERROR_EXIT_CODE
    assert "decoder.lm_head.bias" in capsys.readouterr().err


def test_without_the_tokenizer_the_official_ids_stay(exported, tmp_path):
    _, folder = exported
    run("import-fairseq", folder / "checkpoint.pt", tmp_path / "official")
    assert tupe_jax.load(tmp_path / "official").config.pad_id == 1
    run("export", tmp_path / "official", tmp_path / "again", "--format=fairseq")
    assert not (tmp_path / "again/dict.txt").exists()
    again = read_checkpoint(tmp_path / "again/checkpoint.pt").state
    assert_same_state(again, read_checkpoint(folder / "checkpoint.pt").state)


def test_an_official_model_is_exported_as_it_is(tmp_path):
    run("import-fairseq", GOLDEN / "tupe_r.npz", tmp_path / "ours")
    run("export", tmp_path / "ours", tmp_path / "official", "--format=fairseq")
    state = read_checkpoint(tmp_path / "official/checkpoint.pt").state
    assert_same_state(state, golden_state())


def test_fine_tuned_heads_are_loaded_by_the_official_code(tokenizer, tmp_path):
    model = spread_model(small_config("tupe_a", vocab_size=PIECES, num_layers=1), heads={"cola": 2})
    write_checkpoint(tmp_path, model, tokenizer, num_updates=7)
    content = content_of(tmp_path / "checkpoint.pt")
    assert content["args"].load_checkpoint_heads
    assert content["optimizer_history"][-1]["num_updates"] == 7
    assert content["model"]["classification_heads.cola.out_proj.weight"].shape[0] == 2


def test_our_ids_without_a_tokenizer_cannot_be_renumbered(tmp_path, capsys):
    save_folder(spread_model(small_config("tupe_a", num_layers=1)), tmp_path / "m")
    code = cli.main(["export", str(tmp_path / "m"), str(tmp_path / "out"), "--format=fairseq"])
    assert code == cli.USER_ERROR_EXIT_CODE
    error = capsys.readouterr().err
    assert "--vocabulary" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("token", ["<mask>", "<pad>", "a\nb", "\r"])
def test_a_token_that_dict_txt_cannot_hold_is_refused(token, tokenizer, monkeypatch):
    monkeypatch.setattr(
        SentencePieceTokenizer, "token", lambda self, id: token if id == 9 else f"t{id}"
    )
    with pytest.raises(UserError) as error:
        official_tokens.dictionary_lines(tokenizer)
    assert repr(token) in str(error.value)
