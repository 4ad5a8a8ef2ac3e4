"""Sentence pairs: what a translator learns from, and the files they stand in."""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

Link = tuple[int, int]  # (source position, target position), both from 0
Language = Literal["eng", "fra"]


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation as tokens, with word alignments where they are known.

    `sure` links are certain, `possible` links are acceptable; `possible` contains `sure`
    (Och and Ney 2003, https://aclanthology.org/J03-1002).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link] = frozenset()
    possible: frozenset[Link] = frozenset()

    @classmethod
    def from_text(cls, source: str, target: str, sure: str = "", possible: str = "") -> "Pair":
        """A pair from tokens with spaces between them, and links such as "0-0 1-2"; sure ones are possible too."""
        links = _links(sure)
        return cls(tuple(source.split()), tuple(target.split()), links, links | _links(possible))


@dataclass(frozen=True)
class SkippedLine:
    """A line of a file that is not a pair: its number (from 1), the reason, and the start of its text."""

    number: int
    reason: str
    text: str


@dataclass(frozen=True, repr=False)  # a notebook that shows a corpus must not print 20,000 pairs
class Corpus:
    """The pairs of a file, in its order, and the lines that could not be read. `print` shows the report."""

    pairs: list[Pair]
    skipped: list[SkippedLine]

    def report(self, named: int = 10) -> str:
        """Say in one paragraph how many pairs there are and which lines were skipped; the first `named` in full."""
        read = f"{_count(len(self.pairs), 'pair')} read"
        if not self.skipped:
            return f"{read}; no line skipped."
        parts = [f"line {line.number:,}: {line.reason}" for line in self.skipped[:named]]
        rest = Counter(line.reason for line in self.skipped[named:])
        if rest:
            kinds = [f"{number:,} × {reason}" for reason, number in rest.most_common(3)]
            others = rest.total() - sum(number for _, number in rest.most_common(3))
            kinds += [f"{others:,} for other reasons"] if others else []
            parts.append(f"and {rest.total():,} more ({', '.join(kinds)})")
        return f"{read}; {_count(len(self.skipped), 'line')} skipped: {'; '.join(parts)}."

    __str__ = report

    def __repr__(self) -> str:
        return f"<Corpus: {self.report()}>"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# ------------------------------------------------------------------------------------------------ words

_SAME_SIGN = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "＇": "'", "“": '"', "”": '"', "„": '"', "\u2010": "-", "\u2011": "-", "…": "..."}
    | dict.fromkeys("\u00ad\u200b\u2060\ufeff")  # soft hyphen, zero-width space, word joiner, byte-order mark: removed
)

_LETTER = r"[\w\u0300-\u036f]"  # combining accents too: not every accented letter has a single code point
_NUMBER = r"\d+(?:[.,:]\d+)+"  # 3.14, 10,000, 8:30

# What may be glued to the end of a word and is a word of its own; several may follow each other.
_PRONOUN = "-(?:t-)?(?:je|tu|ils?|elles?|on|nous|vous|ce|moi|toi|les?|la|lui|leur|y|en)"
_ELIDED_PRONOUN = rf"-[mtl]' (?= \s*(?:en|y|ils?|elles?|on)(?!{_LETTER}) )"
_ENDINGS = {
    # do|n't, i|'m, king|'s; but not inside what's-his-name
    "eng": rf"(?: n't | '(?:s|m|d|re|ve|ll) ) (?= (?:-?n't)* (?!-?{_LETTER}) )",
    # vas|-tu, a|-t-il, allons|-nous|-en, va|-t'|en; but not inside cessez-le-feu
    "fra": rf"(?: {_PRONOUN} (?= (?:{_PRONOUN})* (?: {_ELIDED_PRONOUN} | (?!['-]?{_LETTER}) ) ) | {_ELIDED_PRONOUN} )",
}
# What stays whole, or is a word of its own, at the start of a word.
_BEGINNINGS = {
    "eng": r"(?: mr | mrs | ms | dr | prof | st ) \. (?=\s+\w)",
    "fra": rf"""(?: c'est-à-dire | rendez-vous ) (?!['-]?{_LETTER})
              | (?: m | mm | dr ) \. (?=\s+\w)
              | (?: [cdjlmnst] | qu | jusqu | lorsqu | puisqu | quoiqu | presqu(?!'île) )'""",
}


def _scanner(language: Language) -> re.Pattern[str]:
    """Return the pattern whose matches, from left to right, are the tokens of a normalised text."""
    ending = _ENDINGS[language]
    letters = rf"(?: (?!{ending}) (?:{_NUMBER} | {_LETTER}) )+"
    return re.compile(
        rf"""{_BEGINNINGS[language]}
           | {ending}
           | [^\W\d_]\.(?:-?[^\W\d_]\.)+                       # a.m., d.h., j.-c.
           | {letters} (?: (?!{ending}) ['-] {letters} )*      # words, o'clock and well-known among them
           | \.{{2,}} | -{{2,}}                                # dots and dashes in a row are one sign
           | \S                                                # any other sign stands alone""",
        re.VERBOSE,
    )


_SCANNERS = {language: _scanner(language) for language in _ENDINGS}


def _normalise(text: str) -> str:
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
    return tuple(_SCANNERS[language].findall(_normalise(text)))


# ------------------------------------------------------------------------------------------------ files

_EXPECTED = (
    "Expected a text file in UTF-8 with one pair a line: an English sentence, a tab, and its French translation "
    "(further columns may follow)."
)
_OTHER_FILES = {  # how files begin that people take for a table of pairs
    b"PK\x03\x04": "a zip archive (unpack it first)",
    b"\x1f\x8b": "a gzip archive (unpack it first)",
    b"%PDF": "a PDF document",
    b"\xff\xfe": "text in UTF-16 (save it again as UTF-8)",
    b"\xfe\xff": "text in UTF-16 (save it again as UTF-8)",
}
_LINKS = re.compile(r"[0-9]{1,6}-[0-9]{1,6}(?: +[0-9]{1,6}-[0-9]{1,6})*")


class _NotAPair(Exception):
    """The reason why a line cannot be read; caught for every line."""


def read_pairs(path: str | PathLike[str], *, limit: int | None = None) -> Corpus:
    """Read English-French pairs from a file with two or more columns, separated by tabs.

    The text is UTF-8, with or without a byte-order mark, with any line ends. Both sides go through `tokenize`,
    which takes every kind of space (no-break spaces too) as a space. Where columns three and four look like
    word alignments (`0-0 1-2`, positions from 0), they are the sure and the possible links; links count the words
    that the file has, so such a line is split at its spaces only. Any other further column is ignored.

    A line that is not a pair (empty, one column, an empty side, wrong UTF-8, a NUL character, a link to a word
    that is not there) is skipped and listed with its number and the reason in `skipped`.

    `limit` is the largest number of pairs to read; lines after the last of them are not looked at.

    Raises FileNotFoundError, IsADirectoryError; ValueError for a file that is not such a text, or holds no pair.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, or None for the whole file; got {limit}")
    path = Path(path)
    corpus = Corpus([], [])
    # Bytes split at the line ends of Unix, Windows and old Macs only; str.splitlines would cut inside a sentence too.
    for number, line in enumerate(_content(path).splitlines(), start=1):
        if len(corpus.pairs) == limit:
            break
        try:
            corpus.pairs.append(_pair(line))
        except _NotAPair as problem:
            corpus.skipped.append(SkippedLine(number, str(problem), _shortened(line)))
    if not corpus.pairs:
        raise ValueError(f"{path} holds no pair of sentences. {_EXPECTED} Found: {corpus.report(named=3)}")
    return corpus


def _content(path: Path) -> bytes:
    """Return the file's bytes without a byte-order mark, or raise the error that says what is wrong with it."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. {_EXPECTED}")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path} (looked from the folder {Path.cwd()}). {_EXPECTED}")
    data = path.read_bytes()
    if not data.strip():
        raise ValueError(f"{path} is empty. {_EXPECTED}")
    if kind := _other_kind(data):
        raise ValueError(f"{path} looks like {kind}. {_EXPECTED}")
    return data.removeprefix(b"\xef\xbb\xbf")


def _other_kind(data: bytes) -> str | None:
    """Name what the file is when it is surely not a table of pairs."""
    for beginning, kind in _OTHER_FILES.items():
        if data.startswith(beginning):
            return kind
    head = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    if head.startswith(b"{") and b'"cells"' in data:
        return "a notebook"
    # UTF-16 without its mark has a NUL beside every ASCII letter; a broken line in a good file has a few.
    if data.count(0) * 10 > len(data):
        return "no text, or text in UTF-16 (save it again as UTF-8)"
    return None


def _pair(line: bytes) -> Pair:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise _NotAPair("not UTF-8") from None
    if "\0" in text:
        raise _NotAPair("a NUL character")
    if not text.strip():
        raise _NotAPair("empty")
    columns = text.split("\t")
    if len(columns) < 2:
        raise _NotAPair("only one column")
    sure, possible = (_links(column) for column in [*columns, "", ""][2:4])
    if sure or possible:
        source, target = (tuple(_normalise(column).split()) for column in columns[:2])
    else:
        source, target = tokenize(columns[0], "eng"), tokenize(columns[1], "fra")
    for words, name in ((source, "first"), (target, "second")):
        if not words:
            raise _NotAPair(f"the {name} column is empty")
    for i, j in sorted(sure | possible):
        if i >= len(source) or j >= len(target):
            raise _NotAPair(f"link {i}-{j} is out of range for {len(source)} and {len(target)} words")
    return Pair(source, target, sure, sure | possible)


def _links(column: str) -> frozenset[Link]:
    """Read `0-0 1-2` (the format of the Pharaoh decoder); anything else, such as a credit line, gives no link."""
    column = column.strip()
    if not _LINKS.fullmatch(column):
        return frozenset()
    return frozenset((int(i), int(j)) for i, j in (link.split("-") for link in column.split()))


def _shortened(line: bytes, longest: int = 60) -> str:
    text = line.decode("utf-8", errors="replace").replace("\0", "␀").strip()
    return text if len(text) <= longest else text[: longest - 1] + "…"
