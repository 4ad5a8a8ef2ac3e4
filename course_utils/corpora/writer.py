"""The random choices that turn the grammar's rules into a corpus: which words, which rule, how long."""

import random
from collections.abc import Sequence
from typing import TypeVar

from course_utils.corpora.grammar import (
    NounPhrase,
    Phrase,
    VerbGroup,
    clause,
    coordinated,
    direct_object,
    joined,
    not_to_be,
    noun_phrase,
    object_relative,
    past,
    past_with_never,
    past_with_not,
    possessive,
    prepositional_phrase,
    present,
    present_with_adverb,
    present_with_never,
    present_with_not,
    pronoun,
    pronoun_object,
    sentence,
    subject_relative,
    that_clause,
    to_be,
    two_objects,
)
from course_utils.corpora.lexicon import (
    ADJECTIVES,
    ADVERBS,
    ANIMAL,
    CONJUNCTIONS,
    DITRANSITIVE,
    IL,
    ILS,
    INDEFINITE,
    INTRANSITIVE,
    LIVING,
    NEGATED_INDEFINITE,
    NOT_AFTER_TO_BE,
    NOUN_PREPOSITIONS,
    NOUNS,
    NUMERALS,
    OBJECT_PRONOUNS,
    ODD_PAIRS,
    PERSON,
    PLACES,
    PLURAL,
    POSSESSIVES,
    PREPOSITIONS,
    REPORTING,
    SAME_PERSON,
    SINGULAR,
    SUBJECT_PRONOUNS,
    THE,
    THINGS,
    THIS,
    TRANSITIVE,
    Adjective,
    Determiner,
    Noun,
    ObjectPronoun,
    Verb,
)
from course_utils.corpora.pairs import Pair

Item = TypeVar("Item")

PRESENT, PAST = "present", "past"
# Which determiners a noun phrase may have: all, those after a negated verb, or definite ones.
ANY_DETERMINER, AFTER_NEGATION, DEFINITE = "any", "after negation", "definite"
NOUNS_BY_SENSE = {sense: [noun for noun in NOUNS if noun.sense == sense] for sense in NOUN_PREPOSITIONS}
NOUN_BY_NAME = {noun.english: noun for noun in NOUNS}
PREPOSITION_BY_NAME = {preposition.name: preposition for preposition in PREPOSITIONS}
QUALITIES = [adjective for adjective in ADJECTIVES if adjective.english not in NOT_AFTER_TO_BE]


def sense_of(phrase: NounPhrase) -> str:
    """What its noun means; a pronoun has no noun."""
    assert phrase.noun is not None, "a pronoun has no sense"
    return phrase.noun.sense


def fitting_adjectives(noun: Noun, adjectives: Sequence[Adjective] = ADJECTIVES) -> list[Adjective]:
    """Those adjectives that make sense with a noun and mean the same in both languages."""
    return [
        adjective
        for adjective in adjectives
        if noun.sense in adjective.senses and noun.english not in ODD_PAIRS.get(adjective.english, ())
    ]


PREPOSED_FOR = {noun: [a for a in fitting_adjectives(noun) if a.preposed] for noun in NOUNS}
POSTPOSED_FOR = {noun: [a for a in fitting_adjectives(noun) if not a.preposed] for noun in NOUNS}
QUALITIES_FOR = {noun: fitting_adjectives(noun, QUALITIES) for noun in NOUNS}
# Of a person, *grand* is rather "tall".
PRONOUN_QUALITIES = [quality for quality in QUALITIES if PERSON in quality.senses and quality.english != "big"]
TRANSITIVE_FOR = {sense: [verb for verb in TRANSITIVE if sense in verb.objects] for sense in NOUN_PREPOSITIONS}


class Writer:
    """Draws sentences: decides which rule comes next and with which words.

    The same seed gives the same sentences, on every machine and Python: only `Random.random()` is used,
    whose output Python promises to keep.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random
        self.depth_limit = 0  # how deep clauses and modifiers may be nested in this sentence
        self.used: set[str] = set()  # nouns, verbs, kinds of adjective in the clause: not to be repeated

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.random() < probability

    def choose(self, options: Sequence[Item]) -> Item:
        """One of the options, all equally likely."""
        return options[int(self.random() * len(options))]

    # -------------------------------------------------------------------------------- noun phrases

    def noun(self, candidates: Sequence[Noun]) -> Noun:
        """A noun that the clause does not have yet, where there is one."""
        noun = self.choose([noun for noun in candidates if noun.english not in self.used] or candidates)
        self.used.add(noun.english)
        return noun

    def verb(self, candidates: Sequence[Verb]) -> Verb:
        """A verb that the clause does not have yet, where there is one."""
        verb = self.choose([verb for verb in candidates if verb.base not in self.used] or candidates)
        self.used.add(verb.base)
        return verb

    def noun_with_sense(self, senses: Sequence[str]) -> Noun:
        """A noun of one of these senses, the sense chosen first so that large groups do not dominate."""
        return self.noun(NOUNS_BY_SENSE[self.choose(senses)])

    def number(self) -> str:
        """Singular more often than plural."""
        return PLURAL if self.chance(0.3) else SINGULAR

    def adjectives(self, noun: Noun) -> list[Adjective]:
        """No adjective, one, or up to three of different kinds."""
        chosen = []
        if PREPOSED_FOR[noun] and self.chance(0.28):
            chosen.append(self.choose(PREPOSED_FOR[noun]))
        if self.chance(0.38):
            self.add_adjective(chosen, POSTPOSED_FOR[noun])
            if self.chance(0.25):
                self.add_adjective(chosen, POSTPOSED_FOR[noun])
        self.used.update(adjective.kind for adjective in chosen)
        return chosen

    def add_adjective(self, chosen: list[Adjective], candidates: Sequence[Adjective]) -> None:
        """Append one adjective of a kind that `chosen` does not have yet, if there is one."""
        kinds = {adjective.kind for adjective in chosen}
        fresh = [adjective for adjective in candidates if adjective.kind not in kinds]
        if fresh:
            chosen.append(self.choose(fresh))

    def determiner(self, noun: Noun, number: str, allowed: str) -> Determiner:
        """A determiner that fits; after a negated verb "a cake" is *de gâteau*."""
        options = [THE] * 5 + [THIS]
        if allowed != DEFINITE:
            options += [NEGATED_INDEFINITE if allowed == AFTER_NEGATION else INDEFINITE] * 3
        if noun.owned:
            options += POSSESSIVES
        if number == PLURAL and allowed == ANY_DETERMINER:
            options += NUMERALS
        return self.choose(options)

    def simple_noun_phrase(self, senses: Sequence[str], allowed: str = ANY_DETERMINER) -> NounPhrase:
        """A noun with a determiner or with an owner, and perhaps adjectives."""
        noun, number = self.noun_with_sense(senses), self.number()
        if noun.owned and self.chance(0.07):
            owner = self.plain_noun_phrase(NOUNS_BY_SENSE[PERSON], SINGULAR)
            return possessive(owner, noun, number, self.adjectives(noun))
        return noun_phrase(self.determiner(noun, number, allowed), noun, number, self.adjectives(noun))

    def plain_noun_phrase(self, candidates: Sequence[Noun], number: str) -> NounPhrase:
        """A noun with a determiner only: an owner, a receiver."""
        noun = self.noun(candidates)
        options = [THE, THE, THIS] + ([POSSESSIVES[0], POSSESSIVES[3]] if noun.owned else [])
        return noun_phrase(self.choose(options), noun, number)

    def noun_phrase(self, senses: Sequence[str], depth: int, allowed: str = ANY_DETERMINER) -> NounPhrase:
        """A noun phrase, perhaps with a relative clause or a prepositional phrase after it."""
        phrase = self.simple_noun_phrase(senses, allowed)
        if depth >= self.depth_limit:
            return phrase
        die = self.random()
        # After "il ne voit pas de chat qui ..." French wants the subjunctive: no relative clause there.
        relative_allowed = phrase.french[0].text != "de" or allowed != AFTER_NEGATION
        if die < 0.14 and relative_allowed:
            return subject_relative(phrase, self.predicate(phrase, self.tense(), depth + 1))
        if die < 0.26 and relative_allowed:
            return self.object_relative(phrase)
        if die < 0.34:
            return phrase.followed_by(self.prepositional_phrase(NOUN_PREPOSITIONS[sense_of(phrase)]))
        return phrase

    def object_relative(self, head: NounPhrase) -> NounPhrase:
        """A relative clause whose verb can have the head as its object."""
        verb = self.verb(TRANSITIVE_FOR[sense_of(head)])
        subject = self.pronoun() if self.chance(0.35) else self.simple_noun_phrase(verb.subjects)
        return object_relative(head, subject, verb)

    def prepositional_phrase(self, names: Sequence[str]) -> Phrase:
        """One of the named prepositions with a noun that can follow it."""
        preposition = PREPOSITION_BY_NAME[self.choose(names)]
        noun = self.noun([NOUN_BY_NAME[name] for name in preposition.nouns])
        number = PLURAL if self.chance(0.2) else SINGULAR
        # "near some trees" would be *près d'arbres*, one more rule; it is left out.
        options = [THE, THE, THIS] + ([INDEFINITE] if number == SINGULAR else [])
        if noun.owned:
            options += [POSSESSIVES[0], POSSESSIVES[3]]
        adjectives = self.adjectives(noun) if self.chance(0.5) else ()
        return prepositional_phrase(preposition, noun_phrase(self.choose(options), noun, number, adjectives))

    def pronoun(self) -> NounPhrase:
        """One of the six subject pronouns."""
        return pronoun(self.choose(SUBJECT_PRONOUNS))

    def subject(self, depth: int, tense: str) -> NounPhrase:
        """A pronoun, a noun phrase, or two of them with "and"; a thing only where it can have a predicate."""
        if self.chance(0.35):
            return self.pronoun()
        senses = [PERSON] * 6 + [ANIMAL] * 3
        if tense == PRESENT:
            senses += [self.choose(PLACES + THINGS)]
        sense = self.choose(senses)
        allowed = ANY_DETERMINER if sense in LIVING else DEFINITE
        if self.chance(0.08):
            return coordinated(self.simple_noun_phrase((sense,), allowed), self.simple_noun_phrase((sense,), allowed))
        return self.noun_phrase((sense,), depth, allowed)

    # ---------------------------------------------------------------------------------- predicates

    def tense(self) -> str:
        """Present more often than past."""
        return PAST if self.chance(0.22) else PRESENT

    def predicate(self, subject: NounPhrase, tense: str, depth: int) -> Phrase:
        """What a subject of this sense can do, in this tense. Things can only be something."""
        sense = subject.noun.sense if subject.noun else PERSON
        if sense not in LIVING:
            return self.being(subject)
        die = self.random()
        if die < 0.12 and tense == PRESENT and subject.person in (IL, ILS):
            return self.being(subject)
        if die < 0.24 and tense == PRESENT and sense == PERSON and depth < self.depth_limit:
            verb = self.verb(REPORTING)
            return that_clause(present(verb, subject.person), self.clause(self.tense(), depth + 1))
        if die < 0.33:
            return self.doing(subject, sense, tense)
        if die < 0.43 and sense == PERSON:
            return self.giving(subject, tense)
        return self.acting(subject, sense, tense, depth)

    def being(self, subject: NounPhrase) -> Phrase:
        """is strange, are not red: with a kind of adjective that the subject does not have yet."""
        candidates = QUALITIES_FOR[subject.noun] if subject.noun else PRONOUN_QUALITIES
        fresh = [adjective for adjective in candidates if adjective.kind not in self.used] or candidates
        adjective = self.choose(fresh)
        self.used.add(adjective.kind)
        return (not_to_be if self.chance(0.22) else to_be)(adjective, subject)

    def verb_group(self, verb: Verb, person: int, tense: str) -> tuple[VerbGroup, bool]:
        """A verb with a negation, with an adverb or with neither; and whether it is negated."""
        die = self.random()
        if die < 0.16:
            return (present_with_not if tense == PRESENT else past_with_not)(verb, person), True
        if die < 0.22 and not verb.state:
            return (present_with_never if tense == PRESENT else past_with_never)(verb, person), True
        if die < 0.31 and tense == PRESENT and not verb.state:
            return present_with_adverb(verb, person, self.choose(ADVERBS)), False
        return (present if tense == PRESENT else past)(verb, person), False

    def doing(self, subject: NounPhrase, sense: str, tense: str) -> Phrase:
        """An intransitive verb: works, never sleeps in the house."""
        verb = self.verb([verb for verb in INTRANSITIVE if sense in verb.subjects])
        group, _ = self.verb_group(verb, subject.person, tense)
        return group + self.prepositional_phrase(verb.prepositions) if self.chance(0.5) else group

    def giving(self, subject: NounPhrase, tense: str) -> Phrase:
        """A verb with a thing and a receiver: did not give any cakes to the boy."""
        verb = self.verb(DITRANSITIVE)
        group, negated = self.verb_group(verb, subject.person, tense)
        thing = self.simple_noun_phrase(verb.objects, AFTER_NEGATION if negated else ANY_DETERMINER)
        receiver = self.plain_noun_phrase(NOUNS_BY_SENSE[PERSON], self.number())
        return two_objects(group, thing, receiver)

    def acting(self, subject: NounPhrase, sense: str, tense: str, depth: int) -> Phrase:
        """A transitive verb with its object: a noun phrase, a pronoun, or two noun phrases with "and"."""
        verb = self.verb([verb for verb in TRANSITIVE if sense in verb.subjects])
        group, negated = self.verb_group(verb, subject.person, tense)
        if tense == PRESENT and PERSON in verb.objects and self.chance(0.28):
            return pronoun_object(group, self.object_pronoun(subject))
        allowed = DEFINITE if verb.state else AFTER_NEGATION if negated else ANY_DETERMINER
        # Only in a main clause: elsewhere "and" could also join what comes after the clause.
        if depth == 0 and not negated and self.chance(0.08):
            first, second = (self.simple_noun_phrase(verb.objects, allowed) for _ in range(2))
            return direct_object(group, coordinated(first, second))
        return direct_object(group, self.noun_phrase(verb.objects, depth + 1, allowed))

    def object_pronoun(self, subject: NounPhrase) -> ObjectPronoun:
        """A pronoun that does not stand for the subject."""
        word = subject.english[0].text
        return self.choose([entry for entry in OBJECT_PRONOUNS if (word, entry.english) not in SAME_PERSON])

    # ----------------------------------------------------------------------------------- sentences

    def clause(self, tense: str, depth: int = 0) -> Phrase:
        """A subject and a predicate."""
        outer, self.used = self.used, set()
        subject = self.subject(depth, tense)
        whole = clause(subject, self.predicate(subject, tense, depth))
        self.used |= outer
        return whole

    def sentence(self) -> Pair:
        """One to four clauses, each conjunction at most once; "when" keeps the tense."""
        self.depth_limit, self.used = self.choose((0, 1, 1, 2)), set()
        more_clauses = self.choose((0, 0, 0, 1, 1, 2, 3))
        conjunctions = list(CONJUNCTIONS)
        tense = self.tense()
        whole = self.clause(tense)
        for _ in range(more_clauses):
            conjunction = self.choose(conjunctions)
            conjunctions.remove(conjunction)
            tense = tense if conjunction.english == "when" else self.tense()
            whole = joined(whole, conjunction, self.clause(tense))
        return sentence(whole)
