"""From the name of a source in a task to the source."""

from tupe_jax.config.schema import OnError
from tupe_jax.data.pretraining.sources.base import DocumentSource
from tupe_jax.data.pretraining.sources.builtin_corpus import BUILTIN_DOCUMENTS, Builtin
from tupe_jax.data.pretraining.sources.json_lines import JsonLines
from tupe_jax.data.pretraining.sources.parquet_files import ParquetFiles
from tupe_jax.data.pretraining.sources.text_files import TextFiles
from tupe_jax.data.pretraining.sources.tfds_data import TFDS_LAYOUTS, Tfds
from tupe_jax.utils.errors import UserError

_KINDS_OF_FILES = {"text": TextFiles, "jsonl": JsonLines, "parquet": ParquetFiles}


def parse_source(spec: str, seed: int = 0, on_error: OnError = "stop") -> DocumentSource:
    """Return the source for a spec like `text:books/*.txt.gz`, `wiki40b/en` or `builtin:5000`.

    Only the built-in corpus depends on the seed, and only files can be broken.
    """
    kind, _, argument = spec.partition(":")
    if kind in _KINDS_OF_FILES and argument:
        return _KINDS_OF_FILES[kind](argument, on_error)
    if spec.partition("/")[0] in TFDS_LAYOUTS:
        return Tfds(spec)
    if spec == "builtin":
        return Builtin(BUILTIN_DOCUMENTS, seed)
    if kind == "builtin" and argument.isdecimal() and int(argument):
        return Builtin(int(argument), seed)
    raise UserError(
        f"unknown source {spec!r}; expected builtin, builtin:DOCUMENTS, text:GLOB, "
        f"jsonl:GLOB#FIELD, parquet:GLOB#COLUMN or a TFDS data set: {', '.join(TFDS_LAYOUTS)}"
    )
