"""Sentences as words and signs."""

import re
import unicodedata
from typing import Literal, NamedTuple

Language = Literal["eng", "fra"]

_SAME_SIGN = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "＇": "'", "“": '"', "”": '"', "„": '"', "\u2010": "-", "\u2011": "-", "…": "..."}
    | dict.fromkeys("\u00ad\u200b\u2060\ufeff")  # soft hyphen, zero-width space, word joiner, byte-order mark: removed
)

_LETTER = r"[\w\u0300-\u036f]"  # combining accents too: not every accented letter has a single code point
_NUMBER = r"\d++(?:[.,:]\d++)*+"  # 3.14, 10,000, 8:30, 7

# What may be glued to the end of a word and is a word of its own, where no more letters follow it; several may stand
# in a row. A long row must not be read to its end from each of its members, or the time grows with the square: so `*+`
# and `++` never try a shorter row, what stands behind a known ending needs no look ahead, and a row that belongs to a
# word is passed over as a whole.
_PRONOUN = rf"-(?:t-)?(?:je|tu|ils?|elles?|on|nous|vous|ce|moi|toi|les?|la|lui|leur|y|en)(?!{_LETTER})"
_ELIDED_PRONOUN = rf"-[mtl]' (?= \s*(?:en|y|ils?|elles?|on)(?!{_LETTER}) )"


class _Endings(NamedTuple):
    """Patterns for the endings of a language."""

    first: str  # an ending, after a look at the rest of its row
    next: str  # an ending right behind a word or an ending, which would go on here if this were none
    row: str  # a row where `first` does not match: part of a word


_ENDINGS: dict[Language, _Endings] = {
    # do|n't, i|'m, king|'s; but not inside what's-his-name
    "eng": _Endings(
        first=rf"(?: n't | '(?:s|m|d|re|ve|ll) ) (?= (?:-?n't)*+ (?!-?{_LETTER}) )",
        next=rf"(?: (?<={_LETTER}) | (?<=n't-) ) n't",
        row="n't(?:-?n't)*+",
    ),
    # vas|-tu, a|-t-il, allons|-nous|-en, va|-t'|en; but not inside cessez-le-feu
    "fra": _Endings(
        first=rf"(?: {_PRONOUN} (?= (?:{_PRONOUN})*+ (?: {_ELIDED_PRONOUN} | (?!['-]?{_LETTER}) ) )"
        rf" | {_ELIDED_PRONOUN} )",
        next=rf"(?<={_LETTER}) {_PRONOUN}",
        row=rf"(?=-)(?<={_LETTER}) (?:{_PRONOUN})++",
    ),
}
# What stays whole, or is a word of its own, at the start of a word.
_BEGINNINGS: dict[Language, str] = {
    "eng": r"(?: mr | mrs | ms | dr | prof | st ) \. (?=\s+\w)",
    "fra": rf"""(?: c'est-à-dire | rendez-vous ) (?!['-]?{_LETTER})
              | (?: m | mm | dr ) \. (?=\s+\w)
              | (?: [cdjlmnst] | qu | jusqu | lorsqu | puisqu | quoiqu | presqu(?!'île) )'""",
}


def _scanner(language: Language) -> re.Pattern[str]:
    """Return the pattern whose matches, from left to right, are the tokens of a normalised text."""
    first, following, row = _ENDINGS[language]
    letters = rf"(?: (?!{first}) (?: {row} | {_NUMBER} | {_LETTER} ) )+"
    return re.compile(
        rf"""{_BEGINNINGS[language]}
           | {following} | {first}
           | [^\W\d_]\.(?:-?[^\W\d_]\.)+                       # a.m., d.h., j.-c.
           | {letters} (?: (?!{first}) ['-] {letters} )*       # words, o'clock and well-known among them
           | \.{{2,}} | -{{2,}}                                # dots and dashes in a row are one sign
           | \S                                                # any other sign stands alone""",
        re.VERBOSE,
    )


_SCANNERS = {language: _scanner(language) for language in _ENDINGS}


_MANY_ACCENTS = re.compile("[\u0300-\u034e\u0350-\u036f]{9,}")  # U+034F is none: it keeps others apart


def normalise(text: str) -> str:
    # The order that `normalize` would give them, but in a time that does not grow with the square of their number.
    text = _MANY_ACCENTS.sub(lambda row: "".join(sorted(row[0], key=unicodedata.combining)), text)
    return unicodedata.normalize("NFC", text.translate(_SAME_SIGN).lower())


def tokenize(text: str, language: Language) -> tuple[str, ...]:
    """Split a sentence into words and signs, in lower case and Unicode's form NFC.

    The rule only puts spaces into the text (and makes ’ to ', “ to ", … to ...), so a text that is already
    split comes back as it is. What is one token:

    - a sign, `...`, a number (`10,000`, `2:30`), a hyphenated word, `a.m.`, `mr.` before a name;
    - English: `do n't`, `ca n't`, `i 'm`, `the king 's`, as in the Penn Treebank
      (Marcus et al. 1993, https://aclanthology.org/J93-2004); `o'clock` stays whole;
    - French: an elision with its apostrophe (`l' arbre`, `qu' il`; `aujourd'hui` and `quelqu'un` stay whole), and
      a pronoun after its verb with its hyphen (`vas -tu`, `a -t-il`, `donne -le -moi`; `rendez-vous` stays whole).

    The language is needed because both write the same signs: `add-on` is one word and `peut-on` is two.

    >>> tokenize("Don't look at the king's dog.", "eng")
    ('do', "n't", 'look', 'at', 'the', 'king', "'s", 'dog', '.')
    >>> tokenize("Qu'est-ce que l'arbre a ?", "fra")
    ("qu'", 'est', '-ce', 'que', "l'", 'arbre', 'a', '?')

    Raises ValueError for a language other than "eng" and "fra".
    """
    if language not in _SCANNERS:
        raise ValueError(f"language must be one of {', '.join(map(repr, _SCANNERS))}; got {language!r}")
    return tuple(_SCANNERS[language].findall(normalise(text)))
