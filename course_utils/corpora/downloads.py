"""Corpora from the internet, for learners who ask for one by name; nothing else in the course needs them.

    from course_utils.corpora import downloads
    corpus = downloads.load("tatoeba")

Nothing is fetched on import. How it is known that the right file came:

- Two addresses have a checksum that their owners published, and the file must match it: the SHA-1 in the book
  Dive into Deep Learning (github.com/d2l-ai/d2l-en, chapter "Machine Translation and the Dataset") and the SHA-256 in
  PyTorch's tutorials (github.com/pytorch/tutorials, .jenkins/download_data.py). They stand first, so that as a rule
  all learners get the same pairs.
- For the other two no checksum is published, and the file of manythings.org grows from time to time. They are known
  by their content only: an intact zip file with a text of at least MINIMUM_PAIRS pairs and (as `parse_pairs` demands)
  almost no other line. This notices a login page or a broken file, but not a text that somebody has changed.
"""

import hashlib
import io
import socket
import threading
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError, URLError
from urllib.request import Request, build_opener

from course_utils import cache, progress
from course_utils.corpora import english_french
from course_utils.corpora.pairs import Corpus, parse_pairs


@dataclass(frozen=True)
class Mirror:
    """An address of a zip file with the pairs, and its published checksum ("sha256:0f3a...") if there is one."""

    url: str
    pin: str | None = None


MIRRORS: dict[str, tuple[Mirror, ...]] = {
    # English-French sentence pairs of the Tatoeba project (CC BY 2.0 FR), as selected by manythings.org/anki.
    "tatoeba": (
        Mirror(
            "http://d2l-data.s3-accelerate.amazonaws.com/fra-eng.zip",  # as published; the pin makes http safe
            "sha1:94646ad1522d915e7b0f9296181140edcf86a4f5",
        ),
        Mirror(
            "https://download.pytorch.org/tutorial/data.zip",
            "sha256:fb317e80248faeb62dc25ef3390ae24ca34b94e276bbc5141fd8862c2200bff5",
        ),
        Mirror("https://storage.googleapis.com/download.tensorflow.org/data/fra-eng.zip"),
        Mirror("https://www.manythings.org/anki/fra-eng.zip"),
    ),
}
TEXT_NAMES = ("fra.txt", "eng-fra.txt")  # what the text is called inside the zip files, in any folder

# The smallest known version of the text has 135,842 pairs.
MINIMUM_PAIRS = 100_000
# The known zip files have 3 to 8 MB; the limits only stop what is surely wrong before it fills the memory.
MAXIMUM_BYTES, MAXIMUM_TEXT_BYTES = 64_000_000, 256_000_000

STALL_SECONDS = 10.0  # without a connection, or without a single byte
TOTAL_SECONDS = 600.0  # for all addresses together
PIECE = 1 << 16

# Some servers answer 406 to Python's own name, so the request says what it is.
USER_AGENT = "attention-course/0.1 (teaching material; asked for by a learner)"


class _Refused(Exception):
    """Why an address gave no pairs, as the end of the sentence "<address>: ..."."""


def load(name: str, *, limit: int | None = None) -> Corpus:
    """Return a corpus by its name in MIRRORS, from the cache or else from the first address that gives it.

    "tatoeba" has 135,000 to 250,000 English-French pairs, the shortest first; each comes tokenized, as `read_pairs`
    does it. The zip file is kept in `cache_dir()` and checked again each time; a damaged one is fetched again.

    `limit` is the largest number of pairs to return.

    If no address can be used, this says why and returns the training part of the generated corpus instead.

    Raises ValueError for an unknown name or a limit below 1.
    """
    if name not in MIRRORS:
        raise ValueError(f"there is no download {name!r}; there is {', '.join(map(repr, MIRRORS))}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, or None for all pairs; got {limit}")
    failures: dict[str, str] = {}
    corpus = _from_cache(name, limit) or _from_mirrors(name, limit, failures)
    return corpus or _generated(name, limit, failures)


def _from_mirrors(name: str, limit: int | None, failures: dict[str, str]) -> Corpus | None:
    """Try the addresses in order; keep the first good file in the cache, and note in `failures` what was wrong."""
    end = time.monotonic() + TOTAL_SECONDS
    mirrors = MIRRORS[name]
    for place, mirror in enumerate(mirrors):
        # An even share of what is left, so that one slow server does not use up the time of the others.
        seconds = (end - time.monotonic()) / (len(mirrors) - place)
        try:
            data = _fetch(mirror.url, max(seconds, 0.1))
            corpus = _checked(data, mirror.pin, limit)
        except _Refused as reason:
            failures[mirror.url] = str(reason)
            continue
        with suppress(OSError):  # a full or read-only disk: the next call fetches the file again
            cache.write_atomically(_cache_path(name, data), data)
        return corpus
    return None


def _generated(name: str, limit: int | None, failures: dict[str, str]) -> Corpus:
    """Say what went wrong, and return the generated corpus instead."""
    pairs = english_french.splits().train[:limit]
    print(
        f"The download {name!r} failed, so you get {len(pairs):,} pairs of the generated English-French corpus "
        "instead. What was tried:",
        *(f"- {url}: {reason}" for url, reason in failures.items()),
        "Check the internet connection and call this again. Or fetch one of the files with a browser, unpack it, and "
        "read its text with `read_pairs` of course_utils.corpora.pairs.",
        sep="\n",
    )
    return Corpus(pairs, [])


# ------------------------------------------------------------------------------------ one pinned file


def pinned_file(name: str, pin: str, urls: Sequence[str], size: int, seconds: float = TOTAL_SECONDS) -> bytes | None:
    """Return the bytes of a file that is known by its checksum, from the cache or the first address that gives it.

    `name` is what it is called in the cache, `size` how many bytes it has. If no address can be used, this says why
    and returns None.
    """
    with suppress(OSError):
        data = (cache.cache_dir() / name).read_bytes()
        if _other_checksum(data, pin) is None:
            return data
    end = time.monotonic() + seconds
    failures: dict[str, str] = {}
    for url in urls:
        try:
            data = _fetch(url, max(end - time.monotonic(), 0.1), size)
            if other := _other_checksum(data, pin):
                raise _Refused(f"another file came than expected: its checksum is {other}, not {pin}")
        except _Refused as reason:
            failures[url] = str(reason)
            continue
        with suppress(OSError):
            cache.write_atomically(cache.cache_dir() / name, data)
        return data
    tried = (f"- {url}: {reason}" for url, reason in failures.items())
    print(f"{name} could not be downloaded. What was tried:", *tried, sep="\n")
    return None


# ----------------------------------------------------------------------------------------- the cache


def _cache_path(name: str, data: bytes) -> Path:
    """Where these bytes are kept; the name has their checksum, so a damaged file is noticed whatever its address."""
    return cache.cache_dir() / f"{name}-{hashlib.sha256(data).hexdigest()[:16]}.zip"


def _from_cache(name: str, limit: int | None) -> Corpus | None:
    """Read the pairs from a file of an earlier call, or return None if there is none in good order."""
    with suppress(OSError):  # no folder at all
        for path in sorted(cache.cache_dir().glob(f"{name}-*.zip")):
            with suppress(OSError, _Refused):
                data = path.read_bytes()
                if path == _cache_path(name, data):
                    return _pairs(data, limit)
    return None


# ---------------------------------------------------------------------------------------- the content


def _checked(data: bytes, pin: str | None, limit: int | None) -> Corpus:
    """Return the pairs of a zip file that has just come, or raise _Refused if it is not the right one."""
    if not data.startswith(b"PK"):
        is_page = data[:4096].lstrip().lower().startswith((b"<!doctype html", b"<html"))
        raise _Refused("what came is a web page, not a zip file" if is_page else "what came is no zip file")
    if pin:
        if other := _other_checksum(data, pin):
            raise _Refused(f"another file came than expected: its checksum is {other}, not {pin}")
        return _pairs(data, limit)
    corpus = _pairs(data)  # all of them, to know whether the text is complete
    if len(corpus.pairs) < MINIMUM_PAIRS:
        raise _Refused(f"the text is too short: {corpus.report(named=1)} At least {MINIMUM_PAIRS:,} pairs are expected")
    return corpus if limit is None else _pairs(data, limit)


def _other_checksum(data: bytes, pin: str) -> str | None:
    """Return the checksum of the data in the form of the pin, or None where it equals the pin."""
    algorithm, _, _ = pin.partition(":")
    found = f"{algorithm}:{hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()}"
    return None if found == pin else found


def _pairs(data: bytes, limit: int | None = None) -> Corpus:
    """Read the text inside a zip file. _Refused if it is no such file."""
    try:
        return parse_pairs(_text(data), "the text in the zip file", limit=limit)
    except ValueError as problem:
        raise _Refused(str(problem)) from None


def _text(data: bytes) -> bytes:
    """Return the text inside a zip file, which has a checksum for it too. _Refused if anything is wrong with it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                if PurePosixPath(member.filename).name in TEXT_NAMES and member.file_size <= MAXIMUM_TEXT_BYTES:
                    return archive.read(member)
    except Exception as problem:  # zipfile and what it calls raise errors of a dozen kinds for a damaged file
        raise _Refused(f"the zip file is damaged ({problem})") from None
    raise _Refused(f"the zip file has no {' or '.join(TEXT_NAMES)} of a sensible size")


# ---------------------------------------------------------------------------------------- the network


def _fetch(url: str, seconds: float, maximum: int | None = None) -> bytes:
    """Return all bytes of a file, or raise _Refused with the reason. Always from the start: most files are small.

    In a thread of its own, because a socket has a limit for each wait only: a server that sends its headers byte by
    byte never reaches it. Such a thread may outlive this call; it stores nothing and does not keep Python alive.
    """
    end = time.monotonic() + seconds
    outcome: list[bytes | BaseException] = []
    stop = threading.Event()

    def fetch() -> None:
        try:
            outcome.append(_requested(url, min(STALL_SECONDS, seconds), stop, maximum or MAXIMUM_BYTES))
        except BaseException as problem:
            outcome.append(problem)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    try:
        while thread.is_alive() and time.monotonic() < end:
            thread.join(0.1)  # in short steps, as Windows lets nobody interrupt a wait
    finally:
        stop.set()
    if not outcome:
        raise _Refused(f"not complete after {seconds:.3g} seconds")
    if isinstance(outcome[0], bytes):
        return outcome[0]
    raise outcome[0]


def _requested(url: str, patience: float, stop: threading.Event, maximum: int) -> bytes:
    """Ask for a file and return its bytes; `patience` is the longest wait for a sign of life. _Refused if it fails."""
    request = Request(url, headers={"User-Agent": USER_AGENT})
    try:
        # A new opener each time: `urlopen` would keep to the proxy that was set at the first download.
        with build_opener().open(request, timeout=patience) as response:
            return _body(response, stop, maximum)
    except HTTPError as answer:
        answer.close()
        raise _Refused(f"the server answered {answer.code} {answer.reason}") from None
    except TimeoutError:
        raise _Refused(f"no answer within {patience:g} seconds") from None
    except URLError as problem:
        late = isinstance(problem.reason, TimeoutError)
        raise _Refused(f"no answer within {patience:g} seconds" if late else _why(problem.reason)) from None
    except (OSError, HTTPException, ValueError) as problem:  # ValueError: sent on to what is no address
        raise _Refused(_why(problem)) from None


def _body(response: HTTPResponse, stop: threading.Event, maximum: int) -> bytes:
    """Read an answer to its end. _Refused, or any error of the connection."""
    total = response.length  # None if the server does not say
    data = bytearray()
    with progress.bar(total=total, desc="download", unit="B", unit_scale=True) as bar:
        # read1 returns what there is: read would wait for a full piece, and a slow server could make that last hours.
        while piece := response.read1(PIECE if total is None else min(PIECE, total - len(data))):
            data += piece
            bar.update(len(piece))
            if stop.is_set():
                raise _Refused("stopped")  # nobody waits for it any more
            if len(data) > maximum:
                raise _Refused(f"the file is too large: more than {maximum:,} bytes")
    if total is not None and len(data) < total:
        raise _Refused(f"the connection broke after {len(data):,} of {total:,} bytes")
    return bytes(data)


def _why(problem: BaseException | str) -> str:
    """Say in a few words why a connection failed."""
    if isinstance(problem, socket.gaierror):
        return "its name is not known here, so there is probably no internet connection"
    if isinstance(problem, ConnectionRefusedError):
        return "no server answers there"
    return f"the connection failed ({str(problem) or type(problem).__name__})"
