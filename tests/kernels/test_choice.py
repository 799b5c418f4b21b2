"""Which implementation of attention runs, and what the log says."""

import pytest

from tests.model.helpers import small_config
from tupe_jax.config import model_config
from tupe_jax.errors import UserError
from tupe_jax.platform import attention_choice, resolve


def chosen(platform, variant="tupe_r", **settings):
    return attention_choice(model_config("base", variant, **settings), platform)


@pytest.mark.parametrize(
    ("platform", "settings", "implementation", "reason"),
    [
        ("tpu", {}, "pallas", "the fused kernel for tpu"),
        ("tpu", {"variant": "rope"}, "pallas", "fused"),
        ("tpu", {"variant": "attenuated_layer"}, "pallas", "fused"),
        ("tpu", {"variant": "shaw"}, "xla", "position.relative='shaw' adds terms"),
        ("tpu", {"variant": "deberta"}, "xla", "position.relative='deberta' adds terms"),
        ("tpu", {"num_heads": 8}, "xla", "heads of 96 features"),
        ("tpu", {"attention_implementation": "xla"}, "xla", "asked for"),
        ("cpu", {}, "xla", "no fused kernel for cpu"),
        ("cpu", {"attention_implementation": "pallas"}, "pallas", "asked for"),
        ("gpu", {}, "xla", "no fused attention for model.dtype='float32'"),
        ("gpu", {"dtype": "bfloat16"}, "cudnn", "xla in training, for model.attention_dropout=0.1"),
        ("gpu", {"dtype": "bfloat16", "attention_dropout": 0.0}, "cudnn", "kernel for gpu"),
        ("gpu", {"dtype": "bfloat16", "num_heads": 4}, "xla", "at most 128 features, not 192"),
    ],
)
def test_choice_and_reason(platform, settings, implementation, reason):
    choice = chosen(platform, **settings)
    assert choice.implementation == implementation
    assert reason in str(choice)
    assert str(choice).startswith(f"attention: {implementation} (")


@pytest.mark.parametrize(
    ("platform", "settings", "message"),
    [
        ("gpu", {"attention_implementation": "pallas"}, "the kernel is for TPUs"),
        ("tpu", {"attention_implementation": "cudnn"}, "cuDNN is for GPUs, not for tpu"),
        ("cpu", {"attention_implementation": "pallas", "variant": "shaw"}, "'shaw' adds terms"),
    ],
)
def test_asking_for_what_cannot_run(platform, settings, message):
    with pytest.raises(UserError, match=message):
        chosen(platform, **settings)


def test_resolved_is_resolved():
    config = resolve(small_config(), "tpu")
    assert config.attention_implementation == "xla"  # heads of 4
    assert resolve(config, "cpu") == config
