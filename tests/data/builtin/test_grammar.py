"""Trees, agreement, roles and reference, checked from outside: on trees and words, not on plans."""

import pickle
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tests.data.builtin.grammar_checks import leaves, verbs_that_disagree
from tupe_jax.data.builtin import Document, Sentence, change_voice, documents, swap_roles
from tupe_jax.data.builtin.lexicon import lexicon


@cache
def sample() -> tuple[Document, ...]:
    return tuple(documents(seed=5, start=0, count=400))


def sentences() -> Iterator[Sentence]:
    for d in sample():
        yield from d.sentences


# ---- trees


def test_the_leaves_of_a_tree_are_the_words():
    for sentence in sentences():
        assert tuple(word for _, word in leaves(sentence.tree)) == sentence.words
        assert tuple(tag for tag, _ in leaves(sentence.tree)) == sentence.tags


def test_brackets_and_spans_describe_the_same_tree():
    for sentence in sentences():
        opened: list[tuple[str, int]] = []
        position, spans = 0, []
        for token in sentence.bracketed.replace(")", " ) ").split():
            if token.startswith("("):
                opened.append((token[1:], position))
            elif token == ")":
                label, start = opened.pop()
                spans.append((label, start, position))
            else:
                position += 1
        tags = set(sentence.tags)
        assert not opened
        assert sorted(s for s in spans if s[0] not in tags) == sorted(sentence.constituents)


# ---- agreement


def test_verbs_agree_with_their_subjects():
    checked = 0
    for sentence in sentences():
        assert not list(verbs_that_disagree(sentence.tree)), sentence.text
        checked += any(tag in ("VBZ", "VBP") for tag in sentence.tags)
    assert checked > 1000


def test_the_agreement_check_sees_a_wrong_verb():
    tree = (
        "S",
        (
            "NP",
            ("NP", ("DT", "The"), ("NNS", "keys")),
            (
                "SBAR",
                ("WHNP", ("WDT", "that")),
                ("S", ("NP", ("NN", "man")), ("VP", ("VBZ", "has"))),
            ),
        ),
        ("VP", ("VBZ", "is"), ("ADJP", ("JJ", "old"))),
    )
    assert list(verbs_that_disagree(tree)) == [("is", "pl")]


def test_finite_verbs_have_the_form_of_their_tag():
    verbs = [verb for section in lexicon().sections.values() for verb in section.verbs]
    forms = {
        "VBZ": {v.third_person for v in verbs} | {"is", "has", "does"},
        "VBP": {v.base for v in verbs} | {"are", "have", "do"},
        "VBD": {v.past for v in verbs} | {"was", "were", "had", "did"},
        "VBN": {v.participle for v in verbs} | {"been"},
        "VBG": {v.gerund for v in verbs} | {"being"},
        "VB": {v.base for v in verbs} | {"be"},
    }
    for sentence in sentences():
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            assert tag not in forms or word in forms[tag], (word, tag)


# ---- roles


def is_constituent(sentence: Sentence, span: tuple[int, int]) -> bool:
    return any((c.start, c.end) == span and c.label == "NP" for c in sentence.constituents)


def test_roles_are_noun_phrases_and_predicates_are_verbs():
    for sentence in sentences():
        for predicate in sentence.roles:
            assert sentence.tags[predicate.verb].startswith("VB")
            assert predicate.agent or predicate.patient or predicate.recipient
            for span in predicate[1:]:
                if span is not None:
                    assert is_constituent(sentence, span), (sentence.text, span)


def test_every_main_verb_has_its_roles():
    auxiliaries = {"be", "is", "are", "was", "were", "been", "being", "has", "have", "had"}
    auxiliaries |= {"do", "does", "did"}
    for sentence in sentences():
        main_verbs = [
            position
            for position, (word, tag) in enumerate(zip(sentence.words, sentence.tags, strict=True))
            if tag.startswith("VB") and word not in auxiliaries
        ]
        assert [predicate.verb for predicate in sentence.roles] == main_verbs


def test_by_marks_the_agent_of_a_passive_and_to_the_recipient():
    seen = {"by": 0, "to": 0}
    for sentence in sentences():
        for verb, agent, patient, recipient in sentence.roles:
            if agent and agent[0] > verb:
                assert sentence.words[agent[0] - 1] == "by"
                assert sentence.tags[verb] == "VBN"
                seen["by"] += 1
            if recipient and patient and recipient[0] > patient[0] > verb:
                assert sentence.words[recipient[0] - 1] == "to"
                seen["to"] += 1
            if sentence.tags[verb] in ("VBZ", "VBP", "VBD"):
                assert agent is not None
                assert agent[1] <= verb
    assert min(seen.values()) > 20


def filled(sentence: Sentence) -> list[tuple[str | None, ...]]:
    """The words of each role, of the main clause's verb and all others, without regard to order."""
    object_case = {"he": "him", "she": "her", "they": "them"}

    def words(span: tuple[int, int] | None) -> str | None:
        if span is None:
            return None
        text = sentence.phrase(span)
        return object_case.get(text.lower(), text.lower())

    return sorted((tuple(words(span) for span in p[1:]) for p in sentence.roles), key=str)


def test_active_and_passive_share_their_roles():
    changed = 0
    for sentence in sentences():
        other = change_voice(sentence)
        if other is not None:
            changed += 1
            assert other.text != sentence.text
            assert filled(other) == filled(sentence)
            assert not list(verbs_that_disagree(other.tree)), other.text
            again = change_voice(other)
            assert again is not None
            assert again.text == sentence.text
    assert changed > 500


def test_swapped_roles_are_exchanged_and_still_grammatical():
    swapped = 0
    for sentence in sentences():
        other = swap_roles(sentence)
        if other is None:
            continue
        swapped += 1
        assert not list(verbs_that_disagree(other.tree)), other.text
        before, after = Counter(filled(sentence)), Counter(filled(other))
        (old,), (new,) = (before - after), (after - before)
        assert new == (old[1], old[0], *old[2:])
        back = swap_roles(other)
        assert back is not None
        assert back.text == sentence.text
    assert swapped > 200


def test_sentences_survive_the_way_to_another_process():
    for sentence in sample()[0].sentences + sample()[1].sentences:
        copy = pickle.loads(pickle.dumps(sentence))
        assert (copy.text, copy.bracketed, copy.roles) == (
            sentence.text,
            sentence.bracketed,
            sentence.roles,
        )
        for transform in (swap_roles, change_voice):
            one, other = transform(sentence), transform(copy)
            assert (one and one.text) == (other and other.text)


# ---- reference


def pronoun_of(sentence: Sentence, span: tuple[int, int]) -> set[str]:
    """The kinds of pronouns (m, f, n, p) that may stand for a phrase, judged by its words."""
    people = {
        noun.singular: noun.gender or "mf"
        for section in lexicon().sections.values()
        for noun in section.nouns.get("person", ())
    }
    tags, words = sentence.tags[span[0] : span[1]], sentence.words[span[0] : span[1]]
    head = next(i for i, tag in enumerate(tags) if tag in ("NN", "NNS", "NNP"))
    if tags[head] == "NNS":
        return {"p"}
    if words[head] in lexicon().lists["names male"]:
        return {"m"}
    if words[head] in lexicon().lists["names female"]:
        return {"f"}
    return set(people.get(words[head].lower(), "n"))


PRONOUNS = {
    **dict.fromkeys(("he", "him", "his", "himself"), "m"),
    **dict.fromkeys(("she", "her", "herself"), "f"),
    **dict.fromkeys(("it", "its", "itself"), "n"),
    **dict.fromkeys(("they", "them", "their", "themselves"), "p"),
}


def test_every_pronoun_follows_something_it_agrees_with():
    pronouns = 0
    for d in sample():
        known: dict[int, set[str]] = {}
        for sentence in d.sentences:
            marked = set()
            for mention in sorted(sentence.mentions, key=lambda m: m.span):
                if mention.pronoun:
                    word = sentence.words[mention.span[0]].lower()
                    marked.add(mention.span[0])
                    assert mention.entity in known, (sentence.text, word)
                    known[mention.entity] &= {PRONOUNS[word]}
                    assert known[mention.entity], (sentence.text, word)
                    pronouns += 1
                else:
                    kinds = pronoun_of(sentence, mention.span)
                    known[mention.entity] = known.get(mention.entity, kinds) & kinds
                    assert known[mention.entity], sentence.text
            for position, tag in enumerate(sentence.tags):
                assert (tag in ("PRP", "PRP$")) == (position in marked), sentence.text
    assert pronouns > 1000


def test_the_antecedent_is_in_the_same_or_the_previous_sentence():
    for d in sample():
        last_seen: dict[int, int] = {}
        for index, sentence in enumerate(d.sentences):
            for mention in sorted(sentence.mentions, key=lambda m: m.span):
                if mention.pronoun:
                    assert index - last_seen[mention.entity] <= 1, sentence.text
                last_seen[mention.entity] = index


def test_determiners_agree_with_their_nouns():
    singular = {"a", "an", "every", "each", "this", "another"}
    plural = {"these", "those", "many", "several", "two", "three", "few", "other", "most", "all"}
    for sentence in sentences():
        for constituent in sentence.constituents:
            tags = sentence.tags[constituent.start : constituent.end]
            first = sentence.words[constituent.start].lower()
            if constituent.label == "NP" and set(tags) <= {"DT", "JJ", "JJS", "CD", "NN", "NNS"}:
                assert not (first in singular and tags[-1] == "NNS"), sentence.text
                assert not (first in plural and tags[-1] == "NN"), sentence.text
