"""`tupe compile` with the real GPU compiler, which needs no GPU but the extra `cuda` (3.4 GB)."""

import pytest

from tupe_jax.aot import compile as aot
from tupe_jax.aot.report import as_text
from tupe_jax.aot.targets import GPUS, parse_target
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.utils.errors import UserError

pytest.importorskip("jax_cuda12_plugin")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimised")]


def compiled(name, attention):
    overrides = [
        "--config.model.dtype=bfloat16",
        "--config.model.num_layers=1",
        f"--config.model.attention_implementation={attention}",
    ]
    config, target = from_config_dict(load_config("tupe_r:tiny", overrides)), parse_target(name)
    return aot.compile_for(config, target, aot.mesh_for(config, target))


@pytest.mark.parametrize("attention", ["pallas", "cudnn"])
@pytest.mark.parametrize("name", ["a100:2", "h100:2"])
def test_code_is_for_the_target_and_the_workspace_of_cudnn_is_counted(name, attention):
    result = compiled(name, attention)
    architecture = GPUS[result.target.chip_name].architecture
    assert result.compiled.architectures == {architecture}
    assert f"code for       {architecture}" in as_text(result, None, 0.4)
    workspace = result.compiled.memory.get(aot.CUDNN_WORKSPACE)
    assert workspace == (None if attention == "pallas" else 2 * 32 * 4 * 64 * 64)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (aot.GpuCode(frozenset({"sm_90a"}), frozenset({"gpu_attention_dq"})), "sm_80"),
        (aot.GpuCode(frozenset({"sm_80"}), frozenset({"fusion"})), "no code of gpu_attention_"),
        (aot.GpuCode(frozenset(), frozenset()), "no code.*JAX_COMPILATION_CACHE_DIR"),
    ],
)
def test_code_that_is_not_seen_to_be_for_the_target_is_an_error(code, message, monkeypatch):
    monkeypatch.setattr(aot, "gpu_code", lambda dump: code)
    with pytest.raises(UserError, match=message):
        compiled("a100:1", "pallas")


def test_the_step_of_base_has_no_array_of_the_size_of_the_scores(monkeypatch):
    """Layers are scanned, so twelve of them compile in the time of one."""
    texts, read = [], aot.read_collectives
    monkeypatch.setattr(aot, "read_collectives", lambda *a: texts.append(a[0]) or read(*a))
    config = from_config_dict(load_config("tupe_r", ["--config.train.batch_size=64"]))
    target = parse_target("a100:1")
    result = aot.compile_for(config, target, aot.mesh_for(config, target))
    assert result.attention_implementation == "pallas"
    assert config.model.attention_dropout == 0.1
    [program] = texts
    assert "[12,512,512]" in program  # the bias, which all sequences share
    assert "[64,12,512,512]" not in program
    assert result.compiled.memory["temporaries"] < 18 * 2**30
