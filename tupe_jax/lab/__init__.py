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
"""

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

__all__ = [
    "METRICS",
    "Metric",
    "direction",
    "effective_rank",
    "entropy",
    "locality",
    "mirror_symmetry",
    "monotonicity",
    "symmetry",
    "translation_invariance",
]
