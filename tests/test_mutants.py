"""The checks reject small automatic changes of the references, as a learner's slips would make them."""

import re
from collections import Counter

import pytest

from course_utils.exercises.exercise import Exercise
from course_utils.exercises.mutants import is_rejected, mutants_of
from tests.answers import EXERCISES
from tests.answers.equivalent import EQUIVALENT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_hook", "no_compiler", "interrupts_may_get_lost")]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_small_changes_of_the_reference_are_rejected(exercise: Exercise) -> None:
    """All but those that change nothing: each is listed with its reason in `answers/equivalent.py`.

    Of a function with more than five hundred small changes, one in ten is tried.
    """
    some = mutants_of(exercise.function, every=10)
    tried = some if len(some) > 50 else mutants_of(exercise.function)
    passing = [m.change for m in tried if not is_rejected(exercise, m.function())]
    listed = {reason: rows[exercise.name] for reason, rows in EQUIVALENT.items() if exercise.name in rows}
    found = Counter(next((r for r, (_, p) in listed.items() if re.search(p, c)), f"not listed: {c}") for c in passing)
    assert set(found) <= set(listed)
    assert tried is some or found == {reason: count for reason, (count, _) in listed.items()}
