"""A run whose work directory, data and tokenizer are on object storage, with the real clients."""

import json
import signal
import time
from dataclasses import asdict

import pytest

import tupe_jax
from tests.training import runs
from tupe_jax import cli
from tupe_jax.run.workdir import LOCK_FILE
from tupe_jax.utils.errors import RETRY_EXIT_CODE, RetryError, UserError
from tupe_jax.utils.files import exclusive_lock
from tupe_jax.utils.object_lock import STALE_SECONDS, Owner
from tupe_jax.utils.paths import storage_path

pytestmark = pytest.mark.slow

PROGRAM = ("-c", runs.WITHOUT_TENSORFLOW)

TWO = runs.mesh(data=2)


@pytest.fixture(scope="module")
def remote_corpus(gcs):
    """A tokenizer trained to object storage, and data that was prepared there."""
    return runs.make_corpus(storage_path("gs://runs/remote/corpus"))


@pytest.fixture(scope="module")
def arguments(remote_corpus):
    return runs.steps_with_saves(remote_corpus)


def wait_for_lines(gcs, process, workdir, count):
    """Until the run has uploaded the metrics of so many steps, or ended."""
    name = str(workdir / "metrics.jsonl").removeprefix("gs://runs/")
    while process.poll() is None:
        if name in gcs.names() and gcs.read(name).count(b"\n") >= count:
            return
        time.sleep(0.05)


@pytest.fixture(scope="module")
def killed(arguments, gcs):
    """A run that was killed and resumed."""
    workdir = storage_path("gs://runs/killed")
    process = runs.start_elsewhere(arguments, workdir, program=PROGRAM)
    wait_for_lines(gcs, process, workdir, 7)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert (workdir / LOCK_FILE).exists()
    runs.finish(runs.start_elsewhere(arguments, workdir, program=PROGRAM))
    return workdir


def command(arguments, workdir):
    return ["pretrain", "--config=tupe_r:tiny", f"--workdir={workdir}", *arguments]


def test_prepared_data_has_the_bytes_of_a_local_folder(gcs, remote_corpus, corpus):
    """And `tupe prepare` does not write to a local folder `gs:`."""
    files = sorted(file for file in (corpus / "rows").iterdir())
    assert [f"remote/corpus/rows/{file.name}" for file in files] == [
        name for name in gcs.names() if name.startswith("remote/corpus/rows")
    ]
    for file in files:
        assert gcs.read(f"remote/corpus/rows/{file.name}") == file.read_bytes()


def test_the_command_prepares_data_there_and_nowhere_else(
    gcs, remote_corpus, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    tokenizer, rows = f"--vocabulary={remote_corpus / 'v.model'}", "gs://runs/rows2"
    preparation = ["prepare", "--task=builtin:50 + builtin:30", tokenizer, "--length=16"]
    preparation += ["--workers=1", "--deduplicate=exact"]
    assert cli.main([*preparation, f"--out={rows}"]) == 0
    sources = json.loads(gcs.read("rows2/index.json"))["sources"]
    assert [(each["compared"], each["copies"]) for each in sources] == [(50, 0), (30, 30)]
    assert not list(tmp_path.iterdir())  # no local folder `gs:`
    assert {"rows2/index.json", "rows2/tokenizer.model"} <= set(gcs.names())
    assert not [name for name in gcs.names() if "unfinished" in name or ".lock" in name]


def test_a_truncated_shard_is_broken_and_an_unreadable_one_a_retry(gcs, remote_corpus, monkeypatch):
    from tupe_jax.data.pretraining.readers import TokenShards
    from tupe_jax.data.pretraining.token_shards import read_index

    folder = remote_corpus / "rows"
    index = read_index(folder)
    shards = index.splits["train"].shards
    name = f"remote/corpus/rows/{shards[0].file}"
    content = gcs.read(name)
    try:
        gcs.write(name, content[:-100])
        with pytest.raises(UserError, match=shards[0].file):
            read_index(folder)
        with pytest.raises(UserError, match=shards[0].file):
            TokenShards(folder, shards, index.record).read([0])
        gcs.write(name, bytes(len(content)))  # what can be seen of it is as it should be
        with pytest.raises(RetryError, match=shards[0].file):
            TokenShards(folder, shards, index.record).read([0])
    finally:
        gcs.write(name, content)


def test_text_is_read_from_object_storage(gcs, tmp_path):
    import gzip

    from tupe_jax.data.pretraining.sources.text_files import TextFiles
    from tupe_jax.data.tf_utils import elements

    documents = [f"document {i}\nits second line" for i in range(500)]
    gcs.write("text/a.txt", "\n\n".join(documents[:300]).encode())
    gcs.write("text/b.txt.gz", gzip.compress("\n\n".join(documents[300:]).encode()))
    source = TextFiles("gs://runs/text/*.txt*", block_bytes=1 << 10)
    read = [text.decode() for i in range(3) for text in elements(source.documents(i, 3))]
    assert sorted(read) == sorted(documents)
    gcs.write("text/a.txt", b"another text")
    assert TextFiles("gs://runs/text/*.txt*").identity != source.identity


def test_a_killed_run_resumes_bit_for_bit(arguments, corpus, killed, tmp_path):
    """It equals a run on local disks that was left alone."""
    calm = runs.left_alone(runs.steps_with_saves(corpus), tmp_path / "calm", 1, program=PROGRAM)
    runs.assert_same_run(runs.steps_with_saves(corpus), calm, killed)


def test_two_processes_resume_bit_for_bit(remote_corpus, corpus, tmp_path, gcs):
    few = {"train.steps": 9, "checkpoint.every": 3, "eval.every": 9}
    here = [*runs.settings(corpus, **few), *TWO]
    there = [*runs.settings(remote_corpus, **few), *TWO]
    calm = tmp_path / "calm"
    assert [process.code for process in runs.end_all(runs.start_many(here, calm, 2))] == [0, 0]
    workdir = storage_path("gs://runs/two")
    two = runs.start_many(there, workdir, 2)
    wait_for_lines(gcs, two[0], workdir, 3)
    two[1].kill()
    survivor, _ = runs.end_all(two)
    assert survivor.code == RETRY_EXIT_CODE, survivor.err
    ended = runs.end_all(runs.start_many(there, workdir, 2))
    assert [process.code for process in ended] == [0, 0], ended[0].err
    runs.assert_same_run(runs.settings(corpus, **few), calm, workdir)


def test_everything_is_in_the_work_directory(gcs, killed):
    names = {name.removeprefix("killed/").partition("/")[0] for name in gcs.names()}
    expected = {"checkpoints", "config.json", "loss.png", "metrics.jsonl", "positions.png"}
    assert expected | {"tensorboard"} <= names
    assert LOCK_FILE not in names


def test_a_second_run_is_refused(arguments, killed, capsys):
    with exclusive_lock(killed / LOCK_FILE):
        assert cli.main(command(arguments, killed)) == RETRY_EXIT_CODE
    assert f"{killed}: another run" in capsys.readouterr().err


def test_a_stale_lock_is_taken_over(arguments, killed, gcs, capsys):
    owner = Owner("a-lost-host", "another boot", 1, "token")
    gcs.write(f"killed/{LOCK_FILE}", json.dumps(asdict(owner)).encode())
    gcs.age(f"killed/{LOCK_FILE}", seconds=STALE_SECONDS + 2)
    assert cli.main(command(arguments, killed)) == 0
    assert "taking over the lock of process 1 of a-lost-host" in capsys.readouterr().err


def test_a_model_is_loaded_from_object_storage(killed, capsys):
    model = tupe_jax.load(str(killed))
    assert model.metadata.step == runs.STEPS
    assert cli.main(["fill-mask", str(killed), "the [MASK] sleeps."]) == 0
    assert "%" in capsys.readouterr().out


def test_a_model_is_exported_to_object_storage(gcs, killed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", str(killed), "gs://runs/exported"]) == 0
    assert not list(tmp_path.iterdir())  # no local folder `gs:`
    exported, model = tupe_jax.load("gs://runs/exported"), tupe_jax.load(str(killed))
    assert exported.fingerprint == model.fingerprint
    assert cli.main(["export", str(killed), "gs://runs/exported"]) == 2


def test_a_model_is_analyzed_from_object_storage(gcs, killed):
    assert cli.main(["analyze", str(killed), "--out=gs://runs/analysis", "--words=4"]) == 0
    names = [name for name in gcs.names() if name.startswith("analysis/")]
    assert {"analysis/analysis.json", "analysis/report.txt"} <= set(names)


def test_a_model_is_finetuned_from_object_storage_and_resumes(gcs, killed):
    tuning = [
        "finetune",
        f"--checkpoint={killed}",
        "--task=builtin_cola",
        "--workdir=gs://runs/tuned",
        "--train_examples=32",
        "--dev_examples=16",
        "--config.epochs=1",
        "--config.length=16",
    ]
    assert cli.main(tuning) == 0
    (result,) = (name for name in gcs.names() if name.endswith("/result.json"))
    assert not [name for name in gcs.names() if name.startswith("tuned/unfinished")]
    before = gcs.read(result)
    assert cli.main(tuning) == 0  # finished already
    assert gcs.read(result) == before
    assert tupe_jax.load("gs://runs/tuned").predict("the dog sleeps.")
