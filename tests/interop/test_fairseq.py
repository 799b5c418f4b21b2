"""The released checkpoint format, both ways and through the command line."""

import argparse
import json
import os
import re
import subprocess
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from flax import nnx

import tupe_jax
from tests.model import numpy_reference
from tests.model.helpers import logits, random_tokens, small_config, spread_model, with_position
from tupe_jax import cli
from tupe_jax.interop import fairseq
from tupe_jax.interop.fairseq_checkpoint import read_checkpoint
from tupe_jax.utils.errors import UserError

GOLDEN = Path(__file__).parent.parent / "golden"
PREFIX = "decoder.sentence_encoder"


def golden_state(name="tupe_r"):
    file = np.load(GOLDEN / f"{name}.npz")
    return {k.removeprefix("model/"): file[k] for k in file.files if k.startswith("model/")}


def assert_same_state(ours, theirs):
    assert sorted(ours) == sorted(theirs)
    for name, array in theirs.items():
        assert ours[name].dtype == array.dtype
        np.testing.assert_array_equal(ours[name], array, err_msg=name)


@pytest.mark.parametrize("name", ["tupe_a", "tupe_r"])
def test_every_array_comes_back_bit_for_bit(name):
    state = golden_state(name)
    assert_same_state(fairseq.to_state_dict(fairseq.from_state_dict(state, num_heads=4)), state)


@pytest.mark.parametrize("pre_layer_norm", [False, True])
def test_our_models_survive_the_way_there_and_back(pre_layer_norm):
    config = with_position(
        small_config("tupe_r", pre_layer_norm=pre_layer_norm, pad_id=1),
        relative_bins=32,
        max_distance=128,
    )
    model = spread_model(config, heads={"a.b": 2})
    state = fairseq.to_state_dict(model)
    assert (f"{PREFIX}.emb_out_layer_norm.weight" in state) == pre_layer_norm
    back = fairseq.from_state_dict(state, num_heads=4, pre_layer_norm=pre_layer_norm)
    assert back.config == config
    np.testing.assert_array_equal(logits(back, random_tokens()), logits(model, random_tokens()))


def test_the_newest_release_stacks_the_position_projections():
    state = golden_state()
    for kind in ("weight", "bias"):
        halves = [state.pop(f"{PREFIX}.pos_{x}_linear.{kind}") for x in "qk"]
        state[f"{PREFIX}.pos_proj.{kind}"] = np.concatenate(halves)
    buckets = [[numpy_reference.t5_bucket(j - i) for j in range(24)] for i in range(24)]
    state[f"{PREFIX}.rp_bucket"] = np.array(buckets)
    state[f"{PREFIX}.rp_bucket"][:, 0] = 32
    state[f"{PREFIX}.rp_bucket"][0] = 16
    model = fairseq.from_state_dict(state, num_heads=4)
    assert_same_state(fairseq.to_state_dict(model), golden_state())
    state[f"{PREFIX}.rp_bucket"][3, 7] = 9
    with pytest.raises(UserError, match=r"rp_bucket.*32"):
        fairseq.from_state_dict(state, num_heads=4)


def test_half_precision_is_read_exactly():
    state = {name: array.astype(np.float16) for name, array in golden_state().items()}
    back = fairseq.to_state_dict(fairseq.from_state_dict(state, num_heads=4))
    assert_same_state(back, {name: array.astype(np.float32) for name, array in state.items()})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop(f"{PREFIX}.layers.1.fc1.bias"), ["lacks", "layers.1.fc1.bias"]),
        (
            lambda s: s.update({"decoder.extra": np.zeros(3, np.float32)}),
            ["unknown array", "decoder.extra"],
        ),
        (
            lambda s: s.update({f"{PREFIX}.layers.1.fc1.bias": np.zeros(63, np.float32)}),
            ["layers.1.fc1.bias", "[63]", "[64]"],
        ),
        (lambda s: s.pop(f"{PREFIX}.pos.weight"), ["not a released TUPE model", "pos.weight"]),
        (
            lambda s: s.update({"decoder.lm_head.weight": np.zeros((97, 32), np.float32)}),
            ["lm_head.weight"],
        ),
        (lambda s: s.update({f"{PREFIX}.pos.weight": np.float32(3)}), ["pos.weight", "two axes"]),
        (lambda s: s.update({f"{PREFIX}.pos_proj.bias": np.zeros(64, np.float32)}), ["pos_proj"]),
        (
            lambda s: s.update({f"{PREFIX}.pos.weight": np.zeros((25, 32))}),
            ["pos.weight is float64", "float32"],
        ),
        (
            lambda s: s.update({f"{PREFIX}.emb_out_layer_norm.weight": np.ones(32, np.float32)}),
            ["emb_out_layer_norm", "pre_layer_norm"],
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(change, words):
    state = golden_state()
    change(state)
    with pytest.raises(UserError) as error:
        fairseq.from_state_dict(state, num_heads=4)
    for word in words:
        assert word in str(error.value)


def test_a_wrong_number_of_heads():
    with pytest.raises(UserError, match=r"hidden_size=32.*num_heads=5"):
        fairseq.from_state_dict(golden_state("tupe_a"), num_heads=5)
    with pytest.raises(UserError, match=r"\[33, 4\].*num_heads=2"):
        fairseq.from_state_dict(golden_state("tupe_r"), num_heads=2)


@pytest.mark.parametrize("variant", ["bert_a", "tupe_a_tie_cls", "bert_a_d", "rope"])
def test_other_encodings_have_no_released_form(variant):
    with pytest.raises(UserError, match=r"TUPE-A.*TUPE-R"):
        fairseq.to_state_dict(spread_model(small_config(variant)))


def test_another_eps_has_no_released_form():
    config = with_position(small_config(layer_norm_eps=1e-12), relative_bins=32, max_distance=128)
    with pytest.raises(UserError, match=r"layer_norm_eps=1e-12"):
        fairseq.to_state_dict(spread_model(config))


def test_a_head_may_have_any_name():
    config = with_position(small_config(), relative_bins=32, max_distance=128)
    model = spread_model(config, heads={"items": 2, "keys": 1})
    state = fairseq.to_state_dict(model)
    assert fairseq.from_state_dict(state, num_heads=4, pad_id=0).config == config
    assert all(array.flags.writeable for array in state.values())


def test_other_bins_have_no_released_form():
    with pytest.raises(UserError, match=r"32.*relative_bins=8"):
        fairseq.to_state_dict(spread_model(small_config("tupe_r")))


def test_a_gain_has_no_released_form():
    position = {"relative_bins": 32, "max_distance": 128, "options": {"t5_gain": 16.0}}
    with pytest.raises(UserError, match=r"position\.options\.t5_gain=16"):
        fairseq.to_state_dict(spread_model(with_position(small_config("tupe_r"), **position)))


# ------------------------------------------------------------------ tupe import-fairseq


def torch_checkpoint(path, scores=None, **arguments):
    state = {name: torch.from_numpy(array.copy()) for name, array in golden_state().items()}
    # The released trainer saves its meters, objects of a class that is not installed here.
    module = types.ModuleType("fairseq.meters")
    module.AverageMeter = type("AverageMeter", (), {"__module__": "fairseq.meters"})
    meter = module.AverageMeter()
    meter.sum = 3.0
    extra = {"train_meters": OrderedDict(loss=meter), **(scores or {})}
    content = {"model": state, "extra_state": extra}
    if arguments:
        content["args"] = argparse.Namespace(arch="roberta_base", **arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
        patch.setitem(sys.modules, "fairseq.meters", module)
        torch.save(content, path)
    return path


def test_a_real_pt_file(tmp_path, capsys):
    settings = {"encoder_attention_heads": 4, "encoder_normalize_before": False}
    path = torch_checkpoint(tmp_path / "checkpoint.pt", **settings)
    assert cli.main(["import-fairseq", str(path), str(tmp_path / "out")]) == 0
    assert "TUPE-R, 2 layers, 32 wide, 4 heads" in capsys.readouterr().out
    assert_same_state(fairseq.to_state_dict(tupe_jax.load(tmp_path / "out").module), golden_state())
    assert json.loads((tmp_path / "out/config.json").read_text())["model"]["num_heads"] == 4


def test_an_npz_file(tmp_path):
    out = tmp_path / "deep/out"
    assert cli.main(["import-fairseq", str(GOLDEN / "tupe_r.npz"), str(out)]) == 0
    assert_same_state(fairseq.to_state_dict(tupe_jax.load(out).module), golden_state())


@pytest.mark.slow
def test_without_a_tokenizer_a_model_is_analysed_and_exported(tmp_path, capsys):
    out, looks, back = (tmp_path / name for name in ("out", "looks", "back"))
    assert cli.main(["import-fairseq", str(GOLDEN / "tupe_r.npz"), str(out)]) == 0
    card = (out / "README.md").read_text()
    assert "It was imported from tupe_r.npz, a checkpoint of the official form." in card
    model = tupe_jax.load(out)
    assert model.position_bias(8).shape == (1, 4, 8, 8)
    with pytest.raises(UserError, match=r"/out .*--vocabulary="):
        model.encode("a text")
    asked = ["analyze", str(out), "--length=8", "--words=2", f"--out={looks}"]
    assert cli.main(asked) == 0
    report = (looks / "report.txt").read_text()
    assert "identical words" in report
    assert "No probes: the model has no tokenizer" in report
    capsys.readouterr()
    assert cli.main([*asked, "--pairs=p.jsonl"]) == cli.USER_ERROR_EXIT_CODE
    assert capsys.readouterr().err.count("\n") == 1
    assert cli.main(["export", str(out), str(back), "--format=fairseq"]) == 0
    assert {file.name for file in back.iterdir()} == {"README.md", "checkpoint.pt"}
    assert (
        "tupe import-fairseq back/checkpoint.pt back_imported\n" in (back / "README.md").read_text()
    )


SCALAR = re.compile(rb"cnumpy\._?core\.multiarray\nscalar\n")


def renamed_scalars(path, module):
    """Let a checkpoint name the function that makes NumPy numbers as another NumPy would."""
    with zipfile.ZipFile(path) as file:
        records = {name: file.read(name) for name in file.namelist()}
    (pickled,) = (name for name in records if name.endswith("data.pkl"))
    records[pickled], count = SCALAR.subn(f"c{module}\nscalar\n".encode(), records[pickled])
    assert count == 1
    with zipfile.ZipFile(path, "w") as file:
        for name, content in records.items():
            file.writestr(name, content)


@pytest.mark.parametrize("number", [np.float64(0.875), np.float32(0.875), np.int64(3)])
@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_scores_that_are_numpy_scalars_are_read(tmp_path, number, module):
    """Pearson's correlation is such a number; the module's name is NumPy 1's or NumPy 2's."""
    path = torch_checkpoint(tmp_path / "c.pt", {"val_loss": number, "best": number})
    renamed_scalars(path, module)
    assert_same_state(read_checkpoint(path).state, golden_state())


def user_error(capsys, *argv):
    assert cli.main(["import-fairseq", *map(str, argv)]) == cli.USER_ERROR_EXIT_CODE
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message


def test_wrong_use_of_the_command_is_one_line(tmp_path, capsys):
    path, out = torch_checkpoint(tmp_path / "bare.pt"), tmp_path / "out"
    assert "add --num_heads=N" in user_error(capsys, path, out)
    assert "no file" in user_error(capsys, tmp_path / "nothing.pt", out)
    assert "is a folder" in user_error(capsys, tmp_path, out)
    assert "num_heads=0" in user_error(capsys, path, out, "--num_heads=0")
    assert "cannot create" in user_error(capsys, path, path / "below", "--num_heads=4")
    torch.save({"model": [1, 2]}, tmp_path / "list.pt")
    assert "has no state dict" in user_error(capsys, tmp_path / "list.pt", out)
    damaged = tmp_path / "damaged.pt"
    damaged.write_bytes(path.read_bytes()[:1000])
    assert "damaged.pt is not a readable" in user_error(capsys, damaged, out)
    damaged.write_bytes(b"not a checkpoint")
    assert "is damaged, or not a PyTorch file" in user_error(capsys, damaged, out)
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"not a zip file")
    assert "damaged.npz is not a readable .npz" in user_error(capsys, damaged, out)
    out.mkdir()
    assert "exists already" in user_error(capsys, path, out, "--num_heads=4")
    assert list(out.iterdir()) == []


class Attack:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_code_in_a_checkpoint_is_not_run(tmp_path, capsys):
    torch.save({"model": {}, "args": Attack(tmp_path / "ran")}, tmp_path / "evil.pt")
    message = user_error(capsys, tmp_path / "evil.pt", tmp_path / "out")
    assert "posix.mkdir, which is not allowed" in message
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_without_torch_the_extra_is_named(tmp_path):
    script = f"""
import sys
sys.modules["torch"] = None  # what an environment without it looks like to `import torch`
from tupe_jax import cli
sys.exit(cli.main(["import-fairseq", {str(torch_checkpoint(tmp_path / "c.pt"))!r}, "out"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == cli.USER_ERROR_EXIT_CODE
    assert "pip install 'tupe_jax[torch]'" in done.stderr


def test_a_loaded_model_is_an_ordinary_nnx_module():
    model = fairseq.from_state_dict(golden_state(), num_heads=4)
    assert isinstance(model, nnx.Module)
    assert all(p.dtype == np.float32 for _, p in nnx.to_flat_state(nnx.state(model)))
