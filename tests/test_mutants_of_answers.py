"""The checks reject small automatic changes of right answers that are written in other ways than the references.

A file of its own: the tests of one file run on one worker, one after the other.
"""

import types

import pytest

from course_utils.exercises.mutants import is_equivalent, is_rejected, mutants_of
from tests.answers import EXERCISES, answers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_hook")]


def test_small_changes_of_right_answers_are_rejected() -> None:
    """One in forty. Equivalent is what does the same in random calls (`bench checks` looks at all of them)."""
    wrong, passing = 0, []
    for exercise in EXERCISES:
        forms = [f for f in answers("right", exercise).values() if isinstance(f, types.FunctionType)]
        mutants = [(form.__name__, m) for form in forms for m in mutants_of(form)][::40]
        for name, mutant in mutants:
            if is_rejected(exercise, mutant.function()):
                wrong += 1
            elif exercise.samples and not is_equivalent(exercise, mutant.function()):
                passing.append((name, mutant.change))
    assert len(passing) <= 0.01 * (wrong + len(passing)), passing
