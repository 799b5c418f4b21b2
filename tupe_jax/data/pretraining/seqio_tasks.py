"""SeqIO tasks and mixtures: source -> cleaning -> token ids -> sequences.

A task needs a tokenizer file, so it is created by a function, not at import. SeqIO registers it
under `task.name`, which is the same in every process that creates the same task.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from tupe_jax.config.schema import OnError, Packing
from tupe_jax.data.pretraining.cleaning import CLEANERS
from tupe_jax.data.pretraining.deduplication import MEMORY_SLOTS, REPEAT_DROPPERS
from tupe_jax.data.pretraining.packing import pack, pack_sentences, tokenize
from tupe_jax.data.pretraining.sentence_pairs import pack_pairs
from tupe_jax.data.pretraining.sources import DocumentSource, parse_source
from tupe_jax.data.pretraining.splits import is_in_share
from tupe_jax.data.pretraining.token_shards import IS_RANDOM_NEXT, SEGMENTS, TOKENS
from tupe_jax.data.tf_utils import DOCUMENTS_AT_ONCE, call, map_documents, seqio, strings, texts, tf
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError

Preprocessor = Callable[..., tf.data.Dataset]

# The shuffle buffer of a streaming reader.
SHUFFLE_SEQUENCES = 4_096
# By hash, because SeqIO rejects a mixture of tasks whose vocabularies are copies of one file.
_SEQIO_VOCABULARIES: dict[str, seqio.SentencePieceVocabulary] = {}


def make_task(
    source: DocumentSource,
    tokenizer: SentencePieceTokenizer,
    cleaning: Sequence[str] = (),
    share: float = 1.0,
    packing: Packing = "stream",
    pairs_key: Sequence[int] = (0, 0),
) -> seqio.Task:
    """Return the registered task from a source to sequences `{"tokens": [length]}`.

    With `packing="pairs"` there are also `segments` `[length]` and `is_random_next` `[]`. Their
    random choices depend on `pairs_key`: the seed, and the number of the pass over the source.

    A `share` below one keeps that share of the documents, chosen by their text. The length is the
    task's `sequence_length={"tokens": length}`.
    """
    # Not `identity`: a copy of a corpus on another machine has other dates, but is the same task.
    extent = (source.text_bytes, source.most_shards)
    key = (source.spec, extent, tokenizer.sha256, tuple(cleaning), share)
    name = f"{_slug(source.spec)}_{hashlib.sha256(repr(key).encode()).hexdigest()[:12]}"
    if packing != "stream":  # checkpoints of the streaming reader have the name without it
        name = f"{name}_{packing}"
    if source.on_error != "stop":
        name = f"{name}_{source.on_error}"
    if packing == "pairs":
        name = "_".join([name, *map(str, pairs_key)])
    if name not in seqio.TaskRegistry.names():
        seqio.TaskRegistry.add(
            name,
            source=source,
            preprocessors=[
                *([_keep_share(share)] if share < 1 else []),
                *(cleaning_step(step) for step in cleaning),
                tokenize(tokenizer),
                _pack_step(packing, pairs_key),
            ],
            output_features={TOKENS: _token_feature(tokenizer), **_PAIR_FEATURES}
            if packing == "pairs"
            else {TOKENS: _token_feature(tokenizer)},
            shuffle_buffer_size=SHUFFLE_SEQUENCES,
        )
    return seqio.TaskRegistry.get(name)


def _pack_step(packing: Packing, pairs_key: Sequence[int]) -> Preprocessor:
    if packing == "pairs":
        return pack_pairs(pairs_key)
    return {"stream": pack, "sentences": pack_sentences}[packing]


_TWO = seqio.PassThroughVocabulary(2)
_PAIR_FEATURES = {
    SEGMENTS: seqio.Feature(_TWO, add_eos=False, dtype=tf.int32),
    IS_RANDOM_NEXT: seqio.Feature(_TWO, add_eos=False, dtype=tf.int32, rank=0),
}


@dataclass(frozen=True)
class Component:
    """A source of a mixture. Its weight is the number of passes over it per epoch."""

    weight: float
    source: DocumentSource


def parse_task(spec: str, seed: int = 0, on_error: OnError = "stop") -> tuple[Component, ...]:
    """Parse `SOURCE`, or a mixture like `wikipedia + 2.5 * text:books/*.txt`."""
    components = []
    for term in spec.split(" + "):
        weight, star, source = term.rpartition(" * ")
        try:
            number = float(weight) if star else 1.0
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise UserError(f"task {spec!r}: weight {weight!r} must be a positive number")
        components.append(Component(number, parse_source(source.strip(), seed, on_error)))
    return tuple(components)


def make_task_or_mixture(
    components: Sequence[Component],
    tokenizer: SentencePieceTokenizer,
    cleaning: Sequence[str] = (),
    packing: Packing = "stream",
    seed: int = 0,
) -> seqio.Task | seqio.Mixture:
    """Return the registered task of one component, or the mixture of several.

    SeqIO's rates are shares of sequences. A source's rate is its weight times its size, so its
    weight is the number of passes, as in `tupe prepare`. A source without sequences contributes
    none. The seed chooses sentence pairs.
    """
    tasks = [
        make_task(component.source, tokenizer, cleaning, packing=packing, pairs_key=(seed, 0))
        for component in components
    ]
    if len(tasks) == 1:
        return tasks[0]
    rates = [component.weight * component.source.text_bytes for component in components]
    pairs = list(zip((task.name for task in tasks), rates, strict=True))
    name = f"mixture_{hashlib.sha256(repr(pairs).encode()).hexdigest()[:12]}"
    if name not in seqio.MixtureRegistry.names():
        # By default SeqIO ends a mixture at the first draw from an empty source.
        draw = partial(tf.data.Dataset.sample_from_datasets, stop_on_empty_dataset=False)
        seqio.MixtureRegistry.add(name, pairs, sample_fn=draw)
    return seqio.MixtureRegistry.get(name)


class SequenceConverter(seqio.FeatureConverter):
    """Task features to model features: unchanged.

    Masking is a function of (seed, step) on the device, so sequences arrive unmasked. SeqIO's
    `EncoderFeatureConverter` would expect masked sequences and give weight only to positions that
    hold [MASK]: BERT's kept and randomly replaced tokens would get no loss.
    """

    TASK_FEATURES: ClassVar = {TOKENS: seqio.FeatureConverter.FeatureSpec(dtype=tf.int32)}
    MODEL_FEATURES: ClassVar = TASK_FEATURES
    PACKING_FEATURE_DTYPES = None

    def __init__(self) -> None:
        # The task packs the sequences.
        super().__init__(pack=False)

    def _convert_features(
        self, ds: tf.data.Dataset, task_feature_lengths: dict[str, int]
    ) -> tf.data.Dataset:
        return ds.map(lambda example: {name: example[name] for name in self.MODEL_FEATURES})

    def get_model_feature_lengths(self, task_feature_lengths: dict[str, int]) -> dict[str, int]:
        return task_feature_lengths


class PairConverter(SequenceConverter):
    """The same for sentence pairs, which also have segments and a label."""

    TASK_FEATURES: ClassVar = {
        **SequenceConverter.TASK_FEATURES,
        SEGMENTS: seqio.FeatureConverter.FeatureSpec(dtype=tf.int32),
        IS_RANDOM_NEXT: seqio.FeatureConverter.FeatureSpec(dtype=tf.int32, rank=0),
    }
    MODEL_FEATURES: ClassVar = TASK_FEATURES


def _token_feature(tokenizer: SentencePieceTokenizer) -> seqio.Feature:
    if tokenizer.sha256 not in _SEQIO_VOCABULARIES:
        shared = seqio.SentencePieceVocabulary(str(tokenizer.path))
        _SEQIO_VOCABULARIES[tokenizer.sha256] = shared
    return seqio.Feature(_SEQIO_VOCABULARIES[tokenizer.sha256], add_eos=False, dtype=tf.int32)


def cleaning_step(name: str) -> Preprocessor:
    """Return the SeqIO preprocessor for a step of `cleaning.CLEANING_STEPS`."""
    if name in CLEANERS:
        clean = CLEANERS[name]
        return lambda dataset: map_documents(
            dataset, lambda documents: [text for each in documents if (text := clean(each))]
        )
    drop = REPEAT_DROPPERS[name]

    def on_arrays(memory: Any, documents: Any) -> tuple[Any, Any]:
        memory, kept = drop(memory, texts(documents))
        return memory, strings(kept)

    def on_tensors(memory: tf.Tensor, documents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        memory, kept = call(on_arrays, [memory, documents], (tf.uint64, tf.string))
        return tf.ensure_shape(memory, [MEMORY_SLOTS]), tf.ensure_shape(kept, [None])

    def step(dataset: tf.data.Dataset) -> tf.data.Dataset:
        memory = tf.zeros([MEMORY_SLOTS], tf.uint64)
        return dataset.batch(DOCUMENTS_AT_ONCE).scan(memory, on_tensors).unbatch()

    return step


def _keep_share(share: float) -> Preprocessor:
    return lambda dataset: map_documents(
        dataset, lambda documents: [each for each in documents if is_in_share(share, each)]
    )


def _slug(spec: str) -> str:
    """Return a readable name that SeqIO allows."""
    return re.sub(r"\W+", "_", spec).strip("_")[-40:]
