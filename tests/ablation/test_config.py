"""The settings of a study: those that runs share, and those in which variants differ."""

import itertools
from dataclasses import replace

import pytest

from tests.ablation.studies import small_study
from tupe_jax.ablation.config import (
    DownstreamConfig,
    MeasureConfig,
    Variant,
    ablation_config,
    run_config,
    study,
    training_flops,
)
from tupe_jax.config.loading import known_configs, load_config
from tupe_jax.config.schema import position_name
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.utils.errors import UserError

CONFIG = small_study()


def test_a_run_is_the_shared_pre_training_with_its_own_encoding_seed_and_rate():
    variant = Variant("one", "attenuated_asymmetric", {"position.decay_right": 0.25})
    config = run_config(CONFIG, variant, seed=7, learning_rate=3e-3)
    position = config.model.position
    assert (position.relative, position.decay_left, position.decay_right) == (
        "attenuated",
        0.1,
        0.25,
    )
    assert (config.seed, config.optimizer.peak_learning_rate) == (7, 3e-3)
    shared = CONFIG.pretrain
    assert (
        replace(config, seed=shared.seed, optimizer=shared.optimizer, model=shared.model) == shared
    )
    assert replace(config.model, position=shared.model.position) == shared.model


def test_a_variant_may_differ_in_more_than_its_encoding():
    deep = Variant("deep", "tupe_a", {"model.num_layers": 3})
    assert run_config(CONFIG, deep, 0, 1e-3).model.num_layers == 3


@pytest.mark.parametrize("form", ["tiny", "paper"])
def test_the_study_of_blocks_crosses_encodings_blocks_and_windows(form):
    config = ablation_config(load_config(f"ablations/blocks:{form}"))
    models = [run_config(config, variant, 0, 1e-3).model for variant in config.variants]
    cells = {
        (position_name(m.position), m.pre_layer_norm and m.gated_mlp, m.attention_window > 0)
        for m in models
    }
    encodings = ("bert_a", "rope", "tupe_a", "tupe_r")
    assert cells == set(itertools.product(encodings, (False, True), (False, True)))
    assert len(models) == len(cells)
    for model in models:
        assert set(model.windows) == {0, model.attention_window}
        weights = model.mlp_size * (3 if model.gated_mlp else 2)
        assert weights == pytest.approx(2 * models[0].mlp_size, rel=0.01)


def test_at_equal_flops_the_steps_of_a_variant_follow_from_its_cost():
    electra = Variant(
        "RTD", "bert_a", {"objective.name": "replaced_token", "objective.generator_size": 0.5}
    )
    deep = Variant("deep", "bert_a", {"model.num_layers": 3})
    config = replace(CONFIG, variants=(Variant("MLM", "bert_a"), electra, deep), equal_flops=True)
    assert config.objectives == ["masked_lm", "replaced_token"]
    runs = [run_config(config, variant, 0, 1e-3) for variant in config.variants]
    first, *others = runs
    assert first.train.steps == CONFIG.pretrain.train.steps
    for run in others:
        assert run.train.steps < first.train.steps
        step = training_flops(run) / run.train.steps
        assert abs(training_flops(run) - training_flops(first)) <= step / 2
        assert run.train == replace(first.train, steps=run.train.steps)


def test_a_study_is_what_its_config_file_says():
    assert ablation_config(study(CONFIG)) == CONFIG


@pytest.mark.parametrize("name", [name for name in known_configs() if "ablations/" in name])
def test_settings_of_a_study_can_be_overridden(name):
    overrides = [
        "--config.seeds=4,5",
        "--config.learning_rates=1e-3,2e-3",
        "--config.downstream.tasks=builtin_sst,builtin_nli",
        "--config.measure.probe_task=builtin_nli",
        "--config.pretrain.train.steps=7",
        "--config.pretrain.data.task=text:other.txt",
    ]
    config = ablation_config(load_config(name, overrides))
    assert (config.seeds, config.learning_rates) == ((4, 5), (1e-3, 2e-3))
    assert config.downstream.tasks == ("builtin_sst", "builtin_nli")
    assert config.measure.probe_task == "builtin_nli"
    assert (config.pretrain.train.steps, config.pretrain.data.task) == (7, "text:other.txt")


def test_a_study_may_do_without_fine_tuning():
    overrides = ["--config.downstream.tasks=", "--config.measure.probe_task="]
    assert ablation_config(load_config("ablations/paper_table", overrides)).downstream.tasks == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Variant("a/b", "bert_a"), "variant 'a/b'"),
        (lambda: Variant("a", "bert_b"), "variant a .*'bert_b'"),
        (lambda: Variant("a", "bert_a", {"seed": 3}), "variant a .*seed"),
        (
            lambda: replace(CONFIG, variants=(Variant("a", "bert_a", {"position.decay": 1.0}),)),
            "variant a.*position.decay",
        ),
        (
            lambda: replace(CONFIG, variants=(Variant("a", "bert_a", {"model.num_heads": 3}),)),
            "hidden_size=16 .*num_heads=3",
        ),
        (
            lambda: small_study(["bert_a", "bert_a"]),
            "variants=bert_a,bert_a ",
        ),
        (lambda: Variant("a", "bert_a", {"train.steps": 3}), "train.steps"),
        (
            lambda: replace(
                CONFIG, variants=(Variant("a", "bert_a", {"objective.name": "masked_lm_nsp"}),)
            ),
            "objective.name=masked_lm_nsp .*data.packing",
        ),
        (
            lambda: replace(CONFIG, variants=(Variant("a", "bert_a", tuned_as="b"),)),
            "tuned_as of variant a 'b'",
        ),
        (
            lambda: replace(CONFIG, variants=(Variant("a", "bert_a", tuned_as="a"),)),
            "tuned_as of variant a 'a'",
        ),
        (lambda: small_study(seeds=()), "config.seeds"),
        (lambda: small_study(tuning_seed=1), "config.tuning_seed=1 .*config.seeds=0,1"),
        (lambda: small_study(tuning_seed=-2), "config.tuning_seed=-2 "),
        (lambda: small_study(seeds=(0, -1)), "config.seed=-1 "),
        (lambda: DownstreamConfig(learning_rates=(1e-3, 2.0)), "learning rate.* 2.0 "),
        (lambda: small_study(learning_rates=(1e-3, 1e-3)), "learning_rates=0.001,0.001 "),
        (
            lambda: replace(CONFIG, measure=MeasureConfig(length=16)),
            "measure.length=16 .*pretrain.data.length=16",
        ),
        (
            lambda: replace(CONFIG, measure=MeasureConfig(length=8, probe_task="builtin_nli")),
            "probe_task='builtin_nli' .*downstream.tasks=builtin_sst",
        ),
        (lambda: MeasureConfig(goals=(5.0, 0.0)), "measure.goals=0.0 "),
        (lambda: MeasureConfig(goals=(5.0, 5.0)), "measure.goals=5.0,5.0 "),
        (lambda: MeasureConfig(probe_task="builtin_sst"), "measure.probe_task .*'builtin_sst'"),
        (
            lambda: replace(
                CONFIG, downstream=replace(CONFIG.downstream, finetune=FinetuneConfig(length=513))
            ),
            "finetune.length=513 .*max_length=512 .*bert_a",
        ),
        (
            lambda: replace(
                CONFIG, variants=(Variant("a", "bert_a", {"position.max_length": 15}),)
            ),
            "finetune.length=16 .*max_length=15 .*variant a",
        ),
        (
            lambda: replace(CONFIG, measure=MeasureConfig(length=8, words=299)),
            "measure.words=299 .*vocab_size=300",
        ),
        (
            lambda: replace(CONFIG, measure=MeasureConfig(length=8, probe_file="snli.jsonl")),
            "probe_file='snli.jsonl' .*measure.probe_task",
        ),
        (
            lambda: replace(
                CONFIG,
                pretrain=replace(
                    CONFIG.pretrain, data=replace(CONFIG.pretrain.data, reader="live")
                ),
            ),
            "pretrain.data.reader='live'",
        ),
    ],
)
def test_a_wrong_study_is_a_one_line_error(make, message):
    with pytest.raises(UserError, match=message):
        make()
