"""Tasks that only word order solves: learned by TUPE-R, at chance without positions.

The language has sentences of two letters, in the order of the alphabet. One classification head
learns whether a sentence is one of the language; the masked-word head learns the language itself.
A model that sees a bag of words cannot know the order of two letters, however long it learns.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from tests.model.helpers import small_config
from tupe_jax.data.labelled.blimp_snli import MinimalPair
from tupe_jax.data.labelled.encode import encode_examples
from tupe_jax.data.labelled.example import Example
from tupe_jax.inference.embeddings import sentence_vectors
from tupe_jax.lab.minimal_pairs import score_pairs
from tupe_jax.lab.order_sensitivity import order_sensitivity
from tupe_jax.lab.parsed_sentence import ParsedSentence
from tupe_jax.lab.probes import Probe, ProbeItem, run_probe
from tupe_jax.model.heads import MaskedLM
from tupe_jax.objectives.masked_lm import cross_entropy
from tupe_jax.tokenizers.sentencepiece import MASK_ID, PAIR_SEPARATORS, SPECIAL, SPECIAL_TOKENS

pytestmark = pytest.mark.slow

LETTERS = "abcdefgh"
SENTENCES = [f"{x} {y}" for x, y in itertools.combinations(LETTERS, 2)]
STEPS = 100


class Alphabet:
    """A vocabulary of letters."""

    special, pair_separators, cls_last = SPECIAL, PAIR_SEPARATORS, False

    def encode(self, text):
        return [len(SPECIAL_TOKENS) + LETTERS.index(letter) for letter in text.lower().split()]


def reverse(sentence):
    return sentence[::-1]


def rows(sentences):
    examples = [Example(sentence, None, 0) for sentence in sentences]
    return encode_examples(examples, Alphabet(), 4).tokens


def learn(variant):
    """A model of both, after some steps on all sentences at once."""
    vocab_size = len(SPECIAL_TOKENS) + len(LETTERS)
    config = small_config(variant, vocab_size=vocab_size, num_layers=2, layer_loop="scan")
    model = MaskedLM(config, rngs=nnx.Rngs(0), classification_heads={"in_order": 2})
    # Both orders to be told apart, then each letter of the right order to be guessed.
    good, count = rows(SENTENCES), len(SENTENCES)
    tokens = np.concatenate([good, rows(map(reverse, SENTENCES)), good, good])
    in_order = np.repeat([1, 0], count)
    line, place = np.arange(2 * count) + 2 * count, np.repeat([1, 2], count)
    hidden_letter = tokens[line, place]
    tokens[line, place] = MASK_ID
    optimizer = optax.adam(1e-2)
    graph, params = nnx.split(model)

    def loss(params):
        model = nnx.merge(graph, params)
        states = model.encode(jnp.asarray(tokens))
        cls = model.cls_BxD(states, tokens)[: 2 * count]
        classes = model.classification_heads["in_order"](cls)
        letters = model.masked_word_head(states[line, place], model.encoder.word_embedding[...])
        of_letters = cross_entropy(letters, hidden_letter).mean()
        return cross_entropy(classes, in_order).mean() + of_letters

    @jax.jit
    def train(params):
        def step(carry, _):
            params, state = carry
            updates, state = optimizer.update(jax.grad(loss)(params), state)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimizer.init(params)), length=STEPS)[0][0]

    return nnx.merge(graph, train(params))


@pytest.fixture(scope="module")
def models():
    return {variant: learn(variant) for variant in ("none", "tupe_r")}


def predictor(model):
    @nnx.jit
    def outputs(model, tokens):
        return model.classify(tokens, "in_order")

    def predict(examples):
        tokens = encode_examples(examples, Alphabet(), 4).tokens
        return np.asarray(outputs(model, tokens)).argmax(-1)

    return predict


PROBE = Probe(
    "order",
    tuple(
        ProbeItem(Example(s, None, 1), Example(reverse(s), None, -1), frozenset({0}))
        for s in SENTENCES
    ),
)


def test_tupe_r_solves_a_probe_that_only_order_can_solve(models):
    result = run_probe(PROBE, predictor(models["tupe_r"]))
    assert result.original.low > 0.8
    assert result.changed.low > 0.8


def test_without_positions_the_same_probe_is_at_chance(models):
    result = run_probe(PROBE, predictor(models["none"]))
    # One answer to both orders: right for one of them, whichever it is.
    assert (result.original.estimate + result.changed.estimate) / 2 == 0.5


def test_minimal_pairs_of_the_same_words_differ_by_positions_only(models):
    pairs = [MinimalPair(s, reverse(s), "order") for s in SENTENCES]
    scores = {name: score_pairs(model, Alphabet(), pairs) for name, model in models.items()}
    assert list(scores["none"]) == ["order", "all", "same words"]
    assert scores["none"]["same words"].accuracy.estimate == 0.5
    assert scores["none"]["same words"].delta.estimate == pytest.approx(0, abs=1e-4)
    assert scores["tupe_r"]["same words"].accuracy.low > 0.8
    assert scores["tupe_r"]["same words"].delta.low > 1


def test_representations_hold_the_order_with_positions_only(models):
    sentences = [ParsedSentence(tuple(s.split()), (frozenset({0, 1}),)) for s in SENTENCES]

    def sensitivity(model):
        return order_sensitivity(
            sentences, lambda texts: sentence_vectors(model, Alphabet(), texts, "mean")
        )

    found = {name: sensitivity(model) for name, model in models.items()}
    assert found["none"].sensitivity.high == 0
    assert found["none"].recognised.estimate == 1
    assert found["tupe_r"].sensitivity.low > 0.1
