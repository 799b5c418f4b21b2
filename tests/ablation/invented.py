"""Records of studies that were never run, from a few curves and numbers."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tupe_jax.ablation.config import AblationConfig, DownstreamConfig, MeasureConfig, Variant
from tupe_jax.ablation.results import (
    PairScore,
    ProbeScore,
    RunRecord,
    StudyResults,
    TaskScore,
    run_settings,
)
from tupe_jax.ablation.work_plan import RunKey, plan
from tupe_jax.config.loading import from_config_dict, load_config
from tupe_jax.config.schema import EvalConfig
from tupe_jax.lab.head_kinds import kinds_of
from tupe_jax.lab.intervals import bootstrap, wilson
from tupe_jax.lab.position_attention import PositionAttention
from tupe_jax.utils.plotting import attention_by_position

SIX = (
    Variant("BERT-A", "bert_a"),
    Variant("BERT-R", "bert_r"),
    Variant("BERT-A^d", "bert_a_d"),
    Variant("TUPE-A-tie-cls", "tupe_a_tie_cls"),
    Variant("TUPE-A", "tupe_a"),
    Variant("TUPE-R", "tupe_r"),
)
PROBES = ("Random", "Shuffle-SR")
PHENOMENA = ("word order", "all")


def study_config(
    variants: Sequence[Variant] = SIX,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    learning_rates: Sequence[float] = (2e-3,),
    tasks: Sequence[str] = ("builtin_nli", "builtin_sst"),
    probed: bool = True,
    pairs: int = 100,
    length: int = 12,
) -> AblationConfig:
    pretrain = from_config_dict(load_config("bert_a:tiny"))
    return AblationConfig(
        tuple(variants),
        seeds=tuple(seeds),
        learning_rates=tuple(learning_rates),
        pretrain=replace(pretrain, eval=EvalConfig(every=30, rows=512)),
        downstream=DownstreamConfig(tasks=tuple(tasks)),
        measure=MeasureConfig(
            length=length, minimal_pairs=pairs, probe_task=tasks[0] if probed else ""
        ),
    )


def collected_of(
    config: AblationConfig, *, missing: int = 0, diverged: Sequence[tuple[str, int]] = ()
) -> StudyResults:
    """All runs of a study but the last `missing`; later variants are better."""
    units = plan(config)
    there = units[: len(units) - missing]
    runs = {variant.name: {} for variant in config.variants}
    tuning = {variant.name: {} for variant in config.variants}
    for unit in there:
        rate = unit.learning_rate or config.learning_rates[0]
        key = RunKey(unit.variant, unit.seed, rate)
        record = record_of(config, key)
        if unit.is_tuning:
            tuning[unit.variant][rate] = replace(record, measures={})
        elif (unit.variant, unit.seed) in diverged:
            runs[unit.variant][unit.seed] = replace(record, diverged=True, measures={})
        else:
            runs[unit.variant][unit.seed] = record
    return StudyResults(config, runs, tuning, tuple(units[len(units) - missing :]))


def record_of(config: AblationConfig, key: RunKey) -> RunRecord:
    number = [variant.name for variant in config.variants].index(key.variant)
    rng = np.random.default_rng([number, key.seed])
    matrices = _matrices(config, number, rng)
    found = PositionAttention("identical words", matrices)
    tasks = config.downstream.tasks
    return RunRecord(
        variant=key.variant,
        seed=key.seed,
        learning_rate=key.learning_rate,
        settings=run_settings(config, key),
        data="text",
        parameters=200_000 + 1000 * number,
        validation=_curve(config, number + 3 * math.log10(key.learning_rate / 2e-3), rng),
        measures=found.measures_of_mean(),
        by_head={
            name: tuple(map(tuple, values.tolist()))
            for name, values in found.measures_LxH().items()
        },
        kinds=tuple(map(tuple, kinds_of(matrices))),
        scores={
            task: TaskScore("accuracy", score, score - 0.01)
            for task in tasks
            for score in [0.6 + 0.03 * number + 0.02 * rng.standard_normal()]
        },
        probes={name: _probe(name, rng) for name in PROBES if config.measure.probe_task},
        pairs={name: _pairs(number, rng) for name in PHENOMENA if config.measure.minimal_pairs},
        matrices_LxHxNxN=matrices,
    )


def _curve(config, advantage, rng):
    steps, every = config.pretrain.train.steps, config.pretrain.eval.every
    slow = 0.5 * math.exp(-0.25 * advantage + 0.05 * rng.standard_normal())
    return tuple(
        (step, 3.5 + 4 * math.exp(-step / steps / slow) + 0.01 * rng.standard_normal())
        for step in range(every, steps + 1, every)
    )


def _matrices(config, number, rng):
    n = config.measure.length
    model = config.pretrain.model
    place = np.arange(n)
    offset = place[None, :] - place[:, None]
    shape = (model.num_layers, model.num_heads, 1, 1)
    decay, shift = 0.05 * (number + 1) * rng.random(shape), 3 * rng.standard_normal(shape)
    return attention_by_position(-decay * (offset - shift) ** 2).astype(np.float32)


def _probe(name, rng):
    change = 0.75 if name == "Shuffle-SR" else 0.08
    delta = bootstrap(-(rng.random(200) < change).astype(float))
    return ProbeScore(0.8 + delta.estimate, delta.estimate, delta.low, delta.high, 200)


def _pairs(number, rng):
    found = wilson((rng.random(100) < 0.5 + 0.05 * number).astype(float))
    return PairScore(found.estimate, found.low, found.high, 100)
