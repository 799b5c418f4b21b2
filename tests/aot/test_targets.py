"""Names of hardware, and the errors for wrong ones."""

import pytest

from tupe_jax.aot.targets import GPUS, gpu_target_config, parse_target
from tupe_jax.distributed.hardware import CHIPS
from tupe_jax.utils.errors import UserError


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("v5e:16x16", (16, 16)),
        ("v6e:1x1", (1, 1)),
        ("v5p:4x4x4", (4, 4, 4)),
        ("tpu7x:2x2x1", (2, 2, 1)),
        ("h100:8", (1, 8)),
        ("a100:2x8", (2, 8)),
    ],
)
def test_shapes(name, shape):
    assert parse_target(name).shape == shape


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v5:4x4", ["'v5'", "v5e"]),
        ("v5e", ["v5e:16x16"]),
        ("v5e:4", ["v5e:16x16"]),
        ("v5p:4x4", ["v5p:4x4x4"]),
        ("v5e:0x4", ["v5e:16x16"]),
        ("h100:2x2x8", ["h100:8", "2x8"]),
    ],
)
def test_wrong_names_list_the_right_ones(name, words):
    with pytest.raises(UserError) as error:
        parse_target(name)
    for word in words:
        assert word in str(error.value)


def test_a_missing_compiler_is_named_by_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for target, extra in (("v5e:2x2", "tupe_jax[tpu]"), ("h100:8", "tupe_jax[cuda]")):
        with pytest.raises(UserError, match=extra.replace("[", r"\[").replace("]", r"\]")):
            parse_target(target).devices()


def test_gpu_memory_is_the_share_that_jax_allocates(monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    assert parse_target("h100:8").chip.memory == int(0.75 * CHIPS["h100"].memory)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")
    assert parse_target("h100:8").chip.memory == int(0.9 * CHIPS["h100"].memory)


@pytest.mark.parametrize("name", GPUS)
def test_gpu_descriptions_are_text_protos(name):
    text = gpu_target_config(name)
    assert text.count("{") == text.count("}")
    assert f"device_memory_size: {CHIPS[name].memory}\n" in text
