"""An exported BERT-A computes the same in `transformers`."""

import pathlib
import re
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from tests.interop.hugging_face import public_encoders as public
from tests.model.helpers import (
    hidden_states,
    logits,
    random_tokens,
    small_config,
    spread_model,
)
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import PositionConfig
from tupe_jax.inference.loading import load
from tupe_jax.interop.hugging_face.exporting import to_state_dict, write_files
from tupe_jax.interop.hugging_face.importing import params_from_state_dict
from tupe_jax.interop.hugging_face.name_tables import NAMES
from tupe_jax.model.attention import segment_BxS
from tupe_jax.model.params import arrays_of, model_from
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece
from tupe_jax.utils.errors import UserError

REPOSITORY = pathlib.Path(__file__).parents[2]


def test_transformers_reads_what_was_trained_here(tmp_path):
    model = spread_model(small_config("bert_a", pooler=True))
    write_files(model, None, tmp_path)
    assert not (tmp_path / "vocabulary.model").exists()
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path)
    tokens = random_tokens()
    is_word = tokens != 0
    with torch.no_grad():
        expected = theirs.eval()(
            torch.tensor(tokens), torch.tensor(is_word), output_hidden_states=True
        )
    for ours, others in zip(hidden_states(model, tokens), expected.hidden_states, strict=True):
        ours, others = np.asarray(ours)[is_word], others.numpy()[is_word]
        np.testing.assert_allclose(ours, others, rtol=0, atol=1e-5 * abs(others).max())


def test_transformers_reads_a_modern_block(tmp_path):
    shipped = from_config_dict(load_config("modern_rope:tiny")).model
    model = spread_model(replace(shipped, vocab_size=50, hidden_size=16, mlp_size=24, num_layers=3))
    write_files(model, None, tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert isinstance(theirs, transformers.ModernBertForMaskedLM)
    tokens = random_tokens(length=30)  # longer than the window
    is_word = tokens != 0
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens), torch.tensor(is_word)).logits.numpy()[is_word]
    ours = np.asarray(logits(model, tokens))[is_word]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * abs(expected).max())


@pytest.mark.slow
def test_transformers_reads_rope_in_the_block_of_bert(tmp_path):
    model = spread_model(small_config("rope", segments=2))
    write_files(model, None, tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert isinstance(theirs, transformers.RoFormerForMaskedLM)
    tokens = random_tokens()
    is_word, segments = tokens != 0, np.asarray(segment_BxS(tokens, model.config.sep_id))
    with torch.no_grad():
        given = (torch.tensor(tokens), torch.tensor(is_word), torch.tensor(np.minimum(segments, 1)))
        expected = theirs(*given).logits.numpy()[is_word]
    ours = np.asarray(logits(model, tokens))[is_word]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * abs(expected).max())


@pytest.mark.parametrize("changes", [{}, {"segments": 2, "embedding_size": 8}], ids=str)
def test_rope_in_the_block_of_bert_is_imported_bit_for_bit(changes):
    position = PositionConfig("none", "rope", untie_cls=False, max_length=20)
    model = spread_model(small_config(position=position, **changes))
    config, theirs = params_from_state_dict(*to_state_dict(model), sep_id=model.config.sep_id)
    assert config == model.config
    ours = arrays_of(model)
    assert ours.keys() == theirs.keys()
    for path in ours:
        np.testing.assert_array_equal(ours[path], theirs[path])


MODERN = {
    "pre_layer_norm": True,
    "first_attention_norm": False,
    "gated_mlp": True,
    "norm_bias": False,
    "attention_window": 4,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"linear_bias": False, "num_layers": 5},
        {"norm_bias": True, "output_embedding_size": 16},
        {"attention_window": 0},
        {"masked_word_head": False, "attention_global_every": 2},
    ],
    ids=str,
)
def test_an_exported_modern_block_is_imported_bit_for_bit(changes):
    options = {"rope_base": 160.0, "rope_local_base": 20.0}
    position = PositionConfig("none", "rope", untie_cls=False, max_length=20, options=options)
    config = small_config(**{**MODERN, "position": position, **changes})
    model = spread_model(config)
    ours = {path: array.copy() for path, array in arrays_of(model).items()}
    ours["encoder", "layers", "attention_norm", "scale"][0] = 1  # the first layer has no norm
    if config.norm_bias:
        ours["encoder", "layers", "attention_norm", "bias"][0] = 0
    back, theirs = params_from_state_dict(*to_state_dict(model), sep_id=config.sep_id)
    assert back == config
    assert ours.keys() == theirs.keys()
    for path in ours:
        np.testing.assert_array_equal(ours[path], theirs[path])


def eurobert(**changes):
    settings = {
        "norm": "rms_norm",
        "activation": "silu",
        "linear_bias": False,
        "gated_mlp": True,
        "pre_layer_norm": True,
        "embedding_norm": False,
        "masked_word_transform": False,
        "output_embedding_size": 16,
    }
    position = PositionConfig(
        "none", "rope", untie_cls=False, max_length=20, options={"rope_base": 250.0}
    )
    return spread_model(small_config(**{**settings, "position": position, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"linear_bias": True}, marks=pytest.mark.slow),
        pytest.param({"output_embedding_size": 0}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_transformers_reads_the_block_of_eurobert(changes, tmp_path):
    model = eurobert(**changes)
    write_files(model, None, tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert isinstance(theirs, transformers.EuroBertForMaskedLM)
    state = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    copies = {"lm_head.weight"} if theirs.config.tie_word_embeddings else set()
    assert state.keys() == theirs.state_dict().keys() - copies
    tokens = random_tokens()
    is_word = tokens != 0
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens), torch.tensor(is_word)).logits.numpy()[is_word]
    ours = np.asarray(logits(model, tokens))[is_word]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * abs(expected).max())


@pytest.mark.parametrize(
    "changes", [{"linear_bias": True}, {"masked_word_head": False, "output_embedding_size": 0}]
)
def test_the_block_of_eurobert_is_imported_bit_for_bit(changes):
    model = eurobert(**changes)
    config, theirs = params_from_state_dict(*to_state_dict(model), sep_id=model.config.sep_id)
    assert config == model.config
    ours = arrays_of(model)
    assert ours.keys() == theirs.keys()
    for path in ours:
        np.testing.assert_array_equal(ours[path], theirs[path])


def test_a_head_of_eurobert_whose_bias_was_trained_brings_biases_of_zeros():
    model = eurobert()
    config, theirs = params_from_state_dict(*to_state_dict(model), sep_id=model.config.sep_id)
    assert config == replace(model.config, linear_bias=True)
    ours = arrays_of(model)
    assert ours.keys() < theirs.keys()
    for path, array in theirs.items():
        np.testing.assert_array_equal(ours.get(path, np.zeros_like(array)), array)


def test_a_sentencepiece_model_is_exported_and_imported(tmp_path):
    words = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = train_sentencepiece([" ".join(words), "a cat and a dog and a boat"] * 20, 70)
    position = PositionConfig("added", "none", untie_cls=False, max_length=20)
    model = spread_model(small_config(position=position, vocab_size=70, num_layers=1))
    write_files(model, SentencePieceTokenizer.parse(vocabulary, tmp_path), tmp_path)
    back = load(tmp_path)
    assert back.tokenizer.content == vocabulary
    assert back.config == model.config
    tokens = random_tokens()
    np.testing.assert_array_equal(logits(back.module, tokens), logits(model, tokens))
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert isinstance(theirs, transformers.BertForMaskedLM)


def test_exported_weights_are_imported_bit_for_bit():
    position = PositionConfig("added", "none", untie_cls=False, max_length=20)
    model = spread_model(small_config(position=position, pooler=True, segments=2))
    config, theirs = params_from_state_dict(*to_state_dict(model), sep_id=model.config.sep_id)
    assert config == model.config
    ours = arrays_of(model)
    assert ours.keys() == theirs.keys()
    for path in ours:
        np.testing.assert_array_equal(ours[path], theirs[path])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (small_config("tupe_a"), r"position\.absolute='untied' .*'added'"),
        (small_config("bert_a", gated_mlp=True), r"model\.gated_mlp=True .*False"),
        (small_config("rope", gated_mlp=True), r"model\.gated_mlp=True .*False"),
        (eurobert(attention_window=4).config, r"EuroBERT model\.attention_window=4 .*0"),
        (eurobert(segments=2).config, r"EuroBERT model\.segments=2 .*0"),
        (small_config("rope", mask_dropout=0.1), r"model\.mask_dropout=0.1 .*0.0"),
        (small_config("bert_r"), r"position\.relative='t5' .*'none'"),
        (small_config("bert_a", share_layers=True), r"model\.share_layers=True .*False"),
    ],
)
def test_other_encodings_are_refused_by_the_setting(config, words):
    with pytest.raises(UserError, match=words):
        to_state_dict(spread_model(config))


def documented_exports():
    """What each imported type is exported as: the table of the page."""
    page = (REPOSITORY / "docs/public_encoders.md").read_text(encoding="utf-8")
    table = page.split("| imported | exported as |")[1].split("\n\n")[0]
    for row in table.splitlines()[2:]:
        _, imported, exported, _ = row.split("|")
        for kind in re.findall("`([a-z0-9_-]+)`", imported):
            yield kind.removeprefix("--"), exported.strip()


@pytest.mark.parametrize(("kind", "exported"), documented_exports())
def test_public_types_are_exported_as_documented(kind, exported):
    if kind in ("electra", "generator"):
        return  # pairs have tests of their own
    theirs = public.theirs(kind)
    model = model_from(
        *params_from_state_dict(theirs.config.to_dict(), public.arrays(theirs), sep_id=public.SEP)
    )
    if exported.startswith("not:"):
        with pytest.raises(UserError, match="should be"):
            to_state_dict(model)
    else:
        assert to_state_dict(model)[0]["model_type"] == exported.split("`")[1]


def test_every_public_type_is_in_that_table():
    assert {kind for kind, _ in documented_exports()} - {"generator"} == NAMES.keys()


def test_a_head_is_not_dropped_silently():
    with pytest.raises(UserError, match=r"'cola'.*--format=hf"):
        to_state_dict(spread_model(small_config("bert_a"), heads={"cola": 2}))
