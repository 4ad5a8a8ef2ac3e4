"""The words of the English-French corpus: tables, no rules.

`grammar.py` puts these words together. Each row carries both languages, and says with which other words
it makes sense: a `sense` for a noun; for an adjective or a verb, the senses that it goes with.
"""

from typing import NamedTuple

SINGULAR, PLURAL = "singular", "plural"
MASCULINE, FEMININE = "masculine", "feminine"

# Where a French verb form stands in its tuple: je, il or elle, nous, vous, ils or elles.
JE, IL, NOUS, VOUS, ILS = range(5)

PERSON, ANIMAL, BUILDING, OUTDOORS = "person", "animal", "building", "outdoors"
LARGE_THING, SMALL_THING, FOOD = "large thing", "small thing", "food"
LIVING = (PERSON, ANIMAL)
PLACES = (BUILDING, OUTDOORS)
THINGS = (LARGE_THING, SMALL_THING, FOOD)
EVERYTHING = LIVING + PLACES + THINGS


class Noun(NamedTuple):
    """A noun; `owned` says whether "my ..." means the same in both languages (*ma femme* is "my wife")."""

    english: str
    english_plural: str
    french: str
    french_plural: str
    gender: str
    sense: str
    owned: bool = True


class Adjective(NamedTuple):
    """An adjective; `kind` decides its place in English, `preposed` its side of the noun in French."""

    english: str
    masculine: str
    feminine: str
    masculine_plural: str
    feminine_plural: str
    kind: str
    senses: tuple[str, ...]
    preposed: bool = False
    before_vowel: str = ""  # masculine singular before a vowel, where it differs: un vieil homme


class Verb(NamedTuple):
    """A verb; `particle` is the English preposition that French does not have: looks *for*, cherche."""

    base: str
    third: str
    past: str
    particle: str
    french: tuple[str, str, str, str, str]
    participle: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...] = ()
    prepositions: tuple[str, ...] = ()  # names of rows in PREPOSITIONS
    state: bool = False  # a lasting state: no "never", no "always" (*toujours* would mean "still"), no "some"


class Determiner(NamedTuple):
    """A determiner; an empty form means that it has no such number ("two" has no singular)."""

    english: str
    english_plural: str
    masculine: str
    feminine: str
    plural: str
    masculine_before_vowel: str = ""
    feminine_before_vowel: str = ""


class SubjectPronoun(NamedTuple):
    """A pronoun that is the subject of a clause."""

    english: str
    french: str
    person: int
    gender: str
    number: str


class ObjectPronoun(NamedTuple):
    """A pronoun that is the object of a verb; in French it stands before the verb."""

    english: str
    french: str


class Preposition(NamedTuple):
    """A preposition and the English nouns that can follow it; `name` tells rows with the same word apart."""

    name: str
    english: str
    french: str
    nouns: tuple[str, ...]


class Adverb(NamedTuple):
    """An adverb: before the verb in English, after it in French."""

    english: str
    french: str


class Conjunction(NamedTuple):
    """A word that joins two clauses; `comma` says whether a comma stands before it."""

    english: str
    french: str
    comma: bool = False


# fmt: off
NOUNS = (
    Noun("man",       "men",        "homme",      "hommes",      MASCULINE, PERSON, owned=False),
    Noun("woman",     "women",      "femme",      "femmes",      FEMININE,  PERSON, owned=False),
    Noun("boy",       "boys",       "garçon",     "garçons",     MASCULINE, PERSON, owned=False),
    Noun("girl",      "girls",      "fille",      "filles",      FEMININE,  PERSON, owned=False),
    Noun("child",     "children",   "enfant",     "enfants",     MASCULINE, PERSON),
    Noun("student",   "students",   "étudiant",   "étudiants",   MASCULINE, PERSON),
    Noun("teacher",   "teachers",   "professeur", "professeurs", MASCULINE, PERSON),
    Noun("doctor",    "doctors",    "médecin",    "médecins",    MASCULINE, PERSON),
    Noun("king",      "kings",      "roi",        "rois",        MASCULINE, PERSON, owned=False),
    Noun("queen",     "queens",     "reine",      "reines",      FEMININE,  PERSON, owned=False),
    Noun("neighbour", "neighbours", "voisin",     "voisins",     MASCULINE, PERSON),
    Noun("cat",       "cats",       "chat",       "chats",       MASCULINE, ANIMAL),
    Noun("dog",       "dogs",       "chien",      "chiens",      MASCULINE, ANIMAL),
    Noun("bird",      "birds",      "oiseau",     "oiseaux",     MASCULINE, ANIMAL),
    Noun("horse",     "horses",     "cheval",     "chevaux",     MASCULINE, ANIMAL),
    Noun("cow",       "cows",       "vache",      "vaches",      FEMININE,  ANIMAL),
    Noun("spider",    "spiders",    "araignée",   "araignées",   FEMININE,  ANIMAL),
    Noun("mouse",     "mice",       "souris",     "souris",      FEMININE,  ANIMAL),
    Noun("house",     "houses",     "maison",     "maisons",     FEMININE,  BUILDING),
    Noun("garden",    "gardens",    "jardin",     "jardins",     MASCULINE, BUILDING),
    Noun("hotel",     "hotels",     "hôtel",      "hôtels",      MASCULINE, BUILDING),
    Noun("church",    "churches",   "église",     "églises",     FEMININE,  BUILDING),
    Noun("bridge",    "bridges",    "pont",       "ponts",       MASCULINE, OUTDOORS, owned=False),
    Noun("tree",      "trees",      "arbre",      "arbres",      MASCULINE, OUTDOORS),
    Noun("river",     "rivers",     "rivière",    "rivières",    FEMININE,  OUTDOORS, owned=False),
    Noun("car",       "cars",       "voiture",    "voitures",    FEMININE,  LARGE_THING),
    Noun("table",     "tables",     "table",      "tables",      FEMININE,  LARGE_THING),
    Noun("chair",     "chairs",     "chaise",     "chaises",     FEMININE,  LARGE_THING),
    Noun("book",      "books",      "livre",      "livres",      MASCULINE, SMALL_THING),
    Noun("letter",    "letters",    "lettre",     "lettres",     FEMININE,  SMALL_THING),
    Noun("key",       "keys",       "clé",        "clés",        FEMININE,  SMALL_THING),
    Noun("picture",   "pictures",   "tableau",    "tableaux",    MASCULINE, SMALL_THING),
    Noun("watch",     "watches",    "montre",     "montres",     FEMININE,  SMALL_THING),
    Noun("apple",     "apples",     "pomme",      "pommes",      FEMININE,  FOOD),
    Noun("orange",    "oranges",    "orange",     "oranges",     FEMININE,  FOOD),
    Noun("cake",      "cakes",      "gâteau",     "gâteaux",     MASCULINE, FOOD),
)

# English puts adjectives in this order: "the strange old black dog", "the red italian car".
OPINION, SIZE, AGE, COLOUR, ORIGIN = "opinion", "size", "age", "colour", "origin"
ADJECTIVE_ORDER = (OPINION, SIZE, AGE, COLOUR, ORIGIN)

ADJECTIVES = (
    Adjective("small",     "petit",   "petite",   "petits",   "petites",   SIZE,    EVERYTHING, preposed=True),
    Adjective("big",       "grand",   "grande",   "grands",   "grandes",   SIZE,    EVERYTHING, preposed=True),
    Adjective("old",       "vieux",   "vieille",  "vieux",    "vieilles",  AGE,     (*LIVING, *PLACES, LARGE_THING, SMALL_THING), preposed=True, before_vowel="vieil"),
    Adjective("beautiful", "beau",    "belle",    "beaux",    "belles",    OPINION, EVERYTHING, preposed=True, before_vowel="bel"),
    Adjective("new",       "nouveau", "nouvelle", "nouveaux", "nouvelles", AGE,     (*LIVING, *PLACES, LARGE_THING, SMALL_THING), preposed=True, before_vowel="nouvel"),
    Adjective("young",     "jeune",   "jeune",    "jeunes",   "jeunes",    AGE,     LIVING, preposed=True),
    Adjective("good",      "bon",     "bonne",    "bons",     "bonnes",    OPINION, (PERSON, ANIMAL, BUILDING, *THINGS), preposed=True),
    Adjective("red",         "rouge",       "rouge",       "rouges",       "rouges",       COLOUR,  (BUILDING, *THINGS)),
    Adjective("black",       "noir",        "noire",       "noirs",        "noires",       COLOUR,  (ANIMAL, *PLACES, LARGE_THING, SMALL_THING)),
    Adjective("white",       "blanc",       "blanche",     "blancs",       "blanches",     COLOUR,  (ANIMAL, *PLACES, LARGE_THING, SMALL_THING)),
    Adjective("green",       "vert",        "verte",       "verts",        "vertes",       COLOUR,  (*PLACES, *THINGS)),
    Adjective("blue",        "bleu",        "bleue",       "bleus",        "bleues",       COLOUR,  (BUILDING, LARGE_THING, SMALL_THING)),
    Adjective("french",      "français",    "française",   "français",     "françaises",   ORIGIN,  EVERYTHING),
    Adjective("italian",     "italien",     "italienne",   "italiens",     "italiennes",   ORIGIN,  EVERYTHING),
    Adjective("european",    "européen",    "européenne",  "européens",    "européennes",  ORIGIN,  EVERYTHING),
    Adjective("intelligent", "intelligent", "intelligente", "intelligents", "intelligentes", OPINION, LIVING),
    Adjective("strange",     "étrange",     "étrange",     "étranges",     "étranges",     OPINION, EVERYTHING),
    Adjective("famous",      "célèbre",     "célèbre",     "célèbres",     "célèbres",     OPINION, (PERSON, BUILDING, OUTDOORS, SMALL_THING)),
)

# Pairs that would be grammatical but mean something else in one of the languages, or make no sense:
# *un grand homme* is a great man, *une vieille fille* an unmarried woman, *une bonne femme* is rude.
ODD_PAIRS = {
    "big": (
        "man", "woman", "child", "student", "teacher", "doctor", "king", "queen", "neighbour",
        "cat", "cow", "spider", "mouse", "apple", "orange",  # for these French rather says *gros*
    ),
    "small": ("student", "teacher", "doctor", "king", "queen", "neighbour", "river"),
    "old": ("boy", "girl", "child", "student", "river"),
    "young": ("boy", "girl", "child"),
    "new": ("man", "woman", "boy", "girl", "child", "mouse", "spider", "cow", "river"),
    "good": ("man", "woman", "boy", "girl", "child", "king", "queen", "church", "cow", "spider", "mouse", "bird"),
    "beautiful": ("girl", "key", "child"),  # *belle-fille* is a daughter-in-law
    "red": ("orange", "garden", "letter", "cake"),
    "blue": ("garden", "letter"),
    "green": ("cake", "orange", "letter"),
    "black": ("garden", "letter", "river"),
    "white": ("garden", "letter", "river"),
    "famous": ("letter", "key", "watch", "boy", "girl", "child", "tree", "garden"),
}

# Not used after "is": "is new" would be *neuf* for a thing, and a person who "is good" is kind.
NOT_AFTER_TO_BE = ("new", "good")

TRANSITIVE = (
    Verb("see",    "sees",    "saw",     "",    ("vois", "voit", "voyons", "voyez", "voient"), "vu", LIVING, EVERYTHING),
    Verb("love",   "loves",   "loved",   "",    ("aime", "aime", "aimons", "aimez", "aiment"), "aimé", LIVING, EVERYTHING, state=True),
    Verb("look",   "looks",   "looked",  "for", ("cherche", "cherche", "cherchons", "cherchez", "cherchent"), "cherché", LIVING, EVERYTHING),
    Verb("look",   "looks",   "looked",  "at",  ("regarde", "regarde", "regardons", "regardez", "regardent"), "regardé", LIVING, EVERYTHING),
    Verb("listen", "listens", "listened", "to", ("écoute", "écoute", "écoutons", "écoutez", "écoutent"), "écouté", LIVING, (PERSON,)),
    Verb("wait",   "waits",   "waited",  "for", ("attends", "attend", "attendons", "attendez", "attendent"), "attendu", LIVING, (PERSON,)),
    Verb("find",   "finds",   "found",   "",    ("trouve", "trouve", "trouvons", "trouvez", "trouvent"), "trouvé", LIVING, EVERYTHING),
    Verb("draw",   "draws",   "drew",    "",    ("dessine", "dessine", "dessinons", "dessinez", "dessinent"), "dessiné", (PERSON,), EVERYTHING),
    Verb("help",   "helps",   "helped",  "",    ("aide", "aide", "aidons", "aidez", "aident"), "aidé", LIVING, LIVING),
    Verb("admire", "admires", "admired", "",    ("admire", "admire", "admirons", "admirez", "admirent"), "admiré", (PERSON,), EVERYTHING, state=True),
    Verb("know",   "knows",   "knew",    "",    ("connais", "connaît", "connaissons", "connaissez", "connaissent"), "connu", LIVING, (PERSON,), state=True),
    Verb("buy",    "buys",    "bought",  "",    ("achète", "achète", "achetons", "achetez", "achètent"), "acheté", (PERSON,), THINGS),
    Verb("sell",   "sells",   "sold",    "",    ("vends", "vend", "vendons", "vendez", "vendent"), "vendu", (PERSON,), THINGS),
    Verb("eat",    "eats",    "ate",     "",    ("mange", "mange", "mangeons", "mangez", "mangent"), "mangé", LIVING, (FOOD,)),
)
INTRANSITIVE = (
    Verb("sleep",  "sleeps",  "slept",   "",    ("dors", "dort", "dormons", "dormez", "dorment"), "dormi", LIVING, prepositions=("in", "behind", "with animals", "near", "under")),
    Verb("sing",   "sings",   "sang",    "",    ("chante", "chante", "chantons", "chantez", "chantent"), "chanté", (PERSON,), prepositions=("in", "behind", "with people", "near")),
    Verb("laugh",  "laughs",  "laughed", "",    ("ris", "rit", "rions", "riez", "rient"), "ri", (PERSON,), prepositions=("in", "with people")),
    Verb("swim",   "swims",   "swam",    "",    ("nage", "nage", "nageons", "nagez", "nagent"), "nagé", LIVING, prepositions=("in water", "with", "under a bridge")),
    Verb("work",   "works",   "worked",  "",    ("travaille", "travaille", "travaillons", "travaillez", "travaillent"), "travaillé", (PERSON,), prepositions=("in", "behind", "with people", "near")),
)
# Verbs with "to": gives the book to the king.
DITRANSITIVE = (
    Verb("give",   "gives",   "gave",    "",    ("donne", "donne", "donnons", "donnez", "donnent"), "donné", (PERSON,), THINGS),
    Verb("show",   "shows",   "showed",  "",    ("montre", "montre", "montrons", "montrez", "montrent"), "montré", (PERSON,), (ANIMAL, *PLACES, *THINGS)),
    Verb("sell",   "sells",   "sold",    "",    ("vends", "vend", "vendons", "vendez", "vendent"), "vendu", (PERSON,), THINGS),
)
# Verbs with a that-clause.
REPORTING = (
    Verb("think",  "thinks",  "thought", "",    ("pense", "pense", "pensons", "pensez", "pensent"), "pensé", (PERSON,)),
    Verb("say",    "says",    "said",    "",    ("dis", "dit", "disons", "dites", "disent"), "dit", (PERSON,)),
    Verb("hope",   "hopes",   "hoped",   "",    ("espère", "espère", "espérons", "espérez", "espèrent"), "espéré", (PERSON,)),
    Verb("know",   "knows",   "knew",    "",    ("sais", "sait", "savons", "savez", "savent"), "su", (PERSON,)),
)
TO_BE = ("suis", "est", "sommes", "êtes", "sont")
TO_HAVE = ("ai", "a", "avons", "avez", "ont")

THE = Determiner("the", "the", "le", "la", "les")
INDEFINITE = Determiner("a", "some", "un", "une", "des")
NEGATED_INDEFINITE = Determiner("a", "any", "de", "de", "de")  # the object of a negated verb
THIS = Determiner("this", "these", "ce", "cette", "ces", masculine_before_vowel="cet")
POSSESSIVES = (
    Determiner("my",    "my",    "mon",   "ma",    "mes",   feminine_before_vowel="mon"),
    Determiner("his",   "his",   "son",   "sa",    "ses",   feminine_before_vowel="son"),
    Determiner("her",   "her",   "son",   "sa",    "ses",   feminine_before_vowel="son"),
    Determiner("our",   "our",   "notre", "notre", "nos"),
    Determiner("their", "their", "leur",  "leur",  "leurs"),
)
NUMERALS = (
    Determiner("", "two",   "", "", "deux"),
    Determiner("", "three", "", "", "trois"),
    Determiner("", "four",  "", "", "quatre"),
)

SUBJECT_PRONOUNS = (
    SubjectPronoun("i",    "je",   JE,   MASCULINE, SINGULAR),
    SubjectPronoun("he",   "il",   IL,   MASCULINE, SINGULAR),
    SubjectPronoun("she",  "elle", IL,   FEMININE,  SINGULAR),
    SubjectPronoun("we",   "nous", NOUS, MASCULINE, PLURAL),
    SubjectPronoun("you",  "vous", VOUS, MASCULINE, PLURAL),
    SubjectPronoun("they", "ils",  ILS,  MASCULINE, PLURAL),
)
OBJECT_PRONOUNS = (
    ObjectPronoun("me",   "me"),
    ObjectPronoun("him",  "le"),
    ObjectPronoun("her",  "la"),
    ObjectPronoun("us",   "nous"),
    ObjectPronoun("you",  "vous"),
    ObjectPronoun("them", "les"),
)
# "i see me" would have to be reflexive; reflexive verbs are left out.
SAME_PERSON = {("i", "me"), ("i", "us"), ("we", "us"), ("we", "me"), ("you", "you")}

PEOPLE_NAMES = tuple(noun.english for noun in NOUNS if noun.sense == PERSON)
ANIMAL_NAMES = tuple(noun.english for noun in NOUNS if noun.sense == ANIMAL)
PREPOSITIONS = (
    Preposition("in",             "in",     "dans",     ("house", "garden", "hotel", "church", "car")),
    Preposition("in a building",  "in",     "dans",     ("house", "garden", "hotel", "church")),
    Preposition("in water",       "in",     "dans",     ("river",)),
    Preposition("behind",         "behind", "derrière", ("house", "hotel", "church", "tree", "car")),
    Preposition("with",           "with",   "avec",     PEOPLE_NAMES + ANIMAL_NAMES),
    Preposition("with people",    "with",   "avec",     PEOPLE_NAMES),
    Preposition("with animals",   "with",   "avec",     ANIMAL_NAMES),
    Preposition("near",           "near",   "près de",  ("house", "garden", "hotel", "church", "bridge", "tree", "river", *PEOPLE_NAMES)),
    Preposition("near a place",   "near",   "près de",  ("house", "garden", "hotel", "church", "bridge", "tree", "river")),
    Preposition("under",          "under",  "sous",     ("table", "chair", "tree", "bridge")),
    Preposition("under a bridge", "under",  "sous",     ("bridge",)),
)
# Which of them can follow a noun: "the cat under the table".
NOUN_PREPOSITIONS = {
    PERSON: ("in", "behind", "with", "near"),
    ANIMAL: ("in", "behind", "with", "near", "under"),
    BUILDING: ("near a place",),
    OUTDOORS: ("near a place", "behind"),
    LARGE_THING: ("in a building", "near"),
    SMALL_THING: ("in", "under"),
    FOOD: ("in", "under"),
}

ADVERBS = (Adverb("often", "souvent"), Adverb("always", "toujours"))

CONJUNCTIONS = (
    Conjunction("and",     "et"),
    Conjunction("but",     "mais", comma=True),
    Conjunction("because", "parce que"),
    Conjunction("when",    "quand"),
)
# fmt: on
