"""The checks reject small automatic changes of right answers, as a learner's slips would make them."""

import re
import types
from collections import Counter

import pytest

from course_utils.exercises.exercise import Exercise
from course_utils.exercises.mutants import is_equivalent, is_rejected, mutants_of
from tests.answers import EXERCISES, answers
from tests.answers.equivalent import EQUIVALENT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_hook")]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_small_changes_of_the_reference_are_rejected(exercise: Exercise) -> None:
    """All but those that change nothing: each is listed with its reason in `answers/equivalent.py`."""
    passing = [m.change for m in mutants_of(exercise.function) if not is_rejected(exercise, m.function())]
    listed = {reason: rows[exercise.name] for reason, rows in EQUIVALENT.items() if exercise.name in rows}
    found = Counter(next((r for r, (_, p) in listed.items() if re.search(p, c)), f"not listed: {c}") for c in passing)
    assert found == {reason: count for reason, (count, _) in listed.items()}


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
