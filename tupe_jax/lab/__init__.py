"""The laboratory: measure and compare what models have learned about positions and word order.

Attention  metrics.py             metrics of a matrix of attention weights
           position_attention.py  position-only attention, from the bias and by probing
           head_kinds.py          heads classified into the TUPE paper's five kinds
           four_terms.py          BERT-A's logits as a sum of four terms
Word order parsed_sentence.py     parsed sentences as text whose words can be reordered
           shuffles.py            words shuffled within constituents
           semantic_roles.py      agent and patient exchanged
           nli_pairs.py           NLI pairs with parse trees, built in or from SNLI
           probes.py              the accuracy of a classifier before and after a change of order
           nli_probes.py          the same for a fine-tuned model
           minimal_pairs.py       which of two sentences a masked language model prefers
           order_sensitivity.py   word order in sentence representations
           intervals.py           confidence intervals
Reports    comparison.py          several models in one table
           analysis.py            all measurements of one model; `tupe analyze`

For notebooks: `from tupe_jax import lab`.
"""

from tupe_jax.lab.analysis import AttentionMetrics, attention_metrics, builtin_sequences
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

# Earlier names.
Looks, look, text_rows = AttentionMetrics, attention_metrics, builtin_sequences

__all__ = [
    "KINDS",
    "METRICS",
    "TERMS",
    "AttentionMetrics",
    "FourTerms",
    "Metric",
    "PositionAttention",
    "attention_among_identical_words",
    "attention_by_bias",
    "attention_metrics",
    "builtin_sequences",
    "choose_words",
    "count_kinds",
    "direction",
    "effective_rank",
    "entropy",
    "four_terms",
    "kind_of",
    "kinds_of",
    "locality",
    "mirror_symmetry",
    "monotonicity",
    "position_matrices",
    "reach",
    "symmetry",
    "term_matrices",
    "translation_invariance",
]
