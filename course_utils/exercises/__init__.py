"""The exercise engine, and one module a lesson: checks, promises, known mistakes, hints.

A lesson's module needs `Exercise`, `case` and `normal`, and, for what cases cannot say, `expect` and `note`.
"""

from course_utils.exercises.cases import case, normal
from course_utils.exercises.compare import Mismatch, expect
from course_utils.exercises.exercise import Exercise
from course_utils.exercises.record import note

__all__ = ["Exercise", "Mismatch", "case", "expect", "normal", "note"]
