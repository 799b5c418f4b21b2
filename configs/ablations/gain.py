"""Is it the form of a bias that helps, or how fast the bias can grow?

  tupe ablate --config=ablations/gain:tiny --workdir=runs/gain
  tupe ablate --config=ablations/gain:real_text --workdir=runs/gain_real_text
  tupe ablate --config=ablations/gain:paper --workdir=/shared/gain --shard=0/22

Adam moves each number of a T5 bias by about the learning rate per update. TUPE's term is a product
of vectors and can grow faster. Each variant speeds up a bias in one of two ways: +gain=g multiplies
it by the constant g (T5's bias in BERT-R and TUPE-R, TUPE's own term in TUPE-A), and +rate=g
multiplies the learning rate of all positional parameters. T5-untie-cls is T5 with [CLS] untied, as
in TUPE: TUPE-R without TUPE's own term. The learning rate of each variant is the best of three on
seed 0, which is not reported. Each record has the size of every head's bias at every evaluation.

A gain of 32 also multiplies the initial bias of TUPE-A; T5's bias starts at 0. In BERT-R, +rate=g
also applies to the position embeddings. With T5's bias alone, +gain=g and +rate=g are nearly
equivalent under Adam, which tests that the gain acts through growth.

With as many shards as variants, shard i trains variant i alone. The first variants answer most.

tiny       2 layers on the built-in corpus, 132 runs; pre-training only.
real_text  the first 12 variants with 2 layers on your own text files, given by
           --config.pretrain.data.task='text:corpus/*.txt.gz'; 72 runs, pre-training only.
paper      base, as in the TUPE paper, one rate and one seed, with GLUE; 22 pre-training runs.
"""

from ml_collections import ConfigDict

from tupe_jax.ablation.config import Variant
from tupe_jax.config.loading import recipe

RATE = "optimizer.position_learning_rate_factor"
T5, UNTIED = "position.options.t5_gain", "position.options.untied_gain"
UNTIE = {"position.untie_cls": True}

VARIANTS = (
    Variant("TUPE-R", "tupe_r"),
    Variant("T5-untie-cls", "t5", UNTIE),
    Variant("T5-untie-cls+gain=32", "t5", UNTIE | {T5: 32.0}),
    Variant("TUPE-R+gain=32", "tupe_r", {T5: 32.0}),
    Variant("BERT-R", "bert_r"),
    Variant("BERT-R+gain=32", "bert_r", {T5: 32.0}),
    Variant("TUPE-A", "tupe_a"),
    Variant("TUPE-A+gain=32", "tupe_a", {UNTIED: 32.0}),
    Variant("T5-untie-cls+rate=32", "t5", UNTIE | {RATE: 32.0}),
    Variant("TUPE-R+rate=32", "tupe_r", {RATE: 32.0}),
    Variant("BERT-R+rate=32", "bert_r", {RATE: 32.0}),
    Variant("TUPE-A+rate=32", "tupe_a", {RATE: 32.0}),
    # From here on in `tiny` and `paper` only.
    Variant("T5-untie-cls+gain=8", "t5", UNTIE | {T5: 8.0}),
    Variant("TUPE-R+gain=8", "tupe_r", {T5: 8.0}),
    Variant("BERT-R+gain=8", "bert_r", {T5: 8.0}),
    Variant("TUPE-A+gain=8", "tupe_a", {UNTIED: 8.0}),
    Variant("T5-untie-cls+rate=8", "t5", UNTIE | {RATE: 8.0}),
    Variant("TUPE-R+rate=8", "tupe_r", {RATE: 8.0}),
    Variant("BERT-R+rate=8", "bert_r", {RATE: 8.0}),
    Variant("TUPE-A+rate=8", "tupe_a", {RATE: 8.0}),
    Variant("T5", "t5"),
    Variant("T5+gain=32", "t5", {T5: 32.0}),
)


def get_config(form: str = "tiny") -> ConfigDict:
    config = recipe(f"studies/{form}")  # configs/recipes/studies/<form>.py: every number
    config.variants = VARIANTS
    if form == "paper":
        return config
    config.learning_rates = (1e-3, 2e-3, 4e-3)
    config.tuning_seed = 0
    config.seeds = (2, 3, 4)  # seeds 0 and 1 suggested the hypothesis
    config.downstream.tasks = ()  # loss curves are the subject
    config.measure.minimal_pairs = 0
    config.measure.probe_task = ""
    config.measure.length = 31  # smaller records
    config.pretrain.eval.every = 50  # crossings are interpolated
    config.pretrain.checkpoint.every = 300
    if form == "real_text":
        config.variants = VARIANTS[:12]
        config.pretrain.model.num_layers = 2  # as in `tiny`
    return config
