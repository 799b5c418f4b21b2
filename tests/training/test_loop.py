"""The loop in this process: determinism, stopping anywhere, refusing what does not fit."""

import shutil

import numpy as np
import pytest

from tests.training import runs
from tupe_jax import cli
from tupe_jax.checkpointing.manager import load_for_use
from tupe_jax.data.pretraining.readers import PreparedReader
from tupe_jax.distributed.process_group import SINGLE_PROCESS
from tupe_jax.objectives.masked_lm import scored_targets
from tupe_jax.run.watchdog import Watchdog
from tupe_jax.tokenizers.sentencepiece import SentencePieceTokenizer
from tupe_jax.training.evaluation import Validation
from tupe_jax.training.loop import pretrain
from tupe_jax.training.monitoring.position_bias import PositionBiasSizes
from tupe_jax.training.summary import summarise
from tupe_jax.utils.errors import RETRY_EXIT_CODE, UserError
from tupe_jax.utils.files import exclusive_lock


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run to its end: its arguments and work directory."""
    workdir = tmp_path_factory.mktemp("finished")
    arguments = runs.settings(corpus)
    return arguments, workdir, runs.run_here(arguments, workdir)


def test_the_metrics_have_the_promised_names(finished):
    _, workdir, run = finished
    lines = runs.read_metrics(workdir / "metrics.jsonl")
    training = [line for line in lines if "loss" in line]
    assert [line["step"] for line in training] == list(range(1, 13))
    names = {"step", "loss", "learning_rate", "grad_norm", "tokens_per_second"}
    assert all(names <= line.keys() for line in training)
    validation = [line for line in lines if "valid_loss" in line]
    assert [line["step"] for line in validation] == [5, 10, 12]
    assert all({"valid_loss", "valid_accuracy"} <= line.keys() for line in validation)
    assert run.finished


def test_the_model_of_a_run_has_the_settings_as_given(finished):
    """Not what `auto` meant on this machine: it would be carried to others."""
    arguments, _, run = finished
    assert run.exported.model.config == runs.config_of(arguments).model
    assert (
        run.exported.model.config.layer_loop
        == run.exported.model.config.attention_implementation
        == "auto"
    )


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(finished, tmp_path):
    arguments, workdir, _ = finished
    runs.run_here(arguments, tmp_path)
    runs.assert_same_run(arguments, workdir, tmp_path)


@pytest.mark.slow
def test_another_seed_gives_another_run_that_is_evaluated_on_the_same_tokens(finished, tmp_path):
    arguments, workdir, run = finished
    other = runs.run_here([*arguments, "--config.seed=1"], tmp_path)
    assert runs.numbers(tmp_path) != runs.numbers(workdir)
    ours, theirs = (
        [scored_targets(masked).tolist() for masked in some.validation.inputs()]
        for some in (run, other)
    )
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("looks", [0, 5, 7, 14])
def test_stopping_anywhere_changes_nothing(looks, finished, tmp_path):
    """The run looks before each step and within each evaluation."""
    arguments, workdir, _ = finished
    stopped = runs.run_here(arguments, tmp_path, runs.StopAfter(looks))
    assert not stopped.finished
    runs.run_here(arguments, tmp_path)
    runs.assert_same_run(arguments, workdir, tmp_path)


def test_the_evaluation_is_compiled_under_the_limit_of_compiling(corpus, tmp_path, monkeypatch):
    """It may take longer than a batch may."""
    arguments = runs.settings(corpus, **{"train.steps": 2, "eval.every": 1})
    config = runs.config_of(arguments)
    seen = []

    def note(function):
        def noted(*arguments):
            seen.append((function.__qualname__, watchdog.activity))
            return function(*arguments)

        return noted

    for name in ("compile", "__call__"):
        for owner in (Validation, PositionBiasSizes):
            monkeypatch.setattr(owner, name, note(getattr(owner, name)))
    watchdog = Watchdog(config.watchdog, SINGLE_PROCESS)
    pretrain(config, tmp_path, runs.NeverStop(), watchdog=watchdog)
    call = [("Validation.__call__", "evaluating"), ("PositionBiasSizes.__call__", "evaluating")]
    compiled = [("Validation.compile", "compiling"), ("PositionBiasSizes.compile", "compiling")]
    assert seen == [*compiled, *call, *call]


def test_the_reader_may_take_long_to_return_to_its_position(finished, monkeypatch):
    """The live reader runs its epoch again, which may take longer than a step may."""
    arguments, workdir, _ = finished
    config = runs.config_of(arguments)
    watchdog = Watchdog(config.watchdog, SINGLE_PROCESS)
    restore, seen = PreparedReader.restore, []

    def noted(reader, state):
        seen.append(watchdog.activity)
        restore(reader, state)

    monkeypatch.setattr(PreparedReader, "restore", noted)
    pretrain(config, workdir, runs.NeverStop(), watchdog=watchdog)
    assert seen == ["preparing data"]


def test_a_finished_run_stays_finished(finished):
    arguments, workdir, _ = finished
    before = (workdir / "metrics.jsonl").read_bytes()
    again = runs.run_here(arguments, workdir)
    assert again.resumed_from == again.step == 12
    assert (workdir / "metrics.jsonl").read_bytes() == before


def test_a_damaged_newest_checkpoint_costs_the_steps_since_the_previous_one(finished, tmp_path):
    arguments, workdir, _ = finished
    shutil.copytree(workdir, tmp_path / "copy")
    newest = tmp_path / "copy/checkpoints/12"
    largest = max((p for p in newest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-50])
    again = runs.run_here(arguments, tmp_path / "copy")
    assert again.resumed_from == 10
    runs.assert_same_run(arguments, workdir, tmp_path / "copy")


def test_a_checkpoint_alone_is_enough_to_use_the_model(finished, tmp_path):
    _, workdir, run = finished
    shutil.copytree(workdir / "checkpoints/12", tmp_path / "12")
    _, vocabulary, params = load_for_use(tmp_path / "12")
    (tmp_path / "v.model").write_bytes(vocabulary)
    assert SentencePieceTokenizer.load(tmp_path / "v.model").size == runs.PIECES
    np.testing.assert_array_equal(
        params[("encoder", "word_embedding")], run.exported.model.encoder.word_embedding[...]
    )


def test_the_summary_shows_what_was_learned(finished):
    _, workdir, run = finished
    text = summarise(run, workdir)
    assert "guessing by frequency" in text
    assert text.count("[MASK]") == text.count("(it was:") >= 1
    for picture in ("loss.png", "positions.png"):
        assert (workdir / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_checkpoint_and_its_corpus_are_enough_to_resume(finished, tmp_path):
    """One checkpoint from the middle; the vocabulary file has gone: the checkpoint has its own."""
    arguments, workdir, run = finished
    shutil.copytree(workdir / "checkpoints/5", tmp_path / "checkpoints/5")
    lost = [*arguments, f"--config.data.vocabulary={tmp_path}/gone.model"]
    resumed = runs.run_here(lost, tmp_path)
    assert (resumed.resumed_from, resumed.step) == (5, 12)
    np.testing.assert_array_equal(
        resumed.exported.model.encoder.word_embedding[...],
        run.exported.model.encoder.word_embedding[...],
    )


@pytest.mark.slow
def test_data_of_other_settings_is_not_taken_for_ones_own(corpus, tmp_path):
    """Before the first checkpoint, too: the work directory remembers what it was begun with."""
    arguments = runs.settings(corpus)
    runs.run_here([*arguments, "--config.train.steps=2"], tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(UserError, match=r"data\.task .*'builtin:400'.*'builtin:7'"):
        runs.run_here(
            [*arguments, "--config.train.steps=2", "--config.data.task=builtin:7"], tmp_path
        )


@pytest.mark.slow
def test_a_profile_of_a_few_steps_that_a_stop_cuts_short(corpus, tmp_path):
    arguments = runs.settings(corpus, **{"train.profile_at": 2, "train.steps": 4})
    assert not runs.run_here(arguments, tmp_path, runs.StopAfter(3)).finished
    assert runs.run_here(arguments, tmp_path).finished
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))


@pytest.mark.slow
def test_averaged_weights_are_the_ones_evaluated(corpus, tmp_path):
    arguments = runs.settings(corpus, **{"train.ema_decay": 0.9, "train.steps": 3})
    run = runs.run_here(arguments, tmp_path)
    restored = runs.final_state(arguments, tmp_path)
    averaged = restored.state.ema["encoder"]["word_embedding"][...]
    np.testing.assert_array_equal(run.exported.model.encoder.word_embedding[...], averaged)
    assert not np.array_equal(averaged, restored.state.params["encoder"]["word_embedding"][...])


def test_a_changed_config_is_refused_unless_it_changes_no_number(finished):
    arguments, workdir, _ = finished
    with pytest.raises(UserError, match=r"train\.steps .*12.*20.*--workdir"):
        runs.run_here([*arguments, "--config.train.steps=20"], workdir)
    runs.run_here([*arguments, "--config.checkpoint.keep=9", "--config.train.log_every=3"], workdir)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("train.accumulate=3", ["batch_size=16", "accumulate=3"]),
        ("mesh.fsdp=3", ["mesh.fsdp=3", "devices"]),
        ("data.length=64", ["of 16 tokens", "data.length=64"]),
        ("model.vocab_size=400", ["300", "model.vocab_size=400"]),
        ("position.max_length=8", ["data.length=16", "position.max_length=8"]),
        ("model.pad_id=7", ["model.pad_id=7", "0"]),
        ("optimizer.warmup=soon", ["optimizer.warmup='soon'", "'10%'"]),
        ("data.vocabulary=/nowhere.model", ["/nowhere.model", "tupe vocab"]),
    ],
)
def test_settings_that_do_not_fit(change, words, corpus, tmp_path):
    arguments = [*runs.settings(corpus), "--config.position.max_length=64", f"--config.{change}"]
    with pytest.raises(UserError) as error:
        runs.run_here(arguments, tmp_path)
    for word in words:
        assert word in str(error.value)


def test_a_second_run_in_one_work_directory_is_refused(finished, capsys):
    arguments, workdir, _ = finished
    command = ["pretrain", "--config=tupe_r:tiny", f"--workdir={workdir}", *arguments]
    with exclusive_lock(workdir / "run.lock"):
        assert cli.main(command) == RETRY_EXIT_CODE
    assert f"{workdir}: another run" in capsys.readouterr().err
    assert cli.main(command) == 0
    assert "finished already" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_explodes_gives_up_with_a_reason(corpus, tmp_path):
    arguments = runs.settings(
        corpus, **{"optimizer.peak_learning_rate": 1e38, "optimizer.warmup": 0, "train.steps": 30}
    )
    with pytest.raises(UserError, match=r"\b5 steps"):
        runs.run_here(arguments, tmp_path)
