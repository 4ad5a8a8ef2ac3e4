"""What an exercise is: a reference, checks, promises, known mistakes and hints.

ex = Exercise(masking.causal_mask, points=2, minutes=10, hints=("…", "…"))
ex.cases("aligned to the end when there are more keys than queries", case(3, 5).gives(…), case(1, 4))
ex.promises(ex.inputs(queries=5, keys=7, d_k=8), "leading", "sizes", "dtypes", "gradients", "device")
ex.mistake("no token sees itself", {"<=": "<"}, hint="…")

@ex.check("what cases cannot say")
def _(answer, rng):
    expect(answer(3, 5), …, "causal_mask(3, 5)")
"""

import ast
import contextlib
import importlib
import inspect
import itertools
import linecache
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from course_utils.exercises import promises
from course_utils.exercises.cases import Case
from course_utils.exercises.compare import Mismatch
from course_utils.exercises.record import failed

CheckFunction = Callable[[Callable[..., Any], torch.Generator], None]


@dataclass(frozen=True)
class Check:
    """`run(answer, rng)` raises `Mismatch` when the answer is wrong. `rng` is seeded anew for each check.

    `kind` says what is promised: "leading", "ones", "equal", "dtypes", "gradients", "device", "error", or nothing of
    these. A check that comes `last` takes seconds: it is left out where another one has failed.
    """

    name: str
    run: CheckFunction
    kind: str = ""
    last: bool = False


@dataclass(frozen=True)
class Mistake:
    """Running code that is wrong in a way people really get wrong, and the hint that helps them.

    `function` is None for the causes that are the same in all exercises (see `recognise`).
    """

    name: str
    hint: str
    function: Callable[..., Any] | None = None


class Called:
    """An answer that is no function to be called, such as a Triton kernel: `outer(answer, …)` is called instead."""

    def __init__(self, outer: Callable[..., Any], answer: Any) -> None:
        self.outer, self.answer = outer, answer
        self.__wrapped__ = getattr(answer, "fn", answer)  # whose parameters and lines a learner knows
        self.__signature__ = inspect.Signature([*inspect.signature(outer).parameters.values()][1:])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.outer(self.answer, *args, **kwargs)


_registry: dict[str, dict[str, "Exercise"]] = {}


@dataclass
class Exercise:
    """One function that the learner writes.

    `minutes` is what a learner needs, `hints` go from gentle to plain, `returns` says what several results are called,
    `seconds` limits all checks together. A new exercise joins `lesson`, by default the one that its reference stands
    in, under the name of its reference. Where the answer is no function that can be called, `outer(answer, …)` is.
    `needs` names what is missing on this machine: then nothing can be checked.
    """

    reference: Callable[..., Any]
    points: int
    minutes: int
    hints: tuple[str, ...]
    returns: tuple[str, ...] = ()
    seconds: float = 10
    outer: Callable[..., Any] | None = None
    needs: str = ""
    lesson: str = ""
    checks: tuple[Check, ...] = field(init=False)
    mistakes: tuple[Mistake, ...] = ()
    samples: tuple[promises.Inputs, ...] = ()  # what makes calls of any size

    def __post_init__(self) -> None:
        self.lesson = self.lesson or self.function.__module__.rsplit(".", 1)[-1]
        self.checks = (Check("its parameters have the names that the lesson uses", self._test_parameters),)
        _registry.setdefault(self.lesson, {})[self.name] = self

    @property
    def function(self) -> Callable[..., Any]:
        """The plain Python function of the reference (of a Triton kernel: the function it was made from)."""
        return getattr(self.reference, "fn", self.reference)

    @property
    def name(self) -> str:
        return self.function.__name__

    def called(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """The answer as the checks call it."""
        return answer if self.outer is None else Called(self.outer, answer)

    def check(self, name: str, kind: str = "", last: bool = False) -> Callable[[CheckFunction], CheckFunction]:
        """A check that is no list of calls."""

        def add(run: CheckFunction) -> CheckFunction:
            quick, slow = ([c for c in self.checks if c.last == slow] for slow in (False, True))
            new = Check(name, run, kind, last)
            slow.append(new) if last else quick.insert(-1, new)  # the check of the parameters stays behind
            self.checks = *quick, *slow
            return run

        return add

    def cases(self, name: str, *cases: Case, kind: str = "") -> None:
        """A check in which each case's call must give what the case says, or what the reference gives."""
        self._add(name, cases, kind)

    def gradients(self, name: str, *cases: Case) -> None:
        """A check of what each case gives, and of the gradient of every result of floats for every input of floats."""
        self._add(name, cases, "gradients")

    def device(self, name: str, *cases: Case) -> None:
        """A check that each case works, and stays, on the device of its inputs."""
        self._add(name, cases, "device")

    def raises(self, error: type[Exception], name: str, *cases: Case) -> None:
        """A check that each case raises the error that the docstring promises."""
        self._add(name, tuple(case.gives(error) for case in cases), "error")

    def inputs(self, **sizes: int) -> promises.Inputs:
        """Makes calls from the shapes in the reference's signature, where all inputs are tensors of floats."""
        return promises.FromSignature(self.function, sizes)

    def promises(self, inputs: promises.Inputs, *kept: str) -> None:
        """Checks what every exercise promises in the same way; `kept` are keys of `promises.PROMISES`."""
        self.samples = (*self.samples, inputs)
        for word in kept:
            for promise in promises.PROMISES[word](inputs):
                self._add(*promise)

    def mistake(self, name: str, wrong: Mapping[str, str] | Callable[..., Any], *, hint: str) -> None:
        """What people get wrong: the reference with some of its text written otherwise, or another function."""
        function = _rewritten(self.function, wrong) if isinstance(wrong, Mapping) else wrong
        self.mistakes = (*self.mistakes, Mistake(name, hint, function))

    def _add(self, name: str, cases: tuple[Case, ...], kind: str) -> None:
        tests = {"gradients": Case.test_gradients, "device": Case.test_device, "error": Case.test_error}
        test = tests.get(kind, Case.test)
        reference = self.called(self.reference)

        def run(answer: Callable[..., Any], rng: torch.Generator) -> None:
            """All cases, also after one that failed: what an answer does in the others shows what is wrong with it."""
            first: Exception | None = None
            for case in cases:
                try:
                    test(case, answer, reference, self.returns)
                except Exception as problem:
                    failed()
                    first = first or problem
                    with contextlib.suppress(Exception):
                        vars(problem)["inputs"] = case.words(reference)
            if first is not None:
                raise first

        self.check(name, kind)(run)

    def _test_parameters(self, answer: Callable[..., Any], rng: torch.Generator) -> None:
        """Cells call optional parameters by name. What was not written with `def` or `lambda` need not have them."""
        function = getattr(answer, "answer", answer)
        function = function.__wrapped__ if isinstance(function, Called) else function
        if not isinstance(function, types.FunctionType):
            return
        wanted, got = (inspect.signature(f).parameters for f in (self.function, function))
        if not any(p.kind is p.VAR_POSITIONAL for p in got.values()) and list(got)[: len(wanted)] != list(wanted):
            text = f"the parameters must be called ({', '.join(wanted)}), as the stub has them"
            raise Mismatch(None, None, f"{text}; yours are called ({', '.join(got)})")


def _rewritten(function: Callable[..., Any], edits: Mapping[str, str]) -> Callable[..., Any]:
    """The function with each text of its body replaced; raises ValueError unless it stands there exactly once."""
    lines = inspect.getsource(function).split("\n")
    definition = ast.parse("\n".join(lines)).body[0]
    assert isinstance(definition, ast.FunctionDef)
    docstring_ends = definition.body[0].end_lineno
    head, body = "\n".join(lines[:docstring_ends]), "\n".join(lines[docstring_ends:])
    for old, new in edits.items():
        if body.count(old) != 1:
            raise ValueError(f"{old!r} stands {body.count(old)} times in {function.__name__}, not once")
        body = body.replace(old, new)
    return defined(f"{head}\n{body}", function, "a mistake in")


_numbers = itertools.count()


def defined(source: str, original: Callable[..., Any], words: str) -> Callable[..., Any]:
    """The function that the source defines, among the names of the original's module.

    Its source can be read again, which Triton does.
    """
    names = dict(vars(sys.modules[original.__module__]))
    file = f"<{words} {original.__name__}, {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names[original.__name__]


def exercises_of(lesson: str) -> dict[str, Exercise]:
    """The exercises of a lesson by name, in the order of their declaration."""
    importlib.import_module(f"course_utils.exercises.{lesson}")
    return _registry.get(lesson, {})


def all_exercises() -> list[Exercise]:
    """Those of all lessons that were opened so far."""
    return [exercise for exercises in _registry.values() for exercise in exercises.values()]
