"""Fine-tuning on one task.

  tupe finetune --config=finetune --checkpoint=runs/tupe_r --task=cola --data_dir=glue
  tupe finetune --config=finetune:quick --checkpoint=runs/quickstart --task=builtin_nli

paper   the TUPE paper's recipe: batches of 32, 10 epochs (5 for MNLI, QNLI, QQP, SNLI), dropout
        0.1, 6 % warm-up, linear decay; one of its four learning rates (--learning_rates for all).
        Expected, from the paper (TUPE-R base, median of 5 seeds): CoLA 63.6, RTE 73.6, MNLI 86.2.
quick   for small models: minutes on a CPU, dropout as in pre-training.
"""

from ml_collections import ConfigDict

from tupe_jax.config.validation import one_of


def get_config(form: str = "paper") -> ConfigDict:
    config = ConfigDict()
    config.batch_size = 32
    config.length = 512  # longest input in tokens, [CLS] included
    config.epochs = 0  # 0: the paper's number for the task, 10 or 5
    config.evaluations_per_epoch = 2
    config.dropout = 0.1  # of hidden states and attention weights; negative: as in pre-training
    config.from_scratch = False  # True: random weights, the baseline of pre-training
    config.at_once = 0  # trials in one program; 0: as many as fit into memory
    config.save_seconds = 60  # between checkpoints
    config.keep_weights = True  # of each trial's best evaluation

    # The paper's, and the official code's rules; recipes/paper.py explains the names.
    config.optimizer = ConfigDict()
    config.optimizer.name = "adam_released"
    config.optimizer.peak_learning_rate = 3e-5  # of 2e-5, 3e-5, 4e-5 and 5e-5; --learning_rates
    config.optimizer.warmup = "6%"
    config.optimizer.schedule = "linear"
    config.optimizer.decay = "10%"  # used by schedule = "wsd" only
    config.optimizer.final_fraction = 0.0
    config.optimizer.warmup_from_zero = True
    config.optimizer.beta1 = 0.9
    config.optimizer.beta2 = 0.999
    config.optimizer.eps = 1e-6
    config.optimizer.weight_decay = 0.01
    config.optimizer.clip_norm = 1.0
    config.optimizer.position_learning_rate_factor = 1.0

    if one_of(form, ("paper", "quick"), "form") == "quick":
        config.length = 128
        config.epochs = 5
        config.dropout = -1.0
        config.optimizer.peak_learning_rate = 1e-3
        config.optimizer.warmup_from_zero = False
    return config
