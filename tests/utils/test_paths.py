"""Which paths a user can give, and what is refused."""

import pickle
import subprocess
import sys

import pytest

from tupe_jax import cli
from tupe_jax.ablation.config import DownstreamConfig, MeasureConfig
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.utils.errors import USER_ERROR_EXIT_CODE, UserError
from tupe_jax.utils.paths import Path, absolute, glob_in, is_object, storage_path

UNSUPPORTED = ("s3://bucket/x", "hdfs://host/x", "file:///x", "gs:/bucket/x", "gs://", "/gs/x")


@pytest.mark.parametrize("given", ["runs/x", "/tmp/x", "a b:c", "gs://bucket", "gs://bucket/a/b"])
def test_local_paths_and_gs_pass_as_they_are(given):
    path = storage_path(given)
    assert str(path) == given
    assert is_object(path) == given.startswith("gs://")
    assert str(absolute(path)).endswith(given)
    assert pickle.loads(pickle.dumps(path)) == path  # for worker processes


@pytest.mark.parametrize("given", UNSUPPORTED)
def test_every_other_scheme_is_refused_by_name(given):
    with pytest.raises(UserError, match=given):
        storage_path(given)


@pytest.mark.parametrize(
    "command",
    [
        ["pretrain", "--workdir={}"],
        ["prepare", "--task=builtin:9", "--vocabulary=v", "--out={}"],
        ["vocab", "--task=builtin:9", "--out={}"],
        ["export", "model", "{}"],
        ["finetune", "--checkpoint=model", "--task=sst2", "--data_dir={}"],
        ["fill-mask", "{}", "a [MASK]"],
        ["encode", "{}", "a"],
        ["score", "{}", "a"],
        ["predict", "{}", "a"],
        ["analyze", "{}"],
        ["export", "{}", "out"],
        ["finetune", "--checkpoint={}", "--task=builtin_cola"],
        ["glue", "--checkpoint={}"],
        pytest.param(["vocab", "--text={}", "--out=v.model"], marks=pytest.mark.slow),
        pytest.param(["vocab", "--task=builtin + text:{}", "--out=v"], marks=pytest.mark.slow),
        ["pretrain", "--config.data.prepared={}"],
        ["pretrain", "--config.data.vocabulary={}"],
        ["pretrain", "--config.data.task=text:{}"],
    ],
)
@pytest.mark.parametrize("given", ["s3://bucket/x", "gs:/bucket/x"])
def test_a_command_prints_one_line_and_writes_nothing(
    command, given, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main([word.format(given) for word in command])
    except SystemExit as exit:
        code = exit.code
    assert code == USER_ERROR_EXIT_CODE
    (line,) = capsys.readouterr().err.splitlines()
    assert given in line
    assert not list(tmp_path.iterdir())


# Arguments that name no file, or whose files are always local (`config`, `diff`).
WORDS = {"config", "diff", "target", "task", "cleaning", "columns", "head", "lengths", "shapes"}
WORDS |= {"coordinator", "token", "shard", "part", "runner", "job", "text"}
# Paths that are read as text, each with a line in the list above.
PATHS_AS_TEXT = {"checkpoint"}


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_path_among_the_arguments_is_checked(command):
    actions = [action for action in cli.parser_of(command)._actions if action.nargs != 0]
    texts = {action.dest for action in actions if action.type is None and not action.choices}
    assert texts <= WORDS | PATHS_AS_TEXT


@pytest.mark.parametrize("given", UNSUPPORTED)
def test_a_study_refuses_the_paths_of_its_config(given):
    with pytest.raises(UserError, match=f"downstream.data_dir={given}"):
        DownstreamConfig(data_dir=given)
    with pytest.raises(UserError, match=f"measure.probe_file={given}"):
        MeasureConfig(probe_task="builtin_nli", probe_file=given)


def test_a_config_of_gs_needs_no_gcsfs_to_be_read(monkeypatch):
    """A model that was trained on a bucket is used where no client is installed."""
    monkeypatch.setattr("tupe_jax.utils.paths.find_spec", lambda name: None)
    values = load_config("tupe_r:tiny", ["--config.data.prepared=gs://bucket/rows"])
    assert from_config_dict(values).data.prepared == "gs://bucket/rows"
    with pytest.raises(UserError, match=r"gs://bucket/rows.*tupe_jax\[gcs\]"):
        storage_path("gs://bucket/rows")


def test_a_folder_with_brackets_in_its_name(tmp_path):
    folder = Path(tmp_path) / "lr[1]"
    (folder / "a").mkdir(parents=True)
    assert [path.name for path in glob_in(folder, "*")] == ["a"]


def test_local_paths_load_no_client_of_object_storage(tmp_path):
    program = f"""
import sys
from tupe_jax.utils.files import atomic_file, exclusive_lock
from tupe_jax.utils.paths import storage_path
folder = storage_path({str(tmp_path)!r})
with exclusive_lock(folder / "lock"), atomic_file(folder / "x") as file:
    file.write_text("content")
assert (folder / "x").read_text() == "content"
loaded = sorted({{"fsspec", "gcsfs", "tensorflow", "jax"}} & sys.modules.keys())
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True)
