"""A study of small models on the built-in corpus and its tasks: minutes per run on a CPU."""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config, recipe


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seeds = (0, 1, 2)
    config.learning_rates = (2e-3,)  # several: each variant is tuned first
    config.tuning_seed = -1  # -1: tune on the first seed; another one is held out
    config.equal_flops = False  # True: as many steps as cost the FLOPs of the first variant

    # Pre-training. Each variant has its own encoding, and each run its own seed and rate.
    config.pretrain = recipe("tiny")  # configs/recipes/tiny.py: every number
    config.pretrain.checkpoint.every = 120
    config.pretrain.checkpoint.keep = 1  # a study has many runs, each of them short
    config.pretrain.checkpoint.keep_best = False
    config.pretrain.eval.every = 30  # a fine loss curve, to compare variants along it

    # Fine-tuning of every run.
    config.downstream = ConfigDict()
    config.downstream.tasks = ("builtin_cola", "builtin_nli")
    config.downstream.learning_rates = (5e-4,)
    config.downstream.seeds = (0,)
    config.downstream.data_dir = ""  # built-in tasks need none
    config.downstream.train_examples = 4000  # of a built-in task
    config.downstream.dev_examples = 1000
    config.downstream.finetune = load_config("finetune")  # configs/finetune.py: every number
    config.downstream.finetune.length = 64
    config.downstream.finetune.epochs = 5
    config.downstream.finetune.dropout = -1.0  # as in pre-training
    config.downstream.finetune.keep_weights = False
    config.downstream.finetune.optimizer.warmup_from_zero = False  # no update without effect

    # What is measured in every run.
    config.measure = ConfigDict()
    config.measure.length = 63  # positions in a matrix of attention weights, without [CLS]
    config.measure.words = 64  # probing words, over which the matrices are averaged
    config.measure.lengths = (64, 128, 256, 512)  # inputs of 1, 2, 4 and 8 times data.length
    config.measure.goals = (5.3,)  # nats, half a nat below unigram frequencies; reports the step
    config.measure.minimal_pairs = 500  # of the built-in grammar
    config.measure.probe_task = "builtin_nli"
    config.measure.probe_pairs = 1500
    config.measure.probe_file = ""  # empty: pairs of the built-in grammar
    return config
