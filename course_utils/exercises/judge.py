"""Run an exercise's checks on an answer, safely, and recognise the mistakes that people really make."""

import contextlib
import copy
import inspect
import io
import linecache
import os
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from course_utils.exercises.compare import Mismatch, describe, is_tensor, same
from course_utils.exercises.exercise import Check, Exercise, Mistake
from course_utils.exercises.time_limit import OutOfTime, time_limit

LARGE = 10**7  # tensors with more numbers are not copied


class InputChanged(Exception):
    """The answer changed one of its inputs in place."""


@dataclass
class Outcome:
    """What one call of the answer did: a value or the type of its error, and the inputs that it changed."""

    value: Any = None
    error: str | None = None
    changed: tuple[str, ...] = ()


@dataclass
class CheckResult:
    """One check's verdict. `problem` is None when it passed, else what a learner should read."""

    name: str
    problem: str | None = None
    outcomes: list[Outcome] = field(default_factory=list)


@dataclass
class Verdict:
    """What all checks say. `status`: "passed", "wrong" or "unwritten"."""

    status: str
    results: list[CheckResult]
    printed: str = ""
    mistake: Mistake | None = None
    out_of_time: bool = False

    @property
    def failed(self) -> list[CheckResult]:
        return [r for r in self.results if r.problem is not None]


def judge(exercise: Exercise, answer: Callable[..., Any]) -> Verdict:
    """Run all checks of `exercise` on `answer`; nothing that the answer does gets out, except through memory.

    Random states, gradient mode, default dtype and warnings are as before afterwards, printed text is kept short.
    """
    printed = ShortText()
    results: list[CheckResult] = []
    out_of_time = False
    with _state_kept(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            with time_limit(exercise.seconds):
                for check in exercise.checks:
                    results.append(run_check(check, answer))
                    if _is_unwritten(results[0]):
                        return Verdict("unwritten", results, str(printed))
        except OutOfTime:
            out_of_time = True
            problem = f"your function was stopped after {exercise.seconds:g} seconds. Is there a loop that never ends?"
            stopped_in = exercise.checks[min(len(results), len(exercise.checks) - 1)]
            results.append(CheckResult(stopped_in.name, problem))
    verdict = Verdict("passed", results, str(printed), out_of_time=out_of_time)
    if verdict.failed:
        verdict.status = "wrong"
        verdict.mistake = None if out_of_time else recognise(exercise, results)
    return verdict


def recognise(exercise: Exercise, results: list[CheckResult]) -> Mistake | None:
    """The known mistake that has the same verdicts and the same outcomes in every check, if there is one."""
    if not any(result.outcomes for result in results):
        return None  # the answer was never called
    with _state_kept():
        return next((m for m in exercise.mistakes if _alike(results, run_checks(exercise, m.function))), None)


def run_checks(exercise: Exercise, answer: Callable[..., Any]) -> list[CheckResult]:
    """Every check of the exercise on trusted code: no time limit, nothing printed is caught."""
    return [run_check(check, answer) for check in exercise.checks]


def run_check(check: Check, answer: Callable[..., Any]) -> CheckResult:
    """One check, with its own seed. Whatever the answer raises becomes a problem in words."""
    recorder = Recorder(answer)
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    result = CheckResult(check.name, outcomes=recorder.outcomes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check.run(recorder, generator)
    except (KeyboardInterrupt, OutOfTime):
        raise
    except Mismatch as wrong:
        result.problem = str(wrong)
    except InputChanged as changed:
        result.problem = str(changed)
    except BaseException as error:  # SystemExit too: an answer must not end the lesson
        result.problem = _describe_error(error, recorder)
    return result


class Recorder:
    """The answer as the checks see it: each call is recorded, with copies of what went in and came out."""

    def __init__(self, answer: Callable[..., Any]):
        self.answer = answer
        self.outcomes: list[Outcome] = []
        self.error: BaseException | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = _copy((args, kwargs))
        outcome = Outcome()
        try:
            value = self.answer(*args, **kwargs)
        except BaseException as error:
            outcome.error, self.error = type(error).__name__, error
            raise
        else:
            outcome.value = _copy(value)
        finally:
            outcome.changed = self._changed(before, (args, kwargs))
            self.outcomes.append(outcome)
        if outcome.changed:
            names = ", ".join(f"`{name}`" for name in outcome.changed)
            raise InputChanged(
                f"your function changed its input {names}. The caller still needs it: work on a copy, "
                "and avoid operations that write in place (`+=`, `x[…] = …`, names that end in `_`)"
            )
        return value

    def _changed(self, before: Any, after: Any) -> tuple[str, ...]:
        (old_args, old_kwargs), (args, kwargs) = before, after
        names = _parameter_names(self.answer, len(args)) + list(kwargs)
        pairs = zip([*old_args, *old_kwargs.values()], [*args, *kwargs.values()], strict=True)
        return tuple(name for name, (old, new) in zip(names, pairs, strict=True) if not _same_state(old, new))


class ShortText(io.TextIOBase):
    """Catches printed text and keeps the first lines, however much is printed."""

    LINES, CHARACTERS = 8, 800

    def __init__(self) -> None:
        self.kept, self.lines = "", 0

    def write(self, text: str) -> int:
        self.kept += text[: max(0, self.CHARACTERS - len(self.kept))]
        self.lines += text.count("\n")
        return len(text)

    def __str__(self) -> str:
        shown = self.kept.rstrip("\n").split("\n")[: self.LINES]
        left = self.lines - len(shown)
        return "\n".join(shown) + (f"\n… and {left:,} more lines" if left > 0 else "")


@contextlib.contextmanager
def _state_kept() -> Iterator[None]:
    """Leave the global state of Python and PyTorch as it was found."""
    python, numbers, folder, depth = random.getstate(), numpy.random.get_state(), os.getcwd(), sys.getrecursionlimit()
    dtype, device, threads = torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()
    with torch.random.fork_rng(), _usual_modes():
        try:
            torch.set_default_dtype(torch.float32)
            yield
        finally:
            random.setstate(python)
            numpy.random.set_state(numbers)
            os.chdir(folder)
            sys.setrecursionlimit(depth)
            torch.set_default_dtype(dtype)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
    if torch.get_default_device() != device:
        torch.set_default_device(device)


@contextlib.contextmanager
def _usual_modes() -> Iterator[None]:
    """What the checks expect around them, whatever the notebook has switched on."""
    with (
        torch.device("cpu"),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
    ):
        yield


def _is_unwritten(first: CheckResult) -> bool:
    return first.problem == _UNWRITTEN


_UNWRITTEN = "not written yet"


def _describe_error(error: BaseException, recorder: Recorder) -> str:
    """What went wrong, and in which line of the learner's cell."""
    if error is not recorder.error:
        got = describe(recorder.outcomes[-1].value) if recorder.outcomes else "nothing"
        return f"what your function returned could not be used ({got}): {type(error).__name__}: {_first_line(error)}"
    code = getattr(recorder.answer, "__code__", None)
    frames = [f for f, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, NotImplementedError) and frames[-1].f_code is code and len(recorder.outcomes) == 1:
        return _UNWRITTEN
    text = f"your function raised {type(error).__name__}: {_first_line(error)}"
    if code is None:
        return text
    lines = [n for f, n in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == code.co_filename]
    source = linecache.getline(code.co_filename, lines[-1]).strip() if lines else ""
    return f"{text}\nin this line: {source}" if source else text


def _first_line(error: BaseException) -> str:
    try:
        text = str(error).strip().split("\n")[0]
    except (Exception, SystemExit):  # an exception of the learner's own whose text fails
        return ""
    return text if len(text) <= 300 else text[:300] + "…"


def _parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    return [names[i] if i < len(names) else f"argument {i + 1}" for i in range(count)]


def _copy(value: Any) -> Any:
    """A copy that later changes cannot reach. Models, functions and unknown objects stay themselves."""
    if is_tensor(value):
        return value.detach().clone() if value.numel() <= LARGE else value
    if type(value) in (list, tuple):
        return type(value)(_copy(v) for v in value)
    if type(value) is dict:
        return {k: _copy(v) for k, v in value.items()}
    if type(value).__module__ == "numpy":
        return copy.deepcopy(value)
    return value


def _same_state(old: Any, new: Any) -> bool:
    """Whether an input is still exactly what it was before the call."""
    if is_tensor(old):
        return is_tensor(new) and old.dtype == new.dtype and torch.equal(*map(_comparable, (old, new)))
    if type(old) is not type(new):
        return False
    if type(old) in (list, tuple):
        return len(old) == len(new) and all(map(_same_state, old, new))
    if type(old) is dict:
        return list(old) == list(new) and all(map(_same_state, old.values(), new.values()))
    if type(old).__module__ == "numpy":
        return bool((old == new).all()) if getattr(old, "shape", None) == getattr(new, "shape", None) else False
    return old is new or type(old) not in (int, float, str, bool) or old == new


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().nan_to_num(nan=12345.678, posinf=float("inf"), neginf=float("-inf"))


def _alike(results: list[CheckResult], others: list[CheckResult]) -> bool:
    return len(results) == len(others) and all(
        (a.problem is None) == (b.problem is None)
        and len(a.outcomes) == len(b.outcomes)
        and all(_same_outcome(x, y) for x, y in zip(a.outcomes, b.outcomes, strict=True))
        for a, b in zip(results, others, strict=True)
    )


def _same_outcome(a: Outcome, b: Outcome) -> bool:
    try:
        return a.error == b.error and a.changed == b.changed and same(a.value, b.value)
    except Exception:  # a value that cannot be compared is like no other
        return False
