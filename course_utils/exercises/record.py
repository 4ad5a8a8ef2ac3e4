"""What an answer does when it is called: each call is recorded, with copies of what went in and what came out."""

import contextlib
import copy
import inspect
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from course_utils.exercises.compare import is_tensor

LARGE = 10**7  # tensors with more numbers are not copied


class InputChanged(Exception):
    """The answer changed one of its inputs in place."""


@dataclass
class Outcome:
    """What one call of the answer did: a value or the type of its error, the inputs that it changed, and `notes`.

    `failed` says that a case found it wrong.
    Notes are what else is known of the call: what the answer asked of a model or a function among its inputs, and
    which gradients its results give.
    """

    value: Any = None
    error: str | None = None
    changed: tuple[str, ...] = ()
    failed: bool = False
    notes: list[tuple[str, Any]] = field(default_factory=list)


@dataclass
class CheckResult:
    """One check's verdict. `problem` is None when it passed, else what a learner should read."""

    name: str
    problem: str | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    kind: str = ""


_now: list[Outcome] = []  # the outcome of the call that runs, or that ran last


def note(name: str, value: Any) -> None:
    """Keep `value` with the call of the answer that runs now, or ran last. Two answers are told apart by it."""
    if _now:
        _now[-1].notes.append((name, copied(value)))


@contextlib.contextmanager
def unrecorded() -> Generator[None]:
    """While the reference runs: what it asks belongs to no call of the answer."""
    kept = _now[:]
    _now.clear()
    try:
        yield
    finally:
        _now[:] = kept


def failed() -> None:
    """The call of the answer that ran last did not do what it must."""
    if _now:
        _now[-1].failed = True


class Recorder:
    """The answer as the checks see it."""

    def __init__(self, answer: Callable[..., Any], after_call: Callable[[], None] = lambda: None):
        """`after_call` puts back what no answer may change; it runs after each call."""
        self.answer, self._after_call = answer, after_call
        self.outcomes: list[Outcome] = []
        self.errors: list[BaseException] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        process = os.getpid()
        names = _parameter_names(self.answer, len(args)) + list(kwargs)
        before = [_state(x) for x in (*args, *kwargs.values())]
        outcome = Outcome()
        _now[:] = [outcome]
        try:
            value = self.answer(*args, **kwargs)
        except BaseException as error:
            outcome.error = type(error).__name__
            self.errors.append(error)
            raise
        else:
            outcome.value = copied(value)
        finally:
            if os.getpid() != process:  # the answer forked: this is the child, which has nothing to judge
                os._exit(0)
            self._after_call()
            after = (_state(x) for x in (*args, *kwargs.values()))
            outcome.changed = tuple(n for n, old, new in zip(names, before, after, strict=True) if old != new)
            self.outcomes.append(outcome)
        if outcome.changed:
            changed = ", ".join(f"`{name}`" for name in outcome.changed)
            raise InputChanged(
                f"your function changed its input {changed}. The caller still needs it: work on a copy, "
                "and avoid operations that write in place (`+=`, `x[…] = …`, names that end in `_`)"
            )
        return value


def copied(value: Any) -> Any:
    """A copy that later changes cannot reach. Models, functions and unknown objects stay themselves."""
    try:
        return _copied(value)
    except RecursionError:  # a value that contains itself
        return value


def _copied(value: Any) -> Any:
    if is_tensor(value):
        return value.detach().clone() if value.numel() <= LARGE else value
    if issubclass(type(value), tuple):
        return tuple(map(_copied, tuple.__iter__(value)))
    if type(value) in (set, frozenset):
        return type(value)(value)
    if type(value) is list:
        return [_copied(v) for v in value]
    if type(value) is dict:
        return {k: _copied(v) for k, v in value.items()}
    if type(value).__module__ == "numpy":
        return copy.deepcopy(value)
    return value


@dataclass(frozen=True)
class _Tensor:
    """A tensor's numbers and properties at one moment, which can be compared."""

    numbers: torch.Tensor
    properties: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Tensor)
            and self.properties == other.properties
            and torch.equal(*map(_comparable, (self.numbers, other.numbers)))
        )

    __hash__ = None  # it holds a tensor, and is compared only


def _state(value: Any) -> Any:
    """What may not differ after a call. Two states of the same untouched input are equal."""
    if is_tensor(value):
        return _Tensor(copied(value), (value.dtype, tuple(value.shape), value.requires_grad))
    if isinstance(value, nn.Module):
        training = [(name, module.training) for name, module in value.named_modules()]
        return training, {name: _state(tensor) for name, tensor in value.state_dict().items()}
    if type(value) in (list, tuple):
        return type(value), [_state(v) for v in value]
    if type(value) in (set, frozenset):
        return type(value), frozenset(value)
    if type(value) is dict:
        return [(k, _state(v)) for k, v in value.items()]
    if type(value) in (int, float, str, bool, type(None)):
        return type(value), value
    return id(value)


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.nan_to_num(nan=12345.678, posinf=float("inf"), neginf=float("-inf"))


def _parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    return [names[i] if i < len(names) else f"argument {i + 1}" for i in range(count)]
