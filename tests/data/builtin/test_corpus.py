"""The built-in corpus as a corpus: reproducible, random access, rich, and about something."""

import hashlib
import math
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest

from tupe_jax.data.builtin import LABELS, Document, document, documents, labelled


@cache
def sample() -> tuple[Document, ...]:
    """About 20,000 sentences."""
    return tuple(documents(seed=0, start=0, count=1540))


def fingerprint(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def test_the_first_documents_of_seed_0_never_change():
    # Made by: fingerprint([document.text for document in documents(0, 0, 50)]). A new number here
    # means a new corpus: every result made with the old one stops being comparable.
    expected = "80efe481cbbe3e9051f360f69e291aefd8fc190251ea04bf22d95cb32f7b1cfa"
    assert fingerprint([document.text for document in documents(0, 0, 50)]) == expected


def test_a_document_does_not_depend_on_what_was_made_before_it():
    forwards = [document(3, number).text for number in range(20)]
    backwards = [document(3, number).text for number in reversed(range(20))]
    assert forwards == backwards[::-1]
    assert forwards[7:12] == [document.text for document in documents(3, 7, 5)]


def test_another_process_makes_the_same_documents_and_examples():
    program = (
        "import hashlib; from tupe_jax.data.builtin import LABELS, documents, labelled;"
        "texts = [d.text for d in documents(11, 40, 30)];"
        "texts += [str(example) for task in LABELS for example in labelled(task, 'test', 3, 30)];"
        "print(hashlib.sha256('\\n'.join(texts).encode()).hexdigest())"
    )
    # A string hash seed of its own: nothing may depend on the order of a set of strings.
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "12345", "PYTHONPATH": ":".join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    texts = [document.text for document in documents(11, 40, 30)]
    texts += [str(example) for task in LABELS for example in labelled(task, "test", 3, 30)]
    assert printed == fingerprint(texts)


def test_seeds_and_numbers_make_different_documents():
    texts = [document(seed, number).text for seed in range(5) for number in range(40)]
    assert len(set(texts)) == len(texts)


def test_the_corpus_is_light_to_import():
    program = (
        "import sys; import tupe_jax.data.builtin;"
        "heavy = {'tensorflow', 'jax', 'seqio'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=True
    )


def test_there_are_many_words_and_constructions():
    words = {word.lower() for d in sample() for s in d.sentences for word in s.words}
    skeletons = {sentence.skeleton for d in sample() for sentence in d.sentences}
    assert len(words) > 4000
    assert len(skeletons) > 8000


def test_word_frequencies_fall_like_those_of_real_text():
    counts = Counter(word.lower() for d in sample() for s in d.sentences for word in s.words)
    total = sum(counts.values())
    entropy = -sum(n / total * math.log(n / total) for n in counts.values())
    assert 5.0 < entropy < 6.5
    frequencies = [n for _, n in counts.most_common()]
    assert sum(frequencies[:100]) > 0.5 * total
    assert sum(frequencies[1000:]) > 0.1 * total


def test_every_kind_of_construction_occurs():
    text = " ".join(d.text for d in sample()[:300])
    trees = " ".join(s.bracketed for d in sample()[:100] for s in d.sentences)
    for piece in ("There ", "Although ", " does not ", " by the ", " himself", "'s ", " who "):
        assert piece in text, piece
    for label in ("SBAR", "WHNP", "ADVP", "ADJP", "PRP$", "POS", "(MD ", "(VBG ", "(VBN ", "(EX "):
        assert label in trees, label


def test_distant_words_tell_the_topic():
    """Most nouns late in a document are known from other documents of its topic, not of another."""

    def nouns(d: Document, start: int = 0) -> set[str]:
        return {
            word.lower()
            for sentence in d.sentences[start:]
            for word, tag in zip(sentence.words, sentence.tags, strict=True)
            if tag in ("NN", "NNS")
        }

    def overlap(one: set[str], other: set[str]) -> float:
        return len(one & other) / max(1, len(other))

    some = sample()[:400]
    by_topic: dict[str, list[Document]] = {}
    for d in some:
        by_topic.setdefault(d.topic, []).append(d)
    assert len(by_topic) >= 15
    same, different = [], []
    topics = list(by_topic)
    for index, topic in enumerate(topics):
        first, *others = by_topic[topic]
        stranger = by_topic[topics[index - 1]][0]
        early = set().union(*(nouns(d) for d in others))
        same.append(overlap(early, nouns(first, 5)))
        different.append(overlap(early, nouns(stranger, 5)))
    assert sum(same) > 2 * sum(different)


@pytest.mark.parametrize("number", [0, 17, 123])
def test_documents_have_a_natural_length(number: int):
    assert 6 <= len(document(0, number).sentences) <= 20


def test_text_is_spelt_like_normal_english():
    for d in sample()[:300]:
        for sentence in d.sentences:
            text = sentence.text
            assert text[0].isupper()
            assert text.endswith(".")
            assert text.count(".") == 1
            assert " ," not in text
            assert "  " not in text
            words = text.rstrip(".").replace(",", "").split()
            for article, following in pairwise(words):
                vowel = following[0] in "aeiou" and not following.startswith("uni")
                if article.lower() in ("a", "an") and following not in ("useful", "useless"):
                    assert (article.lower() == "an") == (vowel or following == "honest"), text
