"""Files that can be made again: where they stand, how they are written, and what they are called."""

import hashlib
import inspect
import io
import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TypeVar

Kept = TypeVar("Kept")


def cache_dir() -> Path:
    """Return the folder for files that can be made again; it exists and can be written to.

    It is the environment variable COURSE_CACHE, else ~/.cache/attention-course, else a folder for temporary files,
    the same one in each call. OSError if even that is impossible.
    """
    with suppress(OSError, RuntimeError):  # RuntimeError: no home folder is known
        return _usable(_chosen_folder())
    temporary = Path(tempfile.gettempdir())
    for name in ("attention-course", *(f"attention-course-{number}" for number in range(2, 100))):
        with suppress(OSError):  # another user has made it
            return _usable(temporary / name)
    raise OSError(f"nothing can be kept: no folder in {temporary} can be written to. Set COURSE_CACHE to one that can.")


def _chosen_folder() -> Path:
    chosen = os.environ.get("COURSE_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "attention-course"


def _usable(folder: Path) -> Path:
    """Create the folder and try to write into it: the only test that holds on every file system."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it under its name. OSError if it can't be written.

    The bytes go to a temporary file in the same folder, which then takes the final name in one step.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except BaseException:  # also when the learner interrupts
        with suppress(OSError):
            temporary.unlink()
        raise


def code_key(*parts: str | bytes | ModuleType) -> str:
    """Return a short name (16 hexadecimal digits) for what a file was made from.

    A module stands for its source, so that a change of the code gives a new name and an old file is left alone.
    """
    digest = hashlib.sha256()
    for part in parts:
        text = inspect.getsource(part) if isinstance(part, ModuleType) else part
        data = text if isinstance(text, bytes) else text.encode()
        digest.update(len(data).to_bytes(8, "big") + data)  # with the length: ("ab", "c") is not ("a", "bc")
    return digest.hexdigest()[:16]


def remembered(name: str, key: str, make: Callable[[], Kept]) -> Kept:
    """Return what `make` returns, from the cache if an earlier call with the same name and key has kept it there.

    For trained weights and the like: tensors, numbers, text, and lists and dictionaries of them. A file that is
    missing, damaged or can't be written is no error: then `make` is called.
    """
    import torch

    file = f"{name}-{key}.pt"
    with suppress(Exception):  # no folder; or a damaged file, which makes `torch.load` raise almost anything
        return torch.load(cache_dir() / file, weights_only=True)
    kept = make()
    buffer = io.BytesIO()
    torch.save(kept, buffer)
    with suppress(OSError):
        write_atomically(cache_dir() / file, buffer.getvalue())
    return kept
