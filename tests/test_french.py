"""The corpus's French before a judge that did not write it: Grammalecte, a French grammar checker with its lexicon.

It is Debian's package python3-grammalecte, pure Python but not in this environment. So this file is also a program
that runs apart and may look into Debian's folder: JSON on its standard input, JSON on its standard output.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest

from course_utils.corpora import english_french, lexicon
from course_utils.corpora.lexicon import FEMININE, MASCULINE, PLURAL, SINGULAR
from course_utils.syllabus import ROOT

SENTENCES, SEED = 5_000, 1_789

DEBIAN = "/usr/lib/python3/dist-packages"
NOT_INSTALLED = 3  # exit code of the program

# What the checker finds though it is right: a rule, words that the sentence then has, and why.
FALSE_ALARMS = {
    "g3__gn_det_nom_mas_et_det_nom_mas__b2_a1_1": (
        "orange",
        "The adjective in “la pomme et son orange française” belongs to the orange. Its lexicon has one entry for the "
        "fruit (feminine) and the colour (masculine), so the checker takes the orange for a masculine noun.",
    ),
}

# ---- the program ---------------------------------------------------------------------------------------------------


def program() -> int:
    """Reads {"sentences": [...], "words": [...]}; writes what was found in each, and what each word can be."""
    sys.path.append(DEBIAN)  # at the end: whatever this environment has comes first
    try:
        import grammalecte
    except ImportError:
        return NOT_INSTALLED
    checker = grammalecte.GrammarChecker("fr")
    asked = json.load(sys.stdin)
    answer = {
        "findings": [list(found(checker, sentence)) for sentence in asked["sentences"]],
        "readings": [checker.getSpellChecker().getMorph(word) for word in asked["words"]],
    }
    json.dump(answer, sys.stdout)
    return 0


def found(checker, sentence: str) -> Iterator[tuple[str, str]]:
    """Rule and message of each finding; a word that the checker does not know counts as one."""
    grammar, spelling = checker.getParagraphErrors(sentence)
    for finding in grammar:
        yield finding["sRuleId"], finding["sMessage"]
    for finding in spelling:
        yield "spelling", finding["sValue"]


# ---- asking it -----------------------------------------------------------------------------------------------------


class Finding(NamedTuple):
    sentence: str
    rule: str
    message: str


def ask(sentences: Iterable[str] = (), words: Iterable[str] = ()) -> dict[str, list]:
    """What the program answers. Where the checker is missing the test is skipped; in CI it fails."""
    question = json.dumps({"sentences": list(sentences), "words": list(words)})
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    command = [sys.executable, __file__]
    done = subprocess.run(command, input=question, env=variables, capture_output=True, encoding="utf-8", timeout=300)
    if done.returncode == NOT_INSTALLED:
        missing = "Grammalecte is not here (Debian: apt-get install python3-grammalecte)"
        # Skipped unseen, the French would be checked nowhere.
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def findings(sentences: list[str]) -> list[Finding]:
    answers = ask(sentences=sentences)["findings"]
    return [Finding(text, *one) for text, answer in zip(sentences, answers, strict=True) for one in answer]


def is_false_alarm(finding: Finding) -> bool:
    word, _ = FALSE_ALARMS.get(finding.rule, (None, ""))
    return word is not None and word in finding.sentence


# ---- sentences -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_checker_finds_nothing_in_the_corpus():
    """It notices most kinds of error in most sentences, so a wrong rule, used a thousand times, cannot hide."""
    assert SEED not in (english_french.TRAIN_SEED, english_french.VALIDATION_SEED, english_french.TEST_SEED)
    made = english_french.generate(SENTENCES + SENTENCES // 10, SEED)
    sentences = list(dict.fromkeys(english_french.detokenize_french(pair.target) for pair in made))[:SENTENCES]
    assert len(sentences) == SENTENCES
    everything = findings(sentences)
    assert [finding for finding in everything if not is_false_alarm(finding)] == []
    assert len(everything) <= SENTENCES // 500, "so many false alarms may hide an error"


CORRECT = (
    "La chatte dort.",
    "Les chats dorment.",
    "Nous voyons la petite maison.",
    "Le vieil homme ne l’a pas vu.",
    "J’aime mon orange.",
    "Elle travaille près du jardin du roi.",
)
BROKEN = {
    "gender of the article": "Le chatte dort.",
    "number of the noun": "Les chat dorment.",
    "number of the verb": "Les chats dort.",
    "person of the verb": "Je voit la maison.",
    "gender of the adjective": "Nous voyons la petit maison.",
    "number of the adjective": "Nous voyons les petit maisons.",
    "form before a vowel": "Le vieux homme dort.",
    "possessive before a vowel": "Il aime ma orange.",
    "elision": "Je aime le chat.",
    "contraction": "Elle travaille près de le jardin.",
    "participle": "Il a manger la pomme.",
    "spelling": "Le chaat dort.",
}


def test_checker_really_checks():
    broken = list(BROKEN.values())
    noticed = {finding.sentence for finding in findings([*CORRECT, *broken])}
    assert noticed == set(broken)
    assert findings(["La pomme et son orange française sont petites."]), "no false alarm any more: shorten the list"


# ---- words ---------------------------------------------------------------------------------------------------------

# How a reading such as ">petit/:N:A:f:s/*" names what we need; "e" fits both genders, "i" both numbers.
GENDER = {MASCULINE: {"m", "e"}, FEMININE: {"f", "e"}}
NUMBER = {SINGULAR: {"s", "i"}, PLURAL: {"p", "i"}}
PERSONS = ("1s", "3s", "1p", "2p", "3p")  # in the order of a verb's forms


class Form(NamedTuple):
    """A word form, and what it has to be: each group holds the tags of which one must be there."""

    word: str
    needs: tuple[frozenset[str], ...] = ()


def form(word: str, *needs: Iterable[str]) -> Form:
    return Form(word, tuple(map(frozenset, needs)))


def tags(reading: str) -> set[str]:
    """The parts of a reading: V1_it____a, Ip, Sp, 1s, 3s of ">chanter/:V1_it____a:Ip:Sp:1s:3s/*"; no marks like ;C."""
    described = reading.split("/")[1]
    return {tag.partition(";")[0].partition("#")[0].rstrip("!") for tag in described.split(":") if tag}


def lemma(reading: str) -> str:
    return reading.removeprefix(">").split("/")[0]


def confirmed(wanted: Form, readings: list[str]) -> set[str]:
    """The lemmas of the readings that are what the form has to be."""
    return {lemma(one) for one in readings if all(group & tags(one) for group in wanted.needs)}


def noun_forms(noun: lexicon.Noun) -> list[Form]:
    words = {SINGULAR: noun.french, PLURAL: noun.french_plural}
    return [form(word, {"N"}, GENDER[noun.gender], NUMBER[number]) for number, word in words.items()]


def adjective_forms(adjective: lexicon.Adjective) -> list[Form]:
    words = [
        (adjective.masculine, MASCULINE, SINGULAR),
        (adjective.feminine, FEMININE, SINGULAR),
        (adjective.masculine_plural, MASCULINE, PLURAL),
        (adjective.feminine_plural, FEMININE, PLURAL),
    ]
    forms = [form(word, {"A"}, GENDER[gender], NUMBER[number]) for word, gender, number in words]
    if adjective.before_vowel:
        forms.append(form(adjective.before_vowel, {"A"}, GENDER[MASCULINE], NUMBER[SINGULAR]))
    return forms


def present_forms(words: tuple[str, ...]) -> list[Form]:
    return [form(word, {"Ip"}, {person}) for word, person in zip(words, PERSONS, strict=True)]


def verb_forms(verb: lexicon.Verb) -> list[Form]:
    participle = form(verb.participle, {"Q"}, GENDER[MASCULINE], NUMBER[SINGULAR])
    return [*present_forms(verb.french), participle]


VERBS = (*lexicon.TRANSITIVE, *lexicon.INTRANSITIVE, *lexicon.DITRANSITIVE, *lexicon.REPORTING)
DETERMINERS = (
    *(lexicon.THE, lexicon.INDEFINITE, lexicon.NEGATED_INDEFINITE, lexicon.THIS),
    *lexicon.POSSESSIVES,
    *lexicon.NUMERALS,
)

# The forms of one word stand together, by its English name.
INFLECTED = (
    [(noun.english, noun_forms(noun)) for noun in lexicon.NOUNS]
    + [(adjective.english, adjective_forms(adjective)) for adjective in lexicon.ADJECTIVES]
    + [(" ".join((verb.base, verb.particle)), verb_forms(verb)) for verb in VERBS]
    + [("be", present_forms(lexicon.TO_BE)), ("have", present_forms(lexicon.TO_HAVE))]
)


def short_words() -> set[str]:
    """All other French words: articles, pronouns, prepositions, adverbs, conjunctions."""
    rows = lexicon.SUBJECT_PRONOUNS + lexicon.OBJECT_PRONOUNS + lexicon.PREPOSITIONS
    texts = [row.french for row in rows + lexicon.ADVERBS + lexicon.CONJUNCTIONS]
    texts += [word for determiner in DETERMINERS for word in determiner[2:]]  # after the two English columns
    return {word for text in texts for word in text.split()}


def unconfirmed(groups: list[tuple[str, list[Form]]]) -> list[str]:
    """The words of which a form is not what it has to be, or whose forms belong to different words."""
    forms = [one for _, group in groups for one in group]
    readings = dict(zip(forms, ask(words=[one.word for one in forms])["readings"], strict=True))
    return [name for name, group in groups if not set.intersection(*(confirmed(one, readings[one]) for one in group))]


def test_every_inflected_form_is_confirmed():
    assert unconfirmed(INFLECTED) == []


def test_every_word_is_known():
    made = english_french.generate(1_000, SEED)
    words = short_words() | {word.replace("'", "’") for pair in made for word in pair.target} - {",", "."}
    words |= {one.word for _, group in INFLECTED for one in group}
    readings = ask(words=sorted(words))["readings"]
    assert [word for word, found in zip(sorted(words), readings, strict=True) if not found] == []


def test_wrong_forms_are_not_confirmed():
    other = {MASCULINE: FEMININE, FEMININE: MASCULINE}
    # These have both genders, all or in its lexicon: une enfant, la livre (the pound).
    both = {"child", "doctor", "mouse", "book", "orange"}
    nouns = [noun for noun in lexicon.NOUNS if noun.english not in both]
    wrong = [(noun.english, noun_forms(noun._replace(gender=other[noun.gender]))) for noun in nouns]
    wrong += [
        ("plural", [form("cheval", {"N"}, GENDER[MASCULINE], NUMBER[PLURAL])]),
        ("no such word", [form("chevals", {"N"})]),
        ("person", present_forms(("vois", "vois", "voyons", "voyez", "voient"))),
        ("two verbs", present_forms(("vois", "dort", "voyons", "voyez", "voient"))),
    ]
    assert unconfirmed(wrong) == [name for name, _ in wrong]


if __name__ == "__main__":
    sys.exit(program())
