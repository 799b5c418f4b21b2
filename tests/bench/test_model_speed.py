"""`tupe bench step|forward|attention`: reports match the work."""

import json

import jax
import pytest

from tupe_jax import cli
from tupe_jax.bench import model_speed, timing
from tupe_jax.bench.timing import Speed, seconds_in_turns
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.model.flops import attention_flops_per_token, training_flops_per_token

SMALL = ["--config=tupe_r:tiny", "--config.model.hidden_size=16", "--config.train.batch_size=4"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(timing, "SECONDS_PER_REPEAT", 0.01)
    monkeypatch.setitem(timing.MATMUL_SIZES, "cpu", 64)


def bench(capsys, *words):
    assert cli.main(["bench", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_one_object_per_shape(capsys):
    lines = bench(capsys, "forward", *SMALL, "--shapes=2x16,2x600", "--json")
    assert [json.loads(line)["shape"] for line in lines] == [[2, 16], [2, 600]]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["step", "attention"])
def test_what_is_reported(what, capsys):
    local = "--config.model.attention_window=4", "--config.model.attention_global_every=0"
    (line,) = bench(capsys, what, *SMALL, *local, "--shapes=2x16", "--json")
    result = json.loads(line)
    assert result["what"] == what
    assert 0 < result["lowest"] <= result["tokens_per_second"] <= result["highest"]
    assert result["fraction_of_matmul_peak"] > 0
    config = from_config_dict(load_config("tupe_r:tiny", [*SMALL[1:], *local]))
    flops = {
        "step": training_flops_per_token(config.model, 16, config.objective.mask_rate, rows=2),
        "attention": 3 * attention_flops_per_token(config.model, 16, window=4),
    }[what]
    assert result["model_flops_per_second"] == pytest.approx(flops * result["tokens_per_second"])


@pytest.mark.slow
def test_the_same_model_of_transformers_takes_turns(capsys):
    words = ("step", *SMALL, "--config.model.dtype=float32", "--shapes=2x16")
    lines = bench(capsys, *words, "--against=transformers", "--json")
    ours, theirs = (json.loads(line) for line in lines[:2])
    assert (ours["what"], theirs["what"]) == ("step", "transformers")


@pytest.mark.slow
def test_attention_alone_has_gradients_of_attention_alone(monkeypatch):
    monkeypatch.setattr(model_speed, "_repeated", lambda f, mesh, *inputs: (inputs, f(*inputs)))
    config = from_config_dict(load_config("tupe_r:tiny", SMALL[1:]))
    (_, *inputs), gradients = model_speed.attention_alone(model_speed.with_shape(config, 2, 16))
    assert [x.shape for x in jax.tree.leaves(gradients)] == [
        x.shape for x in jax.tree.leaves(inputs)
    ]
    assert all(gradient.any() for gradient in jax.tree.leaves(gradients))


def test_works_take_turns():
    order = []
    works = {name: lambda count, name=name: order.append(name) for name in "ab"}
    seconds = seconds_in_turns(works, repeats=3)
    assert "".join(order) == "aabb" + "ababab"  # compile and warm up, then repeats
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}


def test_a_line_to_read():
    speed = Speed("step", (16, 128), (4100.0, 4000.0, 4300.0), 25e6, 137e9)
    assert str(speed) == (
        "step 16 x 128: 4.10 k tokens/s (median of 3, 4.00 k to 4.30 k); "
        "102 GFLOP/s, 75% of the matmul peak"
    )
    assert "matmul" not in str(Speed("reader", (8, 8), (100.0,)))


@pytest.mark.parametrize("shapes", ["16", "16x", "0x128", "16x128;4x512"])
def test_odd_shapes_are_rejected(shapes, capsys):
    assert cli.main(["bench", "step", f"--shapes={shapes}"]) == cli.USER_ERROR_EXIT_CODE
    assert f"--shapes={shapes} must be" in capsys.readouterr().err


def test_only_steps_are_compared(capsys):
    assert cli.main(["bench", "forward", "--against=transformers"]) == cli.USER_ERROR_EXIT_CODE
    assert "forward" in capsys.readouterr().err
