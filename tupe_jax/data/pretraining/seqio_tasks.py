"""SeqIO tasks and mixtures: source -> cleaning -> token ids -> (SeqIO's cache) -> rows.

A task needs a vocabulary file, so it is made by a function, not at import; SeqIO's registries then
hold it under `task.name`, which is the same in every process that makes the same task.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from tupe_jax.config.schema import Packing
from tupe_jax.data.pretraining.cleaning import CLEANERS
from tupe_jax.data.pretraining.deduplication import MEMORY_SLOTS, REPEAT_DROPPERS
from tupe_jax.data.pretraining.graph import DOCUMENTS_AT_ONCE, call, map_documents, strings, texts
from tupe_jax.data.pretraining.packing import PACK_STEPS, TOKENS, tokenize
from tupe_jax.data.pretraining.sources import DocumentSource, parse_source
from tupe_jax.data.pretraining.splits import is_in_share
from tupe_jax.data.tensorflow_on_cpu import seqio, tf
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.utils.errors import UserError

Preprocessor = Callable[..., tf.data.Dataset]

# Rows in the shuffle buffer of a live reader.
SHUFFLE_ROWS = 4_096
# By hash: SeqIO refuses a mixture of tasks whose vocabularies are copies of one file.
_SEQIO_VOCABULARIES: dict[str, seqio.SentencePieceVocabulary] = {}


def make_task(
    source: DocumentSource,
    vocabulary: SentencePieceTokenizer,
    cleaning: Sequence[str] = (),
    share: float = 1.0,
    packing: Packing = "stream",
) -> seqio.Task:
    """Return the registered task that makes rows `{"tokens": [length]}` of a source.

    A share below one keeps that part of the documents, chosen by their text. Ask the task for
    `sequence_length={"tokens": length}`. What comes before `CacheDatasetPlaceholder`
    can be run once by SeqIO's Beam pipeline, for any row length and packing.
    """
    # Not `identity`: a corpus copied to another machine has other dates, but is the same task.
    extent = (source.text_bytes, source.most_shards)
    key = (source.spec, extent, vocabulary.sha256, tuple(cleaning), share)
    name = f"{_slug(source.spec)}_{hashlib.sha256(repr(key).encode()).hexdigest()[:12]}"
    if packing != "stream":  # whose tasks had their names before there was another packing
        name = f"{name}_{packing}"
    if name not in seqio.TaskRegistry.names():
        seqio.TaskRegistry.add(
            name,
            source=source,
            preprocessors=[
                *([_keep_share(share)] if share < 1 else []),
                *(cleaning_step(step) for step in cleaning),
                tokenize(vocabulary),
                seqio.CacheDatasetPlaceholder(),
                PACK_STEPS[packing],
            ],
            output_features={TOKENS: _token_feature(vocabulary)},
            shuffle_buffer_size=SHUFFLE_ROWS,
        )
    return seqio.TaskRegistry.get(name)


@dataclass(frozen=True)
class Component:
    """A source of a mixture, and how often it is passed while the others are passed once."""

    weight: float
    source: DocumentSource


def parse_task(spec: str, seed: int = 0) -> tuple[Component, ...]:
    """Return the parts of `SOURCE` or of a mixture like `wikipedia + 2.5 * text:books/*.txt`."""
    components = []
    for term in spec.split(" + "):
        weight, star, source = term.rpartition(" * ")
        try:
            number = float(weight) if star else 1.0
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise UserError(f"task {spec!r}: {weight!r} is not a positive number")
        components.append(Component(number, parse_source(source.strip(), seed)))
    return tuple(components)


def make_task_or_mixture(
    components: Sequence[Component],
    vocabulary: SentencePieceTokenizer,
    cleaning: Sequence[str] = (),
    packing: Packing = "stream",
) -> seqio.Task | seqio.Mixture:
    """Return the registered task of one component or mixture of several.

    SeqIO's rates are shares of rows. A source's share is its weight times its size, so that a
    weight says how often the source is passed, as it does in `tupe prepare`. A source without rows
    contributes none.
    """
    tasks = [
        make_task(component.source, vocabulary, cleaning, packing=packing)
        for component in components
    ]
    if len(tasks) == 1:
        return tasks[0]
    rates = [component.weight * component.source.text_bytes for component in components]
    pairs = list(zip((task.name for task in tasks), rates, strict=True))
    name = f"mixture_{hashlib.sha256(repr(pairs).encode()).hexdigest()[:12]}"
    if name not in seqio.MixtureRegistry.names():
        # By default SeqIO ends a mixture at the first draw from a source without rows.
        draw = partial(tf.data.Dataset.sample_from_datasets, stop_on_empty_dataset=False)
        seqio.MixtureRegistry.add(name, pairs, sample_fn=draw)
    return seqio.MixtureRegistry.get(name)


class RowConverter(seqio.FeatureConverter):
    """Task rows to model features: the ids as they are.

    Masking is a function of (seed, step) on the device, so rows arrive whole. SeqIO's
    `EncoderFeatureConverter` would instead expect masked rows, and would give weight only to
    positions that hold [MASK]: BERT's kept and randomly replaced tokens would get no loss.
    """

    TASK_FEATURES: ClassVar = {TOKENS: seqio.FeatureConverter.FeatureSpec(dtype=tf.int32)}
    MODEL_FEATURES: ClassVar = {TOKENS: seqio.FeatureConverter.FeatureSpec(dtype=tf.int32)}
    PACKING_FEATURE_DTYPES = None

    def __init__(self) -> None:
        # The rows are packed by the task itself.
        super().__init__(pack=False)

    def _convert_features(
        self, ds: tf.data.Dataset, task_feature_lengths: dict[str, int]
    ) -> tf.data.Dataset:
        return ds.map(lambda example: {TOKENS: example[TOKENS]})

    def get_model_feature_lengths(self, task_feature_lengths: dict[str, int]) -> dict[str, int]:
        return {TOKENS: task_feature_lengths[TOKENS]}


def _token_feature(vocabulary: SentencePieceTokenizer) -> seqio.Feature:
    if vocabulary.sha256 not in _SEQIO_VOCABULARIES:
        shared = seqio.SentencePieceVocabulary(str(vocabulary.path))
        _SEQIO_VOCABULARIES[vocabulary.sha256] = shared
    return seqio.Feature(_SEQIO_VOCABULARIES[vocabulary.sha256], add_eos=False, dtype=tf.int32)


def cleaning_step(name: str) -> Preprocessor:
    """Return the SeqIO preprocessor of a step of `cleaning.CLEANING_STEPS`."""
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
    """Return a name SeqIO allows, that still tells what it names."""
    return re.sub(r"\W+", "_", spec).strip("_")[-40:]
