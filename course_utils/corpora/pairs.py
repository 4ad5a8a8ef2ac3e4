"""Sentence pairs: what a translator learns from, and the files they stand in."""

import gzip
import re
import zlib
from collections import Counter
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from course_utils.corpora.tokenizer import normalise, tokenize

Link = tuple[int, int]  # (source position, target position), both from 0


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
        """A pair from tokens with spaces between them, and links such as "0-0 1-2"; sure ones are possible too.

        Raises ValueError for links that are written in another way.
        """
        first, second = _links(sure), _links(possible)
        if first is None or second is None:
            raise ValueError(f"links must be written like '0-0 1-2'; got {sure if first is None else possible!r}")
        return cls(tuple(source.split()), tuple(target.split()), first[0], first[1] | second[1])


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


# ------------------------------------------------------------------------------------------------ files

_EXPECTED = (
    "Expected one pair a line in UTF-8: an English sentence, a tab, and its French translation (further columns may "
    "follow). Or two files, one with the English and one with the French sentences."
)
_OTHER_FILES = {  # how files begin that people take for a table of pairs
    b"PK\x03\x04": "a zip archive (unpack it first)",
    b"BZh": "a bzip2 archive (unpack it first)",
    b"%PDF": "a PDF document",
    b"\xff\xfe": "text in UTF-16 (save it again as UTF-8)",
    b"\xfe\xff": "text in UTF-16 (save it again as UTF-8)",
}
MAXIMUM_LOST = 0.01  # lines that are no pair, for each pair; above that it is the file that is wrong

_EMPTY, _HEADER = "empty", "names of columns"  # lines without a pair, but nothing is lost with them
_CURES = {
    "not UTF-8": "Save it as UTF-8.",
    "a number instead of English": "Keep only the columns of text.",
    "a number instead of French": "Keep only the columns of text.",
    "a language code instead of a text": "Keep only the columns of text.",
    "English instead of French": "Keep only the columns of text.",
    "French comes first": "Swap the columns or the files.",
}
_ENGLISH_NAMES = {"english", "en", "eng", "anglais"}
_FRENCH_NAMES = {"french", "fr", "fra", "fre", "français", "francais"}
_OTHER_NAMES = tokenize(
    "source src target tgt trg input output translation traduction id lang language text sentence sentences phrase "
    "phrases word words mot mots",
    "eng",
)

_QUOTED_ROW = re.compile(rb'\s*(?:"[^\t]*"|[0-9]+)\s*(?:\t\s*(?:"[^\t]*"|[0-9]+)\s*)*')
_QUOTED = re.compile(r'\s*"([^"]*+(?:""[^"]*+)*+)"\s*')  # as spreadsheets write it: "He said ""Go"""
_ID = re.compile(r"\s*[0-9]+\s*")
_NUMBERS = re.compile(r"\s*[-+]?[0-9]++(?:[-.,:p?\s]++[0-9]++)*+\s*")  # 1276, 0.98, 2013-05-04, 0-0 1p2
_LANGUAGE_CODE = re.compile(r"\s*(?:en|fr|eng|fra|fre)(?:[-_][a-z]{2})?\s*", re.IGNORECASE)
# Frequent words that the other language does not have, as the other language's tokenizer leaves them.
_ENGLISH_WORDS = frozenset(
    tokenize(
        "the of and to with from i i'm i'll you you're he he's she they we it it's is isn't are am was were be been "
        "have had do does did don't didn't doesn't can't won't will would can could should this that that's these what "
        "what's who where why how my your his her our their not no yes there let's please go hi hello thanks",
        "fra",
    )
)
_FRENCH_WORDS = frozenset(
    tokenize(
        "le la les un une des du de et est sont était étais être suis es êtes je j'ai j'étais tu il elle nous vous ils "
        "elles c'est c'était ce cet cette ces ne n'est n'ai n'a pas que qui qu'il qu'elle mon ma mes ta tes sa ses "
        "notre votre vos nos leur dans avec sur aux où quoi très avez avons ont fait oui non va salut bonjour merci",
        "eng",
    )
)

_NO_LINKS: tuple[frozenset[Link], frozenset[Link]] = (frozenset(), frozenset())
_LINK = r"([0-9]{1,6})([-pP?])([0-9]{1,6})"
_LINKS = re.compile(rf"[\s,]*+(?:{_LINK}(?:[\s,]++|$))*+")
# Begins as a row of links does, such as 0:0 1:1 or (0, 0), (1, 1); a date, a time or a figure alone does not.
_LIKE_LINKS = re.compile(
    r"\W*(?: [0-9]{1,3} \s* ([^\w\s.,]+|[ps_]) \s* [0-9]{1,3} (?!\1) [^\w.] | [\[(] [0-9]+ ,\s* [0-9]+ [\])] )",
    re.VERBOSE | re.IGNORECASE,
)


class _NotAPair(Exception):
    """The reason why a line cannot be read; caught for every line."""


def read_pairs(
    path: str | PathLike[str],
    french: str | PathLike[str] | None = None,
    links: str | PathLike[str] | None = None,
    *,
    links_from: int = 0,
    limit: int | None = None,
) -> Corpus:
    """Read English-French pairs from one file with columns, or from two files with a sentence a line.

    - `read_pairs("pairs.tsv")`: English, tab, French. Columns three and four may have word alignments, the sure and
      the possible links; any other further column is ignored. The sentence pairs that tatoeba.org exports
      (number, English, number, French) are read too. A column in "quotation marks" loses them if all have them, or
      if it has doubled ones inside.
    - `read_pairs("text.en", "text.fr")`: line n of one file translates line n of the other.
    - `read_pairs("text.en", "text.fr", "links")`: with the word alignments of line n in line n of a third file.

    The text is UTF-8, with or without a byte-order mark, with any line ends; each file may be packed with gzip. Both
    sides go through `tokenize`, which takes every kind of space (no-break spaces too) as a space. A first line with
    the names of the columns is left out.

    Links are written `0-0 1p2 3?4`, with spaces or commas between them; with `p` or `?` they are possible only.
    They count the words that the file has, so a line with links, and every line of files with a third one, is split
    at its spaces only.

    A line that is not a pair (empty, one column, an empty side, wrong UTF-8, a NUL character, a number or a language
    code instead of a text, French first, English instead of French, links to words that are not there or written in
    another way) is skipped and listed with its number and the reason in `skipped`.

    Args:
        path: the file with all columns, or the English sentences.
        french: the French sentences.
        links: the word alignments for two files of sentences.
        links_from: the number that links give to the first word, 0 or 1.
        limit: the largest number of pairs to read; lines after the last of them are looked at only to tell whether
            the whole file is wrong.

    Raises:
        FileNotFoundError, IsADirectoryError: there is no such file.
        ValueError: a file is no such text or holds no pair; more lines than one for a hundred pairs are no pair (empty
            lines do not count); the files have different numbers of lines; the links count from 1 and links_from
            does not say so; limit or links_from is none of the values above; links without French.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, or None for the whole file; got {limit}")
    if links_from not in (0, 1):
        raise ValueError(f"links_from must be 0 or 1, the number of the first word; got {links_from!r}")
    if links is not None and french is None:
        raise ValueError("a file of links needs two files of sentences: read_pairs(english, french, links)")
    names = [str(given) for given in (path, french, links) if given is not None]
    files = [_lines(_content(Path(name)), name) for name in names]
    lines = _side_by_side(names, files) if french is not None else files[0]
    return _Table(" with ".join(names), lines, aligned=links is not None, links_from=links_from).corpus(limit)


def parse_pairs(data: bytes, name: str, *, limit: int | None = None) -> Corpus:
    """Read the content of a file with columns as `read_pairs` does; `name` is what its errors call it.

    Raises ValueError as `read_pairs` does.
    """
    return _Table(name, _lines(data, name)).corpus(limit)


def _content(path: Path) -> bytes:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. {_EXPECTED}")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path} (looked from the folder {Path.cwd()}). {_EXPECTED}")
    return path.read_bytes()


def _lines(data: bytes, name: str) -> list[bytes]:
    """Return the lines of a text, packed or not, without a byte-order mark. ValueError if it is no text."""
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as problem:
            raise ValueError(f"{name} is a damaged gzip file ({problem}). {_EXPECTED}") from None
    if not data.strip():
        raise ValueError(f"{name} is empty. {_EXPECTED}")
    if kind := _other_kind(data):
        raise ValueError(f"{name} looks like {kind}. {_EXPECTED}")
    # Bytes split at the line ends of Unix, Windows and old Macs only; str.splitlines would cut inside a sentence too.
    return data.removeprefix(b"\xef\xbb\xbf").splitlines()


def _other_kind(data: bytes) -> str | None:
    """Name what the file is when it is surely not a table of pairs."""
    for beginning, kind in _OTHER_FILES.items():
        if data.startswith(beginning):
            return kind
    if data[257:262] == b"ustar":
        return "a tar archive (unpack it first)"
    head = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    if head.startswith(b"{") and b'"cells"' in data:
        return "a notebook"
    # UTF-16 without its mark has a NUL beside every ASCII letter; a broken line in a good file has a few.
    if data.count(0) * 10 > len(data):
        return "no text, or text in UTF-16 (save it again as UTF-8)"
    return None


def _side_by_side(names: list[str], files: list[list[bytes]]) -> list[bytes]:
    """Make one table with a column for each file. ValueError if they do not have the same number of lines."""
    shortest = min(map(len, files))
    for lines in files:
        while len(lines) > shortest and not lines[-1].strip():
            lines.pop()  # an empty line at the end of one file
    if any(len(lines) > shortest for lines in files):
        counts = ", ".join(f"{name} has {_count(len(lines), 'line')}" for name, lines in zip(names, files, strict=True))
        raise ValueError(f"The files do not belong together, line by line: {counts}. {_EXPECTED}")
    return [b"\t".join(line.replace(b"\t", b" ") for line in row) for row in zip(*files, strict=True)]


class _Table:
    """A file in columns between tabs; `aligned`: the third column must be links."""

    def __init__(self, name: str, lines: list[bytes], aligned: bool = False, links_from: int = 0) -> None:
        self.name, self.lines, self.links_from = name, lines, links_from
        all_quoted = all(_QUOTED_ROW.fullmatch(line) for line in lines if line.strip())
        self.rows = [_columns(line, all_quoted) for line in lines]
        # Every third column should have links if the first one that is not blank has them.
        thirds = (columns[2] for columns in self.rows if isinstance(columns, list) and len(columns) > 2)
        self.has_links = aligned or _links(next(filter(str.strip, thirds), "")) is not None
        self.aligned = aligned

    def corpus(self, limit: int | None) -> Corpus:
        """Read at most `limit` pairs. ValueError if the whole table is wrong."""
        self._refuse_links_from_one()
        corpus = self._read(limit)
        # Before the limit there may be only a few lines, and one bad one among them: then the whole file counts.
        whole = self._read(None) if limit is not None and _loses_too_many(corpus) else corpus
        if not whole.pairs or _loses_too_many(whole):
            what = "too many lines that are no pair" if whole.pairs else "no pair"
            cures = dict.fromkeys(_CURES[line.reason] for line in whole.skipped if line.reason in _CURES)
            found = " ".join([f"Found: {whole.report(named=3)}", *cures])
            raise ValueError(f"{self.name} holds {what} of sentences. {_EXPECTED} {found}")
        return corpus

    def _read(self, limit: int | None) -> Corpus:
        corpus = Corpus([], [])
        for number, (line, columns) in enumerate(zip(self.lines, self.rows, strict=True), start=1):
            if len(corpus.pairs) == limit:
                break
            try:
                if isinstance(columns, str):
                    raise _NotAPair(columns)
                if not corpus.pairs:
                    self._leave_out_header(columns, number)
                corpus.pairs.append(self._pair(columns))
            except _NotAPair as problem:
                corpus.skipped.append(SkippedLine(number, str(problem), _shortened(line)))
        return corpus

    def _leave_out_header(self, columns: list[str], number: int) -> None:
        """_NotAPair if the columns have names instead of sentences; ValueError if the first one is called French."""
        names = re.findall(r"[^\W\d_]+|\b\d+|[.!?]", " ".join(columns[:2]).lower())
        if not names or not _ENGLISH_NAMES.union(_FRENCH_NAMES, _OTHER_NAMES).issuperset(names):
            return
        languages = [name for name in names if name not in _OTHER_NAMES]
        if languages and languages[0] in _FRENCH_NAMES:
            raise ValueError(f"{self.name}: line {number} says that French comes first. Swap the columns. {_EXPECTED}")
        raise _NotAPair(_HEADER)

    def _pair(self, columns: list[str]) -> Pair:
        sure: frozenset[Link] = frozenset()
        possible: frozenset[Link] = frozenset()
        for number, column in enumerate(columns[2:4], start=3):
            if links := _links(column, self.links_from):
                sure = links[0] if number == 3 else sure
                possible |= links[1]
            elif _LIKE_LINKS.match(column) or (number == 3 and self.has_links):
                raise _NotAPair(f"column {number} has no links as in 0-0 1p2")
        if self.aligned or possible:
            source, target = _words(columns)
        else:
            source, target = tokenize(columns[0], "eng"), tokenize(columns[1], "fra")
        _refuse_what_is_no_text(columns, source, target)
        for i, j in sorted(possible):
            if not (0 <= i < len(source) and 0 <= j < len(target)):
                link = f"{i + self.links_from}-{j + self.links_from}"
                words = f"{len(source)} and {len(target)} words, counted from {self.links_from}"
                raise _NotAPair(f"link {link} is out of range for {words}")
        return Pair(source, target, sure, possible)

    def _refuse_links_from_one(self) -> None:
        """ValueError if a link points just behind its sentence and none in the whole file is 0."""
        behind = ""
        for number, columns in enumerate(self.rows, start=1):
            if isinstance(columns, str):
                continue
            links = [link for column in columns[2:4] for link in sorted((_links(column) or _NO_LINKS)[1])]
            if any(0 in link for link in links):
                return
            if links and not behind:
                source, target = map(len, _words(columns))
                ends = (f"line {number} with link {i}-{j}" for i, j in links if i == source or j == target)
                behind = next(ends, "")
        if behind and self.links_from == 0:
            raise ValueError(
                f"{self.name}: the links count from 1, it seems, as none of them is 0 and one is too large ({behind}). "
                "Read it with links_from=1."
            )


def _columns(line: bytes, all_quoted: bool) -> list[str] | str:
    """Return English, French, and what follows them; or the reason why there are no columns.

    Quotation marks are no part of a column when they stand around every one in the file that is no number.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return "not UTF-8"
    if "\0" in text:
        return "a NUL character"
    if not text.strip():
        return _EMPTY
    columns = text.split("\t", 4)[:4]
    for place, column in enumerate(columns):
        quoted = _QUOTED.fullmatch(column)
        if quoted and (all_quoted or '""' in quoted[1]):
            columns[place] = quoted[1].replace('""', '"')
    if len(columns) < 2:
        return "only one column"
    if len(columns) == 4 and _ID.fullmatch(columns[0]) and _ID.fullmatch(columns[2]):
        return [columns[1], columns[3]]  # tatoeba.org: number, English, number, French
    return columns


def _loses_too_many(corpus: Corpus) -> bool:
    lost = sum(line.reason not in (_EMPTY, _HEADER) for line in corpus.skipped)
    return lost > MAXIMUM_LOST * len(corpus.pairs)


def _words(columns: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return both sides as the file splits them."""
    source, target = (tuple(normalise(column).split()) for column in columns[:2])
    return source, target


def _refuse_what_is_no_text(columns: list[str], source: tuple[str, ...], target: tuple[str, ...]) -> None:
    """_NotAPair if a side is empty, a number or a language code, or if French comes first."""
    for words, language in ((source, "English"), (target, "French")):
        if not words:
            raise _NotAPair(f"no {language} text")
    for column, language in zip(columns, ("English", "French"), strict=False):
        if _NUMBERS.fullmatch(column) and len(set(map(_digits, columns[:2]))) > 1:
            raise _NotAPair(f"a number instead of {language}")
    # "en" is a French word too, and alone with "in" it is a pair.
    codes = [bool(_LANGUAGE_CODE.fullmatch(column)) for column in columns[:2]]
    if codes[0] or (codes[1] and (len(columns) > 2 or target != ("en",))):
        raise _NotAPair("a language code instead of a text")
    if _ENGLISH_WORDS.isdisjoint(source) and _FRENCH_WORDS.isdisjoint(target) and _ENGLISH_WORDS.intersection(target):
        raise _NotAPair("English instead of French" if _FRENCH_WORDS.isdisjoint(source) else "French comes first")


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _links(text: str, links_from: int = 0) -> tuple[frozenset[Link], frozenset[Link]] | None:
    """Read `0-0 1p2 3?4` (the format of the Pharaoh decoder, and its relatives): the sure links, and all links.

    Anything else, such as a credit line, is None.
    """
    if not _LINKS.fullmatch(text):
        return None
    found = [(int(i) - links_from, int(j) - links_from, kind) for i, kind, j in re.findall(_LINK, text)]
    return frozenset((i, j) for i, j, kind in found if kind == "-"), frozenset((i, j) for i, j, _ in found)


def _shortened(line: bytes, longest: int = 60) -> str:
    text = line.decode("utf-8", errors="replace").replace("\0", "␀").strip()
    return text if len(text) <= longest else text[: longest - 1] + "…"
