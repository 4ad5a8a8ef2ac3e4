"""What an answer may not change for those who come after it: it is kept before, and put back afterwards.

Not stopped, because nothing in the same process can stop it: code that computes, loops or waits inside C
(`os.system`, a lock while signals are ignored), Python code that swallows every interrupt *and* switches the signal off
again and again, `os._exit`, a segmentation fault, memory without end, threads and child processes that go on, what an
answer writes to files, and code that changes the engine on purpose in ways that this module does not list. Whoever
grades strangers' code runs it in a process of its own (`python -m course_utils grade`).
"""

import builtins
import contextlib
import copy
import gc
import inspect
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._tensor_str import PRINT_OPTS

_MISSING = object()
# Whose functions the judge itself calls: an answer that replaces one could make every later answer right.
_OWNERS: list[Any] = [builtins, torch, F, torch.autograd, torch.overrides, torch.random, nn, Tensor, nn.Module]
_OWNERS += [contextlib, contextlib.ExitStack, copy, inspect, random, numpy, numpy.random, signal, threading, warnings]
_ENGINE = "course_utils."


class Originals:
    """The functions that the judge relies on, as they are now. `put_back` undoes what was replaced or deleted.

    Also belongs to them what the course's own modules and the exercises hold, and PyTorch's modes: those that an
    answer entered and did not leave would see, and could change, every later call.
    """

    def __init__(self, exercises: Iterable[Any] = ()) -> None:
        engine = [module for name, module in sys.modules.items() if name.startswith(_ENGINE)]
        engine += [x for m in engine for x in vars(m).values() if isinstance(x, type) and x.__module__ == m.__name__]
        self._kept = [(owner, dict(vars(owner)), _identities(owner)) for owner in (*_OWNERS, *engine, *exercises)]
        self._function_modes = _get_function_modes()
        self._dispatch_modes = torch._C._len_torch_dispatch_stack()
        self._default_device = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)

    def put_back(self) -> None:
        for owner, kept, identities in self._kept:
            if _identities(owner) != identities:
                now = vars(owner)
                for name, value in kept.items():
                    if now.get(name, _MISSING) is not value:
                        _setattr(owner, name, value)
                if isinstance(owner, type):  # a new method hides an inherited one
                    for name in [name for name in now if name not in kept]:
                        _delattr(owner, name)
        if list(map(id, _get_function_modes())) != list(map(id, self._function_modes)):
            while torch._C._len_torch_function_stack():
                torch._C._pop_torch_function_stack()
            for mode in self._function_modes:
                torch._C._push_on_torch_function_stack(mode)
        while torch._C._len_torch_dispatch_stack() > self._dispatch_modes:
            torch._C._pop_torch_dispatch_stack(None)  # no certain mode: the last one
        torch._GLOBAL_DEVICE_CONTEXT.device_context = self._default_device


_setattr, _delattr = setattr, delattr  # a replaced `setattr` must not be what puts it back
_get_function_modes = torch.overrides._get_current_function_mode_stack


def _identities(owner: Any) -> list[int]:
    return list(map(id, vars(owner).values()))


# What can be set for the whole process: how it is read, and how it is set.
_SETTINGS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (random.getstate, random.setstate),
    (numpy.random.get_state, numpy.random.set_state),
    (os.getcwd, os.chdir),
    (lambda: dict(os.environ), lambda kept: (os.environ.clear(), os.environ.update(kept))),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (lambda: sys.excepthook, lambda hook: setattr(sys, "excepthook", hook)),
    (lambda: list(sys.path), lambda kept: sys.path.__setitem__(slice(None), kept)),
    (sys.getprofile, sys.setprofile),
    (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda kept: torch.use_deterministic_algorithms(kept[0], warn_only=kept[1]),
    ),
    (lambda: dict(vars(PRINT_OPTS)), lambda kept: vars(PRINT_OPTS).update(kept)),
    (numpy.get_printoptions, lambda kept: numpy.set_printoptions(**kept)),
    (numpy.geterr, lambda kept: numpy.seterr(**kept)),
]


@contextlib.contextmanager
def state_kept(exercises: Iterable[Any]) -> Generator[Originals]:
    """Leave the global state of Python and PyTorch as it was found; inside, the checks find what they expect."""
    kept = [(read(), read, write) for read, write in _SETTINGS]
    handlers = _signal_handlers()
    try:
        with torch.random.fork_rng(), warnings.catch_warnings(), _usual_modes():
            originals = Originals(exercises)
            try:
                torch.set_default_dtype(torch.float32)
                torch.set_num_threads(1)  # for small tensors, threads only wait for each other
                yield originals
            finally:
                originals.put_back()
    finally:
        for value, read, write in kept:
            if not _unchanged(read, value):
                write(value)
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _signal_handlers() -> dict[Any, Any]:
    """Only the main thread can set them."""
    try:
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    except (ValueError, TypeError):
        return {}
    return {n: h for n in (signal.SIGINT, signal.SIGTERM) if (h := signal.getsignal(n)) is not None}


def _unchanged(read: Callable[[], Any], value: Any) -> bool:
    """No, if it cannot be told: NumPy's random state holds an array, and the working folder may be gone."""
    try:
        return bool(read() == value)
    except Exception:
        return False


@contextlib.contextmanager
def _usual_modes() -> Generator[None]:
    """What the checks expect around them, whatever the notebook has switched on."""
    with (
        torch.device("cpu"),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
    ):
        yield
