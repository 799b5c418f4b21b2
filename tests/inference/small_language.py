"""A language of one rule, agreement, and a model that has learned it in seconds."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from tests.model.helpers import save_folder, small_config, with_position
from tupe_jax.inference.batching import encode_sentences
from tupe_jax.interop.model_folder import ModelMetadata
from tupe_jax.model.heads import MaskedLM
from tupe_jax.objectives.masked_lm import cross_entropy
from tupe_jax.tokenizers.sentencepiece import MASK_ID, SentencePieceTokenizer, train_sentencepiece

NOUNS = ("farmer", "doctor", "nurse", "girl", "dog", "cat", "horse", "king")
ADJECTIVES = ("old", "young", "happy", "quiet")
VERBS = ("see", "help", "follow", "visit")
STEPS, ROWS, LENGTH = 500, 32, 10
PIECES = 180
"""Every word is one token."""

FILLED = {
    "the old farmer [MASK] happy.": {"is", "was"},
    "the old farmers [MASK] happy.": {"are", "were"},
    "the girls [MASK] quiet.": {"are", "were"},
    "a young king [MASK] quiet.": {"is", "was"},
    "two [MASK] follow the horse.": {f"{noun}s" for noun in NOUNS},
    "a [MASK] follows the horse.": set(NOUNS),
    "[MASK] dogs see the cat.": {"the", "two"},
    "[MASK] dog sees the cat.": {"the", "a"},
    "the happy nurses [MASK] the king.": set(VERBS),
    "the happy nurse [MASK] the king.": {f"{verb}s" for verb in VERBS},
}
"""What may stand at each [MASK]."""
ASKED = {text.replace("[MASK]", word) for text, words in FILLED.items() for word in words}


def sentences(count):
    """So many of the language, half of each kind, always the same; none that tests ask about."""
    draw, found = random.Random(0), []
    while len(found) < count:
        plural = draw.random() < 0.5
        s, verb_s = ("s", "") if plural else ("", "s")
        determiner = draw.choice(["the", "two" if plural else "a"])
        adjective = draw.choice(["", *(f"{adjective} " for adjective in ADJECTIVES)])
        subject = f"{determiner} {adjective}{draw.choice(NOUNS)}{s}"
        if len(found) % 2:
            be = draw.choice(["are", "were"] if plural else ["is", "was"])
            sentence = f"{subject} {be} {draw.choice(ADJECTIVES)}."
        else:
            sentence = f"{subject} {draw.choice(VERBS)}{verb_s} the {draw.choice(NOUNS)}."
        if sentence not in ASKED:
            found.append(sentence)
    return found


def train(vocabulary, texts):
    """One token of each sequence is masked; every step has other sequences."""
    config = with_position(
        small_config(
            "tupe_r", vocab_size=vocabulary.size, num_layers=1, hidden_size=32, layer_loop="scan"
        ),
        max_length=32,
        relative_bins=32,
        max_distance=128,
    )
    rows = encode_sentences(vocabulary, texts, config)
    tokens = np.array([np.pad(row, (0, LENGTH - len(row))) for row in rows])
    place = np.random.default_rng(0).integers(1, [len(row) - 1 for row in rows])
    hidden = tokens[np.arange(len(rows)), place]
    tokens[np.arange(len(rows)), place] = MASK_ID
    by_step = [a.reshape(STEPS, ROWS, *a.shape[1:]) for a in (tokens, place, hidden)]
    optimizer = optax.adam(3e-3)
    graph, params = nnx.split(nnx.jit(lambda: MaskedLM(config, rngs=nnx.Rngs(0)))())

    def loss(params, tokens, place, hidden):
        logits = nnx.merge(graph, params)(tokens, positions_BxM=place[:, None])
        return cross_entropy(logits[:, 0], hidden).mean()

    @jax.jit
    def learn(params, by_step):
        def step(carry, batch):
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params, *batch)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(params, updates), state), value

        (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), by_step)
        return params, losses

    params, losses = learn(params, [jnp.asarray(a) for a in by_step])
    return nnx.merge(graph, params), losses


def make_model_folder(folder):
    """The trained model with its vocabulary."""
    texts = sentences(STEPS * ROWS)
    file = folder / "v.model"
    file.write_bytes(train_sentencepiece(texts, PIECES))
    model, _ = train(SentencePieceTokenizer.load(file), texts)
    save_folder(
        model, folder / "model", file.read_bytes(), ModelMetadata(step=STEPS, length=LENGTH)
    )
    return folder / "model"
