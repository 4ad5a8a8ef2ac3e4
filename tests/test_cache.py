"""What is kept in the cache: made once, read afterwards, and made again where the file is damaged."""

import os
import subprocess
import sys

import pytest
import torch

from course_utils import cache


@pytest.fixture
def kept(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    calls = []

    def make() -> dict:
        calls.append(1)
        return {"weights": {"w": torch.arange(3.0)}, "losses": [1.5, 0.5]}

    return lambda key="k": cache.remembered("model", key, make), calls


def test_made_once_then_read(kept):
    read, calls = kept
    first, second = read(), read()
    assert len(calls) == 1 and first["losses"] == second["losses"] == [1.5, 0.5]
    assert torch.equal(second["weights"]["w"], torch.arange(3.0))
    read("another key")
    assert len(calls) == 2


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"no tensors"])
def test_a_damaged_file_is_made_again(kept, tmp_path, damage):
    read, calls = kept
    read()
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert read()["losses"] == [1.5, 0.5] and len(calls) == 2
    assert read()["losses"] == [1.5, 0.5] and len(calls) == 2


def test_no_code_is_run_from_a_file(kept, tmp_path):
    read, calls = kept
    torch.save({"losses": print}, tmp_path / "model-k.pt")
    assert read()["losses"] == [1.5, 0.5] and len(calls) == 1


def test_a_folder_that_cannot_be_written_is_no_error(kept, monkeypatch):
    read, calls = kept

    def full(path, data):
        raise OSError("no space left")

    monkeypatch.setattr(cache, "write_atomically", full)
    assert read()["losses"] == read()["losses"] and len(calls) == 2


def test_no_folder_at_all_is_no_error(kept, monkeypatch):
    read, calls = kept

    def refuse():
        raise OSError("read-only")

    monkeypatch.setattr(cache, "cache_dir", refuse)
    assert read()["losses"] == [1.5, 0.5] and len(calls) == 1


# ---- the folder ----


@pytest.fixture
def homeless(monkeypatch, tmp_path):
    """No home, no chosen folder, and a folder for temporary files where others have been before."""

    def no_home():
        raise RuntimeError("no home")

    monkeypatch.delenv("COURSE_CACHE", raising=False)
    monkeypatch.setattr(cache.Path, "home", no_home)
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_a_home_each_call_gives_the_same_folder(homeless):
    assert cache.cache_dir() == cache.cache_dir() == homeless / "attention-course"


def test_without_a_home_a_folder_of_another_user_is_passed_by(homeless):
    for name in ("attention-course", "attention-course-2"):
        (homeless / name).write_text("nobody can write into a file")
    assert cache.cache_dir() == cache.cache_dir() == homeless / "attention-course-3"
    assert len(list(homeless.iterdir())) == 3


def test_nowhere_to_write_says_what_to_do(homeless, monkeypatch):
    def refuse(folder):
        raise PermissionError(folder)

    monkeypatch.setattr(cache, "_usable", refuse)
    with pytest.raises(OSError, match="Set COURSE_CACHE to one that can"):
        cache.cache_dir()


# ---- a full disk ----

TOO_LARGE = """
import resource, signal, sys
from pathlib import Path
from course_utils import cache
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    cache.write_atomically(Path(sys.argv[1]), bytes(100_000))
except OSError as problem:
    print(type(problem).__name__)
"""


@pytest.mark.skipif(os.name == "nt", reason="no limit for the size of files there")
def test_a_write_that_ends_half_way_leaves_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", TOO_LARGE, str(tmp_path / "file")], capture_output=True, text=True)
    assert done.stdout == "OSError\n" and list(tmp_path.iterdir()) == []
