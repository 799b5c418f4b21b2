"""The table shows the numbers of the records."""

import csv
import io
import math
from dataclasses import replace

from tests.ablation.studies import record_of, small_study
from tupe_jax.ablation.config import Variant
from tupe_jax.ablation.results import StudyResults, TaskScore
from tupe_jax.ablation.table import csv_table, markdown
from tupe_jax.ablation.work_plan import RunKey
from tupe_jax.lab.length_extrapolation import LengthScore

CONFIG = small_study()


def record(variant, seed, rate=1e-3, **changes):
    return record_of(CONFIG, RunKey(variant, seed, rate), **changes)


COLLECTED = StudyResults(
    CONFIG,
    runs={
        "bert_a": {0: record("bert_a", 0, loss=3.0), 1: record("bert_a", 1, loss=4.0)},
        "tupe_a": {},
    },
    tuning={
        "bert_a": {1e-3: record("bert_a", 0, loss=3.0), 1e-2: record("bert_a", 0, 1e-2, loss=5.0)},
        "tupe_a": {1e-3: record("tupe_a", 0, diverged=True)},
    },
    missing=(),
)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_line_has_mean_and_spread_over_seeds():
    header, _, bert, tupe, *_ = map(cells, markdown(COLLECTED).split("\n"))
    line = dict(zip(header, bert, strict=True))
    assert line["validation loss, nats"] == "3.500 ± 0.707"
    assert line["builtin_sst, %"] == "75.0 ± 0.0"
    assert line["Random, points"] == "-25.0 ± 0.0"
    assert line["minimal pairs, %"] == "62.5 ± 0.0"
    assert line["locality"] == "0.250 ± 0.000"  # of the mean matrix
    assert line["mirror symmetry of heads"] == "0.125 ± 0.000"
    assert (line["seeds"], line["learning rate"], line["parameters"]) == ("2", "0.001", "1,000")
    assert tupe[0] == "tupe_a"
    assert set(tupe[1:3] + tupe[4:]) == {"-"}


def test_a_seed_that_diverged_leaves_no_mean():
    one, other = record("bert_a", 0), record("bert_a", 1, diverged=True)
    collected = replace(COLLECTED, runs={"bert_a": {0: one, 1: other}, "tupe_a": {}})
    header, _, bert, *_ = map(cells, markdown(collected).split("\n"))
    assert dict(zip(header, bert, strict=True))["validation loss, nats"] == "inf"


def test_means_without_a_diverged_seed_say_so():
    one, other = record("bert_a", 0), record("bert_a", 1, is_tuning=True, diverged=True)
    collected = replace(COLLECTED, runs={"bert_a": {0: one, 1: other}, "tupe_a": {}})
    header, _, bert, *_ = map(cells, markdown(collected).split("\n"))
    line = dict(zip(header, bert, strict=True))
    assert line["builtin_sst, %"] == "75.0 (1 of 2 seeds)"
    assert line["locality"] == "0.250 (1 of 2 seeds)"


def curves(variant, *ends, diverged=()):
    """Straight from 10 nats at step 1 to each end at step 101."""
    return {
        seed: record(variant, seed, validation=((1, 10.0), (101, end)), diverged=seed in diverged)
        for seed, end in enumerate(ends)
    }


def steps_in(runs):
    """What the table and the CSV say of the steps of `tupe_a`."""
    collected = replace(COLLECTED, runs=runs)
    header, _, bert, tupe, *_ = map(cells, markdown(collected).split("\n"))
    assert (header[-1], bert[-1]) == ("steps to bert_a's final loss", "-")
    rows = csv.DictReader(io.StringIO(csv_table(collected)))
    found = [(row["variant"], row.get("steps_to_bert_a")) for row in rows]
    assert not any(steps for variant, steps in found if variant == "bert_a")
    return tupe[-1], [steps for variant, steps in found if variant == "tupe_a"]


def test_steps_to_the_first_variants_final_loss_are_in_the_table():
    bert = curves("bert_a", 6.0, 6.0)
    assert steps_in({"bert_a": bert, "tupe_a": curves("tupe_a", 2.0, 2.0)}) == (
        "51 (51 to 51)",
        ["51.0", "51.0"],
    )
    assert steps_in({"bert_a": bert, "tupe_a": curves("tupe_a", 2.0, 7.0)}) == (
        "reached by 1 of 2 seeds",
        ["51.0", "never"],
    )
    assert steps_in({"bert_a": bert, "tupe_a": curves("tupe_a", 7.0, 7.0)}) == (
        "never reached",
        ["never", "never"],
    )


def test_a_diverged_seed_reaches_no_goal_and_sets_none():
    good, bad = curves("bert_a", 6.0, 6.0), curves("bert_a", 6.0, 6.0, diverged=[1])
    diverged = curves("tupe_a", 2.0, 2.0, diverged=[1])
    assert steps_in({"bert_a": good, "tupe_a": diverged})[0] == "reached by 1 of 2 seeds"
    no_goal = steps_in({"bert_a": bad, "tupe_a": curves("tupe_a", 2.0, 2.0)})
    assert no_goal == ("no goal", [None, None])


def test_scores_that_are_no_percentage_are_not_called_so():
    matthews = {"builtin_sst": TaskScore("matthews", best=0.5, last=0.5)}
    one = record("bert_a", 0, scores=matthews)
    header, *_ = markdown(replace(COLLECTED, runs={"bert_a": {0: one}, "tupe_a": {}})).split("\n")
    assert "builtin_sst, 100 x matthews" in header


def test_the_step_that_reaches_a_loss_is_a_column():
    config = replace(CONFIG, measure=replace(CONFIG.measure, goals=(3.5, 2.0)))
    early, late = (
        record("bert_a", seed, validation=((2, loss), (4, 3.0)))
        for seed, loss in ((0, 3.5), (1, 5.0))
    )
    results = replace(COLLECTED, config=config, runs={"bert_a": {0: early, 1: late}, "tupe_a": {}})
    header, _, row, *_ = map(cells, markdown(results).split("\n"))
    line = dict(zip(header, row, strict=True))
    assert line["steps to 3.5 nats"] == "3 ± 1"  # steps 2 and 3.5
    assert line["steps to 2 nats"] == "-"


def test_nothing_is_chosen_where_all_diverged():
    diverged = {rate: record("bert_a", 0, rate, diverged=True) for rate in (1e-3, 1e-2)}
    table = markdown(replace(COLLECTED, tuning={"bert_a": diverged, "tupe_a": {}}))
    assert "| bert_a | inf | inf |" in table
    assert "Best at the edge" not in table


def test_the_tuning_is_shown_with_what_was_chosen_and_whether_at_the_edge():
    table = markdown(COLLECTED)
    assert "| bert_a | **3.000** | 5.000 |" in table
    assert "| tupe_a | inf | - |" in table
    assert "at the edge of the grid: bert_a (0.001)." in table


def test_the_csv_has_every_number_of_every_run():
    first, second = csv.DictReader(io.StringIO(csv_table(COLLECTED)))
    assert (first["variant"], first["seed"], second["seed"]) == ("bert_a", "0", "1")
    assert (first["validation_loss"], second["validation_loss"]) == ("3.0", "4.0")
    assert first["builtin_sst_accuracy_last"] == "0.5"
    assert first["Random_delta"] == "-0.25"
    assert (first["Random_delta_low"], first["Random_delta_high"]) == ("-0.375", "-0.125")
    assert math.isclose(float(first["symmetry"]), 0.5)


ELECTRA = Variant(
    "RTD", "bert_a", {"objective.name": "replaced_token", "objective.generator_size": 0.5}
)
BOTH = replace(
    CONFIG,
    variants=(Variant("MLM", "bert_a"), Variant("MLM-2", "tupe_a"), ELECTRA),
    equal_flops=True,
)


def mixed(*losses):
    """Finished runs of two variants of masked LM and one of replaced-token detection."""
    names = [variant.name for variant in BOTH.variants]
    runs = {
        name: {0: record_of(BOTH, RunKey(name, 0, 1e-3), loss=loss)}
        for name, loss in zip(names, losses, strict=True)
    }
    tuning = {
        name: {1e-3: record}
        for name, (record,) in zip(names, map(dict.values, runs.values()), strict=True)
    }
    return StudyResults(BOTH, runs, tuning, missing=())


def test_no_column_has_the_losses_of_two_objectives():
    header, _, *rows = map(cells, markdown(mixed(3.0, 4.0, 9.0)).split("\n")[:5])
    lines = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert [line["validation loss of masked_lm, nats"] for line in lines.values()] == [
        "3.000", "4.000", "-",
    ]  # fmt: skip
    assert [line["validation loss of replaced_token, nats"] for line in lines.values()] == [
        "-", "-", "9.000",
    ]  # fmt: skip
    costs = {float(line["training FLOPs"]) for line in lines.values()}
    assert max(costs) < 1.6 * min(costs)  # four steps: rounded to whole ones
    assert lines["RTD"]["builtin_sst, %"] == "75.0"


def test_variants_of_another_objective_have_no_steps_to_the_first_ones_loss():
    found = mixed(3.0, 4.0, 0.1)
    assert found.curves.keys() == {"MLM", "MLM-2"}
    assert found.to_first.keys() == {"MLM-2"}


def at_lengths(*losses):
    """Scores at 16 tokens, the training length, and at 64 tokens with two rules."""
    rules = ((16, "as_is"), (64, "interpolated"), (64, "last_row"))
    measures = {"locality": 0.5, "symmetry": 0.5, "mirror_symmetry": 0.5}
    return tuple(
        LengthScore(length, rule, loss, measures)
        for (length, rule), loss in zip(rules, losses, strict=True)
    )


def test_longer_inputs_are_compared_on_the_same_tokens_with_the_best_rule():
    config = replace(CONFIG, measure=replace(CONFIG.measure, lengths=(16, 64)))
    runs = {
        0: record("bert_a", 0, lengths=at_lengths(2.0, 3.0, 2.2)),
        1: record("bert_a", 1, lengths=at_lengths(4.0, 5.2, 6.0)),
    }
    collected = replace(COLLECTED, config=config, runs={"bert_a": runs, "tupe_a": {}})
    header, _, bert, *_ = map(cells, markdown(collected).split("\n"))
    line = dict(zip(header, bert, strict=True))
    assert line["loss at 64 tokens, % above 16"] == "20.0 ± 14.1"  # 10 and 30 %
    row = next(csv.DictReader(io.StringIO(csv_table(collected))))
    assert (row["loss_at_64_interpolated"], row["locality_at_64_last_row"]) == ("3.0", "0.5")


def test_a_model_without_a_masked_lm_head_has_no_loss_at_other_lengths():
    config = replace(CONFIG, measure=replace(CONFIG.measure, lengths=(16, 64)))
    runs = {"bert_a": {0: record("bert_a", 0, lengths=at_lengths(None, None, None))}}
    text = markdown(replace(COLLECTED, config=config, runs={**runs, "tupe_a": {}}))
    header, _, bert, *_ = map(cells, text.split("\n"))
    assert dict(zip(header, bert, strict=True))["loss at 64 tokens, % above 16"] == "-"


def test_without_the_training_length_there_is_no_such_column():
    config = replace(CONFIG, measure=replace(CONFIG.measure, lengths=(32, 64)))
    assert "loss at 64" not in markdown(replace(COLLECTED, config=config))
