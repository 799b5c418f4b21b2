"""The built-in corpus: English-like documents from a seeded grammar, with trees, roles and tasks.

It needs no download, and neither TensorFlow nor JAX. `documents` gives running text by document
number; `labelled` gives acceptability, sentiment, paraphrase and NLI examples.
"""

from tupe_jax.data.builtin.document import Document, document, documents
from tupe_jax.data.builtin.sentence import Constituent, Mention, Predicate, Sentence, Span, Tree
from tupe_jax.data.builtin.tasks.labelled import LABELS, SPLITS, labelled
from tupe_jax.data.builtin.transform import change_voice, swap_roles
from tupe_jax.data.labelled.example import Example

__all__ = [
    "LABELS",
    "SPLITS",
    "Constituent",
    "Document",
    "Example",
    "Mention",
    "Predicate",
    "Sentence",
    "Span",
    "Tree",
    "change_voice",
    "document",
    "documents",
    "labelled",
    "swap_roles",
]
