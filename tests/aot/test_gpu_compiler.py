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


def test_code_for_another_gpu_is_an_error(monkeypatch):
    monkeypatch.setattr(aot, "code_architectures", lambda dump: frozenset({"sm_90a"}))
    with pytest.raises(UserError, match="sm_80"):
        compiled("a100:1", "xla")
