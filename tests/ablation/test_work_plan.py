"""The runs of a study and their shards."""

import functools
import math
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.ablation.studies import small_study
from tupe_jax.ablation.config import Variant
from tupe_jax.ablation.work_plan import RunKey, Unit, best_rate, plan, tuning_runs
from tupe_jax.config.schema import POSITION_VARIANTS
from tupe_jax.run.shard import WorkShard


@functools.cache
def study_of(variants, seeds, rates):
    return small_study(
        list(POSITION_VARIANTS)[:variants],
        seeds=tuple(range(seeds)),
        learning_rates=tuple(10.0**-n for n in range(1, rates + 1)),
    )


studies = st.builds(study_of, st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))


@given(studies, st.integers(1, 14))
def test_every_unit_belongs_to_one_shard(config, shards):
    dealt = [unit for i in range(shards) for unit in plan(config, WorkShard(i, shards))]
    assert Counter(dealt) == Counter(plan(config))
    assert len(set(dealt)) == len(dealt)


@given(studies)
def test_every_variant_has_every_seed_and_is_tuned_with_every_rate(config):
    units = plan(config)
    rates = config.learning_rates if len(config.learning_rates) > 1 else ()
    for variant in config.variants:
        mine = [unit for unit in units if unit.variant == variant.name]
        assert [u.seed for u in mine if not u.is_tuning] == list(config.seeds)
        assert [(u.seed, u.learning_rate) for u in mine if u.is_tuning] == [
            (config.seeds[0], rate) for rate in rates
        ]
        assert len(tuning_runs(config, variant.name)) == len(rates)


@given(studies, st.integers(1, 6))
def test_no_shard_waits_for_another_while_there_are_variants_enough(config, shards):
    shards = min(shards, len(config.variants))
    loads = []
    for i in range(shards):
        units = plan(config, WorkShard(i, shards))
        tuned = {unit.variant for unit in units if unit.is_tuning}
        finished = {unit.variant for unit in units if not unit.is_tuning}
        assert tuned == (finished if len(config.learning_rates) > 1 else set())
        loads.append(len(finished))
    assert max(loads) - min(loads) <= 1


def test_a_variant_is_trained_by_the_shard_that_tunes_its_learning_rate():
    study = small_study(["bert_a", "tupe_a", "t5"], seeds=(0,))
    borrowing = tuple(Variant(f"{v.name}-2", v.encoding, tuned_as=v.name) for v in study.variants)
    config = replace(study, variants=(*study.variants, *borrowing))
    assert {unit.variant for unit in plan(config, WorkShard(1, 2))} == {"tupe_a", "tupe_a-2"}
    assert tuning_runs(config, "t5-2") == tuning_runs(config, "t5")


@given(studies, st.integers(1, 14))
def test_more_shards_than_variants_share_evenly(config, shards):
    loads = [len(plan(config, WorkShard(i, shards))) for i in range(shards)]
    per_variant = len(plan(config)) // len(config.variants)
    if shards > len(config.variants):
        assert max(loads) <= -(-per_variant // (shards // len(config.variants)))


def test_all_variants_have_a_seed_before_any_has_the_next():
    config = small_study(seeds=(5, 3), learning_rates=(1e-3, 1e-2))
    assert plan(config) == [
        Unit("bert_a", 5, 1e-3),
        Unit("tupe_a", 5, 1e-3),
        Unit("bert_a", 5, 1e-2),
        Unit("tupe_a", 5, 1e-2),
        Unit("bert_a", 5),
        Unit("tupe_a", 5),
        Unit("bert_a", 3),
        Unit("tupe_a", 3),
    ]


def test_the_best_rate_has_the_lowest_loss_and_is_the_smaller_of_equals():
    assert best_rate({1e-3: 4.0, 2e-3: 3.5, 4e-3: math.inf}) == 2e-3
    assert best_rate({4e-3: 3.5, 2e-3: 3.5}) == 2e-3


def test_a_run_has_a_folder_of_its_own():
    assert str(RunKey("BERT-A^d", 1, 0.0015).folder) == "runs/BERT-A^d/seed1-lr0.0015"
