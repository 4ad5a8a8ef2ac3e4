"""Right answers, however they are written, always pass; wrong ones never do, and a cause that is named is true.

`tests/answers` holds both, as people write them: `right/<lesson>.py`, `wrong/<lesson>.py` (each says what is wrong with
it), and `causes.json`, the causes that were read and found true.
"""

import inspect
import json
from pathlib import Path

import pytest

from course_utils.exercises.exercise import Exercise
from course_utils.exercises.judge import judge
from tests.answers import EXERCISES, answers

pytestmark = pytest.mark.usefixtures("no_hook", "no_compiler")

CAUSES = Path(__file__).parent / "answers" / "causes.json"
TRUE_CAUSES: dict[str, str] = json.loads(CAUSES.read_text(encoding="utf-8"))

every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)


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
