"""The word-order probes of a fine-tuned model: its head, sequences and numbers."""

from dataclasses import replace

import numpy as np
import pytest
from flax import nnx

from tests.lab.conftest import PIECES
from tests.model.helpers import small_config, spread_model, with_position
from tupe_jax.data.labelled.encode import encode_examples
from tupe_jax.lab import nli_probes as inference_probes
from tupe_jax.lab.nli_pairs import ENTAILMENT, builtin_pairs
from tupe_jax.lab.nli_probes import class_predictor, nli_head, probe_nli
from tupe_jax.lab.probes import order_probes, run_probes
from tupe_jax.model.params import arrays_of, model_from
from tupe_jax.utils.errors import UserError

HEAD = "builtin_nli"
HEADS = {HEAD: 3}
LENGTH = 64


@pytest.fixture(scope="module")
def pairs():
    return builtin_pairs("test", 90)


@pytest.fixture(scope="module")
def models(vocabulary, pairs):
    """Two untrained models, one of which has no positions."""
    return {variant: undecided_model(variant, vocabulary, pairs) for variant in ("none", "bert_a")}


def undecided_model(variant, vocabulary, pairs):
    """One that gives every class to some of the pairs: its outputs are 0 on average."""
    config = small_config(variant, vocab_size=PIECES, num_layers=1)
    model = spread_model(with_position(config, max_length=LENGTH), heads=HEADS)
    tokens = encode_examples([pair.example for pair in pairs], vocabulary, LENGTH).tokens
    outputs = nnx.jit(lambda model, tokens: model.classify(tokens, HEAD))(model, tokens)
    arrays, bias = arrays_of(model), ("classification_heads", HEAD, "output", "bias")
    centred = {**arrays, bias: arrays[bias] - np.asarray(outputs).mean(0)}
    return model_from(model.config, centred)


@pytest.fixture(scope="module")
def found(models, vocabulary, pairs):
    return {name: probe_nli(model, vocabulary, pairs) for name, model in models.items()}


def test_a_model_that_ignores_order_is_not_moved_by_shuffling(found):
    *shuffles, roles = found["none"].results
    assert [r.name for r in shuffles] == [*(f"Shuffle-{n}" for n in (3, 4, 5, 6)), "Random"]
    for result in shuffles:
        assert 0 < result.original.estimate < 1
        assert result.changed == result.original
        assert result.delta.low < result.delta.estimate == 0 < result.delta.high
    # One answer to a hypothesis and to the one with exchanged roles: right for one of them.
    assert roles.name == "Shuffle-SR"
    assert roles.changed.estimate == pytest.approx(1 - roles.original.estimate)


def test_a_model_that_sees_order_is(found):
    random = found["bert_a"].results[-2]
    assert random.name == "Random"
    assert random.changed != random.original


def test_a_classifier_that_memorised_the_sentences_fails_when_they_are_shuffled(pairs):
    labels = {(pair.premise.text, pair.hypothesis.text): pair.label for pair in pairs}
    asked = []

    def by_heart(examples):
        """An unknown premise entails nothing, and what it says is wrong of pairs that are known."""
        asked.extend(examples)
        known = {premise: label for (premise, _), label in labels.items()}
        return [
            labels.get((e.sentence1, e.sentence2), 1 if e.sentence1 in known else (e.label + 1) % 3)
            for e in examples
        ]

    *shuffles, roles = run_probes(order_probes(pairs), by_heart)
    for result in shuffles:
        assert (result.original.estimate, result.changed.estimate) == (1, 0)
        assert result.delta.low == result.delta.estimate == -1 < result.delta.high < -0.8
    # Exchanged roles are another sentence, which is right not to follow.
    assert (roles.original.estimate, roles.changed.estimate, roles.delta.estimate) == (1, 1, 0)
    assert len(asked) == len(set(asked))


def test_a_prediction_does_not_depend_on_the_other_examples(models, vocabulary, pairs):
    predict = class_predictor(models["bert_a"], vocabulary, HEAD, LENGTH)
    examples = [pair.example for pair in pairs]
    answers = predict(examples)
    assert set(answers) == {0, 1, 2}
    order = np.random.default_rng(0).permutation(len(examples))[:70]
    np.testing.assert_array_equal(predict([examples[n] for n in order]), answers[order])


def test_sequences_of_all_probes_have_two_shapes(models, vocabulary, pairs, monkeypatch):
    """Each takes a compilation."""
    shapes, compiled = set(), inference_probes._class_B

    def seen(graph, state, head, tokens):
        shapes.add(tokens.shape)
        return compiled(graph, state, head, tokens)

    monkeypatch.setattr(inference_probes, "_class_B", seen)
    probe_nli(models["bert_a"], vocabulary, pairs)
    assert shapes == {(64, 32), (64, 64)}


def test_pairs_that_do_not_fit_are_left_out_and_counted(models, vocabulary, pairs):
    def tokens(example):
        return 4 + len(vocabulary.encode(example.sentence1) + vocabulary.encode(example.sentence2))

    lengths = [tokens(pair.example) for pair in pairs]
    limit = int(np.median(lengths))
    cut = probe_nli(models["bert_a"], vocabulary, pairs, length=limit)
    assert (cut.pairs, cut.too_long) == (90, sum(length > limit for length in lengths))
    whole = probe_nli(
        models["bert_a"], vocabulary, [p for p, n in zip(pairs, lengths, strict=True) if n <= limit]
    )
    assert cut.results == whole.results
    joined_by_one = replace(vocabulary, pair_separators=1)
    shorter = probe_nli(models["bert_a"], joined_by_one, pairs, length=limit - 1)
    assert shorter.too_long == cut.too_long
    with pytest.raises(UserError, match=r"\b90 .*\b9 "):
        probe_nli(models["bert_a"], vocabulary, pairs, length=9)


def test_a_probe_that_no_pair_can_be_used_for_is_left_out(models, vocabulary, pairs):
    neutral = [pair for pair in pairs if pair.label != ENTAILMENT][:8]
    names = [result.name for result in probe_nli(models["none"], vocabulary, neutral).results]
    assert "Random" in names
    assert "Shuffle-SR" not in names


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({}, "not fine-tuned.* mnli or snli or builtin_nli"),
        ({"rte": 2}, "fine-tuned on rte;"),
        ({"own_nli": 3}, "fine-tuned on own_nli;"),
        ({"snli": 2}, "snli .*2 .*entailment, neutral, contradiction"),
    ],
)
def test_a_head_without_nli_classes_is_rejected(heads, message):
    with pytest.raises(UserError, match=message):
        nli_head(heads)


def test_the_head_is_found_among_others():
    assert nli_head({"cola": 2, "snli": 3}) == "snli"
    assert nli_head(HEADS) == "builtin_nli"
