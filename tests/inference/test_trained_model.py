"""The methods of a loaded model, and their errors."""

from dataclasses import replace

import numpy as np
import pytest
from flax import nnx

import tupe_jax
from tests.inference.small_language import FILLED, LENGTH, NOUNS, STEPS, VERBS
from tests.model.helpers import (
    hidden_states,
    position_bias,
    save_folder,
    small_config,
    spread_model,
    with_position,
)
from tupe_jax import UserError
from tupe_jax.inference.classify import _outputs
from tupe_jax.inference.embeddings import _vectors
from tupe_jax.inference.fill_mask import _log_probability
from tupe_jax.inference.trained_model import TrainedModel
from tupe_jax.interop.model_folder import NO_METADATA, HeadMetadata, ModelMetadata
from tupe_jax.model.params import arrays_of
from tupe_jax.tokenizers.sentencepiece import CLS_ID, SEP_ID, SentencePieceTokenizer

TEXTS = ["the dog sees the cat.", "two young kings follow the old horse.", "a girl is quiet."]


@pytest.fixture(scope="module")
def model(model_folder):
    return tupe_jax.load(model_folder)


def other_model(model_folder, variant, heads=None, metadata=NO_METADATA):
    """Random weights with the tokenizer of the small language."""
    tokenizer = SentencePieceTokenizer.load(model_folder / "vocabulary.model")
    config = small_config(variant, vocab_size=tokenizer.size, num_layers=2)
    module = spread_model(with_position(config, max_length=16), heads=heads)
    return TrainedModel("other", module.config, arrays_of(module), tokenizer, metadata)


# -------------------------------------------------------------------------- what it has learned


def test_a_grammatical_word_comes_first_where_no_single_word_would_do(model):
    filled = model.fill_mask(list(FILLED), top_k=1)
    first = [masks.guesses[0][0].piece for masks in filled]
    allowed = list(FILLED.values())
    assert sum(word in words for word, words in zip(first, allowed, strict=True)) >= 9
    best_of_one_word = max(sum(word in words for words in allowed) for word in first)
    assert best_of_one_word <= 2


def test_the_good_sentence_of_a_minimal_pair_has_the_higher_score(model):
    good = [f"the old {n} {v}s the horse." for n, v in zip(NOUNS, VERBS * 2, strict=True)]
    bad = [text.replace("s the horse", " the horse") for text in good]
    assert not set(good) & set(bad)
    good_N, bad_N = model.score(good + bad).reshape(2, -1)
    assert np.mean(good_N > bad_N) >= 7 / 8


# --------------------------------------------------------------------------------- fill_mask


def test_one_text_gives_one_result_and_a_list_a_list_in_its_order(model):
    texts = [text.replace("the", "[MASK]", 1) for text in TEXTS if "the" in text]
    together = model.fill_mask(texts, top_k=3)
    for text, filled in zip(texts, together, strict=True):
        alone = model.fill_mask(text, top_k=3)
        assert alone.text == filled.text == text
        assert [g.piece for g in alone.guesses[0]] == [g.piece for g in filled.guesses[0]]


def test_every_mask_of_a_text_is_filled(model):
    filled = model.fill_mask("two [MASK] [MASK] the horse.", top_k=2)
    assert [len(guesses) for guesses in filled.guesses] == [2, 2]
    first, second = (guesses[0].piece for guesses in filled.guesses)
    assert filled.filled == f"two {first} {second} the horse."


def test_unknown_characters_are_shown_as_unk(model):
    assert "[UNK]" in model.fill_mask("the \u6f22 [MASK] quiet.").filled


def test_no_texts_give_no_results(model):
    assert model.fill_mask([]) == []
    assert model.score([]).shape == (0,)
    assert model.encode([]).shape == (0, model.config.hidden_size)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda m: m.fill_mask("the dog"), r"'the dog' .*\[MASK\]"),
        (
            lambda m: m.fill_mask(["the [MASK]", "the <mask> " * 9]),
            r"'the <mask> .{29}\.\.\.' \(number 2 of 2\) .*\[MASK\]",
        ),
        (lambda m: m.fill_mask("the [MASK]", top_k="5"), "top_k='5'"),
        (lambda m: m.fill_mask("the [MASK]", top_k=None), "top_k=None"),
        (lambda m: m.score("the [MASK] sees"), r"\[MASK\].*`fill_mask`"),
        (lambda m: m.encode(["the", "[MASK]"]), r"\(number 2 of 2\) .*\[MASK\]"),
        (lambda m: m.encode(b"the dog"), " bytes$"),
        (lambda m: m.encode(np.array("the dog")), " ndarray$"),
        (lambda m: m.encode("the dog", pooling=None), "pooling None.*cls, mean"),
        (lambda m: m.position_bias("8"), "length='8'"),
        (lambda m: m.fill_mask("the dog " * 20 + "[MASK]"), r"43 tokens.*max_length=32"),
        (lambda m: m.fill_mask(3), " int$"),
        (lambda m: m.encode(["the dog", None]), " NoneType$"),
        (lambda m: m.encode("the dog", pooling="max"), "pooling 'max'.*cls, mean"),
        (lambda m: m.score(["the dog", ""]), r"'' \(number 2 of 2\)"),
        (lambda m: m.encode(" "), "' ' "),
        (lambda m: m.encode("", pooling="cls"), "'' "),
        (lambda m: m.position_bias(33), "length=33 .* at most 32"),
        (lambda m: m.predict("the dog"), "not fine-tuned"),
    ],
)
def test_wrong_calls_are_one_line_errors(model, ask, words):
    with pytest.raises(UserError, match=words) as error:
        ask(model)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- encode, score, position_bias


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_vector_does_not_depend_on_the_other_texts(model, pooling):
    vectors = model.encode(TEXTS, pooling=pooling)
    assert vectors.shape == (3, model.config.hidden_size)
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = [CLS_ID, *model.tokenizer.encode(text), SEP_ID]
        row = np.pad(ids, (0, 12 - len(ids)))[None]
        hidden = np.asarray(hidden_states(model.module, row)[-1])[0, : len(ids)]
        expected = hidden[0] if pooling == "cls" else hidden[1:-1].mean(0)
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-5)


def test_one_text_is_one_vector_and_one_score(model):
    np.testing.assert_allclose(model.encode(TEXTS[0]), model.encode(TEXTS)[0], rtol=1e-4, atol=1e-5)
    score = model.score(TEXTS[0])
    assert isinstance(score, float)
    assert score == pytest.approx(model.score(TEXTS)[0], rel=1e-4)
    assert score < 0


def test_any_collection_of_texts_is_a_list(model):
    """Also a column of a table, whose strings are NumPy's."""
    expected = model.encode(TEXTS)
    for texts in (np.array(TEXTS), tuple(TEXTS), iter(TEXTS)):
        np.testing.assert_array_equal(model.encode(texts), expected)
    filled = model.fill_mask(np.array(["the [MASK]"]), top_k=np.int64(1))
    assert repr(filled[0]).startswith("'the [MASK]': ")


def test_texts_of_about_the_same_length_are_not_compiled_anew(model, tuned):
    asked = {
        _log_probability: lambda text: model.fill_mask(text.replace("dog", "[MASK]")),
        _vectors: model.encode,
        _outputs: lambda text: tuned.predict(text, head="kind"),
    }
    for compiled, ask in asked.items():
        ask("the dog sees the cat.")
        programs = compiled._cache_size()
        assert programs
        ask("a dog is quiet.")
        assert compiled._cache_size() == programs


def test_the_position_bias_is_the_one_that_attention_adds(model):
    bias = model.position_bias(8)
    assert bias.shape == (1, 4, 8, 8)
    np.testing.assert_allclose(bias[0], position_bias(model.module, 8), rtol=1e-4, atol=1e-5)


def test_results_are_writable(model):
    """To centre, scale or blank out in a notebook."""
    for array in (model.position_bias(8), model.encode(TEXTS), model.score(TEXTS)):
        array -= array.mean(-1, keepdims=True)


def test_layers_with_separate_biases_have_separate_results(model_folder):
    bias = other_model(model_folder, "attenuated_layer_head").position_bias(6)
    assert bias.shape == (2, 4, 6, 6)
    assert not np.allclose(bias[0], bias[1])


def test_an_encoding_without_a_bias_is_a_user_error(model_folder):
    with pytest.raises(UserError, match=r"bert_a .*`tupe analyze`"):
        other_model(model_folder, "bert_a").position_bias()


def test_a_model_without_a_tokenizer_has_a_position_bias(model, tmp_path):
    save_folder(model.module, tmp_path / "m")
    bare = tupe_jax.load(tmp_path / "m")
    np.testing.assert_array_equal(bare.position_bias(8), model.position_bias(8))
    for ask in (bare.score, bare.encode, lambda text: bare.fill_mask(f"{text} [MASK]")):
        with pytest.raises(UserError, match=r"/m .*vocabulary=") as error:
            ask("the dog")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("implementation", ["cudnn", "pallas", "auto"])
def test_a_model_trained_with_a_kernel_of_another_platform_can_be_used(model, implementation):
    config = replace(model.config, attention_implementation=implementation)
    moved = TrainedModel("moved", config, model.params, model.tokenizer, NO_METADATA)
    np.testing.assert_array_equal(moved.encode(TEXTS), model.encode(TEXTS))
    assert moved.float32_module().config.attention_implementation == "auto"


def test_repr_describes_the_model(model, model_folder):
    assert repr(model) == (
        f"tupe_r from {model_folder}, step {STEPS}\n"
        "  1 layer, 32 wide, 4 heads\n"
        f"  180 tokens, texts of up to 32 tokens (pre-trained on sequences of {LENGTH})"
    )


def test_the_weights_are_the_same_in_host_memory_and_in_the_module(model_folder):
    loaded = tupe_jax.load(model_folder)
    before, fingerprint = loaded.params, loaded.fingerprint
    assert loaded.module is loaded.module
    assert loaded.params is not before  # the module holds them now
    assert loaded.fingerprint == fingerprint
    for path, array in loaded.params.items():
        np.testing.assert_array_equal(array, before[path])
    assert loaded.float32_module().config.dtype == "float32"


# ----------------------------------------------------------------------------------- predict


@pytest.fixture(scope="module")
def tuned(model_folder):
    """A class for a text, and a score for a pair; their padding counts (`attenuated`)."""
    heads = {"kind": 3, "near": 1}
    metadata = {
        "kind": HeadMetadata(("low", "middle", "high"), texts=1, length=12),
        "near": HeadMetadata(score_scale=5.0, texts=2, length=14),
    }
    return other_model(model_folder, "attenuated", heads, ModelMetadata(heads=metadata))


@nnx.jit(static_argnames="head")
def classify(module, tokens, head):
    return module.classify(tokens, head)


def outputs(model, ids, length, head):
    row = np.pad(ids, (0, length - len(ids)))[None]
    return np.asarray(classify(model.module, row, head))[0]


def test_an_answer_has_a_label_and_all_probabilities(tuned):
    answers = tuned.predict(TEXTS, head="kind")
    for text, answer in zip(TEXTS, answers, strict=True):
        ids = [CLS_ID, *tuned.tokenizer.encode(text), SEP_ID]
        expected = np.exp(outputs(tuned, ids, 12, "kind"))
        np.testing.assert_allclose(
            list(answer.probabilities.values()), expected / expected.sum(), rtol=1e-4
        )
        assert list(answer.probabilities) == ["low", "middle", "high"]
        assert answer.label == max(answer.probabilities, key=answer.probabilities.get)
    alone = tuned.predict(TEXTS[0], head="kind")
    assert alone.label == answers[0].label
    assert repr(alone) == f"{alone.label} {max(alone.probabilities.values()):.0%}"


def test_a_pair_is_truncated_as_in_fine_tuning_and_scored(tuned):
    score = tuned.predict((TEXTS[1], TEXTS[1]), head="near")
    pieces = tuned.tokenizer.encode(TEXTS[1])
    assert 2 * len(pieces) > 10
    ids = [CLS_ID, *pieces[:5], SEP_ID, SEP_ID, *pieces[:5], SEP_ID]
    assert score == pytest.approx(5 * outputs(tuned, ids, 14, "near")[0], rel=1e-4)
    many = tuned.predict([(TEXTS[1], TEXTS[1]), (TEXTS[0], TEXTS[2])], head="near")
    assert many.shape == (2,)
    assert many[0] == pytest.approx(score, rel=1e-4)


@pytest.mark.parametrize(
    ("texts", "head", "words"),
    [
        ("a dog", None, "kind, near"),
        ("a dog", "kinds", "'kinds'.*'kind'"),
        ("a dog", "near", "near .*pair"),
        (("a dog", "a cat"), "kind", r"kind .*\('a dog', 'a cat'\)"),
        (["a dog", 7], "kind", "kind .*7"),
        (7, "kind", "kind .*7"),
        (b"a dog", "kind", "kind .*b'a dog'"),
        (("a dog", 7), "near", r"near .*\('a dog', 7\)"),
        ([("a dog", "a cat"), ("a dog", "")], "near", r"'\) \(number 2 of 2\)"),
        ("the [MASK]", "kind", r"'the \[MASK\]' .*\[MASK\]"),
    ],
)
def test_wrong_inputs_of_a_head_are_user_errors(tuned, texts, head, words):
    with pytest.raises(UserError, match=words):
        tuned.predict(texts, head)


def test_a_head_without_metadata_numbers_its_classes(model_folder):
    unknown = other_model(model_folder, "bert_a", heads={"two": 2})
    assert unknown.predict("a dog").label in ("0", "1")
