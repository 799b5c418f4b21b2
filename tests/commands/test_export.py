"""Exported and imported models have the same weights, and a correct model card."""

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flax import nnx

from tests.checkpointing.checkpoints import State
from tests.model.helpers import logits, save_folder, small_config, spread_model, with_position
from tupe_jax import cli
from tupe_jax.checkpointing.manager import Checkpoints
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import CheckpointConfig, Config, DataConfig
from tupe_jax.data.builtin import documents
from tupe_jax.inference.loading import load
from tupe_jax.inference.model_card import pretraining_command
from tupe_jax.interop.model_folder import HeadMetadata, ModelMetadata
from tupe_jax.tokenizers.sentencepiece import train_sentencepiece

ROOT = Path(__file__).parents[2]
PIECES = 300
TOKENS = np.random.default_rng(0).integers(5, PIECES, (2, 12))


@pytest.fixture(scope="module")
def vocabulary():
    lines = [sentence.text for d in documents(0, 0, 100) for sentence in d.sentences]
    return train_sentencepiece(lines, PIECES)


@pytest.fixture(scope="module")
def workdir(vocabulary, tmp_path_factory):
    """A checkpoint of step 7, as pre-training leaves it."""
    folder = tmp_path_factory.mktemp("run")
    model = with_position(
        small_config("tupe_r", vocab_size=PIECES, num_layers=2), relative_bins=32, max_distance=128
    )
    config = from_config_dict(load_config("tupe_r:tiny"))
    config = dataclasses.replace(config, model=model, data=DataConfig("builtin:40", length=16))
    checkpoints = Checkpoints(folder / "checkpoints", CheckpointConfig(every=1))
    checkpoints.save(
        7,
        State(np.int32(7), nnx.state(spread_model(model), nnx.Param), opt_state=None, ema=None),
        data={},
        config=dataclasses.asdict(config),
        vocabulary=vocabulary,
        valid_loss=3.25,
    )
    checkpoints.close()
    return folder


def run(*arguments):
    assert cli.main([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module")
def exported(workdir, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "small"
    run("export", workdir, out)
    return out


@pytest.fixture(scope="module")
def released(workdir, tmp_path_factory):
    out = tmp_path_factory.mktemp("released") / "small"
    run("export", workdir, out, "--format=fairseq")
    return out


def assert_same_numbers(one, other):
    one, other = load(one), load(other)
    ours, theirs = one.params, other.params
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[path], theirs[path]) for path in ours)
    np.testing.assert_array_equal(logits(one.module, TOKENS), logits(other.module, TOKENS))
    assert one.tokenizer.content == other.tokenizer.content


def test_an_export_and_its_export_have_the_same_weights(workdir, exported, tmp_path):
    assert {file.name for file in exported.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
        "vocabulary.model",
    }
    assert_same_numbers(workdir / "checkpoints/7", exported)
    run("export", exported, tmp_path / "small")
    for file in exported.iterdir():
        assert (tmp_path / "small" / file.name).read_bytes() == file.read_bytes()


def test_the_released_format_keeps_every_bit_on_its_way_there_and_back(
    workdir, released, monkeypatch
):
    """By the command that its card shows."""
    lines = (released / "README.md").read_text().splitlines()
    (command,) = (line for line in lines if line.startswith("tupe import-fairseq"))
    monkeypatch.chdir(released.parent)
    run(*shlex.split(command)[1:])
    assert_same_numbers(workdir, "small_imported")


@pytest.mark.slow
def test_an_exported_model_is_used_without_orbax_and_tensorflow(exported, tmp_path):
    """In a process where their import fails, as it does where they are not installed."""
    script = f"""
import sys
for name in ("orbax", "tensorflow", "seqio", "tensorflow_datasets", "grain", "torch"):
    sys.modules[name] = None
import numpy as np, tupe_jax
model = tupe_jax.load({str(exported)!r})
assert len(model.fill_mask("the dog [MASK]", top_k=3).guesses[0]) == 3
from tests.model.helpers import save_folder, logits
np.save({str(tmp_path / "logits.npy")!r}, logits(model.module, np.array({TOKENS.tolist()})))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    here = logits(load(exported).module, TOKENS)
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), here)


def test_the_card_lists_data_steps_scores_and_the_command(workdir, exported):
    card = (exported / "README.md").read_text()
    assert card.startswith("# small\n")
    for line in (
        "| data | builtin:40 |",
        "| steps | 7 of 900 |",
        "| tokens seen | 7,168 |",
        "| validation loss, nats per masked token | 3.2500 |",
        "| position.relative_bins | 32 |",
    ):
        assert line in card.splitlines()
    (command,) = (line for line in card.splitlines() if line.startswith("tupe pretrain"))
    _, _, spec, *overrides = shlex.split(command)
    from_card = from_config_dict(load_config(spec.removeprefix("--config="), overrides))
    saved = json.loads((exported / "config.json").read_text())["facts"]["run"]["config"]
    assert json.loads(json.dumps(dataclasses.asdict(from_card))) == saved


@pytest.mark.parametrize(
    ("config", "command"),
    [
        (load_config("tupe_r:tiny"), "tupe pretrain --config=quickstart"),
        (load_config("bert_a:modern"), "tupe pretrain --config=bert_a:modern"),
    ],
)
def test_the_command_is_the_shortest_one(config, command):
    config = from_config_dict(config)
    assert pretraining_command(dataclasses.asdict(config)) == command
    text = dataclasses.replace(config, data=DataConfig("text:a b/*.txt", length=config.data.length))
    assert "'--config.data.task=text:a b/*.txt'" in pretraining_command(dataclasses.asdict(text))


def test_a_config_of_another_version_has_no_command():
    config = dataclasses.asdict(Config())
    assert pretraining_command({**config, "unheard": {"of": 1}}) is None


def test_the_card_of_a_fine_tuned_model_lists_its_task_and_scores(vocabulary, tmp_path, capsys):
    trial = {"learning_rate": 0.1, "seed": 3, "epoch": 1.5, "scores": {"dev": {"accuracy": 0.75}}}
    metadata = ModelMetadata(
        heads={"cola": HeadMetadata(("bad", "good"), texts=1, length=20, trial=trial)}
    )
    model = spread_model(small_config("tupe_a", vocab_size=PIECES, num_layers=1), heads={"cola": 2})
    save_folder(model, tmp_path / "m", vocabulary, metadata)
    run("export", tmp_path / "m", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    for line in ("## Fine-tuning: cola", "| answers | bad, good |", "| dev accuracy | 0.75 |"):
        assert line in card.splitlines()
    assert load(tmp_path / "out").metadata == metadata
    assert "not in" not in capsys.readouterr().out
    run("export", tmp_path / "m", tmp_path / "released", "--format=fairseq")
    lost = "not in checkpoint.pt: classes, score scale and input length of cola\n"
    assert capsys.readouterr().out.endswith(lost)


@pytest.mark.parametrize(
    ("variant", "arguments", "words"),
    [
        ("bert_a", ["--format=fairseq"], "TUPE-A and TUPE-R only"),
        ("tupe_r", ["--format=pickle"], "invalid choice: 'pickle'"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(
    variant, arguments, words, vocabulary, tmp_path, capsys
):
    model = spread_model(small_config(variant, vocab_size=PIECES, num_layers=1))
    save_folder(model, tmp_path / "m", vocabulary)
    try:
        code = cli.main(["export", str(tmp_path / "m"), str(tmp_path / "out"), *arguments])
    except SystemExit as exit_:  # argparse's way
        code = exit_.code
    assert code == cli.USER_ERROR_EXIT_CODE
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_tokenizer_of_another_size_is_not_imported(released, tmp_path, capsys):
    other = tmp_path / "other.model"
    lines = [sentence.text for d in documents(0, 0, 100) for sentence in d.sentences]
    other.write_bytes(train_sentencepiece(lines, PIECES - 1))
    arguments = ["import-fairseq", str(released / "checkpoint.pt"), str(tmp_path / "out")]
    code = cli.main([*arguments, f"--vocabulary={other}"])
    assert code == cli.USER_ERROR_EXIT_CODE
    assert f"299 tokens, but the model has {PIECES + 3}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
