"""The generated English-French corpus: sentences, splits, and the files in `data/eng_fra`.

    from course_utils.corpora import english_french
    train, validation, test = english_french.splits()

`python -m course_utils.corpora.english_french` writes `data/eng_fra` anew.
"""

import gc
import hashlib
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from operator import eq
from pathlib import Path
from typing import NamedTuple

from course_utils import cache
from course_utils.corpora import grammar, lexicon, writer
from course_utils.corpora.pairs import Link, Pair

LENGTH_BINS = ((4, 10), (11, 15), (16, 20), (21, 30), (31, 45))  # English tokens, both ends included
MINIMUM_LENGTH, MAXIMUM_LENGTH = 4, 70

TRAIN_SENTENCES, TRAIN_LENGTH = 30_000, 45
VALIDATION_PER_BIN, TEST_PER_BIN = 100, 200
TRAIN_SEED, TEST_SEED, VALIDATION_SEED = 1, 2, 3
SAMPLE_SENTENCES = 200


class Splits(NamedTuple):
    """The corpus in three parts; no English sentence occurs twice."""

    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]


@contextmanager
def _garbage_collection_off() -> Generator[None]:
    """For functions that make a million small objects and no garbage: looking for it would double their time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def sentences(seed: int) -> Iterator[Pair]:
    """Yield sentence pairs without end, 4 to 70 English tokens long; the same seed gives the same pairs."""
    author = writer.Writer(seed)
    while True:
        pair = author.sentence()
        if MINIMUM_LENGTH <= len(pair.source) <= MAXIMUM_LENGTH and not _has_doubled_word(pair):
            yield pair


def _has_doubled_word(pair: Pair) -> bool:
    """Such as "the man that he admires admires ...": correct, but nobody writes it."""
    return any(any(map(eq, side, side[1:])) for side in (pair.source, pair.target))


def generate(count: int, seed: int) -> list[Pair]:
    """Return `count` sentence pairs, 4 to 70 English tokens long; the same seed gives the same pairs."""
    return list(islice(sentences(seed), count))


def splits() -> Splits:
    """Return train, validation and test; made in seconds the first time, then read from the cache.

    Train has pairs of at most 45 English tokens in random order; validation and test have 100 and 200 pairs
    in each bin of LENGTH_BINS, short bins first. A cache that is missing, damaged or can't be written is no error.
    """
    with suppress(OSError, ValueError):  # ValueError: damaged
        return _from_bytes(_cache_path().read_bytes())
    parts = make_splits()
    with suppress(OSError):
        cache.write_atomically(_cache_path(), _to_bytes(parts))
    return parts


@_garbage_collection_off()
def make_splits() -> Splits:
    """Generate the three parts; `splits` keeps what this returns."""
    seen: set[tuple[str, ...]] = set()
    train = list(_fresh(islice(sentences(TRAIN_SEED), TRAIN_SENTENCES), seen))
    # Longer sentences are dropped after the count, so that TRAIN_SENTENCES does not depend on TRAIN_LENGTH.
    train = [pair for pair in train if len(pair.source) <= TRAIN_LENGTH]
    test = _filled_bins(_fresh(sentences(TEST_SEED), seen), TEST_PER_BIN)
    validation = _filled_bins(_fresh(sentences(VALIDATION_SEED), seen), VALIDATION_PER_BIN)
    return Splits(train, validation, test)


def _fresh(pairs: Iterable[Pair], seen: set[tuple[str, ...]]) -> Iterator[Pair]:
    """Yield the pairs whose English sentence is not in `seen`, and add it."""
    for pair in pairs:
        if pair.source not in seen:
            seen.add(pair.source)
            yield pair


def _filled_bins(pairs: Iterable[Pair], size: int) -> list[Pair]:
    """Take pairs until each bin of LENGTH_BINS has `size` of them; the shortest bin comes first."""
    bins: dict[tuple[int, int], list[Pair]] = {limits: [] for limits in LENGTH_BINS}
    for pair in pairs:
        for (shortest, longest), members in bins.items():
            if shortest <= len(pair.source) <= longest and len(members) < size:
                members.append(pair)
        if all(len(members) == size for members in bins.values()):
            break
    return [pair for members in bins.values() for pair in members]


# --------------------------------------------------------------------------------- pairs as text


def to_line(pair: Pair) -> str:
    """Return a pair as four tab-separated columns: tokens, tokens, sure links, possible links."""
    links = (" ".join(f"{i}-{j}" for i, j in sorted(group)) for group in (pair.sure, pair.possible))
    return "\t".join((" ".join(pair.source), " ".join(pair.target), *links))


class _Links(dict[str, Link]):
    """Reads "3-4" once and remembers it: a few thousand different links stand for more than a million."""

    def __missing__(self, text: str) -> Link:
        source, target = text.split("-")
        self[text] = int(source), int(target)
        return self[text]


def _from_line(line: str, links: _Links) -> Pair:
    """The inverse of `to_line`. ValueError if the line is no pair."""
    source, target, sure, possible = line.split("\t")
    sure_links = frozenset(map(links.__getitem__, sure.split()))
    same = sure == possible
    possible_links = sure_links if same else frozenset(map(links.__getitem__, possible.split()))
    return Pair(tuple(source.split()), tuple(target.split()), sure_links, possible_links)


def checksum(pairs: Iterable[Pair]) -> str:
    """Return the SHA-256 of the pairs as lines of text: it changes when any word or link does."""
    return hashlib.sha256("".join(to_line(pair) + "\n" for pair in pairs).encode()).hexdigest()


# ------------------------------------------------------------------------------------- the cache


def _cache_path() -> Path:
    """Where this version of the corpus is kept."""
    key = cache.code_key(lexicon, grammar, writer, sys.modules[__name__])
    return cache.cache_dir() / f"english-french-{key}.tsv"


def _to_bytes(parts: Splits) -> bytes:
    """The checksum of what follows, the three sizes, and all pairs, a line each."""
    lines = [" ".join(str(len(part)) for part in parts)]
    lines += [to_line(pair) for part in parts for pair in part]
    text = "\n".join(lines).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


@_garbage_collection_off()
def _from_bytes(data: bytes) -> Splits:
    """The inverse of `_to_bytes`. ValueError if anything is missing or changed."""
    digest, _, text = data.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise ValueError("the cached corpus is damaged")
    sizes, *lines = text.decode().split("\n")
    links = _Links()
    pairs = iter([_from_line(line, links) for line in lines])
    return Splits(*(list(islice(pairs, int(size))) for size in sizes.split()))


# ----------------------------------------------------------------------------- for people to read

# English writes these with a capital letter.
_CAPITALS = {"i": "I"} | {
    adjective.english: adjective.english.capitalize()
    for adjective in lexicon.ADJECTIVES
    if adjective.kind == lexicon.ORIGIN
}


def detokenize_english(tokens: Iterable[str]) -> str:
    """Return a sentence as people write it: the, king, 's, dog, . -> The king’s dog."""
    return _written(" ".join(_CAPITALS.get(token, token) for token in tokens).replace(" 's", "’s"))


def detokenize_french(tokens: Iterable[str]) -> str:
    """Return a sentence as people write it: l', arbre, . -> L’arbre."""
    return _written(" ".join(tokens).replace("' ", "’"))


def _written(text: str) -> str:
    """No space before a comma or full stop, and a capital letter at the start."""
    text = text.replace(" .", ".").replace(" ,", ",")
    return text[:1].upper() + text[1:]


# -------------------------------------------------------------------------------- data/eng_fra


def shipped_files(parts: Splits) -> dict[str, str]:
    """Return the content of each generated file in `data/eng_fra`, by file name."""
    sample = sorted(parts.train[:SAMPLE_SENTENCES], key=lambda pair: len(pair.source))
    readable = [f"{detokenize_english(pair.source)}\t{detokenize_french(pair.target)}\n" for pair in sample]
    return {
        "validation.tsv": "".join(to_line(pair) + "\n" for pair in parts.validation),
        "test.tsv": "".join(to_line(pair) + "\n" for pair in parts.test),
        "sample.tsv": "".join(readable),
    }


def main() -> None:
    """Write the files in `data/eng_fra` of this repository."""
    folder = Path(__file__).parents[2] / "data" / "eng_fra"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in shipped_files(make_splits()).items():
        cache.write_atomically(folder / name, text.encode())
        print(f"wrote {folder / name}")


if __name__ == "__main__":
    main()
