"""Active and passive: what has both, and how to get from one to the other."""

from tupe_jax.data.builtin.lexicon import Verb
from tupe_jax.data.builtin.plan import Clause, Coordination, NounPhrase, Phrase, Pronoun


def may_be_passive(verb: Verb) -> bool:
    """Whether the verb has a passive that people say."""
    return verb.frame in ("transitive", "ditransitive", "dative") and not verb.preposition


def other_voice(clause: Clause) -> Clause | None:
    """The clause in the other voice, or None where that would be odd."""
    agent, patient = clause.agent, clause.patient
    if agent is None or patient is None or not may_be_passive(clause.verb):
        return None
    if is_bound(agent) or is_bound(patient):
        return None
    if clause.voice != "active":
        return clause._replace(voice="active")
    return clause._replace(voice="recipient_passive" if clause.recipient_first else "passive")


def is_bound(phrase: Phrase) -> bool:
    """Whether the phrase has to stand where it does: himself, her horse, any horses, no horse."""
    if isinstance(phrase, Coordination):
        return is_bound(phrase.left) or is_bound(phrase.right)
    if isinstance(phrase, NounPhrase):
        out_of_place = phrase.determiner in ("any", "no", "another", "other")
        return out_of_place or isinstance(phrase.owner, Pronoun)
    return isinstance(phrase, Pronoun) and phrase.reflexive
