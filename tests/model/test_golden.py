"""The official implementation's tensors, reproduced on every path through our code.

`golden/*.npz` hold weights, one padded batch and what the released PyTorch code computed from it
(evaluation mode, float32).
"""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests import users
from tests.model.helpers import as_on_gpus, reconfigured
from tupe_jax.interop import fairseq
from tupe_jax.kernels import block_sizes
from tupe_jax.model.encoder import REMAT_POLICIES

GOLDEN = Path(__file__).parent.parent / "golden"
PAD = 1


def load(name):
    file = np.load(GOLDEN / f"{name}.npz")
    by_group = {}
    for key in file.files:
        group, rest = key.split("/", 1)
        by_group.setdefault(group, {})[rest] = file[key]
    return by_group


def close(ours, official, where=...):
    """Agreement to 1e-5 of the largest entry."""
    difference = np.abs(np.asarray(ours) - official)[where].max()
    assert difference <= 1e-5 * np.abs(official).max(), difference / np.abs(official).max()


@pytest.fixture(scope="module")
def golden(request):
    return load(request.param)


def paths(names, every, some):
    """A few paths for both models; every path for TUPE-R, which has all that TUPE-A has."""
    fast = [(model, *path) for model in ("tupe_r", "tupe_a") for path in some]
    slow = [
        pytest.param("tupe_r", *path, marks=pytest.mark.slow) for path in every if path not in some
    ]
    return pytest.mark.parametrize(("golden", *names), fast + slow, indirect=["golden"])


@pytest.fixture(scope="module")
def official(golden):
    return model_of(golden)


def model_of(golden):
    heads = int(golden["config"]["encoder_attention_heads"])
    return fairseq.from_state_dict(golden["model"], num_heads=heads, pad_id=PAD)


def run(function, model, compiled):
    """Eagerly, or as a pure function of arrays under jit."""
    if not compiled:
        return function(model)
    graph, state = nnx.split(model)
    return jax.jit(lambda state: function(nnx.merge(graph, state)))(state)


@paths(
    ("layer_loop", "how"),
    every=[(loop, how) for loop in ("scan", "unroll") for how in ("eager", "jit")],
    some=[("scan", "jit"), ("unroll", "eager")],
)
def test_outputs(golden, official, layer_loop, how):
    model = reconfigured(official, layer_loop=layer_loop)
    tokens = golden["out"]["tokens"]
    words = tokens != PAD

    def outputs(model):
        return (
            model.hidden_states(tokens),
            model.encode(tokens),
            model(tokens),
            model.classify(tokens, head="head"),
        )

    hidden, encoded, logits, class_logits = run(outputs, model, compiled=how == "jit")
    assert len(hidden) == model.config.num_layers + 1
    for i, state in enumerate(hidden):
        close(state, golden["out"][f"hidden/{i}"], words)
    close(encoded, golden["out"]["hidden/2"], words)
    close(logits, golden["out"]["logits"], words)
    close(class_logits, golden["out"]["class_logits"])


def mean_loss(model, tokens, targets):
    log_p = jax.nn.log_softmax(model(tokens))
    scored = targets != PAD
    chosen = jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0]
    return -(chosen * scored).sum() / scored.sum()


@paths(
    ("layer_loop", "remat", "how"),
    every=[
        *((loop, remat, "jit") for loop in ("scan", "unroll") for remat in sorted(REMAT_POLICIES)),
        # Eagerly the same code runs operation by operation, which takes long: one of each.
        ("scan", "full", "eager"),
        ("unroll", "none", "eager"),
    ],
    some=[("scan", "projections", "jit"), ("unroll", "dots", "jit")],
)
def test_loss_and_every_gradient(golden, official, layer_loop, remat, how):
    model = reconfigured(official, layer_loop=layer_loop, remat=remat)
    check_gradients(golden, model, compiled=how == "jit")


def check_gradients(golden, model, compiled):
    tokens, targets = golden["out"]["tokens"], golden["out"]["targets"]
    graph = nnx.graphdef(model)

    def loss_and_gradient(model):
        return nnx.value_and_grad(mean_loss)(model, tokens, targets)

    loss, gradient = run(loss_and_gradient, model, compiled)
    close(loss * golden["out"]["num_masked"], golden["out"]["mlm_loss_sum"])
    released = fairseq.to_state_dict(nnx.merge(graph, gradient))
    for name, expected in golden["grad"].items():
        difference = np.abs(released[name] - expected).max()
        assert difference <= 1e-5 * np.abs(expected).max(), name


AS_USERS_DO = """
from tests.model.test_golden import check_gradients, load, model_of

golden = load("tupe_r")
check_gradients(golden, model_of(golden), compiled=True)
print("the same")
"""


@pytest.mark.slow
def test_loss_and_every_gradient_compiled_as_for_users():
    """The other tests compile in a hurry; this one with all that the compiler can do."""
    done = subprocess.run(
        [sys.executable, "-c", AS_USERS_DO],
        capture_output=True,
        text=True,
        env=users.environment(),
    )
    assert done.stdout == "the same\n", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("longest_single_block", [1024, 0], ids=["single block", "multi block"])
def test_the_kernels_keep_it(longest_single_block, monkeypatch):
    """Interpreted, as their Pallas code runs on TPUs: loss and every gradient."""
    monkeypatch.setattr(block_sizes, "_LONGEST_SINGLE_BLOCK", longest_single_block)
    golden = load("tupe_r")  # it has all that tupe_a has
    fused = reconfigured(model_of(golden), layer_loop="scan", attention_implementation="pallas")
    check_gradients(golden, fused, compiled=True)


@pytest.mark.slow
def test_the_kernels_for_gpus_keep_it(monkeypatch):
    as_on_gpus(monkeypatch)
    golden = load("tupe_r")
    check_gradients(golden, reconfigured(model_of(golden), layer_loop="scan"), compiled=True)
