"""The same event in other words: in the other voice, or with the roles exchanged.

Only the grammar can do this, since verbs, articles and pronouns change their form with it.
"""

from tupe_jax.data.builtin.plan import (
    Clause,
    Complex,
    Compound,
    Coordination,
    Name,
    NounPhrase,
    Phrase,
    Statement,
)
from tupe_jax.data.builtin.realise import realise
from tupe_jax.data.builtin.sentence import Sentence
from tupe_jax.data.builtin.voice import is_bound, other_voice


def swap_roles(sentence: Sentence) -> Sentence | None:
    """The sentence with agent and patient of its main clause exchanged.

    None where there are not both, where the result would not be English (himself, her own horse),
    or where the verb does not take the two nouns the other way round (hay feeds no horses).
    """
    clause = main_clause(sentence.plan)
    if clause is None:
        return None
    exchanged = _exchange(clause)
    if exchanged is None:
        return None
    swapped = realise(with_main_clause(sentence.plan, exchanged))
    return None if swapped.words == sentence.words else swapped


def change_voice(sentence: Sentence) -> Sentence | None:
    """The same event in the passive, or in the active; None where there is no such sentence."""
    clause = main_clause(sentence.plan)
    if clause is None:
        return None
    changed = other_voice(clause)
    return None if changed is None else realise(with_main_clause(sentence.plan, changed))


def _exchange(clause: Clause) -> Clause | None:
    """The clause with agent and patient exchanged, if that makes sense."""
    agent, patient, verb = clause.agent, clause.patient, clause.verb
    if agent is None or patient is None:
        return None
    fits = _kinds(agent) <= verb.patients and _kinds(patient) <= verb.agents
    if not fits or is_bound(agent) or is_bound(patient):
        return None
    return clause._replace(agent=patient, patient=agent)


def main_clause(statement: Statement) -> Clause | None:
    """The clause that carries the sentence, if there is just one."""
    body = statement.body
    if isinstance(body, Clause):
        return body
    return body.main if isinstance(body, Complex) else None


def with_main_clause(statement: Statement, clause: Clause) -> Statement:
    """The statement with another main clause."""
    body = statement.body
    if isinstance(body, Complex):
        return statement._replace(body=body._replace(main=clause))
    assert not isinstance(body, Compound)
    return statement._replace(body=clause)


def _kinds(phrase: Phrase) -> frozenset[str]:
    """The kinds of nouns that a phrase stands for; `it` and `they` do not show theirs."""
    if isinstance(phrase, NounPhrase):
        return frozenset({phrase.noun.kind})
    if isinstance(phrase, Coordination):
        return _kinds(phrase.left) | _kinds(phrase.right)
    if isinstance(phrase, Name) or phrase.which in ("m", "f"):
        return frozenset({"person"})
    return frozenset({"unknown"})
