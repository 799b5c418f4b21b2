"""The shuffling probes, asked of a model that was fine-tuned on three-way inference.

A classification head bears the name of its task, which tells what its classes are. Pairs that do
not fit into a row before or after the change are left out: of one that is cut, a shuffle would
change the words and not only their order.
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
from tupe_jax.data.labelled.encode import Encoder
from tupe_jax.data.labelled.example import Example
from tupe_jax.data.labelled.glue import TASKS, THREE_WAY
from tupe_jax.finetune.data import bucket_lengths, encode_split, evaluation_batches
from tupe_jax.lab.nli_pairs import NliPair
from tupe_jax.lab.probes import Predict, Probe, ProbeItem, ProbeResult, order_probes, run_probes
from tupe_jax.model.full_precision import full_precision
from tupe_jax.model.heads import MaskedLM
from tupe_jax.model.params import classification_heads_of
from tupe_jax.utils.errors import UserError

_CLASSES = {**{task.name: task.form.classes for task in TASKS.values()}, **LABELS}
NLI_TASKS = tuple(name for name, classes in _CLASSES.items() if classes == THREE_WAY)
_BATCH_SIZE = 64


@dataclass(frozen=True)
class NliProbes:
    """What became of each probe that some pair could be used for."""

    head: str
    """The task that the model was fine-tuned on."""
    pairs: int
    too_long: int
    """Pairs that were left out, of `pairs`."""
    results: tuple[ProbeResult, ...]


@full_precision
def probe_nli(
    model: MaskedLM,
    encoder: Encoder,
    pairs: Sequence[NliPair],
    *,
    length: int | None = None,
    seed: int = 0,
) -> NliProbes:
    """Shuffle-3 to Shuffle-6, Random and Shuffle-SR of a model with a head for inference.

    `length` is that of the longest row, by default position.max_length. An encoding whose numbers
    depend on the row's length (attenuated) is asked as it was trained if given fine-tuning's.
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
            f"none of {len(pairs)} pairs has an order to change and at most {length} tokens"
        )
    results = run_probes(probes, class_predictor(model, encoder, head, length))
    return NliProbes(head, len(pairs), len(pairs) - len(usable), tuple(results))


def nli_head(heads: Mapping[str, int]) -> str:
    """The one whose classes are entailment, neutral and contradiction, in this order."""
    for head in NLI_TASKS:
        if heads.get(head) == len(THREE_WAY):
            return head
        if head in heads:
            raise UserError(
                f"the model's head {head} has {heads[head]} outputs, not {', '.join(THREE_WAY)}"
            )
    tuned = f"fine-tuned on {', '.join(heads)}" if heads else "not fine-tuned"
    wanted = " or ".join(NLI_TASKS)
    raise UserError(f"the model is {tuned}; probes are for one that is on {wanted}")


def class_predictor(model: MaskedLM, encoder: Encoder, head: str, length: int) -> Predict:
    """The number of the likeliest class of each example, by a head of the model."""
    graph, state = nnx.split(model)

    def predict(examples: Sequence[Example]) -> NDArray[np.int64]:
        rows = encode_split(examples, encoder, length)
        buckets = bucket_lengths(model.config, length, rows.longest)
        answers_N = np.empty(len(rows), np.int64)
        for indices_B, tokens_BxS in evaluation_batches(rows, _BATCH_SIZE, buckets):
            answers_N[indices_B] = _class_B(graph, state, head, tokens_BxS)
        return answers_N

    return predict


@partial(jax.jit, static_argnums=(0, 2))
def _class_B(graph: Any, state: Any, head: str, tokens_BxS: jax.Array) -> jax.Array:
    outputs_BxC: jax.Array = nnx.merge(graph, state).classify(tokens_BxS, head)
    return outputs_BxC.argmax(-1)


def _tokens(encoder: Encoder, example: Example) -> int:
    texts = (example.sentence1, example.sentence2 or "")
    return 2 + encoder.pair_separators + sum(len(encoder.encode(text)) for text in texts)
