"""The checks reject small automatic changes of right answers that are written in other ways than the references.

A file of its own: the tests of one file run on one worker, one after the other.
"""

import types

import pytest

from course_utils.exercises.exercise import Exercise
from course_utils.exercises.mutants import is_equivalent, is_rejected, mutants_of
from tests.answers import EXERCISES, answers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_hook", "no_compiler", "interrupts_may_get_lost")]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_small_changes_of_right_answers_are_rejected(exercise: Exercise) -> None:
    """One in forty. Equivalent is what does the same in random calls (`bench checks` looks at all of them)."""
    forms = [form for form in answers("right", exercise).values() if isinstance(form, types.FunctionType)]
    mutants = [(form.__name__, mutant) for form in forms for mutant in mutants_of(form, every=40)]
    passing = [(name, m) for name, m in mutants if not is_rejected(exercise, m.function())]
    known = passing if exercise.samples else []  # without samples there are no random calls to compare
    assert not [(name, m.change) for name, m in known if not is_equivalent(exercise, m.function())]
