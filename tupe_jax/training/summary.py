"""What a finished run shows: how much was learned, a few filled masks, and two pictures."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.inference.batching import MASK
from tupe_jax.inference.fill_mask import fill_masks
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.measurement import (
    SHOWN_POSITIONS,
    bias_LxHxSxS,
    identical_words_LxHxSxS,
)
from tupe_jax.tokenizers.sentencepiece import (
    CLS_ID,
    PAD_ID,
    SEP_ID,
    SPECIAL_TOKENS,
    SentencePieceTokenizer,
)
from tupe_jax.training.loop import Run
from tupe_jax.training.monitoring.metrics import METRICS_FILE, read_metrics
from tupe_jax.utils.plotting import attention_by_position, loss_curve, position_matrices

LOSS_PICTURE, POSITION_PICTURE = "loss.png", "positions.png"
EXAMPLES = 5
PROBING_WORDS = 16


def summarise(run: Run, workdir: Path) -> str:
    """Draw the pictures, and return what there is to say."""
    run = replace(run, model=_on_one_device(run.model))
    lines = read_metrics(workdir / METRICS_FILE)
    valid = next(line for line in reversed(lines) if "valid_loss" in line)
    counts_V = count_tokens([run.dataset.sample_NxS], run.model.config.vocab_size)
    baseline = UnigramBaseline.from_counts(counts_V, run.validation.never_chosen)
    targets = run.validation.targets()
    unigram_loss = baseline.loss(targets)
    loss_curve(lines, unigram_loss, workdir / LOSS_PICTURE)
    length = min(SHOWN_POSITIONS, run.dataset.validation_NxS.shape[1])
    weights, title = position_only(run.model, length)
    position_matrices(weights, workdir / POSITION_PICTURE, title=title)
    return "\n".join(
        [
            f"validation loss {valid['valid_loss']:.3f} nats per masked token; "
            f"guessing by frequency {unigram_loss:.3f}",
            f"accuracy        {valid['valid_accuracy']:.1%}; "
            f"guessing by frequency {baseline.accuracy(targets):.1%}",
            "",
            *_filled(run),
            "",
            f"in {workdir}: {LOSS_PICTURE}, {POSITION_PICTURE}, {METRICS_FILE}, checkpoints/",
        ]
    )


def _on_one_device(model: MaskedLM) -> MaskedLM:
    """Small programs follow here, one after the other; devices would wait for each other in each.

    On CPUs, where programs may overtake one another, they could do so for ever.
    """
    graph, state = nnx.split(model)
    return nnx.merge(graph, jax.device_put(jax.device_get(state), jax.local_devices()[0]))


def position_only(model: MaskedLM, length: int) -> tuple[NDArray[np.float64], str]:
    """Attention weights that carry position alone, [H, S, S] or [L, H, S, S], and what they are.

    The softmax of the bias, if there is one; else what the layers attend to when all words are the
    same, averaged over some words.
    """
    bias = bias_LxHxSxS(model.encoder, length)
    if bias is not None:
        shared_by_layers = len(bias) == 1
        weights = attention_by_position(bias[0] if shared_by_layers else bias)
        return weights, "softmax of the position bias of each head"
    words_W = np.random.default_rng(0).choice(
        np.arange(len(SPECIAL_TOKENS), model.config.vocab_size), PROBING_WORDS
    )
    mean_LxHxSxS = identical_words_LxHxSxS(model.encoder, jnp.asarray(words_W), length)
    title = f"attention among identical words, mean of {PROBING_WORDS} words"
    return np.asarray(mean_LxHxSxS, np.float64), title


def _filled(run: Run) -> Iterator[str]:
    """Sentences of the validation text with one word hidden, and the model's guesses."""
    examples = list(_examples(run.dataset.tokenizer, run.dataset.validation_NxS))
    sentences = [sentence for sentence, _ in examples]
    for (sentence, word), filled in zip(
        examples, fill_masks(run.model, run.dataset.tokenizer, sentences, top_k=3), strict=True
    ):
        shown = ", ".join(map(str, filled.guesses[0]))
        yield f"{sentence}\n    {shown}    (it was: {word})"


def _examples(
    vocabulary: SentencePieceTokenizer, rows_NxS: NDArray[np.int32]
) -> Iterator[tuple[str, str]]:
    """Whole sentences, each with a word in the middle hidden, and that word."""
    starts = np.array(vocabulary.word_starts())
    found = 0
    for row in rows_NxS:
        for sentence in _sentences(row):
            # A piece that starts a word and whose successor starts another is a whole word.
            whole = np.flatnonzero(starts[sentence[:-1]] & starts[sentence[1:]])
            if len(sentence) < 7 or not len(whole):
                continue
            place = int(whole[len(whole) // 2])
            before, after = (
                vocabulary.decode(part) for part in (sentence[:place], sentence[place + 1 :])
            )
            yield f"{before} {MASK} {after}".strip(), vocabulary.decode([sentence[place]])
            found += 1
            break  # one of each row, for variety
        if found == EXAMPLES:
            return


def _sentences(row: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """The sentences that are in the row from their first word to their [SEP]."""
    ends = np.flatnonzero(row == SEP_ID)
    between = [row[a + 1 : b] for a, b in itertools.pairwise(ends)]
    return [s for s in between if len(s) and not np.isin(s, (PAD_ID, CLS_ID)).any()]


@dataclass(frozen=True)
class UnigramBaseline:
    """The frequencies of the words of a corpus, as a guess at every masked word alike."""

    probability_V: NDArray[np.float64]

    @classmethod
    def from_counts(
        cls, counts_V: NDArray[np.int64], never_chosen: Sequence[int]
    ) -> "UnigramBaseline":
        """Add-one smoothing, over the tokens that masking can choose at all."""
        maskable_V = ~np.isin(np.arange(len(counts_V)), never_chosen)
        smoothed_V = np.where(maskable_V, counts_V + 1.0, 0.0)
        return cls(smoothed_V / smoothed_V.sum())

    @property
    def entropy(self) -> float:
        """In nats: the loss on masked words that are distributed as the counted text is."""
        p = self.probability_V[self.probability_V > 0]
        return float(-(p * np.log(p)).sum())

    def loss(self, targets: NDArray[np.integer]) -> float:
        """Mean cross-entropy of these words, in nats; to be compared with `valid_loss`."""
        with np.errstate(divide="ignore"):  # a target that is never masked deserves its infinity
            return float(-np.log(self.probability_V[targets]).mean())

    def accuracy(self, targets: NDArray[np.integer]) -> float:
        """How often the most frequent piece is right; to be compared with `valid_accuracy`."""
        return float((targets == self.probability_V.argmax()).mean())


def count_tokens(rows: Iterable[NDArray[np.integer]], vocab_size: int) -> NDArray[np.int64]:
    """How often each piece occurs in arrays of token ids, [V]."""
    counts_V = np.zeros(vocab_size, np.int64)
    for tokens in rows:
        counts_V += np.bincount(tokens.ravel(), minlength=vocab_size)
    return counts_V
