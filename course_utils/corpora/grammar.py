"""A synchronous grammar: each rule builds an English phrase and its French translation together.

Because both sides grow together, the word alignment is known: every French word remembers the English
words that it comes from. The file has three parts: words and phrases, the rules, and the two passes that
finish French spelling (elision and contraction). Nothing here is left to chance (that is `writer.py`), so one
can ask for one exact sentence:

    subject = noun_phrase(THE, cat, SINGULAR)
    sentence(clause(subject, present(sleep, subject.person)))      # the cat sleeps . / le chat dort .
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from course_utils.corpora.lexicon import (
    ADJECTIVE_ORDER,
    FEMININE,
    IL,
    ILS,
    MASCULINE,
    PERSON,
    PLURAL,
    SINGULAR,
    THE,
    TO_BE,
    TO_HAVE,
    Adjective,
    Adverb,
    Conjunction,
    Determiner,
    Noun,
    ObjectPronoun,
    Preposition,
    SubjectPronoun,
    Verb,
)
from course_utils.corpora.pairs import Pair

# ---------------------------------------------------------------------------------- words and phrases


@dataclass(eq=False, slots=True)
class EnglishWord:
    """One English token. Two tokens with the same text are different words."""

    text: str


@dataclass(eq=False, slots=True)
class FrenchWord:
    """One French token, and the English words that it surely or possibly (`maybe`) comes from."""

    text: str
    sure: tuple[EnglishWord, ...]
    maybe: tuple[EnglishWord, ...] = ()
    is_article: bool = False  # only an article contracts with "de" and "à", never a pronoun


@dataclass(eq=False, slots=True)
class Phrase:
    """A piece of a sentence in both languages."""

    english: tuple[EnglishWord, ...]
    french: tuple[FrenchWord, ...]

    def __add__(self, other: "Phrase") -> "Phrase":
        """Put `other` after this phrase, on both sides."""
        return Phrase(self.english + other.english, self.french + other.french)


@dataclass(eq=False, slots=True)
class NounPhrase(Phrase):
    """A phrase that can be a subject or an object, with what verbs and adjectives must agree with."""

    person: int
    gender: str
    number: str
    noun: Noun | None  # None for a pronoun

    def followed_by(self, addition: Phrase) -> "NounPhrase":
        """The same noun phrase with something after it; agreement stays with its head."""
        longer = self + addition
        return NounPhrase(longer.english, longer.french, self.person, self.gender, self.number, self.noun)


@dataclass(eq=False, slots=True)
class VerbGroup(Phrase):
    """A verb with its negation or adverb; `finite` is the position of the French verb that is inflected."""

    finite: int


def linked(english: str, french: str) -> Phrase:
    """A fixed expression in which every French word comes from every English word: near -> près de."""
    words = tuple(map(EnglishWord, english.split()))
    return Phrase(words, tuple(FrenchWord(text, words) for text in french.split()))


def starts_with_vowel(french: str) -> bool:
    """Whether a word makes the one before it elide. Every h in the lexicon is silent: l'homme."""
    return french[0] in "aeiouhàâäéèêëîïôöùûüœ"


# ------------------------------------------------------------------------------ rules for noun phrases


def agreeing_adjective(adjective: Adjective, gender: str, number: str) -> str:
    """The French form of an adjective: white, feminine, plural -> blanches."""
    if gender == MASCULINE:
        return adjective.masculine if number == SINGULAR else adjective.masculine_plural
    return adjective.feminine if number == SINGULAR else adjective.feminine_plural


def agreeing_determiner(determiner: Determiner, gender: str, number: str, next_word: str) -> str:
    """The French form of a determiner, which can depend on the next word: my church -> mon église."""
    if number == PLURAL:
        return determiner.plural
    before_vowel = starts_with_vowel(next_word)
    if gender == MASCULINE:
        return (before_vowel and determiner.masculine_before_vowel) or determiner.masculine
    return (before_vowel and determiner.feminine_before_vowel) or determiner.feminine


def noun_group(noun: Noun, number: str, adjectives: Sequence[Adjective] = ()) -> Phrase:
    """A noun with its adjectives: red italian car -> voiture italienne rouge, small black dog -> petit chien noir.

    English sorts adjectives by kind. In French some stand before the noun; the others follow it, mirrored.
    """
    noun_word = EnglishWord(noun.english if number == SINGULAR else noun.english_plural)
    french_noun = noun.french if number == SINGULAR else noun.french_plural
    english, before, after = [], [], []
    for adjective in sorted(adjectives, key=lambda adjective: ADJECTIVE_ORDER.index(adjective.kind)):
        word = EnglishWord(adjective.english)
        english.append(word)
        form = agreeing_adjective(adjective, noun.gender, number)
        if adjective.preposed:
            if form == adjective.masculine and number == SINGULAR and starts_with_vowel(french_noun):
                form = adjective.before_vowel or form  # un vieil homme
            before.append(FrenchWord(form, (word,)))
        else:
            after.insert(0, FrenchWord(form, (word,)))
    return Phrase((*english, noun_word), (*before, FrenchWord(french_noun, (noun_word,)), *after))


def noun_phrase(
    determiner: Determiner, noun: Noun, number: str = SINGULAR, adjectives: Sequence[Adjective] = ()
) -> NounPhrase:
    """A determiner before a noun group: the black cat -> le chat noir, some small cats -> de petits chats."""
    group = noun_group(noun, number, adjectives)
    word = EnglishWord(determiner.english if number == SINGULAR else determiner.english_plural)
    form = agreeing_determiner(determiner, noun.gender, number, group.french[0].text)
    if form == "des" and any(adjective.preposed for adjective in adjectives):
        form = "de"
    french = FrenchWord(form, (word,), is_article=determiner is THE)
    person = IL if number == SINGULAR else ILS
    return NounPhrase((word, *group.english), (french, *group.french), person, noun.gender, number, noun)


def possessive(
    owner: NounPhrase, noun: Noun, number: str = SINGULAR, adjectives: Sequence[Adjective] = ()
) -> NounPhrase:
    """Owner and thing change places, and 's becomes article and "de": the king 's dog -> le chien du roi."""
    group = noun_group(noun, number, adjectives)
    mark = EnglishWord("'s")
    form = agreeing_determiner(THE, noun.gender, number, group.french[0].text)
    article, of = FrenchWord(form, (mark,), is_article=True), FrenchWord("de", (mark,))
    english = (*owner.english, mark, *group.english)
    french = (article, *group.french, of, *owner.french)
    return NounPhrase(english, french, IL if number == SINGULAR else ILS, noun.gender, number, noun)


def pronoun(entry: SubjectPronoun) -> NounPhrase:
    """A pronoun as a subject: she -> elle, i -> je."""
    phrase = linked(entry.english, entry.french)
    return NounPhrase(phrase.english, phrase.french, entry.person, entry.gender, entry.number, None)


def coordinated(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """Two noun phrases with "and": plural, and masculine unless both are feminine.

    the queen and the cat -> la reine et le chat (masculine)
    """
    both = first + linked("and", "et") + second
    gender = FEMININE if first.gender == second.gender == FEMININE else MASCULINE
    return NounPhrase(both.english, both.french, ILS, gender, PLURAL, first.noun)


def prepositional_phrase(preposition: Preposition, noun: NounPhrase) -> Phrase:
    """A preposition before a noun phrase: near the church -> près de l'église."""
    return linked(preposition.english, preposition.french) + noun


def subject_relative(head: NounPhrase, predicate: Phrase) -> NounPhrase:
    """The head is the subject of the clause: the man who sleeps -> l'homme qui dort.

    Build the predicate with the person, gender and number of the head.
    """
    is_person = head.noun is not None and head.noun.sense == PERSON
    return head.followed_by(linked("who" if is_person else "that", "qui") + predicate)


def object_relative(head: NounPhrase, subject: NounPhrase, verb: Verb) -> NounPhrase:
    """The head is the object of the clause: the cat that he sees -> le chat qu'il voit.

    Present only: in the past, the participle would have to agree (la pomme que j'ai mangée).
    """
    return head.followed_by(linked("that", "que") + subject + present(verb, subject.person))


# ------------------------------------------------------------------------------ rules for verb groups


def english_present(verb: Verb, person: int) -> str:
    """The English form in the present: he sees, they see."""
    return verb.third if person == IL else verb.base


def particle_words(verb: Verb) -> tuple[EnglishWord, ...]:
    """The English particle as a tuple of words, empty where the verb has none."""
    return (EnglishWord(verb.particle),) if verb.particle else ()


def present(verb: Verb, person: int) -> VerbGroup:
    """Present, with the particle gone in French: looks for -> cherche."""
    english = (EnglishWord(english_present(verb, person)), *particle_words(verb))
    return VerbGroup(english, (FrenchWord(verb.french[person], english),), finite=0)


def present_with_adverb(verb: Verb, person: int, adverb: Adverb) -> VerbGroup:
    """The adverb goes after the French verb: often sees -> voit souvent."""
    group, adverb_word = present(verb, person), EnglishWord(adverb.english)
    english = (adverb_word, *group.english)
    return VerbGroup(english, (*group.french, FrenchWord(adverb.french, (adverb_word,))), finite=0)


def present_with_not(verb: Verb, person: int) -> VerbGroup:
    """ "not" gives two French words around the verb: does not see -> ne voit pas."""
    does, negation = EnglishWord("does" if person == IL else "do"), EnglishWord("not")
    meaning = (EnglishWord(verb.base), *particle_words(verb))
    ne, pas = FrenchWord("ne", (negation,), (does,)), FrenchWord("pas", (negation,))
    return VerbGroup((does, negation, *meaning), (ne, FrenchWord(verb.french[person], meaning), pas), finite=1)


def present_with_never(verb: Verb, person: int) -> VerbGroup:
    """ "never" also gives two: never sees -> ne voit jamais."""
    group, negation = present(verb, person), EnglishWord("never")
    ne, jamais = FrenchWord("ne", (negation,)), FrenchWord("jamais", (negation,))
    return VerbGroup((negation, *group.english), (ne, *group.french, jamais), finite=1)


def past(verb: Verb, person: int) -> VerbGroup:
    """One English verb, two French ones: ate -> a mangé. Every verb of the lexicon takes "avoir"."""
    verb_word, particle = EnglishWord(verb.past), particle_words(verb)
    auxiliary = FrenchWord(TO_HAVE[person], (verb_word,))
    participle = FrenchWord(verb.participle, (verb_word, *particle))
    return VerbGroup((verb_word, *particle), (auxiliary, participle), finite=0)


def past_with_not(verb: Verb, person: int) -> VerbGroup:
    """The negation goes around the auxiliary: did not eat -> n'a pas mangé."""
    did, negation = EnglishWord("did"), EnglishWord("not")
    meaning = (EnglishWord(verb.base), *particle_words(verb))
    french = (
        FrenchWord("ne", (negation,), (did,)),
        FrenchWord(TO_HAVE[person], (did,)),
        FrenchWord("pas", (negation,)),
        FrenchWord(verb.participle, meaning),
    )
    return VerbGroup((did, negation, *meaning), french, finite=1)


def past_with_never(verb: Verb, person: int) -> VerbGroup:
    """The same with "never": never ate -> n'a jamais mangé."""
    group, negation = past(verb, person), EnglishWord("never")
    ne, jamais = FrenchWord("ne", (negation,)), FrenchWord("jamais", (negation,))
    auxiliary, participle = group.french
    return VerbGroup((negation, *group.english), (ne, auxiliary, jamais, participle), finite=1)


# ----------------------------------------------------------------- rules for predicates and sentences


def to_be(adjective: Adjective, subject: NounPhrase) -> Phrase:
    """The adjective agrees with the subject: (the queens) are small -> sont petites."""
    form = agreeing_adjective(adjective, subject.gender, subject.number)
    return linked("is" if subject.person == IL else "are", TO_BE[subject.person]) + linked(adjective.english, form)


def not_to_be(adjective: Adjective, subject: NounPhrase) -> Phrase:
    """The same, negated: (the queen) is not small -> n'est pas petite."""
    be, quality = EnglishWord("is" if subject.person == IL else "are"), EnglishWord(adjective.english)
    negation = EnglishWord("not")
    french = (
        FrenchWord("ne", (negation,)),
        FrenchWord(TO_BE[subject.person], (be,)),
        FrenchWord("pas", (negation,)),
        FrenchWord(agreeing_adjective(adjective, subject.gender, subject.number), (quality,)),
    )
    return Phrase((be, negation, quality), french)


def direct_object(group: VerbGroup, noun: NounPhrase) -> Phrase:
    """The object follows the verb in both languages: sees the dog -> voit le chien."""
    return group + noun


def pronoun_object(group: VerbGroup, entry: ObjectPronoun) -> Phrase:
    """The pronoun jumps before the French verb: sees him -> le voit, does not love her -> ne l'aime pas.

    Present only: in the past, the participle would have to agree (je l'ai vue).
    """
    word = EnglishWord(entry.english)
    before, after = group.french[: group.finite], group.french[group.finite :]
    return Phrase((*group.english, word), (*before, FrenchWord(entry.french, (word,)), *after))


def two_objects(group: VerbGroup, thing: NounPhrase, receiver: NounPhrase) -> Phrase:
    """Verbs of giving: gives a book to the king -> donne un livre au roi."""
    return group + thing + linked("to", "à") + receiver


def that_clause(group: VerbGroup, reported: Phrase) -> Phrase:
    """Verbs of thinking: thinks that he sleeps -> pense qu'il dort.

    The verb is never negated: French would need the subjunctive.
    """
    return group + linked("that", "que") + reported


def clause(subject: NounPhrase, predicate: Phrase) -> Phrase:
    """Subject and predicate: the cat sleeps -> le chat dort."""
    return subject + predicate


def joined(first: Phrase, conjunction: Conjunction, second: Phrase) -> Phrase:
    """Two clauses in one sentence: i sing because he laughs -> je chante parce qu'il rit."""
    comma = linked(",", ",") if conjunction.comma else Phrase((), ())
    return first + comma + linked(conjunction.english, conjunction.french) + second


def sentence(phrase: Phrase) -> Pair:
    """Add the full stop, finish the spelling on both sides, and number the words to get the links."""
    whole = phrase + linked(".", ".")
    french = contracted(elided(whole.french))
    position = {word: index for index, word in enumerate(whole.english)}
    sure = frozenset([(position[word], index) for index, token in enumerate(french) for word in token.sure])
    maybe = frozenset([(position[word], index) for index, token in enumerate(french) for word in token.maybe])
    english = with_a_or_an([word.text for word in whole.english])
    possible = sure | maybe if maybe else sure  # most sentences have one set for both
    return Pair(tuple(english), tuple([token.text for token in french]), sure, possible)


# ------------------------------------------------------------------------------- finishing the spelling

ELIDING = {"le": "l'", "la": "l'", "je": "j'", "me": "m'", "ne": "n'", "de": "d'", "que": "qu'"}
CONTRACTIONS = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
A_DESPITE_THE_VOWEL = {"european"}  # the letter is a vowel, the sound is not: a european cat


def elided(words: Sequence[FrenchWord]) -> list[FrenchWord]:
    """Short words lose their vowel before a vowel: le arbre -> l' arbre, ne a pas -> n' a pas."""
    finished = list(words)
    for index, word in enumerate(finished[:-1]):
        if word.text in ELIDING and starts_with_vowel(finished[index + 1].text):
            finished[index] = FrenchWord(ELIDING[word.text], word.sure, word.maybe, word.is_article)
    return finished


def contracted(words: Sequence[FrenchWord]) -> list[FrenchWord]:
    """A preposition and an article become one word: de le roi -> du roi, à les rois -> aux rois.

    Run it after elision: "de l' arbre" stays two words. Clitic pronouns do not contract (de le voir).
    """
    finished: list[FrenchWord] = []
    for word in words:
        previous = finished[-1] if finished else None
        if previous and word.is_article and (previous.text, word.text) in CONTRACTIONS:
            text = CONTRACTIONS[previous.text, word.text]
            finished[-1] = FrenchWord(text, previous.sure + word.sure, previous.maybe + word.maybe)
        else:
            finished.append(word)
    return finished


def with_a_or_an(words: Sequence[str]) -> list[str]:
    """The English article before a vowel: a old cat -> an old cat, but a european cat."""
    finished = list(words)
    for index, (word, following) in enumerate(pairwise(words)):
        if word == "a" and following[0] in "aeiou" and following not in A_DESPITE_THE_VOWEL:
            finished[index] = "an"
    return finished
