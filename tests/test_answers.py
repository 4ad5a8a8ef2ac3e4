"""Right answers, however they are written, always pass; wrong ones never do, and a cause that is named is true.

`tests/answers` holds both, as people write them: `right/<lesson>.py`, `wrong/<lesson>.py` (each says what is wrong with
it), and `causes.json`, the causes that were read and found true. The mutants are made by `exercises/mutants.py`.
"""

import importlib
import inspect
import json
import re
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course_utils import syllabus
from course_utils.exercises.exercise import Exercise, exercises_of
from course_utils.exercises.judge import judge
from course_utils.exercises.mutants import is_equivalent, is_rejected, mutants_of
from tests.answers.equivalent import EQUIVALENT

pytestmark = pytest.mark.usefixtures("no_hook")

ANSWERS = Path(__file__).parent / "answers"
EXERCISES = [e for lesson in syllabus.LESSONS if lesson.ready for e in exercises_of(lesson.name).values()]
TRUE_CAUSES: dict[str, str] = json.loads((ANSWERS / "causes.json").read_text(encoding="utf-8"))

every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)


def answers(kind: str, exercise: Exercise) -> dict[str, Callable[..., Any]]:
    """The answers to an exercise that somebody wrote: all names `exercise__what_is_special`."""
    module = importlib.import_module(f"tests.answers.{kind}.{exercise.lesson}")
    return {name: x for name, x in vars(module).items() if name.startswith(f"{exercise.name}__")}


@every_exercise
def test_right_answers_pass(exercise: Exercise) -> None:
    verdicts = {name: judge(exercise, answer) for name, answer in answers("right", exercise).items()}
    rejected = {name: v.failed[0].problem for name, v in verdicts.items() if v.status != "passed"}
    assert len(verdicts) >= 9 and not rejected


@every_exercise
def test_wrong_answers_are_rejected_and_their_causes_are_true(exercise: Exercise) -> None:
    """A cause that nobody has read yet is to be read: compare it with the answer's docstring."""
    verdicts = {name: judge(exercise, answer) for name, answer in answers("wrong", exercise).items()}
    assert len(verdicts) >= 8 and all(v.status == "wrong" for v in verdicts.values())
    named = {name: v.mistake.name for name, v in verdicts.items() if v.mistake}
    assert named == {name: TRUE_CAUSES.get(name) for name in named}


def test_a_third_of_the_wrong_answers_gets_a_cause() -> None:
    written = [name for exercise in EXERCISES for name in answers("wrong", exercise)]
    assert len(TRUE_CAUSES) >= len(written) / 3 and set(TRUE_CAUSES) <= set(written)


def test_wrong_answers_say_what_is_wrong() -> None:
    assert all(inspect.getdoc(a) for exercise in EXERCISES for a in answers("wrong", exercise).values())


@pytest.mark.slow
@every_exercise
def test_small_changes_of_the_reference_are_rejected(exercise: Exercise) -> None:
    """All but those that change nothing: each is listed with its reason in `answers/equivalent.py`."""
    passing = [m.change for m in mutants_of(exercise.function) if not is_rejected(exercise, m.function())]
    listed = {reason: rows[exercise.name] for reason, rows in EQUIVALENT.items() if exercise.name in rows}
    found = Counter(next((r for r, (_, p) in listed.items() if re.search(p, c)), f"not listed: {c}") for c in passing)
    assert found == {reason: count for reason, (count, _) in listed.items()}


@pytest.mark.slow
def test_small_changes_of_right_answers_are_rejected() -> None:
    """A tenth of them. Equivalent is what does the same in random calls (`bench checks` looks at all of them)."""
    wrong, passing = 0, []
    for exercise in EXERCISES:
        forms = [f for f in answers("right", exercise).values() if isinstance(f, types.FunctionType)]
        mutants = [(form.__name__, m) for form in forms for m in mutants_of(form)][::10]
        for name, mutant in mutants:
            if is_rejected(exercise, mutant.function()):
                wrong += 1
            elif exercise.samples and not is_equivalent(exercise, mutant.function()):
                passing.append((name, mutant.change))
    assert len(passing) <= 0.01 * (wrong + len(passing)), passing
