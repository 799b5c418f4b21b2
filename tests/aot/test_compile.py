"""What --fit chooses, with a compiler whose memory is a line: rows x bytes of a policy."""

import json

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from tupe_jax.aot import compile as aot
from tupe_jax.aot.compile import CompiledStep
from tupe_jax.aot.report import as_json, as_text
from tupe_jax.aot.targets import GPUS, parse_target
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import model_config
from tupe_jax.distributed.hardware import GIB
from tupe_jax.distributed.sharding_rules import MESH_AXES

TARGET = parse_target("v5e:1x1")  # 15.75 GiB
GIB_PER_ROW = {"none": 0.6, "dots": 0.5, "projections": 0.3, "full": 0.1}


@pytest.fixture
def mesh():
    return Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1, 1), MESH_AXES)


@pytest.fixture
def asked(monkeypatch):
    """The (policy, rows) that were compiled."""
    compiled = []

    def compile_for(config, target, mesh):
        remat, rows = config.model.remat, aot.batch_per_device(config, mesh)
        compiled.append((remat, rows))
        needed = int((1.25 + GIB_PER_ROW[remat] * rows) * GIB)
        collectives = [] if needed <= target.chip.memory else None
        return aot.CompileResult(
            config, target, mesh, CompiledStep({"all": needed}, collectives, 1.0)
        )

    monkeypatch.setattr(aot, "compile_for", compile_for)
    return compiled


def config(rows, *overrides):
    return from_config_dict(
        load_config("tupe_r", [f"--config.train.batch_size={rows}", *overrides])
    )


@pytest.mark.parametrize(
    ("rows", "remat", "most"),
    [
        (16, "none", 24),  # fits as it is: only the batch grows
        (24, "none", 24),
        (28, "dots", 28),  # 15.25 GiB; 32 would not fit
        (40, "projections", 48),
        (100, "full", 144),
        (1000, "full", 144),  # fits in no way
    ],
)
def test_the_cheapest_policy_for_the_batch_then_the_largest_batch(asked, mesh, rows, remat, most):
    chosen = aot.fit(config(rows), TARGET, mesh)
    assert chosen.fits
    assert (chosen.config.model.remat, chosen.batch_per_device) == (remat, most)
    assert len(asked) == len(set(asked)) <= 8


def test_known_results_are_not_compiled_again(asked, mesh):
    known = aot.compile_for(config(100), TARGET, mesh)
    aot.fit(config(100), TARGET, mesh, known=known)
    assert asked.count(("none", 100)) == 1


def test_the_advice_can_be_pasted(asked, mesh):
    known = aot.compile_for(config(288), TARGET, mesh)
    chosen = aot.fit(config(288), TARGET, mesh, known=known)
    page = as_text(known, chosen, peak_share=0.4)
    missing = int((1.25 + 0.6 * 288) * GIB) - int(15.75 * GIB)
    assert f"does not fit, by {missing:,} bytes" in page
    assert "--config.model.remat=full --config.train.batch_size=144" in page
    assert "--config.model.remat=full --config.train.accumulate=2" in page
    values = json.loads(as_json(known, chosen, peak_share=0.4))
    assert values["fits"] is False
    assert values["missing_bytes_per_device"] == missing
    assert values["fit"]["batch_per_device"] == 144


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, 2 * 64 * 12 * 512 * 512),  # 384 MiB; cuDNN asks for 385.5
        ({"attention_dropout": 0.1}, 0),
        ({"position": "bert_a"}, 0),  # no bias, so no gradient of one
    ],
)
def test_the_workspace_of_cudnn(overrides, expected):
    settings = {"position": "tupe_r", "attention_dropout": 0.0, **overrides}
    model = model_config("base", dtype="bfloat16", **settings)
    assert aot.cudnn_workspace(model, batch=64, length=512) == expected


def test_the_architectures_and_kernels_of_code(tmp_path):
    code = ".version 8.7\n.target {}\n.address_size 64\n.visible .entry fusion_2(\n"
    for number, name in enumerate(["sm_80", "sm_80", "sm_90a"]):
        (tmp_path / f"module_{number}.ptx").write_text(code.format(name))
    (tmp_path / "constants.ptx").write_text("")
    assert aot.gpu_code(tmp_path) == aot.GpuCode({"sm_80", "sm_90a"}, {"fusion_2"})


@pytest.mark.parametrize(("name", "expected"), [("a100", "sm_80"), ("h100", "sm_90a")])
def test_the_architecture_of_a_gpu(name, expected):
    assert GPUS[name].architecture == expected
