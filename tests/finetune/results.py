"""Results of trials without training."""

from collections.abc import Mapping

from tupe_jax.finetune.results import Evaluation, Trial, TrialResult


def result(rate: float, seed: int, scores: Mapping[str, float], metric: str) -> TrialResult:
    """A trial with these scores by split at its best evaluation, and 0.1 less at its last."""
    best = Evaluation(10, 1.0, {s: {metric: v} for s, v in scores.items()}, train_loss=0.5)
    last = Evaluation(20, 2.0, {s: {metric: v - 0.1} for s, v in scores.items()}, train_loss=0.4)
    return TrialResult(Trial(rate, seed), evaluations=(best, last), best=best)
