"""A study at the TUPE paper's size: its pre-training, its protocol on GLUE, one seed."""

from ml_collections import ConfigDict

from tupe_jax.config.loading import load_config, recipe


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seeds = (0,)
    config.learning_rates = (1e-4,)
    config.tuning_seed = -1  # -1: tune on the first seed; another one is held out
    config.equal_flops = False  # True: as many steps as cost the FLOPs of the first variant

    # Pre-training. Each variant has its own encoding, and each run its own seed and rate.
    config.pretrain = recipe("paper")  # configs/recipes/paper.py: every number

    # Fine-tuning of every run.
    glue = load_config("glue")  # configs/glue.py: the paper's tasks, rates, seeds and settings
    config.downstream = ConfigDict()
    config.downstream.tasks = glue.tasks
    config.downstream.learning_rates = glue.learning_rates
    config.downstream.seeds = glue.seeds
    config.downstream.data_dir = "glue"
    config.downstream.train_examples = 4000  # of a built-in task, if an override names one
    config.downstream.dev_examples = 1000
    config.downstream.finetune = glue.finetune

    # What is measured in every run.
    config.measure = ConfigDict()
    config.measure.length = 128  # positions in a matrix of attention weights, without [CLS]
    config.measure.words = 64  # probing words, over which the matrices are averaged
    config.measure.lengths = (512, 1024, 2048)  # inputs of 1, 2 and 4 times data.length
    config.measure.goals = ()  # validation losses in nats, to report the step that reaches them
    config.measure.minimal_pairs = 500  # of the built-in grammar
    config.measure.probe_task = "mnli"
    config.measure.probe_pairs = 1500
    config.measure.probe_file = ""  # empty: pairs of the built-in grammar
    return config
