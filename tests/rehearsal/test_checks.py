"""What a rehearsal finds: every problem is named by the check that saw it."""

import dataclasses
import hashlib
import json
import re
import shutil

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from tests.launch.scripts import LAUNCH
from tupe_jax.aot.compile import CompiledStep, CompileResult
from tupe_jax.aot.targets import parse_target
from tupe_jax.cli import main
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.data.pretraining.token_shards import (
    TOKENIZER_FILE,
    TOKENS,
    PreparedIndex,
    Split,
    examples_of,
    record_type,
    shard_file_name,
    write_index,
    write_shard,
)
from tupe_jax.distributed.hardware import GIB
from tupe_jax.distributed.process_group import SINGLE_PROCESS
from tupe_jax.distributed.sharding_rules import MESH_AXES
from tupe_jax.rehearsal import checks
from tupe_jax.rehearsal.checks import CHECKS, Plan, rehearse
from tupe_jax.rehearsal.prices import PRICES, Price
from tupe_jax.rehearsal.storage_speed import StorageSpeed
from tupe_jax.run.resume_checks import CONFIG_FILE
from tupe_jax.run.workdir import hold
from tupe_jax.utils.paths import Path

SEQUENCES = 4096


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Random sequences for tupe_r:tiny, in a folder that looks like one of `tupe prepare`."""
    config = from_config_dict(load_config("tupe_r:tiny", []))
    folder = Path(tmp_path_factory.mktemp("data"))
    length, vocab_size = config.data.length, config.model.vocab_size
    tokens = np.random.default_rng(0).integers(5, vocab_size, (SEQUENCES, length))
    record = record_type("stream", vocab_size, length)
    examples = examples_of({TOKENS: tokens})
    shard = write_shard(folder / shard_file_name("train", 0, 1), examples, record)
    tokenizer = b"not read by a rehearsal"
    (folder / TOKENIZER_FILE).write_bytes(tokenizer)
    split = Split((shard,), rows=SEQUENCES, tokens=tokens.size, documents=1)
    sha256 = hashlib.sha256(tokenizer).hexdigest()
    index = PreparedIndex("random", sha256, vocab_size, length, 0, {"train": split}, TOKENIZER_FILE)
    write_index(folder, index)
    return folder


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    """A compiler for one device that needs 1 GiB, or what a test sets."""
    needs = {"gib": 1.0}

    def compile_for(config, target, mesh):
        mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1, 1), MESH_AXES)
        needed = int(needs["gib"] * GIB)
        collectives = [] if needed <= target.chip.memory else None
        return CompileResult(config, target, mesh, CompiledStep({"all": needed}, collectives, 30.0))

    monkeypatch.setattr(checks, "compile_for", compile_for)
    monkeypatch.setattr(checks, "mesh_for", lambda config, target: None)
    return needs


def plan(workdir, prepared, *overrides, **settings):
    overrides = [f"--config.data.prepared={prepared}", *overrides]
    config = from_config_dict(load_config("tupe_r:tiny", overrides))
    # A tiny step on a v5e takes less time than any reader: a slow device, for the sake of the test.
    settings = {"peak_share": 1e-4, **settings}
    return Plan(config, parse_target("v5e:1x1"), Path(workdir), **settings)


def findings(plan):
    return {finding.check: finding for finding in rehearse(plan)}


def test_all_checks_of_a_good_plan_say_go(prepared, tmp_path):
    found = findings(plan(tmp_path / "run", prepared))
    assert tuple(found) == CHECKS
    assert {finding.verdict for finding in found.values()} == {"go"}
    assert not (tmp_path / "run").exists()
    epochs = found["data"].values["epochs"]
    steps = plan(tmp_path, prepared).config.train
    assert epochs == steps.steps * steps.batch_size / SEQUENCES


def test_hours_and_dollars_are_those_of_the_remaining_steps(prepared, tmp_path):
    whole = plan(tmp_path, prepared, price=Price(2.0))
    cost = findings(whole)["cost"].values
    seconds = whole.config.train.steps * cost["step_seconds"]
    assert cost["hours"] == pytest.approx(seconds / 3600, rel=0.1)
    assert cost["hours"] > seconds / 3600  # evaluations take time, too
    assert cost["dollars"] == pytest.approx(2.0 * cost["hours"])
    (tmp_path / "checkpoints" / "450" / "about").mkdir(parents=True)
    resumed = findings(whole)
    assert resumed["run"].values == {"first_step": 450}
    assert resumed["cost"].values["hours"] == pytest.approx(cost["hours"] / 2, rel=0.05)


def test_a_step_that_does_not_fit_is_a_no_go_and_has_no_cost(prepared, tmp_path, compiler):
    compiler["gib"] = 16
    found = findings(plan(tmp_path, prepared))
    assert found["compile"].verdict == "no-go"
    assert not {"reader", "checkpoints", "cost"} & found.keys()


@pytest.mark.parametrize(
    ("override", "check", "named"),
    [
        ("--config.data.prepared=nowhere", "data", "nowhere"),
        ("--config.data.length=32", "data", "data.length"),
        ("--config.model.vocab_size=4096", "data", "model.vocab_size"),
        ("--config.data.packing=sentences", "data", "data.packing"),
    ],
)
def test_data_that_does_not_match_the_config_is_a_no_go(override, check, named, prepared, tmp_path):
    found = findings(plan(tmp_path, prepared, override))
    assert found[check].verdict == "no-go"
    assert named in found[check].text
    assert "reader" not in found
    assert "cost" in found  # the other checks do not depend on it


def test_data_that_is_damaged_is_a_no_go(prepared, tmp_path):
    folder = Path(shutil.copytree(prepared, tmp_path / "data"))
    assert findings(plan(tmp_path / "run", folder))["data"].verdict == "go"
    (shard,) = folder.glob("*.array_record")
    for file in (folder / TOKENIZER_FILE, shard):
        content = file.read_bytes()
        file.write_bytes(content[:-1])
        data = findings(plan(tmp_path / "run", folder))["data"]
        assert data.verdict == "no-go"
        assert file.name in data.text
        file.write_bytes(content)


def test_text_is_prepared_before_a_pod_is_allocated(tmp_path):
    builtin = findings(plan(tmp_path, ""))
    assert builtin["data"].verdict == "warning"
    text = findings(plan(tmp_path, "", "--config.data.task=text:books/*.txt"))
    assert text["data"].verdict == "no-go"


def test_few_tokens_for_many_steps_are_a_warning(prepared, tmp_path):
    found = findings(plan(tmp_path, prepared, "--config.train.steps=100000"))
    assert found["data"].verdict == "warning"


def test_a_reader_slower_than_a_step_is_a_no_go(prepared, tmp_path):
    found = findings(plan(tmp_path, prepared, peak_share=1.0))
    assert found["reader"].verdict == "no-go"
    assert found["reader"].values["batch_seconds"] > found["reader"].values["step_seconds"]


def test_saves_that_take_longer_than_their_interval_are_a_no_go(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "measure_storage", lambda folder: StorageSpeed(0.03, 1e6, 1e5))
    often = findings(plan(tmp_path, prepared, "--config.checkpoint.every=1"))
    assert often["checkpoints"].verdict == "no-go"
    rarely = findings(plan(tmp_path, prepared, "--config.checkpoint.every=1000000"))
    assert rarely["checkpoints"].verdict == "go"
    values = rarely["checkpoints"].values
    assert values["interval_seconds"] == 60 * 30  # by time
    assert values["save_seconds"] == pytest.approx(values["bytes"] / 1e5)
    assert values["restore_seconds"] == pytest.approx(values["bytes"] / 1e6)


@pytest.mark.parametrize(
    "speed", [StorageSpeed(0.03, 1e3, 1e9), StorageSpeed(0.03, 1e9, 1e3)], ids=["read", "write"]
)
def test_a_save_or_restore_beyond_the_limit_of_the_watchdog_is_a_no_go(
    speed, prepared, tmp_path, monkeypatch
):
    monkeypatch.setattr(checks, "measure_storage", lambda folder: speed)
    rarely = ["--config.checkpoint.every=1000000", "--config.checkpoint.every_minutes=100000"]

    def checkpoints(*overrides):
        return findings(plan(tmp_path, prepared, *rarely, *overrides))["checkpoints"]

    values = checkpoints().values
    minutes = max(values["save_seconds"], values["restore_seconds"]) / 60
    below, above = (f"--config.watchdog.checkpoint_minutes={f * minutes}" for f in (0.9, 1.1))
    assert checkpoints(below).verdict == "no-go"
    assert "watchdog.checkpoint_minutes" in checkpoints(below).text
    assert checkpoints(above).verdict == "go"
    assert checkpoints(below, "--config.watchdog.stalled_minutes=0").verdict == "go"


def test_the_cost_names_the_assumed_speed_and_the_source_of_the_price(prepared, tmp_path):
    listed = findings(plan(tmp_path, prepared))["cost"]
    assert listed.values["peak_share"] == 1e-4
    assert "0.01% of their peak" in listed.text
    assert "list price" in listed.text
    given = findings(plan(tmp_path, prepared, price=Price(2.0)))["cost"]
    assert "--price" in given.text
    assert "list price" not in given.text


def test_a_work_directory_of_another_config_is_a_no_go(prepared, tmp_path):
    other = plan(tmp_path, prepared, "--config.optimizer.peak_learning_rate=0.5")
    (tmp_path / CONFIG_FILE).write_text(json.dumps(dataclasses.asdict(other.config)))
    assert findings(other)["run"].verdict == "go"
    run = findings(plan(tmp_path, prepared))["run"]
    assert run.verdict == "no-go"
    assert "optimizer.peak_learning_rate" in run.text


def test_a_work_directory_in_use_is_a_no_go(prepared, tmp_path):
    with hold(Path(tmp_path), SINGLE_PROCESS):
        assert findings(plan(tmp_path, prepared))["run"].verdict == "no-go"
    assert findings(plan(tmp_path, prepared))["run"].verdict == "go"


def test_a_finished_run_is_a_no_go(prepared, tmp_path):
    steps = plan(tmp_path, prepared).config.train.steps
    (tmp_path / "checkpoints" / str(steps)).mkdir(parents=True)
    assert findings(plan(tmp_path, prepared))["run"].verdict == "no-go"


def test_storage_that_cannot_be_written_is_a_no_go(prepared, tmp_path):
    (tmp_path / "file").touch()
    found = findings(plan(tmp_path / "file" / "run", prepared))
    assert found["storage"].verdict == "no-go"
    assert "checkpoints" not in found


def test_the_exit_code_is_the_verdict(prepared, tmp_path, capsys):
    arguments = ["rehearse", "--config=tupe_r:tiny", "--target=v5e:1x1", "--peak-share=0.0001"]
    arguments += [f"--workdir={tmp_path / 'run'}", f"--config.data.prepared={prepared}"]
    assert main(arguments) == 0
    page = capsys.readouterr().out
    checked = [line.split()[1] for line in page.splitlines() if line.startswith("  go ")]
    assert tuple(checked) == CHECKS
    assert "not checked" not in page
    train = plan(tmp_path, prepared).config.train
    assert f"{train.steps:,} steps of {train.batch_size:,} sequences of 64 tokens" in page
    assert main([*arguments, "--config.data.length=32", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert not printed["go"]
    assert [finding["check"] for finding in printed["findings"]] == [
        check for check in CHECKS if check != "reader"
    ]
    assert main([*arguments, "--config.data.length=32"]) == 1
    (left_out,) = [line for line in capsys.readouterr().out.splitlines() if "not checked" in line]
    assert left_out.endswith(": reader")


@pytest.mark.parametrize("wrong", ["--price=-1", "--peak-share=2", "--target=v5e"])
def test_wrong_arguments_are_refused(wrong, tmp_path, capsys):
    arguments = ["--config=tupe_r:tiny", "--target=v5e:1x1", f"--workdir={tmp_path}", wrong]
    assert main(["rehearse", *arguments]) == 2
    assert wrong.partition("=")[0] in capsys.readouterr().err


def test_prices_are_those_of_the_launch_guide():
    table = (LAUNCH / "README.md").read_text().partition("<!-- prices -->")[2]
    listed = dict(
        re.findall(
            r"^\| .*?(v5e|v5p|v6e|H100)\b.*?\| [\w-]+ \| \d+ \| ([\d.]+ \| [\d.]+) ", table, re.M
        )
    )
    prices = {chip.lower(): tuple(map(float, both.split(" | "))) for chip, both in listed.items()}
    assert prices == {chip: (price.on_demand, price.spot) for chip, price in PRICES.items()}
