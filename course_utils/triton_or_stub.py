"""Triton where it is installed (Linux); elsewhere a stand-in with which kernels can be defined, but not run.

from course_utils.triton_or_stub import triton, tl

`HAS_TRITON` says which of the two it is. `INTERPRETED` says that kernels run in Triton's interpreter, in Python and on
the CPU, as they do where there is no GPU: Triton looks at its variable when it is imported first, so this module sets
it before.
"""

import contextlib
import importlib
import os
import types
from collections.abc import Generator
from typing import Any

import torch

__all__ = ["HAS_TRITON", "INTERPRETED", "MISSING", "tl", "told_if_missing", "triton"]

MISSING = (
    "Triton is not installed here: it exists for Linux only (`pip install triton`). On Colab, and on any Linux, with "
    "or without a GPU, this kernel runs."
)


class MissingTriton(RuntimeError):
    """A kernel was to run where there is no Triton."""


@contextlib.contextmanager
def told_if_missing() -> Generator[None]:
    """Where a kernel in this block cannot run, prints what is missing, and goes on behind the block."""
    try:
        yield
    except MissingTriton as error:
        print(error)


class Stub:
    """What `@triton.jit` makes of a function where there is no Triton: it can be read, but not run."""

    def __init__(self, fn: Any) -> None:
        self.fn, self.__name__, self.__doc__ = fn, fn.__name__, fn.__doc__

    def __getitem__(self, grid: Any) -> "Stub":
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise MissingTriton(f"`{self.__name__}` cannot run. {MISSING}")


class _Language(types.SimpleNamespace):
    """`tl`: only what is looked at when a kernel is defined: `tl.constexpr` in a signature, or around a constant."""

    class constexpr:
        def __init__(self, value: Any) -> None:
            self.value = value


def _stub() -> tuple[Any, Any]:
    functions = {
        "jit": Stub,
        "cdiv": lambda a, b: -(-a // b),
        "next_power_of_2": lambda n: 1 << (n - 1).bit_length(),
        "__version__": "missing",
    }
    return types.SimpleNamespace(**functions), _Language()


if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton: Any
tl: Any
try:
    triton, tl = importlib.import_module("triton"), importlib.import_module("triton.language")
    HAS_TRITON, INTERPRETED = True, triton.knobs.runtime.interpret
except ImportError:
    triton, tl = _stub()
    HAS_TRITON, INTERPRETED = False, False
