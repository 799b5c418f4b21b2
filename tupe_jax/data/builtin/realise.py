"""From a plan to words: order, inflection and agreement, with the tree and the role spans."""

from tupe_jax.data.builtin.morphology import article
from tupe_jax.data.builtin.plan import (
    NO_ENTITY,
    PRONOUNS,
    Adjunct,
    Adverb,
    Clause,
    Complex,
    Compound,
    Existential,
    FixedPhrase,
    Name,
    NounPhrase,
    Phrase,
    PrepositionalPhrase,
    Pronoun,
    Property,
    Relative,
    Role,
    Skeleton,
    Statement,
    is_plural,
    subject_role,
)
from tupe_jax.data.builtin.sentence import Mention, Predicate, Sentence, Span
from tupe_jax.data.builtin.verb_group import BE, finite, verb_group

_DETERMINER_TAGS = {
    **dict.fromkeys(("the", "a", "an", "this", "that", "these", "those", "every", "each"), "DT"),
    **dict.fromkeys(("some", "all", "no", "any", "another"), "DT"),
    **dict.fromkeys(("many", "several", "few", "other"), "JJ"),
    "most": "JJS",
    **dict.fromkeys(("two", "three", "four", "five", "ten"), "CD"),
}
_OPENERS_WITHOUT_COMMA = frozenset({"then", "perhaps", "soon", "now", "suddenly"})


def realise(statement: Statement) -> Sentence:
    """Write the sentence that a plan describes."""
    writer = _Writer()
    body = writer.body(statement)
    words = writer.words
    words[0] = words[0][0].upper() + words[0][1:]
    words.append(".")
    roles = writer.roles
    if len(roles) > 1:
        roles.sort()
    return Sentence(
        tuple(words), (*body, "."), tuple(roles), tuple(writer.mentions), plan=statement
    )


class _Writer:
    """Appends words from left to right; every method returns the skeleton of what it wrote."""

    __slots__ = ("mentions", "roles", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self.roles: list[Predicate] = []
        self.mentions: list[Mention] = []

    # ---- sentences

    def body(self, statement: Statement) -> Skeleton:
        front: Skeleton = ()
        opener, body = statement.opener, statement.body
        if opener is not None:
            front = (self.adjunct(opener),)
            if not (isinstance(opener, Adverb) and opener.word in _OPENERS_WITHOUT_COMMA):
                self.words.append(",")
                front = (*front, ",")
        if isinstance(body, Clause):
            inner = self.clause(body)
        elif isinstance(body, Compound):
            inner = self.compound(body)
        elif isinstance(body, Complex):
            inner = self.complex(body)
        else:
            inner = self.existential(body)
        return ("S", *front, *inner[1:])

    def compound(self, compound: Compound) -> Skeleton:
        left, right = compound.left, compound.right
        if compound.shared_subject and left.agent is not None:
            start = len(self.words)
            subject = self.phrase(left.agent, is_subject=True)
            span = (start, len(self.words))
            first = self.predicate(left, span)
            self.words.append(compound.conjunction)
            return ("S", subject, ("VP", first, "CC", self.predicate(right, span)))
        first = self.clause(left)
        self.words += (",", compound.conjunction)
        return ("S", first, ",", "CC", self.clause(right))

    def complex(self, statement: Complex) -> Skeleton:
        if statement.subordinate_first:
            subordinate = self.subordinate(statement)
            self.words.append(",")
            return ("S", subordinate, ",", *self.clause(statement.main)[1:])
        label, subject, verb_phrase = self.clause(statement.main)
        subordinate = self.subordinate(statement)
        return (label, subject, (*verb_phrase, subordinate))

    def subordinate(self, statement: Complex) -> Skeleton:
        self.words.append(statement.conjunction)
        return ("SBAR", "IN", self.clause(statement.subordinate))

    def existential(self, existential: Existential) -> Skeleton:
        verb, tag = finite(BE, existential.tense, is_plural(existential.phrase))
        self.words += ("there", verb)
        phrase = self.noun_phrase(existential.phrase)
        place = self.prepositional(existential.place)
        return ("S", ("NP", "EX"), ("VP", tag, phrase, place))

    # ---- clauses

    def clause(self, clause: Clause) -> Skeleton:
        """A clause with its subject: (S subject predicate)."""
        start = len(self.words)
        subject = self.phrase(_subject(clause), is_subject=True)
        return ("S", subject, self.predicate(clause, (start, len(self.words))))

    def predicate(
        self,
        clause: Clause,
        subject: Span,
        gap: tuple[Role, Span] | None = None,
        infinitive: bool = False,
    ) -> Skeleton:
        """The verb phrase. `subject` and `gap` are roles whose words stand elsewhere."""
        voice = clause.voice
        heads = self.verbs(clause, infinitive)
        verb_position = len(self.words) - 1
        spans: dict[str, Span] = {subject_role(voice): subject}
        if gap is not None:
            spans[gap[0]] = gap[1]
        children = self.arguments(clause, spans)
        if clause.complement is not None:
            children.append(self.complement(clause, subject))
        for adjunct in clause.adjuncts:
            children.append(self.adjunct(adjunct))
        if not clause.verb.is_be:
            agent, patient = spans.get("agent"), spans.get("patient")
            self.roles.append(Predicate(verb_position, agent, patient, spans.get("recipient")))
        tree: Skeleton = ("VP", *heads.pop(), *children)
        while heads:
            tree = ("VP", *heads.pop(), tree)
        return tree

    def verbs(self, clause: Clause, infinitive: bool) -> list[Skeleton]:
        """The verb and its auxiliaries: what each VP begins with, from the outside in."""
        first, *others = verb_group(
            clause.verb,
            clause.tense,
            clause.aspect,
            "to" if infinitive else clause.modal,
            clause.voice != "active",
            clause.negated and not infinitive,
            is_plural(_subject(clause)),
        )
        words, often = self.words, clause.frequency
        heads: list[Skeleton] = [first.tags]
        if not often:
            words += first.words
        elif others or clause.verb.is_be:
            words += (*first.words, often)  # has often fed, is often old
            heads[0] = (*first.tags, ("ADVP", "RB"))
        else:
            words += (often, *first.words)  # often feeds
            heads[0] = (("ADVP", "RB"), *first.tags)
        for words_of_layer, tags in others:
            words += words_of_layer
            heads.append(tags)
        return heads

    def arguments(self, clause: Clause, spans: dict[str, Span]) -> list[Skeleton]:
        """Objects and the by-phrase, in order, without those whose words stand elsewhere."""
        children: list[Skeleton] = []
        patient, recipient = clause.patient, clause.recipient
        if recipient is not None and "recipient" not in spans and clause.recipient_first:
            children.append(self.argument("", recipient, "recipient", spans))
        if patient is not None:
            if "patient" not in spans:
                preposition = clause.verb.preposition
                children.append(self.argument(preposition, patient, "patient", spans))
            elif clause.verb.preposition:
                self.words.append(clause.verb.preposition)  # the man that she looked at
                children.append(("PP", "IN"))
        if recipient is not None and "recipient" not in spans:
            children.append(self.argument("to", recipient, "recipient", spans))
        if clause.voice != "active" and clause.agent is not None and "agent" not in spans:
            children.append(self.argument("by", clause.agent, "agent", spans))
        return children

    def argument(
        self, preposition: str, phrase: Phrase, role: Role, spans: dict[str, Span]
    ) -> Skeleton:
        if preposition:
            self.words.append(preposition)
        start = len(self.words)
        tree = self.phrase(phrase)
        spans[role] = (start, len(self.words))
        if preposition:
            return ("PP", "TO" if preposition == "to" else "IN", tree)
        return tree

    def complement(self, clause: Clause, subject: Span) -> Skeleton:
        complement = clause.complement
        if isinstance(complement, Property):
            if complement.degree:
                self.words += (complement.degree, complement.adjective.word)
                return ("ADJP", "RB", "JJ")
            self.words.append(complement.adjective.word)
            return ("ADJP", "JJ")
        if isinstance(complement, NounPhrase):
            return self.noun_phrase(complement)
        if isinstance(complement, PrepositionalPhrase):
            return self.prepositional(complement)
        assert complement is not None
        if clause.verb.frame == "control":
            return ("S", self.predicate(complement, subject, infinitive=True))
        self.words.append("that")
        return ("SBAR", "IN", self.clause(complement))

    def adjunct(self, adjunct: Adjunct) -> Skeleton:
        if isinstance(adjunct, PrepositionalPhrase):
            return self.prepositional(adjunct)
        if isinstance(adjunct, FixedPhrase):
            self.words += adjunct.words
            return adjunct.skeleton
        self.words.append(adjunct.word)
        return ("ADVP", "RB")

    # ---- phrases

    def phrase(self, phrase: Phrase, is_subject: bool = False) -> Skeleton:
        if isinstance(phrase, NounPhrase):
            return self.noun_phrase(phrase)
        words = self.words
        start = len(words)
        if isinstance(phrase, Pronoun):
            forms = PRONOUNS[phrase.which]
            if phrase.reflexive:
                words.append(forms.reflexive)
            else:
                words.append(forms.subject if is_subject else forms.object)
            self.mentions.append(Mention(phrase.entity, (start, start + 1), True))
            return ("NP", "PRP")
        if isinstance(phrase, Name):
            words.append(phrase.name)
            self.mentions.append(Mention(phrase.entity, (start, start + 1), False))
            return ("NP", "NNP")
        left = self.phrase(phrase.left, is_subject)
        words.append("and")
        return ("NP", left, "CC", self.phrase(phrase.right, is_subject))

    def noun_phrase(self, phrase: NounPhrase) -> Skeleton:
        words = self.words
        start = len(words)
        noun, plural, determiner, adjectives, owner, modifier, relative, entity = phrase
        front: Skeleton = ()
        if owner is not None:
            front = self.owner(owner)
        elif determiner:
            if determiner == "a":
                determiner = article(adjectives[0].word if adjectives else noun.singular)
            if determiner == "not all":
                words += ("not", "all")
                front = ("RB", "DT")
            else:
                words.append(determiner)
                front = (_DETERMINER_TAGS[determiner],)
        for adjective in adjectives:
            words.append(adjective.word)
            front = (*front, "JJ")
        if plural:
            words.append(noun.plural)
            tree: Skeleton = ("NP", *front, "NNS")
        else:
            words.append(noun.singular)
            tree = ("NP", *front, "NN")
        if modifier is not None:
            tree = ("NP", tree, self.prepositional(modifier))
        if relative is not None:
            tree = ("NP", tree, self.relative(relative, (start, len(words))))
        if entity != NO_ENTITY:
            self.mentions.append(Mention(entity, (start, len(words)), False))
        return tree

    def owner(self, owner: Phrase) -> Skeleton:
        if isinstance(owner, Pronoun):
            position = len(self.words)
            self.words.append(PRONOUNS[owner.which].possessive)
            self.mentions.append(Mention(owner.entity, (position, position + 1), True))
            return ("PRP$",)
        label, *children = self.phrase(owner)
        self.words.append("'s")
        return ((label, *children, "POS"),)

    def prepositional(self, phrase: PrepositionalPhrase) -> Skeleton:
        self.words.append(phrase.preposition)
        return ("PP", "IN", self.phrase(phrase.phrase))

    def relative(self, relative: Relative, head: Span) -> Skeleton:
        self.words.append(relative.pronoun)
        pronoun = ("WHNP", "WP" if relative.pronoun == "who" else "WDT")
        clause = relative.clause
        if relative.gap == subject_role(clause.voice):
            return ("SBAR", pronoun, ("S", self.predicate(clause, head)))
        start = len(self.words)
        subject = self.phrase(_subject(clause), is_subject=True)
        span = (start, len(self.words))
        return ("SBAR", pronoun, ("S", subject, self.predicate(clause, span, (relative.gap, head))))


def _subject(clause: Clause) -> Phrase:
    """The phrase in front of the verb."""
    subject = clause.agent
    if clause.voice == "passive":
        subject = clause.patient
    elif clause.voice == "recipient_passive":
        subject = clause.recipient
    assert subject is not None, "a clause needs its subject"
    return subject
