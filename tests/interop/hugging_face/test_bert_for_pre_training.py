"""BERT with next sentences against `transformers`: losses, every gradient, folders both ways."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx

from tests.interop.hugging_face import public_encoders as public
from tests.model.helpers import random_tokens, small_config, spread_model
from tupe_jax import cli
from tupe_jax.config.schema import Config, ModelConfig, PositionConfig, next_sentence_config
from tupe_jax.inference.loading import load
from tupe_jax.inference.model_card import save_model
from tupe_jax.inference.trained_model import TrainedModel
from tupe_jax.interop.hugging_face import names
from tupe_jax.interop.hugging_face.importing import params_from_state_dict
from tupe_jax.interop.hugging_face.name_tables import BERT
from tupe_jax.interop.param_mapping import state_from_params
from tupe_jax.model.params import arrays_of, model_from, path_names
from tupe_jax.objectives.base import total_loss
from tupe_jax.objectives.masking import MaskedBatch
from tupe_jax.objectives.next_sentence import MaskedPairs, NextSentenceObjective
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer, train_sentencepiece


@functools.cache
def theirs():
    return public.theirs("bert")


def ours():
    config = theirs().config.to_dict()
    return model_from(*params_from_state_dict(config, public.arrays(theirs()), sep_id=public.SEP))


def pairs():
    """Two pairs with masked tokens; the first mask hides a separator."""
    tokens, _, segments = public.rows()
    is_separator = int(np.flatnonzero(tokens[0] == public.SEP)[0])
    positions = np.array([[is_separator, 5, 10, 17], [1, 7, 0, 0]])
    weights = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.float32)
    targets = np.take_along_axis(tokens, positions, axis=1)
    masked = tokens.copy()
    for row, some, used in zip(masked, positions, weights, strict=True):
        row[some[used > 0]] = 2
    batch = MaskedBatch(*map(jnp.asarray, (masked, positions, targets, weights)))
    labels = jnp.array([1, 0])
    return MaskedPairs(batch, jnp.asarray(segments), labels, jnp.ones(2, bool)), tokens


def test_the_head_is_imported():
    model = ours()
    assert model.config.next_sentence_head
    weight = theirs().cls.seq_relationship.weight.detach().numpy()
    np.testing.assert_array_equal(model.next_sentence_head.output.kernel[...], weight.T)


@pytest.mark.slow
def test_both_logits_both_losses_and_every_gradient():
    given, tokens = pairs()
    objective = NextSentenceObjective(Config(ModelConfig(pad_id=public.PAD)))
    weights = objective.weights(given)
    graph, params = nnx.split(ours())

    @jax.jit
    def step(params):
        def loss(params):
            terms = objective.terms(nnx.merge(graph, params), given, None)
            return total_loss(objective, terms, weights), terms

        logits = nnx.merge(graph, params).token_and_next_sentence_logits(
            given.masked.tokens_BxS, given.segments_BxS
        )
        return *jax.grad(loss, has_aux=True)(params), logits

    gradient, terms, logits = jax.device_get(step(params))
    used, labels = np.asarray(given.masked.weights_BxM) > 0, np.full(tokens.shape, -100)
    for row, (some, here) in enumerate(zip(given.masked.positions_BxM, used, strict=True)):
        labels[row, np.asarray(some)[here]] = tokens[row, np.asarray(some)[here]]
    theirs().zero_grad()
    other = theirs()(
        input_ids=torch.tensor(np.asarray(given.masked.tokens_BxS)),
        attention_mask=torch.tensor(tokens != public.PAD, dtype=torch.int64),
        token_type_ids=torch.tensor(np.asarray(given.segments_BxS)),
        labels=torch.tensor(labels),
        next_sentence_label=torch.tensor(np.asarray(given.is_random_next_B), dtype=torch.int64),
    )
    other.loss.backward()
    total = sum(terms[name].loss / weights[name] for name in terms)
    np.testing.assert_allclose(total, other.loss.item(), rtol=1e-5)
    next_sentence = other.seq_relationship_logits
    label = torch.tensor(np.asarray(given.is_random_next_B), dtype=torch.int64)
    alone = torch.nn.functional.cross_entropy(next_sentence, label).item()
    np.testing.assert_allclose(terms["next_sentence"].loss / 2, alone, rtol=1e-5)
    is_token = tokens != public.PAD
    token_logits = other.prediction_logits.detach().numpy()
    for mine, expected in (
        (logits[0][is_token], token_logits[is_token]),
        (logits[1], next_sentence.detach().numpy()),
    ):
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-5 * abs(expected).max())

    named = {path_names(path): np.asarray(g[...]) for path, g in nnx.to_flat_state(gradient)}
    mappings = list(names.mappings(BERT, ours().config))
    expected = {
        name.removeprefix("bert."): parameter.grad.numpy()
        for name, parameter in theirs().named_parameters()
    }
    found = state_from_params(named, mappings)
    assert found.keys() == expected.keys()
    for name, g in found.items():
        # Softmax ignores the biases of keys: their gradients are 0 up to rounding.
        tolerance = 1e-6 if name.endswith("key.bias") else 1e-5 * abs(expected[name]).max()
        np.testing.assert_allclose(g, expected[name], rtol=0, atol=tolerance, err_msg=name)


@pytest.fixture(scope="module")
def trained_here(tmp_path_factory):
    """A model folder with the head, and the folder that is written for `transformers`."""
    folder = tmp_path_factory.mktemp("pairs")
    letters = "abcdefghijklmnopqrstuvwxyz"
    content = train_sentencepiece([" ".join(letters), "a cat and a dog and a boat"] * 20, 70)
    position = PositionConfig("added", "none", untie_cls=False, max_length=20)
    small = small_config(position=position, vocab_size=70, num_layers=1, segments=2)
    config = next_sentence_config(small)
    tokenizer = SentencePieceTokenizer.parse(content, folder)
    model = TrainedModel(folder, config, arrays_of(spread_model(config)), tokenizer)
    save_model(model, folder / "native")
    assert cli.main(["export", str(folder / "native"), str(folder / "hf"), "--format=hf"]) == 0
    return folder, model


def test_transformers_reads_an_export(trained_here):
    folder, model = trained_here
    tokens = random_tokens(vocab=70)
    segments = np.tile(np.arange(tokens.shape[1]) > 5, (len(tokens), 1)).astype(np.int32)
    reader = transformers.BertForPreTraining.from_pretrained(folder / "hf").eval()
    assert reader.config.architectures == ["BertForPreTraining"]
    with torch.no_grad():
        given = (torch.tensor(tokens), torch.tensor(tokens != 0), torch.tensor(segments).long())
        expected = reader(*given)
    mine = nnx.jit(lambda m: m.token_and_next_sentence_logits(tokens, segments))(model.module)
    logits = expected.seq_relationship_logits.numpy()
    np.testing.assert_allclose(mine[1], logits, rtol=0, atol=1e-5 * abs(logits).max())


def test_a_folder_is_imported_bit_for_bit_and_pairs_keep_one_separator(trained_here, tmp_path):
    folder, model = trained_here
    assert cli.main(["import-hf", str(folder / "hf"), str(tmp_path / "back")]) == 0
    for back in (load(tmp_path / "back"), load(folder / "native")):
        assert back.config == model.config
        assert back.params.keys() == model.params.keys()
        for path, array in model.params.items():
            np.testing.assert_array_equal(array, back.params[path])
        assert back.tokenizer.pair_separators == 1
