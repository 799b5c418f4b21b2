"""An agreement checker that reads gold trees and knows nothing of the grammar that made them."""

from collections.abc import Iterator

from tupe_jax.data.builtin import Tree

PLURAL_PRONOUNS = {"they", "them", "themselves"}


def leaves(tree: Tree) -> Iterator[tuple[str, str]]:
    label, *children = tree
    if isinstance(children[0], str):
        yield label, children[0]
    else:
        for child in children:
            yield from leaves(child)


def is_leaf(tree: Tree) -> bool:
    return isinstance(tree[1], str)


def number(phrase: Tree) -> str:
    """`sg` or `pl` for a noun phrase, by its head."""
    _, *children = phrase
    if any(child[0] == "CC" for child in children):
        return "pl"
    if not is_leaf(children[0]) and children[0][0] == "NP" and children[-1][0] in ("PP", "SBAR"):
        return number(children[0])
    tag, word = children[-1]
    if tag == "PRP":
        return "pl" if word.lower() in PLURAL_PRONOUNS else "sg"
    assert tag in ("NN", "NNS", "NNP"), phrase
    return "pl" if tag == "NNS" else "sg"


def verbs_that_disagree(tree: Tree, subject: str | None = None) -> Iterator[tuple[str, str]]:
    """Finite verbs whose number is not that of their subject; `subject` comes from outside."""
    label, *children = tree
    if is_leaf(tree):
        return
    if label == "S":
        phrases = [child for child in children if child[0] == "NP" and not is_temporal(child)]
        if phrases:
            subject = "there" if phrases[0][1][0] == "EX" else number(phrases[0])
    if label == "VP":
        finite = next((c for c in children if c[0] in ("VBZ", "VBP", "VBD")), None)
        if finite is not None:
            assert subject is not None
            if subject == "there":
                subject = number(next(child for child in children if child[0] == "NP"))
            if verb_number(finite) not in (None, subject):
                yield finite[1], subject
    for child in children:
        if child[0] == "SBAR" and label == "NP":
            yield from verbs_that_disagree(child, number(children[0]))
        else:
            inherits = label in ("S", "VP", "SBAR")
            yield from verbs_that_disagree(child, subject if inherits else None)


def is_temporal(phrase: Tree) -> bool:
    """Yesterday; every day; last week: noun phrases that are no subjects."""
    words = {word.lower() for _, word in leaves(phrase)}
    return bool(words & {"yesterday", "today", "tomorrow", "tonight"}) or words in (
        *({"every", "day"}, {"every", "week"}, {"last", "night"}, {"last", "week"}),
        *({"next", "week"}, {"next", "year"}),
    )


def verb_number(leaf: Tree) -> str | None:
    tag, word = leaf
    if word in ("is", "was", "has", "does"):
        return "sg"
    if word in ("are", "were", "have", "do"):
        return "pl"
    return {"VBZ": "sg", "VBP": "pl"}.get(tag)
