"""Text data sets of TFDS."""

import re
from collections.abc import Callable, Mapping

from tupe_jax.data.pretraining.sources.base import TRAIN, DocumentSource
from tupe_jax.data.tf_utils import find_builder, map_documents, tf, tfds


class Tfds(DocumentSource):
    """A text data set of TFDS that is already prepared on disk. Nothing is downloaded."""

    def __init__(self, name: str, data_dir: str | None = None):
        dataset, _, config = name.partition("/")
        config = config or _TFDS_DEFAULT_CONFIGS.get(dataset, "")
        full_name = f"{dataset}/{config}" if config else dataset
        self._builder = find_builder(full_name, data_dir)
        train = self._builder.info.splits[TRAIN]
        self._layout = TFDS_LAYOUTS[dataset]
        super().__init__(
            spec=full_name,
            text_bytes=train.num_bytes,
            most_shards=train.num_examples,
            identity=f"{self._builder.info.full_name} {train.num_examples} {train.num_bytes}",
        )

    def documents(self, index: int, count: int) -> tf.data.Dataset:
        part = tfds.even_splits(TRAIN, n=count)[index] if count > 1 else TRAIN
        examples = self._builder.as_dataset(
            split=part,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding({"text": True}),
            # One file after the other: the order does not depend on the machine.
            read_config=tfds.ReadConfig(try_autocache=False, interleave_cycle_length=1),
        )
        return map_documents(
            examples.map(lambda example: example["text"]),
            lambda texts: [document for text in texts if (document := self._layout(text))],
        )


def _nonblank_lines(text: str) -> str:
    """Return the lines that are not blank: one sentence (lm1b) or one paragraph (c4) each."""
    stripped = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in stripped if line)


def _wiki40b_paragraphs(text: str) -> str:
    """Return the paragraphs of a wiki40b article, without its title and section headings."""
    # split() returns the text before the first marker, then markers and texts in turn.
    parts = re.split(r"\n_START_(ARTICLE|SECTION|PARAGRAPH)_\n", text)
    marked = zip(parts[1::2], parts[2::2], strict=True)
    paragraphs = (body for marker, body in marked if marker == "PARAGRAPH")
    return _nonblank_lines("\n".join(body.replace("_NEWLINE_", "\n") for body in paragraphs))


def _wikipedia_lines(text: str) -> str:
    """Return the lines of a Wikipedia article, without its list of categories."""
    lines = _nonblank_lines(text).split("\n")
    return "\n".join(line for line in lines if not line.startswith("Category:"))


# How to turn the feature `text` of a TFDS builder into a document.
TFDS_LAYOUTS: Mapping[str, Callable[[str], str]] = {
    "c4": _nonblank_lines,
    "lm1b": _nonblank_lines,
    "wiki40b": _wiki40b_paragraphs,
    "wikipedia": _wikipedia_lines,
}
_TFDS_DEFAULT_CONFIGS = {"c4": "en", "wiki40b": "en", "wikipedia": "20230601.en"}
