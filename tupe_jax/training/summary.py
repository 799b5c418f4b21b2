"""The summary of a finished run: metrics next to a baseline, a few filled masks, two plots."""

import itertools
from collections.abc import Iterator, Mapping

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
    identical_tokens_LxHxSxS,
)
from tupe_jax.tokenizers.sentencepiece import (
    CLS_ID,
    PAD_ID,
    SEP_ID,
    SPECIAL_TOKENS,
    SentencePieceTokenizer,
)
from tupe_jax.training.evaluation import PREFIX, value_text
from tupe_jax.training.loop import RunResult
from tupe_jax.training.monitoring.metrics import METRICS_FILE, read_metrics
from tupe_jax.utils.paths import Path
from tupe_jax.utils.plotting import attention_by_position, loss_curve, position_matrices

LOSS_PLOT, POSITION_PLOT = "loss.png", "positions.png"
EXAMPLES = 5
PROBING_WORDS = 16


def summarise(run: RunResult, workdir: Path) -> str:
    """Save the plots, and return the text."""
    model = _on_one_device(run.exported.model)
    lines = read_metrics(workdir / METRICS_FILE)
    valid = next(line for line in reversed(lines) if "valid_loss" in line)
    sample = run.dataset.sample_NxS.ravel()
    counts_V = np.bincount(sample, minlength=model.config.vocab_size)
    baseline = run.objective.baseline(counts_V, run.validation.inputs())
    loss_curve(
        lines,
        workdir / LOSS_PLOT,
        unit=run.objective.loss_unit,
        baseline=baseline.get("loss"),
    )
    length = min(SHOWN_POSITIONS, run.dataset.validation["tokens"].shape[1])
    weights, title = position_only(model, length)
    position_matrices(weights, workdir / POSITION_PLOT, title=title)
    return "\n".join(
        [
            *_metrics(valid, baseline, run.objective.loss_unit),
            "",
            *_filled(run),
            "",
            f"in {workdir}: {LOSS_PLOT}, {POSITION_PLOT}, {METRICS_FILE}, checkpoints/",
        ]
    )


def _metrics(
    valid: Mapping[str, float], baseline: Mapping[str, float], loss_unit: str
) -> Iterator[str]:
    """A line for each validation metric, with that of predicting from token frequencies."""
    for key, value in valid.items():
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX)
        label = "validation loss" if name == "loss" else f"{name.replace('_', ' '):15}"
        unit = f" {loss_unit}" if name == "loss" else ""
        line = f"{label} {value_text(name, value)}{unit}"
        if name in baseline:
            line += f"; guessing by frequency {value_text(name, baseline[name])}"
        yield line


def _on_one_device(model: MaskedLM) -> MaskedLM:
    """A copy on one device, for the small programs of the summary.

    On several CPU devices their collectives could run in different orders and deadlock.
    """
    graph, state = nnx.split(model)
    return nnx.merge(graph, jax.device_put(jax.device_get(state), jax.local_devices()[0]))


def position_only(model: MaskedLM, length: int) -> tuple[NDArray[np.float64], str]:
    """Position-only attention, [H, S, S] or [L, H, S, S], and a title for its plot.

    The softmax of the position bias, if there is one. Otherwise the attention of each layer among
    identical tokens, averaged over several tokens.
    """
    bias = bias_LxHxSxS(model.encoder, length)
    if bias is not None:
        shared_by_layers = len(bias) == 1
        weights = attention_by_position(bias[0] if shared_by_layers else bias)
        return weights, "softmax of the position bias of each head"
    words_W = np.random.default_rng(0).choice(
        np.arange(len(SPECIAL_TOKENS), model.config.vocab_size), PROBING_WORDS
    )
    mean_LxHxSxS = identical_tokens_LxHxSxS(model.encoder, jnp.asarray(words_W), length)
    title = f"attention among identical words, mean of {PROBING_WORDS} words"
    return np.asarray(mean_LxHxSxS, np.float64), title


def _filled(run: RunResult) -> Iterator[str]:
    """Sentences of the validation text with one word masked, and predictions of that word."""
    if run.exported.language_model is None:
        return
    model = _on_one_device(run.exported.language_model)
    examples = list(_examples(run.dataset.tokenizer, run.dataset.validation["tokens"]))
    if examples and run.exported.generator is not None:
        yield "masks filled by the generator:"
    sentences = [sentence for sentence, _ in examples]
    for (sentence, word), filled in zip(
        examples, fill_masks(model, run.dataset.tokenizer, sentences, top_k=3), strict=True
    ):
        shown = ", ".join(map(str, filled.guesses[0]))
        yield f"{sentence}\n    {shown}    (it was: {word})"


def _examples(
    tokenizer: SentencePieceTokenizer, tokens_NxS: NDArray[np.int32]
) -> Iterator[tuple[str, str]]:
    """Whole sentences, each with a word in the middle hidden, and that word."""
    starts = np.array(tokenizer.word_starts())
    found = 0
    for tokens_S in tokens_NxS:
        for sentence in _sentences(tokens_S):
            # A token that starts a word, and whose successor starts another, is a whole word.
            whole = np.flatnonzero(starts[sentence[:-1]] & starts[sentence[1:]])
            if len(sentence) < 7 or not len(whole):
                continue
            middle = int(whole[len(whole) // 2])
            before, after = (
                tokenizer.decode(part) for part in (sentence[:middle], sentence[middle + 1 :])
            )
            yield f"{before} {MASK} {after}".strip(), tokenizer.decode([sentence[middle]])
            found += 1
            break  # one of each sequence, for variety
        if found == EXAMPLES:
            return


def _sentences(tokens_S: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """The sentences that are complete in a sequence, from their first word to their [SEP]."""
    ends = np.flatnonzero(tokens_S == SEP_ID)
    between = [tokens_S[a + 1 : b] for a, b in itertools.pairwise(ends)]
    return [s for s in between if len(s) and not np.isin(s, (PAD_ID, CLS_ID)).any()]
