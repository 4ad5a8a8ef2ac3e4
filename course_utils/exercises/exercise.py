"""What an exercise is: a reference, checks, known mistakes and hints.

ex = Exercise("causal_mask", reference=masking.causal_mask, points=2, seconds=5, minutes=10, hints=("…",))

@ex.check("aligned to the end when there are more keys than queries")
def _(answer, rng):
    expect(answer(3, 5), ..., "causal_mask(3, 5)")

@ex.mistake("aligned to the top left", hint="…")
def _(n_queries, n_keys):
    return ...
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

CheckFunction = Callable[[Callable[..., Any], torch.Generator], None]


@dataclass(frozen=True)
class Check:
    """`run(answer, rng)` raises `Mismatch` when the answer is wrong. `rng` is seeded anew for each check."""

    name: str
    run: CheckFunction


@dataclass(frozen=True)
class Mistake:
    """Running code that is wrong in a way people really get wrong, and the hint that helps them."""

    name: str
    hint: str
    function: Callable[..., Any]


_registry: dict[str, dict[str, "Exercise"]] = {}


@dataclass
class Exercise:
    """One function that the learner writes.

    `seconds` limits all checks together, `minutes` is what a learner needs, `hints` go from gentle to plain.
    A new exercise joins the lesson that its reference stands in.
    """

    name: str
    reference: Callable[..., Any]
    points: int
    seconds: float
    minutes: int
    hints: tuple[str, ...]
    checks: list[Check] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.function.__name__ != self.name:
            raise ValueError(f"the reference of {self.name!r} is called {self.function.__name__!r}: use one name")
        _registry.setdefault(self.lesson, {})[self.name] = self

    @property
    def function(self) -> Callable[..., Any]:
        """The plain Python function of the reference (of a Triton kernel: the function it was made from)."""
        return getattr(self.reference, "fn", self.reference)

    @property
    def lesson(self) -> str:
        return self.function.__module__.rsplit(".", 1)[-1]

    def check(self, name: str) -> Callable[[CheckFunction], CheckFunction]:
        def add(run: CheckFunction) -> CheckFunction:
            self.checks.append(Check(name, run))
            return run

        return add

    def mistake(self, name: str, *, hint: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.mistakes.append(Mistake(name, hint, function))
            return function

        return add


def exercises_of(lesson: str) -> dict[str, Exercise]:
    """The exercises of a lesson by name, in the order of their declaration."""
    importlib.import_module(f"course_utils.exercises.{lesson}")
    return _registry.get(lesson, {})
