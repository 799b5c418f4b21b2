"""What a finished run shows: how much was learned, a few filled masks, and two pictures."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tupe_jax.data.vocabulary import CLS_ID, PAD_ID, SEP_ID, Vocabulary
from tupe_jax.training.baseline import UnigramBaseline, count_tokens
from tupe_jax.training.loop import Run
from tupe_jax.training.masked_words import MASK, fill_masks
from tupe_jax.training.metrics import METRICS_FILE, read_metrics
from tupe_jax.training.pictures import loss_curve, position_matrices

LOSS_PICTURE, POSITION_PICTURE = "loss.png", "positions.png"
EXAMPLES = 5
SHOWN_POSITIONS = 32


def summarise(run: Run, workdir: Path) -> str:
    """Draw the pictures, and return what there is to say."""
    lines = read_metrics(workdir / METRICS_FILE)
    valid = next(line for line in reversed(lines) if "valid_loss" in line)
    counts_V = count_tokens([run.corpus.sample_NxS], run.model.config.vocab_size)
    baseline = UnigramBaseline.from_counts(counts_V)
    targets = run.validation.targets()
    unigram_loss = baseline.loss(targets)
    loss_curve(lines, unigram_loss, workdir / LOSS_PICTURE)
    pictures = [LOSS_PICTURE]
    length = min(SHOWN_POSITIONS, run.corpus.validation_NxS.shape[1])
    bias_HxSxS = run.model.encoder.positions.bias_HxSxS(length)
    if bias_HxSxS is not None:
        position_matrices(np.asarray(bias_HxSxS), workdir / POSITION_PICTURE)
        pictures.append(POSITION_PICTURE)
    return "\n".join(
        [
            f"validation loss {valid['valid_loss']:.3f} nats per masked token; "
            f"guessing by frequency {unigram_loss:.3f}",
            f"accuracy        {valid['valid_accuracy']:.1%}; "
            f"guessing by frequency {baseline.accuracy(targets):.1%}",
            "",
            *_filled(run),
            "",
            f"in {workdir}: {', '.join([*pictures, METRICS_FILE])}, checkpoints/",
        ]
    )


def _filled(run: Run) -> Iterator[str]:
    """Sentences of the validation text with one word hidden, and the model's guesses."""
    examples = list(_examples(run.corpus.vocabulary, run.corpus.validation_NxS))
    sentences = [sentence for sentence, _ in examples]
    for (sentence, word), guesses in zip(
        examples, fill_masks(run.model, run.corpus.vocabulary, sentences, top_k=3), strict=True
    ):
        shown = ", ".join(f"{guess.piece} {guess.probability:.0%}" for guess in guesses[0])
        yield f"{sentence}\n    {shown}    (it was: {word})"


def _examples(vocabulary: Vocabulary, rows_NxS: NDArray[np.int32]) -> Iterator[tuple[str, str]]:
    """Whole sentences, each with a word in the middle hidden, and that word."""
    starts = np.array(vocabulary.starts_word())
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
