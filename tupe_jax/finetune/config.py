"""Settings of fine-tuning; the defaults are the TUPE paper's protocol."""

from dataclasses import dataclass, field

from tupe_jax.config.schema import OptimizerConfig
from tupe_jax.config.validation import check_fields, require_positive
from tupe_jax.utils.errors import UserError


def _paper_optimizer() -> OptimizerConfig:
    return OptimizerConfig(peak_learning_rate=3e-5, warmup="6%", warmup_from_zero=True)


@dataclass(frozen=True)
class FinetuneConfig:
    """How a trial is trained.

    Each trial has its own learning rate; `optimizer.peak_learning_rate` is used if the command
    line gives none.
    """

    batch_size: int = 32
    length: int = 512
    """Longest input in tokens, [CLS] included; longer ones are truncated."""
    epochs: int = 0
    """0: the paper's number for the task."""
    evaluations_per_epoch: int = 2
    dropout: float = 0.1
    """Dropout of hidden states and attention weights; negative: as in pre-training."""
    from_scratch: bool = False
    """Start from random weights: the baseline of pre-training."""
    at_once: int = 0
    """Trials in one program; 0: as many as fit into device memory."""
    save_seconds: int = 60
    """Time between checkpoints."""
    keep_weights: bool = True
    """Keep the model of each trial's best evaluation."""
    optimizer: OptimizerConfig = field(default_factory=_paper_optimizer)

    def __post_init__(self) -> None:
        check_fields(self, "finetune")
        require_positive(self, "finetune", "batch_size", "evaluations_per_epoch")
        if self.length < 8:
            raise UserError(f"finetune.length={self.length} must be at least 8")
        for name in ("epochs", "at_once", "save_seconds"):
            if getattr(self, name) < 0:
                raise UserError(f"finetune.{name}={getattr(self, name)} must not be negative")
        if self.dropout >= 1:
            raise UserError(f"finetune.dropout={self.dropout} must be below 1")


@dataclass(frozen=True)
class GlueConfig:
    """The protocol: each task with each learning rate and each seed."""

    tasks: tuple[str, ...] = ("mnli", "qnli", "qqp", "sst2", "cola", "mrpc", "rte", "stsb")
    """The paper's tasks, in the order of its table."""
    learning_rates: tuple[float, ...] = (2e-5, 3e-5, 4e-5, 5e-5)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    finetune: FinetuneConfig = field(default_factory=lambda: FinetuneConfig(keep_weights=False))
    """No weights are kept: those of 160 trials of the base model would be 70 GB."""

    def __post_init__(self) -> None:
        check_fields(self, "glue")
        for name in ("tasks", "learning_rates", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise UserError(f"glue.{name}={values} must have one value or more, none twice")
