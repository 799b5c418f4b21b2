"""The word-order probes: their examples, labels and results."""

import gzip
import json

import numpy as np
import pytest

from tests.lab.snli_lines import snli_line
from tupe_jax.data.builtin.tasks.labelled import labelled, split_of
from tupe_jax.data.labelled.example import Example
from tupe_jax.lab.nli_pairs import ENTAILMENT, builtin_pairs, snli_pairs
from tupe_jax.lab.probes import Probe, ProbeItem, order_probes, role_probe, run_probe
from tupe_jax.utils.errors import UserError

NEUTRAL, CONTRADICTION = 1, 2


@pytest.fixture(scope="module")
def pairs():
    return builtin_pairs("test", 300)


def test_built_in_pairs_are_examples_of_the_task(pairs):
    assert len(pairs) == 300
    assert {pair.label for pair in pairs} == {0, 1, 2}
    assert {split_of(pair.example) for pair in pairs} == {"test"}
    trained_on = {(e.sentence1, e.sentence2) for e in labelled("builtin_nli", "train", 0, 300)}
    assert not trained_on & {(p.example.sentence1, p.example.sentence2) for p in pairs}
    assert builtin_pairs("test", 20) == pairs[:20]
    assert builtin_pairs("test", 20, seed=1) != pairs[:20]


def test_every_probe_changes_one_sentence_and_has_the_right_labels(pairs):
    probes = {probe.name: probe for probe in order_probes(pairs)}
    assert list(probes) == [*(f"Shuffle-{n}" for n in (3, 4, 5, 6)), "Random", "Shuffle-SR"]
    for name, probe in probes.items():
        assert len(probe.items) > 20, name
        for item in probe.items:
            same_premise = item.original.sentence1 == item.changed.sentence1
            same_hypothesis = item.original.sentence2 == item.changed.sentence2
            if name == "Shuffle-SR":
                assert (same_premise, same_hypothesis) == (True, False)
                assert (item.original.label, item.right) == (ENTAILMENT, {NEUTRAL, CONTRADICTION})
            else:
                assert (same_premise, same_hypothesis) == (False, True)
                assert item.right == {item.original.label}
    assert len(probes["Random"].items) == len(pairs)


def test_verbs_that_work_both_ways_are_not_swapped():
    both_ways = [p for p in builtin_pairs("test", 600) if " met " in p.hypothesis.text]
    assert both_ways
    assert not any(pair.swapped_hypothesis for pair in both_ways)


def bag_of_words(examples):
    """A classifier that cannot see order: a premise that has all words is taken to entail."""
    return [
        ENTAILMENT if set(words(e.sentence2)) <= set(words(e.sentence1)) else NEUTRAL
        for e in examples
    ]


def words(text):
    return text.lower().replace(".", "").replace(",", "").split()


def test_a_bag_of_words_notices_no_shuffling_and_fails_when_roles_are_exchanged():
    items = tuple(
        ProbeItem(Example(f"a {n} b", f"a {n} b", 0), Example(f"a {n} b", f"b {n} a", -1), right)
        for n, right in enumerate([frozenset({1, 2})] * 50)
    )
    result = run_probe(Probe("roles", items), bag_of_words)
    assert (result.count, result.original.estimate, result.changed.estimate) == (50, 1, 0)
    assert result.delta.low == result.delta.estimate == -1 < result.delta.high < -0.85
    for probe in order_probes(builtin_pairs("test", 90))[:-1]:
        assert run_probe(probe, bag_of_words).delta.estimate == 0


def test_the_delta_is_paired(pairs):
    probe = order_probes(pairs)[0]
    rng = np.random.default_rng(0)
    count = len(probe.items)

    def knows_the_answer_but_for_some(examples):
        right = np.array([example.label for example in examples])
        wrong = np.arange(2 * count) >= count
        wrong &= rng.random(2 * count) < 0.3
        return np.where(wrong, (right + 1) % 3, right)

    result = run_probe(probe, knows_the_answer_but_for_some)
    assert result.original.estimate == 1
    assert result.delta.estimate == pytest.approx(result.changed.estimate - 1)
    assert result.delta.low < -0.3 < result.delta.high < -0.2


def test_wrong_use_is_an_error(pairs):
    with pytest.raises(UserError, match="Shuffle-SR"):
        run_probe(role_probe([]), bag_of_words)
    with pytest.raises(UserError, match=r"600 .*\[1\]"):
        run_probe(order_probes(pairs)[4], lambda examples: [0])


# ---- SNLI's files


def write(path, lines):
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["dev.jsonl", "dev.jsonl.gz"])
def test_snli_files_give_pairs_with_trees_and_roles(tmp_path, name):
    lines = [snli_line(), snli_line("-"), snli_line("neutral")]
    first, second = snli_pairs(write(tmp_path / name, lines))
    assert first.premise.text == "A dog is chasing a small cat on grass."
    assert first.example == Example(first.premise.text, "A dog chases a cat", ENTAILMENT)
    assert second.label == NEUTRAL
    assert first.swapped_hypothesis == "A cat chases a dog"
    shuffle_3, *_, random, roles = order_probes([first, second])
    (item,) = roles.items
    assert item.changed == Example(first.premise.text, "A cat chases a dog", -1)
    assert len(shuffle_3.items) == len(random.items) == 2
    changed = shuffle_3.items[0].changed.sentence1
    assert changed.startswith("A dog is chasing ")
    assert changed.endswith(" on grass.")
    assert sorted(changed.split()[4:7]) == ["a", "cat", "small"]
    assert changed != first.premise.text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"dev\.jsonl:2: not JSON"),
        ("[]\n", r":2: .*'sentence1_parse', 'sentence2_parse', 'gold_label'"),
        (snli_line(sentence2_parse="(S"), r":2: .*tree"),
        (snli_line("maybe"), r":2: .*'maybe' .*entailment, neutral"),
    ],
)
def test_broken_snli_files_are_reported_by_line(tmp_path, line, message):
    with pytest.raises(UserError, match=message):
        snli_pairs(write(tmp_path / "dev.jsonl", [snli_line(), line]))


def test_an_empty_file_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"dev\.jsonl"):
        snli_pairs(write(tmp_path / "dev.jsonl", []))
