"""Run an exercise's checks on an answer, safely, and recognise the mistakes that people really make."""

import contextlib
import inspect
import io
import linecache
import random
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy
import torch

from course_utils.exercises.compare import Mismatch, describe
from course_utils.exercises.exercise import Check, Exercise, Mistake, all_exercises
from course_utils.exercises.recognise import most_alike, pattern
from course_utils.exercises.record import CheckResult, InputChanged, Recorder
from course_utils.exercises.state import state_kept
from course_utils.exercises.time_limit import OutOfTime, time_limit


@dataclass
class Verdict:
    """What all checks say. `status`: "passed", "wrong", "unwritten", or "missing": nothing can be checked here."""

    status: str
    results: list[CheckResult]
    printed: str = ""
    mistake: Mistake | None = None
    out_of_time: bool = False

    @property
    def failed(self) -> list[CheckResult]:
        return [r for r in self.results if r.problem is not None]


def judge(exercise: Exercise, answer: Callable[..., Any]) -> Verdict:
    """Run all checks of `exercise` on `answer`; what the answer does to others is undone (see `state`).

    Random states, gradient mode, default dtype and warnings are as before afterwards, printed text is kept short.
    """
    if exercise.needs:
        return Verdict("missing", [])
    printed = ShortText()
    results: list[CheckResult] = []
    out_of_time = False
    called = exercise.called(answer)
    streams = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed)
    with state_kept(all_exercises()) as originals, streams[0], streams[1]:
        try:
            with time_limit(exercise.seconds) as limit:
                for check in exercise.checks:
                    if check.last and any(r.problem for r in results):
                        continue
                    result = run_check(check, called, originals.put_back)
                    limit.look()
                    if results and result.problem == _UNWRITTEN:
                        result.problem = "your function raised NotImplementedError: a part of it is not written yet"
                    results.append(result)
                    if results[0].problem == _UNWRITTEN:
                        return Verdict("unwritten", results, str(printed))
        except OutOfTime:
            originals.put_back()
            out_of_time = True
            stopped_in = exercise.checks[min(len(results), len(exercise.checks) - 1)]
            results.append(CheckResult(stopped_in.name, _stopped(exercise.seconds)))
        verdict = Verdict("passed", results, str(printed), out_of_time=out_of_time)
        if verdict.failed:
            verdict.status = "wrong"
            verdict.mistake = None if out_of_time else recognise(exercise, results)
    return verdict


def recognise(exercise: Exercise, results: list[CheckResult]) -> Mistake | None:
    """The known mistake that an answer with these results has made, if what it did shows it (see `recognise`)."""
    known = [(mistake, run_mistake(exercise, mistake)) for mistake in exercise.mistakes]
    return most_alike(results, _kept_results(exercise, "the reference", exercise.reference), known) or pattern(results)


def run_mistake(exercise: Exercise, mistake: Mistake) -> list[CheckResult]:
    assert mistake.function is not None  # only the causes that are the same everywhere have none
    return _kept_results(exercise, mistake.name, mistake.function)


_results: dict[tuple[str, str, str], list[CheckResult]] = {}


def _kept_results(exercise: Exercise, name: str, function: Callable[..., Any]) -> list[CheckResult]:
    """The results of trusted code, which are the same every time."""
    key = exercise.lesson, exercise.name, name
    if key not in _results:
        with state_kept([]):
            _results[key] = run_checks(exercise, function)
    return _results[key]


def run_checks(exercise: Exercise, answer: Callable[..., Any]) -> list[CheckResult]:
    """Every quick check of the exercise on trusted code: no time limit, nothing printed is caught."""
    called = exercise.called(answer)
    return [run_check(check, called) for check in exercise.checks if not check.last]


def run_check(check: Check, answer: Callable[..., Any], after_call: Callable[[], None] = lambda: None) -> CheckResult:
    """One check, with its own seed. Whatever the answer raises becomes a problem in words."""
    recorder = Recorder(answer, after_call)
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
    result = CheckResult(check.name, outcomes=recorder.outcomes, kind=check.kind)
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


_UNWRITTEN = "not written yet"


def _stopped(seconds: float) -> str:
    return f"your function was stopped after {seconds:g} seconds of computing. Is there a loop that never ends?"


def _describe_error(error: BaseException, recorder: Recorder) -> str:
    """What went wrong, and in which line of the learner's cell."""
    if not any(error is raised for raised in recorder.errors):
        got = describe(recorder.outcomes[-1].value) if recorder.outcomes else "nothing"
        return f"what your function returned could not be used ({got}): {_name(error)}: {_first_line(error)}"
    inputs = vars(error).get("inputs")
    code = getattr(inspect.unwrap(recorder.answer), "__code__", None)
    first, error = error is recorder.errors[0], _cause(error)
    frames = [f for f, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, NotImplementedError) and first and code and _is_of(frames[-1], code):
        return _UNWRITTEN
    text = f"your function raised {_name(error)}: {_first_line(error)}"
    text += f"\nwith {inputs}" if isinstance(inputs, str) else ""
    if code is None:
        return text
    lines = [n for f, n in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == code.co_filename]
    source = linecache.getline(code.co_filename, lines[-1]).strip() if lines else ""
    return f"{text}\nin this line: {source}" if source else text


def _cause(error: BaseException) -> BaseException:
    """The error itself, where Triton has wrapped it in its own."""
    while type(error).__module__.startswith("triton.") and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_of(frame: FrameType, code: CodeType) -> bool:
    """Triton's interpreter compiles a function again: the code is another, but stands in the same place."""
    return (frame.f_code.co_filename, frame.f_code.co_name) == (code.co_filename, code.co_name)


def _name(error: BaseException) -> str:
    return type.__getattribute__(type(error), "__name__")


def _first_line(error: BaseException) -> str:
    try:
        text = str(error).strip().split("\n")[0]
    except OutOfTime:
        raise
    except BaseException:  # an exception of the learner's own whose text fails
        return ""
    return text if len(text) <= 300 else text[:300] + "…"
