"""Find agent and patient of a sentence in its parse tree by rules, and exchange them.

The rules, for trees without role labels such as SNLI's:

1.  The sentence is one clause, (S ... NP ... VP ...); the last NP before the VP is the subject.
2.  The verb is that of the innermost VP; the verbs of the outer VPs are auxiliaries. A VP that
    coordinates others is left out.
3.  Active: the one NP in the innermost VP is the patient, the subject the agent. Passive (a VBN
    under a form of be or get): the NP of the PP with `by` is the agent, the subject the patient.
4.  Left out: copular verbs (be, become, seem ...) and symmetric verbs, whose meaning does not
    change (meet, hug, marry ...).
5.  Both phrases have a noun as their head, and are both singular or both plural, so that exchanging
    them keeps all agreement intact; neither contains a pronoun, which would lose its reference;
    neither is a time expression.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tupe_jax.data.builtin.sentence import Span
from tupe_jax.data.labelled.penn_trees import Leaf, Tree, is_leaf, leaves
from tupe_jax.lab.parsed_sentence import joined, spelled, without_capital


def _forms(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BE = _forms("be is are was were been being am 's 're 'm")
_BE_OR_GET = _BE | _forms("get gets got gotten getting")
_COPULAS = _BE | _forms(
    "become becomes became becoming seem seems seemed seeming remain remains remained remaining "
    "look looks looked looking"
)
_SYMMETRIC = _forms(
    "meet meets met meeting hug hugs hugged hugging kiss kisses kissed kissing marry marries "
    "married marrying fight fights fought fighting join joins joined joining embrace embraces "
    "embraced embracing accompany accompanies accompanied accompanying face faces faced facing "
    "touch touches touched touching battle battles battled battling"
)
_TIMES = _forms(
    "day night morning afternoon evening time yesterday today tonight tomorrow week weekend year"
)
_NUMBERS = {"NN": "singular", "NNP": "singular", "NNS": "plural", "NNPS": "plural"}


class Roles(NamedTuple):
    """The spans of agent and patient, in leaves."""

    agent: Span
    patient: Span


class _Node(NamedTuple):
    """A subtree and the index of its first leaf."""

    tree: Tree
    start: int

    @property
    def label(self) -> str:
        return str(self.tree[0])

    @property
    def span(self) -> Span:
        return self.start, self.start + sum(1 for _ in leaves(self.tree))

    @property
    def words(self) -> list[str]:
        return [leaf.word.lower() for leaf in leaves(self.tree)]

    def children(self) -> Iterator["_Node"]:
        if is_leaf(self.tree):
            return
        start = self.start
        for child in self.tree[1:]:
            assert not isinstance(child, str)
            node = _Node(child, start)
            yield node
            start = node.span[1]


def find_roles(tree: Tree) -> Roles | None:
    """Agent and patient of the main clause; None if the rules do not apply."""
    clause = _Node(tree, 0)
    while clause.label in ("ROOT", "TOP", ""):
        clause = next(clause.children())
    if clause.label != "S":
        return None
    parts = list(clause.children())
    labels = [part.label for part in parts]
    if labels.count("VP") != 1 or "NP" not in labels[: labels.index("VP")]:
        return None
    predicate = parts[labels.index("VP")]
    subject = [part for part in parts if part.label == "NP" and part.start < predicate.start][-1]
    other = _other_participant(predicate)
    if other is None or not _exchangeable(subject, other.phrase):
        return None
    agent, patient = (other.phrase, subject) if other.is_agent else (subject, other.phrase)
    return Roles(agent.span, patient.span)


def exchange(tree: Tree, roles: Roles) -> str | None:
    """The text with the two phrases exchanged; None if the text stays the same."""
    words = without_capital(tuple(leaves(tree)))
    (first, second) = sorted(roles)
    swapped = (
        *words[: first[0]],
        *words[slice(*second)],
        *words[first[1] : second[0]],
        *words[slice(*first)],
        *words[second[1] :],
    )
    return None if swapped == words else _text(swapped)


def _text(words: tuple[Leaf, ...]) -> str:
    return spelled([token.text for token in joined(words)])


class _Participant(NamedTuple):
    phrase: _Node
    is_agent: bool


def _other_participant(predicate: _Node) -> _Participant | None:
    """The object of an active verb or the agent of a passive one."""
    auxiliaries: list[str] = []
    while True:
        parts = list(predicate.children())
        labels = [part.label for part in parts]
        verbs = [part for part in parts if part.label.startswith("VB") or part.label == "MD"]
        if len(verbs) != 1 or "CC" in labels or labels.count("VP") > 1:
            return None
        (word,) = verbs[0].words
        if "VP" not in labels:
            break
        auxiliaries.append(word)
        predicate = parts[labels.index("VP")]
    if word in _COPULAS or word in _SYMMETRIC:
        return None
    objects = [part for part in parts if part.label == "NP"]
    if verbs[0].label == "VBN" and _BE_OR_GET & {*auxiliaries}:
        by = [part for part in parts if part.label == "PP" and part.words[0] == "by"]
        agents = [child for part in by for child in part.children() if child.label == "NP"]
        return _Participant(agents[0], True) if len(agents) == 1 and not objects else None
    return _Participant(objects[0], False) if len(objects) == 1 else None


def _exchangeable(subject: _Node, other: _Node) -> bool:
    tags = {leaf.tag for phrase in (subject, other) for leaf in leaves(phrase.tree)}
    if tags & {"PRP", "PRP$", "EX", "WP", "WDT"}:
        return False
    one, two = _head(subject.tree), _head(other.tree)
    if one is None or two is None or _TIMES & {one.word.lower(), two.word.lower()}:
        return False
    return _NUMBERS[one.tag] == _NUMBERS[two.tag]


def _head(phrase: Tree) -> Leaf | None:
    """The last noun of the phrase, or the head of its first inner NP; `and` makes a plural."""
    children = [child for child in phrase[1:] if not isinstance(child, str)]
    if any(child[0] in ("CC", "CONJP") for child in children):
        return Leaf("NNS", "and")
    own = [leaf for child in children if is_leaf(child) for leaf in leaves(child)]
    nouns = [leaf for leaf in own if leaf.tag in _NUMBERS]
    if nouns:
        return nouns[-1]
    inner = [child for child in children if child[0] == "NP"]
    return _head(inner[0]) if inner else None
