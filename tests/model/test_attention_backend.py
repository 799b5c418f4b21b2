"""Which implementation of attention runs, and what the log says."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from tests.model.helpers import random_tokens, small_config, spread_model, with_position
from tupe_jax.config.schema import model_config
from tupe_jax.model.attention_backend import (
    attention_choice,
    attention_choices,
    platform_of,
    unrolls_layers,
)
from tupe_jax.model.positions import RELATIVE, Encoding
from tupe_jax.model.positions.encoding import Entry
from tupe_jax.utils.errors import UserError

BF16 = {"dtype": "bfloat16"}
CUDNN = BF16 | {"attention_implementation": "cudnn"}


@pytest.fixture(autouse=True)
def formless(monkeypatch):
    """A user's encoding, whose bias has no factors."""
    encoding = Encoding(bias=lambda _, length: jnp.zeros((2, length, length)))
    monkeypatch.setitem(RELATIVE, "formless", Entry(lambda config: encoding, 0))


def chosen(platform, variant="tupe_r", length=512, relative=None, window=0, **settings):
    config = model_config("base", variant, attention_window=window, **settings)
    if relative is not None:
        config = with_position(config, relative=relative)
    return attention_choice(config, platform, length, window)


@pytest.mark.parametrize(
    ("platform", "settings", "implementation", "reason"),
    [
        ("tpu", {}, "pallas", "the fused kernel for tpu; one block"),
        ("tpu", {"length": 2048}, "pallas", "the fused kernel for tpu; many blocks"),
        ("tpu", {"length": 1024}, "pallas", "one block"),
        ("tpu", {"length": 1024, "num_heads": 24}, "pallas", "many blocks"),
        ("tpu", {"relative": "formless"}, "pallas", "one block"),
        ("tpu", {"relative": "formless", "length": 2048}, "xla", "for 2048 tokens too large"),
        ("tpu", {"variant": "rope"}, "pallas", "fused"),
        ("tpu", {"variant": "attenuated_layer"}, "pallas", "fused"),
        ("tpu", {"variant": "shaw"}, "xla", "position.relative='shaw' adds terms"),
        ("tpu", {"variant": "deberta"}, "xla", "position.relative='deberta' adds terms"),
        ("tpu", {"num_heads": 8}, "xla", "heads of 96 features"),
        ("tpu", {"attention_implementation": "xla"}, "xla", "requested"),
        ("cpu", {}, "xla", "no fused kernel for cpu"),
        ("cpu", {"attention_implementation": "pallas"}, "pallas", "requested"),
        ("gpu", {}, "xla", "for model.dtype='bfloat16', not 'float32'"),
        ("gpu", BF16, "pallas", "the fused kernel for gpu)"),
        ("gpu", {**BF16, "attention_dropout": 0.0}, "pallas", "the fused kernel for gpu)"),
        ("gpu", {**BF16, "length": 511}, "pallas", "the fused kernel for gpu)"),
        ("gpu", {**BF16, "length": 8192, "relative": "formless"}, "pallas", "for gpu; the bias"),
        ("gpu", {**BF16, "num_heads": 8}, "pallas", "for gpu)"),
        ("gpu", {**BF16, "num_heads": 4}, "xla", "at most 128 features, not 192"),
        ("gpu", {**BF16, "variant": "shaw"}, "xla", "position.relative='shaw' adds terms"),
        ("gpu", CUDNN, "cudnn", "requested; xla in training, for model.attention_dropout=0.1"),
        ("gpu", {**CUDNN, "attention_dropout": 0.0}, "cudnn", "(requested)"),
        ("gpu", {**CUDNN, "length": 511, "variant": "rope"}, "cudnn", "requested"),
        ("gpu", {**BF16, "length": 8192}, "pallas", "for gpu; the bias takes 3 GiB, its gradient"),
        ("gpu", {**BF16, "length": 8192, "variant": "rope"}, "pallas", "for gpu)"),
        ("gpu 7.5", BF16, "xla", "no fused kernel for gpu 7.5"),
        ("gpu gfx90a", BF16, "xla", "no fused kernel for gpu gfx90a"),
        ("tpu", {"window": 128}, "pallas", "one block of keys, masked outside a window of 128"),
        ("tpu", {"window": 128, "length": 1024}, "pallas", "blocks of keys in a window of 128"),
        ("tpu", {"window": 128, "length": 8192}, "pallas", "blocks of keys in a window of 128"),
        ("tpu", {"window": 1000, "length": 1024}, "pallas", "one block of keys, masked"),
        ("tpu", {"window": 2, "length": 1024, "relative": "formless"}, "pallas", "one block"),
        ("tpu", {"window": 128, "variant": "shaw"}, "xla", "position.relative='shaw' adds terms"),
        ("gpu", {**BF16, "window": 128}, "pallas", "blocks of keys in a window of 128"),
        ("gpu", {"window": 128}, "xla", "not 'float32'; blocks of keys in a window of 128"),
        ("cpu", {"window": 128}, "xla", "for cpu; blocks of keys in a window of 128"),
        ("cpu", {"window": 128, "length": 256}, "xla", "no fused kernel for cpu)"),
        ("cpu", {"window": 128, "relative": "formless"}, "xla", "no fused kernel for cpu)"),
        ("cpu", {"window": 128, "variant": "shaw"}, "xla", "no fused kernel for cpu)"),
        ("cpu", {"window": 128, "segment_attention": True}, "xla", "no fused kernel for cpu)"),
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
        ("gpu", {"attention_implementation": "pallas"}, "model.dtype='bfloat16'"),
        ("gpu 7.5", {**BF16, "attention_implementation": "pallas"}, "8.0.*gpu 7.5"),
        ("gpu 7.5", CUDNN, "8.0.*gpu 7.5"),
        ("gpu", {**CUDNN, "length": 511}, "511"),
        ("gpu", {**CUDNN, "dtype": "float32"}, "model.dtype='float32'"),
        ("gpu", {**CUDNN, "num_heads": 4}, "192"),
        ("gpu", {**CUDNN, "window": 128}, "cuDNN.*model.attention_window=128"),
        ("tpu", {"attention_implementation": "cudnn"}, "cuDNN.*tpu"),
        ("cpu", {"attention_implementation": "pallas", "variant": "shaw"}, "'shaw'"),
        (
            "tpu",
            {"attention_implementation": "pallas", "relative": "formless", "length": 2048},
            "position.relative='formless'",
        ),
    ],
)
def test_asking_for_what_cannot_run(platform, settings, message):
    with pytest.raises(UserError, match=message):
        chosen(platform, **settings)


@pytest.mark.parametrize(
    ("platform", "architecture", "name"),
    [
        ("gpu", "8.0", "gpu"),
        ("gpu", "12.0", "gpu"),
        ("gpu", "7.5", "gpu 7.5"),
        ("gpu", "gfx90a", "gpu gfx90a"),
        ("gpu", None, "gpu"),  # a device that is only compiled for
        ("tpu", None, "tpu"),
    ],
)
def test_the_kernel_is_for_gpus_that_triton_supports(platform, architecture, name):
    device = SimpleNamespace(platform=platform)
    if architecture:
        device.compute_capability = architecture
    assert platform_of(device) == name


def kernels_of(config, platform, length):
    """The names of the Pallas kernels in a forward pass on a mesh of that platform."""
    device = AbstractDevice(device_kind="some", num_cores=None, platform=platform)
    model, tokens = spread_model(config), random_tokens(length=length)
    with use_abstract_mesh(AbstractMesh((1,), ("data",), abstract_device=device)):
        program = str(jax.make_jaxpr(model.encode)(jnp.asarray(tokens)))
    return {
        name
        for name in ("attention_forward", "long_attention_forward", "gpu_attention_forward")
        if f"name={name}" in program
    }


@pytest.mark.parametrize(
    ("platform", "relative", "length", "kernels"),
    [
        ("tpu", "t5", 16, {"attention_forward"}),
        ("tpu", "t5", 1200, {"long_attention_forward"}),
        ("tpu", "formless", 16, {"attention_forward"}),
        ("tpu", "formless", 1200, set()),
        ("gpu", "t5", 16, {"gpu_attention_forward"}),
        ("gpu", "formless", 1200, {"gpu_attention_forward"}),
        ("cpu", "t5", 16, set()),
    ],
)
def test_what_the_log_says_is_what_runs(platform, relative, length, kernels):
    dtype = "bfloat16" if platform == "gpu" else "float32"
    config = small_config(hidden_size=64, num_heads=2, num_layers=1, dtype=dtype)
    config = with_position(config, relative=relative, max_length=2048, untie_cls=False)
    choice = attention_choice(config, platform, length)
    assert kernels_of(config, platform, length) == kernels
    assert (choice.implementation == "pallas") == bool(kernels)
    assert choice.takes_factors == (kernels == {"long_attention_forward"})


def test_global_and_local_layers_may_have_different_kernels():
    """The log names each kernel once."""
    sizes = {"hidden_size": 64, "num_heads": 2, "attention_window": 2}
    config = with_position(small_config("t5", **sizes), max_length=2048)
    assert config.windows == (0, 2, 2)
    choices = attention_choices(config, "tpu", 800)
    assert {window: choice.kernel for window, choice in choices.items()} == {
        0: "single_block",
        2: "multi_block",
    }
    assert len({str(choice) for choice in choices.values()}) == 2
    assert kernels_of(config, "tpu", 800) == {"attention_forward", "long_attention_forward"}
    assert len(set(attention_choices(config, "cpu", 100).values())) == 1


@pytest.mark.parametrize("layer_loop", ["auto", "scan"])
def test_a_model_refuses_what_cannot_run(layer_loop):
    model = spread_model(small_config(attention_implementation="cudnn", layer_loop=layer_loop))
    with pytest.raises(UserError, match=r"cuDNN.*cpu"):
        model.encode(random_tokens())


def test_layers_are_unrolled_on_cpus_unless_asked_for():
    assert unrolls_layers(small_config(), "cpu")
    assert not unrolls_layers(small_config(), "tpu")
    assert not unrolls_layers(small_config(layer_loop="scan"), "cpu")
    assert unrolls_layers(small_config(layer_loop="unroll"), "tpu")
