"""The labelled tasks: balanced, disjoint, right, and not to be guessed from the surface."""

import math
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from tupe_jax.data.builtin import LABELS, SPLITS, Example, labelled
from tupe_jax.data.builtin.lexicon import Noun, lexicon
from tupe_jax.utils.errors import UserError

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2
TASKS = ("builtin_cola", "builtin_sst", "builtin_paraphrase", "builtin_nli")
PAIRS = ("builtin_paraphrase", "builtin_nli")


@cache
def sample(task: str, split: str) -> tuple[Example, ...]:
    return tuple(labelled(task, split, seed=0, count=1800 if split == "train" else 480))


def words(text: str | None) -> list[str]:
    return (text or "").lower().replace(",", "").replace(".", "").split()


# ---- splits


@pytest.mark.parametrize("task", TASKS)
def test_labels_are_balanced_in_every_split(task: str):
    for split in SPLITS:
        counts = Counter(example.label for example in sample(task, split))
        assert len(counts) == len(LABELS[task])
        assert max(counts.values()) == min(counts.values())


@pytest.mark.parametrize("task", TASKS)
def test_splits_share_no_example_in_any_order(task: str):
    seen: dict[frozenset[str | None], str] = {}
    for split in SPLITS:
        for seed in (0, 1):
            for example in labelled(task, split, seed, 200):
                key = frozenset({example.sentence1, example.sentence2})
                assert seen.setdefault(key, split) == split


@pytest.mark.parametrize("task", TASKS)
def test_no_example_comes_twice_and_fewer_are_a_prefix_of_more(task: str):
    examples = sample(task, "train")
    assert len({(e.sentence1, e.sentence2) for e in examples}) == len(examples)
    assert labelled(task, "train", 0, 50) == list(examples[:50])
    assert labelled(task, "train", 1, 50) != list(examples[:50])
    assert all((e.sentence2 is not None) == (task in PAIRS) for e in examples)


def test_an_unknown_task_or_split_is_the_users_error():
    with pytest.raises(UserError, match="builtin_cola, builtin_sst"):
        labelled("builtin_colla", "train", 0, 1)
    with pytest.raises(UserError, match="train, validation, test"):
        labelled("builtin_cola", "dev", 0, 1)


# ---- no short cuts


def naive_bayes(task: str, features: Callable[[Example], list[str]]) -> float:
    """Accuracy on the test split of a classifier that only counts features."""
    counts = [Counter[str]() for _ in range(len(LABELS[task]))]
    for example in sample(task, "train"):
        counts[example.label].update(features(example))
    kinds = len(set().union(*counts))
    right = 0
    for example in sample(task, "test"):
        scores = [
            sum(math.log((c[f] + 1) / (c.total() + kinds)) for f in features(example))
            for c in counts
        ]
        right += scores.index(max(scores)) == example.label
    return right / len(sample(task, "test"))


@pytest.mark.parametrize("task", TASKS)
def test_the_length_does_not_tell_the_label(task: str):
    def lengths(example: Example) -> list[str]:
        return [f"1:{len(words(example.sentence1))}", f"2:{len(words(example.sentence2))}"]

    assert naive_bayes(task, lengths) < 1 / len(LABELS[task]) + 0.06


@pytest.mark.parametrize("task", PAIRS)
def test_the_second_sentence_alone_does_not_tell_the_label(task: str):
    assert naive_bayes(task, lambda e: words(e.sentence2)) < 1 / len(LABELS[task]) + 0.06


@pytest.mark.parametrize("task", PAIRS)
def test_the_first_sentence_alone_does_not_tell_the_label(task: str):
    assert naive_bayes(task, lambda e: words(e.sentence1)) < 1 / len(LABELS[task]) + 0.07


def test_words_do_not_tell_paraphrases():
    def features(example: Example) -> list[str]:
        one, two = set(words(example.sentence1)), set(words(example.sentence2))
        return [*one, *(f"2:{w}" for w in two), *(f"+{w}" for w in two - one)]

    assert naive_bayes("builtin_paraphrase", features) < 0.56


@pytest.mark.parametrize(("task", "limit"), [("builtin_cola", 0.6), ("builtin_sst", 0.65)])
def test_words_tell_little_about_single_sentences(task: str, limit: float):
    assert naive_bayes(task, lambda e: words(e.sentence1)) < limit


@pytest.mark.parametrize("task", TASKS)
def test_no_single_word_gives_the_label_away(task: str):
    counts: dict[str, Counter[int]] = {}
    for example in sample(task, "train"):
        for word in {*words(example.sentence1), *words(example.sentence2)}:
            counts.setdefault(word, Counter())[example.label] += 1
    for word, by_label in counts.items():
        if by_label.total() >= 60:
            assert max(by_label.values()) / by_label.total() < 0.85, word


# ---- right labels


@cache
def people_and_animals() -> dict[str, Noun]:
    found = {}
    for section in lexicon().sections.values():
        for kind in ("person", *lexicon().kinds_below("animal")):
            for noun in section.nouns.get(kind, ()):
                found[noun.singular] = found[noun.plural] = noun
    return found


def agent_phrase(text: str) -> list[str]:
    """The agent from its determiner to its noun, found by word order: `by ...`, or the subject."""
    tokens = words(text.partition(", ")[2] or text)
    if "by" in tokens:
        tokens = tokens[tokens.index("by") + 1 :]
    end = next(i for i, token in enumerate(tokens) if token in people_and_animals())
    return tokens[: end + 1]


def test_paraphrases_have_the_same_agent_and_others_do_not():
    for example in sample("builtin_paraphrase", "train"):
        assert example.sentence2 is not None
        same = agent_phrase(example.sentence1) == agent_phrase(example.sentence2)
        assert same == bool(example.label), example


QUANTIFIERS = {
    "all": lambda size, true: true == size,
    "most": lambda size, true: true > size / 2,
    "some": lambda size, true: true > 0,
    "no": lambda size, true: true == 0,
    "not all": lambda size, true: true < size,
}


def quantifier(text: str) -> tuple[str, str] | None:
    for name in ("not all", "all", "most", "some", "no"):
        if text.lower().startswith(name + " "):
            return name, text[len(name) + 1 :]
    return None


def test_quantifiers_follow_from_each_other_in_every_small_world():
    checked = 0
    for example in sample("builtin_nli", "train"):
        assert example.sentence2 is not None
        one, two = quantifier(example.sentence1), quantifier(example.sentence2)
        if one is None or two is None or one[1] != two[1]:
            continue
        worlds = [(size, true) for size in range(3, 7) for true in range(size + 1)]
        held = [QUANTIFIERS[two[0]](*world) for world in worlds if QUANTIFIERS[one[0]](*world)]
        expected = ENTAILMENT if all(held) else NEUTRAL if any(held) else CONTRADICTION
        assert example.label == expected, example
        checked += 1
    assert checked > 150


def test_exchanged_roles_are_neutral_and_voice_changes_nothing():
    checked = Counter[int]()
    for example in sample("builtin_nli", "train"):
        assert example.sentence2 is not None
        one, two = words(example.sentence1), words(example.sentence2)
        one_is_passive, two_is_passive = "by" in one, "by" in two
        if {"a", "an", "any", "some"} & {*one, *two} or one_is_passive == two_is_passive:
            continue
        same_polarity = ("not" in one) == ("not" in two)
        if agent_phrase(example.sentence1) != agent_phrase(example.sentence2):
            expected = NEUTRAL
        else:
            expected = ENTAILMENT if same_polarity else CONTRADICTION
        assert example.label == expected, example
        checked[expected] += 1
    assert min(checked.values()) > 25


def verb_forms(*bases: str) -> set[str]:
    verbs = [verb for section in lexicon().sections.values() for verb in section.verbs]
    return {
        form
        for verb in verbs
        if verb.base in bases
        for form in (verb.base, verb.third_person, verb.past, verb.participle)
    }


def test_roles_are_not_exchanged_where_that_says_the_same_or_the_contrary():
    """He met her: so she met him. He beat her: so she did not beat him."""
    symmetric = verb_forms("meet", "fight", "marry", "hug", "kiss")
    one_sided = verb_forms("beat", "defeat", "overtake", "outpace", "replace")
    checked = Counter[str]()
    for task, excluded in (
        ("builtin_paraphrase", symmetric),
        ("builtin_nli", symmetric | one_sided),
    ):
        for example in sample(task, "train"):
            one, two = words(example.sentence1), words(example.sentence2)
            if {"a", "an", "any", "some"} & {*one, *two} or ("by" in one) == ("by" in two):
                continue
            assert not excluded & {*one, *two}, example
            checked[task] += 1
    assert min(checked.values()) > 100


@cache
def names_above() -> dict[str, set[str]]:
    """From a noun to its more general names, in the same number."""
    above: dict[str, set[str]] = {}
    for section in lexicon().sections.values():
        for noun in (noun for nouns in section.nouns.values() for noun in nouns):
            for name in lexicon().hypernyms(noun):
                above.setdefault(noun.singular, set()).add(name.singular)
                above.setdefault(noun.plural, set()).add(name.plural)
    return above


@cache
def base_forms() -> dict[str, str]:
    """From a verb form to the base form; not for forms that are nouns too, such as `plants`."""
    sections = lexicon().sections.values()
    nouns = {n for s in sections for line in s.nouns.values() for noun in line for n in forms(noun)}
    return {
        form: verb.base
        for section in sections
        for verb in section.verbs
        for form in (verb.past, verb.participle, verb.gerund, verb.third_person)
        if form not in nouns
    }


def forms(noun: Noun) -> tuple[str, str]:
    return noun.singular, noun.plural


def content(tokens: list[str]) -> list[str]:
    grammar = {"a", "an", "the", "is", "are", "was", "were", "being", "by", "some", "any", "no"}
    grammar |= {"not", "did", "do", "does"}
    return [base_forms().get(token, token) for token in tokens if token not in grammar]


def implies(special: list[str], general: list[str]) -> bool:
    """Whether each word of the general one has a word of its own in the other, same or below."""
    left, wanted = Counter(special) - Counter(general), Counter(general) - Counter(special)
    return all(any(word in names_above().get(other, ()) for other in left) for word in wanted)


def test_special_statements_imply_general_ones_and_denials_the_other_way_round():
    checked = Counter[tuple[bool, bool, int]]()
    for example in sample("builtin_nli", "train"):
        one, two = words(example.sentence1), words(example.sentence2)
        indefinite = {"a", "an", "some", "any", "no"} & {*two}
        if not indefinite or {"all", "most"} & {*one, *two}:
            continue
        premise_denies, hypothesis_denies = (bool({"not", "no"} & {*t}) for t in (one, two))
        if premise_denies:
            decides = implies(content(two), content(one))
        else:
            decides = implies(content(one), content(two))
        if not decides:
            expected = NEUTRAL
        else:
            expected = ENTAILMENT if premise_denies == hypothesis_denies else CONTRADICTION
        assert example.label == expected, example
        checked[premise_denies, hypothesis_denies, expected] += 1
    assert len(checked) == 8  # two labels for each of the four pairs of denials
    assert min(checked.values()) > 25


def test_what_somebody_is_like():
    opposites = {tuple(pair.split("=")) for pair in lexicon().lists["antonyms"]}
    opposites |= {(b, a) for a, b in opposites}
    checked = Counter[int]()
    for example in sample("builtin_nli", "train"):
        one, two = words(example.sentence1), words(example.sentence2)
        if len(two) not in (4, 5) or two[2] not in ("is", "was") or one[2] != two[1]:
            continue
        if not any(two[-1] in pair for pair in opposites):
            continue
        known, said, denied = one[1], two[-1], "not" in two
        if known == said:
            expected = CONTRADICTION if denied else ENTAILMENT
        elif (known, said) in opposites:
            expected = ENTAILMENT if denied else CONTRADICTION
        else:
            expected = NEUTRAL
        assert example.label == expected, example
        checked[expected] += 1
    assert min(checked.values()) > 25


def test_sentiment_is_that_of_the_main_clause_turned_by_negation():
    """A simple reading: the clause that counts, its last word, and whether it is negated."""
    polarity: dict[str, int] = {}
    for section in lexicon().sections.values():
        for adjectives in section.adjectives.values():
            polarity |= {a.word: a.polarity for a in adjectives if a.polarity}
    checked = 0
    for example in sample("builtin_sst", "train"):
        text = example.sentence1.lower().rstrip(".")
        if text.startswith("although"):
            main = text.split(", ")[1]
        elif " although " in text:
            main = text.split(" although ")[0]
        else:
            main = text.split(", ")[-1]
        tokens = main.split()
        if tokens[-1] not in polarity or not {"is", "was", "are", "were"} & {*tokens}:
            continue
        sign = polarity[tokens[-1]] * (-1 if {"not", "never"} & {*tokens} else 1)
        assert example.label == (sign > 0), example
        checked += 1
    assert checked > 400
