"""What a run reads: data that a config names, data that it makes, and the part of each host."""

import json
import shlex
import shutil
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tests.test_documented_commands import in_blocks, text_of
from tests.training import runs
from tupe_jax import cli
from tupe_jax.ablation.run_one import make_shared_data
from tupe_jax.aot.targets import parse_target
from tupe_jax.config.schema import Config, MeshConfig
from tupe_jax.data.pretraining.division import PrepareConfig
from tupe_jax.data.pretraining.prepare import prepare
from tupe_jax.data.pretraining.readers import HostShard
from tupe_jax.data.pretraining.sources import parse_source
from tupe_jax.data.pretraining.splits import is_held_out
from tupe_jax.data.pretraining.token_shards import INDEX_FILE, TOKENIZER_FILE, read_index
from tupe_jax.distributed.mesh import batch_sharding, make_mesh
from tupe_jax.objectives.registry import make_objective
from tupe_jax.training import dataset as dataset_module
from tupe_jax.training.dataset import (
    examples_of_device,
    global_batch,
    host_shard,
    make_dataset,
    open_dataset,
)
from tupe_jax.utils.errors import UserError

SMALL_MODEL = [
    "--config.model.num_layers=1",
    "--config.model.hidden_size=32",
    "--config.model.num_heads=4",
    "--config.model.mlp_size=64",
    "--config.train.steps=2",
    "--config.train.batch_size=16",
    "--config.eval.rows=16",
]


@pytest.mark.slow
def test_the_documented_commands_work_one_after_the_other(tmp_path, monkeypatch, capsys):
    """The first block of docs/data.md, on less text and with a smaller model."""
    monkeypatch.chdir(tmp_path)
    documented = [shlex.split(line)[1:] for line in in_blocks(text_of("docs/data.md"))[:3]]
    assert [name for name, *_ in documented] == ["vocab", "prepare", "pretrain"]
    less = {"vocab": ["--task=builtin:3000"], "prepare": ["--task=builtin:400"]}
    for name, *arguments in documented:
        assert cli.main([name, *arguments, *less.get(name, SMALL_MODEL)]) == 0
    assert "training a vocabulary" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_copied_folder_is_enough_on_a_pod(corpus, tmp_path, capsys):
    """As README has it: the corpus of the config is nowhere, nor is the file of `tupe prepare`."""
    folder = shutil.copytree(corpus / "rows", tmp_path / "copied")
    small = [f"--config.{name}" for name in ("model.vocab_size=300", "data.length=16")]
    command = ["pretrain", "--config=tupe_r:modern", f"--config.data.prepared={folder}"]
    assert cli.main([*command, f"--workdir={tmp_path}/run", *small, *SMALL_MODEL]) == 0
    assert "training a vocabulary" not in capsys.readouterr().err
    assert not (tmp_path / "run/data").exists()


def test_a_study_takes_the_tokenizer_of_the_folder(folder, tmp_path):
    config = runs.config_of(runs.settings(folder.parent, **{"data.prepared": folder}))
    shared = make_shared_data(config, tmp_path)
    assert shared.vocabulary == folder / TOKENIZER_FILE
    assert shared.given_to(config).data.prepared == str(folder)


@pytest.fixture
def made(monkeypatch):
    """What was made of the data; it must stay empty."""
    made = []
    for name in ("_vocabulary", "_prepare"):
        monkeypatch.setattr(dataset_module, name, lambda *_, name=name: made.append(name))
    return made


@pytest.fixture
def folder(corpus, tmp_path):
    return Path(shutil.copytree(corpus / "rows", tmp_path / "folder"))


def as_an_older_version_wrote_it(folder):
    (folder / TOKENIZER_FILE).unlink()
    index = json.loads((folder / INDEX_FILE).read_text())
    del index["tokenizer"], index["packing"]
    (folder / INDEX_FILE).write_text(json.dumps(index))


def damage(folder):
    (folder / TOKENIZER_FILE).write_bytes(b"another")


def lose(folder):
    (folder / TOKENIZER_FILE).unlink()


@pytest.mark.parametrize(
    ("change", "setting", "words"),
    [
        (None, "data.length=32", ["16", "data.length=32"]),
        (None, "data.packing=sentences", ["stream", "data.packing=sentences"]),
        (None, "model.vocab_size=400", ["300", "model.vocab_size=400"]),
        (damage, "seed=0", [TOKENIZER_FILE]),
        (lose, "seed=0", [TOKENIZER_FILE]),
        (as_an_older_version_wrote_it, "seed=0", ["data.vocabulary"]),
        (None, "data.vocabulary=not_there.model", ["not_there.model"]),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_before_anything_is_written(
    change, setting, words, folder, tmp_path, made, capsys
):
    if change:
        change(folder)
    arguments = [*runs.settings(folder.parent, **{"data.prepared": folder}), f"--config.{setting}"]
    command = ["pretrain", "--config=tupe_r:tiny", f"--workdir={tmp_path}/run", *arguments]
    assert cli.main([*command, "--config.position.max_length=64"]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert all(word in error for word in words)
    assert not (tmp_path / "run").exists()
    assert made == []


def other_vocabulary(folder):
    """Of the same size, trained on other text."""
    from tupe_jax.data.pretraining.train_tokenizer import train_tokenizer

    return train_tokenizer("builtin:300", folder / "other.model", size=300, cleaning=(), seed=5)


def test_another_vocabulary_is_refused_before_anything_is_written(folder, tmp_path, made):
    other = other_vocabulary(tmp_path)
    arguments = runs.settings(folder.parent, **{"data.prepared": folder})
    given = runs.config_of([*arguments, f"--config.data.vocabulary={other.path}"])
    with pytest.raises(UserError, match=r"data\.vocabulary"):
        make_dataset(given, tmp_path / "run", None)
    with pytest.raises(UserError, match="checkpoint"):
        make_dataset(runs.config_of(arguments), tmp_path / "run", other.path.read_bytes())
    assert not (tmp_path / "run").exists()
    assert made == []


def test_a_vocabulary_of_another_size_is_refused_before_rows_are_made(corpus, tmp_path, made):
    arguments = runs.settings(corpus, reader="live", **{"model.vocab_size": 400})
    config = runs.config_of([*arguments, "--config.data.reader=prepared"])
    with pytest.raises(UserError, match=r"300 .*model\.vocab_size=400"):
        make_dataset(config, tmp_path, None)
    assert made == []


@pytest.mark.slow
def test_a_folder_of_an_older_version_needs_the_vocabulary(corpus, folder, tmp_path):
    as_an_older_version_wrote_it(folder)
    arguments = runs.settings(folder.parent, **{"data.prepared": folder, "train.steps": 2})
    with pytest.raises(UserError, match=r"data\.vocabulary"):
        runs.run_here(arguments, tmp_path / "run")
    given = [*arguments, f"--config.data.vocabulary={corpus}/v.model"]
    assert runs.run_here(given, tmp_path / "run").finished
    # Its checkpoint has the tokenizer, so that the file is not needed any more.
    assert runs.run_here(arguments, tmp_path / "run").resumed_from == 2


@pytest.mark.slow
def test_a_run_on_whole_sentences_resumes_exactly(corpus, tmp_path):
    made = PrepareConfig(runs.TASK, corpus / "v.model", runs.LENGTH, shards=2, packing="sentences")
    prepare(made, tmp_path / "rows", worker_count=1)
    changes = {"data.packing": "sentences", "train.steps": 6, "checkpoint.every": 2}
    arguments = runs.settings(tmp_path, **changes)
    runs.run_here(arguments, tmp_path / "calm")
    assert not runs.run_here(arguments, tmp_path / "stopped", runs.StopAfter(3)).finished
    runs.run_here(arguments, tmp_path / "stopped")
    runs.assert_same_run(arguments, tmp_path / "calm", tmp_path / "stopped")
    position = runs.final_state(arguments, tmp_path / "calm").data
    assert position["packing"] == "sentences"


@pytest.mark.slow
def test_a_config_of_whole_sentences_prepares_them(corpus, tmp_path):
    arguments = runs.settings(corpus, reader="live", **{"data.packing": "sentences"})
    config = runs.config_of([*arguments, "--config.data.reader=prepared"])
    make_dataset(config, tmp_path, None)
    assert read_index(tmp_path / "data/rows").packing == "sentences"


# ---------------------------------------------------------------- validation of a live mixture


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """One file with many held-out documents, one with none."""
    folder = tmp_path_factory.mktemp("texts")
    documents = [f"the {number} th cup was washed and put away" for number in range(8000)]
    held_out = [text for text in documents if is_held_out(text)]
    trained_on = [text for text in documents[:400] if not is_held_out(text)]
    (folder / "held_out.txt").write_text("\n\n".join([*held_out, *trained_on]))
    (folder / "none_held_out.txt").write_text("\n\n".join(trained_on))
    return folder


def live_corpus(corpus, task, rows):
    changes = {"data.task": task, "eval.rows": rows}
    config = runs.config_of(runs.settings(corpus, reader="live", **changes))
    return open_dataset(config, Path(), corpus / "v.model", HostShard())


def validation_rows(corpus, task, rows=10_000):
    """So many at most, in an order of their own; some are alike."""
    return sorted(row.tobytes() for row in live_corpus(corpus, task, rows).validation["tokens"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        "builtin:400 + 2 * text:{folder}/none_held_out.txt",
        "2 * text:{folder}/none_held_out.txt + builtin:400",
        "builtin:400 + text:{folder}/held_out.txt",
    ],
)
def test_validation_of_a_live_mixture_is_one_pass_of_each_source(task, corpus, texts):
    task = task.format(folder=texts)
    expected = validation_rows(corpus, "builtin:400")
    if "/held_out.txt" in task:
        expected += validation_rows(corpus, f"text:{texts}/held_out.txt")
    assert validation_rows(corpus, task) == sorted(expected)


@pytest.mark.slow
def test_validation_of_a_live_mixture_is_spread_over_its_sources_by_size(corpus, texts):
    source = f"text:{texts}/held_out.txt"
    large, small = parse_source("builtin:2000"), parse_source(source)
    found = validation_rows(corpus, f"builtin:2000 + {source}", rows=20)
    of_small = validation_rows(corpus, source)
    assert len(found) == 20
    share = small.text_bytes / (small.text_bytes + large.text_bytes)
    assert abs(sum(row in of_small for row in found) - 20 * share) <= 1


@pytest.mark.slow
def test_a_live_mixture_without_any_held_out_document_is_refused(corpus, texts):
    source = f"text:{texts}/none_held_out.txt"
    with pytest.raises(UserError, match="held out"):
        live_corpus(corpus, f"{source} + 2 * {source}", 16)


# ---------------------------------------------------------------- the part of each host


@pytest.mark.parametrize(
    ("target", "axes", "copies"),
    [
        ("v5e:4x4", {"data": 16}, 1),
        ("v5e:16x16", {"data": 256}, 1),
        ("v5e:16x16", {"data": 16, "fsdp": 16}, 1),
        # chips of one host, or of several, hold the same rows
        ("v5e:16x16", {"data": 64, "tensor": 4}, 4),
        ("v5e:16x16", {"data": 16, "tensor": 16}, 16),
        ("v5e:16x16", {"tensor": 256}, 256),
    ],
)
def test_hosts_of_a_pod_read_the_rows_of_their_chips_and_no_other(target, axes, copies):
    pytest.importorskip("libtpu")
    devices = parse_target(target).devices()
    sharding = batch_sharding(make_mesh(MeshConfig(**{"data": 1} | axes), devices))
    batch_size = 2 * len(devices) // copies
    batch_BxS = np.arange(3 * batch_size, dtype=np.int32).reshape(batch_size, 3)
    on_devices = Counter()
    hosts = {device.process_index for device in devices}
    assert len(hosts) == len(devices) // 4
    for host in hosts:
        share = host_shard(sharding, batch_size, host)
        rows = share.indices(batch_size)
        needed = set()
        for device, (of_batch, _) in sharding.devices_indices_map(batch_BxS.shape).items():
            if device.process_index == host:
                numbers = range(batch_size)[of_batch]
                np.testing.assert_array_equal(
                    examples_of_device(batch_BxS[rows], share, of_batch), batch_BxS[of_batch]
                )
                needed.update(numbers)
                on_devices.update(numbers)
        assert rows == sorted(needed)
    assert on_devices == dict.fromkeys(range(batch_size), copies)


def test_the_tests_above_have_hosts_whose_rows_do_not_lie_together():
    pytest.importorskip("libtpu")
    mesh = make_mesh(MeshConfig(data=16), parse_target("v5e:4x4").devices())
    rows = host_shard(batch_sharding(mesh), 16, 0).indices(16)
    assert rows != list(range(rows[0], rows[0] + 4))


def test_rows_that_a_process_does_not_have_are_no_other_rows():
    with pytest.raises(ValueError, match="not in tuple"):
        examples_of_device(np.zeros((4, 3), np.int32), HostShard((0, 2), 4), slice(2, 4))


@pytest.mark.parametrize("share", [HostShard(), HostShard((0, 1, 2, 3), 4)])
def test_the_array_has_the_rows_in_order(share):
    mesh = jax.make_mesh((1, 1), ("data", "tensor"))
    sharding = NamedSharding(mesh, PartitionSpec("data", None))
    rows_BxS = np.arange(24, dtype=np.int32).reshape(8, 3)
    assert host_shard(sharding, 8, 0) == HostShard()
    examples = {"tokens": rows_BxS, "not_read": rows_BxS[:, 0]}
    batch = global_batch(sharding, examples, make_objective(Config()), share)
    assert batch.keys() == {"tokens"}
    np.testing.assert_array_equal(batch["tokens"], rows_BxS)
