"""The laboratory: what positions have learned, measured, probed and compared.

Looking:   metrics.py             numbers for a matrix of attention weights
           position_attention.py  attention that carries position only, in two ways
           head_kinds.py          heads sorted into the TUPE paper's five kinds
           four_terms.py          what BERT-A's logits are made of
Probing:   written.py, shuffles.py, roles.py   sentences with trees, and other orders of their words
           inference_pairs.py     pairs with trees, built in or of SNLI
           probes.py              a classifier before and after the order is changed
           inference_probes.py    the same of a fine-tuned model
           minimal_pairs.py       which of two sentences a masked language model prefers
           order_sensitivity.py   order in representations
           intervals.py           how sure all that is
Together:  comparison.py          several models side by side
           analysis.py            one model with all of it; `tupe analyze`

The names below are those of a notebook: `from tupe_jax import lab`.
"""

from tupe_jax.lab.analysis import Looks, look, text_rows
from tupe_jax.lab.four_terms import TERMS, FourTerms, four_terms
from tupe_jax.lab.head_kinds import KINDS, count_kinds, kind_of, kinds_of, reach
from tupe_jax.lab.metrics import (
    METRICS,
    Metric,
    direction,
    effective_rank,
    entropy,
    locality,
    mirror_symmetry,
    monotonicity,
    symmetry,
    translation_invariance,
)
from tupe_jax.lab.plots import term_matrices
from tupe_jax.lab.position_attention import (
    PositionAttention,
    attention_among_identical_words,
    attention_by_bias,
    choose_words,
)
from tupe_jax.utils.plotting import position_matrices

__all__ = [
    "KINDS",
    "METRICS",
    "TERMS",
    "FourTerms",
    "Looks",
    "Metric",
    "PositionAttention",
    "attention_among_identical_words",
    "attention_by_bias",
    "choose_words",
    "count_kinds",
    "direction",
    "effective_rank",
    "entropy",
    "four_terms",
    "kind_of",
    "kinds_of",
    "locality",
    "look",
    "mirror_symmetry",
    "monotonicity",
    "position_matrices",
    "reach",
    "symmetry",
    "term_matrices",
    "text_rows",
    "translation_invariance",
]
