"""A download is whole and right, or it is refused with a reason and the next address is tried; no internet is used."""

import hashlib
import io
import random
import runpy
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from course_utils import cache, progress
from course_utils.corpora import downloads, english_french
from course_utils.corpora.downloads import Mirror, load
from course_utils.corpora.pairs import Pair

TEXT = "Go.\tVa !\tCC-BY 2.0 (France) Attribution: tatoeba.org #1 & #2\n" + "".join(
    f"I see {number} cats.\tJe vois {number} chats.\n" for number in range(200)
)
GO = Pair(("go", "."), ("va", "!"))
GENERATED = english_french.generate(5, seed=0)


def zipped(text: str, member: str = "fra.txt") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_about.txt", "from tatoeba.org")
        archive.writestr(member, text)
    return buffer.getvalue()


GOOD = zipped(TEXT)
PAGE = b"<!DOCTYPE html><title>Welcome to the network of this hotel</title>"

# ------------------------------------------------------------------------------------------- the server

Answer = Callable[[BaseHTTPRequestHandler], None]


def gives(data: bytes, status: int = 200, length: int | None = None) -> Answer:
    """An answer with these bytes; `length` is what the server says that it sends."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(data) if length is None else length))
        request.end_headers()
        request.wfile.write(data)

    return answer


def without_length(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    request.wfile.write(GOOD)


def only_for_those_who_say_who_they_are(request: BaseHTTPRequestHandler) -> None:
    agent = request.headers.get("User-Agent", "")
    (gives(b"", 406) if "python" in agent.lower() or not agent else gives(GOOD))(request)


def sends_on(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", "/good.zip")
    request.send_header("Content-Length", "0")
    request.end_headers()


def sends_on_for_ever(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", f"/loop.zip?{time.monotonic()}")
    request.send_header("Content-Length", "0")
    request.end_headers()


def chunked(pieces: int) -> Answer:
    """The file in chunks; with fewer than three pieces it ends in the middle."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        size = -(-len(GOOD) // 3)
        for start in range(0, pieces * size, size):
            piece = GOOD[start : start + size]
            request.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if pieces == 3:
            request.wfile.write(b"0\r\n\r\n")

    return answer


def drips(request: BaseHTTPRequestHandler) -> None:
    """A byte now and then: never silent for long, and never ready."""
    gives(b"", length=len(GOOD))(request)
    for position in range(100):
        request.wfile.write(GOOD[position : position + 1])
        time.sleep(0.05)


def drips_headers(request: BaseHTTPRequestHandler) -> None:
    """A byte now and then, and no answer that begins."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(100):
        request.wfile.write(b".")
        time.sleep(0.05)


def drips_chunks(request: BaseHTTPRequestHandler) -> None:
    """The size of the first chunk takes for ever."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    for _ in range(100):
        request.wfile.write(b".")
        time.sleep(0.05)


def falls_silent(request: BaseHTTPRequestHandler) -> None:
    gives(GOOD[:10], length=len(GOOD))(request)
    time.sleep(1)


def says_nothing(request: BaseHTTPRequestHandler) -> None:
    time.sleep(1)


def talks_nonsense(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")


ANSWERS: dict[str, Answer] = {
    "/good.zip": gives(GOOD),
    "/folder.zip": gives(zipped(TEXT, "data/eng-fra.txt")),
    "/open.zip": without_length,
    "/chunked.zip": chunked(3),
    "/polite.zip": only_for_those_who_say_who_they_are,
    "/moved.zip": sends_on,
    "/loop.zip": sends_on_for_ever,
    "/gone.zip": gives(b"", 404),
    "/ill.zip": gives(b"", 500),
    "/page.zip": gives(PAGE),
    "/nothing.zip": gives(b""),
    "/cut.zip": gives(GOOD[:-100], length=len(GOOD)),
    "/cut-chunks.zip": chunked(2),
    "/cut-unnoticed.zip": gives(GOOD[:-100]),
    "/spoilt.zip": gives(GOOD[:150] + b"?" + GOOD[151:]),
    "/other-member.zip": gives(zipped(TEXT, "deu.txt")),
    "/few.zip": gives(zipped("Go.\tVa !\n")),
    "/no-table.zip": gives(zipped("english,french\n" * 200)),
    "/broken-lines.zip": gives(zipped(TEXT + "no tab here\n" * 20)),
    "/drips.zip": drips,
    "/drips-headers.zip": drips_headers,
    "/drips-chunks.zip": drips_chunks,
    "/silent-later.zip": falls_silent,
    "/silent.zip": says_nothing,
    "/nonsense.zip": talks_nonsense,
    "/huge.zip": gives(b"PK" + bytes(200_000)),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.paths.append(self.path)
        with suppress(ConnectionError):  # the learner's side has had enough, as it should
            ANSWERS[urlsplit(self.path).path](self)  # a proxy is asked for the whole address
        self.close_connection = True

    def log_message(self, format: str, *args) -> None:
        """Keep the test's output clean."""


class Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.paths: list[str] = []


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/fra-eng.zip"


@pytest.fixture(autouse=True)
def small_world(monkeypatch, tmp_path, server):
    """An empty cache, small limits, and no address on the internet."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(downloads, "MIRRORS", {})
    monkeypatch.setattr(downloads, "MINIMUM_PAIRS", 100)
    monkeypatch.setattr(downloads, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(english_french, "splits", lambda: english_french.Splits(GENERATED, [], []))
    server.paths.clear()


@pytest.fixture
def mirrors(monkeypatch, server):
    """Set the addresses of "tatoeba": paths on the server, whole addresses, or mirrors."""

    def choose(*addresses: str | Mirror) -> None:
        base = f"http://127.0.0.1:{server.server_port}"
        chosen = [
            Mirror(f"{base}{address}" if address.startswith("/") else address) if isinstance(address, str) else address
            for address in addresses
        ]
        chosen = [Mirror(f"{base}{m.url}", m.pin) if m.url.startswith("/") else m for m in chosen]
        monkeypatch.setitem(downloads.MIRRORS, "tatoeba", tuple(chosen))

    return choose


def kept(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -------------------------------------------------------------------------------------------- good files


@pytest.mark.parametrize("path", ["good", "folder", "open", "chunked", "polite", "moved"])
def test_a_good_file_is_read_and_kept(mirrors, server, tmp_path, capsys, path):
    mirrors(f"/{path}.zip")
    corpus = load("tatoeba")
    assert corpus.pairs[0] == GO
    assert len(corpus.pairs) == 201
    assert corpus.skipped == []
    (name,) = kept(tmp_path)
    digest = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert name == f"tatoeba-{digest[:16]}.zip"
    requests = list(server.paths)
    assert load("tatoeba") == corpus
    assert server.paths == requests  # the second call made none
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_a_file_with_the_right_checksum_is_taken(mirrors, algorithm):
    mirrors(Mirror("/good.zip", f"{algorithm}:{hashlib.new(algorithm, GOOD).hexdigest()}"))
    assert len(load("tatoeba", limit=5).pairs) == 5
    assert len(load("tatoeba").pairs) == 201


def test_limit_counts_pairs_and_not_what_is_kept(mirrors, server):
    mirrors("/good.zip")
    assert load("tatoeba", limit=1).pairs == [GO]
    assert len(load("tatoeba", limit=7).pairs) == 7
    assert len(load("tatoeba").pairs) == 201
    assert server.paths == ["/good.zip"]


def test_the_server_reads_who_asks(mirrors, monkeypatch, capsys):
    mirrors("/polite.zip")
    monkeypatch.setattr(downloads, "USER_AGENT", "Python-urllib/3.11")
    assert load("tatoeba").pairs == GENERATED
    assert "406" in capsys.readouterr().out


# --------------------------------------------------------------------------------------------- bad files

BAD = [  # path, the reason that is given
    ("gone", "the server answered 404 Not Found"),
    ("ill", "the server answered 500 Internal Server Error"),
    ("loop", "the server answered 302"),
    ("page", "what came is a web page, not a zip file"),
    ("nothing", "what came is no zip file"),
    ("cut", f"the connection broke after {len(GOOD) - 100:,} of {len(GOOD):,} bytes"),
    ("cut-chunks", "the connection failed (IncompleteRead"),
    ("cut-unnoticed", "the zip file is damaged"),
    ("spoilt", "the zip file is damaged"),
    ("other-member", "the zip file has no fra.txt or eng-fra.txt"),
    ("few", "the text is too short: 1 pair read; no line skipped. At least 100 pairs are expected"),
    ("no-table", "the text in the zip file holds no pair of sentences"),
    ("broken-lines", "the text in the zip file holds too many lines that are no pair of sentences"),
    ("silent", "no answer within 0.2 seconds"),
    ("silent-later", "no answer within 0.2 seconds"),
    ("nonsense", "the connection failed (SSH-2.0"),
]


@pytest.mark.parametrize(("path", "reason"), BAD)
def test_a_bad_file_is_refused_and_the_next_address_is_used(mirrors, tmp_path, path, reason, capsys):
    mirrors(f"/{path}.zip")
    assert load("tatoeba").pairs == GENERATED
    assert f"/{path}.zip: {reason}" in capsys.readouterr().out
    assert kept(tmp_path) == []
    mirrors(f"/{path}.zip", "/good.zip")
    assert load("tatoeba").pairs[0] == GO
    assert capsys.readouterr() == ("", "")


def test_a_file_with_another_checksum_is_refused(mirrors, tmp_path, capsys):
    expected, found = "sha256:" + "0" * 64, hashlib.sha256(GOOD).hexdigest()
    mirrors(Mirror("/good.zip", expected))
    assert load("tatoeba").pairs == GENERATED
    assert f"its checksum is sha256:{found}, not {expected}" in capsys.readouterr().out
    assert kept(tmp_path) == []


@pytest.mark.parametrize("path", ["drips", "drips-headers", "drips-chunks"])
def test_a_server_that_drips_has_a_time_limit(mirrors, monkeypatch, path):
    """It is never silent for long, so only the limit for the whole can stop it; the next address has its own share."""
    monkeypatch.setattr(downloads, "TOTAL_SECONDS", 1.0)
    mirrors(f"/{path}.zip", "/good.zip")
    began = time.monotonic()
    assert load("tatoeba").pairs[0] == GO
    assert 0.4 < time.monotonic() - began < 2
    with pytest.raises(downloads._Refused, match=r"not complete after 0\.2 seconds"):
        downloads._fetch(downloads.MIRRORS["tatoeba"][0].url, 0.2)


def test_a_download_that_nobody_waits_for_any_more_stops(mirrors):
    mirrors("/drips.zip")
    before = set(threading.enumerate())
    with pytest.raises(downloads._Refused):
        downloads._fetch(downloads.MIRRORS["tatoeba"][0].url, 0.2)
    deadline = time.monotonic() + 2
    while not before.issuperset(threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_file_without_end_is_refused(mirrors, monkeypatch, capsys):
    monkeypatch.setattr(downloads, "MAXIMUM_BYTES", 100_000)
    mirrors("/huge.zip")
    assert load("tatoeba").pairs == GENERATED
    assert "the file is too large" in capsys.readouterr().out


def test_any_damage_to_a_zip_file_is_refused_or_harmless():
    generator = random.Random(0)
    for _ in range(300):
        data = bytearray(GOOD)
        for _ in range(generator.choice([1, 3, 30])):
            data[generator.randrange(2, len(data))] = generator.randrange(256)
        try:
            corpus = downloads._checked(bytes(data), None, None)
        except downloads._Refused:
            continue
        assert len(corpus.pairs) == 201


# ----------------------------------------------------------------------------------------------- offline


def test_a_proxy_that_is_set_after_a_failure_is_used(mirrors, server, monkeypatch, capsys):
    mirrors("http://nowhere.invalid/good.zip")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert load("tatoeba").pairs == GENERATED
    assert "its name is not known here" in capsys.readouterr().out
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    assert load("tatoeba").pairs[0] == GO
    assert server.paths == ["http://nowhere.invalid/good.zip"]


def test_offline_the_generated_corpus_is_used_and_the_learner_is_told_why(mirrors, nobody, tmp_path, capsys):
    mirrors(nobody, "http://nowhere.invalid/fra-eng.zip", "/gone.zip")
    corpus = load("tatoeba", limit=3)
    assert corpus.pairs == GENERATED[:3]
    assert corpus.skipped == []
    first, *tried, last = capsys.readouterr().out.splitlines()
    assert first.startswith("The download 'tatoeba' failed, so you get 3 pairs of the generated")
    assert tried[0] == f"- {nobody}: no server answers there"
    assert tried[1].startswith("- http://nowhere.invalid/fra-eng.zip: its name is not known here")
    assert tried[2].endswith("/gone.zip: the server answered 404 Not Found")
    assert "read_pairs" in last
    assert kept(tmp_path) == []


def test_an_unknown_name_and_a_wrong_limit_ask_nobody(mirrors, server):
    mirrors("/good.zip")
    with pytest.raises(ValueError, match=r"no download 'wmt'; there is 'tatoeba'"):
        load("wmt")
    with pytest.raises(ValueError, match=r"limit must be at least 1.*0"):
        load("tatoeba", limit=0)
    assert server.paths == []


def test_importing_asks_nobody(monkeypatch):
    """Run the module's code again where every connection is an error."""

    def refuse(*arguments, **options):
        pytest.fail("a connection was made")

    for function in ("create_connection", "getaddrinfo", "socket"):
        monkeypatch.setattr(socket, function, refuse)
    runpy.run_path(downloads.__file__)


def test_the_real_pins_are_well_formed(monkeypatch):
    monkeypatch.undo()
    for mirror in downloads.MIRRORS["tatoeba"]:
        if mirror.pin:
            algorithm, _, digest = mirror.pin.partition(":")
            assert len(bytes.fromhex(digest)) == hashlib.new(algorithm).digest_size
        else:
            assert mirror.url.startswith("https://")


# ---------------------------------------------------------------------------------- the cache, the screen


@pytest.mark.parametrize("damaged", [b"", GOOD[:-1], PAGE, GOOD[:150] + b"?" + GOOD[151:]])
def test_a_damaged_file_in_the_cache_is_fetched_again(mirrors, server, tmp_path, damaged):
    mirrors("/good.zip")
    load("tatoeba")
    (name,) = kept(tmp_path)
    (tmp_path / name).write_bytes(damaged)
    assert len(load("tatoeba").pairs) == 201
    assert server.paths == ["/good.zip"] * 2
    assert kept(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == GOOD


@contextmanager
def interrupted_while(monkeypatch, module, function: str) -> Generator[None]:
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize(
    ("module", "function"), [(downloads.HTTPResponse, "read1"), (downloads, "parse_pairs"), (cache.os, "replace")]
)
def test_an_interrupted_download_leaves_nothing(mirrors, monkeypatch, tmp_path, module, function):
    mirrors("/good.zip")
    with interrupted_while(monkeypatch, module, function):
        load("tatoeba")
    assert kept(tmp_path) == []
    assert len(load("tatoeba").pairs) == 201


def test_a_full_disk_costs_only_the_cache(mirrors, server, monkeypatch, tmp_path):
    def refuse(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_atomically", refuse)
    mirrors("/good.zip")
    for _ in range(2):
        assert len(load("tatoeba").pairs) == 201
    assert server.paths == ["/good.zip"] * 2
    assert kept(tmp_path) == []


def test_no_folder_at_all_costs_only_the_cache(mirrors, monkeypatch):
    def refuse():
        raise OSError("read-only")

    monkeypatch.setattr(cache, "cache_dir", refuse)
    mirrors("/good.zip")
    assert len(load("tatoeba").pairs) == 201


def test_the_progress_bar_leaves_nothing_behind(mirrors, monkeypatch, capsys):
    monkeypatch.setattr(progress, "is_welcome", lambda: True)
    mirrors("/good.zip")
    load("tatoeba")
    shown = capsys.readouterr().err
    assert "download" in shown
    assert shown.endswith("\r")
    assert shown.rstrip("\r").rpartition("\r")[2].strip() == ""  # blanks over what was there
