"""A study of small models on your own text files, tuned; pre-training only."""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config, recipe


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seeds = (0, 1, 2)
    config.learning_rates = (7.5e-4, 1.5e-3, 3e-3)  # each variant is tuned
    config.tuning_seed = -1  # -1: tune on the first seed; another one is held out
    config.equal_flops = False  # True: as many steps as cost the FLOPs of the first variant

    # Pre-training. Each variant has its own encoding, and each run its own seed and rate.
    config.pretrain = recipe("tiny")  # configs/recipes/tiny.py: every number
    config.pretrain.model.vocab_size = 4096  # real text has more words
    config.pretrain.model.num_layers = 4
    config.pretrain.position.max_length = 64
    config.pretrain.data.task = "text:corpus/*.txt.gz"
    config.pretrain.data.cleaning = "all"
    config.pretrain.train.steps = 1000
    config.pretrain.train.log_every = 50
    config.pretrain.checkpoint.every = 250
    config.pretrain.checkpoint.keep = 1  # a study has many runs, each of them short
    config.pretrain.checkpoint.keep_best = False
    config.pretrain.eval.every = 25  # a fine loss curve, to compare variants along it

    # No fine-tuning: no tasks. The rest is used if an override names some.
    config.downstream = ConfigDict()
    config.downstream.tasks = ()
    config.downstream.learning_rates = (5e-4,)
    config.downstream.seeds = (0,)
    config.downstream.data_dir = ""
    config.downstream.train_examples = 4000  # of a built-in task
    config.downstream.dev_examples = 1000
    config.downstream.finetune = load_config("finetune")  # configs/finetune.py: every number
    config.downstream.finetune.dropout = -1.0  # as in pre-training
    config.downstream.finetune.keep_weights = False
    config.downstream.finetune.optimizer.warmup_from_zero = False  # no update without effect

    # What is measured in every run.
    config.measure = ConfigDict()
    config.measure.length = 63  # positions in a matrix of attention weights, without [CLS]
    config.measure.words = 64  # probing words, over which the matrices are averaged
    config.measure.lengths = (64, 128, 256, 512)  # inputs of 1, 2, 4 and 8 times data.length
    config.measure.goals = ()  # validation losses in nats, to report the step that reaches them
    config.measure.minimal_pairs = 0  # the built-in grammar is not real text
    config.measure.probe_task = ""  # empty: no probes, since nothing is fine-tuned
    config.measure.probe_pairs = 1500
    config.measure.probe_file = ""
    return config
