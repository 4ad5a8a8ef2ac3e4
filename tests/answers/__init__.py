"""Answers to all exercises, right and wrong, as people write them."""

import importlib
from collections.abc import Callable
from typing import Any

from course_utils import syllabus
from course_utils.exercises.exercise import Exercise, exercises_of

EXERCISES = [
    e for lesson in syllabus.LESSONS if lesson.ready for e in exercises_of(lesson.name).values() if not e.needs
]


def answers(kind: str, exercise: Exercise) -> dict[str, Callable[..., Any]]:
    """The "right" or "wrong" answers to an exercise: all names `exercise__what_is_special` of its lesson's file."""
    module = importlib.import_module(f"tests.answers.{kind}.{exercise.lesson}")
    return {name: x for name, x in vars(module).items() if name.startswith(f"{exercise.name}__")}
