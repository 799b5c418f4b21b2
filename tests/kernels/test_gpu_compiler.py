"""The real GPU compiler takes the kernels: code for the target, without spilled registers.

It needs the extra `cuda` (3.4 GB), which CI does not install:

    pip install -e '.[test,cuda]' && python -m pytest -m '' tests/kernels/test_gpu_compiler.py
"""

import re
import subprocess
from pathlib import Path

import jax
import pytest
from jax.sharding import SingleDeviceSharding

from tupe_jax.aot.targets import parse_target
from tupe_jax.kernels.gpu import gpu_attention

nvcc = pytest.importorskip("nvidia.cuda_nvcc")
pytest.importorskip("jax_cuda12_plugin")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimised")]

PTXAS = Path(next(iter(nvcc.__path__))) / "bin" / "ptxas"
KERNELS = {f"gpu_attention_{of}" for of in ("forward", "dq", "dkv", "dbias")}
TARGETS = {"a100:1": "sm_80", "h100:1": "sm_90a"}


def compiled(target, dump, batch, length, num_heads, head_size, window=0):
    """Forward and backward of one layer's attention in bfloat16."""
    sharding = SingleDeviceSharding(parse_target(target).devices()[0])

    def array(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def step(q, k, v, bias, is_token_BxS, seed, g):
        def attend(q, k, v, bias):
            settings = {"scale": head_size**-0.5, "rate": 0.1, "window": window}
            return gpu_attention(q, k, v, bias, is_token_BxS, seed, **settings)

        out, pull_back = jax.vjp(attend, q, k, v, bias)
        return out, pull_back(g)

    tokens = array((batch, length, num_heads, head_size), "bfloat16")
    bias = array((num_heads, length, length), "float32")
    inputs = [tokens] * 3, bias, array((batch, length), "bool"), array((), "uint32"), tokens
    lowered = jax.jit(step).lower(*inputs[0], *inputs[1:])
    return lowered.compile(compiler_options={"xla_dump_to": str(dump)})


@pytest.mark.parametrize(
    ("head_size", "window"), [(32, 0), (64, 0), (128, 0), (64, 128), (128, 128)]
)
@pytest.mark.parametrize("target", TARGETS)
def test_code_for_the_target_without_spilled_registers(target, head_size, window, tmp_path):
    program = compiled(target, tmp_path, 32, 512, 768 // head_size, head_size, window)
    scores = 32 * (768 // head_size) * 512 * 512
    assert program.memory_analysis().temp_size_in_bytes < 2 * scores / 4
    seen = set()
    for file in tmp_path.glob("*.ptx"):
        code = file.read_text()  # empty where there are constants only
        assert set(re.findall(r"^\.target (\w+)", code, re.MULTILINE)) <= {TARGETS[target]}
        kernels = set(re.findall(r"\.entry (gpu_attention_\w+)", code))
        if kernels:
            seen |= kernels
            report = subprocess.run(
                [
                    PTXAS,
                    "--verbose",
                    f"--gpu-name={TARGETS[target]}",
                    "--output-file=/dev/null",
                    file,
                ],
                capture_output=True,
                text=True,
                check=True,
            ).stderr
            assert " 0 bytes spill stores, 0 bytes spill loads" in report, report
    assert seen == KERNELS


def test_one_layer_of_base_needs_no_memory_for_scores(tmp_path):
    program = compiled("a100:1", tmp_path, 64, 512, 12, 64)
    assert program.memory_analysis().temp_size_in_bytes < 5 * 2**20


def test_an_odd_length_and_head_size_compile(tmp_path):
    compiled("a100:1", tmp_path, 2, 77, 3, 24)
