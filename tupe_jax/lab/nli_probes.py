"""The word-order probes of a model that was fine-tuned on three-way NLI.

A classification head has the name of its task, which determines its classes. Pairs that are too
long before or after the change are left out: if a pair is truncated, a shuffle changes its words
and not only their order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from tupe_jax.data.builtin import LABELS
from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.glue import TASKS, THREE_WAY
from tupe_jax.finetune.data import bucket_lengths, encode_split, evaluation_batches
from tupe_jax.lab.nli_pairs import NliPair
from tupe_jax.lab.probes import Predict, Probe, ProbeItem, ProbeResult, order_probes, run_probes
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.measurement import full_precision
from tupe_jax.model.params import classification_heads_of
from tupe_jax.tokenizers.base import Tokenizer
from tupe_jax.utils.errors import UserError

_CLASSES = {**{task.name: task.form.classes for task in TASKS.values()}, **LABELS}
NLI_TASKS = tuple(name for name, classes in _CLASSES.items() if classes == THREE_WAY)
_BATCH_SIZE = 64


@dataclass(frozen=True)
class NliProbes:
    """The results of all probes that apply to at least one pair."""

    head: str
    """The classification head, named after the task of fine-tuning."""
    pairs: int
    too_long: int
    """How many of `pairs` were left out."""
    results: tuple[ProbeResult, ...]


@full_precision
def probe_nli(
    model: MaskedLM,
    encoder: Tokenizer,
    pairs: Sequence[NliPair],
    *,
    length: int | None = None,
    seed: int = 0,
) -> NliProbes:
    """Shuffle-3 to Shuffle-6, Random and Shuffle-SR of a model with an NLI head.

    `length` is the longest sequence, by default position.max_length. Give the length of fine-tuning
    for an encoding whose numbers depend on the length (attenuated).
    """
    head = nli_head(classification_heads_of(model))
    length = model.config.position.max_length if length is None else length

    def fits(*examples: Example) -> bool:
        return all(_tokens(encoder, example) <= length for example in examples)

    def fitting(probe: Probe) -> Probe:
        kept: tuple[ProbeItem, ...] = tuple(i for i in probe.items if fits(i.original, i.changed))
        return Probe(probe.name, kept)

    usable = [pair for pair in pairs if fits(pair.example)]
    probes = [probe for probe in map(fitting, order_probes(usable, seed)) if probe.items]
    if not probes:
        raise UserError(
            f"none of {len(pairs)} pairs has at most {length} tokens and words to reorder"
        )
    results = run_probes(probes, class_predictor(model, encoder, head, length))
    return NliProbes(head, len(pairs), len(pairs) - len(usable), tuple(results))


def nli_head(heads: Mapping[str, int]) -> str:
    """The head with the classes entailment, neutral and contradiction, in this order."""
    for head in NLI_TASKS:
        if heads.get(head) == len(THREE_WAY):
            return head
        if head in heads:
            raise UserError(
                f"the model's head {head} has {heads[head]} outputs, not {', '.join(THREE_WAY)}"
            )
    tuned = f"fine-tuned on {', '.join(heads)}" if heads else "not fine-tuned"
    tasks = " or ".join(NLI_TASKS)
    raise UserError(f"the model is {tuned}; probes need fine-tuning on {tasks}")


def class_predictor(model: MaskedLM, encoder: Tokenizer, head: str, length: int) -> Predict:
    """The number of the likeliest class of each example, by a head of the model."""
    graph, state = nnx.split(model)

    def predict(examples: Sequence[Example]) -> NDArray[np.int64]:
        split = encode_split(examples, encoder, length)
        buckets = bucket_lengths(model.config, length, split.longest)
        classes_N = np.empty(len(split), np.int64)
        for indices_B, tokens_BxS in evaluation_batches(split, _BATCH_SIZE, buckets):
            classes_N[indices_B] = _class_B(graph, state, head, tokens_BxS)
        return classes_N

    return predict


@partial(jax.jit, static_argnums=(0, 2))
def _class_B(graph: Any, state: Any, head: str, tokens_BxS: jax.Array) -> jax.Array:
    outputs_BxC: jax.Array = nnx.merge(graph, state).classify(tokens_BxS, head)
    return outputs_BxC.argmax(-1)


def _tokens(encoder: Tokenizer, example: Example) -> int:
    texts = (example.sentence1, example.sentence2 or "")
    return 2 + encoder.pair_separators + sum(len(encoder.encode(text)) for text in texts)
