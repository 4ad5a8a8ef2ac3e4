"""What is kept in the cache: made once, read afterwards, and made again where the file is damaged."""

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
